"""The kernel of a matrix product."""

from __future__ import annotations

from topos.backend.native.kernel import Kernel, named
from topos.backend.native.products.dots import dots
from topos.backend.native.products.elect import elect
from topos.backend.native.products.frame import Kind
from topos.backend.native.products.lanes import Epilogue, Lanes
from topos.backend.native.products.lines import lines
from topos.backend.native.products.task import ProductTask
from topos.backend.native.products.tiled import scratch_bytes, tiled
from topos.backend.native.products.zeros import zeros
from topos.backend.native.target import Target


def product(task: ProductTask, target: Target, epilogue: Epilogue | None = None) -> Kernel:
    """`out = left @ right` with the bits of `topos.reference.matmul`.

    Arguments: pointers to left, right and out, then scratch where `scratch_bytes` is not 0. Nothing outside the
    results and the scratch is written, and nothing outside the operands is read.
    """
    choice = elect(task, target)
    lanes = Lanes(task.element, target)
    helpers: dict[str, str] = {}

    def body(name: str) -> str:
        kind = Kind(name, choice, lanes, epilogue, helpers)
        if choice.kind == "nothing":
            return f"define void @{name}(ptr %arguments, i64 %tile) nounwind {{\n  ret void\n}}\n"
        if choice.kind in ("zeros", "lines"):
            return zeros(kind) if choice.kind == "zeros" else lines(kind)
        return dots(kind, target) if choice.kind == "dots" else tiled(kind, target)

    scratch = 0
    if choice.kind in ("direct", "packed"):
        one = scratch_bytes(Kind("", choice, lanes, epilogue, {}))
        scratch = one * choice.tiles + 64 if one else 0
    kernel = named("product", body, choice.tiles, scratch)
    return kernel._replace(helpers=tuple(helpers.values()))


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
    if form.batches > 1:
        words.append(f"{form.batches} products")
    return "; ".join([*words, f"{choice.blocks} blocks of terms", f"{choice.tiles} tiles"])
