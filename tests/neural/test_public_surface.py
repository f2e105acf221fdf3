"""The neural tier is made of public names alone, so that whoever writes a layer can do what it does."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import topos

FOLDER = Path(topos.__file__).parent / "neural"
SOURCES = sorted(FOLDER.rglob("*.py"))


def borrowed(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a file takes from the other stages, each with the module that it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "topos":
            assert node.module is not None
            if not node.module.startswith("topos.neural"):
                yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "topos")


def private(tree: ast.AST) -> Iterator[str]:
    """The attributes with a leading underscore that a file reads of anything but `self`, `cls` or its own names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                yield ast.unparse(node)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative_to(FOLDER).as_posix())
def test_a_file_of_the_neural_tier_borrows_public_names_alone(source: Path) -> None:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    public = [getattr(topos, name) for name in topos.__all__]
    for module, name in borrowed(tree):
        thing = getattr(import_module(module), name, None)
        assert any(thing is one for one in public), f"{module}.{name} is not a public name of topos"
    plumbing = set().union(*_plumbing().values())
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not list(private(tree))
    assert not called & (plumbing - ALSO_PUBLIC), "what a class has for other stages alone"


ALSO_PUBLIC = {
    "element",
    "shape",
    "zero_like",
    "one_like",
    "counted",
    "apply",
    "of",
    "get",
    "replace",
    "append",
    "add",
    "index_of",
}
"""Names that some class has for other stages, and another class, or Python, has in public."""


def _plumbing() -> dict[str, set[str]]:
    """What the reference leaves out."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
    try:
        return import_module("documentation_tables").PLUMBING
    finally:
        sys.path.pop(0)


def test_what_is_borrowed_or_private_is_found() -> None:
    tree = ast.parse(
        "import topos.graph\nfrom topos.tensor.memory import aligned\nfrom topos.neural import init\nx._y\nself._z"
    )
    assert list(borrowed(tree)) == [("topos.graph", ""), ("topos.tensor.memory", "aligned")]
    assert list(private(tree)) == ["x._y"]
