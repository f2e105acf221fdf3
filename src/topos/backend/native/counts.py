"""How often code was made, and why."""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Mapping

from topos.records import NamedTuple

COLD = "compiled"
"""Made by LLVM: neither this process nor the cache on disk had it."""

HIT = "loaded from the cache"
"""Read from the cache on disk: another process had made it."""

_KEPT = 1000


class Event(NamedTuple):
    """One time that code was made or loaded: the reason, what it was for, and how long it took."""

    reason: str
    what: str
    elapsed_s: float

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}, {self.elapsed_s * 1e3:.1f} ms"


class Compiles(NamedTuple):
    """Counts by reason since the process began, and the last thousand events, oldest first."""

    by_reason: Mapping[str, int]
    recent: tuple[Event, ...]

    @property
    def compiled(self) -> int:
        """How many pieces of text LLVM compiled."""
        return self.by_reason.get(COLD, 0)

    @property
    def loaded(self) -> int:
        """How many came from the cache on disk."""
        return self.by_reason.get(HIT, 0)

    def since(self, earlier: Compiles) -> Compiles:
        """What has been added to an earlier reading."""
        added = {reason: n - earlier.by_reason.get(reason, 0) for reason, n in self.by_reason.items()}
        new = min(sum(added.values()), len(self.recent))
        return Compiles({r: n for r, n in added.items() if n}, self.recent[len(self.recent) - new :])

    def __str__(self) -> str:
        totals = ", ".join(f"{n} {reason}" for reason, n in self.by_reason.items()) or "nothing compiled"
        return "\n".join([totals, *(f"  {event}" for event in self.recent)])


_lock = threading.Lock()
_totals: Counter[str] = Counter()
_recent: deque[Event] = deque(maxlen=_KEPT)


def count(reason: str, what: str, elapsed_s: float = 0.0) -> None:
    """Notes that code was made, for a reason that a user may read: `COLD`, `HIT`, or a caller's own (`"new shape"`)."""
    with _lock:
        _totals[reason] += 1
        _recent.append(Event(reason, what, elapsed_s))


def compiles() -> Compiles:
    """What was compiled so far, with reasons; `print` it, or read its fields."""
    with _lock:
        return Compiles(dict(_totals), tuple(_recent))


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
