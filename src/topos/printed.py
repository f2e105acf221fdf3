"""How the walkthrough is laid out: paragraphs within a width, readings and code set in, numbers and their bits."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from topos import Tensor

WIDTH = 100


def told(introduction: str, *parts: str) -> str:
    """A section: its title, then prose and indented parts, a blank line between each two."""
    title, _, rest = textwrap.dedent(introduction).strip().partition("\n")
    return "\n\n".join(
        [f"{title}\n{filled(rest)}", *(part if part.startswith(" ") else filled(part) for part in parts)]
    )


def filled(prose: str) -> str:
    """A paragraph within the width of the page."""
    return textwrap.fill(" ".join(prose.split()), WIDTH, break_on_hyphens=False)


def shown(reading: str) -> str:
    """A reading, set in."""
    return textwrap.indent(reading, "    ")


def code(function: Callable[..., Any]) -> str:
    """The source of a function, set in, without its docstring of one line."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    return shown("\n".join(line for line in lines if '"""' not in line))


def numbers(tensor: Tensor) -> str:
    """A tensor's numbers in one line, in the digits that tell its element's numbers apart."""
    return " ".join(str(tensor.numpy()).split()).replace("[ ", "[").replace(" ]", "]")


def bits(tensor: Tensor) -> str:
    """A tensor's numbers as the hexadecimal digits of their bits."""
    array = tensor.numpy()
    return " ".join(f"{pattern:0{2 * array.itemsize}x}" for pattern in array.reshape(-1).view(f"u{array.itemsize}"))
