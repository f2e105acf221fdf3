"""Forward mode as a user's payload: dual numbers that instructions run over, written outside the library.

A `Dual` holds a primal and a tangent, which are any payload: tensors compute, recorded values record, duals nest. It
defines what every payload defines (`apply`, `shape`, `element`, three constants); operators and compositions come with
`Composites`. `Opcode.express` runs one instruction over it, so a walk of `network.nodes()` over duals is forward mode,
over any spec that is already recorded.

Prints the comparison for a polynomial and for a small tanh network: the slope along a direction, eager and recorded
(the same bits); that slope against the reverse gradient contracted with the direction; and a Hessian-vector product by
three routes. On small dyadic numbers the polynomial is exact, so all routes have the same bits; the network rounds
differently in each mode, within the bound that is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from topos import Composites, Element, Network, Opcode, Recordable, Shape, Symbol, Tape, Tensor, detach, f64
from topos.testing import same_bits

LINEAR = {"Sum", "SumAlong", "Broadcast", "BroadcastAlong", "Reshape", "Permute", "Narrow", "Unfold", "Fold", "Cast"}
BY_ROWS = {"Gather", "Scatter"}  # linear in the rows; the ids have no tangent


class Dual(Composites):
    """`primal + tangent * epsilon` with `epsilon * epsilon = 0`; a tangent that is `None` is zero everywhere."""

    __slots__ = ("primal", "tangent")

    def __init__(self, primal: Recordable, tangent: Recordable | None = None) -> None:
        self.primal = primal
        self.tangent = tangent

    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Dual:
        """One instruction: over the primals as it is, and by its linear reading over the tangents."""
        primals = [operand.primal if isinstance(operand, Dual) else self._primal(operand) for operand in operands]
        tangents = [operand.tangent if isinstance(operand, Dual) else None for operand in operands]
        output = opcode.express(primals)
        if all(tangent is None for tangent in tangents):
            return Dual(output)
        return Dual(output, pushed(opcode, primals, tangents, output))

    @property
    def shape(self) -> Shape:
        return self.primal.shape

    @property
    def element(self) -> Element | None:
        return self.primal.element

    def zero_like(self) -> Dual:
        return Dual(self.primal.zero_like())

    def one_like(self) -> Dual:
        return Dual(self.primal.one_like())

    def counted(self, count: int) -> Dual:
        return Dual(self.primal.counted(count))

    def _primal(self, operand: Any) -> Any:
        """A plain number beside a dual, spread over its shape: the branch that is always taken."""
        if isinstance(operand, int | float):
            return self.primal.one_like().select(operand, operand)
        return operand


def pushed(opcode: Opcode, primals: list[Any], tangents: list[Any], output: Any) -> Any:
    """The tangent of the output of one instruction, or `None` where it is zero everywhere."""
    name = opcode.name
    if name in LINEAR:
        return opcode.express(tangents)
    if name in BY_ROWS:
        return opcode.express([tangents[0], primals[1]])
    if name == "MatMul":
        (left, right), (left_tangent, right_tangent) = primals, tangents
        by_left = None if left_tangent is None else left_tangent @ right
        return total([by_left, None if right_tangent is None else left @ right_tangent])
    if name in REDUCTIONS:
        return REDUCTIONS[name](opcode.axis, primals[0], tangents[0], output)
    if name == "Pad":  # whatever the fill is, it does not move
        return tangents[0].pad(opcode.axis, opcode.start, opcode.full_extent)
    # What is left works element by element: its derivative is diagonal, so the reverse rule is the forward rule.
    moving = [(place, tangent) for place, tangent in enumerate(tangents) if tangent is not None]
    return total([opcode.vjp(primals, output, tangent)[place] for place, tangent in moving])


def total(parts: list[Any]) -> Any:
    """The sum of the parts that are not `None`."""
    present = [part for part in parts if part is not None]
    return sum(present[1:], start=present[0]) if present else None


def max_along(axis: int, x: Any, tangent: Any, y: Any) -> Any:
    """The mean over the ties, as the reverse rule splits among them."""
    hit = x.step(y.broadcast_along(axis, x.shape[axis]))
    return hit.select(tangent, tangent.zero_like()).sum_along(axis) / hit.sum_along(axis)


def logsumexp(axis: int, x: Any, tangent: Any, y: Any) -> Any:
    return (tangent * (x - y.broadcast_along(axis, x.shape[axis])).exp()).sum_along(axis)


def log_softmax(axis: int, x: Any, tangent: Any, y: Any) -> Any:
    return tangent - (tangent * y.exp()).sum_along(axis).broadcast_along(axis, x.shape[axis])


REDUCTIONS: dict[str, Callable[[int, Any, Any, Any], Any]] = {
    "MaxAlong": max_along,
    "LogSumExp": logsumexp,
    "LogSoftmax": log_softmax,
}


def walk(network: Network, source: Callable[[Symbol], Any]) -> Mapping[Symbol, Any]:
    """Every node of a spec over the payloads that `source` gives for its sources."""
    values: dict[Symbol, Any] = {}
    for node in network.nodes():
        operands = [values[operand] for operand in node.operands]
        values[node.symbol] = source(node.symbol) if node.is_source else node.opcode.express(operands)
    return values


def eager(network: Network, at: Symbol, direction: Tensor) -> Mapping[Symbol, Dual]:
    """Forward mode over tensors: each node's value and its slope along a direction of one source."""
    return walk(network, lambda symbol: Dual(network.payload(symbol), direction if symbol == at else None))


