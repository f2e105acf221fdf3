"""Gradients graded: recorded against engine in bits, both against central differences, and every executor alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from topos.element import Element, f64
from topos.engine import Run
from topos.graph import Adjoints, Network, Parameters, Symbol, Tape
from topos.op import Parameter
from topos.tensor import Tensor
from topos.testing.same_bits import assert_same_bits, same_bits

STEP = float(np.finfo(np.float64).eps) ** (1 / 3)
"""The step of a central difference at 1: its truncation (step squared) and cancellation (epsilon / step) balance."""

TOLERANCE = 1e-7
"""Relative to the largest of 1, the value and the gradient; either error above is about 4e-11 times a derivative."""


def check_gradient(
    function: Callable[..., Any],
    *payloads: Any,
    element: Element = f64,
    tolerance: float = TOLERANCE,
    entries: int | None = None,
) -> None:
    """Grades the gradient of `function(*values)`, which answers a rank-0 value, at `payloads`.

    Each payload becomes a parameter on a tape over f64; a selection becomes a constant. Parameters that the function
    records itself, a module's say, are graded after them, in recording order. It is checked that

    - the recorded gradient and the engine's (`Run.backward`) have the same bits;
    - both are the central difference `(f(x + h) - f(x - h)) / (2 h)` with `h = max(1, |x|) * cbrt(epsilon)`, within
      `tolerance` times the largest of 1, |f| and the gradient's magnitude; `entries` bounds how many numbers of each
      operand are stepped, spread evenly;
    - value and gradients are the same bits by `plan.forward`, `interpret` and `network.forward`.

    With another `element` the bits are also checked on a tape over that one, which differences would only blur. The
    point should not lie on a kink. Raises `AssertionError` that names the operand, the index and both numbers.
    """
    __tracebackhide__ = True
    graded = _Graded(function, payloads, f64)
    graded.check_bits()
    graded.check_differences(tolerance, entries)
    if element is not f64:
        _Graded(function, payloads, element).check_bits()


class _Graded:
    """One recording of the function, differentiated in everything it depends on, and its run."""

    def __init__(self, function: Callable[..., Any], payloads: tuple[Any, ...], element: Element) -> None:
        tape = Tape(element)
        operands = [_recorded(tape, payload, element) for payload in payloads]
        target = function(*operands)
        wrt = [node.symbol for node in tape.nodes() if type(node.opcode) is Parameter]
        adjoints = tape.differentiate(target, wrt)
        self._given = {operand.symbol(): position for position, operand in enumerate(operands)}
        self.adjoints: Adjoints = adjoints.detach()
        self.network: Network = tape.into_network()
        self.parameters: Parameters = self.network.parameters()
        self.run: Run = self.network.forward(self.parameters)

    def check_bits(self) -> None:
        """Recorded gradient and engine gradient alike, and all executors alike."""
        __tracebackhide__ = True
        engine = self.run.backward(self.adjoints.target)
        for symbol, gradient in self.adjoints:
            recorded, swept = self.run.of(gradient).numpy(), engine.of(symbol).numpy()
            if not same_bits(recorded, swept):
                self._fail_bits(symbol, recorded, swept)
        roots = list(dict.fromkeys(self.adjoints.roots()))
        entry = self.network.entry(roots)
        expected = self.run.of(roots)
        for name, run in (
            ("plan.forward", entry.lower().forward(self.parameters)),
            ("interpret", entry.interpret(self.parameters)),
        ):
            try:
                assert_same_bits(run.of(roots), expected)
            except AssertionError as error:
                raise AssertionError(
                    f"gradient: {name} is not network.forward (value, then gradients): {error}"
                ) from None

    def check_differences(self, tolerance: float, entries: int | None) -> None:
        """The recorded gradient, which is the engine's, against central differences."""
        __tracebackhide__ = True
        value = float(self.run.of(self.adjoints.target))
        for symbol, gradient in self.adjoints:
            recorded = self.run.of(gradient).numpy()
            for index in _spread(recorded.shape, entries):
                expected = self._difference(symbol, index)
                found = float(recorded[index])
                allowed = tolerance * max(1.0, abs(value), abs(found))
                if not (abs(found) < np.inf and abs(found - expected) <= allowed):
                    raise AssertionError(
                        f"gradient: {self._label(symbol)} at {list(index)} is not the central difference\n"
                        f"  gradient    {found!r}\n  difference  {expected!r}\n  allowed     {allowed:g} apart"
                    )

    def _difference(self, symbol: Symbol, index: tuple[int, ...]) -> float:
        held = self.parameters.of(symbol).numpy()
        step = max(1.0, abs(float(held[index]))) * STEP
        ends: list[float] = []
        values: list[float] = []
        for moved in (float(held[index]) + step, float(held[index]) - step):
            array = held.copy()
            array[index] = moved
            stepped = self.parameters.with_payloads({symbol: array})
            values.append(float(self.network.entry(self.adjoints.target).interpret(stepped).of(self.adjoints.target)))
            ends.append(moved)
        return float((values[0] - values[1]) / (ends[0] - ends[1]))

    def _fail_bits(self, symbol: Symbol, recorded: Any, swept: Any) -> None:
        __tracebackhide__ = True
        try:
            assert_same_bits(recorded, swept)
        except AssertionError as error:
            label = self._label(symbol)
            raise AssertionError(
                f"gradient: {label}: recorded (actual) is not the engine's (expected): {error}"
            ) from None

    def _label(self, symbol: Symbol) -> str:
        position = self._given.get(symbol)
        return f"parameter {symbol}" if position is None else f"operand {position}"


def _recorded(tape: Tape, payload: Any, element: Element) -> Any:
    if isinstance(payload, Tensor):
        if payload.ids is not None:
            return tape.leaf(payload)
        payload = payload.convert(element)
    return tape.parameter(payload)


def _spread(shape: tuple[int, ...], entries: int | None) -> Iterator[tuple[int, ...]]:
    """The indices of an array, or about `entries` of them spread evenly, the first and the last among them."""
    volume = int(np.prod(shape))
    count = volume if entries is None else min(volume, entries)
    for flat in dict.fromkeys(np.linspace(0, volume - 1, count).round().astype(int).tolist()):
        yield tuple(int(i) for i in np.unravel_index(flat, shape))
