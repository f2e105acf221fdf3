"""What examples and drawn programs run, run by others: each module is parsed, verified and run, and answers alike."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from topos import Tape
from topos.testing.programs import Program, programs

from .checking import missed
from .recording import Emitted, recording

ROOT = Path(__file__).parents[2]
SMALL: dict[str, dict[str, Any]] = {
    "chain": {},
    "dual": {},
    "element_seam": {"steps": 2},
    "forward_mode": {},
    "gradient_descent": {"steps": 2, "rates": (0.1, 0.2)},
    "digits/digits": {"epochs": 1, "limit": 64, "picture": "digits.png"},
    "makemore/adam": {"steps": 2, "limit": 100, "picture": "adam.png"},
    "makemore/batch_norm": {"steps": 2, "depth": 2, "width": 8, "limit": 100, "picture": "norm.png"},
    "makemore/bigram": {"steps": 2, "batch": 64, "limit": 2000, "picture": "bigram.png"},
    "makemore/compiled": {
        **{"steps": 4, "together": 2, "compared": 2, "measure_batch": 32, "limit": 100},
        "picture": "compiled.png",
    },
    "makemore/mlp": {
        **{"steps": 4, "together": 2, "measure_every": 2, "limit": 100, "hidden": 8, "measure_batch": 32},
        "picture": "loss.png",
    },
    "makemore/parallel": {"steps": 1, "threads": (1,), "shard": 4, "limit": 100, "picture": "parallel.png"},
    "makemore/transformer": {
        **{"steps": 2, "together": 1, "batch": 2, "measured": 4, "width": 8, "heads": 2, "blocks": 1, "limit": 60},
        "picture": "transformer.png",
    },
    "mlp_xor": {"steps": 2},
    "moons": {"count": 20, "steps": 2, "resolution": 4, "picture": "moons.png"},
    "regression": {"rows": 10, "steps": 2},
}
"""The examples that need no data but their own, and arguments by which they do little."""
FED = {"emoji/emoji", "fashion_mnist/images", "shakespeare/shakespeare"}
"""Those whose plans are run over numbers that are made up here."""
ON_DEVICES = {"makemore/devices"}
"""Those that run on XLA themselves, plans of another example."""
OF_THEIR_OWN = {"dual", "element_seam"}
"""Those over an element that has no `Emittable`."""


@pytest.fixture
def modules_of(example: Callable[[str], ModuleType], tmp_path: Path) -> Callable[[str], list[Emitted]]:
    """The modules of the plans that an example runs."""

    def modules(name: str) -> list[Emitted]:
        facts = dict(SMALL.get(name, {}))
        if "picture" in facts:
            facts["picture"] = tmp_path / facts["picture"]
        with recording() as kept:
            if name in FED:
                run_fed(example(name), tmp_path)
            else:
                example(name).main(**facts)
        return kept

    return modules


def run_fed(example: ModuleType, folder: Path) -> None:
    """Some steps of an example whose data is fetched, over other numbers."""
    random = np.random.Generator(np.random.PCG64(1))
    if hasattr(example, "Size"):
        (folder / "text.txt").write_text("\n\nto be or not to be " * 40, encoding="utf-8")
        size = example.Size(tokens=6, width=8, heads=2, blocks=1)
        example.main(folder / "text.txt", 2, 1, 2, size, measured=2, drawn=1, picture=folder / "text.png")
        return
    labels, shape = ("kinds", (3, 32, 32)) if hasattr(example, "KINDS") else ("classes", (1, 28, 28))
    reader, pictures = example.record(2, 2, seed=1), random.normal(size=(2, *shape))
    reader.train.advance(reader.state, {"images": pictures, labels: [3, 0], "rate": 0.01})
    reader.score.forward(reader.state, {"scored": pictures})


def test_every_example_is_here() -> None:
    files = [file for file in (ROOT / "examples").rglob("*.py") if "\ndef main(" in file.read_text(encoding="utf-8")]
    named = {file.relative_to(ROOT / "examples").with_suffix("").as_posix() for file in files}
    assert named == SMALL.keys() | FED | ON_DEVICES


@pytest.mark.parametrize("name", sorted(SMALL.keys() | FED))
@pytest.mark.parametrize("engine", ["interpret", pytest.param("compile", marks=pytest.mark.slow)])
def test_an_example_is_run_by_others(engines: Any, modules_of: Any, engine: str, name: str) -> None:
    modules = modules_of(name)
    emitted = [module for module in modules if not module.refused]
    refused = [module.refused for module in modules if module.refused]
    assert missed(engines, engine, emitted) == []
    assert bool(refused) == (name in OF_THEIR_OWN)
    assert all("has no Emittable contract" in told for told in refused)
    assert emitted or name == "dual"


def test_an_example_is_compiled(engines: Any, modules_of: Any) -> None:
    assert missed(engines, "compile", modules_of("chain")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["makemore/bigram", "makemore/mlp"])
def test_an_example_is_translated(with_iree: Any, modules_of: Any, name: str) -> None:
    assert missed(with_iree, "iree", modules_of(name)) == []


@pytest.mark.parametrize("engine", ["interpret", "compile", "iree"])
def test_a_miss_is_told(request: pytest.FixtureRequest, engine: str) -> None:
    """Of a module with another operation, another constant, or other numbers to take."""
    engines = request.getfixturevalue("with_iree" if engine == "iree" else "engines")
    network, (hidden, total) = Tape.record(
        lambda tape: ((y := (tape.parameter([[0.5, -1.0], [2.0, 0.25]]) * 0.75).tanh()), y.sum())
    )
    with recording() as kept:
        network.entry([hidden, total]).lower().forward(network.parameters())
    (module,) = kept
    assert missed(engines, engine, kept) == []
    for honest, wrong in (("stablehlo.tanh", "stablehlo.sine"), ("dense<0.75>", "dense<0.76>")):
        assert honest in module.text
        text = module.text.replace(honest, wrong)
        told_twice(missed(engines, engine, [module._replace(text=text, plain=text)]), engine)
    assert missed(engines, engine, [module._replace(arguments=[module.arguments[0] + 1])])


def told_twice(lines: list[str], engine: str) -> None:
    """The two nodes, each with a place and how far it is away."""
    assert len(lines) == 2
    assert re.search(rf"{engine}: %\d+ Tanh \[2, 2\] .*: \S+ at \[0, 0\], wants \S+, \d+ ulp away; 4 of 4", lines[0])
    assert re.search(rf"{engine}: %\d+ Sum \[\] .*, \d+ ulp away; 1 of 1 are$", lines[1])


@settings(max_examples=40, suppress_health_check=[*HealthCheck])
@given(program=programs())
def test_any_drawn_program_is_interpreted(engines: Any, program: Program) -> None:
    """Over any elements, infinities, NaN and the largest numbers among them; and its gradients."""
    tape, recorded = program.record()
    nodes = tape.nodes()
    wrt = [value for value in recorded.values if nodes[value.index].is_source and value.element is not None]
    adjoints = tape.differentiate(recorded.target, wrt).detach()
    network = tape.into_network()
    plan = network.entry(adjoints.roots()).lower()
    with recording() as kept:
        plan.forward(network.parameters(), recorded.feeds)
    assert missed(engines, "interpret", kept) == []
