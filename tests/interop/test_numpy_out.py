"""What NumPy functions write into: `out=` by name and by position, `where=`, `np.add.at`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import gradient

RNG = np.random.default_rng(5)
A, B = RNG.uniform(0.2, 2, (2, 3)), RNG.uniform(0.2, 2, (2, 3))

# The call with `out` last, and the shape of its result.
WRITES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "add": (lambda x, y, o: np.add(x, y, out=o), (2, 3)),
    "add, by position": (lambda x, y, o: np.add(x, y, o), (2, 3)),
    "exp": (lambda x, y, o: np.exp(x * y, out=(o,)), (2, 3)),
    "matmul": (lambda x, y, o: np.matmul(x, y.T, out=o), (2, 2)),
    "sum": (lambda x, y, o: np.sum(x * y, axis=0, out=o), (3,)),
    "sum, by position": (lambda x, y, o: np.sum(x * y, 0, None, o), (3,)),
    "mean, by position": (lambda x, y, o: np.mean(x * y, 0, None, o), (3,)),
    "max, by position": (lambda x, y, o: np.max(x * y, 1, o), (2,)),
    "cumsum, by position": (lambda x, y, o: np.cumsum(x * y, 0, None, o), (2, 3)),
    "clip, by position": (lambda x, y, o: np.clip(x * y, 0.5, 1.5, o), (2, 3)),
    "round, by position": (lambda x, y, o: np.round(x * y, 1, o), (2, 3)),
    "dot, by position": (lambda x, y, o: np.dot(x, y.T, o), (2, 2)),
    "concatenate, by position": (lambda x, y, o: np.concatenate([x, y], 0, o), (4, 3)),
    "add.reduce": (lambda x, y, o: np.add.reduce(x * y, 1, None, o), (2,)),
    "add.accumulate": (lambda x, y, o: np.add.accumulate(x * y, 1, None, o), (2, 3)),
    "maximum.accumulate": (lambda x, y, o: np.maximum.accumulate(x * y, out=o), (2, 3)),
    "add.outer": (lambda x, y, o: np.add.outer(x[0], y[1], out=o), (3, 3)),
    "where=": (lambda x, y, o: np.multiply(x, y, out=o, where=A > 1), (2, 3)),
}


@pytest.mark.parametrize("name", WRITES)
def test_out_holds_the_result_and_its_gradient(name: str) -> None:
    call, shape = WRITES[name]
    seed = RNG.uniform(0.5, 2, shape)

    def by_numpy(x: Any, y: Any) -> Any:
        o = np.full(shape, 7.0)
        call(x, y, o)
        return o

    x, y, out = wg.tensor(A, requires_grad=True), wg.tensor(B, requires_grad=True), wg.full(shape, 7.0, dtype="float64")
    assert call(x, y, out) is out
    np.testing.assert_allclose(out.detach().numpy(), by_numpy(A, B), rtol=1e-12)
    grads = wg.grad_of((out * wg.asarray(seed)).sum(), [x, y], allow_unused=True)
    expected = gradient(lambda a, b: np.sum(seed * by_numpy(a, b)), [A, B])
    for g, e in zip(grads, expected):
        np.testing.assert_allclose(0.0 if g is None else g.numpy(), e, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", WRITES)
def test_out_may_be_an_array_if_there_is_no_gradient(name: str) -> None:
    call, shape = WRITES[name]
    out, expected = np.full(shape, 7.0), np.full(shape, 7.0)
    call(A, B, expected)
    assert call(wg.asarray(A), wg.asarray(B), out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    with pytest.raises(TypeError, match="holds no gradient"):
        call(wg.tensor(A, requires_grad=True), B, out)


def test_what_does_not_fit() -> None:
    x = wg.asarray(A)
    with pytest.raises(wg.ShapeError, match=r"np.add: a result of shape \(2, 3\) does not fit out= of shape \(3,\)"):
        np.add(x, x, out=wg.zeros((3,), dtype="float64"))
    with pytest.raises(TypeError, match="np.add: a result of float64 does not fit out= of int32"):
        np.add(x, x, out=wg.zeros((2, 3), dtype="int32"))
    with pytest.raises(TypeError, match=r"where= leaves elements undefined; use wg.where"):
        np.add(x, x, where=A > 1)
    assert np.add(x, x, out=wg.zeros((2, 3), dtype="float32")).dtype == wg.float32  # the same kind


@pytest.mark.parametrize(
    ("indices", "values"),
    [
        ([0, 2, 2], np.array([1.0, 2.0, 3.5])),
        (([0, 1, 1, 1], [0, 2, 2, 0]), np.array([1.0, 2.0, 3.5, -1.0])),
        (slice(None), 2.0),
        (np.array([True, False]), np.array([1.0, 2.0, 3.0])),
        ((slice(None), [1, 1]), np.array([[1.0], [3.0]])),
        ([], np.array([])),
    ],
    ids=["vector", "pairs", "slice", "mask", "broadcast", "nothing"],
)
@pytest.mark.parametrize("ufunc", [np.add, np.subtract])
def test_at(ufunc: np.ufunc, indices: Any, values: Any) -> None:
    shape = (2, 3) if not isinstance(indices, list) else (4,) if indices else (0,)
    start, seed = RNG.uniform(-1, 1, shape), RNG.uniform(0.5, 2, shape)

    def by_numpy(a: Any, v: Any) -> Any:
        a = a.copy()
        ufunc.at(a, np.array(indices, int) if isinstance(indices, list) else indices, v)
        return a

    a, v = wg.tensor(start, requires_grad=True), wg.tensor(values, dtype="float64", requires_grad=True)
    target = a * 1.0
    assert ufunc.at(target, indices, v) is None
    np.testing.assert_allclose(target.detach().numpy(), by_numpy(start, values), rtol=1e-14)
    grads = (target * wg.asarray(seed)).sum().backward()
    expected = gradient(lambda x, y: np.sum(seed * by_numpy(x, y)), [start, np.asarray(values)])
    for t, e in zip((a, v), expected):
        np.testing.assert_allclose(grads[t].numpy(), e, rtol=1e-7, atol=1e-9)


def test_at_needs_a_tensor_to_write_into() -> None:
    with pytest.raises(TypeError, match="ndarray holds no gradient"):
        np.add.at(np.zeros(3), [0], wg.tensor([1.0], requires_grad=True))
    with pytest.raises(TypeError, match=r"np.multiply.at has no counterpart"):
        np.multiply.at(wg.ones((3,)), [0], 2.0)
    with pytest.raises(IndexError, match="out of range"):
        np.add.at(wg.ones((3,)), [3], 2.0)
