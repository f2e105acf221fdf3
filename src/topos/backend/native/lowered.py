"""From a schedule to what runs it: native code, or the reason why there is none."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from topos.backend.native import cache, manifest
from topos.backend.native.compiler import Library, compiled, restored
from topos.backend.native.emission import CompilationError
from topos.backend.native.entering import enter_ahead
from topos.backend.native.executable import Executable
from topos.backend.native.fingerprint import fingerprint
from topos.backend.native.llvm import available
from topos.backend.native.manifest import Manifest
from topos.backend.native.objects import Ahead
from topos.backend.native.reading import has_arithmetic
from topos.backend.native.settings import environment
from topos.backend.native.target import Target, current
from topos.backend.task import Declined
from topos.engine.entry import Entry
from topos.engine.liveness import schedule
from topos.graph.spec import Spec
from topos.op import Movement, Pad

if TYPE_CHECKING:
    from topos.backend.native.making import Making

MOST_SCHEDULED = 1 << 16
"""Rows that are compiled whatever they hold: writing their text takes a few seconds."""
WORTH_A_ROW = 1024
"""Numbers per row, on average, that are worth compiling more rows than that."""


def lowered(spec: Spec, rows: Sequence[int], entry: Entry, stepping: bool) -> Executable | Declined:
    """The native form of an entry's run, or of a step that replaces what it carries, compiled."""
    if entry.backward:  # a movement is a view of its operand: nothing to compute
        every = [row for row in rows if spec.rows[row].operands and not _is_view(spec, row)]
        return executable(spec, rows, every, {})
    results = [symbol.index for symbol in entry.results]
    if not stepping:
        return executable(spec, schedule(spec.rows, results), results, {})
    carried = {source.index: following.index for source, following in entry.carry.items()}
    return executable(spec, rows, results, carried)


def _is_view(spec: Spec, row: int) -> bool:
    opcode = spec.rows[row].opcode
    return isinstance(opcode, Movement) and not isinstance(opcode, Pad)


def executable(
    spec: Spec, scheduled: Sequence[int], results: Iterable[int], carried: Mapping[int, int]
) -> Executable | Declined:
    """The native form of a schedule, compiled, or why there is none.

    `results` are the rows that a run answers, `carried` the row that replaces each carried source. Sources are no
    results of its: the caller knows their values.
    """
    if environment("TOPOS_NATIVE") == "0":
        return Declined("TOPOS_NATIVE=0")
    reason = declined(spec, scheduled) or available()
    if reason is not None:
        return Declined(reason)
    for row in scheduled:
        if not has_arithmetic(spec.element_of(row)):
            return Declined(f"element {spec.element_of(row)} has no native reading", (row,))
    return _Schedule(spec, scheduled, frozenset(results), carried, current()).executable()


def declined(spec: Spec, scheduled: Sequence[int]) -> str | None:
    """Why a schedule is not worth native code: it would take far longer to compile than to interpret."""
    count = len(scheduled)
    if count <= MOST_SCHEDULED or sum(spec.rows[row].shape.volume for row in scheduled) >= WORTH_A_ROW * count:
        return None
    return f"{count} nodes of few numbers each take longer to compile than to interpret"


class _Schedule:
    """A schedule on its way to native code: found in the cache, or else made and left there."""

    def __init__(
        self,
        spec: Spec,
        scheduled: Sequence[int],
        results: frozenset[int],
        carried: Mapping[int, int],
        target: Target,
    ) -> None:
        self._facts = spec, scheduled, results, carried, target
        self._spec, self._results, self._target = spec, results, target
        self._made: Making | None = None

    def executable(self) -> Executable | Declined:
        on_disk = cache.current()
        name = None if on_disk is None else fingerprint(*self._facts)
        kept = None if on_disk is None or name is None else on_disk.get(name)
        if kept is not None:
            found = manifest.read(kept)
            library = restored(found.pieces, self._target)
            if library is not None:
                return self._ready(found, library)
        enter_ahead()  # while the program is written, and while what writes it is loaded
        ahead = Ahead(self._target)
        making = self._lowered(ahead.want)
        if isinstance(making, Declined):
            return making
        self._made = making
        try:
            library = compiled(making.texts(), self._target, ahead)
        except CompilationError as error:  # a fault of ours: the bits are the interpreter's all the same
            warnings.warn(f"a plan is interpreted: its native code does not compile: {error}", RuntimeWarning, 2)
            return Declined(f"its native code does not compile: {error}")
        found = making.manifest(self._results, library.pieces)
        if on_disk is not None and name is not None:
            on_disk.put(name, found.written())
        return self._ready(found, library)

    def _ready(self, found: Manifest, library: Library) -> Executable:
        return Executable(self._spec, found, library, self._results, self.making)

    def making(self) -> Making:
        """The program with its texts, made again where it came from the cache."""
        if self._made is None:
            self._made = cast("Making", self._lowered())
        return self._made

    def _lowered(self, want: Callable[[str], None] | None = None) -> Making | Declined:
        # Here, so that nothing that writes a program is loaded where one comes from the cache.
        from topos.backend.native.making import made

        return made(*self._facts, want)
