"""Every example in a docstring runs and answers what it shows."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "src").rglob("*.py"))


def name(source: Path) -> str:
    parts = source.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("module", [name(source) for source in MODULES if source.stem != "__main__"])
def test_examples_run(module: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert not failed


def test_the_main_classes_show_an_example() -> None:
    import topos

    shown = ["Adjoints", "BoundEntry", "Entry", "Network", "Parameters", "Plan", "Run", "Shape", "State", "Symbol"]
    shown += ["Tape", "Tensor", "Value", "concat", "detach", "einsum", "stack", "where"]
    assert [name for name in shown if ">>>" not in (getattr(topos, name).__doc__ or "")] == []
