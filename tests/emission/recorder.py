"""Run as a plugin of pytest: writes the modules of the plans that tests run to the file that EMITTED_MODULES names.

    EMITTED_MODULES=modules.pickle python -m pytest -p recorder tests/op

EMITTED_SHARE=8 runs one test of eight, EMITTED_EACH=2 keeps the modules of the first two plans of each. The file holds
the modules, one pickle after another, and then what was counted.
"""

import os
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from recording import recording

settings.register_profile("few", derandomize=True, deadline=None, max_examples=4, suppress_health_check=[*HealthCheck])


class Recorder:
    """The modules of one session, none of them twice."""

    def __init__(self) -> None:
        self._file = Path(os.environ["EMITTED_MODULES"])
        self._file.write_bytes(b"")
        self._share = int(os.environ.get("EMITTED_SHARE", "1"))
        self._each = float(os.environ.get("EMITTED_EACH", "inf"))
        self._seen: set[bytes] = set()
        self._counts: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        settings.load_profile("few")
        items[:] = items[:: self._share]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        with recording(self._each, self._seen) as kept:
            ran = yield
        # As plain tuples: whoever reads them has another class of that name.
        self._write([tuple(module._replace(owner=item.nodeid)) for module in kept])
        return ran

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._counts["tests"] += 1
            self._counts["failing tests"] += report.failed

    def pytest_unconfigure(self) -> None:
        self._write([dict(self._counts)])

    def _write(self, objects: list[Any]) -> None:
        with self._file.open("ab") as file:
            for held in objects:
                pickle.dump(held, file)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(), "recorded modules")
