"""Powers of two to a multiple of 1/16: a table of sixteen, and whole powers by the exponent of its entries.

The multiple `k` comes as `shifted = k + STEP_ROUND`, whose bits count sixteenths: the last four choose the entry, and
all of them, moved up to where the exponent begins, are added to its bits. The fraction of that sum is not the
exponent's, so the entries hold that much less.
"""

from __future__ import annotations

from struct import pack, unpack

from topos.element import coefficients as c
from topos.element.steps import ROUND
from topos.element.vocabulary import Table, Value, Vocabulary

STEP_ROUND = ROUND / 16.0
"""`(x + STEP_ROUND) - STEP_ROUND` is `x` rounded to a multiple of 1/16."""


def steps(name: str, factor: float) -> Table:
    """`factor 2^(i/16)` for `i = 0 .. 15`, as `power_of_two_by_steps` wants them."""
    return Table(name, lambda: tuple(lessened(factor * power, i) for i, power in enumerate(c.POWERS_OF_TWO)))


def lessened(number: float, sixteenths: int) -> float:
    """The number whose bits are those of `number` less so many sixteenths of an exponent."""
    (pattern,) = unpack("<q", pack("<d", number))
    (result,) = unpack("<d", pack("<q", pattern - (sixteenths << 48)))
    return float(result)


def power_of_two_by_steps(m: Vocabulary, table: Table, shifted: Value) -> Value:
    """The table's factor times `2^k`, for `|k| < 1000`."""
    count = m.bits(shifted)
    return m.real(m.bits(m.lookup(table, count)) + (count << 48))
