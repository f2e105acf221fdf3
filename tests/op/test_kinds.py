"""Facts per kind of instruction."""

from __future__ import annotations

import pytest

from topos.op import Elementwise, Map, Opcode
from topos.op.elementwise import Add
from topos.op.kinds import ByKind
from topos.op.maps import Exp


def test_a_class_has_the_fact_of_its_nearest_base() -> None:
    facts = ByKind[str]({Opcode: "any", Elementwise: "place by place", Map: "of one"})
    assert [facts[kind] for kind in (Add, Exp, Map, Opcode)] == ["place by place", "of one", "of one", "any"]


def test_a_class_without_such_a_base_has_none() -> None:
    facts = ByKind[str]({Map: "of one"})
    with pytest.raises(KeyError, match="Add"):
        facts[Add]
    assert Add not in facts
