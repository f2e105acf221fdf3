"""What native code does in this process as a whole: how many threads it keeps busy, and what was compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topos.loading import loaded

if TYPE_CHECKING:
    from topos.backend.native.counts import Compiles


def threads(number: int | None = None) -> int:
    """How many threads a kernel may use; `threads(n)` sets it for the whole process, from the next run on.

    At first it is TOPOS_THREADS, or as many as the affinity mask and the container's quota let this process keep busy.
    The bits do not depend on it. Raises `SettingError` for anything but a whole number of at least 1.
    """
    found: int = loaded("topos.backend.native.pool.threads")(number)
    return found


def compiles() -> Compiles:
    """How often code was made since the process began, counted by reason, and the latest events: `print` it.

    `compiled` counts pieces that LLVM compiled, `loaded` those that came from the cache on disk; `since(earlier)` is
    what has been added to an earlier answer.

    >>> import topos
    >>> before = topos.compiles()
    >>> topos.compiles().since(before).compiled
    0
    """
    found: Compiles = loaded("topos.backend.native.counts.compiles")()
    return found
