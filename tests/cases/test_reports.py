"""Which instruction made the first infinity, and which the first NaN: told by the user's own line."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

from topos import PostureError, Tape, detach
from topos.testing import assert_same_bits


def f(number: Any) -> Any:
    return np.array(number, np.float32)


def line_of(function: Any, text: str) -> int:
    """The line of a function's source that holds a text."""
    lines, start = inspect.getsourcelines(function)
    return start + next(offset for offset, line in enumerate(lines) if text in line)


def quotient(p, q):
    r = (p + q) / (p - q)
    s = r - r
    return r, s, (s * p).sum()


def recorded() -> tuple[Any, Any]:
    tape = Tape()
    p, q = tape.input(shape=[2], name="p"), tape.input(shape=[2], name="q")
    results = detach(list(quotient(p, q)))
    return tape.into_network(), results


FEEDS = {"p": [4, 1], "q": [2, 1]}


def test_c72_where_the_nan_came_from(values):
    """The division is the first infinity, the subtraction the first NaN: index, operands, file and line of each."""
    r, s, t = values(quotient, f([4, 1]), f([2, 1]))
    assert_same_bits(r, f([3, np.inf]))
    assert_same_bits(s, f([0, np.nan]))
    assert np.isnan(t)

    network, results = recorded()
    entry, parameters = network.entry(results).diagnose(), network.parameters()
    runs = [
        entry.interpret(parameters, FEEDS),
        entry.lower().forward(parameters, FEEDS),
        entry.lower().advance(network.state(), FEEDS),
        entry.lower().advance(network.state(), FEEDS, steps=2),
        entry.backward().lower().forward(parameters, FEEDS),
    ]
    texts = {str(run.report()) for run in runs}
    assert len(texts) == 1
    for run in runs:
        report = run.report()
        assert report.first.opcode.name == "Div"
        assert (report.first.at, report.first.value, report.first.rule_of) == ((1,), np.inf, None)
        assert [(symbol.index, shape) for symbol, shape in report.first.operands] == [(2, [2]), (3, [2])]
        assert report.first_nan.opcode.name == "Sub"
        assert report.first_nan.at == (1,)
        assert np.isnan(report.first_nan.value)
        assert report.first.symbol == results[0]
        assert report.first_nan.symbol == results[1]
    division, subtraction = line_of(quotient, "(p + q) / (p - q)"), line_of(quotient, "s = r - r")
    lines = texts.pop().split("\n")
    assert re.fullmatch(rf"first non-finite: inf at \[1\] of %4 Div \[2\] \S*test_reports\.py:{division}", lines[0])
    assert re.fullmatch(rf"  left   %2 Add  \[2\]   \S*test_reports\.py:{division}", lines[1])
    assert re.fullmatch(rf"  right  %3 Sub  \[2\]   \S*test_reports\.py:{division}", lines[2])
    assert re.fullmatch(rf"first NaN: nan at \[1\] of %5 Sub \[2\] \S*test_reports\.py:{subtraction}", lines[3])
    assert re.fullmatch(rf"  left   %4 Div  \[2\]   \S*test_reports\.py:{division}", lines[4])
    assert len(lines) == 6


def guarded_badly(p, q):
    root = (p - q).sqrt()
    return (root * 0).sum()


def test_c72_where_the_nan_of_a_gradient_came_from(gradients):
    """Zero times the root is harmless forwards; backwards its rule divides zero by zero, and is named."""
    by_p, by_q = gradients(guarded_badly, f([4, 1]), f([2, 1]))
    assert_same_bits(by_p, f([0, np.nan]))
    assert np.isnan(by_q[1])

    tape = Tape()
    p, q = tape.input(shape=[2], name="p"), tape.input(shape=[2], name="q")
    adjoints = detach(tape.differentiate(guarded_badly(p, q), [p]))
    network = tape.into_network()
    entry, parameters = network.entry(adjoints).diagnose(), network.parameters()
    texts = set()
    root = line_of(guarded_badly, "sqrt()")
    for run in (entry.interpret(parameters, FEEDS), entry.lower().forward(parameters, FEEDS)):
        report = run.report()
        assert report.first_nan is None  # the first bad value is the NaN itself
        found = report.first
        assert (found.opcode.name, found.at) == ("Div", (1,))
        assert np.isnan(found.value)
        assert network.node(found.rule_of).opcode.name == "Sqrt"
        assert re.search(rf"test_reports\.py:{root}\b", found.place)
        texts.add(str(report))
    assert len(texts) == 1
    first, *_, last = texts.pop().split("\n")
    assert re.match(rf"first non-finite: nan at \[1\] of %\d+ Div \[2\] \S*test_reports\.py:{root}\b", first)
    assert re.fullmatch(rf"  written by the rule of %3 Sqrt \[2\] \S*test_reports\.py:{root}", last)


def test_c72_a_clean_run_and_one_that_was_not_watched():
    """Nothing found is None; a run that nobody watched says how to have it watched."""
    network, results = recorded()
    clean = {"p": [4, 2], "q": [2, 1]}
    assert network.entry(results).diagnose().lower().forward(network.parameters(), clean).report() is None
    with pytest.raises(PostureError) as refused:
        network.entry(results).lower().forward(network.parameters(), FEEDS).report()
    assert str(refused.value) == "report: this run was not watched; declare it with entry.diagnose()"


def test_c72_a_fed_nan_is_named_as_fed():
    """What came in bad was made by no instruction."""
    network, results = recorded()
    run = network.entry(results).diagnose().lower().forward(network.parameters(), {"p": [4, np.nan], "q": [2, 1]})
    found = run.report().first
    assert (found.opcode.name, found.at) == ("Input", (1,))
    assert "'p'" in str(found)
