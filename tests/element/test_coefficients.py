"""The generated constants."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

import topos.element
from topos.element import coefficients, power, trigonometric

SCRIPT = Path(__file__).parents[2] / "scripts" / "coefficients.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The generator as a module."""
    specification = importlib.util.spec_from_file_location("coefficients_script", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_committed_module_is_what_the_script_writes(script: ModuleType) -> None:
    committed = Path(topos.element.__file__).with_name("coefficients.py").read_text()
    with mpmath.workdps(15):
        assert script.module_text() == committed


def test_power_table_is_exact_enough() -> None:
    with mpmath.workdps(50):
        for index, (high, low) in enumerate(zip(coefficients.POWER_LOG_HIGH, coefficients.POWER_LOG_LOW, strict=True)):
            exact = -mp.log(mpf(power.FIRST_ENTRY + index) / 256)
            assert abs(mpf(high) + mpf(low) - exact) < mpf(2) ** -95
            assert high * 2**42 == int(high * 2**42)
    assert len(coefficients.POWER_LOG_HIGH) == 256


@pytest.mark.parametrize(
    ("tables", "exponents", "top", "depth"),
    [(trigonometric.WIDE_TABLES, 1024, 54, 157), (trigonometric.NARROW_TABLES, 128, 25, 84)],
)
def test_two_over_pi_in_pieces(tables: list[trigonometric.Table], exponents: int, top: int, depth: int) -> None:
    with mpmath.workprec(1400):
        for e in range(0, exponents, 9):
            turns = 2 / mp.pi * mpf(2) ** e
            pieces = sum(mpf(table.values[e]) for table in tables)
            rest = turns - pieces
            wholes = mp.nint(rest / mpf(2) ** top)
            assert abs(rest - wholes * mpf(2) ** top) < mpf(2) ** -depth
    for table in tables:
        assert len(table.values) == exponents
        assert all(np.isfinite(table.values))
