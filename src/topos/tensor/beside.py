"""What is kept of a tensor's numbers in another form: packed, say. It goes when the tensor goes."""

from __future__ import annotations

from typing import Any

from topos.element.element import Array


class Beside:
    """A tensor's place for other forms of its numbers; one that has none pays a slot for it."""

    __slots__ = ("_beside",)
    _array: Array | None
    _beside: dict[Any, Any]


def beside(tensor: Beside) -> dict[Any, Any] | None:
    """What is kept of a tensor's numbers in another form, as long as it lives; `None` where they may change.

    That is memory which `frozen` shares with others, and whatever is a view of it.
    """
    try:
        return tensor._beside
    except AttributeError:
        if tensor._array is None or not tensor._array.flags.writeable:
            return None
        tensor._beside = {}
        return tensor._beside
