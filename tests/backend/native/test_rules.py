"""Rules over tables: their instructions run together, and nobody can tell but by the clock."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import Element, Parameters, ShapeError, Symbol, Tape, Tensor, bf16, f32, f64
from topos.backend.native import eager
from topos.tensor import deferred, services
from topos.testing import assert_same_bits

from .eager_kinds import LAYOUTS, laid, native_steps, offer_everything
from .samples import ELEMENTS, drawn

SHAPES = ((7, 9), (7, 9), (40,), ())


@pytest.fixture(autouse=True)
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    offer_everything(monkeypatch)


def tables(element: Element = f32, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> tuple[Parameters, Parameters]:
    """Weights and gradients."""
    tape = Tape(element)
    symbols = [tape.parameter(drawn(element, shape, at)).symbol() for at, shape in enumerate(shapes)]
    parameters = tape.into_network().parameters()
    drawn_anew = {symbol: drawn(element, shape, 9) for symbol, shape in zip(symbols, shapes, strict=True)}
    return parameters, parameters.with_payloads(drawn_anew)


def only(table: Parameters) -> Tensor:
    """The one tensor of a table."""
    (tensor,) = table.payloads()
    assert tensor is not None
    return tensor


def eagerly(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> Any:
    """The same, one instruction after another by NumPy."""
    with monkeypatch.context() as patched:
        patched.setenv("TOPOS_NATIVE", "0")
        patched.setattr(deferred, "worth", lambda tensor: False)
        return run()


class Adam:
    """Keeps its moments in a dictionary, and its rate is another in every step."""

    def __init__(self) -> None:
        self.moments: dict[Symbol, tuple[Tensor, Tensor]] = {}
        self.count = 0
        self.calls = 0

    def step(self, parameters: Parameters, gradients: Parameters) -> Parameters:
        self.count += 1
        return parameters.step_each(gradients, self.rule)

    def rule(self, symbol: Symbol, weight: Tensor, gradient: Tensor) -> Tensor:
        self.calls += 1
        zero = weight.zero_like()
        first, second = self.moments.get(symbol, (zero, zero))
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * (gradient * gradient)
        self.moments[symbol] = first, second
        scaled = first / (1 - 0.9**self.count) / ((second / (1 - 0.999**self.count)).sqrt() + 1e-8)
        return weight - 0.1 / self.count * scaled


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_moments_and_a_changing_rate(element: Element, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> list[Any]:
        parameters, gradients = tables(element)
        adam = Adam()
        for _ in range(4):
            parameters = adam.step(parameters, gradients)
        assert adam.calls == 4 * len(SHAPES)
        return [parameters, *adam.moments.values()]

    expected = eagerly(monkeypatch, trained)
    with services.tallied() as tally:
        assert_same_bits(trained(), expected)
    assert tally.count(backend="FUSED") == 4 * len(SHAPES) * 14 and tally.count(backend="SIMD") == 0
    assert len(eager._kinds) == 6  # each of three shapes: with moments that are one number, and with others


RULES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "descent": lambda w, g: w - g * 0.5,
    "the gradient": lambda w, g: g,
    "the weight": lambda w, g: w,
    "zeros": lambda w, g: w.zero_like(),
    "functions": lambda w, g: (w.tanh() * g.exp() - w.erf()).maximum(g.sin()),
    "a norm": lambda w, g: w - g / ((g * g).sum().sqrt() + 1e-6).broadcast(g.shape),
    "one number read": lambda w, g: w - g * (0.5 if float((g * g).sum()) > 1 else 2.0),
    "numbers read": lambda w, g: (w + g) * float(np.abs((w - g).numpy()).max()),
    "an array": lambda w, g: (w * 2).numpy() + 1,
    "another element and back": lambda w, g: (w.to(f64) - g.to(f64) * 0.1).to(w.element or f32),
    "rows": lambda w, g: w - g.reshape([g.shape.volume]).reshape(g.shape),
    "an unused instruction": lambda w, g: (w.exp(), w + g)[1],
    "a long loop": lambda w, g: sum((g * number for number in range(150)), w),
    "a copy": lambda w, g: copy.deepcopy(w - g),
    "pickled": lambda w, g: pickle.loads(pickle.dumps(w * g)) + g,
    "printed": lambda w, g: w + g * (len(repr(w * g)) % 100),
}


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("name", RULES)
def test_rules(name: str, element: Element, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        parameters, gradients = tables(element)
        return parameters.step(gradients, RULES[name])

    assert_same_bits(run(), eagerly(monkeypatch, run))


def test_a_matrix_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(w: Tensor, g: Tensor) -> Tensor:
        turned = (g - (g.sum_along(0) / g.shape[0]).broadcast_along(0, g.shape[0])).permute([1, 0])
        return w - ((turned @ w) * 0.5).sum_along(1).broadcast_along(0, w.shape[0])

    def run() -> Any:
        parameters, gradients = tables(f32, ((6, 9),))
        return parameters.step(gradients, rows)

    assert_same_bits(run(), eagerly(monkeypatch, run))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    parameters, gradients = tables(f32, ((7, 9),))
    given = gradients.map(lambda tensor: laid(tensor.numpy(), layout, f32))
    weight, gradient = only(parameters), only(given)
    with native_steps(2):
        stepped = parameters.step(given, lambda w, g: (w - g) * g)
    assert_same_bits(stepped, [(weight.numpy() - gradient.numpy()) * gradient.numpy()])


def test_what_a_rule_keeps_is_a_tensor() -> None:
    parameters, gradients = tables(f32, ((7, 9),))
    kept: list[Tensor] = []

    def rule(w: Tensor, g: Tensor) -> Tensor:
        kept.append(w + g)
        assert type(kept[0]) is Tensor and isinstance(kept[0], Tensor)
        kept.append(kept[0] * 2)
        return kept[1] - w

    with native_steps(3):
        parameters.step(gradients, rule)
    with native_steps(0):
        weight, gradient = only(parameters), only(gradients)
        expected = weight.numpy() + gradient.numpy()
        assert_same_bits(kept, [expected, expected * np.float32(2)])
        assert not kept[0].numpy().flags.writeable
        assert pickle.loads(pickle.dumps(kept[1])).tolist() == kept[1].tolist()
    with pytest.raises(AttributeError, match="^'Tensor' object has no attribute 'colour'$"):
        _ = kept[0].colour  # type: ignore[attr-defined]


def test_a_rule_runs_once_and_in_order() -> None:
    parameters, gradients = tables()
    calls: list[Symbol] = []

    def rule(symbol: Symbol, w: Tensor, g: Tensor) -> Tensor:
        calls.append(symbol)
        return w - g

    parameters.step_each(gradients, rule)
    assert calls == parameters.symbols()


def test_a_rule_that_raises_leaves_what_it_kept_readable() -> None:
    parameters, gradients = tables(f32, ((7, 9),))
    kept: list[Tensor] = []

    def rule(w: Tensor, g: Tensor) -> Tensor:
        kept.append(w * g)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        parameters.step(gradients, rule)
    assert deferred.current() is None and not deferred.OPEN
    weight, gradient = only(parameters), only(gradients)
    assert_same_bits(kept[0] + 1.0, weight.numpy() * gradient.numpy() + np.float32(1))


def test_errors_stand_at_the_line_that_makes_them() -> None:
    parameters, gradients = tables(f32, ((7, 9),))
    reached: list[str] = []

    def rule(w: Tensor, g: Tensor) -> Tensor:
        total = w + g
        reached.append("before")
        total = total + g.sum_along(0)
        reached.append("after")
        return total

    with pytest.raises(ShapeError, match=r"^add: shapes must be equal, got \[7, 9\] and \[9\]; spread it with"):
        parameters.step(gradients, rule)
    assert reached == ["before"]
    with pytest.raises(ShapeError, match=r"^step: %0 has shape \[7, 9\], got \[\]$"):
        parameters.step(gradients, lambda w, g: (w * g).sum())


def test_an_interrupt_while_the_numbers_are_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, gradients = tables(f32, ((7, 9),))
    kept: list[Tensor] = []

    def rule(w: Tensor, g: Tensor) -> Tensor:
        kept.append(w * g)
        return kept[0] - w

    def interrupt(*facts: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(deferred, "served", interrupt)
        parameters.step(gradients, rule)
    weight, gradient = only(parameters), only(gradients)
    assert_same_bits(kept[0], weight.numpy() * gradient.numpy())


def test_a_tensor_that_another_thread_reads_first() -> None:
    parameters, gradients = tables(f32, ((7, 9),))
    weight, gradient = only(parameters), only(gradients)
    expected = (weight.numpy() + gradient.numpy()) * gradient.numpy()

    def rule(w: Tensor, g: Tensor) -> Tensor:
        total = w + g
        read: list[Any] = []
        threads = [threading.Thread(target=lambda: read.append((total * g).numpy())) for _ in range(4)]
        for thread in threads:
            thread.start()
        own = total * g
        for thread in threads:
            thread.join()
        assert_same_bits(read, [expected] * 4)
        return own

    for _ in range(20):
        assert_same_bits(parameters.step(gradients, rule), [expected])


def test_rules_inside_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        parameters, gradients = tables(f32, ((7, 9),))

        def rule(w: Tensor, g: Tensor) -> Tensor:
            half = g * 0.5
            return only(parameters.zip(gradients, lambda a, b: a * half + b)) + half * w

        return parameters.step(gradients, rule)

    assert_same_bits(run(), eagerly(monkeypatch, run))


def test_nothing_holds_what_a_rule_let_go() -> None:
    parameters, gradients = tables(f32, ((7, 9),))
    seen: list[weakref.ref[Any]] = []

    def rule(w: Tensor, g: Tensor) -> Tensor:
        scaled = g * 2.0
        holder = deferred.holder_of(scaled)
        assert holder is not None
        seen.append(weakref.ref(holder.deferral) if hasattr(holder.deferral, "__weakref__") else weakref.ref(holder))
        return w - scaled

    gc.disable()
    try:
        stepped = parameters.step(gradients, rule)
        assert seen[0]() is None
    finally:
        gc.enable()
    assert len(stepped) == 1


def test_tables_map_zip_scale_and_add(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        parameters, gradients = tables(bf16)
        scaled = gradients.scale(0.3)
        mapped = parameters.map(lambda tensor: tensor.tanh() * tensor)
        return [scaled, mapped, mapped + scaled, parameters.zip(scaled, lambda a, b: a.powf(b) - a)]

    with native_steps():
        found = run()
    assert_same_bits(found, eagerly(monkeypatch, run))


def test_a_users_element_runs_as_ever() -> None:
    class Users(Element):
        name = "users"
        dtype = np.dtype(np.float32)

        def round(self, array: Any) -> Any:
            return array.astype(np.float32)

        def sub(self, left: Any, right: Any) -> Any:
            order.append("sub")
            return left - right

    order: list[str] = []
    users = Users()
    parameters = Tape(users)
    slot = parameters.parameter([5.0, 6.0]).symbol()
    table = parameters.into_network().parameters()

    def rule(w: Tensor, g: Tensor) -> Tensor:
        difference = w - g
        order.append("after")
        return difference

    assert table.step(table, rule).of(slot).tolist() == [0.0, 0.0]
    assert order == ["sub", "after"]
