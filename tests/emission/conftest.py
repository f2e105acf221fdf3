"""The engines of others, one process of them for all tests of a worker; and the benchmarks, which can be imported."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engines", Path(__file__).with_name("engines.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def engines() -> Iterator[object]:
    """Asked as `engines.run("compile", text, arguments)`; a test that wants them is skipped without the extra `xla`."""
    if importlib.util.find_spec("jaxlib") is None:
        pytest.skip("needs the extra xla")
    served = _module().Engines()
    yield served
    served.close()


def _is_absent(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True


@pytest.fixture(scope="session")
def with_iree(engines: object) -> object:
    """The same engines, where IREE is one of them; a test that wants it is skipped without the extra `iree`."""
    if any(_is_absent(name) for name in ("iree.compiler", "iree.runtime")):
        pytest.skip("needs the extra iree")
    return engines
