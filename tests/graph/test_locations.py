import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topos import Tape, Tensor, Value, concat, einsum, f64, stack, where
from topos.graph import place


def place_of(tape: Tape, index: int = -1) -> str:
    """The file and line of a node as the dump has it, without its folder."""
    text = tape.describe(lines=True).splitlines()[:-1][index]
    return text.split(os.sep)[-1].split("  ")[-1]


def line_of(function: Callable[..., Any], offset: int = 0) -> str:
    return f"test_locations.py:{function.__code__.co_firstlineno + 1 + offset}"


def helper(x: Value) -> Value:
    return x + x


def test_a_node_has_the_innermost_line_outside_topos() -> None:
    tape = Tape()
    x = tape.input(shape=[2, 3])
    helper(x)
    assert place_of(tape) == line_of(helper)


COMPOSITES: dict[str, tuple[Callable[[Value], Any], str]] = {
    "+": (lambda x: x + x, ""),
    "@": (lambda x: x @ x.transpose(), ""),
    "2 *": (lambda x: 2.0 * x, ""),
    "abs()": (lambda x: abs(x), ""),
    "**": (lambda x: x**2, ""),
    "[...]": (lambda x: x[0, 1:], ""),
    "tanh": (lambda x: x.tanh(), ""),
    "logsumexp": (lambda x: x.logsumexp(0), ""),
    "sum_along": (lambda x: x.sum_along(0), ""),
    "to": (lambda x: x.to(f64), ""),
    "softmax": (lambda x: x.softmax(1), " (softmax)"),
    "gelu": (lambda x: x.gelu(), " (gelu)"),
    "silu": (lambda x: x.silu(), " (silu)"),
    "clip": (lambda x: x.clip(0.0, 1.0), " (clip)"),
    "minimum": (lambda x: x.minimum(1.0), " (minimum)"),
    "mean_along": (lambda x: x.mean_along(0), " (mean_along)"),
    "swap": (lambda x: x.swap(0, 1), " (swap)"),
    "transpose": (lambda x: x.transpose(), " (transpose)"),
    "squeeze": (lambda x: x.unsqueeze(0), " (unsqueeze)"),
    "broadcast_to": (lambda x: x.broadcast_to([4, 2, 3]), " (broadcast_to)"),
    "concat": (lambda x: concat([x, x], 0), " (concat)"),
    "stack": (lambda x: stack([x, x], 0), " (stack)"),
    "einsum": (lambda x: einsum("ij,ij->i", x, x), " (einsum)"),
    "where": (lambda x: where(x, 1.0, 0.0), " (where)"),
    "zero_like": (lambda x: x.zero_like(), " (zero_like)"),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_every_node_of_a_composition_has_the_callers_line_and_its_name(name: str) -> None:
    compose, suffix = COMPOSITES[name]
    tape = Tape()
    x = tape.input(shape=[2, 3])
    compose(x)
    expected = f"test_locations.py:{compose.__code__.co_firstlineno}{suffix}"
    found = {place_of(tape, index) for index in range(1, len(tape))}
    # an operand that the lambda itself prepares has the same line
    assert {text for text in found if not text.startswith(expected)} <= {f"{expected} (transpose)"}
    assert place_of(tape) == expected


def test_a_source_has_its_line_under_every_name() -> None:
    tape = Tape()

    def sources() -> None:
        tape.leaf(1.0)
        tape.parameter(1.0)
        tape.input(1.0)
        tape.selection([1], 2)

    sources()
    names = ("", "", "", " (selection)")  # which prints as an input
    assert [place_of(tape, i) for i in range(4)] == [f"{line_of(sources, i)}{name}" for i, name in enumerate(names)]


def test_an_eager_operand_does_not_hide_the_line() -> None:
    tape = Tape()
    x = tape.input(shape=[2])

    def product() -> None:
        Tensor([1.0, 2.0]) * x

    product()
    assert [place_of(tape, index) for index in (-2, -1)] == [line_of(product)] * 2


def test_a_derivative_node_has_the_line_of_the_node_whose_rule_wrote_it() -> None:
    tape = Tape()
    x = tape.parameter([1.0, 2.0])

    def forward() -> Value:
        y = x.tanh()
        return (y * y).sum()

    def derivative(loss: Value) -> None:
        tape.differentiate(loss, [x, tape.input(shape=[])])

    loss = forward()
    start = len(tape)
    derivative(loss)
    texts = [place_of(tape, index) for index in range(start, len(tape))]
    rules = [text for text in texts if "rule of" in text]
    own = [text for text in texts if "rule of" not in text]
    assert set(rules) == {
        f"{line_of(forward, 1)} (rule of %3 Sum)",
        f"{line_of(forward, 1)} (rule of %2 Mul)",
        f"{line_of(forward)} (rule of %1 Tanh)",
    }
    # what the user's call itself records: the source on that line, the seed, and the zero for what is not reached
    assert own == [line_of(derivative), *[f"{line_of(derivative)} (differentiate)"] * 2]
    assert "(differentiate)" in texts[-1]


def test_a_second_derivative_names_the_node_that_the_first_wrote() -> None:
    tape = Tape()
    x = tape.parameter(2.0)
    gradient = tape.differentiate(x * x * x, x).of(x)
    start = len(tape)
    tape.differentiate(gradient, x)
    rules = {
        int(place_of(tape, i).split("%")[1].split()[0]) for i in range(start, len(tape)) if "%" in place_of(tape, i)
    }
    assert max(rules) >= 3


def test_the_folder_is_told_where_the_file_is_not_below_the_working_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape()
    helper(tape.input(shape=[2]))
    monkeypatch.chdir(Path(__file__).parent)
    assert tape.describe(lines=True).splitlines()[1].endswith(f"  {line_of(helper)}")
    monkeypatch.chdir(tmp_path)
    assert tape.describe(lines=True).splitlines()[1].endswith(f"  {Path(__file__).parent}{os.sep}{line_of(helper)}")


def test_code_without_a_file_still_has_a_place() -> None:
    tape = Tape()
    exec(compile("\n\ntape.leaf(1.0)", "<notebook cell>", "exec"), {"tape": tape})
    assert tape.describe(lines=True).splitlines()[0].endswith("<notebook cell>:3")


def test_where_there_is_no_user_there_is_no_place() -> None:
    assert place.line(None) == ""
    assert place.described(None, "add") == ""


CHILD = """
from topos import Tape, ShapeError
tape = Tape()
x = tape.parameter([1.0, 2.0], name="x")
loss = (x * x).sum()
tape.differentiate(loss, x)
print(tape.describe(names=True, lines=True))
try:
    x + tape.leaf([1.0])
except ShapeError as error:
    print(error)
"""


def test_locations_can_be_switched_off() -> None:
    def output(**environment: str) -> list[str]:
        run = subprocess.run(
            [sys.executable, "-c", CHILD], env={**os.environ, **environment}, capture_output=True, check=True, text=True
        )
        return run.stdout.splitlines()

    off, on = output(TOPOS_LOCATIONS="0"), output()
    assert off[:3] == [
        "   0  Parameter                         [2]          x",
        "   1  Mul            0, 0               [2]",
        "   2  Sum            1                  []",
    ]
    assert "<string>" not in "".join(off)
    assert off[-3:] == [
        "add: shapes must be equal, got [2] and [1]; spread it with right.broadcast_to([2])",
        "  left   %0 Parameter  [2]",
        "  right  %12 Leaf      [1]",
    ]
    assert on[0].endswith("x  <string>:4")
    assert on[-2].endswith("<string>:4")
    assert len(on) == len(off)


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use is not removed there")
def test_recording_goes_on_where_the_working_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    text = f"import os, sys\nos.chdir({str(folder)!r})\nos.rmdir({str(folder)!r})\n{CHILD}"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
    assert "<string>:" in run.stdout
