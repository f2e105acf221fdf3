"""The kernels of a matrix product."""

from __future__ import annotations

from topos.backend.native.kernel import Kernel, named
from topos.backend.native.products.dots import dots
from topos.backend.native.products.elect import elect
from topos.backend.native.products.kind import Kind, kind_of
from topos.backend.native.products.lanes import Epilogue
from topos.backend.native.products.lines import lines
from topos.backend.native.products.regions import Regions
from topos.backend.native.products.shared import shared
from topos.backend.native.products.task import ProductTask
from topos.backend.native.products.tiled import tiled
from topos.backend.native.products.zeros import zeros
from topos.backend.native.target import Target


def product(task: ProductTask, target: Target, epilogue: Epilogue | None = None) -> tuple[Kernel, ...]:
    """`out = left @ right` with the bits of `topos.reference.matmul`: one kernel, or more to run one after another.

    Arguments of each: pointers to left, right and out, then one scratch for all of them where any `scratch_bytes` is
    not 0. Nothing outside the results and the scratch is written, and nothing outside the operands is read.
    """
    choice = elect(task, target)
    kind = kind_of("", choice, target, epilogue)
    scratch = Regions(kind).scratch_bytes(choice.tiles) if choice.kind in ("direct", "packed") else 0

    def body(name: str) -> str:
        return _text(kind._replace(name=name), target)

    kernel = named("product", body, choice.tiles, scratch)
    kernels = [kernel._replace(helpers=tuple(kind.helpers.values()))]
    if choice.shared:
        helpers: dict[str, str] = {}
        before = named(
            "packing",
            lambda name: shared(kind._replace(name=name, helpers=helpers), target),
            choice.pack_tiles,
            scratch,
        )
        kernels.insert(0, before._replace(helpers=tuple(helpers.values())))
    return tuple(kernels)


def _text(kind: Kind, target: Target) -> str:
    if kind.choice.kind == "nothing":
        return f"define void @{kind.name}(ptr %arguments, i64 %tile) nounwind {{\n  ret void\n}}\n"
    if kind.choice.kind == "zeros":
        return zeros(kind)
    if kind.choice.kind == "lines":
        return lines(kind)
    return dots(kind, target) if kind.choice.kind == "dots" else tiled(kind, target)


def explain(task: ProductTask, target: Target) -> str:
    """The kind of kernel that computes a product, and why, in one line."""
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
