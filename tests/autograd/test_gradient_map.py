"""GradientMap: a mapping that owns what it holds."""

from __future__ import annotations

import numpy as np
import pytest

import wengert as wg


@pytest.fixture
def x() -> wg.Tensor:
    return wg.tensor([3.0, 4.0], requires_grad=True)


def test_as_a_mapping(x: wg.Tensor) -> None:
    grads = (x * x).sum().backward()
    assert len(grads) == 1 and list(grads) == [x.id] == list(grads.keys())
    assert [g.tolist() for g in grads.values()] == [[6.0, 8.0]]
    assert dict(grads.items())[x.id].tolist() == [6.0, 8.0]
    assert grads.get(wg.ones(1), "none") == "none"
    with pytest.raises(KeyError, match="explain"):
        grads[wg.ones(1)]
    with pytest.raises(KeyError):
        grads[10**9]


def test_inserted_and_accumulated_gradients_are_not_changed(x: wg.Tensor) -> None:
    acc, g = wg.GradientMap(), wg.ones(2)
    acc.insert(x, g)
    acc.accumulate(x, g)
    acc.scale_(10.0)
    assert acc[x].tolist() == [20.0, 20.0]
    assert g.tolist() == [1.0, 1.0]


def test_accumulating_a_map_leaves_it_alone(x: wg.Tensor) -> None:
    acc = wg.GradientMap()
    for _ in range(3):
        grads = (x * x).sum().backward()
        acc.accumulate(grads)
        assert grads[x].tolist() == [6.0, 8.0]
    assert acc[x].tolist() == [18.0, 24.0]
    acc.accumulate(acc)
    assert acc[x].tolist() == [36.0, 48.0]


def test_scaling_a_map_leaves_grad_alone(x: wg.Tensor) -> None:
    grads = (x * x).sum().backward()
    grads.scale_(1 / 2)
    assert grads[x].tolist() == [3.0, 4.0]
    assert x.grad.tolist() == [6.0, 8.0]


def test_norm_in_float64(x: wg.Tensor) -> None:
    acc = wg.GradientMap()
    acc.insert(1, wg.full((2,), 300.0, dtype=wg.float16))
    acc.insert(2, wg.tensor([1e30]))
    assert acc.global_norm() == pytest.approx(1e30)
    assert wg.GradientMap().global_norm() == 0.0


def test_all_finite(x: wg.Tensor) -> None:
    acc = wg.GradientMap()
    assert acc.all_finite()
    for bad in (np.nan, np.inf, -np.inf):
        acc.insert(x, wg.tensor([1.0, bad]))
        assert not acc.all_finite()
    acc.insert(x.id, wg.zeros((0,)))
    assert acc.all_finite()


def test_misuse(x: wg.Tensor) -> None:
    acc = wg.GradientMap()
    with pytest.raises(TypeError):
        acc.accumulate(x)
    acc.insert(x, wg.ones(2))
    with pytest.raises(ValueError):
        acc.accumulate(x, wg.ones(3))


def test_repr(x: wg.Tensor) -> None:
    assert "float32(2,)" in repr((x * x).sum().backward())


def test_what_does_not_fit_is_refused() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    grads = (x * x).sum().backward()
    with pytest.raises(TypeError, match="the key must be a tensor or a tensor's id, got str"):
        grads["x"]  # type: ignore[index]
    for put in (grads.insert, grads.__setitem__, grads.accumulate):
        with pytest.raises(wg.ShapeError, match=r"a gradient of shape \(3,\) does not fit a tensor of shape \(2,\)"):
            put(x, wg.ones((3,)))
    with pytest.raises(TypeError, match="the factor must be a number, got str"):
        grads.scale_("2")  # type: ignore[arg-type]
    assert grads[x].tolist() == [2.0, 4.0]


def test_arrays_are_gradients_too() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    grads = wg.GradientMap()
    grads.insert(x, np.array([3.0, 4.0], np.float32))  # type: ignore[arg-type]
    assert grads[x].tolist() == [3.0, 4.0] and grads.global_norm() == 5.0
