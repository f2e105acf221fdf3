"""Another process in which XLA runs, with four devices: what would end a process ends that one."""

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SERVER = Path(__file__).with_name("elsewhere.py")


class Elsewhere:
    """`elsewhere(check)` calls a function of a test module there, one process for all of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, check: Callable[..., None], *arguments: object) -> None:
        if self._process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = subprocess.Popen([sys.executable, str(SERVER)], env=dict(os.environ), **pipes)
        process = self._process
        try:
            pickle.dump((check.__code__.co_filename, check.__name__, arguments), process.stdin)
            process.stdin.flush()
            failure = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            self.close()
            raise AssertionError(f"{check.__name__}: the process ended") from None
        assert not failure, failure

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def extra() -> None:
    """Skips without the extra `xla`."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs the extra xla")


@pytest.fixture(scope="session")
def elsewhere(extra: None) -> Iterator[Elsewhere]:
    served = Elsewhere()
    yield served
    served.close()
