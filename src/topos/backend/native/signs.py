"""Which values are never -0.0, so that adding them to +0.0 changes no bit (NUMERICS, "Zero law")."""

from __future__ import annotations

from collections.abc import Sequence

from topos.element import Element, bf16, f32, f64
from topos.element.built_in import BUILT_IN
from topos.graph.spec import Spec
from topos.op import Cast, Fold, Gather, MatMul, Movement, Pad, Scatter, Sum, SumAlong
from topos.op.elementwise import Add, Maximum, Mul, Select, Step, Stop, Sub
from topos.op.maps import ErfDerivative, Exp, Sqrt
from topos.op.reduction import MaxAlong
from topos.tensor import Tensor

_EITHER = (Add,)
_FIRST = (Sub, Sqrt, Stop, Movement, Gather)
_ALWAYS = (Step, Exp, ErfDerivative, MaxAlong)
# Each is rounded once more where the accumulator is wider, and a tiny negative sum may end as -0.0 then.
_ACCUMULATED = (Sum, SumAlong, MatMul, Fold, Scatter)
_DIGITS: dict[Element, int] = {bf16: 8, f32: 24, f64: 53}


class Signs:
    """The rows met so far that are proved never to be -0.0; `constants` are those that are one number everywhere."""

    def __init__(self, spec: Spec, constants: dict[int, Tensor]) -> None:
        self._spec = spec
        self._constants = constants
        self._proved: set[int] = set()
        self._zeros: dict[int, str] = {}

    def meet(self, row: int) -> None:
        """The next row of the schedule, its operands met before."""
        constant = self._constants.get(row)
        if constant is not None:
            number = float(constant.scalar())
            if number == 0.0:
                self._zeros[row] = str(number)
            if str(number) != "-0.0":
                self._proved.add(row)
        elif self._prove(row):
            self._proved.add(row)

    def meet_as(self, row: int, other: int) -> None:
        """A row that is computed as another one, met before, whatever its own instruction tells."""
        if other in self._proved:
            self._proved.add(row)

    def zero_addend(self, row: int) -> int | None:
        """The operand that an addition copies bit for bit, where the other one is a zero."""
        recorded = self._spec.rows[row]
        if type(recorded.opcode) is not Add or recorded.element not in BUILT_IN:
            return None
        left, right = recorded.operands
        for kept, other in ((left, right), (right, left)):
            zero = self._zeros.get(other)
            if zero is None or not (zero == "-0.0" or kept in self._proved):
                continue
            if self._spec.rows[kept].element is recorded.element and not self._spec.is_selection(kept):
                return kept
        return None

    def _prove(self, row: int) -> bool:
        recorded = self._spec.rows[row]
        opcode = recorded.opcode
        if self._spec.is_selection(row) or isinstance(opcode, _ALWAYS):
            return True
        if isinstance(opcode, _ACCUMULATED):
            element = self._spec.element_of(row)
            return element.accumulator is element
        return self._by_operands(row, [operand in self._proved for operand in recorded.operands])

    def _by_operands(self, row: int, known: Sequence[bool]) -> bool:
        recorded = self._spec.rows[row]
        opcode = recorded.opcode
        if isinstance(opcode, _EITHER):
            return any(known)
        if isinstance(opcode, _FIRST):
            return known[0]
        if isinstance(opcode, Select | Maximum):
            return all(known[-2:]) or (isinstance(opcode, Maximum) and self._zeros.get(recorded.operands[0]) == "0.0")
        if isinstance(opcode, Mul):
            return recorded.operands[0] == recorded.operands[1]
        if isinstance(opcode, Pad):
            return known[0] and repr(opcode.fill) != "-0.0"
        if isinstance(opcode, Cast):
            source = self._spec.rows[recorded.operands[0]].element
            widens = source is None or _DIGITS.get(source, 99) <= _DIGITS.get(opcode.element, 0)
            return known[0] and widens
        return False
