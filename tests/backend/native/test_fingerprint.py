"""The names of programs: equal for equal work, another for any fact that is read; and what is kept under them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llvmlite")

from topos import Tape, bf16, f32, f64
from topos.backend.native import fingerprint as named
from topos.backend.native import manifest, target
from topos.backend.native.compiler import Piece
from topos.backend.native.fingerprint import fingerprint
from topos.backend.native.manifest import Manifest, Start
from topos.engine.liveness import schedule

from .test_bodies import clamped

Recording = Callable[[Tape], Any]


def name(record: Recording, carries: bool = False, element: Any = f32, own: Any = None) -> str | None:
    tape = Tape(element)
    value = record(tape).symbol()
    spec = tape.into_network().spec
    rows = schedule(spec.rows, [value.index])
    return fingerprint(spec, rows, [value.index], {0: value.index} if carries else {}, own or target.host())


def plain(tape: Tape) -> Any:
    return tape.input(shape=[3, 4]) * 2.0 + tape.parameter([[1.0] * 4] * 3)


DIFFERENT: dict[str, Recording] = {
    "plain": plain,
    "another shape": lambda tape: tape.input(shape=[3, 5]) * 2.0 + tape.parameter([[1.0] * 5] * 3),
    "another constant": lambda tape: tape.input(shape=[3, 4]) * 2.5 + tape.parameter([[1.0] * 4] * 3),
    "a zero": lambda tape: tape.input(shape=[3, 4]) * 0.0 + tape.parameter([[1.0] * 4] * 3),
    "the other zero": lambda tape: tape.input(shape=[3, 4]) * -0.0 + tape.parameter([[1.0] * 4] * 3),
    "another instruction": lambda tape: tape.input(shape=[3, 4]) * 2.0 - tape.parameter([[1.0] * 4] * 3),
    "other operands": lambda tape: (x := tape.input(shape=[3, 4])) * 2.0 + x + 0 * tape.parameter([[1.0] * 4] * 3),
    "an input for a parameter": lambda tape: tape.input(shape=[3, 4]) * 2.0 + tape.input([[1.0] * 4] * 3),
    "padded": lambda tape: tape.input(shape=[3, 4]).pad(0, 1, 6),
    "padded with the other zero": lambda tape: tape.input(shape=[3, 4]).pad(0, 1, 6, -0.0),
    "padded elsewhere": lambda tape: tape.input(shape=[3, 4]).pad(0, 2, 6),
    "a selection": lambda tape: tape.selection([3], vocab=4).broadcast_along(0, 2),
    "one that may be absent": lambda tape: tape.selection([3], vocab=4, absent=-1).broadcast_along(0, 2),
    "cast": lambda tape: tape.input(shape=[3, 4]).to(f64),
    "cast to another": lambda tape: tape.input(shape=[3, 4]).to(bf16),
}


def test_equal_work_has_an_equal_name_and_every_fact_another() -> None:
    names = {what: name(record) for what, record in DIFFERENT.items()}
    assert names == {what: name(record) for what, record in DIFFERENT.items()}
    assert len({*names.values()}) == len(DIFFERENT)
    others = {
        name(plain, carries=True),
        name(plain, element=f64),
        name(plain, own=target.host()._replace(vector_bytes=8)),
        name(plain, own=target.host()._replace(cpu="generic")),
    }
    assert None not in others
    assert len(others | {*names.values()}) == len(DIFFERENT) + 4


def test_parameters_are_no_part_of_it_and_the_code_that_makes_programs_is(monkeypatch: pytest.MonkeyPatch) -> None:
    first = name(plain)
    assert first == name(lambda tape: tape.input(shape=[3, 4]) * 2.0 + tape.parameter([[7.0] * 4] * 3))
    monkeypatch.setattr(named, "_sources", lambda: "changed")
    assert name(plain) != first


def test_what_is_a_users_has_none() -> None:
    assert name(plain, element=clamped) is None
    assert name(lambda tape: tape.input(shape=[3]).to(clamped)) is None


def test_a_manifest_is_read_as_it_was_written() -> None:
    whole = Manifest(
        [Start([["a", 1], ["b", 20]], [[3, 0], [None, 64]]), Start([["a", 1]], [])],  # type: ignore[list-item]
        1 << 40,
        [0, 3, ~0],
        {4: -0.0, 5: math.inf, 6: 0.1},
        frozenset([4]),
        [Piece("key", ["a", "b"], [])],
        "define void @repeat(ptr %table) {\n  ret void\n}\n",
    )
    found = manifest.read(whole.written())
    assert found == whole
    assert math.copysign(1, found.numbers[4]) == -1
    assert math.isnan(manifest.read(whole._replace(numbers={1: math.nan}).written()).numbers[1])


AGAIN = """
    import sys, warnings
    import numpy as np
    from topos import Tape
    from topos.backend.native import counts

    def step(tape):
        weights = tape.parameter(np.full((30, 20), 0.25), name="weights")
        loss = ((tape.input(shape=[40, 30], name="x") @ weights) * 0.5).tanh().softmax(1).log_softmax(0).sum()
        zeros = tape.input(0.0).stop() * 0.0
        slopes = tape.differentiate(loss, [weights])
        return loss, zeros, {source: source - 0.05 * slope for source, slope in slopes}

    network, (loss, zeros, following) = Tape.record(step)
    plan, state = network.entry([loss, zeros]).carry(following).lower(), network.state()
    fed = {"x": np.arange(1200.0).reshape(40, 30) / 1000}
    runs = [plan.advance(state, fed), plan.advance(state, fed, steps=3)]
    made = counts.compiles()
    lowered = "topos.backend.native.making" in sys.modules
    print([run.of([loss, zeros]) for run in runs], state.of(next(iter(following))).numpy().tobytes().hex())
    print(plan.explain())
    print(len(plan.llvm()), len(plan.profile(state, fed).groups))
    print(f"{made.compiled} {made.loaded} {lowered}")
"""


def test_a_program_that_another_process_left_is_neither_lowered_nor_written(script: Callable[..., str]) -> None:
    *first, made = script(AGAIN).splitlines()
    compiled, loaded, lowered = made.split()
    assert (loaded, lowered) == ("0", "True")
    *second, made = script(AGAIN).splitlines()
    assert made == f"0 {compiled} False"
    assert second == first


def test_a_program_whose_objects_are_gone_is_made_again(script: Callable[..., str], own_cache: Path) -> None:
    *first, made = script(AGAIN).splitlines()
    compiled = int(made.split()[0])
    objects = [path for path in own_cache.iterdir() if b"[[[[" not in path.read_bytes()]
    max(objects, key=lambda path: path.stat().st_size).unlink()
    *second, made = script(AGAIN).splitlines()
    assert made == f"1 {compiled - 1} True"
    assert second == first


LOADED = """
    import sys
    from topos import Tape

    def summed(tape):
        x = tape.input(shape=[40, 30])
        return (x * x).sum_along(0), (x + 1).exp()

    network, results = Tape.record(summed)
    plan = network.entry(list(results)).lower().prepare()
    assert plan.explain().splitlines()[-1].startswith("native: "), plan.explain()
    writers = ("loops", "panels", "contractions", "products", "windows", "copies", "indexing", "cascade_kernel")
    print(*[name for name in writers if f"topos.backend.native.{name}" in sys.modules])
"""


def test_what_writes_a_kind_of_kernel_is_loaded_with_the_first_of_it(script: Callable[..., str]) -> None:
    assert script(LOADED).split() == ["loops", "panels"]
