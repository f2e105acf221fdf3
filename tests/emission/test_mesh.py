"""How a module says where its sources lie: named axes of a mesh, in Shardy's words and in older ones."""

from typing import Any

import numpy as np
import pytest

from topos import EmissionError, Plan, Tape
from topos.emission.mesh import Layout


def step(tape: Tape) -> Any:
    table = tape.parameter(np.ones((3, 2)), name="table")
    picked = table.gather(tape.selection([2, 2], vocab=3, absent=-1, name="ids"))
    rate = tape.input(0.1, name="rate")
    loss = (picked * picked).sum()
    ((_, slope),) = tape.differentiate(loss, [table])
    return loss, {table: table - rate.broadcast([3, 2]) * slope}


def plan() -> Plan:
    network, (loss, carry) = Tape.record(step)
    return network.entry(loss).carry(carry).lower()


MESH = {"data": 2, "model": 2}
SHARDINGS = {"ids": (None, "data"), "table": (None, "model")}


def test_shardy_names_the_axes() -> None:
    """A result that replaces a source lies as that does; a declared one lies everywhere."""
    text = plan().emit_stablehlo(mesh=MESH, shardings=SHARDINGS)
    assert text.splitlines()[1:3] == [
        '  sdy.mesh @mesh = <["data"=2, "model"=2]>',
        '  func.func @main(%arg0: tensor<3x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}, '
        '%arg1: tensor<2x2xi32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"data"}]>}, '
        "%arg2: tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) -> "
        "(tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}, "
        'tensor<3x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}) {',
    ]
    assert text.splitlines()[3:] == plan().emit_stablehlo().splitlines()[2:]


def test_older_words_number_the_devices() -> None:
    text = plan().emit_stablehlo(mesh=MESH, shardings=SHARDINGS, shardy=False)
    tiles = "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"
    ids = "{devices=[1,2,2]<=[4] last_tile_dim_replicate}"
    assert text.splitlines()[1] == (
        f'  func.func @main(%arg0: tensor<3x2xf32> {{mhlo.sharding = "{tiles}"}}, '
        f'%arg1: tensor<2x2xi32> {{mhlo.sharding = "{ids}"}}, '
        f'%arg2: tensor<f32> {{mhlo.sharding = "{{replicated}}"}}) -> '
        f'(tensor<f32> {{mhlo.sharding = "{{replicated}}"}}, tensor<3x2xf32> {{mhlo.sharding = "{tiles}"}}) {{'
    )


@pytest.mark.parametrize(
    ("axes", "cuts", "tiles"),
    [
        ({"a": 4}, (("a",), ()), "{devices=[4,1]<=[4]}"),
        ({"a": 4}, ((), ("a",)), "{devices=[1,4]<=[4]}"),
        ({"a": 4}, ((), ()), "{replicated}"),
        ({"a": 4, "b": 1}, (("b",), ()), "{replicated}"),
        ({"a": 2, "b": 3}, (("a",), ("b",)), "{devices=[2,3]<=[6]}"),
        ({"a": 2, "b": 3}, (("b",), ("a",)), "{devices=[3,2]<=[2,3]T(1,0)}"),
        ({"a": 2, "b": 3}, (("a", "b"),), "{devices=[6]<=[6]}"),
        ({"a": 2, "b": 3}, (("b", "a"),), "{devices=[6]<=[2,3]T(1,0)}"),
        ({"a": 2, "b": 3, "c": 5}, (("c",), ("a",)), "{devices=[5,2,3]<=[2,3,5]T(2,0,1) last_tile_dim_replicate}"),
    ],
)
def test_tiles_of_device_numbers(axes: dict[str, int], cuts: Any, tiles: str) -> None:
    layout = Layout(axes, {}, is_shardy=False)
    assert layout.attribute(cuts) == f'mhlo.sharding = "{tiles}"'
    assert layout.header() == []


