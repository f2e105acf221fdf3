"""Whole plans held against the interpreter: that they run natively, and that not one bit differs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from topos import Network, Plan, Symbol, Tape, Value, detach, f32
from topos.backend.native import executable, pool
from topos.backend.native import target as targets
from topos.element import Element
from topos.errors import SettingError
from topos.op import Opcode
from topos.testing import assert_same_bits
from topos.testing.instructions import INSTRUCTIONS
from topos.testing.samples import T

from .native.samples import any_bits, hard, special

Array = np.ndarray[Any, np.dtype[Any]]

CPUS = ("host", "x86-64", "x86-64-v3", "x86-64-v4")


def lowered(bound: Any) -> Plan:
    """The entry's plan, which has to be native."""
    plan: Plan = bound.lower()
    assert is_native(plan), plan.explain()
    return plan


def checked(record: Callable[[Tape], Any], element: Element = f32, counts: Sequence[int] = ()) -> str:
    """A program's results, natively and by the interpreter; answers how the plan explains itself.

    On each of these numbers of threads, or on as many as there are.
    """
    network, results = Tape.record(record, element=element)
    entry, parameters = network.entry(results), network.parameters()
    plan, expected = entry.lower(), entry.interpret(parameters).of(results)
    for count in counts or (pool.threads(),):
        with threads(count):
            assert_same_bits(plan.forward(parameters).of(results), expected)
    return plan.explain()


def check_steps(
    plan: Plan, network: Network, results: Sequence[Symbol], carry: Mapping[Symbol, Symbol], feeds: Mapping[Symbol, Any]
) -> None:
    """Three steps of a plan that carries, one by one, together and as one function, against replacement by hand."""
    feeds = {symbol: payload for symbol, payload in feeds.items() if symbol not in carry}
    single, by_hand = network.state(), network.state()
    expected = []
    for _ in range(3):
        run = network.entry([*results, *carry.values()]).interpret(by_hand, feeds)
        expected.append([tensor.numpy() for tensor in run.of(results)])
        by_hand.replace({source.index: run.of(following) for source, following in carry.items()})
        assert_same_bits(plan.advance(single, feeds).of(results), expected[-1])
        assert_same_bits(single.payloads(), by_hand.payloads())
    stacked = [np.stack(steps) for steps in zip(*expected, strict=True)]
    for worth in (executable.WORTH_STEPS, 0):
        several = network.state()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(executable, "WORTH_STEPS", worth)
            assert_same_bits(plan.advance(several, feeds, steps=3).of(results), stacked)
        assert_same_bits(several.payloads(), by_hand.payloads())


def is_native(plan: Plan) -> bool:
    """Whether native code computes all of it."""
    return plan.explain().splitlines()[-1].startswith("native: ")


class Case(NamedTuple):
    """What was recorded: its network, what to read from a run, and what to feed it."""

    network: Network
    roots: list[Symbol]
    feeds: dict[Symbol, Any]

    @property
    def plan(self) -> Plan:
        """The native plan."""
        return lowered(self.network.entry(self.roots))

    def expected(self) -> list[Array]:
        """What the interpreter answers."""
        run = self.network.entry(self.roots).interpret(self.network.parameters(), self.feeds)
        return [tensor.numpy() for tensor in run.of(self.roots)]

    def actual(self, plan: Plan) -> list[Array]:
        """What the plan answers."""
        run = plan.forward(self.network.parameters(), self.feeds)
        return [tensor.numpy() for tensor in run.of(self.roots)]

    def check(self) -> list[Array]:
        """The plan is native and answers the interpreter's bits, which are answered here too."""
        __tracebackhide__ = True
        expected = self.expected()
        self.compare(self.actual(self.plan), expected)
        return expected

    def compare(self, actual: Sequence[Array], expected: Sequence[Array]) -> None:
        """The same bits, or the instruction that made others."""
        __tracebackhide__ = True
        for symbol, left, right in zip(self.roots, actual, expected, strict=True):
            try:
                assert_same_bits(left, right)
            except AssertionError as difference:
                node = self.network.node(symbol)
                operands = [f"{o.opcode.name} {o.shape} {o.element}" for o in map(self.network.node, node.operands)]
                told = f"{node.opcode} of {', '.join(operands)} into {node.shape} {node.element}"
                raise AssertionError(f"{told}\n{difference}") from None


