"""What the text of every kind is made from."""

from __future__ import annotations

from topos.backend.native.products.choice import Choice
from topos.backend.native.products.epilogue import Epilogue, Finish, internal, parameters
from topos.backend.native.products.lanes import Lanes, Results
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.records import NamedTuple
from topos.reference.products import BLOCK


class Span(NamedTuple):
    """A product of some of the terms: its results lie in the scratch, not at the third argument. All in bytes."""

    room: int
    """What the results of all such products take, at the start of the scratch."""
    out: int
    """Where in it these results begin."""
    left: int
    right: int
    """Where the terms begin after the first number of either operand."""


class Kind(NamedTuple):
    """A name, what was chosen, and how numbers lie: `lanes` those of the results, `left` and `right` the operands'."""

    name: str
    choice: Choice
    lanes: Lanes
    left: Lanes
    right: Lanes
    epilogue: Epilogue | None
    helpers: dict[str, str]
    """What the text needs beside it, by its first line."""
    functions: dict[str, str]
    """The definitions of functions that the text calls, by their names."""
    span: Span | None = None
    """The terms, where they are not all."""
    pointers: int = 0
    """How many arguments stand between `out` and the scratch."""
    all_terms: int = 0
    """Where the terms are part of so many: those before are `%begun`, a further parameter, and their chains go on."""
    workers: int = 1
    """How many may run the kernel at the same time over one scratch, if that is more than its tiles."""
    reach: str = ""
    """What ends at `%reach`, a further parameter: the `columns`, to a whole panel at least, or the `terms`."""

    @property
    def lengths(self) -> set[int]:
        """How many terms a block may have."""
        terms = self.choice.task.terms
        found = {min(terms, BLOCK), terms % BLOCK, self.all_terms and self.all_terms % terms}
        return found - {0}

    def terms(self, text: Text) -> str:
        """How many there are in this run: as many each time, and at the end those that are left."""
        terms = self.choice.task.terms
        if self.all_terms and self.all_terms % terms:
            return text.least(text.let(f"sub i64 {self.all_terms}, %begun"), terms)
        return "%reach" if self.reach == "terms" else str(terms)

    @property
    def scratch_place(self) -> int:
        """Where the scratch stands among the arguments."""
        return 3 + self.pointers

    @property
    def room_bytes(self) -> int:
        """What stands in the scratch before this kernel's own."""
        return self.span.room if self.span else 0

    def finish(self, text: Text, results: Results, pointer: str, lanes: Lanes | None = None) -> None:
        """Finished results to their places from a pointer on, or to the epilogue."""
        lanes, (along, across) = lanes or self.lanes, (self.choice.task.out[1], self.choice.is_turned)
        if self.epilogue is None:
            lanes.finish(text, pointer, along, results)
            return
        name = f"{self.name}_finish_{lanes.width}_{results.active}"
        if name not in self.functions:
            wanted = Finish(name, lanes.width, results.active, across, parameters(lanes.scalar, lanes.width))
            definition = self.epilogue.define(wanted)
            self.functions[name] = internal(definition.text)
            for helper in definition.helpers:
                text.need(helper)
        value = lanes.rounded(text, results.value)
        kind = lanes.vector
        if lanes.width == 1:
            kind, value = lanes.scalar, text.let(f"extractelement {kind} {value}, i32 0")
        row, column = (results.column, results.row) if across else (results.row, results.column)
        place = f"i64 {results.product}, i64 {row}, i64 {column}"
        text.do(f"call void @{name}(ptr %arguments, {kind} {value}, {place})")


def kind_of(
    choice: Choice,
    target: Target,
    epilogue: Epilogue | None,
    *,
    span: Span | None = None,
    all_terms: int = 0,
    workers: int = 1,
    reach: str = "",
) -> Kind:
    """The kind of a choice, its name and helpers still to be found."""
    task = choice.task
    own, left, right = (
        Lanes(task.element, target, stored=stored) for stored in (task.element, task.left_element, task.right_element)
    )
    pointers = task.pointers + (epilogue.pointers if epilogue else 0)
    return Kind("", choice, own, left, right, epilogue, {}, {}, span, pointers, all_terms, workers, reach)
