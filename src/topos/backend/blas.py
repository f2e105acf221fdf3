"""Products by a BLAS: another order of additions than the defining one, so within an envelope of the bits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from topos.backend.backend import Backend, Dispatch, Status
from topos.backend.cblas import Cblas
from topos.backend.elsewhere import system_library
from topos.backend.fidelity import Coverage, Fidelity
from topos.backend.formula import Formula
from topos.backend.process import threads
from topos.backend.task import Task
from topos.element import f32, f64
from topos.element.element import Array


class CblasBackend(Backend):
    """The products of `f32` and `f64` of whichever library it finds.

    Each number is within `2 (terms + 2) u * sum_k |left[i, k] * right[k, j]|` of the defining one, where `u` is half
    an ulp of one: both sums are within half of that of the true product.
    """

    dispatch = Dispatch.ELECTED

    def __init__(self, name: str, find: Callable[[], Iterator[tuple[str, str]]], absent: str) -> None:
        self.name = name  # type: ignore[misc]
        self._find = find
        self._absent = absent
        self._library: Cblas | None = None
        self._status: Status | None = None

    def found(self) -> Status:
        """The first library that loads and has the interface."""
        if self._status is None:
            self._status = self._looked()
        return self._status

    def _looked(self) -> Status:
        failed = ""
        for path, where in self._find():
            try:
                library = self._library = Cblas(path)
            except (OSError, LookupError) as error:
                failed = failed or f"setup failed: {where}: {error}"
                continue
            return Status(True, f"{library.description}, {where}")
        return Status(False, failed or self._absent)

    def coverage(self, formula: Formula) -> Coverage | None:
        return Coverage(Fidelity.ENVELOPE, (f32, f64)) if formula is Formula.GEMM else None

    def offer(self, task: Task) -> Callable[[Array, Array], Array] | None:
        library = self._library
        sizes = [max(operand.shape) for operand in task.operands if operand.shape.volume]
        if library is None or task.has_selection or max(sizes, default=0) > library.most:
            return None
        return partial(_product, library)


def _product(library: Cblas, left: Array, right: Array) -> Array:
    return library.matmul(left, right, threads())


def libraries() -> Iterator[tuple[str, str]]:
    """Where a BLAS may lie, with where that is in words: the one that TOPOS_BLAS names, or NumPy's, or the system's."""
    named = os.environ.get("TOPOS_BLAS", "").strip()
    if named:
        yield named, f"TOPOS_BLAS={named}"
        return
    beside = Path(np.__file__).parent
    for folder in (beside.parent / "numpy.libs", beside / ".dylibs"):
        yield from ((str(path), "the one beside NumPy") for path in sorted(folder.glob("*openblas*")))
    for name in ("openblas", "cblas", "blas", "mkl_rt"):
        path = system_library(name)
        if path:
            yield path, f"the system's {name}"


def accelerate() -> Iterator[tuple[str, str]]:
    """Apple's library, on Apple's system."""
    if str(sys.platform) == "darwin":
        yield "/System/Library/Frameworks/Accelerate.framework/Accelerate", "the system's"


NOT_INSTALLED = "not installed: found no library with the CBLAS interface; name one in TOPOS_BLAS"
