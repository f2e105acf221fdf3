"""Whole random programs, drawn from the table of instructions. Needs hypothesis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from topos import op
from topos.element import Element, bf16, f32, f64
from topos.element.element import Array
from topos.errors import ToposError
from topos.graph import Symbol, Tape, Value
from topos.op import Opcode
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor
from topos.testing.instructions import INSTRUCTIONS
from topos.testing.samples import Sample
from topos.testing.strategies import Drawn, extremes, shapes

MOST = 64
"""The largest volume of a value in a drawn program, unless another is asked for."""


class Source(NamedTuple):
    """A source of a program: `kind` is `leaf`, `parameter`, `input` or `selection`.

    `fed` is what a run feeds an input, of any strides, or ids; `None` leaves the recorded default.
    """

    kind: str
    payload: Tensor
    fed: Any

    def record(self, tape: Tape) -> Value:
        """The source on a tape."""
        if self.kind == "selection":
            ids = self.payload.ids
            assert ids is not None
            return tape.selection(ids.shape, self.payload.vocab, absent=-1)
        element = self.payload.element
        if self.kind == "leaf":
            return tape.leaf(self.payload, element=element)
        return (tape.parameter if self.kind == "parameter" else tape.input)(self.payload, element=element)


class Call(NamedTuple):
    """An instruction over earlier lines."""

    opcode: Opcode
    operands: tuple[int, ...]


class Line(NamedTuple):
    """A line of a program and what is inferred of it; the element is `None` for a selection."""

    made: Source | Call
    shape: Shape
    element: Element | None


class Recorded(NamedTuple):
    """A program on a tape: the value of each line, and the rank-0 target, which is the last."""

    values: list[Value]
    feeds: Mapping[Symbol, Any]

    @property
    def target(self) -> Value:
        """The rank-0 target."""
        return self.values[-1]


class Program:
    """Sources and instructions in order, the last line of rank 0 in the tape's element; prints as its listing."""

    def __init__(self, element: Element) -> None:
        self.element = element
        self.lines: list[Line] = []

    def record(self, tape: Tape | None = None) -> tuple[Tape, Recorded]:
        """The program on a new tape (or the one given), with what its inputs are fed."""
        tape = tape or Tape(self.element)
        values: list[Value] = []
        feeds: dict[Symbol, Any] = {}
        for line in self.lines:
            if isinstance(line.made, Call):
                values.append(line.made.opcode.express([values[operand] for operand in line.made.operands]))
            else:
                values.append(line.made.record(tape))
                if line.made.fed is not None:
                    feeds[values[-1].symbol()] = line.made.fed
        return tape, Recorded(values, feeds)

    def add(self, made: Source | Call) -> int:
        """Appends a line. Raises the `ToposError` of an instruction whose operands do not fit."""
        if isinstance(made, Source):
            self.lines.append(Line(made, made.payload.shape, made.payload.element))
        else:
            operands = [self.lines[operand] for operand in made.operands]
            shape = made.opcode.result_shape([line.shape for line in operands])
            element = made.opcode.result_element([line.element for line in operands]) or self.element
            self.lines.append(Line(made, shape, element))
        return len(self.lines) - 1

    def __repr__(self) -> str:
        return "\n".join([f"Program over {self.element}", *self._listed()])

    def _listed(self) -> Iterator[str]:
        for index, (made, shape, element) in enumerate(self.lines):
            what = (
                f"{made.opcode} of {', '.join(map(str, made.operands))}"
                if isinstance(made, Call)
                else f"{made.kind} {made.payload} fed {made.fed!r}"
            )
            yield f"  {index}  {what}  {shape} {element}"


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    element: Element | None = None,
    elements: Sequence[Element] = (f32, f64, bf16),
    most: int = 12,
    most_volume: int = MOST,
    most_extent: int = 4,
    tame: bool = False,
    without: Sequence[type[Opcode]] = (),
) -> Program:
    """Programs over a tape of `element` (one of `elements` unless given) with up to `most` drawn instructions.

    Sources are of any of the `elements`, with extents up to `most_extent`; a drawn value has at most `most_volume`
    numbers. `tame` numbers are finite and of ordinary size, otherwise infinities, NaN,
    zeros of both signs, subnormals and the largest numbers are among them. Instructions of the kinds in `without` are
    left out.
    """
    program = Program(draw(st.sampled_from(elements)) if element is None else element)
    drawing = _Drawing(draw, program, elements, tame, most_volume)
    for _ in range(draw(st.integers(1, 3))):
        drawing.source(draw(shapes(max_rank=3, max_extent=most_extent)))
    kinds = [kind for kind, row in INSTRUCTIONS.items() if row.made is not None and not issubclass(kind, (*without,))]
    for _ in range(draw(st.integers(1, most))):
        drawing.instruction(draw(st.sampled_from(kinds)))
    drawing.target()
    return program


