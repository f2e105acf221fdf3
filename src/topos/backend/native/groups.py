"""Which rows become one kernel: a schedule of rows to a schedule of groups.

Elementwise rows of one shape share a loop, in registers; a reduction takes the elementwise rows that only it reads into
its loop; movement is folded into addressing; everything else stands alone. Groups run in order, and a group reads only
what earlier ones stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from topos.backend.native.views import View, dense, moved
from topos.engine.liveness import volume
from topos.graph.spec import Spec
from topos.op import Cast, Elementwise, Movement, Sum
from topos.op.reduction import AlongAxis
from topos.shape import Shape
from topos.tensor import Tensor

MOST_ROWS = 128
"""Rows in one loop: longer chains are cut, so that equal stretches of them print equal kernels."""
NEAR = 64
"""How many groups later a row may still join one."""


class Group(NamedTuple):
    """Rows that one kernel computes, in order; the last one gives it its name.

    `reads` are the operands in memory, `writes` the rows whose values are stored; the others live in registers.
    """

    shape: Shape
    rows: list[int]
    reads: list[int]
    writes: list[int]


class Lowering:
    """The groups of a schedule, and for each row where its value is read.

    `views` has every row whose value is in memory, `constants` the rows that are one number at every place, as tensors
    of rank 0. `copies` names the reshapes whose strides do not merge: they are groups of their own.
    """

    def __init__(self, spec: Spec, scheduled: Sequence[int], kept: Iterable[int]) -> None:
        self.spec = spec
        self.kept = frozenset(kept)
        self.users = _users(spec, scheduled)
        self.views: dict[int, View] = {}
        self.constants: dict[int, Tensor] = {}
        self.home: dict[int, int] = {}
        self.rows: list[list[int]] = []
        for row in scheduled:
            self._place(row)
        self._inline()
        self.groups = [self._group(rows) for rows in self.rows if rows]

    def view(self, row: int) -> View:
        """Where a row is read: in memory, or the one number of a constant again and again."""
        if row in self.constants:
            return View(row, 0, self.spec.rows[row].shape, (0,) * self.spec.rows[row].shape.rank)
        return self.views[row]

    # one row after another
    def _place(self, row: int) -> None:
        recorded = self.spec.rows[row]
        opcode = recorded.opcode
        if opcode.is_source:
            payload = self.spec.payloads.get(row) if opcode.name == "Leaf" else None
            constant = payload.as_constant() if payload is not None else None
            if constant is None:
                self.views[row] = dense(row, recorded.shape)
            else:
                self.constants[row] = constant
        elif isinstance(opcode, Movement) and self._moves(row, opcode):
            pass
        elif isinstance(opcode, Elementwise | Cast):
            self._join(row)
        else:
            self._alone(row)

    def _moves(self, row: int, opcode: Movement) -> bool:
        """Whether a movement is an address and nothing else; a result has a buffer of its own."""
        (operand,) = self.spec.rows[row].operands
        if operand in self.constants:
            self.constants[row] = self.constants[operand]
            return True
        result = None if row in self.kept else self.moved(row)
        if result is not None:
            self.views[row] = result
        return result is not None

    def moved(self, row: int) -> View | None:
        """Where a movement's numbers are read in its operand's buffer, or `None` where they have to be copied."""
        (operand,) = self.spec.rows[row].operands
        opcode = self.spec.rows[row].opcode
        assert isinstance(opcode, Movement)
        view = self.views[operand]
        if self.spec.is_selection(view.row):
            return None
        return moved(view, opcode, volume(self.spec, view.row))

    def _join(self, row: int) -> None:
        """Puts an elementwise row into the first loop of its shape that runs late enough, or a new one."""
        shape = self.spec.rows[row].shape
        earliest = 0
        for operand in self.spec.rows[row].operands:
            view = self.views.get(operand)
            if view is not None and view.row in self.home:
                home = self.home[view.row]
                own = view.row == operand and self._is_loop(home)
                earliest = max(earliest, home if own and self.spec.rows[operand].shape == shape else home + 1)
        for at in range(earliest, min(len(self.rows), earliest + NEAR)):
            same = self._is_loop(at) and self.spec.rows[self.rows[at][-1]].shape == shape
            if same and len(self.rows[at]) < MOST_ROWS:
                self._put(row, at)
                return
        self._alone(row)

    def _alone(self, row: int) -> None:
        self.rows.append([])
        self._put(row, len(self.rows) - 1)

    def _put(self, row: int, at: int) -> None:
        self.rows[at].append(row)
        self.home[row] = at
        self.views[row] = dense(row, self.spec.rows[row].shape)

    def _is_loop(self, at: int) -> bool:
        return bool(self.rows[at]) and isinstance(self.spec.rows[self.rows[at][-1]].opcode, Elementwise | Cast)

    # reductions take in what only they read
    def _inline(self) -> None:
        for at, rows in enumerate(self.rows):
            if rows and isinstance(self.spec.rows[rows[-1]].opcode, Sum | AlongAxis):
                self._take_in(rows[-1], at)

    def _take_in(self, row: int, at: int) -> None:
        for operand in self.spec.rows[row].operands:
            home = self.home.get(operand)
            alone = self.users.get(operand) == [row] and operand not in self.kept
            if home is not None and home != at and alone and self._is_loop_row(operand):
                self.rows[home].remove(operand)
                self.rows[at].insert(0, operand)
                self.home[operand] = at
                self._take_in(operand, at)

    def _is_loop_row(self, row: int) -> bool:
        return isinstance(self.spec.rows[row].opcode, Elementwise | Cast)

    # what is stored
    def _group(self, rows: list[int]) -> Group:
        inside = set(rows)
        reads: dict[int, None] = {}
        for row in rows:
            for operand in self.spec.rows[row].operands:
                if operand not in inside and operand not in self.constants:
                    reads[operand] = None
        writes = [row for row in rows if row in self.kept or row == rows[-1] or self._leaves(row, inside)]
        return Group(self.spec.rows[rows[-1]].shape, rows, list(reads), writes)

    def _leaves(self, row: int, inside: set[int]) -> bool:
        """Whether anything outside reads a row: directly, or through a movement of it."""
        return any(user not in inside for user in self.users.get(row, ()))

    def describe(self) -> str:
        """One line per group: its rows, what it reads and what it stores."""
        lines = []
        for at, group in enumerate(self.groups):
            names = " ".join(f"{row}:{self.spec.rows[row].opcode.name}" for row in group.rows)
            reads, writes = (", ".join(map(str, part)) for part in (group.reads, group.writes))
            lines.append(f"{at:>4}  {group.shape!s:13}  {names}  reads {reads or 'nothing'}  stores {writes}")
        return "\n".join(lines)


def _users(spec: Spec, scheduled: Sequence[int]) -> dict[int, list[int]]:
    users: dict[int, list[int]] = {}
    for row in scheduled:
        for operand in dict.fromkeys(spec.rows[row].operands):
            users.setdefault(operand, []).append(row)
    return users
