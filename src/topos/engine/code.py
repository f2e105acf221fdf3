"""What an entry is lowered to, by what it can do: explain itself, serve a schedule, or run all of it in one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import Any

from topos.tensor import Tensor

Compositions = Sequence[tuple[str, Set[int]]]
"""The kinds of what a plan computes as a whole, each with its rows."""


class Code(ABC):
    """What a plan became. One that is nothing more is interpreted, and says why."""

    @abstractmethod
    def explain(self, compositions: Compositions = ()) -> str:
        """Who computes what, and of which composition it is part; or why the interpreter does."""

    @abstractmethod
    def llvm(self) -> str:
        """The LLVM text of what is compiled."""


class ServingCode(Code):
    """Computes in place of the interpreter's steps, value by value."""

    @abstractmethod
    def serve(self, values: dict[int, Tensor]) -> None:
        """Computes the schedule over the sources in `values`, where each result is put and what is dead goes."""


class NativeCode(Code):
    """A run or a step as one call. Holds no state: each call has a table, whose words say where everything lies.

    `computed` are the rows that a run answers, `places` the word of each source's address in a table's `words`; what
    nobody reads may be put at `unread`. Whatever can fail does so in `ready`: a call that has been entered comes to
    its end.
    """

    computed: frozenset[int]
    places: Mapping[int, int]
    unread: int

    @abstractmethod
    def table(self) -> Any:
        """A table for one call at a time, with all that stays the same from call to call."""

    @abstractmethod
    def move(self, table: Any, word: int, step_bytes: int) -> None:
        """Says how far what a word points at moves on from step to step."""

    @abstractmethod
    def point(self, table: Any, sources: Mapping[int, Any], is_settled: bool) -> bool:
        """Writes the address of each source's payload, which is kept alive by whoever enters.

        Every step reads what they have for the first, until `move` says otherwise. `is_settled` says that nobody writes
        to the payloads any more, whatever else runs: what is worked out of them once stays right. Answers whether the
        table would be pointed in the same way if the same payloads came again.
        """

    @abstractmethod
    def ready(self, table: Any, steps: int | None) -> dict[int, Tensor]:
        """Memory for what a run answers or, of so many steps, each of them: each result then gains a leading axis.

        After it the table is to be entered so, once; it has to be pointed anew before a run follows many steps.
        """

    @abstractmethod
    def enter(self, table: Any, values: dict[int, Tensor], steps: int | None) -> None:
        """Runs once, over the payloads pointed at; `values[row]` is then the value of each of `computed`.

        Or runs as many steps, one after another; between two, Python looks for a Ctrl-C now and then.
        """
