"""Every reading of one small graph, printed: what `topos walkthrough` shows.

Each section is a function that answers its text; the code that a section shows is the code that it runs. Only the
public surface is used, so a section is also an example of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import topos
from topos import Element, Network, Parameters, Symbol, Tape, Tensor, Value, bf16, f32, f64
from topos.printed import bits, code, numbers, shown, told
from topos.records import NamedTuple

WEIGHTS = [[0.5, -0.25], [0.25, 0.4]]
INPUT = [[1.0, 2.0]]
RATE = 0.05


class Walk(NamedTuple):
    """The sealed spec of the walk, and the symbols that its readings ask for."""

    network: Network
    weights: Symbol
    hidden: Symbol
    loss: Symbol
    gradient: Symbol
    spec: str
    derivative: str


def sections() -> Iterator[str]:
    """The sections in order, each computed when it is asked for; none ends in a line feed."""
    title = f"topos {topos.__version__}: one small graph, and every reading of it"
    yield f"{title}\n{'=' * len(title)}"
    walk = recorded()
    parts = [specified, differentiated, planned, run, compiled, replayed, renumbered, trained, advanced, diagnosed]
    for number, part in enumerate(parts, start=1):
        title, _, rest = part(walk).partition("\n")
        heading = f"{number}. {title}"
        yield f"{heading}\n{'-' * len(heading)}\n{rest}"
    yield "Next: examples/README.md lists programs to read, from three operations to a model of names."


# the graph
def record(tape: Tape) -> tuple[Value, Value, Value]:
    """The graph itself; its code is the first thing shown."""
    weights = tape.parameter(WEIGHTS, name="weights")
    input = tape.input(INPUT, name="input")
    hidden = (input @ weights).tanh().named("hidden")
    loss = (hidden * hidden).sum().named("loss")
    return weights, hidden, loss


def recorded() -> Walk:
    """The graph with its derivative, sealed."""
    tape = Tape(f32)
    weights, hidden, loss = record(tape)
    spec, before = tape.describe(names=True), len(tape)
    gradient = tape.differentiate(loss, [weights]).of(weights)
    derivative = "\n".join(tape.describe().splitlines()[before:])
    weights, hidden, loss, gradient = topos.detach(weights, hidden, loss, gradient)
    return Walk(tape.into_network(), weights, hidden, loss, gradient, spec, derivative)


# the sections
def specified(walk: Walk) -> str:
    """The spec."""
    return told(
        """
        The spec
        A tape records what is to be computed, and computes nothing. This is all of the program:
        """,
        code(record),
        "These are its six nodes. A parameter belongs to a table of the caller, an input is fed at each run.",
        shown(walk.spec),
    )


def differentiated(walk: Walk) -> str:
    """The derivative."""
    return told(
        """
        The derivative
        differentiate(loss, [weights]) appends the gradient to the same spec, as nodes like any others. Each
        instruction has one rule; the rules write from the loss backwards, and each sum of cotangents starts at zero.
        """,
        shown(walk.derivative),
        "A leaf is a constant. Leaf 6 is the 1 that the loss starts from, leaf 15 the 1 in 1 - y * y, the slope of "
        "tanh; the others are the zeros. Node 28 is the gradient in the weights; it can be differentiated again.",
    )


def planned(walk: Walk) -> str:
    """The plan."""
    plan = walk.network.entry([walk.loss, walk.gradient]).observe(walk.hidden).lower()
    *lines, scheduled, volumes = plan.describe().splitlines()
    bars = [f"{line:<70}{'#' * volume} {volume}" for line, (_, volume) in zip(lines, plan.live_series(), strict=True)]
    evaluated = {node.symbol for node in plan.nodes()}
    left_out = [str(node.symbol.index) for node in walk.network.nodes() if node.symbol not in evaluated]
    return told(
        """
        The plan
        An entry declares what will be read: the loss, its gradient, and hidden besides. The plan evaluates what
        these need and frees each value after its last use. On the right, how many numbers live after each node.
        """,
        shown("\n".join([*bars, scheduled, volumes])),
        f"Nodes {', '.join(left_out)} are not scheduled: they lead to the gradient in the input, which nobody reads.",
    )


def run(walk: Walk) -> str:
    """Runs that agree in bits."""
    network, parameters = walk.network, walk.network.parameters()
    entry = network.entry([walk.loss, walk.gradient]).observe(walk.hidden)
    by_interpreter, by_plan = entry.interpret(parameters), entry.lower().forward(parameters)
    whole = network.forward(parameters)
    swept = whole.backward(walk.loss).of(walk.weights)
    values = [(name, by_plan.of(getattr(walk, name))) for name in ("hidden", "loss", "gradient")]
    routes = [
        ("interpreter", by_interpreter.of(walk.loss), by_interpreter.of(walk.gradient)),
        ("plan", by_plan.of(walk.loss), by_plan.of(walk.gradient)),
        ("run.backward", whole.of(walk.loss), swept),
    ]
    return told(
        """
        The runs
        The plan runs over a table of the caller, here the recorded weights, and answers what was declared:
        """,
        shown("\n".join(f"{name:<10}{numbers(tensor)}" for name, tensor in values)),
        """
        The interpreter evaluates node by node and is the definition; run.backward computes the gradient by the same
        rules, without recording. All have the same bits, here in hexadecimal:
        """,
        shown("\n".join(f"{route:<14}loss {bits(loss)}  gradient {bits(slope)}" for route, loss, slope in routes)),
    )


def compiled(walk: Walk) -> str:
    """What the plan ran as."""
    plan = walk.network.entry([walk.loss, walk.gradient]).observe(walk.hidden).lower()
    *groups, last = plan.explain().splitlines()
    if not last.startswith("native: "):
        title = (
            "The native code\nHere the plan is not one native function; plan.explain() says who computes it, or why:"
        )
        return told(title, shown(plan.explain()))
    told_apart = [re.split(r" {2,}", line)[-5:-1] for line in groups]  # without shapes, and names that machines choose
    kernels = [f"{nodes}\n    {reads}; {stores}  {why}" for nodes, reads, stores, why in told_apart]
    return told(
        """
        The native code
        At its first run the plan was compiled. Nodes that can share a loop are one kernel, so that most of their
        values never leave the registers; plan.explain() lists the kernels, with the reason why each begins:
        """,
        shown("\n".join(kernels)),
        f"That is what is left of {len(plan.nodes())} nodes. A transpose is only another order of reading, what is "
        "known beforehand stands in the code as a number, and adding onto a zero is left out where no bit can tell. "
        "plan.llvm() is the text of the kernels.",
    )


def replayed(walk: Walk) -> str:
    """The replay by hand."""

    def replay(network: Network) -> dict[Symbol, Tensor]:
        values: dict[Symbol, Tensor] = {}
        for node in network.nodes():
            if node.is_source:
                values[node.symbol] = network.payload(node.symbol)
            else:
                values[node.symbol] = node.opcode.express([values[s] for s in node.operands])
        return values

    values = replay(walk.network)
    return told(
        """
        The replay by hand
        A spec is data, and an instruction runs over any payload: over tensors, this walk is the interpreter. Over
        recorded values it would record the spec again, over dual numbers it is forward mode.
        """,
        code(replay),
        f"It answers the loss {bits(values[walk.loss])} and the gradient {bits(values[walk.gradient])}.",
    )


def renumbered(walk: Walk) -> str:
    """The same spec over other numbers."""

    def over(element: Element) -> str:
        tape = Tape(element)
        _, _, loss = record(tape)
        spec, symbol = tape.describe(names=True), loss.symbol()
        network = tape.into_network()
        value = network.entry(symbol).lower().forward(network.parameters()).of(symbol)
        return f"{element.name:<6}{numbers(value):<22}{'the spec above' if spec == walk.spec else 'another spec'}"

    return told(
        """
        Other numbers
        The number that fills a tensor is an object, chosen when the tape is made: here f64, f32 and bf16, which is
        computed in f32 and rounded once. The spec is the same text over each of them; this is the loss.
        """,
        shown("\n".join(over(element) for element in (f64, f32, bf16))),
    )


def descend(walk: Walk, steps: int) -> tuple[list[Tensor], Parameters]:
    """Gradient descent over tables: the losses on the way and the last table."""
    plan = walk.network.entry(walk.loss).backward().lower()
    parameters = walk.network.parameters()
    losses = []
    for _ in range(steps):
        result = plan.forward(parameters)
        losses.append(result.of(walk.loss))
        gradients = result.backward(walk.loss)
        parameters = parameters.step(gradients, lambda weight, slope: weight - slope * RATE)
    return losses, parameters


def trained(walk: Walk) -> str:
    """Five steps of gradient descent."""
    losses, _ = descend(walk, 6)
    return told(
        """
        Training over tables
        The network holds no weights: they stand in a table of the caller, and a step answers a new table. This is
        all of gradient descent:
        """,
        code(descend),
        "The loss before the first of five steps of size 0.05, and after each:",
        shown("  ".join(f"{float(loss):.4f}" for loss in losses)),
    )


def advanced(walk: Walk) -> str:
    """A training step as one entry."""

    def step(tape: Tape) -> tuple[Value, Value, Value]:
        weights, hidden, loss = record(tape)
        gradient = tape.differentiate(loss, [weights]).of(weights)
        return loss, weights, weights - gradient * RATE

    network, (loss, weights, next_weights) = Tape.record(step)
    plan = network.entry(loss).carry({weights: next_weights}).lower()
    state = network.state()
    losses = plan.advance(state, steps=5).of(loss)
    _, table = descend(walk, 5)
    same = bits(state.of(weights)) == bits(table.of(walk.weights))
    return told(
        """
        A training step as one entry
        The step is recorded as well, and is four nodes more than its gradient:
        """,
        code(step),
        "entry(loss).carry({weights: next_weights}) lets the last node replace the weights. The end of its plan:",
        shown("\n".join(plan.describe().splitlines()[-7:])),
        "A State holds what survives; plan.advance(state, steps=5) makes five steps in one call, and answers a loss "
        "for each of them:",
        shown(numbers(losses)),
        f"The weights in the State then have {'the same' if same else 'OTHER'} bits as those of the loop above.",
    )


def diagnosed(walk: Walk) -> str:
    """A bad value found."""
    entry = walk.network.entry([walk.loss, walk.gradient]).diagnose()
    result = entry.lower().forward(walk.network.parameters(), {"input": [[float("inf"), 0.0]]})
    return told(
        """
        A bad value found
        Fed with an infinity the loss is still finite, as tanh is, but the gradient is not. An entry with diagnose()
        watches every value: its report names the first bad ones, the line that recorded them, and for a node of a
        derivative the instruction whose rule wrote it.
        """,
        shown(f"loss {numbers(result.of(walk.loss))}, gradient {numbers(result.of(walk.gradient))}"),
        shown(re.sub(r"\S*(?=walkthrough\.py:)", "", str(result.report()))),
    )


# the command
def main() -> None:
    """Prints the walkthrough, a section as soon as it is computed."""
    for number, section in enumerate(sections()):
        print(section if not number else f"\n{section}", flush=True)
