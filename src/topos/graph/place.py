"""Where in the user's program a node was recorded: kept as code and offset, turned into file and line when asked."""

from __future__ import annotations

import os
import sys
from types import CodeType

Place = tuple[CodeType, int, str]
"""The user's code, the offset of the instruction in it, and the name of the topos function it called."""

RECORDED = os.environ.get("TOPOS_LOCATIONS", "1") != "0"

_package = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_inside: dict[str, bool] = {}


def here() -> Place | None:
    """The innermost frame outside the stages of topos, with the function of topos that it called.

    `None` where locations are switched off (`TOPOS_LOCATIONS=0`) or there is no such frame.
    """
    if not RECORDED:
        return None
    frame = sys._getframe(1)
    called = frame
    while True:
        code = frame.f_code
        inside = _inside.get(code.co_filename)
        if inside is None:
            inside = _inside[code.co_filename] = _is_stage(code.co_filename)
        if not inside:
            return code, frame.f_lasti, called.f_code.co_name
        called = frame
        if frame.f_back is None:
            return None
        frame = frame.f_back


def _is_stage(filename: str) -> bool:
    try:
        path = os.path.abspath(filename)
    except OSError:  # `<string>`, and a working folder that is gone
        return False
    return path.startswith(_package) and os.sep in path[len(_package) :]


def line(place: Place | None) -> str:
    """`model.py:41`, the path relative to the working folder where it lies below it; empty where unknown."""
    if place is None:
        return ""
    code, offset, _ = place
    path = code.co_filename
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):  # another drive, or a working folder that is gone
        relative = path
    number = code.co_firstlineno
    for start, end, found in code.co_lines():
        if start <= offset < end and found is not None:
            number = found
    return f"{path if relative.startswith(os.pardir) else relative}:{number}"


def described(place: Place | None, rule: str) -> str:
    """The line, and the function of topos where it is another than the instruction's own: `model.py:41 (softmax)`."""
    if place is None:
        return ""
    called = place[2]
    own = called.startswith("__") or called == rule
    return line(place) if own else f"{line(place)} ({called})"
