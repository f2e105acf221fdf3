"""Convolutions and pools: every option against the formula, and what they refuse."""

import re

import numpy as np
import pytest
from by_formula import convolved

from topos import (
    Conv1d,
    Conv2d,
    ShapeError,
    Tape,
    Tensor,
    average_pool,
    conv1d,
    conv2d,
    f64,
    global_average_pool,
    global_max_pool,
    max_pool,
)
from topos.testing import assert_same_bits


def drawn(shape, element=None):
    return np.random.default_rng(len(shape)).normal(size=tuple(shape))


def paired(option):
    return option if isinstance(option, tuple) else (option, option)


@pytest.mark.parametrize("stride", [1, 3, (1, 2)])
@pytest.mark.parametrize("padding", [0, 2, (0, 1)])
@pytest.mark.parametrize("dilation", [1, (2, 1)])
@pytest.mark.parametrize("kernel", [1, 3, (1, 3)])
def test_options_of_a_convolution(kernel, stride, padding, dilation) -> None:
    x, weights, bias = drawn([2, 3, 7, 6]), drawn([4, 3, *paired(kernel)]), drawn([4])
    found = conv2d(
        *(Tensor(payload, f64) for payload in (x, weights, bias)), stride=stride, padding=padding, dilation=dilation
    )
    expected = convolved(x, weights, paired(stride), paired(padding), paired(dilation)) + bias[:, None, None]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, (2,)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_options_of_a_convolution_along_one_axis(stride, padding, dilation) -> None:
    x, weights = drawn([2, 3, 9]), drawn([4, 3, 3])
    found = conv1d(Tensor(x, f64), Tensor(weights, f64), stride=stride, padding=padding, dilation=dilation)
    before = padding[0] if isinstance(padding, tuple) else padding
    expected = convolved(x[:, :, None], weights[:, :, None], (1, stride), (0, before), (1, dilation))[:, :, 0]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-13)


def test_terms_lie_by_channel_then_row_then_column() -> None:
    """In f32, where the order of a sum is seen: the chain of fused products, one by one."""
    x, weights = (drawn(shape).astype(np.float32) for shape in ([1, 3, 3, 3], [1, 3, 3, 3]))
    found = conv2d(Tensor(x), Tensor(weights))
    assert_same_bits(found, (Tensor(x.reshape(1, 27)) @ Tensor(weights.reshape(27, 1))).reshape([1, 1, 1, 1]))


def test_an_axis_of_which_the_windows_are_its_places_has_none() -> None:
    for kernel, stride, unfolded in ((1, 1, 0), ((1, 3), 1, 1), (1, (2, 1), 1), (2, 1, 2)):
        tape = Tape()
        Conv2d(tape, 3, 4, kernel, drawn, stride=stride)(tape.input(shape=[2, 3, 6, 5]))
        assert [node.opcode.name for node in tape.nodes()].count("Unfold") == unfolded


def test_a_group_for_each_channel() -> None:
    x, weights = (drawn(shape).astype(np.float32) for shape in ([2, 3, 5], [3, 1, 3]))
    found = conv1d(Tensor(x), Tensor(weights), groups=3).numpy()
    for channel in range(3):
        alone = conv1d(Tensor(x[:, channel : channel + 1]), Tensor(weights[channel : channel + 1]))
        assert_same_bits(found[:, channel : channel + 1], alone.numpy())


def test_pools_of_one_axis_and_of_what_is_left_over() -> None:
    x = Tensor(np.arange(14.0).reshape(1, 2, 7))
    assert max_pool(x, 3).tolist() == [[[2, 5], [9, 12]]]
    assert max_pool(x, 3, stride=2, padding=1).tolist() == [[[1, 3, 5, 6], [8, 10, 12, 13]]]
    assert average_pool(x, 2, stride=3).tolist() == [[[0.5, 3.5], [7.5, 10.5]]]
    assert average_pool(x, 2, padding=1).tolist() == [[[0, 1.5, 3.5, 5.5], [3.5, 8.5, 10.5, 12.5]]]
    assert global_average_pool(x).tolist() == [[3, 10]] and global_max_pool(x).tolist() == [[6, 13]]


def test_pools_of_all_of_an_image() -> None:
    x = Tensor(np.arange(12.0).reshape(1, 2, 2, 3))
    assert global_average_pool(x).tolist() == [[2.5, 8.5]]
    assert global_max_pool(x).tolist() == [[5, 11]]
    assert max_pool(-x, (2, 3), padding=(1, 2), stride=4).tolist() == [[[[0, -2]], [[-6, -8]]]]


def test_nothing_is_larger_than_what_is_padded() -> None:
    assert max_pool(Tensor.filled([1, 1, 3, 3], -5), 2, padding=1).tolist() == [[[[-5, -5], [-5, -5]]]]
    assert np.isnan(max_pool(Tensor([[[1, np.nan, 3, 4]]]), 2).tolist()[0][0][0])


