"""What is computed over tensors again and again, as plans: recorded when a computation comes the second time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from topos.element import bf16, f32, f64
from topos.engine import Numerics
from topos.graph import Tape
from topos.neural.asked import Asked
from topos.tensor import Tensor

Express = Callable[[Sequence[Any]], Sequence[Any]]
"""A computation, of tensors or of values: it calls nothing but what they share."""
Call = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]

MOST = 16
"""Signatures that are kept in mind; those that have not come for as many others are forgotten."""
FEW = 4
"""Plans that one family has at a time: each keeps memory for its next answers."""
LATER = 100
"""After so many more computations a plan is made again that gave way to others, or whose making was interrupted."""

NATIVE = frozenset((f32, f64, bf16))
"""The elements that are worth a plan: it is compiled."""


class _Known:
    """A signature: its plan, where there is one, and one entry for every computation until it is made."""

    __slots__ = ("call", "due")

    def __init__(self) -> None:
        self.call: Call | None = None
        self.due = [None]


class _Plans:
    """Plans by signature. Threads share them without a lock: a list gives each of its entries to one of them."""

    __slots__ = ("_made", "_older", "_recent")

    def __init__(self) -> None:
        self._recent: dict[Hashable, _Known] = {}
        self._older: dict[Hashable, _Known] = {}
        self._made: list[_Known] = []

    def known(self, signature: Hashable) -> _Known | None:
        """What is known of a signature; `None` where it is new."""
        return self._recent.get(signature) or self._remembered(signature)

    def _remembered(self, signature: Hashable) -> _Known | None:
        known = self._older.get(signature)
        if len(self._recent) >= MOST:
            self._older, self._recent = self._recent, {}
        self._recent[signature] = known or _Known()
        return known

    def made(self, known: _Known, tensors: Sequence[Tensor], express: Express) -> Call | None:
        """The plan of a signature whose time has come; `None` where another thread makes it, or nobody can."""
        try:
            known.due.pop()
        except IndexError:
            return None
        if known.due:
            return None
        try:
            known.call = call = _recorded(tensors, express)
        except Exception:  # computed at once, it works or it tells why not
            return None
        except BaseException:
            known.due = [None] * LATER
            raise
        self._made.append(known)
        if len(self._made) > FEW:
            oldest = self._made.pop(0)
            oldest.call, oldest.due = None, [None] * LATER
        return call


_plans: WeakKeyDictionary[Any, _Plans] = WeakKeyDictionary()


def computed(family: Any, what: Hashable, tensors: Sequence[Tensor], express: Express) -> tuple[Tensor, ...] | None:
    """What `express(tensors)` answers, by a plan, in buffers of its own; `None` where there is none, or not yet.

    `what` stands for all that `express` reads beside the tensors. What cannot be recorded is not tried again. Plans
    go with the family of the tables that they are for.
    """
    elements = [tensor.element for tensor in tensors]
    if not NATIVE.issuperset(elements):
        return None
    signature = what, tuple([tensor.shape for tensor in tensors]), tuple(elements)
    plans = _plans.get(family) or _plans.setdefault(family, _Plans())
    known = plans.known(signature)
    if known is None:
        return None
    call = known.call or plans.made(known, tensors, express)
    return None if call is None else call(tensors)


def _recorded(tensors: Sequence[Tensor], express: Express) -> Call:
    def record(tape: Tape) -> Any:
        values = [tape.input(shape=tensor.shape, element=tensor.element) for tensor in tensors]
        return values, [asked.value for asked in express([Asked(value) for value in values])]

    network, (inputs, outputs) = Tape.record(record)
    function = network.entry(outputs).numerics(Numerics.EXACT).lower().prepare().function(inputs, outputs)
    nothing = network.parameters()
    return lambda arrays: function(nothing, *arrays)
