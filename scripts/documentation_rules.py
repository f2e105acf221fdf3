"""The derivative rules in writing: each rule's one body runs over a payload that spells what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from topos import Composites, Element, Opcode, Shape, bf16, f32
from topos.op import (
    ADD,
    DIV,
    GATHER,
    MAPS,
    MATMUL,
    MAXIMUM,
    MUL,
    NEG,
    POWF,
    SCATTER,
    SELECT,
    STEP,
    STOP,
    SUB,
    SUM,
    Broadcast,
    BroadcastAlong,
    Cast,
    Fold,
    LogSoftmax,
    LogSumExp,
    MaxAlong,
    Narrow,
    Pad,
    Permute,
    Reshape,
    SumAlong,
    Unfold,
)

INFIX = {"Add": ("+", 1), "Sub": ("-", 1), "Mul": ("*", 2), "Div": ("/", 2), "MatMul": ("@", 2)}
"""The operators with their strength of binding; a sign binds by 3, a call by 4."""


class Spelled(Composites):
    """A payload that is the text of an expression, with the shape and element that its instructions infer."""

    def __init__(self, text: str, shape: Any, element: Element | None = f32, strength: int = 4) -> None:
        self.text = text
        self.strength = strength
        self._shape = Shape(shape)
        self._element = element

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def element(self) -> Element | None:
        return self._element

    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Spelled:
        shape = opcode.result_shape([operand.shape for operand in operands])
        element = opcode.result_element([operand.element for operand in operands])
        text, strength = spelled(opcode, operands)
        return Spelled(text, shape, element, strength)

    def zero_like(self) -> Spelled:
        return self.counted(0)

    def one_like(self) -> Spelled:
        return self.counted(1)

    def counted(self, count: int) -> Spelled:
        return Spelled(str(count), self.shape, self.element)

    def within(self, strength: int) -> str:
        """In parentheses where it binds less than what is around it."""
        return self.text if self.strength >= strength else f"({self.text})"


def spelled(opcode: Opcode, operands: Sequence[Any]) -> tuple[str, int]:
    """An instruction over spelled operands, and how strongly the text binds."""
    if opcode.name in INFIX:
        sign, strength = INFIX[opcode.name]
        left, right = operands
        return f"{left.within(strength)} {sign} {right.within(strength + 1)}", strength
    if opcode.name == "Neg":
        return f"-{operands[0].within(3)}", 3
    method = "to" if opcode.name == "Cast" else opcode.rule
    first, *others = operands
    arguments = [*(other.text for other in others), *(str(fact) for _, fact in opcode.facts())]
    return f"{first.within(4)}.{method}({', '.join(arguments)})", 4


def samples() -> Iterator[tuple[Opcode, list[Spelled]]]:
    """Every instruction that has a rule, over operands of a small shape."""
    l, r = Spelled("l", [2, 3]), Spelled("r", [2, 3])  # noqa: E741 - as the contract writes them
    x = Spelled("x", [2, 3])
    yield from ((opcode, [l, r]) for opcode in (ADD, SUB, MUL, DIV, MAXIMUM))
    yield NEG, [x]
    yield from ((opcode, [x]) for opcode in MAPS.values())
    yield POWF, [Spelled("b", [2, 3]), Spelled("e", [2, 3])]
    yield STEP, [x, Spelled("t", [2, 3])]
    yield SELECT, [Spelled("m", [2, 3]), Spelled("a", [2, 3]), Spelled("b", [2, 3])]
    yield STOP, [x]
    yield Cast(bf16), [x]
    yield MATMUL, [Spelled("l", [2, 3]), Spelled("r", [3, 4])]
    yield SUM, [x]
    yield from ((opcode(1), [x]) for opcode in (SumAlong, MaxAlong, LogSumExp, LogSoftmax))
    yield Broadcast([2, 3]), [Spelled("x", [])]
    yield BroadcastAlong(1, 3), [Spelled("x", [2])]
    yield Reshape([3, 2]), [x]
    yield Permute([1, 0]), [x]
    yield Narrow(1, 1, 2), [x]
    yield Pad(1, 1, 5), [x]
    yield Unfold(1, 2, 1, 1), [x]
    yield Fold(1, 2, 1, 1, 3), [Spelled("x", [2, 2, 2])]
    yield GATHER, [Spelled("t", [5, 3]), Spelled("s", [2, 5], None)]
    yield SCATTER, [Spelled("x", [2, 3]), Spelled("s", [2, 5], None)]


def rules() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Name, the instruction spelled, and a `(operand, cotangent)` for each operand; data has none."""
    for opcode, operands in samples():
        output = operands[0].apply(opcode, tuple(operands))
        seed = Spelled("g", output.shape, output.element)
        answers = opcode.vjp(operands, Spelled("y", output.shape, output.element), seed)
        cotangents = [
            (f"`{operand.text}`", "none" if answer is None else f"`{answer.text}`")
            for operand, answer in zip(operands, answers, strict=True)
        ]
        yield opcode.name, output.text, cotangents
