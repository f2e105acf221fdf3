"""What lies along the axes of a convolution: a batch, features, outputs, or places along one of its windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topos.engine.pattern.match import Match
from topos.graph.spec import Spec
from topos.records import NamedTuple

Parts = Sequence[tuple[int, str]]


class Axes(NamedTuple):
    """The axes of what a convolution reads and answers: `b`, `f`, `i`, `o` or the number of a window.

    A product over windows sums over places in them, and so does a convolution. The gradient of its kernel sums over
    the windows instead: a convolution of the same operand, whose batch is then what were features, with the cotangent
    as the kernel. The gradient of its operand is one of the cotangent.
    """

    operand: list[str]
    kernel: list[str]
    result: list[str]

    @property
    def is_whole(self) -> bool:
        """Whether each of the axes is there once."""
        windows = [name for name in self.result if name.isdigit()]
        wanted = sorted([*windows, "b", "f"])
        return sorted(self.operand) == sorted(self.result) == wanted and sorted(self.kernel) == sorted(
            [*windows, "i", "o"]
        )


def axes_of(spec: Spec, match: Match) -> Axes | None:
    """The axes of a product over windows or of a gradient of one; `None` where it is no convolution of two matrices."""
    if len(match.parameters["axes"]) != 2:
        return None
    axes = (_of_input_gradient if match.formula.endswith("INPUT_GRADIENT") else _of_product)(spec, match)
    return axes if axes.is_whole else None


def _of_product(spec: Spec, match: Match) -> Axes:
    """Of which the windows are one operand: what lies along its terms is contracted."""
    left = match.parameters["side"] == "left"
    outer, inner = match.parameters["axes"] if left else reversed(match.parameters["axes"])
    windows, wholes = _windows(match), _wholes((outer, "b"), (inner, "f"))
    rank = spec.rows[match.operands["operand"]].shape.rank
    kernel = [windows[part[0]] if part[1] != "whole" else wholes[part].replace("f", "i") for part in inner]
    result = [windows[part[0]] if part[1] != "whole" else wholes[part] for part in outer]
    return Axes(
        _completed([windows.get(axis) or wholes.get((axis, "whole"), "") for axis in range(rank)], "bf"),
        _completed([*kernel, "o"] if left else ["o", *kernel], "i"),
        _completed([*result, "f"] if left else ["f", *result], "b"),
    )


def _of_input_gradient(spec: Spec, match: Match) -> Axes:
    """Of which the product is laid out like windows of the root."""
    left = match.parameters["side"] == "left"
    outer, inner = match.parameters["axes"] if left else reversed(match.parameters["axes"])
    windows, wholes = _windows(match), _wholes((outer, "b"), (inner, "f"))
    rank = spec.rows[match.root].shape.rank
    operand = [windows[part[0]] if part[1] != "whole" else wholes[part] for part in outer]
    kernel = [windows[part[0]] if part[1] != "whole" else wholes[part].replace("f", "o") for part in inner]
    return Axes(
        _completed([*operand, "f"] if left else ["f", *operand], "b"),
        _completed(["i", *kernel] if left else [*kernel, "i"], "o"),
        _completed([windows.get(axis) or wholes.get((axis, "whole"), "") for axis in range(rank)], "bf"),
    )


def _windows(match: Match) -> dict[int, str]:
    """The number of each axis that there are windows along."""
    return {window.axis: str(at) for at, window in enumerate(match.parameters["windows"])}


def _wholes(*named: tuple[Parts, str]) -> dict[tuple[int, str], str]:
    return {part: name for parts, name in named for part in parts if part[1] == "whole"}


def _completed(axes: Iterable[str], needed: str) -> list[str]:
    """With an axis of extent 1 at the end for each that is not there."""
    axes = list(axes)
    return [*axes, *(name for name in needed if name not in axes)]
