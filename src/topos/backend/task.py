"""What is put to a backend."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.formula import Formula
from topos.element import Element
from topos.element.element import Array
from topos.engine.numerics import Numerics
from topos.graph.spec import Spec
from topos.op import Opcode
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor


class Outline(NamedTuple):
    """What is known of an operand before a run: its shape and element; of a selection, `None`."""

    shape: Shape
    element: Element | None


class Task(NamedTuple):
    """One instruction: what a backend that is `OFFERED` or `ELECTED` is asked for.

    `operands` are tensors when it is offered, at run time, and outlines when it is elected, at lowering. The result
    has `shape` and is of `element`.
    """

    formula: Formula
    opcode: Opcode
    element: Element
    shape: Shape
    operands: tuple[Tensor | Outline, ...]

    def arrays(self) -> list[Array]:
        """The operands' numbers, read-only and of any strides; a selection's as one-hot rows."""
        views = [operand.dense(self.element).view() for operand in self.operands if isinstance(operand, Tensor)]
        for view in views:
            view.flags.writeable = False
        return views

    @property
    def elements(self) -> set[Element]:
        """The elements of the result and of the operands that are no selections."""
        return {self.element, *(operand.element for operand in self.operands if operand.element is not None)}

    @property
    def has_selection(self) -> bool:
        """Whether any operand is a selection, which has ids in place of numbers."""
        return any(operand.element is None for operand in self.operands)


class Stretch(NamedTuple):
    """Rows of a spec in order: what a backend that is `TRANSLATED` is asked for, a whole plan or a part of one.

    Rows without operands are sources, whose payloads a run provides. `kept` are the rows whose values are wanted.
    """

    spec: Spec
    rows: Sequence[int]
    kept: frozenset[int]
    numerics: Numerics


class Declined(NamedTuple):
    """An answer that is none, with the reason for a reader of `plan.explain()`.

    `rows` are those without which the rest of a stretch would have been taken, where they are known.
    """

    reason: str
    rows: tuple[int, ...] = ()
