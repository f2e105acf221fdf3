"""The two maps over the public names: what one reads to make models, and what to read the stack by."""

import subprocess
import sys
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


def test_the_neural_tier_is_imported_for_the_first_of_its_names() -> None:
    code = (
        "import sys, topos; before = 'topos.neural' in sys.modules, {*topos.__all__, 'neural'} <= set(dir(topos));"
        "print(*before, topos.Adam is topos.neural.Adam, 'Adam' in vars(topos))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True", "True", "True"]
    with pytest.raises(AttributeError, match="^module 'topos' has no attribute 'adam'$"):
        topos.adam  # noqa: B018