class Compared(NamedTuple):
    """One function: its slope, what has equal bits, and the largest distance in units of the last place."""

    slope: float
    eager_is_recorded: bool
    slope_is_gradient: bool
    products_are_equal: bool
    distance: float


def recorded_slope(network: Network, target: Symbol, at: Symbol, direction: Tensor) -> tuple[Tensor, Tensor]:
    """Forward mode over recorded values: a new spec that holds the slope, and here also the gradient of the slope.

    The slope is the gradient's product with the direction, so its gradient is the Hessian's: reverse over forward.
    """
    tape = Tape(f64)
    moved = tape.parameter(network.payload(at))
    along = tape.leaf(direction)
    values = walk(network, lambda s: Dual(moved, along) if s == at else Dual(tape.leaf(network.payload(s))))
    slope = values[target].tangent
    slope, adjoints = detach(slope, tape.differentiate(slope, moved))
    forward = tape.into_network()
    run = forward.entry(adjoints).lower().forward(forward.parameters())
    (_, product) = adjoints.roots()
    return run.of(slope), run.of(product)


def compare(function: Callable[[Tape, Any], Any], payload: Any, direction: Any) -> Compared:
    """A function of one parameter, differentiated in every way."""
    along = Tensor(direction, f64)
    tape = Tape(f64)
    parameter = tape.parameter(payload)
    value = function(tape, parameter)
    gradient = tape.differentiate(value, parameter).of(parameter)
    # Reverse over reverse: the derivative of the gradient, seeded with the direction.
    product = tape.vjp(gradient, along, parameter).of(parameter)
    value, parameter, gradient, product = detach(value, parameter, gradient, product)
    network = tape.into_network()
    run = network.forward(network.parameters())

    # Forward over the whole spec: the tangent of the value is a slope, that of the gradient a Hessian-vector product.
    moving = eager(network, parameter, along)
    slope, forward_over_reverse = moving[value].tangent, moving[gradient].tangent
    slope_recorded, reverse_over_forward = recorded_slope(network, value, parameter, along)
    contracted = (run.of(gradient) * along).sum()
    products = [forward_over_reverse, reverse_over_forward]
    return Compared(
        float(slope),
        same_bits(slope, slope_recorded),
        same_bits(slope, contracted),
        all(same_bits(run.of(product), other) for other in products),
        max(distance(slope, contracted), *(distance(run.of(product), other) for other in products)),
    )


def distance(left: Tensor, right: Tensor) -> float:
    """The largest difference, in units of the last place of the largest number."""
    a, b = left.numpy(), right.numpy()
    return float(np.abs(a - b).max() / np.spacing(np.abs(a).max()))


def polynomial(tape: Tape, x: Any) -> Any:
    """Sums and products alone: on small dyadic numbers every operation is exact."""
    y = x * x - 0.5 * x
    return (y @ x + y * y).sum()


def network_loss(tape: Tape, weights: Any) -> Any:
    """A tanh layer under a cross-entropy."""
    points = tape.leaf([[1.0, 2.0], [-0.5, 0.75], [0.25, -1.5]])
    target = tape.leaf(Tensor.selection([0, 1, 1], 2))
    return -target.select(((points @ weights).tanh() @ weights).log_softmax(1), 0).sum()


BOUND = 16.0
"""How far the modes may stand apart on the network, in units of the last place: each adds other roundings, a few."""


def main() -> dict[str, Compared]:
    weights, direction = [[0.5, -0.25], [0.25, 0.75]], [[1.0, 0.5], [-0.25, 2.0]]
    compared = {}
    for name, function in (("polynomial", polynomial), ("tanh network", network_loss)):
        found = compared[name] = compare(function, weights, direction)
        print(name)
        print(f"  slope along the direction                     {found.slope!r}")
        print(f"  eager forward mode = recorded forward mode    {told(found.eager_is_recorded)}")
        print(f"  slope = contracted reverse gradient           {told(found.slope_is_gradient)}")
        print(f"  Hessian-vector products by three routes       {told(found.products_are_equal)}")
        print(f"  largest distance between the modes            {found.distance:g} ulp")
    print(f"the bound on the network is {BOUND:g} ulp; on the polynomial every bit must agree")
    return compared


def told(same: bool) -> str:
    return "the same bits" if same else "other roundings"


if __name__ == "__main__":
    main()
