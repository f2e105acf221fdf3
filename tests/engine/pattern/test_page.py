"""The page of patterns names every composition."""

import re
from pathlib import Path

from topos import Formula
from topos.backend.repertoire import COMPOSITIONS

PAGE = (Path(__file__).parents[3] / "docs" / "patterns.md").read_text(encoding="utf-8")


def test_every_formula_stands_on_the_page_or_is_the_gradient_of_one_that_does() -> None:
    rows = re.findall(r"^\| .* \|$", PAGE, re.MULTILINE)
    named = {formula for row in rows for formula in re.findall(r"`([A-Z_]+)`", row)} & set(Formula)
    assert set(COMPOSITIONS) == named | {f"{formula}_GRADIENT" for formula in named} & set(Formula)
