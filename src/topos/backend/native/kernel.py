"""A kernel: LLVM text for one group of a plan, and how many pieces its work falls into."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from topos.records import NamedTuple

PARAMETERS = "ptr %arguments, i64 %tile, i64 %worker"
"""What every kernel's function takes."""


class Kernel(NamedTuple):
    """One function `void @name(PARAMETERS)` and what it needs.

    `%arguments` is an array of pointers: the operands' buffers, then the results', then one scratch buffer of
    `scratch_bytes` where that is not 0. Shapes and strides are literals in `text`, so equal work prints an equal
    kernel. Any order and any number of threads may run the tiles `0 .. tiles - 1`; none writes what another one reads.
    `%worker` tells threads that run tiles of one call at the same time apart, and is below `tiles`.
    `helpers` are further definitions and declarations that the text needs, each by its first line, so that a module
    holds one of each.
    """

    name: str
    text: str
    tiles: int
    scratch_bytes: int = 0
    helpers: tuple[str, ...] = ()

    def internal(self, attribute: str, further: str = "") -> str:
        """The text as a function of the module's own, `noinline` or `alwaysinline`.

        It has one `i64` more to be given, where `further` is its name there.
        """
        begin, more = f"void @{self.name}({PARAMETERS}", f", i64 {further}" if further else ""
        return self.text.replace(f"define {begin})", f"define internal {begin}{more}) {attribute}", 1)


def head(name: str) -> str:
    """How the definition of a kernel's function begins, after the word itself."""
    return f"void @{name}({PARAMETERS}) nounwind"


def named(
    stem: str, body: Callable[[str], str], tiles: int, scratch_bytes: int = 0, helpers: tuple[str, ...] = ()
) -> Kernel:
    """A kernel named by its own text: `body(name)` writes the definition of `@name`."""
    text = body(NAME)
    name = f"{stem}_{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
    return Kernel(name, text.replace(NAME, name), tiles, scratch_bytes, helpers)


NAME = "kernel.to.be.named"
"""What stands in a text for the kernel's own name until that is known."""
