"""What the element tests share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Know the marker of the long tests."""
    config.addinivalue_line("markers", "slow: minutes rather than seconds; left out of the quick run")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence NumPy's floating-point warnings, as callers of element methods do."""
    with np.errstate(all="ignore"):
        yield
