"""The neural tier: facades over the public surface alone; a hand-written equivalent records the same text.

Reading order: `module` (what a model is made of), `sources` (where its parameters are recorded), then the layers,
losses, optimizers and files, in any order.
"""

from topos.neural import init
from topos.neural.adam import Adam, AdamW
from topos.neural.linear import Linear
from topos.neural.module import Module, named_parameters, parameters
from topos.neural.optimizer import Optimizer, Update
from topos.neural.sgd import Sgd

__all__ = [
    "Adam",
    "AdamW",
    "Linear",
    "Module",
    "Optimizer",
    "Sgd",
    "Update",
    "init",
    "named_parameters",
    "parameters",
]
