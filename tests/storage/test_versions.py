"""What an earlier version wrote runs to the bits it had; what a later one wrote is refused with the facts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topos import CheckpointError, Network, Tape, Tensor, Value, load, load_tensors, save
from topos.op import Opcode
from topos.storage.opcodes import KINDS, PLAIN
from topos.storage.writing import write

from . import pinned


def test_the_pinned_file_runs_to_the_bits_that_it_had() -> None:
    expected = json.loads(pinned.BITS.read_text(encoding="utf-8"))
    assert pinned.results(pinned.FILE) == expected


def test_the_pinned_file_is_written_again_as_it_was(tmp_path: Path) -> None:
    loaded = load(pinned.FILE)
    save(tmp_path / "x", loaded.network, loaded.parameters, loaded.entries, loaded.names)
    assert (tmp_path / "x").read_bytes() == pinned.FILE.read_bytes()


def test_the_pinned_program_still_writes_what_is_loaded(tmp_path: Path) -> None:
    pinned.write(tmp_path / "x")
    assert pinned.results(tmp_path / "x") == json.loads(pinned.BITS.read_text(encoding="utf-8"))


def test_the_pinned_file_has_every_instruction() -> None:
    used = {node.opcode.name for node in load(pinned.FILE).network.nodes()}
    assert used == set(PLAIN) | set(KINDS) == {kind.name for kind in concrete(Opcode)}


def concrete(kind: type[Opcode]) -> list[type[Opcode]]:
    """The instructions of topos: kinds of them have subclasses, and a user's are of another module."""
    below = [sub for sub in kind.__subclasses__() if sub.__module__.startswith("topos.op.")]
    return [leaf for sub in below for leaf in concrete(sub)] if below else [kind]


# documents that a later version might write


def model(tape: Tape) -> dict[str, Value]:
    x, w = tape.input(shape=[2, 3], name="x"), tape.parameter(np.arange(6.0).reshape(3, 2), name="w")
    ids = tape.leaf(Tensor.selection([0, 2], 3))
    return {"y": (x @ w).sum_along(0).named("y"), "rows": w.gather(ids), "shape": x.reshape([6])}


NODES = {"x": 0, "w": 1, "ids": 2, "matmul": 3, "sum_along": 4, "gather": 5, "reshape": 6}


def written(path: Path) -> dict[str, Any]:
    network, names = Tape.record(model)
    save(path, network, network.parameters(), {"e": network.entry(names["y"])}, names)
    document: dict[str, Any] = json.loads(load_tensors(path).metadata["topos"])
    assert [node["op"] for node in document["nodes"]][3:] == ["MatMul", "SumAlong", "Gather", "Reshape"]
    return document


def rewritten(path: Path, document: Any) -> None:
    """The file with another document."""
    found = load_tensors(path)
    arrays = {name: np.array(found.array(name)) for name in found}
    write(path, arrays, {"topos": document if isinstance(document, str) else json.dumps(document)})


