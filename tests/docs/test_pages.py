"""The pages: their code runs, their outputs and tables are those of the code, their links lead somewhere."""

import json
import re
from itertools import chain
from pathlib import Path

import documentation
import documentation_tables
import pytest

import topos
import topos.graph

ROOT = Path(__file__).parents[2]
PAGES = documentation.pages()
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the common renderers spell them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


@each_page
def test_a_page_is_what_the_code_makes_of_it(page: Path) -> None:
    difference = "\n".join(documentation.stale(page))
    assert not difference, f"run scripts/documentation.py\n{difference}"


@each_page
def test_every_python_block_is_one_that_is_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^ *```(?:python|py)\b.*$", text, re.MULTILINE)
    assert len(fences) == len(documentation.BLOCK.findall(text))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert not re.match(r"\w+:", target), f"{target}: pages link to pages of this project only"
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_every_page_is_linked_from_the_readme() -> None:
    readme = ROOT / "README.md"
    linked = {(ROOT / target.partition("#")[0]).resolve() for target in LINK.findall(prose(readme))}
    assert set(PAGES) - {readme} <= linked


def test_the_reference_lists_exactly_the_public_names() -> None:
    listed = re.findall(r"^### (.+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(topos.__all__)
    assert sorted(chain.from_iterable(documentation_tables.public_names().values())) == sorted(topos.__all__)


def test_all_names_what_the_package_has_in_public() -> None:
    modules = {name for name in dir(topos) if isinstance(getattr(topos, name), type(topos))}
    public = {name for name in dir(topos) if not name.startswith("_")} - modules
    assert set(topos.__all__) - modules - {"__version__"} == public
    assert sorted(topos.__all__) == topos.__all__


def test_plumbing_that_is_left_out_exists() -> None:
    for name, members in documentation_tables.PLUMBING.items():
        kind = getattr(topos, name, None) or getattr(topos.graph, name)
        missing = [member for member in members if not hasattr(kind, member)]
        assert not missing, name


def test_every_public_name_stands_in_the_terminology() -> None:
    page = (ROOT / "docs" / "terminology.md").read_text(encoding="utf-8")
    names = [name for name in topos.__all__ if not name.endswith("Error") and name != "__version__"]
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []


def test_every_error_has_its_entry() -> None:
    page = prose(ROOT / "docs" / "errors.md")
    errors = [name for name in topos.__all__ if name.endswith("Error") or name == "BackendUnavailable"]
    assert [name for name in errors if f"\n## {name}\n" not in page] == []


def test_every_instruction_has_its_rule_written_down() -> None:
    written = {name for name, _, _ in documentation_tables.rules()}
    sources = {"Leaf", "Parameter", "Input"}
    assert written == {opcode.name for opcode in documentation_tables.opcodes()} - sources


def test_measured_distances_keep_the_bounds() -> None:
    file = ROOT / "docs" / "accuracy.json"
    measured = json.loads(file.read_text(encoding="utf-8"))
    assert set(measured) == {"f32", "f64"}
    for element, limit in (("f32", 0.501), ("f64", 0.9999)):
        assert set(measured[element]) == {operation.value for operation in topos.MapOperation} | {"powf"}
        assert max(measured[element].values()) <= limit
