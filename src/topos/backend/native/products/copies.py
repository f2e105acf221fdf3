"""Packing in a kernel: which row groups and panels are copied from where to where."""

from __future__ import annotations

from topos.backend.native.products.computed import STRIP, computed_left, computed_right
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.pack import left_sizes, pack_left, pack_right
from topos.backend.native.products.regions import Regions
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK

LINES = 64
"""Terms that are copied for all panels before the next: so the pages of few rows are read from end to end."""


def panel_shapes(kind: Kind) -> list[tuple[int, int]]:
    """The (vectors, active lanes of the last one) that occur among the panels."""
    panels, width = kind.choice.panels, kind.lanes.width
    tail = kind.choice.task.columns % width
    found = [(panels.small + 1, width)] if panels.extra else []
    if not tail or panels.groups - panels.extra > 1:
        found.append((panels.small, width))
    return [*found, (panels.small, tail)] if tail else found


def ragged(kind: Kind) -> bool:
    """Whether one register tile serves full panels and the last one, by a mask: where that is free, and saves one."""
    panels, task = kind.choice.panels, kind.choice.task
    has_both = task.columns % kind.lanes.width != 0 and panels.groups - panels.extra > 1
    stores_vectors = kind.epilogue is not None or task.out[1] == 1
    has_masks = kind.lanes.has_masks and kind.right.has_masks
    return has_both and stores_vectors and has_masks and not kind.all_terms


def left_functions(kind: Kind, target: Target) -> list[str]:
    """What packs row groups."""
    if kind.choice.task.left_value is None:
        return [pack_left(kind, rows, target) for rows in left_sizes(kind)]
    found = [computed_left(kind, rows) for rows, _ in kind.choice.rows.sizes]
    if kind.choice.has_left_lines or kind.choice.task.left[1] != 1:
        return found
    return [*found, *(pack_left(_of_strips(kind), rows, target) for rows in left_sizes(kind))]


def right_functions(kind: Kind) -> list[str]:
    """What packs panels."""
    if kind.choice.task.right_value is None:
        return [pack_right(kind, *shape) for shape in panel_shapes(kind)]
    found = [computed_right(kind, *shape) for shape in panel_shapes(kind)]
    if kind.choice.task.right[1] == 1:
        return found
    return [*found, *(pack_right(_of_strips(kind), *shape) for shape in panel_shapes(kind))]


def _of_strips(kind: Kind) -> Kind:
    """The kind whose terms come in strips, and not in blocks: as many are left over."""
    task = kind.choice.task
    left = task.terms if task.terms < STRIP else BLOCK + task.terms % BLOCK % STRIP
    return kind._replace(choice=kind.choice._replace(task=task._replace(terms=left)))


class Copies:
    """One block of terms of the operands: where it begins, and how many terms it has.

    `place` is the number of the product in the batch and of the block's first term.
    """

    def __init__(
        self, kind: Kind, regions: Regions, text: Text, left: str, right: str, terms: str, place: tuple[str, str]
    ) -> None:
        self.kind, self.regions, self.text = kind, regions, text
        self.left, self.right, self.terms, self.place = left, right, terms, place

    def group_place(self, base: str, group: str, origin: str) -> str:
        """Where a row group is packed if the group `origin` is at the base."""
        return self.text.at(base, self.text.mul(self._less(group, origin), self.regions.group_bytes))

    def panel_place(self, base: str, panel: str, origin: str) -> str:
        """Where a panel is packed if the panel `origin` is at the base."""
        start = self.kind.choice.panels.start
        vectors = self._less(start(self.text, panel), start(self.text, origin))
        if self.kind.choice.is_prepacked:  # what stays has no room for the terms that a last block lacks
            lanes = self.kind.lanes
            numbers = self.text.let(f"mul i64 {vectors}, {self.terms}")
            return self.text.at(base, self.text.mul(numbers, lanes.width * lanes.wide_bytes))
        return self.text.at(base, self.text.mul(vectors, self.regions.vector_bytes))

    def _less(self, index: str, origin: str) -> str:
        return index if origin == "0" else self.text.let(f"sub i64 {index}, {origin}")

    def groups(self, first: str, end: str, origin: str, base: str) -> None:
        """Some row groups."""
        text, choice = self.text, self.kind.choice

        def one(group: str) -> None:
            row = choice.rows.start(text, group)
            source = text.at(self.left, text.mul(row, choice.task.left[0] * self.kind.left.item_bytes))
            goal = self.group_place(base, group, origin)
            found = left_sizes(self.kind)

            def call(rows: int, _: int) -> None:
                if choice.task.left_value is not None:
                    self._computed(f"left_computed_{rows}", goal, row, "0", self.terms)
                    return
                last = (rows - 1) * choice.task.left[0] * self.kind.left.item_bytes
                name = f"@{self.kind.name}_left_{rows if rows in found else found[0]}"
                text.do(f"call void {name}(ptr {source}, ptr {goal}, i64 {self.terms}, i64 {last})")

            choice.rows.each(text, group, 0, 0, call)

        text.loop(first, end, 1, lambda group, _: one(group))

    def panels(self, first: str, end: str, origin: str, base: str) -> None:
        """Some panels: line by line of terms some lines at a time, or panel by panel where columns are lines."""
        text, task = self.text, self.kind.choice.task

        def strip(start: str) -> None:
            terms = text.least(text.let(f"sub i64 {self.terms}, {start}"), LINES)
            text.loop(first, end, 1, lambda panel, _: self._panel(panel, origin, base, start, terms))

        if task.right[0] == 1 != task.right[1]:
            text.loop(first, end, 1, lambda panel, _: self._panel(panel, origin, base, "0", self.terms))
        else:
            text.loop("0", self.terms, LINES, lambda start, _: strip(start))

    def _panel(self, panel: str, origin: str, base: str, start: str, terms: str) -> None:
        """One panel, `terms` terms from `start` on."""
        text, choice, lanes = self.text, self.kind.choice, self.kind.lanes
        size = self.kind.right.item_bytes
        column = text.mul(choice.panels.start(text, panel), lanes.width)
        source = text.at(self.right, text.mul(column, choice.task.right[1] * size))
        source = text.at(source, text.mul(start, choice.task.right[0] * size))
        goal = self.panel_place(base, panel, origin)

        def call(vectors: int, active: int) -> None:
            there = text.at(goal, text.mul(start, vectors * lanes.width * lanes.wide_bytes))
            if choice.task.right_value is not None:
                self._computed(f"right_computed_{vectors}_{active}", there, column, start, terms)
                return
            name = f"@{self.kind.name}_right_{vectors}_{active}"
            text.do(f"call void {name}(ptr {source}, ptr {there}, i64 {terms})")

        choice.panels.each(text, panel, choice.task.columns % lanes.width, lanes.width, call)

    def _computed(self, stem: str, goal: str, row: str, start: str, terms: str) -> None:
        """Rows or columns from `row` on of a computed operand, `terms` terms from `start` of this block on."""
        text, (product, first) = self.text, self.place
        place = f"i64 {product}, i64 {row}, i64 {text.add(first, start)}, i64 {terms}"
        text.do(f"call void @{self.kind.name}_{stem}(ptr %arguments, ptr {goal}, {place})")
