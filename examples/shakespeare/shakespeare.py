"""A character model of Shakespeare's plays, of today's parts: rotary positions, grouped keys, RMS norms, gated layers.

Each of the blocks reads by attention, in which four query heads share two heads of keys and values, and then by a layer
with a gate. The letters that are read are also those that are scored: one table. One spec holds the training step, the
loss on a stretch of text held out, and `decode`: one letter at a time for several rows, whose keys and values are
inputs that the entry carries from letter to letter.

Prints the loss as it falls, steps per second, letters drawn per second, and what it writes; draws `shakespeare.png`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from topos import (
    AdamW,
    Attention,
    Embedding,
    KeyValueCache,
    Linear,
    Module,
    Plan,
    RmsNorm,
    Rotary,
    State,
    Symbol,
    Tape,
    Value,
    causal_mask,
    cross_entropy,
    data,
    detach,
    init,
    parameters,
    schedule,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
import fetch  # noqa: E402


class Size(NamedTuple):
    """The extents of the model: how many letters it looks back on, and how wide and deep it is."""

    tokens: int = 128
    width: int = 128
    heads: int = 4
    blocks: int = 4


class Block(Module):
    """`[..., tokens, width]` to the same: what attention and then a gated layer read is added."""

    def __init__(self, tape: Tape, width: int, heads: int, groups: int, rotary: Rotary, seed: int, name: str) -> None:
        weights = init.normal(seed, 0.02)
        self.first_norm, self.second_norm = (
            RmsNorm(tape, width, name=f"{name}.{at}_norm") for at in ("first", "second")
        )
        self.attention = Attention(
            tape, width, heads, weights, groups=groups, bias=False, rotary=rotary, name=f"{name}.attention"
        )
        self.gate, self.wide = (
            Linear(tape, width, 3 * width, weights, bias=False, name=f"{name}.{part}") for part in ("gate", "wide")
        )
        self.narrow = Linear(tape, 3 * width, width, weights, bias=False, name=f"{name}.narrow")

    def express(self, x: Value, where: Value) -> Value:
        return self._read(x + self.attention(self.first_norm(x), where=where))

    def decode(self, x: Value, at: Value, cache: KeyValueCache) -> tuple[Value, dict[Value, Value]]:
        """One more token, at the place that `at` names: what becomes of it, and of the keys and values."""
        attended, carry = self.attention.decode(self.first_norm(x), at, cache)
        return self._read(x + attended), carry

    def _read(self, x: Value) -> Value:
        normal = self.second_norm(x)
        return x + self.narrow(self.gate(normal).silu() * self.wide(normal))


class Writer(Module):
    """Scores of the next letter, `[..., tokens, letters]`, from the ids of letters."""

    def __init__(self, tape: Tape, letters: int, size: Size, seed: int) -> None:
        tokens, width, heads, blocks = size
        self.letters = Embedding(tape, letters, width, init.normal(seed, 0.02), name="letters")
        rotary = Rotary(tape, tokens, width // heads, name="rotary")
        self.blocks = [
            Block(tape, width, heads, heads // 2, rotary, seed + 1 + at, f"blocks.{at}") for at in range(blocks)
        ]
        self.norm = RmsNorm(tape, width, name="norm")

    def express(self, ids: Value, rows: int, tokens: int) -> Value:
        x = self.letters(ids, [rows, tokens])
        where = x.tape.leaf(causal_mask(tokens))
        for block in self.blocks:
            x = block(x, where)
        return self.letters.score(self.norm(x))

    def decode(self, ids: Value, rows: int, at: Value, caches: list[KeyValueCache]) -> tuple[Value, dict[Value, Value]]:
        x, carry = self.letters(ids, [rows, 1]), {}
        for block, cache in zip(self.blocks, caches, strict=True):
            x, moved = block.decode(x, at, cache)
            carry |= moved
        return self.letters.score(self.norm(x)), carry


class Language(NamedTuple):
    """The caller's state, and the plans over it."""

    state: State
    train: Plan
    measure: Plan
    decode: Plan
    loss: Symbol
    measured: Symbol
    likely: Symbol


class Learned(NamedTuple):
    """The loss of every step, the held-out losses as (step, loss), and what was written."""

    losses: np.ndarray
    held_out: list[tuple[int, float]]
    written: list[str]


