"""How many processors this process may keep busy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")


def allowed(root: Path = _ROOT) -> int:
    """The affinity mask or the quota of the control group, whichever is smaller, and at least 1."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([mask, *(int(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Each limit on this process, in processors. A group lies within its parents and shares their limits.

    Rounded down by `allowed`: a thread that is stopped for being over the quota holds up all the others.
    """
    for group, mounts in _groups(root):
        for mount in mounts:
            for folder in [*(mount / parent for parent in [group, *group.parents])]:
                with suppress(OSError, ValueError):
                    yield _quota(folder)


def _groups(root: Path) -> list[tuple[Path, list[Path]]]:
    """The group of this process under each controller of processor time, and where groups are mounted."""
    found = []
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            relative, folder = Path(path.lstrip("/")), root / "sys/fs/cgroup"
            if not controllers:
                found.append((relative, [folder, folder / "unified"]))
            elif "cpu" in controllers.split(","):
                found.append((relative, [folder / controllers, folder / "cpu"]))
    return found


def _quota(folder: Path) -> float:
    """Processors allowed by one group; `ValueError` or `OSError` where it sets no limit."""
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
    if int(quota) <= 0 or int(period) <= 0:
        raise ValueError("no limit")
    return int(quota) / int(period)
