"""A plan as an executable of XLA, on one device or laid out over several. Needs the extra `xla`, which is jax.

In reading order: `client` (all that is asked of jax), `programs` (compiled forms, kept and cached), `translated` (a
schedule as a program), `executable` (with the surface of a plan), `stretch` (as a backend in a chain), and for several
processes `launch` and `worker`. jax is imported when something is compiled, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topos.emission.mesh import layout
from topos.emission.xla.client import Processes, devices, processes, virtual_devices
from topos.emission.xla.executable import Executable
from topos.engine.plan import Plan
from topos.errors import BackendUnavailable

__all__ = ["Executable", "Processes", "compile", "processes", "virtual_devices"]


def compile(
    plan: Plan,
    *,
    mesh: Mapping[str, int] | None = None,
    shardings: Mapping[Any, Any] | None = None,
    platform: str | None = None,
    shardy: bool = True,
) -> Executable:
    """The plan as an executable of XLA, which is compiled at its first run.

    `platform` is `cpu`, `gpu` or `tpu`, by default what jax prefers here. With `mesh` and `shardings`, as
    `plan.emit_stablehlo` takes them, it runs over the devices of a mesh, in one process or several: each process calls
    it alike, over the same feeds and tables, and gets all of the results.

    Raises `BackendUnavailable` without the extra, or without the devices; `EmissionError` for what cannot be written.
    """
    if not isinstance(plan, Plan):
        raise BackendUnavailable(f"xla: compile wants a Plan (entry.lower()), got {type(plan).__name__}")
    lay = layout(*plan.prefix, mesh, shardings, shardy)
    return Executable(plan, lay, devices(platform, None if lay is None else lay.axes))
