"""Where the time of a workload's plan goes, group by group, against what the machine can do.

Run as `python -m benchmarks.profile [WORKLOAD]`, or `make profile W=w2`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from benchmarks.peak import Peak, measured_peak
from benchmarks.systems import system
from benchmarks.table import duration
from benchmarks.workloads import WORKLOADS


class Share(NamedTuple):
    """What one group of a plan takes in a run, and its work."""

    group: str
    elapsed_s: float
    operations: int
    traffic_bytes: int

    def floor_s(self, peak: Peak) -> float:
        """The least time that the machine's arithmetic and memory allow; what is in a cache may be faster."""
        return max(self.operations / peak.operations_per_s, self.traffic_bytes / peak.bytes_per_s)


def shares(profile: Any) -> list[Share]:
    """The groups of `plan.profile(...)`: the one place that knows how it spells them."""
    return [
        Share(f"{group.rows}  {group.kernels}", group.elapsed_s, group.operations, group.bytes)
        for group in profile.groups
    ]


def told(found: Iterable[Share], peak: Peak, whole_s: float) -> str:
    """A line per group, the slowest first."""
    ordered = sorted(found, key=lambda share: share.elapsed_s, reverse=True)
    total_s = sum(share.elapsed_s for share in ordered)
    lines = [f"{'a run':>9}{'share':>7}{'GFLOP/s':>9}{'of peak':>8}{'GB/s':>8}{'of peak':>8}  group"]
    for share in ordered:
        taken_s = max(share.elapsed_s, 1e-9)  # a group may take less than the clock can tell
        operations, traffic = share.operations / taken_s, share.traffic_bytes / taken_s
        lines.append(
            f"{duration(share.elapsed_s):>9}{share.elapsed_s / total_s:7.1%}"
            f"{operations / 1e9:9.1f}{operations / peak.operations_per_s:8.1%}"
            f"{traffic / 1e9:8.1f}{traffic / peak.bytes_per_s:8.1%}  {share.group}"
        )
    floor_s = sum(share.floor_s(peak) for share in ordered)
    lines.append(f"{duration(total_s):>9}  in {len(ordered)} groups; a whole run takes {duration(whole_s)}")
    lines.append(f"{duration(floor_s):>9}  if each group read and wrote memory, and all ran at the machine's best")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("workload", nargs="?", default="w2", choices=list(WORKLOADS))
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    chosen = parser.parse_args()
    os.environ["TOPOS_THREADS"] = str(chosen.threads)
    workload = WORKLOADS[chosen.workload]
    peak = measured_peak(chosen.threads)
    print(f"{workload.name}, {workload.title}; the machine at its best, {peak}")
    recorded = system("topos").plan_of(workload, workload.arrays())
    table = recorded.network.state() if recorded.plan.entry.carry else recorded.network.parameters()
    profile = recorded.plan.profile(table, recorded.feeds)
    print(told(shares(profile), peak, profile.elapsed_s))


if __name__ == "__main__":
    main()
