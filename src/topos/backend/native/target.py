"""The processor that kernels are written for: what decides their shape, and never their bits."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """A processor as LLVM names it (`znver5`, `x86-64-v3`), its vector width and whether it has fused multiply-add."""

    cpu: str
    features: str
    vector_bytes: int
    has_fma: bool

    def lanes(self, item_bytes: int) -> int:
        """How many numbers of a size fill one register."""
        return self.vector_bytes // item_bytes
