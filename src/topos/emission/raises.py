"""Compositions for which StableHLO has one operation: convolutions and pools, elected among a plan's patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from topos.element import f32, f64
from topos.emission.site import Site
from topos.emission.text import Named
from topos.engine.entry import Entry
from topos.engine.pattern.elect import NOTHING, Election, elect
from topos.engine.pattern.layout import Window
from topos.engine.pattern.match import Match
from topos.engine.pattern.pool import pooled
from topos.graph.spec import Spec
from topos.op import Permute, Reshape


def elected(spec: Spec, length: int, rows: Sequence[int], entry: Entry) -> Election:
    """The compositions of a schedule that are written as one operation. None of a plan that retains its values."""
    if entry.backward:
        return NOTHING
    able = [match for match in pooled(spec, length) if match.formula in RAISES and _is_able(spec, match)]
    kept = {symbol.index for symbol in (*entry.results, *entry.carry.values())}
    return elect(spec.rows, rows, able, RAISES, kept)


def _is_able(spec: Spec, match: Match) -> bool:
    """Whether its numbers accumulate in their own type, and it is arranged as the operation would have it."""
    if any(spec.element_of(row) not in (f32, f64) for row in (*match.rows, *match.operands.values())):
        return False
    if any(spec.is_selection(row) or not spec.rows[row].shape.volume for row in match.operands.values()):
        return False
    if match.formula == "REDUCE_WINDOW":
        return not any(isinstance(spec.rows[row].opcode, Permute | Reshape) for row in match.rows)
    return Axes.of(spec, match) is not None


class Axes(NamedTuple):
    """What each axis is, of what a convolution reads and answers: `b`, `f`, `i`, `o` or the number of its windows."""

    operand: list[str]
    kernel: list[str]
    result: list[str]

    @staticmethod
    def of(spec: Spec, match: Match) -> Axes | None:
        """The axes of a product over windows; `None` where it is no product of two matrices, or is none of these."""
        if len(match.parameters["axes"]) != 2:
            return None
        windows = [window.axis for window in match.parameters["windows"]]
        left = match.parameters["side"] == "left"
        outer, inner = match.parameters["axes"] if left else reversed(match.parameters["axes"])
        names = {(axis, role): str(at) for at, axis in enumerate(windows) for role in ("count", "offset")}
        wholes = {part: name for parts, name in ((outer, "b"), (inner, "f")) for part in parts if part[1] == "whole"}
        rank = spec.rows[match.operands["operand"]].shape.rank
        operand = [names.get((axis, "count")) or wholes.get((axis, "whole"), "") for axis in range(rank)]
        result = [names[part] if part[1] == "count" else wholes.get(part, "") for part in outer]
        kernel = [names[part] if part[1] == "offset" else wholes.get(part, "").replace("f", "i") for part in inner]
        axes = Axes(
            _completed(operand, "bf"),
            _completed(kernel + ["o"] if left else ["o", *kernel], "i"),
            _completed(result + ["f"] if left else ["f", *result], "b"),
        )
        wanted = sorted([*map(str, range(len(windows))), "b", "f"])
        fits = sorted(axes.operand) == sorted(axes.result) == wanted
        return axes if fits and sorted(axes.kernel) == sorted([*wanted[:-2], "i", "o"]) else None


def _completed(axes: list[str], needed: str) -> list[str]:
    """With an axis of extent 1 at the end for each that is not there."""
    return [*axes, *(name for name in needed if name not in axes)]


def convolution(site: Site, spec: Spec, match: Match) -> Named:
    """A product over windows."""
    axes = Axes.of(spec, match)
    assert axes is not None  # it was elected for it
    writer, windows = site.words.writer, match.parameters["windows"]
    x, kernel = site.dense(0), site.dense(1)
    extents = dict(zip(axes.operand, x.shape, strict=False))
    counts = {str(at): _count(window, x.shape[window.axis]) for at, window in enumerate(windows)}
    sizes = {str(at): window.size for at, window in enumerate(windows)}
    outputs = kernel.shape[1 if axes.kernel[0] != "o" else 0]
    x = _shaped(site, x, [*x.shape, *[1] * (len(axes.operand) - len(x.shape))], "operand")
    kernel = _shaped(
        site, kernel, [{**sizes, "i": extents.get("f", 1), "o": outputs}[name] for name in axes.kernel], "kernel"
    )
    ordered = ["b", *map(str, range(len(windows))), "f"]  # the one order that every engine knows for a result
    shape = [{**counts, "b": extents.get("b", 1), "f": outputs}[name] for name in ordered]
    result = writer.named("convolution", shape, site.type)
    numbers = "x".join(f"[{', '.join(names)}]" for names in axes[:2]) + f"->[{', '.join(ordered)}]"
    window = (
        f"stride = {[window.step for window in windows]}, pad = {[[w.before, w.after] for w in windows]}, "
        f"rhs_dilate = {[window.dilation for window in windows]}"
    )
    groups = "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    text = f"stablehlo.convolution({x.name}, {kernel.name}) dim_numbers = {numbers}, window = {{{window}}} {groups}"
    made = writer.line(result, f"{text} : {writer.signature([x, kernel], result)}")
    return _shaped(site, _ordered(site, made, [ordered.index(name) for name in axes.result]), site.shape, "reshape")


def _ordered(site: Site, x: Named, order: list[int]) -> Named:
    if order == sorted(order):
        return x
    shape = [x.shape[axis] for axis in order]
    return site.words.writer.operation("transpose", [x], shape, x.type, attributes=f", dims = {order}")


def _shaped(site: Site, x: Named, shape: Sequence[int], called: str) -> Named:
    if x.shape == tuple(shape):
        return x
    return site.words.writer.operation("reshape", [x], shape, x.type, called=called)


def _count(window: Window, extent: int) -> int:
    span = window.dilation * (window.size - 1) + 1
    return (extent + window.before + window.after - span) // window.step + 1


def pool(site: Site, spec: Spec, match: Match) -> Named:
    """The largest of each window, or the sum of each by as many terms as it has."""
    words, x, windows = site.words, site.dense(0), match.parameters["windows"]
    largest = match.kind == "max pool"
    seed = words.scalar(float("-inf") if largest else 0.0, x.type)
    result = words.writer.named("pool", site.shape, site.type)
    text = f'"stablehlo.reduce_window"({x.name}, {seed.name}) <{{{_window(windows, len(x.shape))}}}> '
    region = words.region("maximum" if largest else "add", x.type)
    pooled = words.writer.line(result, f"{text}{region} : {words.writer.signature([x, seed], result)}")
    if largest:
        return words.add(pooled, words.number(0.0, pooled, "zero"))
    return words.div(pooled, words.number(float(prod(window.size for window in windows)), pooled, "terms"))


def _window(windows: Sequence[Window], rank: int) -> str:
    """The attributes of a reduction over windows, of extent 1 along the other axes."""
    at = {window.axis: window for window in windows}
    every = [at.get(axis, Window(axis, 1)) for axis in range(rank)]
    arrays = {
        "window_dilations": [window.dilation for window in every],
        "window_dimensions": [window.size for window in every],
        "window_strides": [window.step for window in every],
    }
    padding = f"padding = dense<{[[window.before, window.after] for window in every]}> : tensor<{rank}x2xi64>"
    return ", ".join(
        [padding, *(f"{name} = array<i64: {', '.join(map(str, array))}>" for name, array in arrays.items())]
    )


RAISES: dict[str, Callable[[Site, Spec, Match], Named]] = {"WINDOW_PRODUCT": convolution, "REDUCE_WINDOW": pool}
"""What writes each composition, by its formula."""
