"""Products over windows and their gradients as convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from topos.emission.raises.axes import Axes, axes_of
from topos.emission.raises.raising import Raising, ordered, shaped
from topos.emission.text import Named
from topos.engine.pattern.layout import Window
from topos.records import NamedTuple


class Along(NamedTuple):
    """A convolution along the axis of one of its windows: extents, strides, padding and dilations."""

    operand: int
    kernel: int
    result: int
    stride: int = 1
    before: int = 0
    after: int = 0
    operand_dilation: int = 1
    kernel_dilation: int = 1


class Extents(NamedTuple):
    """How far a product over windows reaches along what is no window of it."""

    batch: int
    features: int
    outputs: int


def product(raising: Raising) -> dict[int, Named]:
    """`y[b, n, o] = sum x[b, n * step + k * dilation - before, f] * kernel[k, f, o]`."""
    axes, source = _axes(raising), raising.operand("operand").shape
    along = []
    for window in raising.match.parameters["windows"]:
        extent = source[window.axis]
        reach = window.before, window.after
        count = counted(window, extent)
        along.append(Along(extent, window.size, count, window.step, *reach, kernel_dilation=window.dilation))
    extents = _extents(axes.operand, source, raising.operand("kernel"), [one.kernel for one in along], "f")
    return _convolution(raising, "operand", "kernel", along, extents)


def kernel_gradient(raising: Raising) -> dict[int, Named]:
    """`g[f, k, o] = sum x[b, n * step + k * dilation - before, f] * cotangent[b, n, o]`: the features are its batch."""
    axes, source = _axes(raising), raising.operand("operand").shape
    along = []
    for window in raising.match.parameters["windows"]:
        extent = source[window.axis]
        count = counted(window, extent)
        after = (window.size - 1) * window.dilation + (count - 1) * window.step + 1 - extent - window.before
        reach = window.before, after
        along.append(Along(extent, count, window.size, window.dilation, *reach, kernel_dilation=window.step))
    extents = _extents(axes.operand, source, raising.operand("cotangent"), [one.kernel for one in along], "f")
    return _convolution(raising, "operand", "cotangent", along, extents)


def input_gradient(raising: Raising) -> dict[int, Named]:
    """`g[b, p, f] = sum cotangent[b, n, o] * kernel[k, f, o]` where `n * step + k * dilation - before = p`."""
    axes, source = _axes(raising), raising.site.shape
    along = []
    for window in raising.match.parameters["windows"]:
        extent = source[window.axis]
        count, reach = counted(window, extent), window.dilation * (window.size - 1)
        after = extent - 1 + window.before - (count - 1) * window.step
        padding = reach - window.before, after
        along.append(Along(count, window.size, extent, 1, *padding, window.step, window.dilation))
    extents = _extents(axes.result, source, raising.operand("cotangent"), [one.operand for one in along], "b")
    turned = Extents(extents.batch, extents.outputs, extents.features)
    return _convolution(raising, "cotangent", "kernel", along, turned, is_reversed=True)


def counted(window: Window, extent: int) -> int:
    """How many windows there are along an axis."""
    span = window.dilation * (window.size - 1) + 1
    return (extent + window.before + window.after - span) // window.step + 1


def _axes(raising: Raising) -> Axes:
    axes = axes_of(raising.spec, raising.match)
    assert axes is not None  # it was elected for it
    return axes


def _extents(names: Sequence[str], source: Sequence[int], matrix: Named, places: Sequence[int], shared: str) -> Extents:
    """The extents of a source whose axes are named; outputs are what a matrix has beside places and what is shared."""
    known = {"b": 1, "f": 1, **dict(zip(names, source, strict=False))}
    return Extents(known["b"], known["f"], prod(matrix.shape) // (prod(places) * known[shared]))


def _convolution(
    raising: Raising,
    operand: str,
    kernel: str,
    along: Sequence[Along],
    extents: Extents,
    is_reversed: bool = False,
) -> dict[int, Named]:
    """The convolution of two values that the composition reads."""
    site, axes, writer = raising.site, _axes(raising), raising.site.words.writer
    batch, features, outputs = extents
    x = _laid_out(raising, operand, axes.operand, {"b": batch, "f": features}, [one.operand for one in along])
    y = _laid_out(raising, kernel, axes.kernel, {"i": features, "o": outputs}, [one.kernel for one in along])
    ordering = ["b", *map(str, range(len(along))), "f"]  # the one order that every engine knows for a result
    result = writer.named("convolution", [batch, *(one.result for one in along), outputs], site.accumulator)
    numbers = "x".join(f"[{', '.join(names)}]" for names in axes[:2]) + f"->[{', '.join(ordering)}]"
    groups = "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    text = (
        f"stablehlo.convolution({x.name}, {y.name}) dim_numbers = {numbers}, "
        f"window = {{{_window(along, is_reversed)}}} {groups} : {writer.signature([x, y], result)}"
    )
    made = site.demoted(writer.line(result, text))
    made = ordered(site, made, [ordering.index(name) for name in axes.result])
    return raising.alone(shaped(site, made, site.shape, "reshape"))


def _laid_out(
    raising: Raising, name: str, axes: Sequence[str], extents: Mapping[str, int], places: Sequence[int]
) -> Named:
    """What the composition reads under a name, with axes of those names."""
    known = {**extents, **{str(at): extent for at, extent in enumerate(places)}}
    return shaped(raising.site, raising.operand(name), [known[axis] for axis in axes], name)


def _window(along: Sequence[Along], is_reversed: bool) -> str:
    """The attributes of a window that say something."""
    lists: dict[str, list[object]] = {
        "stride": [one.stride for one in along],
        "pad": [[one.before, one.after] for one in along],
        "lhs_dilate": [one.operand_dilation for one in along],
        "rhs_dilate": [one.kernel_dilation for one in along],
        "reverse": [int(is_reversed)] * len(along),
    }
    usual = {"stride": 1, "pad": [0, 0], "lhs_dilate": 1, "rhs_dilate": 1, "reverse": 0}
    said = {name: numbers for name, numbers in lists.items() if any(number != usual[name] for number in numbers)}
    return ", ".join(f"{name} = {numbers}" for name, numbers in said.items())