@pytest.mark.parametrize(
    ("mesh", "shardings", "message"),
    [
        (None, {"table": (None, "a")}, "shardings name axes of a mesh; give mesh={name: extent}"),
        ({}, None, "mesh wants a mapping from axis names to extents, got {}"),
        (4, None, "mesh wants a mapping from axis names to extents, got 4"),
        ({"a b": 2}, None, "a mesh axis is named by a word, got 'a b'"),
        ({"a": 0}, None, "mesh axis 'a' wants an extent of at least 1, got 0"),
        ({"a": True}, None, "mesh axis 'a' wants an extent of at least 1, got True"),
        ({"a": 2}, [("a",)], "shardings wants a mapping from symbols or names to axes, got list"),
        ({"a": 2}, {"nobody": ()}, "shardings: no node is named 'nobody'"),
        ({"a": 2}, {3: ()}, "shardings: wants a symbol, got int"),
        (
            {"a": 2},
            {"table": (None,)},
            "shardings: %0 Parameter [3, 2] 'table' at: wants 2 entries, one for each axis, got 1",
        ),
        (
            {"a": 2},
            {"table": "ab"},
            "shardings: %0 Parameter [3, 2] 'table' at: wants a tuple with a mesh axis or None for each axis, got 'ab'",
        ),
        (
            {"a": 2},
            {"table": (1, None)},
            "shardings: %0 Parameter [3, 2] 'table' at: wants a mesh axis, a tuple of them or None for each axis, "
            "got 1",
        ),
        (
            {"a": 2, "b": 1},
            {"table": (None, "c")},
            "shardings: %0 Parameter [3, 2] 'table' at: no mesh axis is called 'c'; there are a=2, b=1",
        ),
        (
            {"a": 2},
            {"table": ("a", None)},
            "shardings: %0 Parameter [3, 2] 'table' at: axis 0 of extent 3 is not divisible by mesh axis a=2",
        ),
        (
            {"a": 2, "b": 2},
            {"ids": (None, ("a", "b"))},
            "shardings: %1 Input [4, 3] 'ids' at (selection): axis 1 of extent 2 is not divisible by mesh axis "
            "a=2 x b=2",
        ),
        (
            {"a": 2},
            {"ids": ("a", "a")},
            "shardings: %1 Input [4, 3] 'ids' at (selection): mesh axis 'a' cuts it twice",
        ),
    ],
)
def test_what_does_not_fit_is_named(mesh: Any, shardings: Any, message: str) -> None:
    with pytest.raises(EmissionError) as caught:
        plan().emit_stablehlo(mesh=mesh, shardings=shardings)
    place = next((word for word in str(caught.value).split() if "test_mesh.py:" in word), "at")
    ends = ":" if place.endswith(":") else ""
    assert str(caught.value).replace(place, f"at{ends}") == f"emit_stablehlo: {message}"


def test_only_sources_are_cut_and_each_once() -> None:
    network, (weights, constant, root) = Tape.record(
        lambda tape: [x := tape.parameter([1.0, 2.0], name="x"), y := tape.leaf([3.0, 4.0]), x * y]
    )
    lowered = network.entry(root).lower()
    for symbol in (constant, root):
        with pytest.raises(EmissionError, match="is no parameter and no input$"):
            lowered.emit_stablehlo(mesh={"a": 2}, shardings={symbol: ("a",)})
    with pytest.raises(EmissionError, match="is named twice$"):
        lowered.emit_stablehlo(mesh={"a": 2}, shardings={weights: ("a",), "x": ("a",)})
    other, foreign = Tape.record(lambda tape: tape.parameter(1.0))
    with pytest.raises(EmissionError):
        lowered.emit_stablehlo(mesh={"a": 2}, shardings={foreign: ()})


def test_a_source_that_the_plan_does_not_read_may_be_named() -> None:
    network, (unread, read) = Tape.record(lambda tape: [tape.parameter([1.0], name="unread"), tape.parameter(2.0) * 2])
    text = network.entry(read).lower().emit_stablehlo(mesh={"a": 1}, shardings={unread: ("a",)})
    assert "%arg1" not in text


@pytest.mark.parametrize("shardy", [True, False])
def test_others_parse_it(engines: Any, shardy: bool) -> None:
    engines.run("verify", plan().emit_stablehlo(mesh=MESH, shardings=SHARDINGS, shardy=shardy))
