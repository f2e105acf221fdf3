"""The spec: recorded on a tape, sealed into a network, named by symbols."""

from topos.graph.adjoints import Adjoints
from topos.graph.detach import detach
from topos.graph.network import Network
from topos.graph.node import Node
from topos.graph.symbol import Family, Symbol
from topos.graph.table import Field, Parameters, Table
from topos.graph.tape import Tape
from topos.graph.value import Trace, Value

__all__ = [
    "Adjoints",
    "Family",
    "Field",
    "Network",
    "Node",
    "Parameters",
    "Symbol",
    "Table",
    "Tape",
    "Trace",
    "Value",
    "detach",
]
