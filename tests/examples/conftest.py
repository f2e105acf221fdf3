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
    """`example("chain")`: the module, imported once and without running it; it may import its neighbours."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))

    def load(name: str) -> ModuleType:
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
            assert spec is not None and spec.loader is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        return sys.modules[name]

    return load
