"""Initialisers: closures from a shape and an element to a payload, the same bits on every machine.

Reading order: `seeded` (what they have in common; `stream`, beside this package, is what they draw from), then the
distributions.
"""

from topos.neural.init.constants import constant, ones, zeros
from topos.neural.init.distributions import dropout, normal, truncated_normal, uniform
from topos.neural.init.fans import Fans, fans, kaiming, xavier
from topos.neural.init.orthogonal import orthogonal
from topos.neural.init.seeded import Keyed, Seeded
from topos.neural.stream import Stream

__all__ = [
    "Fans",
    "Keyed",
    "Seeded",
    "Stream",
    "constant",
    "dropout",
    "fans",
    "kaiming",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "xavier",
    "zeros",
]