def test_images_of_none() -> None:
    assert conv2d(Tensor.filled([0, 3, 5, 5], 0), Tensor.filled([2, 3, 3, 3], 1)).shape == [0, 2, 3, 3]
    assert max_pool(Tensor.filled([0, 3, 4, 4], 0), 2).shape == [0, 3, 2, 2]


REFUSED = {
    "conv2d: wants weights of [filters, channels, kernel height, kernel width], got [2, 3]": lambda x: conv2d(
        x, Tensor(drawn([2, 3]))
    ),
    "conv2d: wants [batch, 4, height, width], got [2, 3, 5, 5]": lambda x: conv2d(x, Tensor(drawn([2, 4, 3, 3]))),
    "conv1d: wants [batch, 3, length], got [2, 3, 5, 5]": lambda x: conv1d(x, Tensor(drawn([2, 3, 3]))),
    "conv2d: wants a height of at least 7 for its windows, got 5": lambda x: conv2d(x, Tensor(drawn([2, 3, 7, 1]))),
    "conv2d: wants a width of at least 6 for its windows, got 5": lambda x: conv2d(
        x, Tensor(drawn([2, 3, 1, 4])), padding=(0, 2), dilation=3
    ),
    "conv2d: wants a bias of [2], got [3]": lambda x: conv2d(x, Tensor(drawn([2, 3, 3, 3])), Tensor(drawn([3]))),
    "conv2d: wants stride of at least 1, got 0": lambda x: conv2d(x, Tensor(drawn([2, 3, 3, 3])), stride=0),
    "conv2d: wants padding of at least 0, got -1": lambda x: conv2d(x, Tensor(drawn([2, 3, 3, 3])), padding=(0, -1)),
    "conv2d: wants an integer for dilation, got 1.5": lambda x: conv2d(x, Tensor(drawn([2, 3, 3, 3])), dilation=1.5),
    "conv2d: wants groups that divide filters, got 2 of 3": lambda x: conv2d(x, Tensor(drawn([3, 3, 1, 1])), groups=2),
    "conv2d: wants [batch, 6, height, width], got [2, 3, 5, 5]": lambda x: conv2d(
        x, Tensor(drawn([2, 3, 1, 1])), groups=2
    ),
    "conv2d: wants one stride or 2, got 3": lambda x: conv2d(x, Tensor(drawn([2, 3, 3, 3])), stride=(1, 1, 1)),
    "max_pool: wants a padding of less than its windows of 2, got 2": lambda x: max_pool(x, 2, padding=2),
    "max_pool: wants a height of at least 6 for its windows, got 5": lambda x: max_pool(x, 6),
    "max_pool: wants [batch, channels, length] or [batch, channels, height, width], got [2, 15]": lambda x: max_pool(
        x.reshape([2, 75])[:, :15], 2
    ),
    "average_pool: wants size of at least 1, got 0": lambda x: average_pool(x, 0),
    "global_max_pool: wants [batch, channels, length] or [batch, channels, height, width], got [150]": lambda x: (
        global_max_pool(x.reshape([150]))
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_functions_refuse(message) -> None:
    with pytest.raises(ShapeError) as caught:
        REFUSED[message](Tensor(drawn([2, 3, 5, 5])))
    assert str(caught.value) == message


LAYERS = {
    "conv: Conv2d wants stride of at least 1, got 0": lambda t: Conv2d(t, 3, 4, 3, drawn, stride=0, name="conv"),
    "conv: Conv2d wants kernel of at least 1, got 0": lambda t: Conv2d(t, 3, 4, (3, 0), drawn, name="conv"),
    "conv: Conv1d wants one dilation or 1, got 2": lambda t: Conv1d(t, 3, 4, 3, drawn, dilation=(1, 1), name="conv"),
    "conv: Conv2d wants channels of at least 1, got 0": lambda t: Conv2d(t, 0, 4, 3, drawn, name="conv"),
    "conv: Conv2d wants groups that divide channels, got 2 of 3": lambda t: Conv2d(
        t, 3, 4, 3, drawn, groups=2, name="conv"
    ),
    "h0.conv: Conv2d wants [batch, 3, height, width], got [2, 4, 5, 5]": lambda t: Conv2d(
        t, 3, 4, 3, drawn, name="h0.conv"
    )(t.input(shape=[2, 4, 5, 5])),
    "h0.conv: Conv1d wants a length of at least 3 for its windows, got 2": lambda t: Conv1d(
        t, 3, 4, 3, drawn, name="h0.conv"
    )(t.input(shape=[2, 3, 2])),
}


@pytest.mark.parametrize("message", LAYERS)
def test_what_layers_refuse(message) -> None:
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}"):
        LAYERS[message](Tape())


def test_a_layer_that_fails_to_be_made_records_nothing() -> None:
    tape = Tape()
    with pytest.raises(ShapeError):
        Conv2d(tape, 3, 4, 3, drawn, dilation=0)
    assert len(tape) == 0
