"""Pools as reductions over windows, and the gradient of an average as one over what was spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from topos.emission.raises.convolutions import counted
from topos.emission.raises.raising import Raising
from topos.emission.text import Named
from topos.engine.pattern.layout import Window
from topos.engine.pattern.match import Match
from topos.graph.spec import Spec
from topos.op import Permute, Reshape


def is_spelled(spec: Spec, match: Match) -> bool:
    """Whether windows stay where they are. Of gradients, that of an average: those of a largest are shared by ties."""
    if any(isinstance(spec.rows[row].opcode, Permute | Reshape) for row in match.rows):
        return False
    return not match.formula.endswith("GRADIENT") or match.kind == "average pool gradient"


def pool(raising: Raising) -> dict[int, Named]:
    """The largest of each window, or the sum of each by as many terms as it has."""
    words, x, windows = raising.site.words, raising.operand("operand"), raising.match.parameters["windows"]
    if raising.match.kind == "max pool":
        largest = _reduced(raising, x, "maximum", float("-inf"), {window.axis: (window, 1) for window in windows})
        return raising.alone(words.add(largest, words.number(0.0, largest, "zero")))
    wide = words.convert(x, raising.site.accumulator)
    total = raising.site.demoted(_reduced(raising, wide, "add", 0.0, {w.axis: (w, 1) for w in windows}))
    return raising.alone(words.div(total, words.number(_terms(windows), total, "terms")))


def pool_gradient(raising: Raising) -> dict[int, Named]:
    """What each number had a share in, by as many terms as an average has: a sum over windows of the cotangents."""
    words, windows = raising.site.words, raising.match.parameters["windows"]
    cotangent = raising.operand("cotangent")
    share = words.div(cotangent, words.number(_terms(windows), cotangent, "terms"))
    facts = {}
    for window in windows:
        extent, reach = raising.site.shape[window.axis], window.dilation * (window.size - 1)
        after = extent - 1 + window.before - (counted(window, extent) - 1) * window.step
        turned = Window(window.axis, window.size, 1, window.dilation, reach - window.before, after)
        facts[window.axis] = turned, window.step
    wide = words.convert(share, raising.site.accumulator)
    total = raising.site.demoted(_reduced(raising, wide, "add", 0.0, facts))
    return raising.named({"operand gradient": total})


def _terms(windows: Sequence[Window]) -> float:
    return float(prod(window.size for window in windows))


def _reduced(
    raising: Raising, x: Named, operation: str, start: float, windows: Mapping[int, tuple[Window, int]]
) -> Named:
    """Each window of a value taken together, of an operand that is dilated along some axes."""
    words, rank = raising.site.words, len(x.shape)
    every = [windows.get(axis, (Window(axis, 1), 1)) for axis in range(rank)]
    seed = words.scalar(start, x.type)
    shape = [counted(w, dilation * (extent - 1) + 1) for (w, dilation), extent in zip(every, x.shape, strict=True)]
    result = words.writer.named("pool", shape, x.type)
    text = f'"stablehlo.reduce_window"({x.name}, {seed.name}) <{{{_attributes(every)}}}> '
    region = words.region(operation, x.type)
    return words.writer.line(result, f"{text}{region} : {words.writer.signature([x, seed], result)}")


def _attributes(every: Sequence[tuple[Window, int]]) -> str:
    """The attributes of a reduction over windows, one of them along each axis."""
    arrays = {
        "base_dilations": [dilation for _, dilation in every],
        "window_dilations": [window.dilation for window, _ in every],
        "window_dimensions": [window.size for window, _ in every],
        "window_strides": [window.step for window, _ in every],
    }
    if set(arrays["base_dilations"]) == {1}:
        del arrays["base_dilations"]
    padding = f"padding = dense<{[[window.before, window.after] for window, _ in every]}> : tensor<{len(every)}x2xi64>"
    lists = (f"{name} = array<i64: {', '.join(map(str, array))}>" for name, array in arrays.items())
    return ", ".join([padding, *lists])
