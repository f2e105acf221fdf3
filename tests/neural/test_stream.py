"""The stream is splitmix64's, and what is made of it has the same bits on every machine for ever."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from topos import SettingError, f64
from topos.neural.init import Stream
from topos.neural.stream import fnv1a
from topos.testing import assert_same_bits

WORD = 2**64
seeds = st.integers(-(2**70), 2**70)


def draws(seed: int) -> Iterator[int]:
    """The generator as it is published, a step at a time."""
    state = seed % WORD
    while True:
        state = (state + 0x9E3779B97F4A7C15) % WORD
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        yield z ^ (z >> 31)


@pytest.mark.parametrize(
    ("seed", "published"),
    [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]),
        (
            1234567,
            [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821],
        ),
    ],
)
def test_the_draws_are_the_published_ones(seed: int, published: list[int]) -> None:
    assert Stream(seed).integers(5).tolist() == published


@given(seeds, st.integers(0, 2**40), st.integers(0, 20))
def test_draws_follow_from_seed_and_position(seed: int, position: int, count: int) -> None:
    there = draws(seed + position * 0x9E3779B97F4A7C15)
    assert Stream(seed, position).integers(count).tolist() == list(itertools.islice(there, count))


@given(seeds, st.lists(st.integers(0, 40), max_size=5))
@pytest.mark.parametrize("kind", ["integers", "reals", "signed", "normals"])
def test_a_stream_in_pieces_is_the_stream(kind: str, seed: int, counts: list[int]) -> None:
    whole, parts = Stream(seed), Stream(seed)
    expected = getattr(whole, kind)(sum(counts))
    found = [getattr(parts, kind)(count) for count in counts]
    assert_same_bits(np.concatenate([expected[:0], *found]), expected)
    assert parts.position == whole.position == sum(counts) * (2 if kind == "normals" else 1)


@pytest.mark.parametrize("kind", ["reals", "normals"])
def test_long_draws_are_those_of_many_short_ones(kind: str) -> None:
    whole, parts = Stream(5), Stream(5)
    found = [getattr(parts, kind)(length) for length in (1, 40000, 29999)]
    assert_same_bits(getattr(whole, kind)(70000), np.concatenate(found))


def test_reals_are_the_upper_53_bits() -> None:
    expected = [(draw >> 11) / 2**53 for draw in itertools.islice(draws(9), 1000)]
    assert Stream(9).reals(1000).tolist() == expected
    assert Stream(9).signed(1000).tolist() == [2 * u - 1 for u in expected]
    top = Stream(0)
    assert 0 <= top.reals(10**5).min() < top.reals(10**5).max() < 1


def test_normals_are_box_and_mullers() -> None:
    """Each function is within 1 ulp; near `cos = 0` the rounding of the angle, at most 2 pi, is what is left."""
    reals = Stream(3).reals(2000).tolist()
    for found, u, v in zip(Stream(3).normals(1000).tolist(), reals[0::2], reals[1::2], strict=True):
        with mp.workdps(40):
            radius = mp.sqrt(-2 * mp.log(1 - mp.mpf(u)))
            expected = radius * mp.cos(2 * mp.pi * mp.mpf(v))
            assert abs(found - expected) <= float(radius) * 1e-15 + 3 * math.ulp(found)


def test_so_many_normals_that_a_native_kernel_draws_them_are_the_bodies() -> None:
    """The first pieces are NumPy's; by the last ones there was enough work to load what is faster."""
    count, last = 3 << 20, 70000
    reals = Stream(3, 2 * (count - last)).reals(2 * last)
    with np.errstate(all="ignore"):
        expected = np.sqrt(-2 * f64.ln(1 - reals[0::2])) * f64.cos(2 * math.pi * reals[1::2])
    assert_same_bits(Stream(3).normals(count)[-last:], expected)


def test_normals_have_golden_bits() -> None:
    assert [x.hex() for x in Stream(0).normals(4).tolist()] == GOLDEN_NORMALS


GOLDEN_NORMALS = ["-0x1.e247d108691cfp+0", "0x1.d2241bf902964p-3", "-0x1.c581393a15295p-3", "0x1.55aeaef334755p-4"]


def test_moments_are_those_of_the_distribution() -> None:
    """Four standard errors of a hundred thousand draws; the draws never change, so that it holds for ever."""
    numbers, count = Stream(11).normals(10**5), 10**5
    assert abs(numbers.mean()) < 4 / math.sqrt(count)
    assert abs(numbers.var() - 1) < 4 * math.sqrt(2 / count)
    assert abs((numbers**4).mean() - 3) < 4 * math.sqrt(96 / count)
    within = [(np.abs(numbers) < bound).mean() for bound in (1, 2, 3)]
    np.testing.assert_allclose(within, [math.erf(bound / math.sqrt(2)) for bound in (1, 2, 3)], atol=0.006)


@given(seeds, st.integers(0, 50), st.sampled_from([0.5, 1.0, 2.0, 10.0]))
def test_truncated_normals_are_the_normals_that_lie_inside(seed: int, count: int, limit: float) -> None:
    stream, drawn = Stream(seed), Stream(seed).normals(2000)
    inside = np.flatnonzero(np.abs(drawn) <= limit)[:count]
    assert_same_bits(stream.truncated_normals(count, limit), drawn[inside])
    assert stream.position == (2 * (int(inside[-1]) + 1) if count else 0)


@given(seeds, st.integers(0, 60))
def test_an_order_is_durstenfelds(seed: int, count: int) -> None:
    expected, there = list(range(count)), draws(seed)
    for i in range(count - 1, 0, -1):
        j = next(there) * (i + 1) >> 64
        expected[i], expected[j] = expected[j], expected[i]
    stream = Stream(seed)
    assert stream.order(count).tolist() == expected
    assert stream.position == max(0, count - 1)


def test_orders_are_pinned_and_even() -> None:
    assert Stream(7).order(10).tolist() == GOLDEN_ORDER
    stream = Stream(1)
    found = [tuple(stream.order(3)) for _ in range(6000)]
    counts = [found.count(order) for order in itertools.permutations(range(3))]
    assert sum(counts) == 6000
    assert max(abs(count - 1000) for count in counts) < 4 * math.sqrt(1000)


GOLDEN_ORDER = [9, 5, 8, 6, 1, 2, 4, 7, 0, 3]


@pytest.mark.parametrize(
    ("text", "published"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_paths_are_hashed_as_published(text: str, published: int) -> None:
    assert fnv1a(text) == published


def test_the_stream_of_a_path_is_another_one_wherever_it_is_asked() -> None:
    stream = Stream(7)
    first = stream.at("h0.weight")
    stream.integers(10)
    assert stream.at("h0.weight").seed == first.seed == GOLDEN_PATH
    assert first.position == 0
    hashed = 7 ^ fnv1a("h0.weight")
    assert next(draws(hashed - 0x9E3779B97F4A7C15)) == first.seed  # mixed(hashed): a draw's mixing, not its step
    others = {Stream(seed).at(path).seed for seed in range(30) for path in ("a", "b", "h0.weight", "h1.weight", "é")}
    assert len(others) == 150


GOLDEN_PATH = 0xF20B819C1CF168B2


@pytest.mark.parametrize("seed", [1.5, "7", None])
def test_a_seed_is_an_integer(seed: object) -> None:
    with pytest.raises(SettingError) as caught:
        Stream(seed)  # type: ignore[arg-type]
    assert str(caught.value) == f"seed: wants an integer, got {seed!r}"
