"""The models, each written once over a small vocabulary of which every system has its own reading.

`f` is the vocabulary (`systems/`), `p` holds the trained numbers and `x` what the model is given. A model answers its
result, and what replaces some of `x` for the next step; a system that replaces in place answers nothing there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Answer = tuple[Any, dict[str, Any]]
Values = Mapping[str, Any]


class Extents(NamedTuple):
    """The sizes of a transformer."""

    vocab: int
    context: int
    width: int
    heads: int
    layers: int


def line(f: Any, p: Values, x: Values) -> Answer:
    """The squared error of one multiplication."""
    error = p["w"] * x["x"] - x["y"]
    return error * error, {}


def makemore(f: Any, p: Values, x: Values) -> Answer:
    """The next letter from three: an embedding, a tanh layer, 27 scores."""
    letters = f.rows(p["emb"], x["x"], (32, 30))
    hidden = f.tanh(f.linear(letters, p["hidden.w"], p["hidden.b"]))
    return f.cross_entropy(f.linear(hidden, p["out.w"], p["out.b"]), x["y"]), {}


def mlp(f: Any, p: Values, x: Values) -> Answer:
    """Two relu layers and ten scores."""
    hidden = f.relu(f.linear(x["x"], p["fc1.w"], p["fc1.b"]))
    hidden = f.relu(f.linear(hidden, p["fc2.w"], p["fc2.b"]))
    return f.cross_entropy(f.linear(hidden, p["fc3.w"], p["fc3.b"]), x["y"]), {}


def mnist(f: Any, p: Values, x: Values) -> Answer:
    """Two convolutions with pools, ten scores."""
    hidden = f.images(x["x"])
    for name in ("conv1", "conv2"):
        hidden = f.max_pool(f.relu(f.convolution(hidden, p[f"{name}.w"], p[f"{name}.b"])))
    return f.cross_entropy(f.linear(f.flat(hidden), p["out.w"], p["out.b"]), x["y"]), {}


def cifar(f: Any, p: Values, x: Values) -> Answer:
    """Three convolutions with pools, two of them normalised over the batch, ten scores."""
    hidden, moved = f.images(x["x"]), {}
    for name, norm in (("conv1", "bn1"), ("conv2", "bn2")):
        hidden = f.convolution(hidden, p[f"{name}.w"])
        running = x[f"{norm}.mean"], x[f"{norm}.variance"]
        hidden, following = f.batch_norm(hidden, p[f"{norm}.g"], p[f"{norm}.b"], *running)
        moved |= dict(zip((f"{norm}.mean", f"{norm}.variance"), following, strict=False))
        hidden = f.max_pool(f.relu(hidden))
    hidden = f.max_pool(f.relu(f.convolution(hidden, p["conv3.w"], p["conv3.b"])))
    return f.cross_entropy(f.linear(f.flat(hidden), p["out.w"], p["out.b"]), x["y"]), moved


def _linear(f: Any, p: Values, name: str, value: Any) -> Any:
    return f.linear(value, p[f"{name}.w"], p[f"{name}.b"])


def _norm(f: Any, p: Values, name: str, value: Any) -> Any:
    return f.layer_norm(value, p[f"{name}.g"], p[f"{name}.b"])


def _heads(f: Any, p: Values, name: str, value: Any, heads: int) -> Any:
    return f.heads(_linear(f, p, name, value), heads)


def _feed_forward(f: Any, p: Values, layer: str, value: Any) -> Any:
    inner = f.gelu(_linear(f, p, f"{layer}.fc", _norm(f, p, f"{layer}.ln2", value)))
    return f.kept(value + _linear(f, p, f"{layer}.out", inner))


def _blocks(f: Any, p: Values, extents: Extents, value: Any) -> tuple[Any, list[Any]]:
    """Every layer over whole sequences; also the keys and values of each."""
    cached = []
    for layer in (f"h{at}" for at in range(extents.layers)):
        query, key, content = _heads(f, p, f"{layer}.qkv", _norm(f, p, f"{layer}.ln1", value), extents.heads)
        value = value + _linear(f, p, f"{layer}.proj", f.joined(f.attention(query, key, content)))
        value = _feed_forward(f, p, layer, value)
        cached += [key, content]
    return value, cached


def characters(extents: Extents, f: Any, p: Values, x: Values) -> Answer:
    """A transformer over batches of characters; its head is the embedding."""
    embedded = f.rows(p["wte"], x["x"], (16, extents.context, extents.width))
    value, _ = _blocks(f, p, extents, f.plus_row(embedded, p["wpe"]))
    return f.cross_entropy(f.scores(_norm(f, p, "ln_f", value), p["wte"]), x["y"]), {}


def prefill(extents: Extents, f: Any, p: Values, x: Values) -> Answer:
    """The scores after a whole prompt, and every layer's keys and values."""
    embedded = f.rows(p["wte"], x["x"], (extents.context, extents.width))
    value, cached = _blocks(f, p, extents, embedded + p["wpe"])
    return (f.scores(_norm(f, p, "ln_f", f.last_row(value)), p["wte"]), *cached), {}


def decode(extents: Extents, f: Any, p: Values, x: Values) -> Answer:
    """The scores after one more token, whose keys and values take their place in the caches."""
    shape, moved = (1, extents.width), {}
    value = f.rows(p["wte"], x["token"], shape) + f.rows(p["wpe"], x["position"], shape)
    for layer in (f"h{at}" for at in range(extents.layers)):
        query, key, content = _heads(f, p, f"{layer}.qkv", _norm(f, p, f"{layer}.ln1", value), extents.heads)
        keys = f.placed(x[f"{layer}.keys"], x["position"], key)
        contents = f.placed(x[f"{layer}.values"], x["position"], content)
        value = value + _linear(f, p, f"{layer}.proj", f.joined(f.attention(query, keys, contents, causal=False)))
        value = _feed_forward(f, p, layer, value)
        moved |= {f"{layer}.keys": keys, f"{layer}.values": contents}
    return f.scores(_norm(f, p, "ln_f", value), p["wte"]), moved


def attention(f: Any, p: Values, x: Values) -> Answer:
    """Causal attention of twelve heads between its two projections."""
    query, key, content = _heads(f, p, "qkv", x["x"], 12)
    return _linear(f, p, "proj", f.joined(f.attention(query, key, content))), {}


def core(f: Any, p: Values, x: Values) -> Answer:
    """Causal attention alone."""
    return f.attention(x["q"], x["k"], x["v"]), {}


def chain(f: Any, p: Values, x: Values) -> Answer:
    """An elementwise expression."""
    a, b, c = x["a"], x["b"], x["c"]
    return f.tanh(a * b + c) * a - f.exp(-b * b), {}


def product(f: Any, p: Values, x: Values) -> Answer:
    """One matrix product."""
    return x["a"] @ x["b"], {}


def scored(f: Any, p: Values, x: Values) -> Answer:
    """Every row of a table against one row."""
    return f.scores(x["a"], x["b"]), {}
