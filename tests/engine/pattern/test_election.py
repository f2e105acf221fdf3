"""What a consumer takes of the candidates, and what a plan says of it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Backend, Coverage, Dispatch, Fidelity, Formula, Numerics, Pattern, Plan, Tape, Value, bf16, f32
from topos.backend.task import Declined
from topos.engine.pattern.elect import elect
from topos.engine.pattern.pool import pooled
from topos.errors import SettingError

from .compositions import Sources, attention, batch, convolution, layer, recorded


def one(plan: Plan, *formulas: Formula) -> Pattern:
    (pattern,) = plan.patterns(formulas or Formula)
    return pattern


class Fuses(Backend):
    """Says that it computes compositions as a whole, and then declines."""

    name = "FUSES"
    dispatch = Dispatch.TRANSLATED
    precisions: Any = (f32,)
    fidelity = Fidelity.BIT_IDENTICAL

    def coverage(self, formula: Formula) -> Coverage | None:
        composed = formula not in (Formula.GEMM, Formula.MAP, Formula.SUM, Formula.MOVE, Formula.REDUCE)
        return Coverage(self.fidelity, self.precisions) if composed else None

    def offer(self, task: Any) -> Declined:
        return Declined("it only says so")


# what a plan says


def test_a_plan_describes_what_it_fuses(golden: Callable[[str, str], None]) -> None:
    network, result = recorded(attention("selected"))
    golden(network.entry(result).backends([Fuses()]).lower().describe(), "plan_fused.txt")


def test_two_groups_are_counted_and_the_weights_are_not() -> None:
    def record(tape: Tape) -> Any:
        source = Sources(tape)
        return convolution()(source), layer(source)

    network, results = Tape.record(record)
    plan = network.entry(list(results)).backends([Fuses()]).lower()
    assert [pattern.kind for pattern in plan.patterns()] == ["window product", "layer norm"]
    replaced = sum(line.endswith("fused") for line in plan.describe().splitlines())
    assert plan.describe().splitlines()[-2] == f"fused 2 groups, {replaced} nodes replaced"


def test_a_plan_that_fuses_nothing_says_nothing() -> None:
    network, result = recorded(convolution())
    for entry in (
        network.entry(result).backends([]),
        network.entry(result).backends([Fuses()]).backward(),
        network.entry(result).backends([Fuses()]).diagnose(),
    ):
        assert "fused" not in entry.lower().describe()
        assert entry.lower().patterns() == []


def test_patches_that_are_not_stored_are_not_counted() -> None:
    network, result = recorded(convolution(shape=(1, 1, 5, 5)))
    plain, fused = (network.entry(result).backends(chain).lower() for chain in ([], [Fuses()]))
    volumes = {symbol.index: volume for symbol, volume in fused.live_series()}
    # picture and kernel, the kernel as a matrix and transposed, and the 9 by 4 product; not the 9 by 9 patches
    (pattern,) = fused.patterns()
    assert [node.opcode.name for node in fused.nodes() if node.symbol in pattern.nodes] == [
        *("Unfold", "Unfold", "Permute", "Reshape", "MatMul"),
    ]
    assert volumes[pattern.root.index] == 25 + 36 + 36
    assert max(volume for _, volume in plain.live_series()) > max(volumes.values())
    assert [symbol for symbol, _ in plain.live_series()] == [symbol for symbol, _ in fused.live_series()]


def test_an_operand_lives_until_the_match_has_read_it() -> None:
    network, result = recorded(attention())
    plan = network.entry(result).backends([Fuses()]).lower()
    pattern = one(plan, Formula.ATTENTION)
    lines = {int(line.split()[0]): line for line in plan.describe().splitlines()[:-3]}
    for operand in pattern.operands.values():
        assert lines[operand.index].endswith(f"freed after {pattern.root.index}")


# results that are written back


def statistics(observe: bool) -> tuple[Plan, dict[str, Any]]:
    """A normalisation whose mean and variance move what is kept of them, and are observed on request."""

    def record(tape: Tape) -> Any:
        source = Sources(tape)
        x, kept = source(20, 3), tape.input(np.zeros(3))
        mean = x.mean_along(0)
        centred = x - mean.broadcast_along(0, 20)
        variance = (centred * centred).mean_along(0)
        normal = centred / (variance + 1e-5).sqrt().broadcast_along(0, 20)
        return normal, mean, variance, centred, {kept: kept * 0.9 + mean * 0.1}

    network, (normal, mean, variance, centred, moved) = Tape.record(record)
    entry = network.entry(normal).carry(moved).backends([Fuses()])
    plan = (entry.observe([mean, variance]) if observe else entry).lower()
    return plan, {"mean": mean, "variance": variance, "normal": normal, "centred": centred}


@pytest.mark.parametrize("observe", [False, True])
def test_statistics_are_written_back(observe: bool) -> None:
    plan, symbols = statistics(observe)
    pattern = one(plan)
    assert (pattern.kind, pattern.root) == ("batch norm training", symbols["normal"])
    assert pattern.results["mean"] == symbols["mean"] and pattern.results["variance"] == symbols["variance"]
    fates = {int(line.split()[0]): line.split("  ")[-1] for line in plan.describe().splitlines()[:-3]}
    assert fates[symbols["mean"].index] == ("kept" if observe else fates[symbols["mean"].index])
    assert fates[symbols["mean"].index] != "fused"
    assert fates[symbols["variance"].index] == ("kept" if observe else "fused")
    assert fates[symbols["centred"].index] == "fused"


def test_all_results_are_there_at_once() -> None:
    plan, symbols = statistics(True)
    volumes = {symbol.index: volume for symbol, volume in plan.live_series()}
    # what is kept, the operand, mean, variance and the whole result, at the first of them
    assert volumes[symbols["mean"].index] == 3 + 60 + 3 + 3 + 60
    assert volumes[symbols["variance"].index] <= volumes[symbols["mean"].index]


def test_a_gain_that_hangs_on_a_result_is_left_out() -> None:
    def record(tape: Tape) -> Any:
        x = Sources(tape)(6, 3)
        mean = x.mean_along(0)
        centred = x - mean.broadcast_along(0, 6)
        normal = centred / ((centred * centred).mean_along(0) + 1e-5).sqrt().broadcast_along(0, 6)
        return normal * mean.tanh().broadcast_along(0, 6), normal

    network, (result, normal) = Tape.record(record)
    pattern = one(network.entry(result).lower())
    assert (pattern.kind, pattern.root, set(pattern.operands)) == ("batch norm training", normal, {"operand"})


# what stands in the way


@pytest.mark.parametrize("how", ["root", "observe", "carry"])
def test_a_declared_interior_is_a_barrier(how: str) -> None:
    def record(tape: Tape) -> Any:
        source = Sources(tape)
        x, held = source(2, 3, 6), tape.input(shape=[2, 3, 5, 2])
        windows = x.unfold(2, 2)
        return windows.permute([0, 2, 1, 3]).reshape([10, 6]) @ source(6, 4), windows, held

    network, (result, windows, held) = Tape.record(record)
    entry = network.entry([result, windows] if how == "root" else result)
    entry = entry.observe(windows) if how == "observe" else entry
    entry = entry.carry({held: windows}) if how == "carry" else entry
    assert entry.lower().patterns(Formula) == []
    assert one(network.entry(result).lower()).kind == "window product"


def test_what_is_read_outside_the_schedule_is_no_barrier() -> None:
    network, (result, _, gradients) = recorded(layer, gradients=True)
    assert one(network.entry(result).lower()).kind == "layer norm"
    (alone,) = (p for p in network.entry(gradients[0]).lower().patterns(Formula) if p.kind == "layer norm gradient")
    assert set(alone.results) == {"operand gradient"}


def test_a_match_without_the_one_that_works_its_rows_out_again_declines() -> None:
    """The gradient reads what the forward match would not store: either both are taken, or the gradient alone."""
    network, (_, loss, gradients) = recorded(layer, gradients=True)
    plan = network.entry([loss, gradients]).lower()
    assert plan.patterns([Formula.LAYER_NORM]) == []
    assert one(plan, Formula.LAYER_NORM_GRADIENT).kind == "layer norm gradient"
    both = plan.patterns([Formula.LAYER_NORM, Formula.LAYER_NORM_GRADIENT])
    assert [pattern.kind for pattern in both] == ["layer norm", "layer norm gradient"]


def test_the_largest_is_taken_first_and_none_overlap() -> None:
    network, (_, loss, gradients) = recorded(batch, gradients=True)
    plan = network.entry([loss, gradients]).lower()
    kinds = [match.kind for match in pooled(network.spec, len(network))]
    assert kinds.count("batch norm training") == 3 and "RMS norm" not in kinds
    assert [pattern.kind for pattern in plan.patterns(Formula)] == [
        "batch norm training",
        "batch norm training gradient",
    ]
    assert set(plan.patterns(Formula)[0].operands) == {"operand", "gain", "bias"}


def test_what_is_padded_with_another_number_is_read_as_it_is() -> None:
    def record(tape: Tape) -> Any:
        source = Sources(tape)
        padded = source(2, 6).pad(1, 1, 8, 1.0)
        windows = padded.unfold(1, 3)
        return padded, windows.reshape([12, 3]) @ source(3, 4), windows.max_along(2)

    network, (padded, product, pool) = Tape.record(record)
    for result in (product, pool):
        assert one(network.entry(result).lower()).operands["operand"] == padded


def test_candidates_do_not_depend_on_who_asks() -> None:
    network, result = recorded(convolution())
    matches = pooled(network.spec, len(network))
    rows, scheduled = network.spec.rows, range(len(network))
    assert elect(rows, scheduled, matches, ["ATTENTION"], {result.index}).matches == ()
    (match,) = elect(rows, scheduled, matches, ["WINDOW_PRODUCT"], {result.index}).matches
    assert match in matches


# whose repertoire


def test_the_elements_and_the_numerics_are_asked() -> None:
    class Rough(Fuses):
        fidelity = Fidelity.ENVELOPE

    class Narrow(Fuses):
        precisions = (bf16,)

    network, result = recorded(convolution())
    entry = network.entry(result)
    assert [len(entry.backends([kind()]).lower().patterns()) for kind in (Fuses, Rough, Narrow)] == [1, 1, 0]
    assert entry.backends([Rough()]).numerics(Numerics.EXACT).lower().patterns() == []


def test_who_is_asked_for_single_instructions_fuses_nothing() -> None:
    class Offers(Fuses):
        dispatch = Dispatch.OFFERED

    network, result = recorded(convolution())
    assert network.entry(result).backends([Offers()]).lower().patterns() == []


def test_an_election_hangs_on_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    network, result = recorded(convolution())
    texts = [network.entry(result).lower().describe()]
    for name, value in (("TOPOS_NATIVE", "0"), ("TOPOS_BACKENDS", "BLAS,STABLEHLO"), ("TOPOS_BACKENDS", "nobody")):
        monkeypatch.setenv(name, value)
        texts.append(network.entry(result).lower().describe())
    assert len(set(texts)) == 1


# as data


def test_one_formula_may_stand_alone() -> None:
    network, result = recorded(convolution())
    plan = network.entry(result).lower()
    assert plan.patterns(Formula.WINDOW_PRODUCT) == plan.patterns("WINDOW_PRODUCT") == plan.patterns(Formula)
    assert plan.patterns("ATTENTION") == plan.patterns([]) == []


def test_what_is_no_formula_is_refused() -> None:
    network, result = recorded(convolution())
    with pytest.raises(SettingError) as caught:
        network.entry(result).lower().patterns("attention")
    assert str(caught.value) == "patterns: no formula is called 'attention'; topos.Formula has them all"


def test_a_pattern_is_data() -> None:
    network, result = recorded(convolution(stride=(2, 1), padding=(1, 2)))
    pattern = one(network.entry(result).lower())
    assert pattern.kind == "window product" and pattern.formula == Formula.WINDOW_PRODUCT
    assert [network.node(node).opcode.name for node in pattern.nodes] == [
        *("Pad", "Pad", "Unfold", "Unfold", "Permute", "Reshape", "MatMul"),
    ]
    assert pattern.nodes[-1] == pattern.root
    assert [tuple(window) for window in pattern.parameters["windows"]] == [(2, 3, 2, 1, 1, 1), (3, 3, 1, 1, 2, 2)]
    rows, terms = pattern.parameters["axes"]
    assert rows == ((0, "whole"), (2, "count"), (3, "count"))
    assert terms == ((1, "whole"), (2, "offset"), (3, "offset"))
    assert {name: network.node(symbol).opcode.name for name, symbol in pattern.operands.items()} == {
        "operand": "Parameter",
        "kernel": "Permute",
    }


@pytest.mark.parametrize(
    ("mask", "told"),
    [("selected", "kept where it is set"), ("added", "added"), ("", None)],
    ids=["selected", "added", ""],
)
def test_the_mask_of_attention(mask: str, told: str | None) -> None:
    network, result = recorded(attention(mask))
    pattern = one(network.entry(result).lower())
    assert pattern.parameters.get("mask") == told
    assert pattern.parameters["scale"] == 0.5
    if told:
        assert network.node(pattern.operands["mask"]).shape == [5, 7]
        assert pattern.parameters["mask_axes"] == (0, 1)


def test_a_gradient_takes_up_what_others_have_given() -> None:
    """The operand is read by somebody else too, whose cotangent came first."""

    def record(tape: Tape) -> Any:
        source = Sources(tape)
        result: Value = layer(source)
        x = source.drawn[0]
        loss = (result * x.tanh()).sum() + (x * x).sum()
        return loss, tape.differentiate(loss, [x]).of(x)

    network, (loss, gradient) = Tape.record(record)
    found = {pattern.kind: pattern for pattern in network.entry([loss, gradient]).lower().patterns(Formula)}
    assert "operand gradient before" in found["layer norm gradient"].operands
