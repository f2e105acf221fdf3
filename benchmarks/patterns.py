"""What finding patterns costs and what it saves: `python -m benchmarks.patterns w3 w4 w5`.

For each workload: its nodes, the time to collect candidates and to elect among them (the least of several), what is
elected by somebody who computes every formula, and how much lives at once with and without it.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.systems import system
from benchmarks.workloads import WORKLOADS
from topos import Formula, Plan
from topos.engine.pattern.pool import pooled

USUAL = ("w2", "w3", "w4", "w5", "w7c")


def least_s(work: Callable[[], Any], times: int = 5) -> float:
    """The least time that some work takes."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def measured(plan: Plan, length: int) -> str:
    """One workload's line and, below it, what was elected."""
    spec = plan._spec
    pooling_s = least_s(lambda: pooled(spec, length))
    plan.patterns(Formula)
    electing_s = least_s(lambda: plan.patterns(Formula))
    kinds = Counter(pattern.kind for pattern in plan.patterns(Formula))
    line = f"{length:>6} nodes  collect {1e3 * pooling_s:7.1f} ms  elect {1e3 * electing_s:6.1f} ms"
    return "\n".join([line, *(f"          {count:>3}  {kind}" for kind, count in kinds.items())])


def main() -> None:
    for name in sys.argv[1:] or USUAL:
        workload = WORKLOADS[name]
        found = system("topos").plan_of(workload, workload.arrays())
        print(f"{name:>8}{measured(found.plan, len(found.network))}")


if __name__ == "__main__":
    main()
