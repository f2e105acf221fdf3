"""Backends that this version names and has no code for: they say so, and decline."""

from __future__ import annotations

import importlib
import sys
from functools import cache

from topos.backend.backend import Backend, Dispatch, Status
from topos.backend.fidelity import Coverage
from topos.backend.formula import Formula
from topos.backend.task import Declined


@cache
def system_library(name: str) -> str | None:
    """Where the system has a library, looked up once."""
    return importlib.import_module("ctypes.util").find_library(name)  # type: ignore[no-any-return]


class Elsewhere(Backend):
    """Never ready, and never asked."""

    dispatch = Dispatch.TRANSLATED

    def coverage(self, formula: Formula) -> Coverage | None:
        return None

    def offer(self, task: object) -> Declined:
        return Declined(f"{self.name} has no kernels in this version")


class Metal(Elsewhere):
    """Apple's graphics processors."""

    name = "METAL"

    def found(self) -> Status:
        """Whether there could be one, and that there is no code for it."""
        if sys.platform != "darwin":
            return Status(False, f"platform: Metal is Apple's, this is {sys.platform}")
        return Status(False, "not installed: this version has no Metal kernels")


class Cuda(Elsewhere):
    """NVIDIA's graphics processors."""

    name = "CUDA"

    def found(self) -> Status:
        """Whether there is a driver, and that there is no code for it."""
        if not system_library("cuda"):
            return Status(False, "not installed: found no CUDA driver; this version has no CUDA kernels either")
        return Status(False, "not installed: found a CUDA driver, but this version has no CUDA kernels")
