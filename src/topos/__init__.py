"""An autodiff compiler stack: record a graph, inspect it, differentiate it, compile it, emit it."""

from topos import reference
from topos._version import __version__
from topos.element import Element, bf16, f32, f64
from topos.engine import BoundEntry, Entry, Finding, Gradients, Numerics, Plan, Report, Run, State
from topos.errors import (
    ConsumedError,
    ElementError,
    ExactnessError,
    FeedError,
    KinshipError,
    PostureError,
    RecordedError,
    SealedError,
    ShapeError,
    ToposError,
    UnobservedError,
)
from topos.graph import Adjoints, Field, Network, Node, Parameters, Symbol, Tape, Trace, Value, detach
from topos.op import Composites, MapOperation, Opcode, Recordable, concat, einsum, stack, where
from topos.shape import Shape
from topos.tensor import Tensor

__all__ = [
    "Adjoints",
    "BoundEntry",
    "Composites",
    "ConsumedError",
    "Element",
    "ElementError",
    "Entry",
    "ExactnessError",
    "FeedError",
    "Field",
    "Finding",
    "Gradients",
    "KinshipError",
    "MapOperation",
    "Network",
    "Node",
    "Numerics",
    "Opcode",
    "Parameters",
    "Plan",
    "PostureError",
    "Recordable",
    "RecordedError",
    "Report",
    "Run",
    "SealedError",
    "Shape",
    "ShapeError",
    "State",
    "Symbol",
    "Tape",
    "Tensor",
    "ToposError",
    "Trace",
    "UnobservedError",
    "Value",
    "__version__",
    "bf16",
    "concat",
    "detach",
    "einsum",
    "f32",
    "f64",
    "reference",
    "stack",
    "where",
]
