"""What a rule is given while a plan of it is recorded: it records, and answers nothing that a tensor does otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from topos.element import Element
from topos.errors import RecordedError
from topos.op import Composites, Opcode, Recordable
from topos.shape import Shape

_BESIDE = frozenset(("Add", "Sub", "Mul", "Div"))


class Asked(Composites):
    """A recorded value, or what a rule has made of some. As a key, a text or a truth it is refused."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Asked:
        """Records one instruction."""
        return Asked(opcode.express([self._operand(opcode, operand) for operand in operands]))

    def _operand(self, opcode: Opcode, operand: Any) -> Any:
        if isinstance(operand, Fed):
            return operand.beside(opcode, self.value)
        return operand.value if isinstance(operand, Asked) else operand

    @property
    def shape(self) -> Shape:
        found: Shape = self.value.shape
        return found

    @property
    def element(self) -> Element | None:
        found: Element | None = self.value.element
        return found

    def zero_like(self) -> Asked:
        return Asked(self.value.zero_like())

    def one_like(self) -> Asked:
        return Asked(self.value.one_like())

    def counted(self, count: int) -> Asked:
        return Asked(self.value.counted(count))

    def _refuse(self, *facts: Any) -> NoReturn:
        raise RecordedError("rule: asks what a tensor and a recorded value answer differently")

    __eq__ = __ne__ = __hash__ = __repr__ = __str__ = __format__ = _refuse


class Fed(Recordable):
    """A float that is fed, an input in each element: it may stand beside a value in four instructions, and no more."""

    __slots__ = ("_inputs",)

    def __init__(self, inputs: Mapping[Element | None, Asked]) -> None:
        self._inputs = inputs

    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Any:
        """Records one instruction over a value and this."""
        beside = next((operand for operand in operands if isinstance(operand, Asked)), None)
        return self._refuse() if beside is None else beside.apply(opcode, operands)

    def beside(self, opcode: Opcode, value: Any) -> Any:
        """The float as an operand beside a value, as a Python number is."""
        if opcode.name not in _BESIDE:
            self._refuse()
        return self._inputs[value.element].value.broadcast(value.shape)

    def _refuse(self, *facts: Any) -> NoReturn:
        raise RecordedError("rule: asks for a number that is fed")

    __bool__ = __eq__ = __ne__ = __hash__ = __repr__ = __str__ = __format__ = _refuse
