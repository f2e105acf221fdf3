"""How long `import topos` takes in a fresh interpreter, beside nothing and beside NumPy alone."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("statement", ["pass", "import numpy", "import topos"])
def test_import(benchmark, statement: str) -> None:
    command = [sys.executable, "-c", statement]
    benchmark.pedantic(subprocess.run, (command,), {"check": True}, rounds=20, warmup_rounds=2)
