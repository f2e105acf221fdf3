"""What the tests themselves run, run by others: a plugin of pytest records it, folder by folder."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from topos import Tape

from .checking import Checks, missed, missed_together, read
from .recording import Emitted, recording

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDERS = [
    *("backend", "backend/native", "benchmarks", "cases", "docs", "element", "emission", "engine", "examples", "graph"),
    *("neural", "op", "reference", "storage", "tensor", "testing"),
    *("test_golden.py", "test_loading.py", "test_maps.py", "test_programs.py", "test_records.py", "test_scale.py"),
    *("test_tooling.py", "test_walkthrough.py"),
]
"""All that holds tests. What they draw, they draw a few times, unless they say how often."""
OWN = ["test_conformance.py", "test_coverage.py"]
"""Those of this folder that record themselves."""
EACH = 4
"""Plans of a test that are recorded where the slow tests run: later ones mostly differ in extents and numbers."""
SHARES = {"backend": 8, "backend/native": 8}
"""There, one test of so many: these take minutes, most of them for native code that says what other folders say."""
ELSEWHERE = {"emission", "examples", "benchmarks", "test_tooling.py"}
"""Whose few plans other tests here have, which the slow tests need not run again."""
EMPTY = {"element", "reference", "tensor", "test_loading.py", "test_maps.py", "test_records.py"}
"""Where no plan runs, as the exhaustive tests find."""
LEAST = {"op": 200, "cases": 200, "engine": 80, "neural": 100, "backend/native": 40, "test_programs.py": 5}
"""Modules that are found there, at least."""


def recorded(file: Path, asked: Sequence[str], **limits: int) -> str:
    """Runs tests that pytest is asked for, records what they run, and answers what pytest said."""
    paths = os.pathsep.join([str(HERE), str(ROOT / "src"), str(ROOT)])
    facts = {f"EMITTED_{name.upper()}": str(limit) for name, limit in limits.items()}
    environment = os.environ | {"EMITTED_MODULES": str(file), "PYTHONPATH": paths} | facts
    command = [sys.executable, "-m", "pytest", "-q", "-p", "recorder", "-p", "no:cacheprovider", *asked]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True).stdout


def checked(checks: Checks, folder: str, file: Path, **limits: int) -> Counter[str]:
    """What was counted in a folder, but for what is listed on its own, once every module answers alike."""
    others = [one for one in FOLDERS if one.startswith(f"{folder}/")] + [f"emission/{one}" for one in OWN]
    told = recorded(file, [f"tests/{folder}", *(f"--ignore=tests/{one}" for one in others)], **limits)
    for found in read(file):
        if isinstance(found, Emitted):
            checks.take(found)
        else:
            checks.counts.update(found)
    checks.finish()
    print(f"{folder}: {', '.join(f'{count} {what}' for what, count in checks.counts.items())}")
    assert not checks.wrong, "\n".join(checks.wrong)
    assert checks.counts["tests"], told
    return checks.counts


def test_every_folder_is_here() -> None:
    found = [path for path in (ROOT / "tests").iterdir() if [*path.rglob("test_*.py")] or path.match("test_*.py")]
    assert {path.name for path in found} == {name for name in FOLDERS if "/" not in name}


SAMPLE = """
import numpy as np
import pytest
from topos import Element, Tape, ToposError, f64


class Plain(Element):
    name, dtype = "plain", np.dtype(np.float32)

    def round(self, numbers):
        return numbers.astype(np.float32)


def run(element, *numbers):
    network, root = Tape.record(lambda tape: tape.parameter([*numbers]).exp().sum(), element)
    plan = network.entry(root).lower()
    for _ in range(2):
        plan.forward(network.parameters())
    return plan


def test_two():
    run(f64, 1, 2), run(f64, 1, 2), run(f64, 1, 2, 3)
    assert False


def test_one():
    run(f64, 4, 5), run(f64, 4, 5, 6, 7)
    with pytest.raises(ToposError):
        run(Plain(), 1)


def test_another():
    run(f64, 1).emit_stablehlo(raises=False)
