"""The neural tier: facades over the public surface alone; a hand-written equivalent records the same text.

Reading order: `module` (what a model is made of), `sources` (where its parameters are recorded), then the layers,
losses, optimizers and files, in any order.
"""

from topos.neural import checkpoint, init
from topos.neural.linear import Linear
from topos.neural.module import Module, named_parameters, parameters

__all__ = ["Linear", "Module", "checkpoint", "init", "named_parameters", "parameters"]
