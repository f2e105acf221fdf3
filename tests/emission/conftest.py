"""The engines of others, one process of them for all tests of a worker; and the benchmarks, which can be imported."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .engines import MANY, Engines

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="session")
def engines() -> Iterator[object]:
    """Asked as `engines.run("compile", text, arguments)`; a test that wants them is skipped without the extra `xla`."""
    if importlib.util.find_spec("jaxlib") is None:
        pytest.skip("needs the extra xla")
    served = Engines()
    yield served
    served.close()


@pytest.fixture
def many(with_iree: object) -> Iterator[object]:
    """Others like them, by which many modules are compiled together."""
    served = Engines(MANY)
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