def recorded(record: Callable[[Tape], tuple[Any, Mapping[Value, Any]]], element: Element) -> Case:
    """What `record(tape)` answers: results, and what is fed to each input."""
    tape = Tape(element)
    results, fed = record(tape)
    feeds = {value.symbol(): payload for value, payload in fed.items()}
    roots = list(detach(results))
    return Case(tape.into_network(), roots, feeds)


class Seeded:
    """Decides by a seeded generator what the table of instructions leaves open."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def integer(self, least: int, most: int) -> int:
        """An integer, both limits included."""
        return int(self._random.integers(least, most + 1))

    def one(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.integer(0, len(options) - 1)]


def numbers(element: Element, shape: Sequence[int], seed: int) -> Array:
    """Ordinary, hard and special numbers, and any bits, mixed."""
    volume = int(np.prod(shape))
    random = np.random.default_rng([seed, volume])
    with np.errstate(all="ignore"):
        plain = element.round(random.normal(0, 2, volume + 1))
        kinds = [special(element), any_bits(element, volume + 8, random), hard(element, volume + 8, random)]
        chosen = random.random(volume) < 0.5
        rare = random.permutation(np.concatenate(kinds))[:volume]
        mixed = np.where(chosen, plain[:volume], np.resize(rare, volume))
    return np.ascontiguousarray(mixed.astype(element.dtype)).reshape(tuple(shape))


def every_instruction(
    tape: Tape, first: Value, seed: int, kinds: Iterable[type[Opcode]] = INSTRUCTIONS
) -> tuple[list[Value], dict[Value, Any]]:
    """Each instruction (of these kinds) over a first operand, with what the further operands are fed."""
    choose = Seeded(seed)
    element = first.element
    assert element is not None
    results: list[Value] = []
    feeds: dict[Value, Any] = {}
    shared: dict[tuple[int, ...], list[Value]] = {}
    for kind in kinds:
        made_for = INSTRUCTIONS[kind].made
        wanted = None if made_for is None else made_for(choose, first.shape)
        if wanted is None:
            continue
        operands = [first]
        for place, operand in enumerate(wanted.operands[1:]):
            if operand.selection:
                made = tape.selection([operand.shape[0]], operand.shape[1], absent=-1)
                feeds[made] = operand.payload(seed).ids
            else:
                known = shared.setdefault(tuple(operand.shape), [])
                while len(known) <= place:
                    known.append(tape.input(shape=operand.shape, element=element))
                    feeds[known[-1]] = numbers(element, operand.shape, seed + len(feeds))
                made = known[place]
            operands.append(made)
        results.append(wanted.opcode.express(operands))
    return results, feeds


def with_lengths(shapes: Sequence[Sequence[int]], seed: int) -> Callable[[Tape], tuple[Any, dict[Value, Any]]]:
    """A recording of every instruction over an input of each shape."""

    def record(tape: Tape) -> tuple[Any, dict[Value, Any]]:
        results: list[Value] = []
        feeds: dict[Value, Any] = {}
        for at, shape in enumerate(shapes):
            x = tape.input(shape=shape)
            feeds[x] = numbers(x.element, shape, seed + 100 * at)
            made, fed = every_instruction(tape, x, seed + at)
            results += made
            feeds |= fed
        return results, feeds

    return record


@contextmanager
def processor(name: str) -> Iterator[None]:
    """Plans are compiled for this processor; skips where this machine has not what it takes."""
    if name == "host":
        yield
        return
    try:
        targets.named(name)
    except SettingError as error:
        pytest.skip(str(error))
    before = os.environ.get("TOPOS_CPU")
    os.environ["TOPOS_CPU"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["TOPOS_CPU"]
        else:
            os.environ["TOPOS_CPU"] = before


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Tiles are shared by so many threads."""
    before = pool.threads()
    pool.threads(count)
    try:
        yield
    finally:
        pool.threads(before)


def digest(arrays: Sequence[Array]) -> str:
    """One hash for all bits; NaN of any payload counts as one."""
    hashed = hashlib.sha256()
    for array in arrays:
        with np.errstate(all="ignore"):
            plain = np.where(array != array, array.dtype.type(np.nan), array).astype(array.dtype)
        hashed.update(np.ascontiguousarray(plain).tobytes())
    return hashed.hexdigest()
