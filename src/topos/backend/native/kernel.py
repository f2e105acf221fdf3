"""A kernel: LLVM text for one group of a plan, and how many pieces its work falls into."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from topos.records import NamedTuple

PARAMETERS = "ptr %arguments, i64 %tile, i64 %worker"
"""What every kernel's function takes."""

_INTERNAL = re.compile(r"^define internal [^@\n]*@([\w.$-]+)\(", re.MULTILINE)
_NAME = re.compile(r"@([\w.$-]+)")


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

    def internal(self, further: str) -> str:
        """The text as a function of the module's own, with one `i64` more to be given; `further` is its name there."""
        begin = f"void @{self.name}({PARAMETERS}"
        return self.text.replace(f"define {begin})", f"define internal {begin}, i64 {further}) noinline", 1)

    def inlined(self) -> str:
        """The text as a function of the module's own that is written out where it is called.

        What attributes it has where a table calls it are left out. What else the text defines is named after the
        kernel: others in the module may have functions of the same names, a cascade its stages.
        """
        begin = f"void @{self.name}({PARAMETERS})"
        before, _, rest = self.text.partition(f"define {begin}")
        text = f"{before}define internal {begin} alwaysinline nounwind {{{rest.partition('{')[2]}"
        own = {*_INTERNAL.findall(self.text)}
        return _NAME.sub(lambda name: f"@{self.name}.{name[1]}" if name[1] in own else name[0], text) if own else text


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
