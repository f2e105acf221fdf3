"""Run as a plugin of pytest: writes the modules of the plans that tests run to the file that EMITTED_MODULES names.

EMITTED_MODULES=modules.pickle python -m pytest -p recorder tests/op
"""

import os
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from recording import Emitted, distinct, recording

from topos import Plan

EACH = 2
"""Modules that are kept of a test, which may draw hundreds."""
WIDEST, LONGEST = 20_000, 3_000
"""Larger plans are left out: the reference interpreter takes a second for a million numbers."""
settings.register_profile("few", derandomize=True, deadline=None, max_examples=4, suppress_health_check=[*HealthCheck])


class Recorder:
    """The modules of one session."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._left = EACH
        self._modules: list[Emitted] = []
        self._kept = self._open.enter_context(recording(self._is_wanted))

    def _is_wanted(self, plan: Plan) -> bool:
        widest = max((plan._spec.rows[row].shape.volume for row in plan._rows), default=0)
        self._left -= 1
        return self._left >= 0 and len(plan._rows) <= LONGEST and widest <= WIDEST

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self) -> None:
        settings.load_profile("few")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self._left = EACH
        ran = yield
        self._modules += [module._replace(owner=item.nodeid) for module in self._kept]
        self._kept.clear()
        return ran

    def pytest_unconfigure(self) -> None:
        self._open.close()
        # As plain tuples: whoever reads them has another module of that name.
        held = [tuple(module) for module in distinct(self._modules)]
        Path(os.environ["EMITTED_MODULES"]).write_bytes(pickle.dumps(held))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(), "recorded modules")
