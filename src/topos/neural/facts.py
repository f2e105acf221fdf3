"""What a rule says beside its methods, so that two rules can be told to be the same one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topos.neural.optimizer import Optimizer

_PLAIN = frozenset((bool, int, float, str, type(None)))


def facts_of(rule: Optimizer) -> Hashable | None:
    """The class and the options of a rule; `None` where an option is nothing that can be compared once and for all."""
    options = {name: option for name, option in vars(rule).items() if name != "_slots"}
    if not _PLAIN.issuperset(map(type, options.values())):
        return None
    return type(rule), repr(options)
