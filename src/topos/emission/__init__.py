"""A plan as StableHLO text, for parsers, interpreters and compilers that are not ours. Needs no dependency.

In reading order: `text` (named values and who writes them), `literals` (constants), `words` (an element's arithmetic),
`site` (a node and its operands), one file per kind of instruction, `raises` (compositions as one operation), `sources`,
`mesh` (how sources lie on devices), `attributes` (of arguments and results), and `module`, which is the whole.
`portable` has it in a form for other versions, and `xla` runs it: both need an extra.
"""

from topos.emission.portable import portable

__all__ = ["portable"]
