"""A plan as the text of a StableHLO module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from topos.emission.attributes import PLAIN, Attributes, carried
from topos.emission.elementwise import cast, elementwise
from topos.emission.indexing import gather, matmul, scatter
from topos.emission.movement import MOVEMENT
from topos.emission.raises import RAISES, Raising, elected
from topos.emission.reductions import REDUCTIONS
from topos.emission.site import Operand, Picks, Site, type_of
from topos.emission.sources import argument, arguments, source
from topos.emission.text import Named, Writer
from topos.emission.words import Words
from topos.engine.entry import Entry
from topos.engine.pattern.elect import Election
from topos.engine.pattern.match import Match
from topos.errors import EmissionError
from topos.graph.place import Place, line
from topos.graph.spec import Spec
from topos.op import Cast, Elementwise, Gather, MatMul, Scatter
from topos.op.kinds import ByKind

KINDS: ByKind[Callable[[Site], Named]] = ByKind(
    {Elementwise: elementwise, Cast: cast, MatMul: matmul, Gather: gather, Scatter: scatter}
)
KINDS.update(MOVEMENT)
KINDS.update(REDUCTIONS)
"""What emits each kind of instruction."""


def emitted(
    spec: Spec,
    length: int,
    rows: Sequence[int],
    entry: Entry,
    raises: bool | Iterable[str] = True,
    locations: bool = False,
    attributes: Attributes = PLAIN,
) -> str:
    """The module of a schedule over the first `length` rows: what `Plan.emit_stablehlo` promises.

    Raises `EmissionError` that names the first node which cannot be written.
    """
    return _Module(spec, locations, elected(spec, length, rows, entry, raises), attributes).text(rows, entry)


class _Module:
    """A module in the making: what each row is called in the text."""

    def __init__(self, spec: Spec, locations: bool, election: Election, attributes: Attributes) -> None:
        self._spec, self._locations, self._attributes = spec, locations, attributes
        self._election, self._raised, self._handed = election, election.moments, election.handed
        self._writer = Writer()
        self._words = Words(self._writer)
        self._values: dict[int, Operand] = {}
        self._lines: dict[Place, str] = {}

    def text(self, rows: Sequence[int], entry: Entry) -> str:
        given = {row: self._placed(row, argument, position) for row, position in arguments(self._spec, rows)}
        for row in rows:
            if row in self._raised:
                self._values |= self._placed(row, self._composition, self._raised[row])
            if row in self._handed or row in self._election.fused:
                continue
            self._writer.begin(row, self._location(row))
            if self._spec.rows[row].operands:
                self._values[row] = self._placed(row, self._node)
            else:
                self._values[row] = self._placed(row, source, self._words, given.get(row))
        results = [self._result(row) for row in outputs(entry)]
        attributes = self._attributes
        signature = ", ".join(
            f"{value.name}: {value.tensor}{attribute}{self._location(row)}"
            for (row, value), attribute in zip(given.items(), attributes.of_arguments(given, entry), strict=True)
        )
        beside = attributes.of_results(results, entry)
        answered = ", ".join(f"{value.tensor}{attribute}" for value, attribute in zip(results, beside, strict=True))
        types = ", ".join(value.tensor for value in results)
        names = ", ".join(value.name for value in results)
        return "\n".join(
            [
                "module @topos {",
                *attributes.header(),
                f"  func.func @main({signature}) -> ({answered}) {{",
                *self._writer.lines,
                f"    return {names} : {types}" if results else "    return",
                "  }",
                "}",
            ]
        )

    def _node(self, spec: Spec, row: int) -> Named:
        return self._writer.finish(KINDS[type(spec.rows[row].opcode)](self._site(row, spec.rows[row].operands)))

    def _composition(self, spec: Spec, moment: int, match: Match) -> dict[int, Named]:
        """What a match hands out, written at its moment as one operation."""
        self._writer.begin(moment, self._location(moment))
        handed = match.stored - self._election.fused
        raising = Raising(spec, match, self._site(match.root, match.operands.values()), handed)
        made = RAISES[match.formula](raising)
        return {row: self._finished(row, made[row]) for row in sorted(handed)}

    def _finished(self, row: int, value: Named) -> Named:
        self._writer.begin(row, self._location(row))
        return self._writer.finish(value)

    def _site(self, row: int, read: Iterable[int]) -> Site:
        recorded, element, read = self._spec.rows[row], self._spec.element_of(row), tuple(read)
        type_of(element)
        operands = [self._values[operand] for operand in read]
        elements = [self._spec.rows[operand].element for operand in read]
        return Site(recorded.opcode, tuple(recorded.shape), element, operands, self._words, elements)

    def _result(self, row: int) -> Named:
        """A result as numbers: of a selection, its one-hot rows."""
        value = self._values[row]
        if not isinstance(value, Picks):
            return value
        self._writer.begin(row)
        hot = self._words.convert(value.hits(self._words), type_of(self._spec.element))
        self._writer.flush()
        return hot

    def _placed(self, row: int, make: Callable[..., Any], *facts: object) -> Any:
        """What is made of a row; an error names the node."""
        try:
            return make(self._spec, row, *facts)
        except EmissionError as error:
            raise EmissionError(f"emit_stablehlo: {self._spec.label(row)}: {error}") from None

    def _location(self, row: int) -> str:
        """Where the node was recorded, as MLIR tells it; empty unless asked for."""
        place = self._spec.rows[row].place if self._locations else None
        if place is None:
            return ""
        if place not in self._lines:
            file, _, number = line(place).rpartition(":")
            quoted = file.replace("\\", "\\\\").replace('"', '\\"')
            self._lines[place] = f' loc("{quoted}":{number}:1)'
        return self._lines[place]


def outputs(entry: Entry) -> list[int]:
    """The rows that the function answers: the results as declared, then what replaces each carried source, in order."""
    return [*(symbol.index for symbol in entry.results), *(entry.carry[source].index for source in carried(entry))]
