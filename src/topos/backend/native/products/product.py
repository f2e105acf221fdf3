"""The kernels of a matrix product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from topos.backend.native.kernel import Kernel, named
from topos.backend.native.products.blockwise import blockwise_choice
from topos.backend.native.products.choice import Choice
from topos.backend.native.products.elect import elect, elect_resumed, elect_stage
from topos.backend.native.products.epilogue import Epilogue
from topos.backend.native.products.kind import Kind, Span, kind_of
from topos.backend.native.products.prepacked import prepacked_choice
from topos.backend.native.products.regions import Regions
from topos.backend.native.products.streamed import scratch_bytes
from topos.backend.native.products.task import ProductTask
from topos.backend.native.products.terms import block_tasks, blockwise_form, is_split, room_bytes, totals_choice
from topos.backend.native.target import Target
from topos.loading import loaded
from topos.records import NamedTuple
from topos.reference.products import BLOCK


def product(task: ProductTask, target: Target, epilogue: Epilogue | None = None) -> tuple[Kernel, ...]:
    """`out = left @ right` with the bits of `topos.reference.matmul`: one kernel, or more to run one after another.

    Arguments of each: pointers to left, right and out, then those of the epilogue, then one scratch for all of them
    where any `scratch_bytes` is not 0. Nothing outside the results and the scratch is written, and nothing outside the
    operands is read.
    """
    if is_split(task) and not task.is_computed:
        return tuple(_split(task, target, epilogue))
    return tuple(_kernels(elect(task, target, is_folded=epilogue is None), target, epilogue))


class Prepacked(NamedTuple):
    """A product whose right operand may be packed once and for all, into memory that begins on a cache line.

    Equal `layout`s have equal panels. `write` answers the kernel that packs and the one that multiplies; both take the
    arguments of the product, and behind its scratch, which is not left out here, the panels. `scratch_bytes` is what
    the second wants as scratch.
    """

    layout: tuple[object, ...]
    panel_bytes: int
    scratch_bytes: int
    write: Callable[[], tuple[Kernel, Kernel]]


def prepacked(task: ProductTask, target: Target, epilogue: Epilogue | None = None) -> Prepacked | None:
    """The product over panels that stay, or `None` where they would save little."""
    choice = prepacked_choice(task, target, is_folded=epilogue is None)
    if choice is None:
        return None
    kind = kind_of(choice, target, epilogue)
    regions = Regions(kind)

    def write() -> tuple[Kernel, Kernel]:
        packing, multiplying = _written(kind, target)
        return packing, multiplying

    form = choice.task
    layout = (form.terms, form.columns, form.right, kind.right.item, kind.lanes.vector, choice.panels)
    return Prepacked(layout, regions.prepacked_bytes, regions.scratch_bytes(choice.tiles), write)


def stage(
    task: ProductTask, target: Target, epilogue: Epilogue | None = None, reach: str = "", workers: int = 1
) -> tuple[Kernel, ...]:
    """The same of one matrix, for one thread; the last kernel computes, one before it packs the right operand.

    Products of other rows with that right operand may be computed without packing again, by so many `workers` at a
    time over one scratch. Only so many columns, or terms, need to be taken as the kernel's caller says where `reach`
    names them.
    """
    choice = elect_stage(task, target, is_cut=not reach)
    return tuple(_kernels(choice, target, epilogue, workers=workers, reach=reach))


def resumed(
    task: ProductTask, target: Target, epilogue: Epilogue | None = None, *, all_terms: int, tiles: int
) -> tuple[Kernel, ...]:
    """The same of one matrix whose terms are the next ones of so many, as many each time, or those that are left.

    The scratch keeps the chains, and the last time stores the results. A block of 512 terms ends where one time does.
    The last kernel has up to so many `tiles`, each of them one thread's at a time; where it has one, a kernel before it
    may pack the right operand.
    """
    return tuple(_kernels(elect_resumed(task, target, tiles), target, epilogue, all_terms=all_terms))


def reaches_terms(task: ProductTask, target: Target) -> bool:
    """Whether a stage may take fewer terms than there are, or some at a time."""
    return elect_stage(task, target).is_tiled


def _split(task: ProductTask, target: Target, epilogue: Epilogue | None) -> list[Kernel]:
    """Products of blocks of terms, and the kernel that adds their totals."""
    kernels: list[Kernel] = []
    plain = task._replace(pointers=epilogue.pointers) if epilogue else task
    blocks = _blockwise(plain, target)
    if blocks is not None:
        kernels += _kernels(blocks, target, None, span=Span(room_bytes(task), 0, 0, 0))
    else:
        for part, span in block_tasks(plain):
            kernels += _kernels(elect(part, target, is_folded=False), target, None, span=span)
    return [*kernels, *_kernels(totals_choice(task, target), target, epilogue)]


def _blockwise(task: ProductTask, target: Target) -> Choice | None:
    """The one kernel that leaves the totals of every block, where there is one."""
    form = blockwise_form(task) if target.has_fma else None
    return None if form is None else blockwise_choice(*form, target)


def _kernels(choice: Choice, target: Target, epilogue: Epilogue | None, **facts: Any) -> Sequence[Kernel]:
    """The kernels of a choice, with more facts of its kind; what is nobody else's, equal layers have in common."""
    if epilogue is None and not choice.task.is_computed:
        return _alone(choice, target, **facts)
    return _written(kind_of(choice, target, epilogue, **facts), target)


