"""Elementwise instructions, whose bodies are read, and the casts."""

from __future__ import annotations

from topos.emission.site import Site
from topos.emission.text import Named
from topos.op import Select


def elementwise(site: Site) -> Named:
    """The instruction's own body, over the element's arithmetic as text."""
    operands = [site.dense(position) for position in range(1, len(site.operands))]
    first = site.mask() if isinstance(site.opcode, Select) else site.dense()
    result: Named = site.opcode.body(site.arithmetic, first, *operands)
    return result


def cast(site: Site) -> Named:
    """The operand in the node's element."""
    result = site.words.convert(site.dense(), site.type)
    if site.contract.rounded is None or site.elements[0] is site.element:
        return result
    rounded: Named = site.contract.rounded(site.words, result)
    return rounded
