"""What native code says that it computes as a whole, it does: nothing inside is stored."""

from typing import Any

import numpy as np
import pytest

from topos import Network, Plan, Symbol, Tape, Value
from topos.backend import llvm_kernels


def convolution(tape: Tape) -> Value:
    windows = tape.input(np.ones((2, 3, 8)), name="x").unfold(2, 3).permute([0, 2, 1, 3]).reshape([12, 9])
    return windows @ tape.parameter(np.ones((9, 4)))


def attention(tape: Tape) -> Value:
    query, key, value = (tape.parameter(np.ones((2, 5, 4))) for _ in range(3))
    return (query @ key.transpose()).softmax(2) @ value


def norm(tape: Tape) -> Value:
    x = tape.parameter(np.arange(24.0).reshape(4, 6))
    centred = x - x.mean_along(1).broadcast_along(1, 6)
    return centred / ((centred * centred).mean_along(1) + 1e-5).sqrt().broadcast_along(1, 6)


def pool(tape: Tape) -> Value:
    return tape.parameter(np.arange(96.0).reshape(2, 8, 6)).unfold(2, 2, 2).unfold(1, 2, 2).max_along(4).max_along(2)


def entropy(tape: Tape) -> Value:
    labels = tape.selection([4], vocab=3)
    return -labels.select(tape.parameter(np.ones((4, 3))).log_softmax(1), 0.0).sum() / 4


EVERY = [convolution, attention, norm, pool, entropy]


def plans(compose: Any) -> list[Plan]:
    """The composition alone, and with the gradients of its parameters."""

    def record(tape: Tape) -> Any:
        result = compose(tape)
        parameters = [tape.resolve(node.symbol) for node in tape.nodes() if node.opcode.name == "Parameter"]
        return result, tape.differentiate(result.sum(), parameters)

    recorded: tuple[Network, tuple[Symbol, Any]] = Tape.record(record)
    network, (result, adjoints) = recorded
    return [network.entry(roots).lower() for roots in (result, [result, *adjoints.roots()])]


def stored_inside(plan: Plan) -> list[str]:
    """What a plan says it does not store, and stores."""
    fused = {int(line.split()[0]) for line in plan.describe().splitlines() if line.endswith("fused")}
    if not fused:
        return []
    text = plan.explain()
    groups = [line for line in text.splitlines() if "  stores " in line]
    assert groups, text
    stores = {int(row) for line in groups for row in line.partition("  stores ")[2].split("  ")[0].split(", ")}
    return sorted(f"%{row}" for row in fused & stores)


@pytest.mark.parametrize("compose", EVERY)
def test_nothing_inside_is_stored(compose: Any) -> None:
    for plan in plans(compose):
        assert stored_inside(plan) == []


def test_the_check_finds_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_kernels.Fused, "stores", lambda self, task: {})
    plan, _ = plans(attention)
    assert [pattern.kind for pattern in plan.patterns()] == ["attention"]
    assert len(stored_inside(plan)) > 0
