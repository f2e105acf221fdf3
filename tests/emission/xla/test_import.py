"""jax is imported when something is compiled, and not before; and every public name stands on its page."""

import subprocess
import sys
from pathlib import Path

from topos.emission import xla


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


def test_every_name_stands_on_its_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "emission.md").read_text(encoding="utf-8")
    names = {name: f"`{name}(" for name in xla.__all__} | {
        "Executable": "An\nexecutable",
        "Processes": "`rank`, `total`",
    }
    assert [name for name, mention in names.items() if mention not in page] == []
