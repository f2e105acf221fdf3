"""The closed instruction set, grouped by kind, and what may call it."""

from topos.op.composites import Composites
from topos.op.contraction import MATMUL, MatMul
from topos.op.elementwise import (
    ADD,
    DIV,
    MAXIMUM,
    MUL,
    NEG,
    POWF,
    SELECT,
    STEP,
    STOP,
    SUB,
    Add,
    Cast,
    Div,
    Elementwise,
    Maximum,
    Mul,
    Neg,
    Powf,
    Select,
    Step,
    Stop,
    Sub,
)
from topos.op.functions import concat, einsum, stack, where
from topos.op.indexing import GATHER, SCATTER, Gather, Indexing, Scatter
from topos.op.maps import MAPS, Map, MapOperation
from topos.op.movement import Broadcast, BroadcastAlong, Movement, Narrow, Pad, Permute, Reshape, Unfold
from topos.op.opcode import Opcode
from topos.op.recordable import Recordable
from topos.op.reduction import SUM, Fold, LogSoftmax, LogSumExp, MaxAlong, Reduction, Sum, SumAlong
from topos.op.source import INPUT, LEAF, PARAMETER, Input, Leaf, Parameter, Source

__all__ = [name for name in dir() if not name.startswith("_") and name[0].isupper()] + [
    "concat",
    "einsum",
    "stack",
    "where",
]
