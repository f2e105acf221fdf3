"""The examples as modules: they are programs, and stand in no package."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    """`example("makemore/adam")`: the module, imported once and without running it, beside its own neighbours."""

    def load(name: str) -> ModuleType:
        path = FOLDER / f"{name}.py"
        called = name.replace("/", ".")
        if called not in sys.modules:
            spec = importlib.util.spec_from_file_location(called, path)
            assert spec is not None and spec.loader is not None
            sys.modules[called] = importlib.util.module_from_spec(spec)
            sys.path.insert(0, str(path.parent))
            try:
                spec.loader.exec_module(sys.modules[called])
            finally:
                sys.path.remove(str(path.parent))
        return sys.modules[called]

    return load
