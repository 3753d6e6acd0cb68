"""Tapes with mixed precision: unscaled gradients, overflow, and the scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg


def _amp(scale: float = 1024.0, interval: int = 2, precision: str = "float16") -> Any:
    return wg.AmpConfig(
        precision=precision, loss_scaler=wg.DynamicLossScaler(init_scale=scale, growth_interval=interval)
    )


def test_gradients_are_unscaled_and_have_the_dtypes_of_their_sources() -> None:
    rng = np.random.default_rng(0)
    x = wg.tensor(rng.standard_normal((4, 8)).astype(np.float32))
    w = wg.tensor(rng.standard_normal((8, 3)).astype(np.float32))
    h = w.astype(wg.float16)
    with wg.GradientTape(amp=_amp()) as tape:
        y = x @ w + x @ h
        loss = wg.mse_loss(y, wg.zeros((4, 3)))
    assert y.dtype == wg.float16 and loss.dtype == wg.float32
    dx, dw, dh = tape.gradient(loss, [x, w, h])
    assert (dx.dtype, dw.dtype, dh.dtype) == (wg.float32, wg.float32, wg.float16) and not tape.overflowed
    expected = wg.grad(lambda w: wg.mse_loss(x @ w + x @ w, wg.zeros((4, 3))))(w)
    np.testing.assert_allclose(dw.numpy() * 2, expected.numpy(), rtol=5e-3, atol=5e-3)


def test_small_gradients_survive_by_scaling() -> None:
    x, w = wg.full((1, 1), 1e-4), wg.full((1, 1), 1.0)

    def gradient(scale: float) -> float:
        with wg.GradientTape(amp=wg.AmpConfig(loss_scaler=wg.StaticLossScaler(scale))) as tape:
            loss = (x @ w).sum() * 1e-6
        return tape.gradient(loss, w).item()

    assert gradient(1.0) == 0.0
    assert gradient(65536.0) == pytest.approx(1e-10, rel=1e-2)


def test_overflow_backs_off_and_recovers() -> None:
    config = _amp(scale=2.0**17)
    w, x = wg.ones((2, 2)), wg.ones((2, 1))
    scales, overflowed = [], []
    for _ in range(6):
        with wg.GradientTape(amp=config) as tape:
            loss = (w @ x).sum() * 4.0  # 4 · 2¹⁷ does not fit float16
        tape.gradient(loss, w)
        overflowed.append(tape.overflowed)
        scales.append(config.loss_scaler.scale)
    assert overflowed == [True, True, True, True, False, False]
    assert scales == [2.0**16, 2.0**15, 2.0**14, 2.0**13, 2.0**13, 2.0**14]


def test_backward_of_a_tape_and_bfloat16() -> None:
    w = wg.Parameter(wg.ones((2, 2)))
    with wg.GradientTape(amp=wg.AmpConfig(precision="bfloat16")) as tape:
        y = w @ w
        loss = y.sum()
    grads = tape.backward(loss)
    assert y.dtype == wg.bfloat16 and grads[w].tolist() == [[4.0, 4.0], [4.0, 4.0]] and not tape.overflowed


def test_the_mode_ends_with_the_recording() -> None:
    w = wg.ones((2, 2))
    tape = wg.GradientTape(amp=wg.AmpConfig())
    with pytest.raises(ZeroDivisionError), tape:
        1 / 0
    assert (w @ w).dtype == wg.float32
    tape.start_recording()
    assert (w @ w).dtype == wg.float16
    tape.stop_recording()
    assert (w @ w).dtype == wg.float32
    with wg.GradientTape(amp=wg.AmpConfig(enabled=False)) as plain:
        y = (w @ w).sum()
    assert plain.gradient(y, w).dtype == y.dtype == wg.float32


def test_what_is_not_a_config_is_named() -> None:
    with pytest.raises(TypeError, match="GradientTape: amp takes an AmpConfig, got str"):
        wg.GradientTape(amp="bfloat16")  # type: ignore[arg-type]
