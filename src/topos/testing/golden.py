"""Texts that are kept in files and compared byte for byte."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path


def assert_golden(text: str, path: str | os.PathLike[str], update: bool = False) -> None:
    """`path` holds exactly `text` and one final newline, in UTF-8; `update` writes it so instead.

    Raises `AssertionError` with a diff from the file to the text, or where there is no such file.
    """
    __tracebackhide__ = True
    file = Path(path)
    actual = f"{text}\n".encode()
    if update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(actual)
        return
    if not file.exists():
        raise AssertionError(f"golden: no file {file}; pytest --update-golden writes it")
    expected = file.read_bytes()
    if actual != expected:
        raise AssertionError("\n".join([f"golden: the text differs from {file.name}", *_diff(expected, actual)]))


def _diff(expected: bytes, actual: bytes) -> Iterator[str]:
    return difflib.unified_diff(_lines(expected), _lines(actual), "expected", "actual", lineterm="")


def _lines(raw: bytes) -> list[str]:
    """The lines of a file; one in which a difference could hide (blanks at the end, controls) is shown as a literal."""
    *lines, rest = raw.decode(errors="backslashreplace").split("\n")
    shown = [line if line.isprintable() and line == line.rstrip() else repr(line) for line in lines]
    return [*shown, f"{rest!r} without a newline"] if rest else shown
