"""The training step that backends serve."""

import pytest

from .mine import Step, recorded


@pytest.fixture(scope="session")
def step() -> Step:
    return recorded()
