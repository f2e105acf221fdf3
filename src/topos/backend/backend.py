"""The seam of acceleration: an object that offers to compute what it covers, and may decline."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Set
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, ClassVar

from topos.backend.fidelity import Coverage
from topos.backend.formula import Formula
from topos.backend.task import Stretch, Task
from topos.errors import BackendUnavailable
from topos.records import NamedTuple
from topos.tensor import services


class Dispatch(Enum):
    """When a backend is asked, and for what.

    `OFFERED`: for each run of an instruction, with its operands; the answer is an array. `ELECTED`: once per plan, at
    lowering, with shapes alone; the answer is a kernel `f(*arrays) -> array` that serves every run. `TRANSLATED`: once
    per plan, for all of it or the part that nobody before it took; the answer has `run(sources) -> {row: tensor}`.
    """

    OFFERED = "offered"
    ELECTED = "elected"
    TRANSLATED = "translated"


class Status(NamedTuple):
    """Whether a backend is ready, and in words what it found or why not."""

    ready: bool
    reason: str

    def __str__(self) -> str:
        return f"ready: {self.reason}" if self.ready else self.reason


class Backend:
    """Somebody who offers to compute; subclass it to join a plan by `entry.backends([Mine(), *Backend.ALL])`.

    A subclass sets `name` and `dispatch` and defines `coverage` and `offer`; `found` where it may not be ready. One
    that raises is poisoned: it is asked no more, its status says why, and its work lands on the next in the chain. An
    answer of another shape or dtype than asked for counts as raising.
    """

    name: ClassVar[str]
    dispatch: ClassVar[Dispatch]
    ALL: ClassVar[tuple[Backend, ...]]
    """Every backend of topos, in the order in which they are asked."""
    ACCELERATE: ClassVar[Backend]
    METAL: ClassVar[Backend]
    CUDA: ClassVar[Backend]
    BLAS: ClassVar[Backend]
    FUSED: ClassVar[Backend]
    SIMD: ClassVar[Backend]
    STABLEHLO: ClassVar[Backend]

    _poison: str | None = None

    @property
    def is_poisoned(self) -> bool:
        """Whether it raised once, and is asked no more."""
        return self._poison is not None

    def status(self) -> Status:
        """Whether it can be asked, or why not: not installed, another platform, a setup that failed, poisoned."""
        if self._poison is not None:
            return Status(False, self._poison)
        try:
            status = self.found()
        except Exception as error:
            return Status(False, f"setup failed: {told(error)}")
        if not isinstance(status, Status):
            return Status(False, f"setup failed: found answered {type(status).__name__}, wants a Status")
        return status

    def found(self) -> Status:
        """What it finds on this machine."""
        return Status(True, "always")

    def coverage(self, formula: Formula) -> Coverage | None:
        """How faithfully and over which elements it computes a formula; `None` where it does not."""
        raise NotImplementedError(f"{self.name}.coverage")

    def stores(self, task: Stretch) -> Mapping[int, Set[int]]:
        """The rows of a whole plan that it puts into memory, each with those that are the same numbers there.

        What is largest in a composition that it covers is never among them, else the composition is not its own. Only
        one that is `TRANSLATED` is asked; what it answers hangs on no machine.
        """
        return {}

    by_kind: ClassVar[bool] = False
    """Whether `takes` looks at the kind of the instruction and at elements alone: then it is asked once for each."""

    def takes(self, task: Task, exact: bool = True) -> bool:
        """Whether to ask it for an instruction: it covers the formula in every element, as faithfully as asked."""
        coverage = self.coverage(task.formula)
        return coverage is not None and all(coverage.admits(element, exact) for element in task.elements)

    def offer(self, task: Any) -> Any:
        """The answer to a task, in the form that `dispatch` asks for; `None` or a `Declined` where there is none.

        The task is a `Task`, for a backend that is `TRANSLATED` a `Stretch`.
        """
        raise NotImplementedError(f"{self.name}.offer")

    def required(self) -> Backend:
        """Itself, where it is ready. Raises `BackendUnavailable` that says why not, for whoever wants no other."""
        status = self.status()
        if not status.ready:
            raise BackendUnavailable(f"backend {self.name}: {status.reason}")
        return self

    def poison(self, error: BaseException) -> None:
        """Asks it no more in this process, for the error that it raised; warns once."""
        if self._poison is None:
            self._poison = f"poisoned: {told(error)}"
            warnings.warn(f"backend {self.name} is asked no more: it raised {told(error)}", RuntimeWarning, 2)

    @staticmethod
    def tallied() -> AbstractContextManager[services.Services]:
        """Says what served what: `with Backend.tallied() as services:`, for what this thread computes inside."""
        return services.tallied()

    def __repr__(self) -> str:
        return f"Backend.{self.name}" if self in Backend.ALL else f"{type(self).__name__}()"

    def __reduce__(self) -> Any:
        return (_named, (self.name,)) if self in Backend.ALL else super().__reduce__()


def _named(name: str) -> Backend:
    return next(backend for backend in Backend.ALL if backend.name == name)


def told(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")
