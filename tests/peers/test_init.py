"""Gains and spreads of initialisers beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import wengert as wg
from wengert.nn import init

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")


@pytest.mark.parametrize("name", ["linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"])
def test_gains(name: str) -> None:
    assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name), rel=1e-15)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kaiming_uniform", {}),
        ("kaiming_uniform", dict(a=5**0.5)),
        ("kaiming_normal", dict(mode="fan_out", nonlinearity="relu")),
        ("xavier_uniform", dict(gain=1.5)),
        ("xavier_normal", {}),
        ("trunc_normal", dict(std=1.5, a=-1.0)),
        ("orthogonal", dict(gain=2.0)),
    ],
)
def test_spread(name: str, options: dict[str, Any]) -> None:
    ours = getattr(init, name)(wg.zeros((64, 32, 3, 3)), generator=wg.Generator(seed=3), **options)
    theirs = getattr(torch.nn.init, name + "_")(torch.zeros(64, 32, 3, 3), **options)
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.03)
    assert ours.numpy().max() == pytest.approx(theirs.max().item(), rel=0.5 if "normal" in name else 0.3)
