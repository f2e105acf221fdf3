"""Who computed what: the one place where every executor counts, and the posture of what is computed at once.

A count names a formula (`"GEMM"`) and a backend (`"SIMD"`) by their names. Nothing is kept unless somebody asked: a
tally and a posture hold for the block that set them, in its thread and in what that thread awaits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from topos.op import (
    Cast,
    Elementwise,
    Fold,
    Indexing,
    MatMul,
    Movement,
    Opcode,
    Pad,
    Reduction,
    Sum,
    SumAlong,
)
from topos.op.kinds import ByKind

REFERENCE = "REFERENCE"
"""The name under which the defining NumPy kernels are counted: where everything that every backend declined lands."""


FORMULAS = ByKind[str](
    {
        MatMul: "GEMM",
        Elementwise: "MAP",
        Cast: "MAP",
        Sum: "SUM",
        SumAlong: "SUM",
        Fold: "FOLD",
        Reduction: "REDUCE",
        Movement: "MOVE",
        Pad: "MOVE",
        Indexing: "INDEX",
    }
)
"""The formula of each kind of instruction."""


def formula_of(opcode: Opcode) -> str:
    """The formula that a single instruction is counted under, and that backends are asked for."""
    return FORMULAS[type(opcode)]


class Services:
    """What served what while a tally was on: how many instructions of each formula each backend computed.

    `print` it, read `count(...)`, or take `by_formula`.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, formula: str, backend: str, times: int = 1) -> None:
        """Notes that a backend computed `times` instructions of a formula."""
        self._counts[formula, backend] += times

    def count(self, formula: str | None = None, backend: str | None = None) -> int:
        """How many instructions of a formula a backend computed; of all of them where one is not given."""
        return sum(
            times
            for (counted, by), times in self._counts.items()
            if formula in (None, counted) and backend in (None, by)
        )

    @property
    def by_formula(self) -> dict[str, dict[str, int]]:
        """`{formula: {backend: count}}`, names in alphabetical order."""
        found: dict[str, dict[str, int]] = {}
        for formula, backend in sorted(self._counts):
            found.setdefault(formula, {})[backend] = self._counts[formula, backend]
        return found

    def __str__(self) -> str:
        lines = [
            f"{formula:22}{', '.join(f'{backend} {count}' for backend, count in served.items())}"
            for formula, served in self.by_formula.items()
        ]
        return "\n".join(lines) or "nothing was computed"

    def __repr__(self) -> str:
        return f"Services({self.by_formula})"


_tallies: ContextVar[tuple[Services, ...]] = ContextVar("topos_tallies", default=())
_exact: ContextVar[bool] = ContextVar("topos_exact", default=False)


counting = _tallies.get
"""Those who want to know, if there is anybody; whoever computes much may ask before it counts."""


def count(formula: str, backend: str, times: int = 1) -> None:
    """Notes in every tally that is on that a backend computed instructions of a formula."""
    for services in _tallies.get():
        services.add(formula, backend, times)


def count_all(counts: Mapping[tuple[str, str], int]) -> None:
    """`count` for each `(formula, backend)` of a mapping: what a plan knows of itself beforehand."""
    for services in _tallies.get():
        for (formula, backend), times in counts.items():
            services.add(formula, backend, times)


@contextmanager
def tallied() -> Iterator[Services]:
    """A tally of what this thread computes inside the block; blocks nest, and each counts all that is inside it."""
    services = Services()
    token = _tallies.set((*_tallies.get(), services))
    try:
        yield services
    finally:
        _tallies.reset(token)


def exact() -> bool:
    """Whether tensors that compute at once, outside plans, are held to the defining bits whatever is enabled."""
    return _exact.get()


@contextmanager
def exactly() -> Iterator[None]:
    """Holds tensors that compute at once to the defining bits, in this thread, inside the block."""
    token = _exact.set(True)
    try:
        yield
    finally:
        _exact.reset(token)
