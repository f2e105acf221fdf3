"""A plan as StableHLO text, for parsers, interpreters and compilers that are not ours. Needs no dependency.

In reading order: `text` (named values and who writes them), `literals` (constants), `words` (an element's arithmetic),
`site` (a node and its operands), one file per kind of instruction, `sources`, `mesh` (how sources lie on devices), and
`module`, which is the whole. `xla` runs a plan's text on XLA, which is an extra.
"""

from topos.emission.mesh import layout
from topos.emission.module import emitted
from topos.emission.signs import Signs

__all__ = ["Signs", "emitted", "layout"]
