"""A plan as StableHLO text, for parsers, interpreters and compilers that are not ours. Needs no dependency.

In reading order: `text` (named values and who writes them), `literals` (constants), `words` (an element's arithmetic),
`site` (a node and its operands), one file per kind of instruction, `sources`, and `module`, which is the whole.
"""

from topos.emission.module import emitted

__all__ = ["emitted"]
