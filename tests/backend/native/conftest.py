"""What the tests of native code share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence NumPy's floating-point warnings, as callers of element methods do."""
    with np.errstate(all="ignore"):
        yield
