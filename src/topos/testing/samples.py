"""Operands and seeded numbers for one instruction: what the table of instructions is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from topos.element import Element, f64
from topos.op import Opcode
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor

T = TypeVar("T")


class Choose(Protocol):
    """Who decides: a hypothesis draw, or a seeded generator."""

    def integer(self, least: int, most: int) -> int:
        """An integer, both limits included."""

    def one(self, options: Sequence[T]) -> T:
        """One of the options."""


class Operand(NamedTuple):
    """What an instruction wants in one place: a shape, whether a selection, and where its derivative is smooth.

    `domain` is `any`, `positive`, `apart` (nonzero and no two equal, for kinks and ties) or `mask` (zeros and ones).
    """

    shape: Shape
    selection: bool = False
    domain: str = "any"

    def payload(self, seed: int, element: Element = f64) -> Tensor:
        """Seeded numbers of the domain; ids for a selection, some of them absent."""
        random = np.random.default_rng([seed, *self.shape])
        if self.selection:
            count, vocab = self.shape
            return Tensor.selection(random.integers(-1, vocab, count), vocab, absent=-1)
        return Tensor(_numbers(self.domain, self.shape, random), element)


class Sample(NamedTuple):
    """An instruction with the operands it takes."""

    opcode: Opcode
    operands: tuple[Operand, ...]

    def payloads(self, element: Element = f64) -> list[Tensor]:
        """A tensor per operand, the same in every call."""
        return [operand.payload(position, element) for position, operand in enumerate(self.operands)]

    def __str__(self) -> str:
        shapes = ",".join("x".join(map(str, operand.shape)) or "scalar" for operand in self.operands)
        facts = ",".join(f"{name}={fact}" for name, fact in self.opcode.facts())
        return "-".join(part for part in (self.opcode.name, facts, shapes) if part)


def sample(opcode: Opcode, *shapes: Sequence[int], domains: str = "", selection: int | None = None) -> Sample:
    """A sample from plain shapes; `domains` names one per operand, or one for all."""
    named = domains.split() or ["any"]
    named = named * len(shapes) if len(named) == 1 else named
    return Sample(
        opcode,
        tuple(
            Operand(Shape(shape), position == selection, domain)
            for position, (shape, domain) in enumerate(zip(shapes, named, strict=True))
        ),
    )


def _numbers(domain: str, shape: Shape, random: np.random.Generator) -> Any:
    if domain == "mask":
        return random.integers(0, 2, shape).astype(np.float64)
    if domain == "apart":
        order = random.permutation(shape.volume).reshape(shape)
        return (order - shape.volume / 2) * 0.25 + 0.1
    numbers = random.uniform(0.4, 1.6, shape)
    return numbers if domain == "positive" else numbers * random.choice([-1.0, 1.0], shape)
