"""Products without terms: every result is a positive zero, through the one store of all kinds; or without results."""

from __future__ import annotations

from topos.backend.native.kernel import head
from topos.backend.native.products.frame import Work, frame
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Results
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target


def nothing(kind: Kind, target: Target) -> str:
    """The text of a product without results."""
    return f"define {head(kind.name)} {{\n  ret void\n}}\n"


def zeros(kind: Kind, target: Target) -> str:
    """The text: row by row, vector by vector."""
    return frame(kind, None, lambda text, work: _rows(kind, text, work))


def _rows(kind: Kind, text: Text, work: Work) -> None:
    task, lanes = kind.choice.task, kind.lanes

    def one(row: str, panel: str) -> None:
        column = text.mul(panel, lanes.width)
        down = text.mul(row, task.out[0] * lanes.item_bytes)
        out = text.at(text.at(work.out, down), text.mul(column, task.out[1] * lanes.item_bytes))

        def store(_: int, active: int) -> None:
            kind.finish(text, Results("zeroinitializer", work.product, row, column, active), out)

        kind.choice.panels.each(text, panel, task.columns % lanes.width, lanes.width, store)

    text.loop(*work.groups, 1, lambda row, _: text.loop(*work.panels, 1, lambda panel, _: one(row, panel)))
