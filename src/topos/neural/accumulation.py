"""Gradients gathered over several batches before a step is made of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from topos.errors import KinshipError
from topos.graph import Adjoints, Tape, Value
from topos.neural.rule import live_pairs, widest, working


class Accumulation(NamedTuple):
    """Gathered gradients: their means, what an entry carries to gather one more batch, and what clears them.

    `adjoints` stand where those of one batch would: clip them, record an optimizer over them. `gather` is the carry of
    an entry that runs once for each batch; `clear` goes into the carry of the entry that steps.
    """

    adjoints: Any
    gather: dict[Any, Any]
    clear: dict[Any, Any]


def accumulate(tape: Tape, adjoints: Adjoints, *, name: str = "gathered") -> Accumulation:
    """Records gradients that are summed from run to run, and their mean over the runs since they were cleared.

    Two entries of one network share the work: one gathers, once for each batch, and reads what the loss needs; the
    other steps, and reads nothing but the sums. Sums are inputs of the accumulator's element (f32 for bf16) that start
    at zero, and take the batches in the order in which they run; they are named where their parameters are,
    `gathered.h0.weight`. The mean of no batch is zero.

    >>> from topos import Sgd, Tape, accumulate
    >>> def record(tape):
    ...     weight, x = tape.parameter(1.0), tape.input(0.0, name="x")
    ...     loss = weight * x
    ...     gathered = accumulate(tape, tape.differentiate(loss, weight))
    ...     return loss, gathered, Sgd().record(tape, gathered.adjoints, rate=0.5)
    >>> network, (loss, gathered, update) = Tape.record(record)
    >>> gather = network.entry(loss).carry(gathered.gather).lower()
    >>> step = network.entry(()).carry({**update.carry, **gathered.clear}).lower()
    >>> state = network.state()
    >>> for x in (1, 2, 3):
    ...     run = gather.advance(state, {"x": x})
    >>> run = step.advance(state)
    >>> state.parameters().payloads()
    [Tensor(0., f32)]
    """
    if not isinstance(name, str):
        raise KinshipError(f"accumulate: wants a text for its name, got {name!r}")
    with tape.transaction():
        return _recorded(tape, adjoints, name)


def _recorded(tape: Tape, adjoints: Adjoints, name: str) -> Accumulation:
    pairs = live_pairs(tape, adjoints, "accumulate")
    count = tape.input(0.0, element=widest((gradient for _, gradient in pairs), tape.element))
    gather, clear = {count: count + 1.0}, {count: count.zero_like()}
    batches = count.one_like().maximum(count)
    means: list[tuple[Value, Value]] = []
    for wrt, gradient in pairs:
        wide, label = working(gradient), tape.nodes()[wrt.symbol().index].name
        total = tape.input(shape=wrt.shape, element=wide, name=label and f"{name}.{label}")
        gather[total], clear[total] = total + gradient.to(wide), total.zero_like()
        means.append((wrt, total / batches.to(wide).broadcast(wrt.shape)))
    return Accumulation(Adjoints(tape.resolve(adjoints.detach().target), means), gather, clear)
