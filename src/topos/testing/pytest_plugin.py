"""The pytest side of golden texts: `pytest_plugins = ["topos.testing.pytest_plugin"]` in a conftest turns it on."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from topos.testing.golden import assert_golden


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--update-golden` and the folder of the golden texts."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden texts; refused where CI is set")
    parser.addini("golden_folder", "where golden texts lie, from the root of the project", default="tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to rewrite in CI, where a rewritten text would compare equal to itself."""
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is refused where CI is set: golden texts are rewritten by a person")


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """`golden(text, name)`: the text is that of the golden file; `--update-golden` rewrites the file."""
    folder = pytestconfig.rootpath / pytestconfig.getini("golden_folder")
    update = bool(pytestconfig.getoption("--update-golden"))

    def compare(text: str, name: str) -> None:
        __tracebackhide__ = True
        assert_golden(text, folder / name, update)

    return compare
