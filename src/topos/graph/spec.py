"""The rows of a spec: what a tape appends to and everything later reads."""

from __future__ import annotations

from typing import Any

from topos.element import Element
from topos.errors import FeedError, KinshipError
from topos.graph.place import Place, described, here, line
from topos.graph.symbol import Family, Symbol, what_it_is
from topos.op import Opcode
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor


class Row(NamedTuple):
    """One node: its instruction over earlier rows, and what was inferred when it was recorded.

    `element` is `None` for a selection; `origin` is the row whose derivative rule wrote this one.
    """

    opcode: Opcode
    operands: tuple[int, ...]
    shape: Shape
    element: Element | None
    place: Place | None
    origin: int | None


class Ids(NamedTuple):
    """What a fed selection must look like: ids of `shape` in `0 .. vocab - 1`, or `absent`."""

    shape: Shape
    vocab: int
    absent: int | None

    @property
    def rows(self) -> Shape:
        """The shape of the one-hot rows that they stand for."""
        return Shape((self.shape.volume, self.vocab))


class Spec:
    """Append-only rows and, beside them, what only some have: payloads, ids and names.

    A tape, the network it becomes and a tape reopened from it share one, so that a symbol keeps its node; a plan
    holds the rows and how many there were.
    """

    __slots__ = ("by_name", "element", "family", "ids", "names", "payloads", "rows", "sealed")

    def __init__(self, element: Element) -> None:
        self.family = Family()
        self.element = element
        self.rows: list[Row] = []
        self.payloads: dict[int, Tensor] = {}
        self.ids: dict[int, Ids] = {}
        self.names: dict[int, str] = {}
        self.by_name: dict[str, int] = {}
        self.sealed = 0

    def add(
        self, opcode: Opcode, operands: tuple[int, ...], shape: Shape, element: Element | None, origin: int | None
    ) -> int:
        """Appends a row whose facts were checked; one that a derivative rule wrote stands where its origin does."""
        place = here() if origin is None else self.rows[origin].place
        self.rows.append(Row(opcode, operands, shape, element, place, origin))
        return len(self.rows) - 1

    def truncate(self, length: int) -> None:
        """Takes back every row from `length` on."""
        del self.rows[length:]
        tables: tuple[dict[int, Any], ...] = (self.payloads, self.ids, self.names)
        for table in tables:
            for index in [index for index in table if index >= length]:
                del table[index]
        for name in [name for name, index in self.by_name.items() if index >= length]:
            del self.by_name[name]

    def absent(self, index: int) -> int | None:
        """The id with which a selection selects nothing, `None` where there is no such id."""
        if index in self.ids:
            return self.ids[index].absent
        return self.payloads[index].absent if index in self.payloads else None

    def is_selection(self, index: int) -> bool:
        """Whether a row is a selection: an input of ids, or a leaf with a selection payload."""
        payload = self.payloads.get(index)
        return index in self.ids or (payload is not None and payload.ids is not None)

    def element_of(self, index: int) -> Element:
        """The element of a row's numbers; of a selection, the common one."""
        return self.rows[index].element or self.element

    def payload(self, index: int) -> Tensor:
        """What a source was recorded with. Raises `KinshipError` for a node that is none, `FeedError` for ids."""
        payload = self.payloads.get(index)
        if payload is not None:
            return payload
        if index in self.ids:
            raise FeedError(f"payload: {self.label(index)} is a selection and has no default; its ids are fed")
        raise KinshipError(f"payload: {self.label(index)} is not a source")

    def check_name(self, name: str) -> None:
        """Raises `KinshipError` where a name is taken or is no name."""
        if not isinstance(name, str) or not name:
            raise KinshipError(f"name: must be a non-empty string, got {name!r}")
        if name in self.by_name:
            raise KinshipError(f"name: {name!r} is taken by {self.label(self.by_name[name])}")

    def name(self, index: int, name: str) -> None:
        """Names a row; a second name replaces the first, which still finds a row that was sealed with it."""
        self.check_name(name)
        former = self.names.get(index) if index >= self.sealed else None
        held = self.names.get(index)
        try:
            self.names[index] = name
            self.by_name[name] = index
            if former is not None:
                del self.by_name[former]
        except BaseException:  # an interrupt: the two tables say the same
            self.by_name.pop(name, None)
            self.names.pop(index, None)
            if held is not None:
                self.names[index] = held
                self.by_name[held] = index
            raise

    def index_of(self, symbol: object, rule: str, length: int | None = None) -> int:
        """The row that a symbol names.

        Raises `KinshipError` for another family's symbol, or one at or after `length` rows.
        """
        if not isinstance(symbol, Symbol):
            hint = "; take value.symbol()" if hasattr(symbol, "symbol") else ""
            raise KinshipError(f"{rule}: wants a symbol, got {what_it_is(symbol)}{hint}")
        if symbol.family is not self.family:
            raise KinshipError(f"{rule}: symbol {symbol} belongs to another spec than this one")
        covered = len(self.rows) if length is None else length
        if not 0 <= symbol.index < covered:
            raise KinshipError(f"{rule}: symbol {symbol} is not among the {covered} nodes that this covers")
        return symbol.index

    def label(self, index: int) -> str:
        """A row for people, in a message: `%7 Tanh [2, 3] 'hidden' model.py:41`."""
        row = self.rows[index]
        name = f"'{self.names[index]}'" if index in self.names else ""
        parts = (f"%{index} {row.opcode.name}", self.extents(index), name, self.written(index))
        return " ".join(part for part in parts if part)

    def extents(self, index: int) -> str:
        """A row's shape, and its element where it is not the common one: `[2, 3]`, `[2, 3] bf16`."""
        row = self.rows[index]
        common = row.element is None or row.element is self.element
        return str(row.shape) if common else f"{row.shape} {row.element}"

    def written(self, index: int) -> str:
        """Where a row was recorded, and for one that a derivative rule wrote, of which node the rule was."""
        row = self.rows[index]
        if row.origin is None:
            return described(row.place, row.opcode.rule)
        rule = f"rule of %{row.origin} {self.rows[row.origin].opcode.name}"
        return f"{line(row.place)} ({rule})" if row.place else rule

    def facts(self, roles: tuple[str, ...], indices: list[int]) -> list[str]:
        """A line per operand in aligned columns: role, node, shape, place."""
        rows = [
            (role, f"%{index} {self.rows[index].opcode.name}", self.extents(index), self.written(index))
            for role, index in zip(roles, indices, strict=True)
        ]
        role_width, node_width, shape_width = (max(len(row[column]) for row in rows) for column in range(3))
        return [
            f"{role:{role_width}}  {node:{node_width}}  {shape:{shape_width}}   {place}".rstrip()
            for role, node, shape, place in rows
        ]
