"""NumPy: the expressions that need no gradient, and its BLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks import models
from benchmarks.arrays import Arrays
from benchmarks.workloads import Workload

PLAIN = (models.chain, models.product, models.scored)


class System:
    """What the plain models call."""

    tanh, exp = staticmethod(np.tanh), staticmethod(np.exp)

    def scores(self, value: Any, table: Any) -> Any:
        return value @ table.T

    def version(self) -> str:
        found = [library for library in threadpool_info() if library["user_api"] == "blas"]
        kernel = f", {found[0]['internal_api']} {found[0]['version']} {found[0]['architecture']}" if found else ""
        return f"{np.__version__}{kernel}"

    def threads(self, count: int) -> None:
        threadpool_limits(count)

    def step(self, workload: Workload, arrays: Arrays) -> Callable[[], Any] | None:
        if workload.kind != "infer" or workload.model not in PLAIN:
            return None
        return lambda: workload.model(self, {}, arrays.inputs)[0]

    def magnitude(self, result: Any) -> float:
        return float(np.abs(result).mean(dtype=np.float64))
