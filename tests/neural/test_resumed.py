"""Training goes on where it stopped, to the same bits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from topos import load_tensors
from topos.testing import assert_same_bits

from .resumed import Trained, train

HERE = Path(__file__).parent


@pytest.mark.parametrize("form", ["state", "tables"])
def test_training_resumed_is_training_that_was_never_interrupted(form: str, tmp_path: Path) -> None:
    """A step with momentum, Adam's moments and powers, running statistics, as one State; and the loop over tables."""
    whole = train(form, tmp_path / "whole", stop=12)
    train(form, tmp_path / "x", stop=5)
    resumed = train(form, tmp_path / "x", stop=12)
    assert resumed.started == 5
    assert_same_bits(resumed.losses, whole.losses[5:])
    assert_same_bits(resumed.tables, whole.tables)


CHILD = "from pathlib import Path; from resumed import train; train({!r}, Path({!r}), stop=100_000)"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills a process")
@pytest.mark.parametrize("form", ["state", "tables"])
def test_training_that_is_killed_at_any_moment_goes_on_to_the_same_bits(form: str, tmp_path: Path) -> None:
    """The child saves after every step; wherever it is killed, the file is whole, and leads to the same bits."""
    random = np.random.Generator(np.random.PCG64(7))
    path = tmp_path / "x"
    for _ in range(5):
        before = step_of(path)
        child = subprocess.Popen([sys.executable, "-c", CHILD.format(form, str(path))], cwd=HERE)
        while step_of(path) == before and child.poll() is None:
            time.sleep(0.005)
        time.sleep(float(random.uniform(0, 0.05)))
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert step_of(path) > before
    stop = step_of(path) + 3
    resumed: Trained = train(form, path, stop=stop)
    whole = train(form, tmp_path / "whole", stop=stop)
    assert_same_bits(resumed.tables, whole.tables)
    assert_same_bits(resumed.losses, whole.losses[-3:])


def step_of(path: Path) -> int:
    return int(load_tensors(path).metadata["step"]) if path.exists() else 0
