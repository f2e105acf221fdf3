"""What holds for every example."""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path for path in FOLDER.rglob("*.py") if "\ndef main(" in path.read_text(encoding="utf-8"))
"""The programs; what else lies there is what some of them share."""


def called(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


each = pytest.mark.parametrize("path", EXAMPLES, ids=called)


@each
def test_an_example_says_what_it_prints(path: Path) -> None:
    assert "\nPrints " in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


@each
def test_main_runs_as_it_is(path: Path, example: Callable[[str], ModuleType]) -> None:
    """Every size is a keyword with a default."""
    parameters = inspect.signature(example(called(path)).main).parameters.values()
    assert all(parameter.default is not inspect.Parameter.empty for parameter in parameters)


@each
def test_an_example_uses_the_public_surface(path: Path) -> None:
    """What it imports of topos is exported by `topos`, `topos.testing` or, for plans on XLA, `topos.emission`."""
    imports = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if type(node) is ast.ImportFrom]
    assert {node.module for node in imports if node.module and node.module.startswith("topos")} <= {
        "topos",
        "topos.emission",
        "topos.testing",
    }


def test_the_readme_lists_every_example() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [path for path in EXAMPLES if f"`{called(path)}.py`" not in listed] == []


def test_a_folder_of_examples_lists_its_own() -> None:
    for folder in sorted({path.parent for path in EXAMPLES} - {FOLDER}):
        listed = (folder / "README.md").read_text(encoding="utf-8")
        assert [path for path in folder.glob("*.py") if f"`{path.name}`" not in listed] == []
