"""One function by every route there is: eager, interpreted, planned, with recorded gradients and with the engine's.

The routes must agree bit for bit before a test sees a result. A test asks for `values` or `gradients`, and for the
small tools that compare bits (`hexed`, `of_bits`, `ulps`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from topos import Network, Numerics, Plan, Symbol, Tape, Tensor, detach
from topos.backend.native.llvm import available
from topos.testing import assert_same_bits
from topos.testing.bits import patterns

Array = np.ndarray[Any, np.dtype[Any]]


# On a machine without native code, plans are interpreted, and the routes still have to agree.
NO_NATIVE_CODE = available() is not None or os.environ.get("TOPOS_NATIVE") == "0"

# Where nothing is computed, or far too much of too little.
BETTER_INTERPRETED = ("nothing is computed", "nodes of few numbers each take longer to compile than to interpret")


class Recorded(NamedTuple):
    """A function on a sealed tape, with what each of its operands is fed."""

    network: Network
    operands: list[Symbol]
    roots: list[Symbol]
    feeds: dict[Symbol, Any]
    wrt: list[Symbol]
    recorded: list[Symbol]


def record(
    function: Callable[..., Any], operands: Sequence[Any], differentiated: bool, as_parameters: bool
) -> Recorded:
    """The function over one source per operand; differentiated, its one result is summed where it has a rank."""
    tape = Tape()
    payloads = [operand if isinstance(operand, Tensor) else Tensor(operand) for operand in operands]
    sources = [_source(tape, payload, as_parameters) for payload in payloads]
    results = _listed(function(*sources))
    wrt, adjoints = [], []
    if differentiated:
        target = results[0] if not results[0].shape else results[0].sum()
        wrt = [source for source in sources if source.element is not None]
        answered = tape.differentiate(target, wrt)
        results, adjoints = [target], [gradient for _, gradient in answered]
    names, roots, wrt, adjoints = detach(sources, results, wrt, adjoints)
    feeds = {
        name: operand
        for name, operand, payload in zip(names, operands, payloads, strict=True)
        if not as_parameters or payload.ids is not None
    }
    return Recorded(tape.into_network(), names, roots, feeds, wrt, adjoints)


def _source(tape: Tape, payload: Tensor, as_parameters: bool) -> Any:
    if payload.ids is not None:
        absent = -1 if (payload.ids < 0).any() else None
        return tape.selection([payload.shape[0]], payload.shape[1], absent=absent)
    if as_parameters:
        return tape.parameter(payload, element=payload.element)
    return tape.input(shape=payload.shape, element=payload.element)


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple | list) else [results]


def runs(case: Recorded, symbols: list[Symbol]) -> Iterator[tuple[str, list[Array]]]:
    """What each executor answers for the symbols."""
    network, feeds, parameters = case.network, case.feeds, case.network.parameters()
    entry = network.entry(symbols)
    routes: dict[str, Callable[[], Any]] = {
        "interpret": lambda: entry.interpret(parameters, feeds),
        "plan": lambda: native(entry.lower()).forward(parameters, feeds),
        "exact plan": lambda: entry.numerics(Numerics.EXACT).lower().forward(parameters, feeds),
        "retaining plan": lambda: entry.backward().lower().forward(parameters, feeds),
        "advanced plan": lambda: entry.lower().advance(network.state(), feeds),
        "network": lambda: network.forward(parameters, feeds),
    }
    for name, run in routes.items():
        yield name, [tensor.numpy() for tensor in run().of(symbols)]
    function = entry.lower().function(list(feeds), symbols)
    yield "function", [tensor.numpy() for tensor in function(parameters, *feeds.values())]
    yield "expressed", expressed(case, symbols)


def native(plan: Plan) -> Plan:
    """The plan, which is native code wherever there is any: no case is too odd for it."""
    told = plan.explain()
    last = told.splitlines()[-1]
    assert last.startswith("native: ") or last.endswith(BETTER_INTERPRETED) or NO_NATIVE_CODE, told
    return plan


def expressed(case: Recorded, symbols: list[Symbol]) -> list[Array]:
    """The spec walked node by node over tensors."""
    held: dict[Symbol, Any] = {}
    for node in case.network.nodes():
        if not node.is_source:
            held[node.symbol] = node.opcode.express([held[operand] for operand in node.operands])
        elif node.symbol in case.feeds:
            held[node.symbol] = Tensor(case.feeds[node.symbol])
        else:
            held[node.symbol] = case.network.payload(node.symbol)
    return [held[symbol].numpy() for symbol in symbols]


def engine_gradients(case: Recorded) -> Iterator[tuple[str, list[Array]]]:
    """What each run that retains its values answers for the gradients."""
    network, feeds, parameters = case.network, case.feeds, case.network.parameters()
    target = case.roots[0]
    entry = network.entry([*case.wrt, target]).backward()
    for name, run in (
        ("backward of interpret", entry.interpret(parameters, feeds)),
        ("backward of plan", entry.lower().forward(parameters, feeds)),
        ("backward of network", network.forward(parameters, feeds)),
    ):
        swept = run.backward(target)
        yield name, [swept.of(symbol).numpy() for symbol in case.wrt]


def agreed(answers: Iterator[tuple[str, list[Array]]]) -> list[Array]:
    """The answer that all routes give."""
    __tracebackhide__ = True
    first, expected = next(answers)
    for name, actual in answers:
        try:
            assert_same_bits(actual, expected)
        except AssertionError as difference:
            raise AssertionError(f"route {name} differs from {first}\n{difference}") from None
    return expected


@pytest.fixture
def values() -> Callable[..., Any]:
    """`values(function, *operands)`: the array (or tuple of arrays) that every route answers.

    An operand is a number, a list, an array (fed with its own strides) or a Tensor; a selection is fed as ids.
    """

    def evaluate(function: Callable[..., Any], *operands: Any) -> Any:
        __tracebackhide__ = True
        single = False

        def answers() -> Iterator[tuple[str, list[Array]]]:
            nonlocal single
            eager = function(*map(Tensor, operands))
            single = not isinstance(eager, tuple | list)
            yield "eager", [tensor.numpy() for tensor in _listed(eager)]
            for as_parameters in (False, True):
                case = record(function, operands, differentiated=False, as_parameters=as_parameters)
                for name, answer in runs(case, case.roots):
                    yield f"{name} over {'parameters' if as_parameters else 'inputs'}", answer

        result = agreed(answers())
        return result[0] if single else tuple(result)

    return evaluate


@pytest.fixture
def gradients() -> Callable[..., Any]:
    """`gradients(function, *operands)`: the gradient in each dense operand, recorded and by the engine.

    Of the function's one result, or of its sum where it has a rank. A single gradient is answered bare.
    """

    def evaluate(function: Callable[..., Any], *operands: Any) -> Any:
        __tracebackhide__ = True

        def answers() -> Iterator[tuple[str, list[Array]]]:
            for as_parameters in (False, True):
                case = record(function, operands, differentiated=True, as_parameters=as_parameters)
                yield from runs(case, case.recorded)
                yield from engine_gradients(case)

        result = agreed(answers())
        return result[0] if len(result) == 1 else tuple(result)

    return evaluate


@pytest.fixture
def hexed() -> Callable[[Any], Any]:
    """`hexed(numbers)`: the bit patterns as they are written in a case, `"0x3f800000"`, nested as the numbers are."""

    def spell(pattern: Any, digits: int) -> Any:
        if isinstance(pattern, list):
            return [spell(part, digits) for part in pattern]
        return f"0x{pattern:0{digits}x}"

    def pattern_of(numbers: Any) -> Any:
        array = np.asarray(numbers)
        return spell(patterns(array).tolist(), 2 * array.dtype.itemsize)

    return pattern_of


@pytest.fixture
def of_bits() -> Callable[..., Array]:
    """`of_bits(0x3f800000, ...)`: the f32 numbers (or those of `dtype`) with these patterns; one is of rank 0."""

    def number_of(*bits: int, dtype: Any = np.float32) -> Array:
        held = np.array(bits, f"u{np.dtype(dtype).itemsize}").view(dtype)
        return held.reshape(()) if len(bits) == 1 else held

    return number_of


@pytest.fixture
def ulps() -> Callable[[Any, Any], int]:
    """`ulps(actual, expected)`: the greatest number of representable steps between two results of one dtype."""

    def ranked(numbers: Array) -> list[int]:
        half = 1 << (8 * numbers.dtype.itemsize - 1)
        return [bits if bits < half else half - bits for bits in patterns(numbers).reshape(-1).tolist()]

    def distance(actual: Any, expected: Any) -> int:
        left, right = np.asarray(actual), np.asarray(expected)
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert not np.isnan(left).any()
        assert not np.isnan(right).any()
        return max((abs(a - b) for a, b in zip(ranked(left), ranked(right), strict=True)), default=0)

    return distance
