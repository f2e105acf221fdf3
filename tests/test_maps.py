"""The two maps over the public names: what one reads to make models, and what to read the stack by."""

from types import ModuleType

import pytest

import topos
from topos import compiler, errors, model


@pytest.mark.parametrize("chart", [model, compiler], ids=["model", "compiler"])
def test_a_map_names_the_same_things(chart: ModuleType) -> None:
    assert chart.__all__ == sorted(set(chart.__all__))
    assert [name for name in chart.__all__ if getattr(chart, name) is not getattr(topos, name)] == []


def test_every_public_name_is_on_a_map() -> None:
    named = {*model.__all__, *compiler.__all__, "__version__"}
    assert set(topos.__all__) - named == {name for name in topos.__all__ if hasattr(errors, name)} - named
    assert named <= set(topos.__all__)


def test_the_neural_tier_is_on_the_map_of_models() -> None:
    assert set(topos.neural.__all__) <= set(model.__all__)
    assert not {"Backend", "Opcode", "Native", "Element"} & set(model.__all__)
