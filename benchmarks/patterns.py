"""What finding patterns costs and what it saves: `python -m benchmarks.patterns w3 w4 w5`.

For each workload: its nodes, the time to lower the entry, to collect candidates, to elect among them, and to find what
native code stores (the least of several); what is elected by somebody who computes every formula, and how many of each
native code claims.
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
from topos.backend.native.grouping import stored
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
    kept = {symbol.index for symbol in (*plan.entry.results, *plan.entry.carry.values())}
    storing_s = least_s(lambda: stored(spec, plan._rows, frozenset(kept)), 3)
    kinds = Counter(pattern.kind for pattern in plan.patterns(Formula))
    claimed = Counter(pattern.kind for pattern in plan.patterns())
    lowering_s = least_s(lambda: Plan(spec, length, plan.entry))
    line = f"{length:>6} nodes  lower {1e3 * lowering_s:6.1f} ms  collect {1e3 * pooling_s:7.1f} ms"
    line = f"{line}  elect {1e3 * electing_s:6.1f} ms  stored {1e3 * storing_s:7.1f} ms"
    return "\n".join([line, *(f"          {claimed[kind]:>3} of {count:>3}  {kind}" for kind, count in kinds.items())])


def main() -> None:
    for name in sys.argv[1:] or USUAL:
        workload = WORKLOADS[name]
        found = system("topos").plan_of(workload, workload.arrays())
        print(f"{name:>8}{measured(found.plan, len(found.network))}")


if __name__ == "__main__":
    main()
