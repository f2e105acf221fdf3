"""The contract by which programs over an element are emitted: what its numbers are there, and how it spells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

TYPES = ("bf16", "f16", "f32", "f64")
"""The types of numbers that emitted text may have."""


@dataclass(frozen=True, eq=False)
class Emittable:
    """What an element's numbers are in emitted text, and how its operations are written there.

    Set as `emittable` on an `Element`. `type` is one of StableHLO, whose NumPy dtype has to be the element's. Without
    `bodies` an operation is the one of that type, whose result `rounded(m, x)` then makes a number of the element; an
    entry of `bodies`, under the name of the element's method (`"mul"`, `"exp"`), stands instead of both. `m` writes:
    each method of an element (`m.add(left, right)`) is one of its methods, and `m.number(2.0, x)` a constant like `x`.
    Sums and products of an element that accumulates in one that rounds so, or writes its own sums, are not emitted.
    """

    type: str
    rounded: Callable[[Any, Any], Any] | None = None
    bodies: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(f"emittable: type is one of {', '.join(TYPES)}, got {self.type!r}")

    @property
    def is_plain(self) -> bool:
        """Whether its operations are those of its type."""
        return self.rounded is None and not self.bodies
