"""Initialisers: their bounds and moments, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.nn import init

N = (400, 300)  # fan_in 300, fan_out 400


def _filled(f: Any, *args: Any, **options: Any) -> Any:
    t = wg.zeros(N, dtype=wg.float64)
    assert f(t, *args, generator=wg.Generator(seed=0), **options) is t
    return t.numpy()


@pytest.mark.parametrize(
    ("f", "options", "std"),
    [
        (init.uniform, dict(a=-2.0, b=4.0), 6.0 / math.sqrt(12)),
        (init.normal, dict(mean=1.0, std=0.3), 0.3),
        (init.xavier_uniform, dict(gain=2.0), 2.0 * math.sqrt(2 / 700)),
        (init.xavier_normal, {}, math.sqrt(2 / 700)),
        (init.kaiming_uniform, dict(a=math.sqrt(5)), math.sqrt(2 / 6 / 300)),
        (init.kaiming_uniform, dict(mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 400)),
        (init.kaiming_normal, {}, math.sqrt(2 / 300)),
        (init.kaiming_normal, dict(nonlinearity="tanh"), 5 / 3 / math.sqrt(300)),
    ],
)
def test_moments(f: Any, options: dict[str, Any], std: float) -> None:
    a = _filled(f, **options)
    mean = 1.0 if "mean" in options or "b" in options else 0.0
    assert a.mean() == pytest.approx(mean, abs=5 * std / math.sqrt(a.size))
    assert a.std() == pytest.approx(std, rel=5 / math.sqrt(2 * a.size))
    if "uniform" in f.__name__:
        assert np.abs(a - mean).max() <= std * math.sqrt(3) < 1.01 * np.abs(a - mean).max()


def test_truncated_normal() -> None:
    a = _filled(init.trunc_normal, mean=0.5, std=2.0, a=-1.0, b=3.0)
    assert a.min() >= -1.0 and a.max() <= 3.0
    from scipy.stats import kstest, truncnorm

    assert kstest(a.ravel(), truncnorm(-0.75, 1.25, loc=0.5, scale=2.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    w = init.orthogonal(wg.zeros(shape, dtype=wg.float64), gain=2.0).numpy().reshape(shape[0], -1)
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    assert np.allclose(gram, 4.0 * np.eye(len(gram)), atol=1e-12)


def test_they_fill_parameters_unrecorded() -> None:
    p = wg.Parameter.zeros((3, 3))
    assert init.eye(p) is p and p.is_leaf and p.requires_grad and p.tolist() == np.eye(3).tolist()
    assert init.ones(p).tolist() == np.ones((3, 3)).tolist()
    assert not init.zeros(p).numpy().any()
    assert init.kaiming_normal_ is init.kaiming_normal  # type: ignore[attr-defined]
    assert init.constant(wg.zeros((2,), dtype=wg.float16), 0.5).dtype == wg.float16


def test_what_they_refuse() -> None:
    with pytest.raises(wg.ShapeError, match=r"two axes, got float32\(3,\)"):
        init.xavier_normal(wg.zeros((3,)))
    with pytest.raises(wg.ArgumentError, match="'fan'"):
        init.kaiming_uniform(wg.zeros((3, 3)), mode="fan")
    with pytest.raises(wg.ArgumentError, match="no gain for 'gelu'; there are leaky_relu, linear"):
        init.calculate_gain("gelu")
    with pytest.raises(wg.ShapeError, match="matrix"):
        init.eye(wg.zeros((3,)))
    with pytest.raises(AttributeError, match="wrong_"):
        init.wrong_  # type: ignore[attr-defined]


def test_they_fill_tensors_and_not_shapes() -> None:
    with pytest.raises(TypeError, match="init: fills a tensor or parameter in place, got tuple"):
        init.kaiming_uniform((3, 4))  # type: ignore[arg-type]
