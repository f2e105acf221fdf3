"""The portable artifact: it is read back as the module that it was made from, and says what it needs."""

import sys
from typing import Any

import numpy as np
import pytest

from topos import BackendUnavailable, EmissionError, Plan, SettingError, Tape
from topos.emission import portable

NUMBERS = np.array([[0.5, -2.0], [np.inf, -0.0]], np.float32)


def plan_of(element: Any = None) -> tuple[Plan, np.ndarray]:
    """A plan with an operation of CHLO, constants that need their bits, and a raise."""

    def record(tape: Tape) -> Any:
        x = tape.parameter(NUMBERS)
        held = tape.leaf(np.array([[-0.0, np.inf], [1e-30, 0.1]], np.float32))
        return x.erf() * held + x.pad(0, 1, 4, float("-inf")).unfold(0, 3).max_along(1)

    network, root = Tape.record(record)
    plan = network.entry(root).lower()
    return plan, np.asarray(plan.forward(network.parameters()).of(root).numpy())


@pytest.mark.parametrize("version", [None, "1.0.0", "0.9.0"])
def test_an_artifact_is_read_back_as_its_module(engines: Any, version: str | None) -> None:
    pytest.importorskip("jaxlib")
    plan, expected = plan_of()
    artifact = portable(plan.emit_stablehlo(), version)
    assert b"StableHLO_v" + (version or "").encode() in artifact[:32]
    (found,) = engines.run("portable", artifact, [NUMBERS])
    np.testing.assert_allclose(found, expected, rtol=2e-7)
    (whole,) = engines.run("interpret", plan.emit_stablehlo(), [NUMBERS])
    np.testing.assert_array_equal(found, whole)


def test_an_artifact_tells_the_user_s_lines(engines: Any) -> None:
    pytest.importorskip("jaxlib")
    plan, _ = plan_of()
    assert b"test_portable.py" in portable(plan.emit_stablehlo(locations=True))
    assert b"test_portable.py" not in portable(plan.emit_stablehlo())


@pytest.mark.parametrize("version", ["x", "1.0", "0.8.0", "99.0.0"])
def test_a_version_that_is_not_written(version: str) -> None:
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    with pytest.raises(SettingError) as caught:
        portable(plan_of()[0].emit_stablehlo(), version)
    oldest, newest = stablehlo.get_minimum_version(), stablehlo.get_current_version()
    assert str(caught.value) == (f"portable: version is one of StableHLO from {oldest} to {newest}, got {version!r}")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib.mlir.dialects.stablehlo", None)
    with pytest.raises(BackendUnavailable) as caught:
        portable(plan_of()[0].emit_stablehlo())
    assert str(caught.value).startswith("portable: needs jaxlib, which pip install 'topos-stack[xla]' brings; ")


def test_what_is_no_module() -> None:
    pytest.importorskip("jaxlib")
    with pytest.raises(EmissionError, match=r"^portable: the module has no form in version 1\.0\.0: "):
        portable("module { stablehlo.tan_h }", "1.0.0")
