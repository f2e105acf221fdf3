"""Closures over a stream: what goes on, what starts again, and what an element makes of what is drawn."""

import pickle

import numpy as np
import pytest

from topos import Element, ElementError, KinshipError, Linear, Sample, Tape, Tensor, f32, f64, init
from topos.testing import assert_same_bits, same_bits

WEIGHTS = {
    "uniform": lambda seed: init.uniform(seed, 0.1),
    "normal": init.normal,
    "truncated_normal": init.truncated_normal,
    "xavier": init.xavier,
    "kaiming": init.kaiming,
    "orthogonal": init.orthogonal,
}
each = pytest.mark.parametrize("make", WEIGHTS.values(), ids=WEIGHTS)


@each
def test_calls_go_on_in_the_stream_and_begin_again_with_the_seed(make) -> None:
    once, again, other = make(1), make(1), make(2)
    first, second = once([4, 4], f32), once([4, 4], f32)
    assert not same_bits(first, second)
    assert_same_bits([again([4, 4], f32), again([4, 4], f32)], [first, second])
    assert not same_bits(other([4, 4], f32), first)


def test_two_layers_get_different_weights() -> None:
    tape, initialiser = Tape(), init.kaiming(1)
    one, two = (Linear(tape, 3, 3, initialiser) for _ in range(2))
    assert not same_bits(tape.resolve(one.weight).payload(), tape.resolve(two.weight).payload())


@each
def test_a_layer_more_moves_no_weight_that_is_keyed(make) -> None:
    def weights(names: list[str]) -> dict[str, Tensor]:
        tape, initialiser = Tape(), make(1).keyed()
        layers = {name: Linear(tape, 3, 3, initialiser, name=name) for name in names}
        return {name: tape.resolve(layer.weight).payload() for name, layer in layers.items()}

    few, more = weights(["a", "b"]), weights(["new", "b", "newer", "a"])
    assert_same_bits([more["a"], more["b"]], [few["a"], few["b"]])
    assert not same_bits(few["a"], few["b"])
    assert not same_bits(more["new"], more["newer"])


def test_scopes_are_of_the_path() -> None:
    tape, initialiser = Tape(), init.normal(1).keyed()
    with tape.scope("h0"):
        layer = Linear(tape, 2, 2, initialiser, name="qkv")
    assert_same_bits(tape.resolve(layer.weight).payload(), initialiser.at("h0.qkv.weight")([2, 2], f32))
    assert_same_bits(initialiser.at("h0.qkv.weight")([2], f64), init.Stream(1).at("h0.qkv.weight").normals(2))


def test_keyed_by_a_path_that_nobody_gave() -> None:
    with pytest.raises(KinshipError) as caught:
        init.normal(1).keyed()([2, 2], f32)
    message = "init.normal: keyed by path, and asked for none; keyed.at(path) is an initialiser"
    assert str(caught.value) == message


def test_keyed_starts_from_the_seed_wherever_the_stream_stands() -> None:
    used = init.normal(1)
    used([100], f32)
    assert_same_bits(used.keyed().at("a")([2], f32), init.normal(1).keyed().at("a")([2], f32))


def test_what_it_is_and_where_it_stands() -> None:
    initialiser = init.normal(7)
    initialiser([3], f32)
    assert repr(initialiser) == "init.normal(seed=7, position=6)"
    assert repr(initialiser.keyed()) == "init.normal(seed=7).keyed()"


# what an element makes of draws
class Logarithmic(Element):
    """Numbers kept as a sign and a logarithm: it has no `round`."""

    name = "logarithmic"
    dtype = np.dtype([("sign", np.int8), ("logarithm", np.float64)])

    def sample(self, numbers: np.ndarray) -> np.ndarray:
        result = np.empty(numbers.shape, self.dtype)
        with np.errstate(divide="ignore"):
            result["sign"], result["logarithm"] = np.sign(numbers), f64.ln(np.abs(numbers))
        return result


class Mute(Element):
    name = "mute"
    dtype = np.dtype(np.int16)


class Cents(Element):
    """Whole hundredths, which it rounds to."""

    name = "cents"
    dtype = np.dtype(np.int32)

    def admit(self, array: np.ndarray) -> np.ndarray:
        return self.round(array)

    def round(self, numbers: np.ndarray) -> np.ndarray:
        return np.floor(np.asarray(numbers, np.float64) * 100 + 0.5).astype(np.int32)


logarithmic, mute, cents = Logarithmic(), Mute(), Cents()


@each
def test_an_element_makes_its_numbers_of_draws_by_its_sample(make) -> None:
    drawn, made = make(1)([3, 4], f64).numpy(), make(1)([3, 4], logarithmic).numpy()
    assert made.dtype == logarithmic.dtype
    assert_same_bits([made["logarithm"], made["sign"] * 1.0], [f64.ln(np.abs(drawn)), np.sign(drawn)])


def test_constants_are_sampled_too_so_that_a_layer_can_be_made_of_such_numbers() -> None:
    tape = Tape(logarithmic)
    layer = Linear(tape, 2, 3, init.normal(1))
    assert tape.resolve(layer.bias).payload().numpy()["sign"].tolist() == [0, 0, 0]
    assert init.ones([2], logarithmic).numpy()["logarithm"].tolist() == [0.0, 0.0]


def test_a_function_may_be_the_sample() -> None:
    class Doubled(Logarithmic):
        name = "doubled"
        sample: Sample = staticmethod(lambda numbers: logarithmic.sample(2 * numbers))

    doubled = init.uniform(1)([3], Doubled()).numpy()
    assert_same_bits(doubled["logarithm"], f64.ln(np.abs(2 * init.Stream(1).signed(3))))


@each
def test_without_a_sample_draws_are_rounded(make) -> None:
    drawn = make(1)([3, 4], f64).numpy()
    assert make(1)([3, 4], cents).numpy().tolist() == np.floor(drawn * 100 + 0.5).astype(int).tolist()


def test_an_element_that_makes_nothing_of_real_numbers_is_named() -> None:
    for name, initialiser in (("normal", init.normal(1)), ("constant", init.zeros)):
        with pytest.raises(ElementError) as caught:
            initialiser([2], mute)
        message = f"init.{name}: element mute makes no numbers of real ones; give it `round` or `sample`"
        assert str(caught.value) == message


def test_a_sample_of_another_dtype_or_shape_is_refused() -> None:
    class Wrong(Mute):
        name = "wrong"

        def sample(self, numbers: np.ndarray) -> np.ndarray:
            return numbers.reshape(-1)[:1].astype(np.int16)

    with pytest.raises(ElementError) as caught:
        init.normal(1)([2, 2], Wrong())
    assert str(caught.value) == "init.normal: element wrong: its sample answered int16 [1], wants int16 [2, 2]"


def test_built_in_elements_have_no_sample_and_stay_one_object() -> None:
    assert f32.sample is None
    assert pickle.loads(pickle.dumps(f32)) is f32
