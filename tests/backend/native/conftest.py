"""Every test has a cache of its own, and subprocesses find the package as this one does; NumPy keeps quiet."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

Script = Callable[..., str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TOPOS_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence NumPy's floating-point warnings, as callers of element methods do."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def script() -> Script:
    """Runs Python in a new process; what it prints. It has to end with status 0 and nothing on stderr, in time."""

    def run(text: str, *, timeout_s: float = 60.0, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr or done.returncode
        return done.stdout

    return run
