"""What is found by its name is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import topos
from topos.loading import loaded

ROOT = Path(topos.__file__).parent
NAME = re.compile(r"topos(\.[a-zA-Z_]\w*)+")


def names() -> Iterator[str]:
    """The texts of the sources that are whole names."""
    for source in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                yield node.value


NAMES = sorted(set(names()))


def test_a_function_and_a_class_are_found() -> None:
    assert loaded("topos.loading.loaded") is loaded
    assert loaded("topos.shape.Shape") is topos.Shape


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"topos\.nowhere"):
        loaded("topos.nowhere.found")
    with pytest.raises(AttributeError, match="nothing"):
        loaded("topos.shape.nothing")


def test_the_sources_hold_names() -> None:
    from topos.backend.native.products.product import _TEXTS
    from topos.backend.native.writers import WRITERS
    from topos.op import Fold

    assert {*_TEXTS.values(), WRITERS[Fold], "topos.engine.state.State"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_sources_is_there(name: str) -> None:
    """Of a module, or of what is in one."""
    if name.startswith("topos.backend.native"):
        pytest.importorskip("llvmlite")
    if name.startswith("topos.emission.xla"):
        pytest.importorskip("jax")
    try:
        import_module(name)
    except ModuleNotFoundError:
        loaded(name)


def test_no_name_is_put_together() -> None:
    """Or no search would find it, and nothing here resolve it: all that `loaded` is given is written out."""
    calls = [
        (source.name, ast.unparse(node.args[0]))
        for source in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("loaded", "import_module")
    ]
    assert ("writers.py", "_writer(lowering, group)") in calls
    assert [(name, given) for name, given in calls if given.startswith("f")] == []
