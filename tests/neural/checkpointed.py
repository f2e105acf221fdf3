"""A model of two parameters whose tables are saved and restored, and what is said where they do not fit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import CheckpointError, Network, Tape

W = np.arange(12, dtype=np.float32).reshape(4, 3)
B = np.array([1, 2, 3, 4], np.float32)


def model() -> tuple[Network, Any]:
    return Tape.record(
        lambda tape: {"w": tape.parameter(np.zeros((4, 3)), name="w"), "b": tape.parameter([0] * 4, name="b")}
    )


def raised(call: Callable[[], Any]) -> str:
    with pytest.raises(CheckpointError) as caught:
        call()
    return str(caught.value)