def record(size: Size, letters: int, batch: int, measured: int, drawn: int, seed: int) -> Language:
    tape, (tokens, width, heads, blocks) = Tape(), size
    net = Writer(tape, letters, size, seed)

    def loss_of(name: str, rows: int) -> Value:
        with tape.scope(name):
            before, after = (tape.selection([rows, tokens], letters, name=part) for part in ("before", "after"))
        return cross_entropy(net(before, rows, tokens), after)

    loss, dev_loss = loss_of("train", batch), loss_of("measure", measured)
    matrices = {symbol for symbol in parameters(net) if tape.resolve(symbol).shape.rank == 2}
    optimizer = AdamW(decay=0.1).step_where(matrices.__contains__, AdamW(decay=0.0))  # norms do not decay
    update = optimizer.record(tape, tape.differentiate(loss, parameters(net)))
    update.rate.named("rate")
    with tape.scope("decode"):
        ids, at = tape.selection([drawn], letters, name="ids"), tape.selection([1], tokens, name="at")
        shape = [drawn, heads // 2, tokens, width // heads]
        caches = [KeyValueCache(tape, shape, name=f"cache.{block}") for block in range(blocks)]
    scores, kept = net.decode(ids, drawn, at, caches)
    likely = scores.reshape([drawn, letters]).softmax(1)
    loss, dev_loss, likely, carry, kept = detach(loss, dev_loss, likely, update.carry, kept)
    network = tape.into_network()
    return Language(
        network.state(),
        network.entry(loss).carry(carry).lower(),
        network.entry(dev_loss).lower(),
        network.entry(likely).carry(kept).lower(),
        *(loss, dev_loss, likely),
    )


def write(language: Language, letters: data.Vocabulary, start: str, rows: int, tokens: int, seed: int) -> list[str]:
    """`rows` stretches of text that go on from `start`, drawn letter by letter."""
    random = np.random.Generator(np.random.PCG64(seed))
    text = np.zeros((rows, tokens), int)
    text[:, : len(start)] = letters.ids(start)
    started = time.perf_counter()
    for place in range(tokens - 1):
        feeds = {"decode.ids": text[:, place], "decode.at": [place]}
        likely = language.decode.advance(language.state, feeds).of(language.likely).numpy()
        if place + 1 >= len(start):
            below = np.cumsum(likely, axis=1, dtype=np.float64)
            text[:, place + 1] = (below < random.random((rows, 1)) * below[:, -1:]).sum(1)
    print(f"{rows * (tokens - 1) / (time.perf_counter() - started):,.0f} letters drawn per second")
    return [letters.text(row) for row in text]


def draw(path: Path, learned: Learned, uniform: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    steps = np.arange(1, len(learned.losses) + 1)
    window = max(1, len(steps) // 40)
    smooth = np.convolve(learned.losses, np.full(window, 1 / window), mode="valid")
    axes.plot(steps, learned.losses, color="#b8cbe0", linewidth=0.5)
    axes.plot(steps[window - 1 :], smooth, color="#1f5a99", linewidth=1.8, label=f"mean of the last {window}")
    axes.plot(*zip(*learned.held_out, strict=True), "o-", color="#c2571a", ms=4, label="held out", clip_on=False)
    axes.axhline(uniform, color="#555555", linestyle="--", linewidth=1, label=f"uniform: {uniform:.4f}")
    axes.set(xlabel="training step", ylabel="cross-entropy per letter (nats)", xlim=(0, len(steps)))
    axes.set_title("A character model of Shakespeare's plays", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(loc="center right", edgecolor="none", framealpha=0.9)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(
    text: str | Path | None = None,
    steps: int = 1500,
    together: int = 25,
    batch: int = 8,
    size: Size | None = None,
    rate: float = 0.003,
    measured: int = 32,
    drawn: int = 3,
    picture: str | Path = "shakespeare.png",
    seed: int = 1616,
) -> Learned:
    plays = data.read_text(text if text is not None else fetch.folder("shakespeare") / "shakespeare.txt")
    letters = data.Vocabulary.of(plays)
    ids = letters.ids(plays)
    held_out, trained_on = ids[: len(ids) // 20], ids[len(ids) // 20 :]
    print(f"{len(ids):,} letters, {len(letters)} different ones")
    size = size or Size()
    language, tokens = record(size, len(letters), batch, measured, drawn, seed), size.tokens
    weights = language.state.parameters().payloads()
    print(f"{sum(tensor.shape.volume for tensor in weights if tensor is not None):,} weights")

    random = np.random.Generator(np.random.PCG64(seed))
    pace = schedule.warmup(steps // 20, schedule.cosine(rate, steps, rate / 20))
    starts = np.linspace(0, len(held_out) - tokens - 1, measured).astype(int)
    dev = {"measure.before": _rows(held_out, starts, tokens), "measure.after": _rows(held_out, starts + 1, tokens)}
    losses, curve, elapsed = np.zeros(steps, np.float32), [], 0.0
    language.train.prepare()
    with tqdm(total=steps, unit="step", desc="training", mininterval=1) as progress:
        for start in range(0, steps, together):
            part = slice(start, min(start + together, steps))
            places = random.integers(len(trained_on) - tokens - 1, size=(part.stop - start, batch))
            feeds = {
                "train.before": _rows(trained_on, places, tokens),
                "train.after": _rows(trained_on, places + 1, tokens),
                "rate": np.array([pace(step) for step in range(start, part.stop)]),
            }
            started = time.perf_counter()
            losses[part] = language.train.advance(language.state, feeds, steps=len(places)).of(language.loss).numpy()
            elapsed += time.perf_counter() - started
            progress.update(len(places))
            if start // together % 10 == 9 or part.stop == steps:
                curve.append((part.stop, float(language.measure.forward(language.state, dev).of(language.measured))))
                progress.set_postfix_str(f"loss {losses[part].mean():.3f}, held out {curve[-1][1]:.3f}")
    uniform = float(np.log(len(letters)))
    print(f"loss per letter: uniform {uniform:.4f}, held out {curve[-1][1]:.4f}")
    print(f"{steps / elapsed:,.0f} steps of {batch * tokens:,} letters per second")
    learned = Learned(losses, curve, write(language, letters, "\n\n", drawn, tokens, seed))
    for stretch in learned.written:
        print("---", stretch.strip(), sep="\n")
    draw(Path(picture), learned, uniform)
    print(f"picture: {picture}")
    return learned


def _rows(ids: np.ndarray, starts: np.ndarray, tokens: int) -> np.ndarray:
    """`tokens` ids from each of some places, as a last axis."""
    return ids[starts[..., None] + np.arange(tokens)]


if __name__ == "__main__":
    try:
        main()
    except fetch.Absent as error:
        sys.exit(f"shakespeare: {error}")
