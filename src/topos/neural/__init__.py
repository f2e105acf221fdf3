"""The neural tier: facades over the public surface alone; a hand-written equivalent records the same text.

Reading order: `module` (what a model is made of), `sources` (where its parameters are recorded), then the layers,
losses, optimizers and files, in any order.
"""

from topos.neural import init, schedule
from topos.neural.accumulation import Accumulation, accumulate
from topos.neural.adafactor import Adafactor
from topos.neural.adam import Adam, AdamW
from topos.neural.clipping import clip_by_global_norm
from topos.neural.linear import Linear
from topos.neural.lion import Lion
from topos.neural.module import Module, named_parameters, parameters
from topos.neural.optimizer import Optimizer, Update
from topos.neural.sgd import Sgd

__all__ = [
    "Accumulation",
    "Adafactor",
    "Adam",
    "AdamW",
    "Linear",
    "Lion",
    "Module",
    "Optimizer",
    "Sgd",
    "Update",
    "accumulate",
    "clip_by_global_norm",
    "init",
    "named_parameters",
    "parameters",
    "schedule",
]
