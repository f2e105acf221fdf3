"""What a node tells of the line that recorded it."""

from topos import Tape
from topos.graph import Node


def recorded() -> list[Node]:
    tape = Tape()
    x = tape.input(shape=[3], name="x")
    x.softmax(0)
    x[1:]
    return list(tape.nodes())


def test_a_composition_is_named_beside_its_line() -> None:
    softmax = [node for node in recorded() if node.line.endswith("(softmax)")]
    assert [node.opcode.name for node in softmax][-1] == "Div"
    assert len(softmax) == 8


def test_an_operator_is_its_own_name() -> None:
    assert recorded()[-1].opcode.name == "Narrow"
    assert recorded()[-1].line.rpartition(":")[2].isdigit()


def test_a_node_prints_its_line_and_no_object() -> None:
    node = recorded()[0]
    facts = "symbol=%0, opcode=Input(), operands=(), shape=[3], element=f32, name='x'"
    assert repr(node) == f"Node({facts}, line={node.line!r})"