class _Drawing:
    """A program in the making."""

    def __init__(
        self, draw: st.DrawFn, program: Program, elements: Sequence[Element], tame: bool, most_volume: int
    ) -> None:
        self._draw = draw
        self._choose = Drawn(draw)
        self._program = program
        self._elements = elements
        self._tame = tame
        self._most_volume = most_volume

    def source(self, shape: Shape, element: Element | None = None) -> int:
        """A dense source."""
        element = element or self._choose.one(self._elements)
        kind = self._choose.one(("parameter", "input", "leaf", "constant"))
        random = np.random.default_rng(self._choose.integer(0, 255))
        if kind == "constant":
            number = self._array(Shape(), random, element)
            return self._program.add(Source("leaf", Tensor.filled(shape, number, element), None))
        payload = Tensor(self._array(shape, random, element), element)
        feeds = kind == "input" and random.random() < 0.7
        fed = _strided(self._array(shape, random, element), random) if feeds else None
        return self._program.add(Source(kind, payload, fed))

    def selection(self, shape: Shape) -> int:
        """A fed or constant selection, with absent ids."""
        count, vocab = shape
        random = np.random.default_rng(self._choose.integer(0, 255))
        ids = random.integers(-1, vocab, count)
        payload = Tensor.selection(ids, vocab, absent=-1)
        fed = self._choose.one((True, False))
        return self._program.add(Source("selection" if fed else "leaf", payload, ids if fed else None))

    def instruction(self, kind: type[Opcode]) -> None:
        """One instruction of a kind, where some value may be its first operand; missing operands become sources."""
        lines = self._program.lines
        first, wanted = self._first(kind)
        if wanted is None:
            return
        element = lines[first].element
        operands = [first]
        for operand in wanted.operands[1:]:
            operands.append(self._selected(operand.shape) if operand.selection else self._dense(operand.shape, element))
            element = element or lines[operands[-1]].element
        self._program.add(Call(wanted.opcode, tuple(operands)))

    def target(self) -> None:
        """The sums of the last few values, cast to the tape's element and added."""
        program = self._program
        total: int | None = None
        for index in range(len(program.lines) - 1, max(-1, len(program.lines) - 4), -1):
            part = program.add(Call(op.SUM, (index,)))
            if program.lines[part].element is not program.element:
                part = program.add(Call(op.Cast(program.element), (part,)))
            total = part if total is None else program.add(Call(op.ADD, (total, part)))

    def _first(self, kind: type[Opcode]) -> tuple[int, Sample | None]:
        """A first operand and the instruction over it; a new source where no line fits."""
        row = INSTRUCTIONS[kind]
        assert row.made is not None
        count = len(self._program.lines)
        start = self._choose.integer(0, count - 1)
        for index in [(start + step) % count for step in range(count)]:
            wanted = row.made(self._choose, self._program.lines[index].shape)
            if wanted is not None and self._small(wanted):
                return index, wanted
        index = self.source(row.samples[0].operands[0].shape)
        wanted = row.made(self._choose, self._program.lines[index].shape)
        return index, wanted if wanted is not None and self._small(wanted) else None

    def _small(self, wanted: Sample) -> bool:
        try:
            shape = wanted.opcode.result_shape([operand.shape for operand in wanted.operands])
        except ToposError as error:
            raise AssertionError(f"the table makes what its own shape rule refuses: {wanted}") from error
        return shape.volume <= self._most_volume

    def _dense(self, shape: Shape, element: Element | None) -> int:
        """A value of that shape which may stand beside the element, a selection too; or a new source."""
        fitting = [
            index
            for index, line in enumerate(self._program.lines)
            if line.shape == shape and (element is None or line.element is None or line.element is element)
        ]
        position = self._choose.integer(0, len(fitting))
        return self.source(shape, element) if position == len(fitting) else fitting[position]

    def _selected(self, shape: Shape) -> int:
        fitting = [
            index
            for index, line in enumerate(self._program.lines)
            if line.shape == shape and isinstance(line.made, Source) and line.made.payload.ids is not None
        ]
        position = self._choose.integer(0, len(fitting))
        return self.selection(shape) if position == len(fitting) else fitting[position]

    def _array(self, shape: Shape, random: np.random.Generator, element: Element) -> Array:
        numbers = random.uniform(0.25, 2.0, shape) * random.choice((-1.0, 1.0), shape)
        if not self._tame:
            rare = np.array([0.0, -0.0, 1.0, 2.0, -1.0, 100.0, np.inf, -np.inf, np.nan, *extremes(element)])
            numbers = np.where(random.random(shape) < 0.25, random.choice(rare, shape), numbers)
        with np.errstate(all="ignore"):
            return np.asarray(element.round(np.asarray(numbers)))


def _strided(array: Array, random: np.random.Generator) -> Array:
    """The same numbers as a view of a larger or reversed array."""
    if not array.ndim:
        return array
    axis, kind = int(random.integers(array.ndim)), int(random.integers(4))
    if kind == 0:
        return np.asfortranarray(array)
    if kind == 1:
        return np.flip(np.flip(array, axis).copy(), axis)
    if kind == 2:
        return np.repeat(array, 2, axis)[(slice(None),) * axis + (slice(None, None, 2),)]
    return array
