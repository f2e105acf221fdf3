"""The model of names trained over four devices of XLA: cut by its batch, by its weights, and by both.

    python examples/makemore/devices.py                                   four virtual devices in this process
    topos launch --processes 2 --devices 2 examples/makemore/devices.py   two processes of two devices

The recorded spec, the step and the feeds are those of `mlp.py`, as they stand there. Where a batch or a weight
is cut is said beside the plan, in `shardings`; XLA infers the rest and puts the exchange between devices in. Each
process runs this whole file over the same feeds. Needs the extra: `pip install 'topos-stack[xla]'`.

Prints for each layout the last loss, how far the losses of all steps are from those of the native plan, and the time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlp
import names as given
import numpy as np

from topos.emission import xla

BOUND = 1e-5
"""How far a loss may be from the native plan's: sums in another order, over as many steps as here."""

BATCH = {"train.context": ("data", None), "train.target": ("data",)}
WEIGHTS = {
    "hidden.weight": (None, "model"),
    "hidden.bias": ("model",),
    "output.weight": ("model", None),
}
LAYOUTS: dict[str, tuple[dict[str, int] | None, dict[str, Any] | None]] = {
    "one device": (None, None),
    "data parallel": ({"data": 4}, BATCH),
    "tensor parallel": ({"model": 4}, WEIGHTS),
    "data and tensor": ({"data": 2, "model": 2}, BATCH | WEIGHTS),
}


class Trained(NamedTuple):
    """The losses of every step, how far any of them is from the native plan's, and how long the steps took."""

    losses: np.ndarray
    distance: float
    elapsed_s: float


def main(
    steps: int = 200,
    together: int = 50,
    batch: int = 32,
    hidden: int = 200,
    limit: int | None = None,
    layouts: Sequence[str] = tuple(LAYOUTS),
    seed: int = 2015,
) -> dict[str, Trained]:
    """Trains on `limit` names (all where None) from the same weights, natively and then in each of the layouts."""
    process = xla.processes()
    if process.total == 1:
        xla.virtual_devices(4)
    random = np.random.Generator(np.random.PCG64(seed))
    contexts, targets = given.windows(given.read(limit), mlp.CONTEXT)
    language = mlp.record(10, hidden, batch, measure_batch=64, samples=4, seed=seed)
    rows = random.integers(len(targets), size=(steps, batch))

    def trained(plan: Any) -> tuple[np.ndarray, float]:
        """The losses of all steps by a plan or an executable: they are called alike."""
        state, losses = language.state.clone(), []
        plan.prepare()
        start = time.perf_counter()
        for first in range(0, steps, together):
            part = rows[first : first + together]
            feeds = {"train.context": contexts[part], "train.target": targets[part], "rate": 0.2}
            losses.append(plan.advance(state, feeds, steps=len(part)).of(language.loss).numpy())
        return np.concatenate(losses), time.perf_counter() - start

    native, elapsed_s = trained(language.train)
    told = print if process.rank == 0 else lambda *_: None
    told(f"{'native plan':18} loss {native[0]:.4f} to {native[-1]:.4f}   {elapsed_s:.2f} s")
    results = {}
    for name in layouts:
        mesh, shardings = LAYOUTS[name]
        executable = xla.compile(language.train, mesh=mesh, shardings=shardings)
        losses, elapsed_s = trained(executable)
        distance = float(np.max(np.abs(losses - native)))
        results[name] = Trained(losses, distance, elapsed_s)
        told(f"{name:18} loss {losses[0]:.4f} to {losses[-1]:.4f}   {elapsed_s:.2f} s   {distance:.1e} from native")
        assert distance <= BOUND, f"{name}: {distance} is more than {BOUND}"
    return results


if __name__ == "__main__":
    main()
