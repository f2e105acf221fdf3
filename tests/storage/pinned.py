"""The network of the pinned file, which every later version runs to the same bits: each instruction, each payload.

Run as a program it writes `pinned_1.safetensors`, and its results' bits to `pinned_1.json`. Version 1 was written once:
a later version of the format gets a file of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from topos import Entry, Numerics, Tape, Tensor, Value, bf16, f64, load, save, where

FILE = Path(__file__).with_name("pinned_1.safetensors")
BITS = Path(__file__).with_name("pinned_1.json")
FEEDS = {"x": np.linspace(-1.5, 1.25, 12, dtype=np.float32).reshape(3, 4), "labels": np.array([2, 0, 9])}


def functions(x: Value) -> list[Value]:
    """Every elementary function, where it has a value."""
    inside = x * x + 0.25
    maps = [x.exp(), inside.ln(), inside.sqrt(), x.tanh(), x.sin(), x.cos(), inside.log1p(), x.expm1(), x.erf()]
    return [*maps, x.erf_derivative(), inside.powf(1.75), x.maximum(0.125), where(x.step(0.0), x, -x), x / inside]


def record(tape: Tape) -> dict[str, Any]:
    """Names of what the program observes, differentiates and carries."""
    weight = tape.parameter(np.linspace(-0.5, 0.5, 12).reshape(4, 3), name="weight")
    table = tape.parameter(Tensor(np.arange(15.0, dtype=np.float32).reshape(3, 5)).transpose(), name="table")
    narrow = tape.parameter([[0.1, 0.2, 0.3]] * 3, element=bf16, name="narrow")
    wide = tape.parameter(np.array(1 / 3), element=f64, name="wide")
    mean, x = tape.input([0, 0, 0], name="mean"), tape.input(shape=[3, 4], name="x")
    labels, fixed = (
        tape.selection([3], 5, absent=9, name="labels"),
        tape.leaf(Tensor.selection([1, -1, 4], 5, absent=-1)),
    )
    with tape.scope("body"):
        hidden = (x @ weight).named("hidden")
    windows = x.pad(1, 1, 6, -0.0).unfold(1, 3, 1, 2)
    folded = windows.fold(1, 3, 1, 2, 6).narrow(1, 0, 3)
    parts = [hidden, folded, table.gather(labels).narrow(1, 0, 3), table.gather(fixed).swap(0, 1).narrow(0, 0, 3)]
    parts += [
        hidden.log_softmax(1),
        hidden.logsumexp(1).broadcast_along(1, 3),
        hidden.max_along(0).broadcast_along(0, 3),
    ]
    parts += [(narrow.to(tape.element) - hidden.stop()), hidden * wide.to(tape.element).broadcast([3, 3])]
    total = sum((part.reshape([9]).sum() for part in parts[1:]), parts[0].mean())
    total = total + hidden.scatter(labels).sum()
    for function in functions(x):
        total = total + function.sum()
    moved = mean * 0.9 + hidden.mean_along(0) * 0.1
    adjoints = tape.differentiate(total, [weight, table, narrow, wide, x])
    stepped = weight - adjoints.of(weight) * 0.01
    return {"total": total, "adjoints": adjoints, "hidden": hidden, "carry": {mean: moved, weight: stepped}}


def results(path: Path) -> dict[str, str]:
    """The bits of everything that the file's entries answer, by result."""
    loaded = load(path)
    state, named = loaded.parameters, loaded.names
    run = loaded.entries["step"].lower().advance(state, FEEDS)
    after = loaded.entries["read"].interpret(state, FEEDS)
    answers = [*run.of(named["adjoints"].roots()), *after.of([named["total"], named["hidden"]])]
    tables = [state.of(source) for source in named["carry"]]
    bits = [tensor.numpy().tobytes().hex() for tensor in (*answers, *tables)]
    return {str(position): text for position, text in enumerate(bits)}


def write(path: Path) -> None:
    """Writes the file as this version does."""
    network, names = Tape.record(record)
    roots, carry = names["adjoints"].roots(), names["carry"]
    entries = {
        "step": network.entry(roots).carry(carry).numerics(Numerics.EXACT),
        "read": Entry(names["total"], [names["hidden"]], numerics=Numerics.EXACT),
    }
    tables = network.state(network.parameters().scale(0.5))
    save(path, network, tables, entries, names)


if __name__ == "__main__":
    write(FILE)
    BITS.write_text(json.dumps(results(FILE), indent=1) + "\n", encoding="utf-8")