def node(which: str, /, **facts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["nodes"][NODES[which]].update(facts)


def at(*keys: Any, **facts: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in keys:
            document = document[key]
        document.update(facts)

    return change


def without(name: str, fact: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["nodes"][NODES[name]].pop(fact)


W = "node %1 Parameter"
REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "version": (at(version=2), "the spec is of version 2; this topos reads version 1"),
    "no version": (lambda d: d.pop("version"), "the spec: has no 'version'"),
    "version of text": (at(version="1"), "the spec: 'version' cannot be '1'"),
    "fact of the spec": (at(colour=1), "the spec: has an unknown fact 'colour'"),
    "instruction": (node("matmul", op="Erfc"), "node %3 Erfc: no instruction is called 'Erfc' in topos 0.1.0"),
    "no instruction": (without("matmul", "op"), "node %3: has no 'op'"),
    "attribute": (node("matmul", attributes={"axis": 1}), "node %3 MatMul: has an unknown fact 'axis'"),
    "another attribute": (
        node("sum_along", attributes={"axis": 0, "keep": True}),
        "node %4 SumAlong: has an unknown fact 'keep'",
    ),
    "no attribute": (without("sum_along", "attributes"), "node %4 SumAlong: has no 'axis'"),
    "attribute of another kind": (
        node("sum_along", attributes={"axis": "0"}),
        "node %4 SumAlong: 'axis' cannot be '0'",
    ),
    "axis": (
        node("sum_along", attributes={"axis": 2}),
        "node %4 SumAlong: sum_along: no axis 2 in shape [2, 2] of rank 2\n  operand  %3 MatMul  [2, 2]",
    ),
    "negative axis": (
        node("sum_along", attributes={"axis": -1}),
        "node %4 SumAlong: sum_along: axis must be at least 0, got -1",
    ),
    "extents of text": (
        node("reshape", attributes={"shape": ["6"]}),
        "node %6 Reshape: 'shape' wants integers, got ['6']",
    ),
    "fact of a node": (node("matmul", device="cpu"), "node %3 MatMul: has an unknown fact 'device'"),
    "payload of an instruction": (
        node("matmul", payload={"fill": "00000000"}),
        "node %3 MatMul: has an unknown fact 'payload'",
    ),
    "shape": (node("matmul", shape=[2, 3]), "node %3 MatMul: the rule answers [2, 2] f32, the file says [2, 3] f32"),
    "negative shape": (node("matmul", shape=[-2]), "node %3 MatMul: shape: extents must not be negative, got [-2]"),
    "element": (node("matmul", element="f64"), "node %3 MatMul: the rule answers [2, 2] f32, the file says [2, 2] f64"),
    "element of a payload": (node("w", element="f64"), "tensor 'initial.w': wants numbers of f64, got float32 [3, 2]"),
    "unknown element": (node("w", element="f8"), f"{W}: no element is called 'f8'"),
    "common element": (at(element="f8"), "the spec: no element is called 'f8'"),
    "operands": (node("matmul", operands=[0]), "node %3 MatMul: wants 2 operands, got [0]"),
    "operand of later": (node("matmul", operands=[0, 3]), "node %3 MatMul: operand 3 is not one of the 3 before it"),
    "negative operand": (node("matmul", operands=[0, -1]), "node %3 MatMul: operand -1 is not one of the 3 before it"),
    "operand of text": (node("matmul", operands=[0, "1"]), "node %3 MatMul: 'operands' wants integers, got [0, '1']"),
    "dense ids": (
        node("gather", operands=[1, 1]),
        "node %5 Gather: gather: wants a table [vocab, ...] and a selection [count, vocab], got [3, 2] and [3, 2]\n"
        "  table      %1 Parameter  [3, 2]\n  selection  %1 Parameter  [3, 2]",
    ),
    "origin": (node("matmul", origin=3), "node %3 MatMul: origin 3 is not one of the 3 before it"),
    "place": (node("matmul", place=0), "node %3 MatMul: place 0 is not one of the 0 before it"),
    "name": (node("matmul", name="x"), "node %3 MatMul: name: 'x' is taken by %0 Input [2, 3] 'x'"),
    "no payload": (without("w", "payload"), f"{W}: has no 'payload'"),
    "payload": (node("w", payload={"zip": 1}), f"{W}: has no 'tensor'"),
    "tensor": (node("w", payload={"tensor": "v"}), "tensor 'v': the spec names it, the file does not have it"),
    "shape of a tensor": (node("w", shape=[2, 3]), "tensor 'initial.w': has shape [3, 2], its node wants [2, 3]"),
    "fill": (
        node("w", payload={"fill": "00"}),
        f"{W}: wants the 4 bytes of a number in hexadecimal, got '00'",
    ),
    "fill of no digits": (
        node("w", payload={"fill": "0000000g"}),
        f"{W}: wants the 4 bytes of a number in hexadecimal, got '0000000g'",
    ),
    "selection for a parameter": (node("w", payload={"ids": "leaf.%2", "vocab": 3}), f"{W}: has no 'tensor'"),
    "vocab": (
        node("ids", payload={"ids": "leaf.%2", "vocab": 2}),
        "tensor 'leaf.%2': int64 [2] are no ids of a selection [2, 3]",
    ),
    "ids past the vocab": (
        node("ids", shape=[2, 2], payload={"ids": "leaf.%2", "vocab": 2}),
        "tensor 'leaf.%2': id 2 at [1] is not one of the vocab's 0 .. 1",
    ),
    "numbers for ids": (
        node("ids", payload={"ids": "initial.w", "vocab": 3}),
        "tensor 'initial.w': float32 [3, 2] are no ids of a selection [2, 3]",
    ),
    "table": (at("parameters", kind="Moments"), "parameters: no table is called 'Moments'"),
    "slot": (
        at("parameters", entries=[[3, None]]),
        "parameters: wants a parameter or a dense input and its payload, got [3, None]",
    ),
    "payload of a slot": (
        at("parameters", entries=[[1, {"tensor": "leaf.%2"}]]),
        "tensor 'leaf.%2': wants numbers of f32, got int64 [2]",
    ),
    "entry": (at("entries", "e", threads=2), "entry 'e': has an unknown fact 'threads'"),
    "numerics": (at("entries", "e", numerics="loose"), "entry 'e': no numerics are called 'loose'"),
    "root": (at("entries", "e", roots=[70]), "entry: symbol %70 is not among the 7 nodes that this covers"),
    "carry": (at("entries", "e", carry=[[0]]), "entry 'e': carry wants pairs of nodes, got [[0]]"),
    "carry of another shape": (
        at("entries", "e", carry=[[0, 1]]),
        "carry: a replacement has its source's shape and element, got [3, 2] f32 for [2, 3] f32\n"
        "  source  %0 Input      [2, 3]\n  next    %1 Parameter  [3, 2]",
    ),
    "names": (at(names={"set": []}), "names: has an unknown fact 'set'"),
    "symbol": (at(names={"symbol": 7}), "names: symbol %7 is not one of the network's 7 nodes"),
    "list of names": (at(names={"list": [[]]}), "names: wants an object that says its kind, got []"),
    "key": (at(names={"dict": [[{"list": []}, 1]]}), "names: unhashable type: 'list'"),
    "alias": (at(aliases={"z": 7}), "aliases: 'z' names 7, which is no node"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_this_version_does_not_know_is_refused_with_the_facts(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    document = written(path)
    change, message = REFUSED[name]
    change(document)
    rewritten(path, document)
    with pytest.raises(CheckpointError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {message}"


def test_a_document_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    written(path)
    for document, message in {
        "{": "the spec: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "[1]": "the spec: wants an object, got [1]",
        '{"version":1,"version":1}': "the spec: the name 'version' stands twice in one object",
        "[" * 100_000: "the spec: is nested too deeply",
    }.items():
        rewritten(path, document)
        with pytest.raises(CheckpointError) as caught:
            load(path)
        assert str(caught.value) == f"{path}: {message}"
    write(path, {}, {})
    with pytest.raises(CheckpointError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: holds no network, only tensors; see load_tensors"


def test_every_byte_of_a_short_file_counts(tmp_path: Path) -> None:
    """A file with one byte changed is refused, or it is another network or table that loads: nothing else happens."""
    path = tmp_path / "x"
    network: Network = Tape.record(lambda tape: (tape.parameter([1.0, 2.0], name="w") * 2).sum())[0]
    save(path, network)
    content = path.read_bytes()
    random = np.random.Generator(np.random.PCG64(1))
    for position in random.integers(0, len(content), 400):
        changed = bytearray(content)
        changed[position] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(changed)
        try:
            loaded = load(path)
        except CheckpointError as error:
            assert str(error).startswith(f"{path}: ")
        else:
            loaded.network.forward(loaded.parameters)
    path.write_bytes(content)
    assert load(path).network.fingerprint == network.fingerprint
