"""Vocabularies and texts."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos import FeedError, KinshipError
from topos.neural.data import Vocabulary, read_text
from topos.testing import assert_same_bits


@given(st.text())
def test_a_text_comes_back_from_its_ids(text: str) -> None:
    letters = Vocabulary.of(text)
    assert list(letters) == sorted(set(text))
    ids = letters.ids(text)
    assert (ids.dtype, ids.shape) == (np.int64, (len(text),))
    assert letters.text(ids) == text


def test_labels_of_any_kind_are_classes() -> None:
    colours = Vocabulary.of(["red", "blue", "red"])
    assert (colours[0], len(colours), "red" in colours) == ("blue", 2, True)
    assert colours.symbols([1, 0]) == ["red", "blue"]
    selection = colours.selection(["red", "red", "blue"])
    assert_same_bits(selection.numpy(), np.array([[0, 1], [0, 1], [1, 0]], np.float32))


def test_an_order_of_ones_own() -> None:
    letters = Vocabulary(".ab")
    assert letters.ids("ab.").tolist() == [1, 2, 0]
    assert repr(letters) == "Vocabulary('.', 'a', 'b')"
    assert letters == Vocabulary([".", "a", "b"]) != Vocabulary("ab.")
    assert hash(letters) == hash(Vocabulary([".", "a", "b"]))
    assert pickle.loads(pickle.dumps(letters)) == letters
    assert letters.text(np.array([[1], [2]]).reshape(-1)) == "ab"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Vocabulary("aba"), "vocabulary: 'a' stands in it twice"),
        (lambda: Vocabulary("ab").ids("abc"), "vocabulary: 'c' is none of its 2 symbols"),
        (lambda: Vocabulary("ab").symbols([0, 2]), "vocabulary: id 2 at [1] is not one of 0 .. 1"),
        (lambda: Vocabulary("ab").text([-1]), "vocabulary: id -1 at [0] is not one of 0 .. 1"),
    ],
)
def test_what_is_not_in_it_is_named(call, message: str) -> None:
    with pytest.raises(KinshipError) as caught:
        call()
    assert str(caught.value) == message


def test_a_text_file_is_utf_8_with_newlines(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_bytes("emma\r\nzoë\n".encode())
    assert read_text(file) == "emma\nzoë\n"
    file.write_bytes(b"emma\xff")
    with pytest.raises(FeedError) as caught:
        read_text(str(file))
    assert str(caught.value) == f"read_text: {file} is not UTF-8 at byte 4: invalid start byte"


def test_what_no_vocabulary_looks_up() -> None:
    with pytest.raises(KinshipError, match="vocabulary: wants symbols that can be looked up: unhashable type: 'list'"):
        Vocabulary([[1]])
    with pytest.raises(KinshipError, match=r"vocabulary: \[1\] is none of its 2 symbols"):
        Vocabulary("ab").ids(["a", [1]])


@pytest.mark.parametrize("ids", [[1.5], ["0"], [[0]], [float("nan")], np.array([0.0])], ids=str)
def test_ids_are_integers(ids: Any) -> None:
    with pytest.raises(KinshipError, match=r"vocabulary: id .* at \[0\] is not one of 0 .. 1"):
        Vocabulary("ab").symbols(ids)


def test_the_text_of_labels() -> None:
    assert Vocabulary([7, 8]).text([1, 0]) == "87"
