"""What every instruction states about itself, and nothing that a stage decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from topos.errors import ElementError, RecordedError, ShapeError
from topos.shape import Shape

if TYPE_CHECKING:
    from topos.element import Element
    from topos.op.recordable import Recordable

Cotangents = tuple["Recordable | None", ...]


class Opcode:
    """One instruction of the closed set: its facts, shape rule, element rule and derivative rule.

    Frozen; equal to another of the same type with the same attributes. A kind (elementwise, movement, reduction,
    contraction, indexing, source) adds the one fact that a stage lowers by.

    `name` is what prints (`SumAlong`), `rule` how the method is spelled and errors begin (`sum_along`).
    `roles` names the operands in errors; `reads` lists the operand positions whose values the derivative rule reads,
    and `reads_output` says whether it reads the output: what a backward sweep must find alive.
    """

    __slots__ = ()
    name: ClassVar[str]
    rule: ClassVar[str]
    attributes: ClassVar[tuple[str, ...]] = ()
    roles: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[int, ...]] = ()
    reads_output: ClassVar[bool] = False
    is_source: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if "rule" not in cls.__dict__:
            cls.rule = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def arity(self) -> int:
        """The number of operands."""
        return len(self.roles)

    # what a stage asks
    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The shape rule.

        Raises `ShapeError` that names the rule and the shapes.
        """
        raise NotImplementedError(self.name)

    def result_element(self, elements: Sequence[Element | None]) -> Element | None:
        """The element rule: all operands agree; a selection has no element (`None`) and agrees with any.

        `None` where every operand is a selection: the caller's common element fills the result. Raises
        `ElementError`.
        """
        agreed = None
        for element in elements:
            if element is not agreed and element is not None:
                if agreed is not None:
                    raise ElementError(
                        f"{self.rule}: operands must have one element, got {agreed} and {element}; "
                        f"convert one with .to({agreed})"
                    )
                agreed = element
        return agreed

    def derivative(self, seed: Any, output: Any, *operands: Any) -> Cotangents:
        """The derivative rule's body: a cotangent per operand, or `None` for an operand that is data."""
        raise NotImplementedError(self.name)

    # the public names
    def express(self, operands: Sequence[Any]) -> Any:
        """Runs this one instruction over any `Recordable` payloads: tensors compute, values record."""
        self._count(operands)
        payload = next((o for o in operands if hasattr(o, "apply")), None)
        if payload is None:
            raise RecordedError(f"{self.rule}: at least one operand must be a value or a tensor")
        return payload.apply(self, tuple(operands))

    def vjp(self, operands: Sequence[Any], output: Any, seed: Any) -> Cotangents:
        """The cotangents of the operands, in their order, for the output's cotangent `seed` (of the output's shape).

        `None` stands for an operand that is data. Over tensors it computes, over values it records.
        """
        self._count(operands)
        return self.derivative(seed, output, *operands)

    def _count(self, operands: Sequence[Any]) -> None:
        if self.is_source:
            raise ShapeError(f"{self.rule}: a source has no operands to run over; take its payload from the network")
        if not isinstance(operands, Sequence):
            raise ShapeError(f"{self.rule}: wants a sequence of operands, got {type(operands).__name__}")
        if len(operands) != self.arity:
            raise ShapeError(f"{self.rule}: wants {self.arity} operands, got {len(operands)}")

    # a value with its attributes
    def _freeze(self, *facts: Any) -> None:
        for attribute, fact in zip(self.attributes, facts, strict=True):
            object.__setattr__(self, attribute, fact)

    def facts(self) -> tuple[tuple[str, Any], ...]:
        """The attributes and their values, in the order in which they print."""
        return tuple((attribute, getattr(self, attribute)) for attribute in self.attributes)

    def __setattr__(self, attribute: str, value: Any) -> NoReturn:
        raise AttributeError(f"{self.name} is frozen")

    def __delattr__(self, attribute: str) -> NoReturn:
        raise AttributeError(f"{self.name} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.facts() == other.facts()

    def __hash__(self) -> int:
        return hash((type(self), self.facts()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(fact for _, fact in self.facts())

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{attribute}={fact}' for attribute, fact in self.facts())})"
