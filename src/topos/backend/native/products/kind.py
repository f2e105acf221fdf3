"""What the text of every kind is made from."""

from __future__ import annotations

from typing import NamedTuple

from topos.backend.native.products.choice import Choice
from topos.backend.native.products.lanes import Epilogue, Lanes
from topos.backend.native.target import Target


class Kind(NamedTuple):
    """A name, what was chosen, and how numbers lie: `lanes` those of the results, `left` and `right` the operands'."""

    name: str
    choice: Choice
    lanes: Lanes
    left: Lanes
    right: Lanes
    epilogue: Epilogue | None
    helpers: dict[str, str]


def kind_of(name: str, choice: Choice, target: Target, epilogue: Epilogue | None) -> Kind:
    """The kind of a choice, its helpers still to be found."""
    task = choice.task
    own, left, right = (
        Lanes(task.element, target, stored=stored) for stored in (task.element, task.left_element, task.right_element)
    )
    return Kind(name, choice, own, left, right, epilogue, {})
