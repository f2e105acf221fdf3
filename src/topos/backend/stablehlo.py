"""XLA as a backend: what is left of a plan, emitted as StableHLO text and compiled there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from topos.backend.backend import Backend, Dispatch, Status
from topos.backend.fidelity import Coverage, Fidelity
from topos.backend.formula import Formula
from topos.backend.task import Declined, Stretch
from topos.element import bf16, f32, f64
from topos.loading import loaded

NOT_INSTALLED = "not installed: XLA comes with jax: pip install topos-stack[xla]"
INSTRUCTIONS = Formula.GEMM, Formula.MAP, Formula.SUM, Formula.REDUCE, Formula.MOVE, Formula.INDEX, Formula.FOLD


def jax_version() -> str | None:
    """The version of jax that is there, without importing it; `None` where there is none."""
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version("jax"))
    except metadata.PackageNotFoundError:
        return None


class StableHlo(Backend):
    """XLA, where the extra is installed. What computes there is a later stage, reached by its name."""

    name = "STABLEHLO"
    dispatch = Dispatch.TRANSLATED
    by_kind = True

    def found(self) -> Status:
        """Whether jax is there, which has XLA; it is imported when something is compiled."""
        version = jax_version()
        return Status(False, NOT_INSTALLED) if version is None else Status(True, f"XLA, which comes with jax {version}")

    def coverage(self, formula: Formula) -> Coverage | None:
        return Coverage(Fidelity.ENVELOPE, (f32, f64, bf16)) if formula in INSTRUCTIONS else None

    def offer(self, task: Stretch) -> Any:
        """The stretch as a program; declined where it has no text."""
        answer = loaded("topos.emission.xla.stretch.translated")(task)
        return Declined(answer) if isinstance(answer, str) else answer
