"""Moving averages of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim


def _walk(ema: optim.EMA, p: Any, steps: int) -> list[Any]:
    seen = []
    rng = np.random.default_rng(0)
    for _ in range(steps):
        nn.vector_to_parameters(rng.normal(size=p.size), [p])
        seen.append(p.numpy().copy())
        ema.update()
    return seen


def _averaged(values: list[Any], rates: list[float], start: Any) -> Any:
    a = start
    for v, rate in zip(values, rates):
        a = a + (v - a) * rate
    return a


def test_formulas() -> None:
    for options, rates in [
        (dict(decay=0.9), [0.1] * 7),
        (dict(decay=0.9, warmup=True), [1 - min(0.9, (1 + t) / (10 + t)) for t in range(1, 8)]),
    ]:
        p = wg.Parameter(wg.tensor(np.arange(3.0)))
        ema = optim.EMA([p], **options)  # type: ignore[arg-type]
        seen = _walk(ema, p, 7)
        assert np.allclose(ema.averages()["0"].numpy(), _averaged(seen, rates, np.arange(3.0)), rtol=1e-12)


def test_without_bias_the_start_does_not_count() -> None:
    p = wg.Parameter(wg.tensor(np.full(3, 1e9)))
    ema = optim.EMA([p], decay=0.9, debias=True)
    seen = _walk(ema, p, 5)
    weights = np.array([0.9 ** (4 - k) for k in range(5)])
    expected = sum(w * v for w, v in zip(weights, seen)) / weights.sum()
    assert np.allclose(ema.averages()["0"].numpy(), expected, rtol=1e-9)


def test_half_precision_is_averaged_in_float32() -> None:
    p = wg.Parameter(wg.ones((4,), dtype=wg.bfloat16))
    ema = optim.EMA([("w", p)], decay=0.999)
    nn.vector_to_parameters(np.zeros(4), [p])
    for _ in range(100):
        ema.update()
    assert ema.averages()["w"].dtype == wg.float32 and np.allclose(ema.averages()["w"].numpy(), 0.999**100, rtol=1e-5)


def test_swapping_restores_every_bit_also_after_errors() -> None:
    net = nn.Linear(3, 2)
    ema = optim.EMA(net, decay=0.5)
    optim.SGD(net.parameters(), lr=0.5).apply_gradients([(p, np.ones(p.shape)) for p in net.parameters()])
    ema.update()
    before = {k: t.numpy().tobytes() for k, t in net.state_dict().items()}
    with pytest.raises(RuntimeError, match="inside"), ema.swapped():
        assert np.array_equal(net.weight.numpy(), ema.averages()["weight"].numpy())
        raise RuntimeError("inside")
    assert {k: t.numpy().tobytes() for k, t in net.state_dict().items()} == before
    ema.copy_to_weights()
    assert np.array_equal(net.bias.numpy(), ema.averages()["bias"].numpy())  # type: ignore[union-attr]


def test_state_resumes_and_is_checked() -> None:
    p, q = wg.Parameter(wg.tensor(np.ones(3))), wg.Parameter(wg.tensor(np.ones(3)))
    a = optim.EMA([("w", p)], 0.9, warmup=True, debias=True)
    _walk(a, p, 4)
    b = optim.EMA([("w", q)], 0.9, warmup=True, debias=True)
    b.load_state_dict(a.state_dict())
    nn.vector_to_parameters(p, [q])
    for ema in (a, b):
        ema.update()
    assert np.array_equal(a.averages()["w"].numpy(), b.averages()["w"].numpy())
    with pytest.raises(wg.ArgumentError, match=r"missing: v\n  unexpected: w"):
        optim.EMA([("v", p)]).load_state_dict(a.state_dict())
    with pytest.raises(wg.ArgumentError, match=r"mismatched: w has shape \(2,\), the state \(3,\)"):
        optim.EMA([("w", wg.Parameter.ones((2,)))]).load_state_dict(a.state_dict())
    with pytest.raises(wg.ArgumentError, match="decay"):
        optim.EMA([p], 1.0)
    with pytest.raises(wg.ArgumentError, match="no weights"):
        optim.EMA([])
