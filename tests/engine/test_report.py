import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Finding, Network, Report, Tape, Tensor, bf16, concat, f64
from topos.engine import report as reports
from topos.testing import assert_same_bits

ROUTES = ["interpret", "plan"]


def run(network: Network, route: str, roots: Any, *, table: Any = None, feeds: Any = None) -> Any:
    bound = network.entry(roots).diagnose()
    forward = bound.interpret if route == "interpret" else bound.lower().forward
    return forward(table or network.parameters(), feeds)


def told(report: Report | None) -> str:
    assert report is not None
    return re.sub(r"\S*test_report\.py:", "model.py:", str(report))


def line(function: Callable[..., Any], offset: int) -> str:
    return f"model.py:{function.__code__.co_firstlineno + offset}"


def divided(tape: Tape) -> Any:
    p, q = tape.parameter([4.0, 1.0]), tape.input([2.0, 1.0])
    r = (p + q) / (p - q)
    s = r - r
    return p, r, s, (s * p).sum()


def rooted(tape: Tape) -> Any:
    p, q = tape.parameter([4.0, 1.0]), tape.input([2.0, 1.0])
    root = (p - q).sqrt()
    return tape.differentiate((root * 0.0).sum(), p).of(p), root


@pytest.mark.parametrize("route", ROUTES)
def test_where_an_infinity_and_a_nan_came_from(route: str) -> None:
    network, (p, r, s, t) = Tape.record(divided)
    ran = run(network, route, [r, s, t])
    values = [tensor.tolist() for tensor in ran.of([r, s, t])]
    assert str(values) == "[[3.0, inf], [0.0, nan], nan]"
    report = ran.report()
    assert isinstance(report, Report)
    assert isinstance(report.first, Finding)
    assert report.first_nan is not None
    assert told(report) == (
        f"first non-finite: inf at [1] of %4 Div [2] {line(divided, 2)}\n"
        f"  left   %2 Add  [2]   {line(divided, 2)}\n"
        f"  right  %3 Sub  [2]   {line(divided, 2)}\n"
        f"first NaN: nan at [1] of %5 Sub [2] {line(divided, 3)}\n"
        f"  left   %4 Div  [2]   {line(divided, 2)}\n"
        f"  right  %4 Div  [2]   {line(divided, 2)}"
    )
    first, nan = report.first, report.first_nan
    assert (first.symbol, first.opcode.name, first.shape, first.at, first.value) == (r, "Div", [2], (1,), np.inf)
    assert [(symbol.index, shape) for symbol, shape in first.operands] == [(2, [2]), (3, [2])]
    assert (nan.symbol, nan.opcode.name, nan.at, nan.rule_of) == (s, "Sub", (1,), None)
    assert np.isnan(nan.value)
    assert re.sub(r".*test_report", "test_report", first.place).startswith("test_report.py:")


@pytest.mark.parametrize("route", ROUTES)
def test_in_a_derivative_the_rule_is_named(route: str) -> None:
    network, (gradient, root) = Tape.record(rooted)
    ran = run(network, route, gradient)
    assert str(ran.of(gradient).tolist()) == "[0.0, nan]"
    report = ran.report()
    assert report is not None
    assert report.first_nan is None  # the first bad value is itself a NaN: 0 / (0 + 0)
    assert report.first.rule_of == root
    text = told(report).split("\n")
    assert re.fullmatch(
        rf"first non-finite: nan at \[1\] of %\d+ Div \[2\] {line(rooted, 2)} \(rule of %3 Sqrt\)", text[0]
    )
    assert text[-1] == f"  written by the rule of %3 Sqrt [2] {line(rooted, 2)}"
    assert len(text) == 4


def test_the_text_is_the_same_on_every_route() -> None:
    for record, position in ((divided, 3), (rooted, 0)):
        network, names = Tape.record(record)
        texts = {told(run(network, route, names[position]).report()) for route in ROUTES}
        assert len(texts) == 1


@pytest.mark.parametrize("route", ROUTES)
def test_nothing_to_report(route: str) -> None:
    network, (p, r, _, t) = Tape.record(divided)
    assert run(network, route, [t], feeds={network.nodes()[1].symbol: [1.0, 2.0]}).report() is None


@pytest.mark.parametrize("route", ROUTES)
def test_what_the_entry_does_not_read_is_not_watched(route: str) -> None:
    network, (p, r, s, t) = Tape.record(divided)
    assert run(network, route, p).report() is None
    assert run(network, route, r).report().first_nan is None


