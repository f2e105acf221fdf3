"""What is found in the examples."""

from collections.abc import Callable
from types import ModuleType

from topos import Formula, Tape


def test_the_letters_and_the_loss_of_makemore(example: Callable[[str], ModuleType]) -> None:
    makemore = example("makemore/mlp")

    def record(tape: Tape) -> object:
        weights = makemore.record_weights(tape, 10, 20, 0)
        loss = makemore.record_loss(tape, weights, 8) / 8
        return loss, tape.differentiate(loss, weights)

    network, (loss, adjoints) = Tape.record(record)
    plan = network.entry([loss, *adjoints.roots()]).lower()
    assert sorted(pattern.kind for pattern in plan.patterns(Formula)) == [
        "cross entropy",
        "cross entropy gradient",
        "embedding",
        "embedding gradient",
    ]
