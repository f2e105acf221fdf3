"""One weight's step by an optimizer's rule, in whichever reading: over tensors it computes, over values it records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from topos.element import Element, f32
from topos.errors import ElementError, KinshipError, SettingError, ShapeError
from topos.graph import Adjoints, Tape, Value
from topos.op import Recordable
from topos.tensor import Tensor

if TYPE_CHECKING:
    from topos.neural.optimizer import Optimizer


def stepped(
    rule: Optimizer, weight: Any, gradient: Any, kept: Mapping[str, Any], common: Mapping[str, Any], label: str
) -> tuple[Any, dict[str, Any]]:
    """The weight after a step and what is kept, computed wide and rounded once to what each was.

    `label` is the weight for people. Raises `ShapeError`, `ElementError` or `KinshipError` for a gradient that does
    not fit the weight and for a rule that answers something else than it started with.
    """
    wide, called = working(weight), rule.name
    if gradient.shape != weight.shape:
        raise ShapeError(f"{called}: {label} has shape {weight.shape}, its gradient {gradient.shape}")
    if gradient.element not in (weight.element, wide):
        raise ElementError(f"{called}: {label} is of {weight.element}, its gradient of {gradient.element}")
    after, left = _answered(rule, rule.update(weight.to(wide), gradient.to(wide), widened(kept, wide), common))
    if left.keys() != kept.keys():
        raise KinshipError(f"{called}: {label} keeps {_listed(kept)}, the rule answered {_listed(left)}")
    answer = _as(weight, after, f"{called}: {label}")
    return answer, {name: _as(kept[name], left[name], f"{called}: {name!r} of {label}") for name in kept}


def _answered(rule: Optimizer, answer: Any) -> tuple[Any, Mapping[str, Any]]:
    """What a rule answered, once it is a weight and what is kept by name."""
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Mapping):
        raise KinshipError(f"{rule.name}: update answers a weight and what is kept by name, got {answer!r:.60}")
    for part in (answer[0], *answer[1].values()):
        if not isinstance(part, Recordable):
            raise ElementError(f"{rule.name}: update answers tensors or values, as it is given, got {part!r:.60}")
    return answer


def live_pairs(tape: Tape, adjoints: Adjoints, called: str) -> list[tuple[Value, Value]]:
    """Each entry of adjoints, live or detached, with its gradient, once and in recording order."""
    if not isinstance(adjoints, Adjoints):
        raise KinshipError(f"{called}: wants Adjoints, which tape.differentiate answers, got {type(adjoints).__name__}")
    found = sorted(dict(adjoints.detach()).items(), key=lambda pair: pair[0].index)
    return [(tape.resolve(wrt), tape.resolve(gradient)) for wrt, gradient in found]


def rate_in(optimizer: Optimizer, rate: Any, wide: Element) -> Tensor:
    """The rate in a working element. Raises `ShapeError` or `SettingError` where it is no number."""
    if callable(rate):
        raise SettingError(
            f"{optimizer.name}: the rate is a number, got a function; a schedule answers one: rate(step)"
        )
    found = rate.to(wide) if isinstance(rate, Tensor) else Tensor(rate, wide)
    if found.shape.rank:
        raise ShapeError(f"{optimizer.name}: the rate has rank 0, got shape {found.shape}")
    return found


def widened(numbers: Mapping[str, Any], wide: Element) -> dict[str, Any]:
    """Every number in another element."""
    return {name: number.to(wide) for name, number in numbers.items()}


def widest(numbers: Iterable[Any], common: Element = f32) -> Element:
    """The working element among these numbers' own that holds the others' numbers; `common`'s where there is none."""
    found = [working(number) for number in numbers] or [_working(common)]
    return max(found, key=lambda element: element.dtype.itemsize)


def working(number: Any) -> Element:
    """What a rule computes in for a tensor or value: the accumulator of its element (f32 for bf16).

    A user's accumulator may know sums and products alone: there it is the element itself.
    """
    return _working(number.element)


def _working(element: Element) -> Element:
    return element.accumulator if element.accumulator.ieee else element


def _as(before: Any, after: Any, what: str) -> Any:
    if after.shape != before.shape:
        raise ShapeError(f"{what} has shape {before.shape}, the rule answered {after.shape}")
    return after.to(before.element)


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
