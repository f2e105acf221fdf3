"""The neural tier: facades over the public surface alone; a hand-written equivalent records the same text.

Reading order: `module` (what a model is made of), `sources` (where its parameters are recorded), then the layers,
losses, optimizers and files, in any order.
"""

from topos.neural import data, init
from topos.neural.linear import Linear
from topos.neural.losses import binary_cross_entropy, cross_entropy, huber, mean_absolute_error, mean_squared_error
from topos.neural.module import Module, named_parameters, parameters

__all__ = [
    "Linear",
    "Module",
    "binary_cross_entropy",
    "cross_entropy",
    "data",
    "huber",
    "init",
    "mean_absolute_error",
    "mean_squared_error",
    "named_parameters",
    "parameters",
]