"""


@pytest.mark.parametrize(
    ("limits", "owners"),
    [
        ({}, ["two", "two", "one", "one", "another", "another"]),
        ({"each": 1}, ["two", "another", "another"]),
        ({"share": 2}, ["two", "two", "another", "another"]),
    ],
)
def test_what_is_recorded(tmp_path: Path, limits: dict[str, int], owners: list[str]) -> None:
    """Each text once, whatever becomes of the test; a refusal with its reason; what is emitted, without numbers."""
    (tmp_path / "test_sample.py").write_text(SAMPLE, encoding="utf-8")
    told = recorded(tmp_path / "modules", [str(tmp_path / "test_sample.py"), f"--rootdir={tmp_path}"], **limits)
    *modules, counts = read(tmp_path / "modules")
    assert [module.owner.rpartition("_")[2] for module in modules] == owners, told
    assert counts == {"tests": 3 - ("share" in limits), "failing tests": 1}
    reasons = [module.refused.rpartition(": ")[2] for module in modules if module.refused]
    assert reasons == ["element plain has no Emittable contract"] * ("one" in owners)
    assert [module.untried for module in modules if module.untried] == ["emitted, not run"]
    assert len({module.text for module in modules}) == len(modules) - 1


@pytest.fixture
def module() -> Emitted:
    """A module of two results."""
    network, results = Tape.record(lambda tape: ((y := tape.parameter([0.5, -1.0]).tanh()), y.sum()))
    with recording() as kept:
        network.entry(results).lower().forward(network.parameters())
    return kept[0]


def other(module: Emitted) -> Emitted:
    """One that says another operation."""
    texts = (text.replace("stablehlo.tanh", "stablehlo.sine") for text in (module.text, module.plain))
    return module._replace(**dict(zip(("text", "plain"), texts, strict=True)), owner="other")


def test_a_miss_among_others_is_told(engines: Any, module: Emitted) -> None:
    assert missed_together(engines, [module] * 3) == []
    told = missed_together(engines, [module, other(module), module])
    assert told == missed(engines, "compile", [other(module)])
    assert len(told) == 2 and all(line.startswith("other compile: %") and "ulp away" in line for line in told)


def test_what_is_counted(with_iree: Any, module: Emitted) -> None:
    """A module that no engine is given, or cannot read; reasons that are known, and one that is not."""
    checks = Checks(with_iree, sampled=1000, most_work=1)
    emitted = "EmissionError: emit_stablehlo: %0 Parameter [] : element plain has no Emittable contract"
    for taken in (
        *(module, other(module), module._replace(text="nothing", plain="nothing", untried="not run", owner="wrong")),
        *(Emitted(refused=emitted), Emitted(refused="KeyError: 3", owner="wrong")),
        other(module)._replace(owner="test_c31_large_terms_that_cancel"),
    ):
        checks.take(taken)
    checks.finish()
    told = [line.partition(":")[0] for line in checks.wrong]
    ordered = ["test_c31_large_terms_that_cancel compile"] * 2
    assert told == ["wrong interpret", "wrong is refused", "other compile", "other compile", *ordered]
    assert checks.counts == {
        **{"modules": 4, "interpreted": 0, "compiled": 3, "compiled, not compared": 0, "translated": 1},
        **{"verified alone": 1, "refused": 2},
    }


@pytest.mark.slow
@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder not in ELSEWHERE | EMPTY])
def test_what_the_tests_run_is_run_by_others(many: Any, tmp_path: Path, folder: str) -> None:
    counts = checked(Checks(many, sampled=32), folder, tmp_path / "modules", each=EACH, share=SHARES.get(folder, 1))
    assert counts["modules"] >= LEAST.get(folder, 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("folder", FOLDERS)
def test_all_that_the_tests_run_is_run_by_others(many: Any, tmp_path: Path, folder: str) -> None:
    """Every plan of every test: `pytest tests/emission -m exhaustive -rP` tells how many there are."""
    counts = checked(Checks(many, sampled=8, most_work=10_000_000), folder, tmp_path / "modules")
    assert folder not in EMPTY or not counts["modules"]
