"""The names by which specs are inspected, lowered, emitted and extended: a map over those of `topos`.

Inspect with `Network.nodes` and `describe`; lower with `Entry` and `Plan`; emit with `Plan.emit_stablehlo`; extend
with an `Element`, a `Backend`, or a payload of your own over `Recordable`. Errors are in `topos` and in `topos.errors`;
modules, optimizers and files in `topos.model`.
"""

from topos import reference
from topos.backend import (
    Backend,
    Coverage,
    Declined,
    Dispatch,
    Fidelity,
    Formula,
    Outline,
    Status,
    Stretch,
    Task,
    compiles,
    threads,
)
from topos.element import Element, Emittable, Native, bf16, f32, f64
from topos.engine import BoundEntry, Entry, Numerics, Pattern, Plan, Run, State
from topos.errors import ToposError
from topos.graph import Field, Network, Node, Parameters, Symbol, Tape, Trace, Value, detach
from topos.op import Composites, MapOperation, Opcode, Recordable
from topos.shape import Shape
from topos.storage import Loaded, TensorFile, load, load_tensors, save, save_tensors
from topos.tensor import Services, Tensor

__all__ = [
    "Backend",
    "BoundEntry",
    "Composites",
    "Coverage",
    "Declined",
    "Dispatch",
    "Element",
    "Emittable",
    "Entry",
    "Fidelity",
    "Field",
    "Formula",
    "Loaded",
    "MapOperation",
    "Native",
    "Network",
    "Node",
    "Numerics",
    "Opcode",
    "Outline",
    "Parameters",
    "Pattern",
    "Plan",
    "Recordable",
    "Run",
    "Services",
    "Shape",
    "State",
    "Status",
    "Stretch",
    "Symbol",
    "Tape",
    "Task",
    "Tensor",
    "TensorFile",
    "ToposError",
    "Trace",
    "Value",
    "bf16",
    "compiles",
    "detach",
    "f32",
    "f64",
    "load",
    "load_tensors",
    "reference",
    "save",
    "save_tensors",
    "threads",
]
