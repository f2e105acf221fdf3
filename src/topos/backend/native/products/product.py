"""The kernels of a matrix product."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native.kernel import Kernel, named
from topos.backend.native.products.choice import BLOCK
from topos.backend.native.products.dots import dots
from topos.backend.native.products.elect import elect
from topos.backend.native.products.epilogue import Epilogue
from topos.backend.native.products.kind import Kind, kind_of
from topos.backend.native.products.lines import lines
from topos.backend.native.products.regions import Regions
from topos.backend.native.products.shared import shared
from topos.backend.native.products.streamed import streamed
from topos.backend.native.products.task import ProductTask
from topos.backend.native.products.terms import block_tasks, is_split, totals, totals_choice
from topos.backend.native.products.tiled import tiled
from topos.backend.native.products.zeros import zeros
from topos.backend.native.target import Target


def product(task: ProductTask, target: Target, epilogue: Epilogue | None = None) -> tuple[Kernel, ...]:
    """`out = left @ right` with the bits of `topos.reference.matmul`: one kernel, or more to run one after another.

    Arguments of each: pointers to left, right and out, then those of the epilogue, then one scratch for all of them
    where any `scratch_bytes` is not 0. Nothing outside the results and the scratch is written, and nothing outside the
    operands is read.
    """
    if is_split(task):
        kernels = _split(task, target, epilogue)
    else:
        choice = elect(task, target, is_folded=epilogue is None)
        kernels = _kernels(kind_of(choice, target, epilogue, None, epilogue.pointers if epilogue else 0), target)
    return tuple(kernels)


def _split(task: ProductTask, target: Target, epilogue: Epilogue | None) -> list[Kernel]:
    """Products of blocks of terms, and the kernel that adds their totals."""
    pointers = epilogue.pointers if epilogue else 0
    kernels: list[Kernel] = []
    for part, span in block_tasks(task):
        kernels += _kernels(kind_of(elect(part, target, is_folded=False), target, None, span, pointers), target)
    last = kind_of(totals_choice(task, target), target, epilogue, None, pointers)
    return [*kernels, *_kernels(last, target)]


def _kernels(kind: Kind, target: Target) -> list[Kernel]:
    """What a kind needs packed before it, and its own kernel."""
    choice = kind.choice
    scratch = Regions(kind).scratch_bytes(choice.tiles) if choice.kind in ("direct", "packed") or kind.span else 0

    def written(stem: str, tiles: int, write: Callable[[Kind, Target], str]) -> Kernel:
        helpers: dict[str, str] = {}

        def body(name: str) -> str:
            own = kind._replace(name=name, helpers=helpers, functions={})
            return "\n".join([write(own, target), *own.functions.values()])

        kernel = named(stem, body, tiles, scratch)
        return kernel._replace(helpers=tuple(helpers.values()))

    before = [written("packing", choice.pack_tiles, shared)] if choice.shared else []
    return [*before, written("totals" if choice.kind == "totals" else "product", choice.tiles, _text)]


def _text(kind: Kind, target: Target) -> str:
    if kind.choice.kind == "nothing":
        return f"define void @{kind.name}(ptr %arguments, i64 %tile) nounwind {{\n  ret void\n}}\n"
    if kind.choice.kind == "zeros":
        return zeros(kind)
    if kind.choice.kind in ("lines", "totals"):
        return lines(kind) if kind.choice.kind == "lines" else totals(kind)
    if kind.choice.kind == "streamed":
        return streamed(kind)
    return dots(kind, target) if kind.choice.kind == "dots" else tiled(kind, target)


def explain(task: ProductTask, target: Target) -> str:
    """The kind of kernel that computes a product, and why, in one line."""
    if is_split(task):
        parts = [explain(part, target) for part, _ in block_tasks(task)]
        return "; then ".join([*parts, f"the totals of {-(-task.terms // BLOCK)} blocks of terms added in order"])
    choice = elect(task, target)
    form = choice.task
    words = [f"{choice.kind}: {choice.why}"]
    if choice.is_turned:
        words.append("rows and columns exchanged")
    if choice.kind in ("direct", "packed"):
        words.append(f"register tile {choice.rows.largest} rows x {choice.panels.largest} vectors")
    if choice.packs_left:
        words.append("left packed too")
    if choice.shared:
        words.append(f"{choice.shared} packed once for all tiles")
    if form.batches > 1:
        words.append(f"{form.batches} products")
    return "; ".join([*words, f"{choice.blocks} blocks of terms", f"{choice.tiles} tiles"])
