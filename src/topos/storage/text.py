"""JSON as headers have it: strict in both directions."""

from __future__ import annotations

from typing import Any, NoReturn

from topos.errors import CheckpointError


def spelled(document: Any, what: str) -> str:
    """A document as JSON without spaces. Raises `CheckpointError` for what JSON does not hold."""
    import json  # what no file needs is not imported

    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise CheckpointError(f"{what}: is nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise CheckpointError(f"{what}: {error}") from None


def parsed(text: str, what: str) -> Any:
    """What JSON says. Raises `CheckpointError` for anything else, and for an object that has one name twice."""
    import json

    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise CheckpointError(f"{what}: is nested too deeply") from None
    except ValueError as error:
        raise CheckpointError(f"{what}: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} stands twice in one object")
    return found


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


class Facts:
    """An object of a document whose every fact is taken once, checked, and none left over.

    `what` names it in errors: `node %3`.
    """

    def __init__(self, what: str, document: Any) -> None:
        if not isinstance(document, dict):
            raise CheckpointError(f"{what}: wants an object, got {document!r:.40}")
        self.what = what
        self._left = dict(document)

    def take(self, name: str, kind: type | tuple[type, ...], *default: Any) -> Any:
        """A fact of some kind of JSON value; where it is absent the default, if there is one.

        Raises `CheckpointError` for a fact that is missing or of another kind; a bool is no int.
        """
        if name not in self._left:
            if default:
                return default[0]
            raise CheckpointError(f"{self.what}: has no {name!r}")
        value = self._left.pop(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise CheckpointError(f"{self.what}: {name!r} cannot be {value!r:.40}")
        return value

    def has(self, name: str) -> bool:
        """Whether there is such a fact that nobody took yet."""
        return name in self._left

    def integers(self, name: str, *default: Any) -> list[int]:
        """A list of integers."""
        found: list[int] = self.take(name, list, *default)
        if not all(type(number) is int for number in found):
            raise CheckpointError(f"{self.what}: {name!r} wants integers, got {found!r:.60}")
        return found

    def end(self) -> None:
        """Raises `CheckpointError` that names a fact which nobody took: one of a later version."""
        for name in self._left:
            raise CheckpointError(f"{self.what}: has an unknown fact {name!r}")
