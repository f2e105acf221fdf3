"""The neural tier: facades over the public surface alone; a hand-written equivalent records the same text.

Reading order: `module` (what a model is made of), `sources` (where its parameters are recorded), then the layers,
losses, optimizers and files, in any order.
"""

from topos.neural import init
from topos.neural.activation import Activation
from topos.neural.attention import causal_mask, scaled_dot_product
from topos.neural.batch_norm import BatchNorm
from topos.neural.branches import Parallel, Residual
from topos.neural.convolution import Conv1d, Conv2d, conv1d, conv2d
from topos.neural.dropout import Dropout
from topos.neural.embedding import Embedding
from topos.neural.heads import Attention, KeyValueCache
from topos.neural.linear import Linear, Mlp
from topos.neural.module import Module, named_parameters, parameters
from topos.neural.norms import GroupNorm, LayerNorm, RmsNorm
from topos.neural.pools import average_pool, global_average_pool, global_max_pool, max_pool
from topos.neural.positions import Positions, Rotary, sinusoids
from topos.neural.sequential import Sequential

__all__ = [
    "Activation",
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
    "Mlp",
    "Module",
    "Parallel",
    "Positions",
    "Residual",
    "RmsNorm",
    "Rotary",
    "Sequential",
    "average_pool",
    "causal_mask",
    "conv1d",
    "conv2d",
    "global_average_pool",
    "global_max_pool",
    "init",
    "max_pool",
    "named_parameters",
    "parameters",
    "scaled_dot_product",
    "sinusoids",
]
