"""A plan as data: the kernels that it calls in order, and where their operands are in its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from topos.backend.native.arena import Arena, arranged
from topos.backend.native.carry import Carry, carry_of
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel
from topos.backend.native.manifest import Placed
from topos.backend.native.moves import moved_bytes
from topos.records import NamedTuple

if TYPE_CHECKING:
    from topos.backend.native.products import Prepacked


class Pointer(NamedTuple):
    """One pointer argument of a kernel: a buffer and where in it, in bytes."""

    row: int
    offset_bytes: int


class Weight(NamedTuple):
    """An operand that may be found packed: where it lies in a source, and what is done with it instead."""

    operand: Pointer
    prepacked: Prepacked


class Call(NamedTuple):
    """What computes a group: kernels one after another, all over the same operands.

    The operands are buffers read, then written; after them comes one scratch buffer where any kernel wants one, as
    large as the largest wish, whose contents last from the first kernel to the last. Of a call with a weight, the
    scratch is never left out, and behind it comes the place of the panels.
    """

    kernels: tuple[Kernel, ...]
    operands: list[Pointer]
    weight: Weight | None = None

    @property
    def scratch_bytes(self) -> int:
        """The largest wish of any of its kernels."""
        own = max(kernel.scratch_bytes for kernel in self.kernels)
        return max(own, self.weight.prepacked.scratch_bytes) if self.weight else own


class Program(NamedTuple):
    """The calls of one step in order, and where their buffers are.

    `owners` has the group of each call, `None` for the copy of a carried buffer; `groups` the call of each group, also
    of those that have nothing to do in a step. A buffer is a place in the arena, or one of `buffers`, whose pointers
    the caller gives: constants, sources and results. `scratch` is where in the arena each call has its scratch.
    """

    calls: list[Call]
    owners: list[Group | None]
    groups: list[Call]
    arena: Arena
    scratch: list[int]
    carry: Carry
    buffers: list[int]
    kernels: list[str]

    def placed(self, at: int) -> Placed:
        """Where the operands of a call are, and then its scratch."""
        placed: Placed = []
        for row, offset in self.calls[at].operands:
            home = self.carry.in_place.get(row, row)
            if home in self.arena.offsets:
                placed.append((None, self.arena.offsets[home] + offset))
            else:
                placed.append((home, offset))
        call = self.calls[at]
        if call.scratch_bytes or call.weight:
            placed.append((None, self.scratch[at]))
        if call.weight:
            placed.append((None, 0))
        return placed


Writer = Callable[[Lowering, Group, Mapping[int, int]], Call | None]


def assembled(
    lowering: Lowering, write: Writer, carried: Mapping[int, int], results: frozenset[int]
) -> Program | Group:
    """The program of a lowering, or the first group that has no kernel.

    `carried` maps sources to the rows that replace them, `results` are the rows that the caller reads.
    """
    carry = carry_of(lowering, carried, results)
    written = []
    for group in lowering.groups:
        call = write(lowering, group, carry.in_place)
        if call is None:
            return group
        written.append(call._replace(weight=None) if carried and call.weight else call)
    elsewhere = results | carry.in_place.keys()
    temporary = [source for source in carry.before if source not in results]
    arena = arranged(lowering, [call.scratch_bytes for call in written], elsewhere, temporary)
    every: list[tuple[Group | None, Call, int]] = [
        *((None, _move(lowering, source, source, ~source), 0) for source in carry.before),
        *zip(lowering.groups, written, arena.scratch, strict=True),
        *((None, _move(lowering, source, origin, source), 0) for origin, source in carry.after),
    ]
    every = [(owner, call, at) for owner, call, at in every if call.operands]
    calls = [call for _, call, _ in every]
    homes = (carry.in_place.get(operand.row, operand.row) for call in calls for operand in call.operands)
    buffers = dict.fromkeys(home for home in homes if home not in arena.offsets)
    owners, scratch = [owner for owner, _, _ in every], [at for _, _, at in every]
    return Program(calls, owners, written, arena, scratch, carry, list(buffers), list(texts(calls)))


def _move(lowering: Lowering, source: int, origin: int, destination: int) -> Call:
    """The copy of one whole buffer, as large as a source, to another."""
    size = lowering.spec.rows[source].shape.volume * lowering.spec.element_of(source).dtype.itemsize
    return Call((moved_bytes(size),), [Pointer(origin, 0), Pointer(destination, 0)] if size else [])


def texts(calls: Sequence[Call]) -> dict[str, str]:
    """The text of each kernel once, by name."""
    return texts_of([kernel for call in calls for kernel in call.kernels])


def texts_of(kernels: Iterable[Kernel]) -> dict[str, str]:
    """The text of each of some kernels once, by name."""
    return {kernel.name: "\n".join([*kernel.helpers, kernel.text]) for kernel in kernels}
