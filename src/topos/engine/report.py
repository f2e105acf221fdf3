"""Finding the first bad value of a run: what it is, where it stands, and who wrote it."""

from __future__ import annotations

import numpy as np

from topos.graph import Symbol
from topos.graph.place import line
from topos.graph.spec import Spec
from topos.op import Opcode
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor


class Finding(NamedTuple):
    """A bad value: its node, where (`at`) its first bad entry stands, and that entry. `str` tells it to a person.

    `place` is the user's file and line; `rule_of` the node whose derivative rule recorded this one, if any.
    """

    symbol: Symbol
    opcode: Opcode
    shape: Shape
    operands: tuple[tuple[Symbol, Shape], ...]
    at: tuple[int, ...]
    value: float
    place: str
    rule_of: Symbol | None
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Report(NamedTuple):
    """The first value that is not finite and, where it is another node, the first that is NaN.

    `step` is the step that they stand in, counted from 0, of an `advance` that was given `steps`. The text is the same
    by every route, so it does not tell the step.
    """

    first: Finding
    first_nan: Finding | None
    step: int | None = None

    def __str__(self) -> str:
        parts = [f"first non-finite: {self.first}"]
        if self.first_nan is not None:
            parts.append(f"first NaN: {self.first_nan}")
        return "\n".join(parts)


class Watch:
    """Looks at each value as it is computed and keeps the first bad ones."""

    def __init__(self, spec: Spec, step: int | None = None) -> None:
        self._spec = spec
        self._step = step
        self._first: Finding | None = None
        self._first_nan: Finding | None = None

    def see(self, row: int, tensor: Tensor) -> None:
        """One row's value, in evaluation order."""
        if self._first_nan is not None or tensor.element is None:
            return
        with np.errstate(all="ignore"):
            numbers = _numbers(tensor)
            if numbers is None:
                return
            finite = np.isfinite(numbers)
            if not finite.all():
                bad = np.isnan(numbers)
                if self._first is None:
                    self._first = _finding(self._spec, row, numbers, ~finite)
                if bad.any():
                    self._first_nan = _finding(self._spec, row, numbers, bad)

    def report(self) -> Report | None:
        """What was found; `None` when everything is finite."""
        if self._first is None:
            return None
        same = self._first_nan is not None and self._first_nan.symbol == self._first.symbol
        return Report(self._first, None if same else self._first_nan, self._step)


def _numbers(tensor: Tensor) -> np.ndarray | None:
    array = tensor.numpy()
    if array.dtype.kind == "f":
        return array
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else None


def _finding(spec: Spec, row: int, numbers: np.ndarray, bad: np.ndarray) -> Finding:
    recorded = spec.rows[row]
    at = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
    operands = tuple((Symbol(spec.family, i), spec.rows[i].shape) for i in recorded.operands)
    value = float(numbers[at])
    lines = [f"{value} at {list(at)} of {spec.label(row)}"]
    if recorded.operands:
        lines += [f"  {fact}" for fact in spec.facts(recorded.opcode.roles, list(recorded.operands))]
    rule_of = None if recorded.origin is None else Symbol(spec.family, recorded.origin)
    if rule_of is not None:
        lines.append(f"  written by the rule of {spec.label(rule_of.index)}")
    return Finding(
        Symbol(spec.family, row),
        recorded.opcode,
        recorded.shape,
        operands,
        at,
        value,
        line(recorded.place),
        rule_of,
        tuple(lines),
    )
