"""jax is imported when something is compiled, and not before."""

import subprocess
import sys


def test_to_import_it_imports_no_jax() -> None:
    text = """
import sys
from topos import Backend
from topos.emission import xla
from topos.emission.xla import launch, stretch, worker
Backend.STABLEHLO.status()
print([name for name in ("jax", "jaxlib") if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"
