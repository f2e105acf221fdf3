"""What renders the pages notices a page that is not as it should be."""

import json
from pathlib import Path

import documentation
import documentation_tables
import pytest
from documentation_rules import Spelled

from topos import Shape


def page(code: str, output: str, mark: str = "") -> str:
    return f"# A page\n\n```python{mark}\n{code}\n```\n\n```text\n{output}\n```\n\nMore.\n"


def test_a_page_that_is_right_stays_as_it_is() -> None:
    text = page("print(1 + 1)", "2")
    assert documentation.rendered(text) == text


def test_one_changed_character_of_an_output_is_found() -> None:
    assert documentation.rendered(page("print(1 + 1)", "3")) == page("print(1 + 1)", "2")


def test_an_output_appears_and_goes() -> None:
    bare = "```python\nx = 1\n```\n"
    assert documentation.rendered("```python\nx = 1\n```\n\n```text\nold\n```\n") == bare
    assert documentation.rendered("```python\nprint(1)\n```\n") == "```python\nprint(1)\n```\n\n```text\n1\n```\n"


def test_blocks_of_a_page_share_their_names() -> None:
    text = "```python\nx = 3\n```\n\nThen\n\n```python\nprint(x)\n```\n"
    assert documentation.rendered(text).endswith("```text\n3\n```\n")


def test_a_block_raises_only_where_it_says_so() -> None:
    text = page("1 / 0", "ZeroDivisionError: division by zero", " raises")
    assert documentation.rendered(text) == text
    with pytest.raises(ZeroDivisionError):
        documentation.rendered(page("1 / 0", ""))
    with pytest.raises(AssertionError, match="raised nothing"):
        documentation.rendered(page("1", "", " raises"))


def test_a_block_for_the_extra_is_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "```python\nx = 3\n```\n" + page("print('x' in dir(), 1 + 1)", "False 3", " xla")
    monkeypatch.setattr(documentation.importlib.util, "find_spec", lambda name: None)
    assert documentation.rendered(text) == text
    monkeypatch.setattr(documentation.importlib.util, "find_spec", lambda name: name)
    assert documentation.rendered(text) == text.replace("False 3", "False 2")
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        documentation.rendered(page("1 / 0", "", " xla"))


def test_a_table_is_filled_and_an_unknown_one_refused() -> None:
    text = documentation.rendered("<!-- generated: instructions -->\n<!-- end -->\n")
    assert "| `MatMul` | contraction |" in text
    assert documentation.rendered(text) == text
    with pytest.raises(SystemExit, match="no table is called 'nothing'"):
        documentation.rendered("<!-- generated: nothing -->\n<!-- end -->\n")


def test_a_stale_page_is_told_by_its_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation, "ROOT", tmp_path)
    file = tmp_path / "page.md"
    file.write_text(page("print(1)", "2"), encoding="utf-8")
    assert [line for line in documentation.stale(file) if line in ("-2", "+1")] == ["-2", "+1"]


def test_expressions_are_spelled_with_the_parentheses_that_they_need() -> None:
    a, b = Spelled("a", Shape()), Spelled("b", Shape())
    assert (a - (b - a)).text == "a - (b - a)"
    assert (a - b - a).text == "a - b - a"
    assert ((a + b) * -(a * b)).text == "(a + b) * -(a * b)"
    assert (a + b).exp().text == "(a + b).exp()"
    assert (a.maximum(b + a)).text == "a.maximum(b + a)"


def test_measured_distances_are_shown_where_there_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documentation_tables, "ROOT", tmp_path)
    assert "0.501 ulp" in documentation_tables.accuracy()
    (tmp_path / "docs").mkdir()
    figures = {"f32": {"exp": 0.50009, "powf": 0.5}, "f64": {"exp": 0.65}}
    (tmp_path / "docs" / "accuracy.json").write_text(json.dumps(figures), encoding="utf-8")
    assert documentation_tables.accuracy().splitlines()[2:] == ["| `exp` | 0.5001 | 0.6500 |", "| `powf` | 0.5000 |  |"]
