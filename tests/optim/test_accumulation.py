"""Sums of many gradients, and weights that half precision would not move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg


def _sum_of(compensated: bool, numbers: Any, dtype: Any = wg.float32) -> Any:
    p = wg.Parameter(wg.zeros((2,), dtype=dtype))
    accumulator = wg.optim.GradientAccumulator(len(numbers), average=False, compensated=compensated)
    total = None
    for x in numbers:
        grads = wg.GradientMap()
        grads[p] = wg.tensor([x, 2 * x], dtype=dtype)
        total = accumulator.add(grads)
    assert total is not None
    return total[p]


def test_compensated_sums_do_not_drift() -> None:
    numbers = [1.0] + [1e-8] * 4000  # each is less than half a unit in the last place of 1
    exact = np.array([1.0 + 4e-5, 2.0 + 8e-5])
    assert _sum_of(False, numbers).tolist() == [1.0, 2.0]
    np.testing.assert_allclose(_sum_of(True, numbers).numpy(), exact, rtol=1e-7)


def test_compensated_sums_of_random_numbers() -> None:
    rng = np.random.default_rng(0)
    numbers = (rng.standard_normal(2000) * 10.0 ** rng.integers(-3, 4, 2000)).astype(np.float32)
    exact = float(np.sum(numbers.astype(np.float64)))
    errors = [abs(float(_sum_of(c, numbers.tolist())[0]) - exact) for c in (False, True)]
    assert errors[1] <= np.spacing(np.float32(abs(exact))) <= errors[0]


def test_gradients_in_half_precision_are_added_in_float32() -> None:
    total = _sum_of(False, [1.0] * 1000, wg.bfloat16)  # in bfloat16 the sum ends at 256
    assert total.dtype == wg.float32 and total.tolist() == [1000.0, 2000.0]
    p = wg.Parameter(wg.zeros((2,), dtype=wg.bfloat16))
    accumulator = wg.optim.GradientAccumulator(2)
    for _ in range(2):
        grads = accumulator.add((p * wg.tensor([1.0, 3.0], dtype=wg.bfloat16)).sum().backward())
    wg.optim.SGD([p], lr=1.0).step(grads)
    assert p.tolist() == [-1.0, -3.0] and p.dtype == wg.bfloat16


@pytest.mark.parametrize("dtype", [wg.bfloat16, wg.float16])
def test_small_steps_add_up_in_master_weights(dtype: Any) -> None:
    def trained(wrap: Any, dtype: Any) -> Any:
        p = wg.Parameter(wg.ones((3,), dtype=dtype))
        opt = wrap(wg.optim.SGD([p], lr=1e-4))
        for _ in range(1000):
            opt.step([wg.tensor([1.0, 2.0, -1.0], dtype=dtype)])
        return p

    assert trained(lambda o: o, dtype).tolist() == [1.0] * 3
    p = trained(wg.optim.MasterWeights, dtype)
    assert p.dtype == dtype
    np.testing.assert_allclose(p.detach().astype(wg.float32).numpy(), [0.9, 0.8, 1.1], rtol=wg.finfo(dtype).eps)


def test_master_weights_step_as_float32_does() -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal((4, 3)).astype(np.float32).astype(np.float16)
    grads = [rng.standard_normal((4, 3)).astype(np.float16) for _ in range(5)]
    half, wide = wg.Parameter(wg.tensor(start)), wg.Parameter(wg.tensor(start.astype(np.float32)))
    other = [wg.Parameter(wg.ones((2,))) for _ in range(2)]  # of float32: stepped as it is
    opts = [wg.optim.MasterWeights(wg.optim.Adam([half, other[0]], lr=0.1)), wg.optim.Adam([wide, other[1]], lr=0.1)]
    for k, g in enumerate(grads):
        for opt, p, o in zip(opts, (half, wide), other):
            opt.param_groups[0]["lr"] = 0.1 / (k + 1)
            made = wg.GradientMap()
            made[p], made[o] = wg.tensor(g, dtype=p.dtype), wg.ones((2,))
            opt.step(made)
    assert wg.fingerprint(half.detach()) == wg.fingerprint(wide.detach().astype(wg.float16))
    assert other[0].tolist() == other[1].tolist() != [1.0, 1.0]


def test_the_state_of_master_weights() -> None:
    def make() -> tuple[Any, Any]:
        p = wg.Parameter(wg.ones((2,), dtype=wg.bfloat16))
        return p, wg.optim.MasterWeights(wg.optim.Adam([p], lr=1e-4))

    p, opt = make()
    g = wg.tensor([1.0, -1.0])
    for _ in range(3):
        opt.step([g])
    q, again = make()
    again.load_state_dict(opt.state_dict())
    for _ in range(60):
        opt.step([g])
        again.step([g])
    assert p.tolist() == q.tolist() != [1.0, 1.0]
    with pytest.raises(wg.ArgumentError, match="shapes"):
        again.load_state_dict({**opt.state_dict(), "masters": {0: wg.ones((3,))}})
    with wg.no_grad():
        p += 1.0
    opt.refresh()
    opt.step([g])
    assert p.tolist()[0] > 1.9
    with pytest.raises(wg.ArgumentError, match="has made steps already"):
        wg.optim.MasterWeights(_stepped())
    with pytest.raises(wg.ArgumentError, match="wraps an optimizer, got int"):
        wg.optim.MasterWeights(3)  # type: ignore[arg-type]


def _stepped() -> Any:
    p = wg.Parameter(wg.ones((2,)))
    opt = wg.optim.SGD([p], lr=0.1)
    opt.step([wg.ones((2,))])
    return opt


def test_master_weights_with_a_scaler() -> None:
    p = wg.Parameter(wg.ones((2, 2), dtype=wg.float16))
    opt, scaler = (
        wg.optim.MasterWeights(wg.optim.SGD([p], lr=1e-4)),
        wg.GradScaler(init_scale=2.0**15, growth_interval=4),
    )
    x = wg.ones((1, 2), dtype=wg.float16)
    for _ in range(20):
        scaler.step(opt, scaler.scale((x @ p).sum()).backward())
        scaler.update()
    assert scaler.skipped_steps > 0  # 2¹⁶ does not fit float16
    moved = (scaler.steps - scaler.skipped_steps) * 1e-4
    np.testing.assert_allclose(p.detach().astype(wg.float32).numpy(), 1.0 - moved, rtol=1e-3)
