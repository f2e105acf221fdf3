"""The neural tier: facades over the public surface alone; a hand-written equivalent records the same text.

Reading order: `module` (what a model is made of), `sources` (where its parameters are recorded), then the layers,
losses, optimizers and files, in any order.
"""

from topos.neural import checkpoint, data, init, schedule
from topos.neural.accumulation import Accumulation, accumulate
from topos.neural.activation import Activation
from topos.neural.adafactor import Adafactor
from topos.neural.adam import Adam, AdamW
from topos.neural.attention import causal_mask, scaled_dot_product
from topos.neural.batch_norm import BatchNorm
from topos.neural.branches import Parallel, Residual
from topos.neural.clipping import clip_by_global_norm
from topos.neural.convolution import Conv1d, Conv2d, conv1d, conv2d
from topos.neural.dropout import Dropout
from topos.neural.embedding import Embedding
from topos.neural.heads import Attention, KeyValueCache
from topos.neural.linear import Linear, Mlp
from topos.neural.lion import Lion
from topos.neural.losses import binary_cross_entropy, cross_entropy, huber, mean_absolute_error, mean_squared_error
from topos.neural.module import Module, named_parameters, parameters
from topos.neural.norms import GroupNorm, LayerNorm, RmsNorm
from topos.neural.optimizer import Optimizer, Update
from topos.neural.pools import average_pool, global_average_pool, global_max_pool, max_pool
from topos.neural.positions import Positions, Rotary, sinusoids
from topos.neural.sequential import Sequential
from topos.neural.sgd import Sgd

__all__ = [
    "Accumulation",
    "Activation",
    "Adafactor",
    "Adam",
    "AdamW",
    "Attention",
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "KeyValueCache",
    "LayerNorm",
    "Linear",
    "Lion",
    "Mlp",
    "Module",
    "Optimizer",
    "Parallel",
    "Positions",
    "Residual",
    "RmsNorm",
    "Rotary",
    "Sequential",
    "Sgd",
    "Update",
    "accumulate",
    "average_pool",
    "binary_cross_entropy",
    "causal_mask",
    "checkpoint",
    "clip_by_global_norm",
    "conv1d",
    "conv2d",
    "cross_entropy",
    "data",
    "global_average_pool",
    "global_max_pool",
    "huber",
    "init",
    "max_pool",
    "mean_absolute_error",
    "mean_squared_error",
    "named_parameters",
    "parameters",
    "scaled_dot_product",
    "schedule",
    "sinusoids",
]
