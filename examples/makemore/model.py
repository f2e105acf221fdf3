"""The model that `adam.py`, `compiled.py` and `parallel.py` train: an embedding of three letters and a tanh layer."""

from __future__ import annotations

from names import CLASSES

from topos import Activation, Embedding, Mlp, Module, Tape, Value, cross_entropy, init

CONTEXT = 3


class NameModel(Module):
    """Scores `[batch, 27]` for the next letter, from the ids `[batch, 3]` of the letters before it."""

    def __init__(self, tape: Tape, embedding: int = 10, hidden: int = 200, seed: int = 27) -> None:
        self.embedding = Embedding(tape, CLASSES, embedding, init.normal(seed, 1.0), name="embedding")
        extents = [CONTEXT * embedding, hidden, CLASSES]
        self.layers = Mlp(tape, extents, Activation("tanh"), init.kaiming(seed + 1), name="layers")

    def express(self, context: Value) -> Value:
        letters = self.embedding(context)  # [batch * 3, embedding]
        width = letters.shape[1] * CONTEXT
        return self.layers(letters.reshape([letters.shape.volume // width, width]))


def loss_of(tape: Tape, model: Module, batch: int, absent: int | None = None) -> Value:
    """The mean cross-entropy of a batch, fed as `context` and `target`; rows of the id `absent` do not count."""
    context = tape.selection((batch, CONTEXT), CLASSES, absent=absent, name="context")
    target = tape.selection((batch,), CLASSES, absent=absent, name="target")
    return cross_entropy(model(context), target)
