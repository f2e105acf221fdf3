"""A plan's time is laid beside what the machine can do, and the machine's best is computed by what it says."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks import peak, profile
from benchmarks.peak import Peak

from topos.tensor.memory import LINE


def test_the_slowest_group_comes_first_with_its_part_of_the_peaks() -> None:
    groups = [
        SimpleNamespace(rows="1:Add", kernels="k1", elapsed_s=1e-6, operations=1000, bytes=20_000),
        SimpleNamespace(rows="0:MatMul", kernels="k0", elapsed_s=3e-6, operations=300_000, bytes=3000),
    ]
    text = profile.told(profile.shares(SimpleNamespace(groups=groups)), Peak(2, 200e9, 40e9), 5e-6)
    assert text.splitlines() == [
        "    a run  share  GFLOP/s of peak    GB/s of peak  group",
        "     3 us  75.0%    100.0   50.0%     1.0    2.5%  0:MatMul  k0",
        "     1 us  25.0%      1.0    0.5%    20.0   50.0%  1:Add  k1",
        "     4 us  in 2 groups; a whole run takes 5 us",
        "     2 us  if each group read and wrote memory, and all ran at the machine's best",
    ]


def test_the_multiply_adds_are_as_many_as_counted() -> None:
    multiply = peak._function("multiply_add", ctypes.c_int64)
    rounds = 3
    assert multiply(rounds) == peak.chains() * rounds * rounds**2  # each adds rounds * rounds once a round


def test_every_line_is_read() -> None:
    part = 5 * LINE
    size = peak.PARTS * part
    block = np.zeros(size // 4 + 16, np.int32)
    numbers = block[-block.ctypes.data % 64 // 4 :][: size // 4]
    numbers[::16] = np.arange(size // 64)
    read = peak._function("read", ctypes.c_void_p, ctypes.c_int64)
    assert read(numbers.ctypes.data, part) == numbers.sum()


@pytest.mark.slow
def test_a_machine_has_a_peak() -> None:
    found = peak.measured_peak(1, repeats=1)
    assert found.operations_per_s > 1e8
    assert found.bytes_per_s > 1e8
    assert str(found).startswith("1 threads: ")
