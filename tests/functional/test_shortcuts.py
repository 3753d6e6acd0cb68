"""Shortcuts: calls that are read natively give what the Python functions behind them give, and leave the rest to them."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.functional.indexing import getitem

FUNCTIONS = (wg.sum, wg.mean, wg.max, wg.min, wg.reshape, wg.matmul, wg.pow)
DTYPES = (wg.float32, wg.float64, wg.float16, wg.bfloat16, wg.complex64, wg.int32, wg.bool_)


def _outcome(f: Any, *args: Any, **options: Any) -> Any:
    """What a call gives: dtype, numbers and gradient, or its error."""
    try:
        y = f(*args, **options)
    except Exception as e:
        return type(e), str(e)
    return y.dtype, y.shape, np.asarray(y.detach()).tobytes()


def _same(f: Any, *args: Any, **options: Any) -> None:
    native, python = _outcome(f, *args, **options), _outcome(f.__wrapped__, *args, **options)
    assert native == python, (f.__name__, args, options)


def _sample(dtype: Any, shape: tuple[int, ...]) -> Any:
    return wg.asarray(np.random.default_rng(0).integers(-3, 4, shape).astype("float64")).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("f", (wg.sum, wg.mean, wg.max, wg.min), ids=lambda f: f.__name__)
def test_reductions_agree_with_python(f: Any, dtype: Any) -> None:
    if dtype.kind == "c" and f in (wg.max, wg.min):
        dtype = wg.float32
    for shape in ((), (5,), (2, 3), (2, 0, 3), (2, 3, 4)):
        x = _sample(dtype, shape)
        axes = (None, 0, -1, 1, (0, 1), (1, 0), (0, 0), (0, -2), (), [0, 1], 7, -7, True, np.int64(0), 1.0, "x", 2**70)
        for axis in axes:
            _same(f, x, axis)
            _same(f, x, axis=axis, keepdims=True)
        _same(f, x, keepdims=1)
        _same(f, x, dim=0)
        _same(f, x, 0, 1)
        _same(f, x, 0, axis=0)
        _same(f, x, dtype=wg.float64)
    _same(f)
    _same(f, [1.0, 2.0])


def test_mean_of_nothing_is_nan() -> None:
    assert np.isnan(wg.mean(wg.ones((0,))).item())


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_powers_agree_with_python(dtype: Any) -> None:
    x = abs(_sample(dtype, (3, 2))) + 1 if dtype is not wg.bool_ else _sample(dtype, (3, 2))
    numbers = (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 2.0, 3.0, 2.5, float("nan"), float("inf"), True, 1 + 2j, 10**400)
    for n in (*numbers, np.float32(2), np.array(2.0), x, x.astype(wg.float64), wg.ones((2,)), "2", None):
        _same(wg.pow, x, n)
    _same(wg.pow, 2.0, x)


def test_products_agree_with_python() -> None:
    a, b = _sample(wg.float32, (3, 4)), _sample(wg.float32, (4, 2))
    wide, batch = b.astype(wg.float64), _sample(wg.float32, (5, 3, 4))
    for left, right in ((a, b), (a, wide), (a, a), (a, b[:, 0]), (a[0], b), (batch, b), (a, 2.0), (a.numpy(), b)):
        _same(wg.matmul, left, right)
    with pytest.raises(TypeError):
        a @ "b"


def test_reshapes_agree_with_python() -> None:
    x = _sample(wg.float32, (2, 3, 4))
    for sizes in (
        (24,),
        (6, 4),
        (-1,),
        (4, -1),
        (-1, -1),
        (5, -1),
        (0, -1),
        (-2, 12),
        (2, 3, 4),
        (1,) * 20,
        (2**62, 4),
    ):
        _same(wg.reshape, x, sizes)
        _same(wg.reshape, x, *sizes)
    for strange in ([6, 4], np.array([6, 4]), (np.int64(6), 4), (True, 24), (6.0, 4), "ab", None):
        _same(wg.reshape, x, strange)
    _same(wg.reshape, x, (24,), copy=True)
    _same(wg.reshape, x.permute_dims((2, 1, 0)), (24,), copy=False)
    _same(wg.reshape, _sample(wg.float32, (0, 3)), (-1, 3))
    _same(wg.reshape, _sample(wg.float32, (0, 3)), (0, -1))


def _entry(r: np.random.Generator, n: int) -> Any:
    def bound() -> Any:
        return None if r.random() < 0.4 else int(r.integers(-2 * n - 2, 2 * n + 3))

    kind = r.integers(6)
    if kind == 0:
        return int(r.integers(-n - 1, n + 1))
    if kind == 1:
        return None
    if kind == 2:
        return Ellipsis
    step = None if r.random() < 0.4 else int(r.integers(-3, 4))
    return slice(bound(), bound(), step)


def test_keys_agree_with_numpy_and_python() -> None:
    r = np.random.default_rng(0)
    for _ in range(3000):
        shape = tuple(int(n) for n in r.integers(0, 4, r.integers(0, 4)))
        a = r.standard_normal(shape)
        key: Any = tuple(_entry(r, 3) for _ in range(r.integers(0, 5)))
        key = key[0] if len(key) == 1 and r.random() < 0.7 else key
        x = wg.tensor(a, dtype=wg.float64)
        assert _outcome(lambda: x[key]) == _outcome(lambda: getitem(x, key)), (shape, key)
        try:
            expected = a[key]
        except (IndexError, ValueError):
            continue
        np.testing.assert_array_equal(np.asarray(x[key]), expected, err_msg=f"{shape} {key}")


@pytest.mark.parametrize(
    "key", [True, np.int64(1), slice(np.int64(0), 2), slice(0, 2**70, 2**65), 2**70, [0, 1], "a", 1.5]
)
def test_unusual_keys_are_left_to_python(key: Any) -> None:
    x = wg.arange(6.0)
    assert _outcome(lambda: x[key]) == _outcome(lambda: getitem(x, key))


def test_gradients_in_both_modes() -> None:
    def f(x: Any) -> Any:
        y = (x[1:] - x[:-1] ** 2).reshape(3, -1)
        return ((y @ y.T).mean(0) * y[:, None, 0].max(axis=-1)).sum()

    x = wg.tensor(np.linspace(0.1, 1.0, 7), dtype=wg.float64)
    v = wg.tensor(np.linspace(-1.0, 1.0, 7), dtype=wg.float64)
    _, forward = wg.jvp(f, (x,), (v,))
    reverse = (wg.grad(f)(x) * v).sum()
    difference = (f(x + 1e-6 * v) - f(x - 1e-6 * v)) / 2e-6
    assert abs(forward.item() - reverse.item()) < 1e-14
    assert abs(forward.item() - difference.item()) < 1e-8


def test_views_share_memory() -> None:
    x = wg.arange(6.0)
    x[1:][0] = 7.0
    x.reshape(2, 3)[1, 2] = 8.0
    assert x.tolist() == [0.0, 7.0, 2.0, 3.0, 4.0, 8.0]


def test_a_long_chain_of_views_of_a_dual_is_made_and_dropped() -> None:
    with wg.ForwardADContext() as ctx:
        x = first = ctx.dual(wg.ones(3), wg.ones(3))
        for _ in range(100_000):
            x = x[:]
        first[0] = 5.0
        assert x.value.tolist() == first.value.tolist() == [5.0, 1.0, 1.0]
        del first, x


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_they_look_like_functions(f: Any) -> None:
    assert f.__doc__ and f.__module__.startswith("wengert.functional")
    assert inspect.signature(f) == inspect.signature(f.__wrapped__)
    assert pickle.loads(pickle.dumps(f)) is f is copy.deepcopy(f)
    assert f.__name__ in repr(f)


def test_only_known_functions_have_shortcuts() -> None:
    with pytest.raises(ValueError, match="there is none for 'cos'"):
        wg._core.with_shortcut(type("F", (), {"__name__": "cos"})())
