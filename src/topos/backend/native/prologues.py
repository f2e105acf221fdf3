"""Operands of products that are never stored: cheap rows worked out while a product packs them, read by it alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from topos.backend.native.costs import is_dear
from topos.backend.native.drafts import Prologue
from topos.backend.native.placement import Placement
from topos.backend.native.readers import Readers
from topos.backend.native.views import View, moved
from topos.engine.liveness import volume
from topos.graph.spec import Spec
from topos.op import Cast, Elementwise, MatMul, Movement, Pad

MOST_WORKED_OUT = 12
"""Rows of one operand: they are written out for whole vectors and for the last one."""
LEAST_NUMBERS = 1 << 13
"""Of an operand: a smaller one is stored in less time than its product takes to begin."""
LEAST_ACROSS = 8
"""Rows of a left operand, or columns of a right one: fewer are read as they lie, by kernels that pack nothing."""
FEW_USES = 8
"""Products of a number: where they are fewer, packing it costs more than they do."""
LEAST_OF_FEW_USES = 1 << 18
"""Numbers of such an operand: a smaller one stays in the caches when it is stored."""


class Prologues:
    """Takes rows out of loops and puts them in front of the products that read them."""

    def __init__(
        self,
        placement: Placement,
        spec: Spec,
        views: Mapping[int, View],
        widened: Collection[int],
        kept: Collection[int],
        readers: Readers,
        folded: Collection[int] = (),
    ) -> None:
        self._placement, self._spec, self._views = placement, spec, views
        self._widened, self._kept, self._readers, self._folded = widened, kept, readers, folded

    def fold(self) -> None:
        """Every operand of every product that gains by it."""
        for draft in self._placement.drafts:
            if not draft.rows or draft.rows[0] in self._folded:  # which runs image by image, with the folds
                continue
            if isinstance(self._spec.rows[draft.rows[0]].opcode, MatMul):
                for position in (0, 1):
                    found = self._found(draft.rows[0], position)
                    if found is not None:
                        draft.prologues[position] = found
                        self._take(draft.rows[0], found)

    # which
    def _found(self, product: int, position: int) -> Prologue | None:
        operand = self._spec.rows[product].operands[position]
        view = self._views.get(operand)
        if view is None or view.guards or not self._is_worth(product, position):
            return None
        root, home = view.row, self._placement.home.get(view.row)
        beside = self._views.get(self._spec.rows[product].operands[1 - position])
        if beside is not None and beside.row == root:
            return None
        if home is None or not self._is_free(root, home) or self._readers.of(root) != {product}:
            return None
        rows = self._cone(root, home)
        if rows is None or not self._pays(rows, home, root):
            return None
        leaves = self._leaves(rows, self._path(operand, root))
        return None if leaves is None else Prologue(rows, leaves)

    def _is_worth(self, product: int, position: int) -> bool:
        """By shape: an operand that is no vector, whose every leading axis is the product's own."""
        operand = self._spec.rows[self._spec.rows[product].operands[position]]
        view = self._views[self._spec.rows[product].operands[position]]
        across = operand.shape[-2 + position]
        uses = self._spec.rows[product].shape[-1 - position]
        least = LEAST_NUMBERS if uses >= FEW_USES else LEAST_OF_FEW_USES
        return operand.shape.volume >= least and across >= LEAST_ACROSS and all(view.strides[:-2])

    def _is_free(self, row: int, home: int) -> bool:
        """Whether a loop's row is elementwise, of its shape, and not a result."""
        draft, opcode = self._placement.drafts[home], self._spec.rows[row].opcode
        elementwise = isinstance(opcode, Elementwise | Cast) and row not in self._placement.across
        return draft.is_loop and elementwise and row not in self._kept

    def _cone(self, root: int, home: int) -> list[int] | None:
        """What has to be worked out for a row, down to what is stored anyway; `None` where that is too much."""
        found, waiting = {root}, [root]
        while waiting:
            for base in self._readers.bases(waiting.pop()):
                if base in found or self._placement.home.get(base) != home or self._is_stored(base, home):
                    continue
                if not self._is_free(base, home) or len(found) >= MOST_WORKED_OUT:
                    return None
                found.add(base)
                waiting.append(base)
        return sorted(found, key=self._placement.drafts[home].rows.index)

    def _is_stored(self, row: int, home: int) -> bool:
        """Whether a value is in memory whatever is folded: a result, or read by other kernels."""
        return row in self._kept or bool(self._readers.homes(row) - {home})

    def _pays(self, rows: list[int], home: int, root: int) -> bool:
        """Whether its rows are cheap, and nothing but them is what their loop did, or they read no more than it is."""
        if any(is_dear(self._spec, row) for row in rows):
            return False
        if len(rows) == len(self._placement.drafts[home].rows):
            return True
        size = self._spec.rows[root].shape.volume
        outside = {base for row in rows for base in self._readers.bases(row)} - set(rows)
        return sum(volume(self._spec, base) for base in outside) <= size

    # how
    def _path(self, operand: int, root: int) -> list[int] | None:
        """The movements from a row to the operand of a product; `None` where there is something else on the way."""
        path = []
        while operand != root:
            opcode = self._spec.rows[operand].opcode
            if isinstance(opcode, Movement) and not isinstance(opcode, Pad):
                path.append(operand)
            elif operand not in self._widened:
                return None
            (operand,) = self._spec.rows[operand].operands
        return path[::-1]

    def _leaves(self, rows: list[int], path: list[int] | None) -> dict[int, View] | None:
        leaves: dict[int, View] = {}
        for row in rows:
            for operand in self._spec.rows[row].operands:
                view = self._views.get(operand)
                if view is None or view.row in rows:
                    continue
                seen = None if path is None else self._moved(view, path)
                if seen is None:
                    return None
                leaves[operand] = seen
        return leaves

    def _moved(self, view: View, path: list[int]) -> View | None:
        if path and view.guards:
            return None
        is_ids = self._spec.is_selection(view.row)
        size = self._spec.rows[view.row].shape.volume if is_ids else volume(self._spec, view.row)
        found: View | None = view
        for row in path:
            opcode = self._spec.rows[row].opcode
            assert isinstance(opcode, Movement)
            found = None if found is None else moved(found, opcode, size)
        return found

    def _take(self, product: int, prologue: Prologue) -> None:
        """Out of their loop goes what nobody else reads there."""
        home = self._placement.home[prologue.rows[-1]]
        draft = self._placement.drafts[home]
        gone: set[int] = set()
        for row in reversed(prologue.rows):  # what is left of the loop may read any of the others
            if row == prologue.rows[-1] or self._readers.of(row) <= gone:
                gone.add(row)
        draft.rows[:] = [row for row in draft.rows if row not in gone]
        for row in gone:
            self._placement.home[row] = self._placement.home[product]
            self._readers.leave(row)
        for operand in prologue.leaves:
            self._readers.add(self._views[operand].row, product)