@lru_cache(maxsize=128)
def _alone(choice: Choice, target: Target, **facts: Any) -> Sequence[Kernel]:
    return _written(kind_of(choice, target, None, **facts), target)


def _written(kind: Kind, target: Target) -> Sequence[Kernel]:
    """What a kind needs packed before it, and its own kernel."""
    choice = kind.choice
    if choice.kind in ("streamed", "blockwise"):
        scratch = scratch_bytes(kind)
    else:
        many = max(choice.tiles, kind.workers)
        scratch = Regions(kind).scratch_bytes(many) if choice.is_tiled or kind.span else 0

    def written(stem: str, tiles: int, writer: str) -> Kernel:
        write: Callable[[Kind, Target], str] = loaded(writer)
        helpers: dict[str, str] = {}

        def body(name: str) -> str:
            own = kind._replace(name=name, helpers=helpers, functions={})
            return "\n".join([write(own, target), *own.functions.values()])

        kernel = named(stem, body, tiles, scratch)
        return kernel._replace(helpers=tuple(helpers.values()))

    before = [written("packing", choice.pack_tiles, _PACKING)] if choice.shared else []
    return [*before, written("totals" if choice.kind == "totals" else "product", choice.tiles, _TEXTS[choice.kind])]


_TEXTS: Mapping[str, str] = {
    "nothing": "topos.backend.native.products.zeros.nothing",
    "zeros": "topos.backend.native.products.zeros.zeros",
    "dots": "topos.backend.native.products.dots.dots",
    "lines": "topos.backend.native.products.lines.lines",
    "streamed": "topos.backend.native.products.streamed.streamed",
    "blockwise": "topos.backend.native.products.blockwise.blockwise",
    "direct": "topos.backend.native.products.tiled.tiled",
    "packed": "topos.backend.native.products.tiled.tiled",
    "totals": "topos.backend.native.products.terms.totals",
}
_PACKING = "topos.backend.native.products.shared.shared"
"""The functions that write the text of each kind, and of what is packed before it: loaded with the first of it."""


def explain(task: ProductTask, target: Target) -> str:
    """The kind of kernel that computes a product, and why, in one line."""
    if is_split(task) and not task.is_computed:
        blocks = _blockwise(task, target)
        parts = [explain(part, target) for part, _ in block_tasks(task)] if blocks is None else [_told(blocks)]
        return "; then ".join([*parts, f"the totals of {-(-task.terms // BLOCK)} blocks of terms added in order"])
    return _told(elect(task, target))


def _told(choice: Choice) -> str:
    form = choice.task
    words = [f"{choice.kind}: {choice.why}"]
    if choice.is_turned:
        words.append("rows and columns exchanged")
    if choice.is_tiled:
        words.append(f"register tile {choice.rows.largest} rows x {choice.panels.largest} vectors")
    if choice.packs_left:
        words.append("left packed too")
    if choice.shared:
        words.append(f"{choice.shared} packed once for all tiles")
    if form.batches > 1:
        words.append(f"{form.batches} products")
    return "; ".join([*words, f"{choice.blocks} blocks of terms", f"{choice.tiles} tiles"])
