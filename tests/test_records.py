"""Named tuples behave as `typing`'s do."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import typing
from pathlib import Path

import pytest

import topos
from topos.records import NamedTuple


class Place(NamedTuple):
    """A row and a column of it."""

    row: int
    column: int = 2
    names: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.row + self.column

    def moved(self, rows: int) -> Place:
        return self._replace(row=self.row + rows)

    @classmethod
    def first(cls) -> Place:
        return cls(0, 0)


class One(NamedTuple):
    value: int


class Nothing(NamedTuple):
    pass


class Typed(typing.NamedTuple):
    row: int
    column: int = 2
    names: tuple[str, ...] = ()


Typed.__name__ = "Place"


@pytest.mark.parametrize(
    ("given", "named"),
    [((1,), {}), ((1, 5), {}), ((1,), {"names": ("a",)}), ((), {"column": 3, "row": 4})],
)
def test_equals_what_typing_makes(given, named):
    place, typed = Place(*given, **named), Typed(*given, **named)
    assert place == typed == tuple(typed)
    assert hash(place) == hash(typed)
    assert repr(place) == repr(typed)
    assert place._asdict() == typed._asdict()
    assert [place.row, place.column, place.names] == list(typed)
    assert place._replace(column=9) == typed._replace(column=9)


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((1, 2, (), 3), {}), ((1,), {"row": 2}), ((1,), {"nothing": 2})]
)
def test_refuses_what_typing_refuses(given, named):
    with pytest.raises(TypeError) as ours:
        Place(*given, **named)
    with pytest.raises(TypeError) as theirs:
        Typed(*given, **named)
    assert str(ours.value) == str(theirs.value).replace("Typed", "Place")


def test_holds_methods_and_facts():
    assert (Place(1).total, Place(1).moved(2), Place.first()) == (3, Place(3), Place(0, 0))
    assert Place._fields == Place.__match_args__ == ("row", "column", "names")
    assert Place._field_defaults == {"column": 2, "names": ()}
    assert Place.__doc__ == "A row and a column of it."
    assert list(inspect.signature(Place).parameters) == ["row", "column", "names"]
    assert typing.get_type_hints(Place) == {"row": int, "column": int, "names": tuple[str, ...]}
    assert not hasattr(Place(1), "__dict__")


def test_has_any_number_of_fields():
    assert (One(3), One(3).value, repr(One(value=4))) == ((3,), 3, "One(value=4)")
    assert (Nothing(), repr(Nothing())) == ((), "Nothing()")


def test_matches_by_position():
    match Place(1, 5):
        case Place(row, column):
            assert (row, column) == (1, 5)
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize("made", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_is_copied(made):
    again = made(Place(1, 2, ("a",)))
    assert type(again) is Place
    assert again == Place(1, 2, ("a",))


def test_is_what_every_named_tuple_is_made_by():
    """But for those of the neural tier, which has nothing that users have not."""
    folder = Path(topos.records.__file__).parent
    below = (path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] != "neural")
    sources = {path: path.read_text("utf-8") for path in below}
    from_typing = [path for path, text in sources.items() if re.search(r"^from typing import .*NamedTuple", text, re.M)]
    assert from_typing == []
    assert sum("from topos.records import NamedTuple" in text for text in sources.values()) > 50
