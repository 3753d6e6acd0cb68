"""Layers of convolution, pooling and normalisation: their state, text and errors. Values are compared in tests/peers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.errors import ArgumentError, ShapeError


def test_convolutions_start_uniform_in_one_over_the_root_of_fan_in() -> None:
    layer = nn.Conv2d(4, 64, 3, generator=wg.Generator(1))
    bound = 1 / 6
    w = layer.weight.numpy()
    assert np.abs(w).max() <= bound and w.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    assert np.abs(layer.bias.numpy()).max() <= bound
    assert nn.ConvTranspose2d(4, 6, 3, groups=2).weight.shape == (4, 3, 3, 3)
    assert [n for n, _ in nn.Conv1d(1, 1, 1, bias=False).named_parameters()] == ["weight"]


def test_text() -> None:
    assert repr(nn.Conv2d(3, 8, 3, padding=1)).startswith(
        "Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
    )
    assert "padding='same'" not in repr(nn.Conv1d(3, 8, 3)) and "bias=False" in repr(nn.Conv1d(3, 8, 3, bias=False))
    assert repr(nn.MaxPool2d(2)).startswith("MaxPool2d(kernel_size=2, stride=2, padding=0)")


def test_batch_norm_counts_and_averages() -> None:
    layer = nn.BatchNorm1d(2, momentum=None)
    batches = [np.random.default_rng(k).standard_normal((5, 2)).astype(np.float32) for k in range(3)]
    for b in batches:
        layer(wg.asarray(b))
    assert layer.num_batches_tracked.item() == 3
    np.testing.assert_allclose(layer.running_mean.numpy(), np.mean([b.mean(0) for b in batches], 0), rtol=1e-5)
    frozen = layer.running_mean.numpy().copy()
    layer.eval()(wg.asarray(batches[0]))
    np.testing.assert_array_equal(layer.running_mean.numpy(), frozen)
    assert layer.num_batches_tracked.item() == 3


def test_without_running_statistics_the_batch_is_always_used() -> None:
    layer = nn.BatchNorm2d(3, track_running_stats=False).eval()
    x = wg.asarray(np.random.default_rng(0).standard_normal((4, 3, 2, 2)).astype(np.float32))
    assert list(layer.state_dict()) == ["weight", "bias"]
    np.testing.assert_allclose(layer(x).detach().numpy().mean((0, 2, 3)), 0.0, atol=1e-6)


def test_a_network_learns() -> None:
    """Which half of an image is bright: a step of everything together, and the loss falls."""
    wg.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 1, 12, 12)).astype(np.float32)
    labels = rng.integers(0, 2, 64)
    x[labels == 1, :, :, 6:] += 1.5
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 2)),
        nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip
    optimizer = wg.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(25):
        loss = wg.cross_entropy(net(wg.asarray(x)), wg.asarray(labels))
        optimizer.step(loss.backward())
        losses.append(loss.item())
    assert losses[-1] < 0.25 * losses[0]
    predicted = net.eval()(wg.asarray(x)).detach().numpy().argmax(1)
    assert (predicted == labels).mean() > 0.9


BAD: list[Any] = [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ArgumentError, "Conv2d: groups=2 must divide in_channels=3"),
    (lambda: nn.Conv2d(3, 4, 0), ArgumentError, "kernel_size must be positive"),
    (lambda: nn.Conv2d(3, 4, 3)(wg.ones((1, 4, 8, 8))), ShapeError, "conv2d: the weight takes 3"),
    (lambda: nn.BatchNorm2d(3)(wg.ones((2, 3))), ShapeError, "BatchNorm2d: takes 4 axes"),
    (lambda: nn.BatchNorm2d(3)(wg.ones((2, 4, 1, 1))), ShapeError, "one entry per channel"),
    (lambda: nn.BatchNorm1d(3)(wg.ones((1, 3))), ShapeError, "one value per channel"),
    (lambda: nn.GroupNorm(3, 4), ArgumentError, "does not divide num_channels=4"),
    (lambda: nn.InstanceNorm2d(3)(wg.ones((2, 3, 4))), ShapeError, "InstanceNorm2d: takes 4 axes"),
]


@pytest.mark.parametrize(("call", "error", "match"), BAD)
def test_bad_input(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=re.escape(match)):
        call()


@pytest.mark.parametrize(("mode", "of_numpy"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
@pytest.mark.parametrize(
    ("options", "widths"),
    [
        ({"padding": (2, 1), "stride": 2}, ((2, 2), (1, 1))),
        ({"padding": "same", "dilation": (2, 1)}, ((2, 2), (1, 2))),
        ({"padding": "valid"}, ((0, 0), (0, 0))),
    ],
)
def test_padding_modes(mode, of_numpy, options, widths):
    layer = nn.Conv2d(2, 3, (3, 4), padding_mode=mode, generator=wg.Generator(1), **options)
    x = np.random.default_rng(0).standard_normal((2, 2, 7, 8)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), *widths), mode=of_numpy)
    sizes = {"stride": layer.stride, "dilation": layer.dilation}
    expected = wg.conv2d(wg.tensor(padded), layer.weight, bias=layer.bias, **sizes)
    np.testing.assert_array_equal(layer(wg.tensor(x)).detach().numpy(), expected.detach().numpy())
    assert f"padding_mode={mode}" in repr(layer)


def test_padding_modes_that_make_no_sense():
    with pytest.raises(
        wg.ArgumentError, match="padding_mode must be one of zeros, reflect, replicate, circular, got 'up'"
    ):
        nn.Conv1d(2, 3, 3, padding_mode="up")
    with pytest.raises(wg.ArgumentError, match='padding="same" needs stride 1'):
        nn.Conv1d(2, 3, 3, stride=2, padding="same", padding_mode="reflect")(wg.ones((1, 2, 5)))
