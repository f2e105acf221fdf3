"""Renders README.md and docs/: runs every Python block and writes what it printed below it; fills the generated tables.

    python scripts/documentation.py [page ...]  rewrites the pages in place, all of them where none is named
    python scripts/documentation.py --check     says which page is stale, and exits 1

A page is its own source. The blocks of one page run in order and share their names, as one program in pieces; lines are
counted from 1 in each block. A `text` block below a Python block is its output. A block marked `python raises` ends in
an error, whose name and message are its output. One marked `python xla` is a program of its own, run in another process
where the extra `xla` is installed, and left as it stands elsewhere. `documentation_tables` makes what stands between
`<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documentation_tables import TABLES

ROOT = Path(__file__).parents[1]
PROGRAM = "model.py"
"""The file that the blocks are taken to stand in: what recording lines and error messages name."""

BLOCK = re.compile(
    r"^```python(?P<mark> raises| xla)?\n(?P<code>.*?)^```\n(?:\n?```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL
)
GENERATED = re.compile(r"^<!-- generated: (?P<name>\w+) -->\n.*?^<!-- end -->\n", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page, the README first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def rendered(text: str) -> str:
    """The page with its tables filled and its outputs as they are now."""
    namespace: dict[str, Any] = {"__name__": "model"}
    filled = GENERATED.sub(_table, text)
    return BLOCK.sub(lambda block: _with_output(block, namespace), filled)


def _table(place: re.Match[str]) -> str:
    name = place["name"]
    if name not in TABLES:
        raise SystemExit(f"documentation: no table is called {name!r}; there are {', '.join(TABLES)}")
    return f"<!-- generated: {name} -->\n\n{TABLES[name]()}\n\n<!-- end -->\n"


def _with_output(block: re.Match[str], namespace: dict[str, Any]) -> str:
    code, mark = block["code"], block["mark"] or ""
    if mark == " xla":
        if importlib.util.find_spec("jax") is None:
            return block[0]
        output = _output_elsewhere(code)
    else:
        output = _output(code, bool(mark), namespace)
    shown = f"\n```text\n{output}\n```\n" if output else ""
    return f"```python{mark}\n{code}```\n{shown}"


def _output(code: str, raises: bool, namespace: dict[str, Any]) -> str:
    """What a block prints, and the error that it was marked to end in."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        try:
            exec(compile(code, PROGRAM, "exec", dont_inherit=True), namespace)
        except Exception as error:
            if not raises:
                raise
            print(f"{type(error).__name__}: {error}")
        else:
            if raises:
                raise AssertionError(f"a block marked `raises` raised nothing:\n{code}")
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip("\n").split("\n"))


def _output_elsewhere(code: str) -> str:
    """What a block prints as a program of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"a block marked `xla` failed:\n{code}\n{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.rstrip("\n").split("\n"))


def stale(page: Path) -> Iterator[str]:
    """A diff from the page to what it should be; nothing where it is up to date."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    return difflib.unified_diff(text.split("\n"), rendered(text).split("\n"), name, f"{name}, rendered", lineterm="")


def main() -> int:
    """Renders, or checks."""
    parser = argparse.ArgumentParser(description="Render README.md and docs/ from the code.")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 where a page is stale")
    parser.add_argument("pages", nargs="*", type=Path, help="which pages; all where none is named")
    options = parser.parse_args()
    check, found = options.check, False
    for page in [page.resolve() for page in options.pages] or pages():
        difference = list(stale(page))
        if not difference:
            continue
        found = True
        if check:
            print("\n".join(difference))
        else:
            page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")
            print(f"rendered {page.relative_to(ROOT)}")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