@pytest.mark.parametrize("route", ROUTES)
def test_a_bad_source_is_the_first(route: str) -> None:
    def record(tape: Tape) -> Any:
        x, w = tape.input(np.zeros((2, 3)), name="x"), tape.parameter(np.ones((2, 3)), name="w")
        return x, w, (x * w).sum()

    network, (x, w, total) = Tape.record(record)
    fed = np.zeros((2, 3), np.float32)
    fed[1, 2] = -np.inf
    report = run(network, route, total, feeds={"x": fed}).report()
    assert told(report) == f"first non-finite: -inf at [1, 2] of %0 Input [2, 3] 'x' {line(record, 1)}"
    table = network.parameters().with_payloads({w: np.full((2, 3), np.nan)})
    report = run(network, route, total, table=table, feeds={"x": fed}).report()
    assert told(report) == (
        f"first non-finite: -inf at [1, 2] of %0 Input [2, 3] 'x' {line(record, 1)}\n"
        f"first NaN: nan at [0, 0] of %1 Parameter [2, 3] 'w' {line(record, 1)}"
    )


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("element", [bf16, f64], ids=str)
def test_other_elements_are_watched(route: str, element: Any) -> None:
    def record(tape: Tape) -> Any:
        x = tape.input(Tensor([1.0, 0.0]).convert(element))
        return x.ln()

    network, y = Tape.record(record, element)
    report = run(network, route, y).report()
    assert report is not None
    assert (report.first.value, report.first.at) == (-np.inf, (1,))


@pytest.mark.parametrize("route", ROUTES)
def test_a_scalar_an_empty_and_a_selection(route: str) -> None:
    def record(tape: Tape) -> Any:
        ids, empty = tape.selection([2], 3, name="ids"), tape.input(np.zeros((0, 3)))
        return (ids @ tape.leaf(np.ones((3, 2)))).sum() + empty.sum() + tape.input(0.0).ln()

    network, total = Tape.record(record)
    report = run(network, route, total, feeds={"ids": [0, 1]}).report()
    assert report is not None
    assert told(report).startswith("first non-finite: -inf at [] of ")
    assert report.first.at == ()


@pytest.mark.parametrize("steps", [1, 4])
def test_the_first_step_that_went_bad_is_reported(steps: int) -> None:
    def record(tape: Tape) -> Any:
        x = tape.input(2.0, name="x")
        following = x - 1.0
        return x, following, x.ln()

    network, (x, following, y) = Tape.record(record)
    plan = network.entry(y).carry({x: following}).diagnose().lower()
    state = network.state()
    report = plan.advance(state, steps=steps).report()
    if steps == 1:
        assert report is None
    else:  # 2, 1, then the logarithm of 0, then of -1
        assert report is not None
        assert (report.first.value, report.first_nan, report.step) == (-np.inf, None, 2)
        assert told(report).startswith("first non-finite: -inf at [] of %")


def test_padding_with_infinity_is_told_as_what_it_is() -> None:
    network, y = Tape.record(lambda tape: tape.input([1.0, 2.0]).pad(0, 1, 4, -np.inf).max_along(0))
    report = run(network, "plan", y).report()
    assert report is not None
    assert (report.first.opcode.name, report.first.value, report.first.at) == ("Pad", -np.inf, (0,))


@pytest.mark.parametrize("route", ROUTES)
def test_unwatched_runs_pay_nothing(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, (p, r, s, t) = Tape.record(divided)

    def refused(*arguments: Any) -> None:
        raise AssertionError("a run that was not asked to watch, watched")

    monkeypatch.setattr(reports.Watch, "__init__", refused)
    monkeypatch.setattr(reports.Watch, "see", refused)
    bound = network.entry(t)
    (bound.interpret if route == "interpret" else bound.lower().forward)(network.parameters())
    network.forward(network.parameters()).backward(t)


@pytest.mark.parametrize("route", ROUTES)
def test_watching_changes_no_bit(route: str) -> None:
    network, (p, r, s, t) = Tape.record(divided)
    watched = run(network, route, [p, r, s, t])
    plain = network.forward(network.parameters())
    assert_same_bits(watched.of([p, r, s, t]), plain.of([p, r, s, t]))


def test_a_minus_zero_copy_is_finite() -> None:
    network, y = Tape.record(lambda tape: concat([tape.input([-0.0]), tape.input([0.0])], 0))
    assert run(network, "plan", y).report() is None
