"""Golden texts, the two ways in which hypothesis draws, interrupts at a chosen line, and the examples as modules."""

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["topos.testing.pytest_plugin", "pytester"]

# The default everywhere, so that a failure in CI is a failure on every machine. A deadline would measure the machine.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `pytest --hypothesis-profile explore` looks for new failures.
settings.register_profile("explore", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


_made: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """All workers of a session share a cache of compiled code, which is not the user's own; Ctrl-C interrupts them.

    A shell has what it starts in the background ignore Ctrl-C, and so would all processes that tests start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "TOPOS_CACHE" not in os.environ:
        _made.append(tempfile.mkdtemp(prefix="topos-tests-"))
        os.environ["TOPOS_CACHE"] = _made[0]


def pytest_unconfigure(config: pytest.Config) -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.pop("TOPOS_CACHE", None)
    _made.clear()


@pytest.fixture
def interrupted() -> Callable[..., None]:
    """`interrupted(call, at)` calls, and raises KeyboardInterrupt before line `at` of those of topos that run."""
    return _interrupted


def _interrupted(call: Callable[[], Any], at: int) -> None:
    count = 0

    def local(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == at + 1:
                raise KeyboardInterrupt
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: local if "topos" in frame.f_code.co_filename else None)
    try:
        call()
    finally:
        sys.settrace(before)


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    """`example("makemore/adam")`: the module, imported once and without running it; it may import its neighbours."""
    return _example


def _example(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "examples" / f"{name}.py"
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
