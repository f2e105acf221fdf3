"""Symbols and their ids: characters of a text, or any other labels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topos.errors import FeedError, KinshipError
from topos.tensor import Tensor


class Vocabulary(Sequence[Any]):
    """Distinct symbols in a fixed order: the id of one is its place.

    >>> letters = Vocabulary.of("abracadabra")
    >>> letters, letters.ids("bad").tolist(), letters.text([1, 0, 4])
    (Vocabulary('a', 'b', 'c', 'd', 'r'), [1, 0, 3], 'bar')
    """

    def __init__(self, symbols: Iterable[Any]) -> None:
        self._symbols = tuple(symbols)
        try:
            self._ids = {symbol: place for place, symbol in enumerate(self._symbols)}
        except TypeError as error:
            raise KinshipError(f"vocabulary: wants symbols that can be looked up: {error}") from None
        if len(self._ids) != len(self._symbols):
            twice = next(s for place, s in enumerate(self._symbols) if self._ids[s] != place)
            raise KinshipError(f"vocabulary: {twice!r} stands in it twice")

    @classmethod
    def of(cls, symbols: Iterable[Any]) -> Vocabulary:
        """The distinct ones of some symbols, sorted: the characters of a text, the classes of labels."""
        return cls(sorted(set(symbols)))

    def ids(self, symbols: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The id of each symbol in turn. Raises `KinshipError` that names one which the vocabulary has not."""
        listed = list(symbols)
        try:
            return np.array([self._ids[symbol] for symbol in listed], np.int64)
        except (KeyError, TypeError):
            strange = next(symbol for symbol in listed if not self._has(symbol))
            raise KinshipError(f"vocabulary: {strange!r} is none of its {len(self)} symbols") from None

    def selection(self, symbols: Iterable[Any]) -> Tensor:
        """The ids of some symbols as one-hot rows, `[count, len(self)]`, which are never materialised."""
        return Tensor.selection(self.ids(symbols), len(self))

    def symbols(self, ids: Iterable[int]) -> list[Any]:
        """The symbol of each id in turn. Raises `KinshipError` for an id outside `0 .. len - 1`."""
        found = list(ids)
        for place, symbol in enumerate(found):
            if not isinstance(symbol, int | np.integer) or not 0 <= symbol < len(self):
                raise KinshipError(f"vocabulary: id {symbol} at [{place}] is not one of 0 .. {len(self) - 1}")
        return [self._symbols[symbol] for symbol in found]

    def text(self, ids: Iterable[int]) -> str:
        """The symbols of ids as one string."""
        return "".join(map(str, self.symbols(ids)))

    def _has(self, symbol: Any) -> bool:
        try:
            return symbol in self._ids
        except TypeError:
            return False

    def __len__(self) -> int:
        return len(self._symbols)

    def __getitem__(self, place: Any) -> Any:
        return self._symbols[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._symbols == tuple(other)

    def __hash__(self) -> int:
        return hash(self._symbols)

    def __repr__(self) -> str:
        return f"Vocabulary({', '.join(map(repr, self._symbols))})"


def read_text(path: str | os.PathLike[str]) -> str:
    """A text file in UTF-8, each of its line ends as a newline.

    Raises `FeedError` that names the file and the byte where it is not UTF-8.
    """
    file = Path(path)
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FeedError(f"read_text: {file} is not UTF-8 at byte {error.start}: {error.reason}") from None
