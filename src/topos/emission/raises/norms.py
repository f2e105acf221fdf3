"""Normalisation over a batch as the operations that StableHLO has for it."""

from __future__ import annotations

import numpy as np

from topos.emission import literals
from topos.emission.raises.raising import Raising, shaped
from topos.emission.text import Named
from topos.engine.pattern.match import Match
from topos.graph.spec import Spec

HANDED = {"operand gradient", "gain gradient", "bias gradient"}
"""What a gradient of a norm may hand out for there to be one operation for it."""


def is_spelled(spec: Spec, match: Match) -> bool:
    """Whether the operation says the same: its epsilon is a binary32, and the composition reads all that it reads."""
    operands, epsilon = match.operands, match.parameters["epsilon"]
    if float(np.float32(epsilon)) != epsilon or "operand" not in operands:
        return False
    channels = spec.rows[operands["operand"]].shape[feature(spec, match)]
    affine = [operands[name] for name in ("gain", "bias", "mean", "variance", "deviation") if name in operands]
    if any(spec.rows[row].shape.volume != channels for row in affine):
        return False
    if not match.formula.endswith("GRADIENT"):
        return True
    return operands.keys() >= {"cotangent", "mean", "deviation"} and match.results.keys() <= HANDED


def feature(spec: Spec, match: Match) -> int:
    """The axis of the channels: the one that is not summed."""
    axes = spec.rows[match.operands["operand"]].shape.axes
    (axis,) = set(axes).difference(match.parameters["axes"])
    return axis


def training(raising: Raising) -> dict[int, Named]:
    """Each channel by its own mean and variance, and those."""
    words, x = raising.site.words, raising.operand("operand")
    gain, bias = _channels(raising, "gain", 1.0), _channels(raising, "bias", -0.0)
    normal, mean, variance = _several(
        raising, "batch_norm_training", [x, gain, bias], {"normal": x, "mean": gain, "variance": gain}
    )
    values = {"mean": mean, "variance": variance}
    if raising.match.results.get("deviation") in raising.handed:
        epsilon = words.number(raising.match.parameters["epsilon"], variance, "epsilon")
        values["deviation"] = words.sqrt(words.add(variance, epsilon))
    return {raising.match.root: normal, **raising.named(values)}


def inference(raising: Raising) -> dict[int, Named]:
    """Each channel by a mean and a variance that are given."""
    x = raising.operand("operand")
    given = [_channels(raising, "gain", 1.0), _channels(raising, "bias", -0.0)]
    given += [_channels(raising, "mean", 0.0), _channels(raising, "variance", 1.0)]
    return raising.alone(_several(raising, "batch_norm_inference", [x, *given], {"normal": x})[0])


def training_gradient(raising: Raising) -> dict[int, Named]:
    """The gradients of what was normalised, of its gain and of its bias, by the mean and the deviation."""
    words, x = raising.site.words, raising.operand("operand")
    gain, mean, deviation = (_channels(raising, name, 1.0) for name in ("gain", "mean", "deviation"))
    epsilon = words.number(raising.match.parameters["epsilon"], deviation, "epsilon")
    variance = words.sub(words.mul(deviation, deviation), epsilon)
    given = [x, gain, mean, variance, raising.operand("cotangent")]
    made = {"operand gradient": x, "gain gradient": gain, "bias gradient": gain}
    return raising.named(dict(zip(made, _several(raising, "batch_norm_grad", given, made), strict=True)))


def _channels(raising: Raising, name: str, missing: float) -> Named:
    """A number for each channel: what is read under a name, or one that changes nothing."""
    site = raising.site
    channels = raising.operand("operand").shape[feature(raising.spec, raising.match)]
    if name in raising.match.operands:
        return shaped(site, raising.operand(name), [channels], name)
    return site.words.number(missing, Named("", (channels,), site.type), name)


def _several(raising: Raising, operation: str, operands: list[Named], like: dict[str, Named]) -> list[Named]:
    """Writes an operation of several results, each of the type of another value."""
    writer = raising.site.words.writer
    results = [writer.named(name.partition(" ")[0], value.shape, value.type) for name, value in like.items()]
    names, types = (", ".join(getattr(one, fact) for one in results) for fact in ("name", "tensor"))
    signature = writer.signature(operands, results[0]).partition(" -> ")[0]
    given = ", ".join(operand.name for operand in operands)
    epsilon = literals.number(np.float32(raising.match.parameters["epsilon"]))
    attributes = f"epsilon = {epsilon} : f32, feature_index = {feature(raising.spec, raising.match)} : i64"
    answer = f"({types})" if len(results) > 1 else types
    text = f'"stablehlo.{operation}"({given}) <{{{attributes}}}> : {signature} -> {answer}'
    writer.line(results[0]._replace(name=names), text)
    return results
