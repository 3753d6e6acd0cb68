"""Numbers of Python given to compiled functions: operands where they can be, static and bounded where they cannot."""

from __future__ import annotations

import gc
import math
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.functional import activations, class_losses, losses

X = np.linspace(-2.0, 2.0, 7)
DTYPES = [np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_, np.complex64]


def same_bits(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, (tuple, list)):
        for x, y in zip(a, b):
            same_bits(x, y)
        return
    assert a.dtype == b.dtype
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


FUNCTIONS: dict[str, Any] = {
    "times": lambda x, a: (x * a, a * x),
    "plus and minus": lambda x, a: (x + a, a - x),
    "quotients": lambda x, a: (x / a, a / (x + 3)),
    "of numbers": lambda x, a: x * (2 * a + 1) - (a - 0.5) / 3,
    "of two": lambda x, a: x * (a * a) + (-a) * abs(a),
    "comparison": lambda x, a: (wg.where(x > a, x, a), x <= a),
    "extrema": lambda x, a: (wg.maximum(x, a), wg.minimum(a, x)),
    "branch": lambda x, a: x * a if a > 1 else x + a,
    "truth": lambda x, a: x + a if a else x,
    "outer function": lambda x, a: wg.sin(a) * x,
    "needed": lambda x, a: x * math.floor(a),
    "power": lambda x, a: x * a**2,
    "captured": lambda x, a: wg.asarray(X.astype(np.float32)) * a + x.sum(),
}
VALUES: list[Any] = [
    *(0.1, 0.2, 3.7, 1e-300, 1e30, -2.5, 0.3), *(3, 4, -7, 2**31, 2**40, 5),
    *(np.float32(0.1), np.float32(0.7), np.float64(0.1), np.float64(1 / 3), np.int64(3), np.int64(9)), True, False,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_have_the_bits_of_eager_calls(name: str, dtype: Any) -> None:
    f = FUNCTIONS[name]
    compiled = wg.compile(f)
    x = wg.asarray(X.astype(dtype))
    for a in VALUES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of overflow
            try:
                expected = f(x, a)
            except Exception as e:
                with pytest.raises(type(e)):
                    compiled(x, a)
                continue
            got = compiled(x, a)
        same_bits(got, expected)


@pytest.mark.parametrize("name", ["times", "plus and minus", "quotients", "of numbers", "of two", "extrema"])
def test_two_traces_serve_all_values(name: str) -> None:
    compiled = wg.compile(FUNCTIONS[name])
    x = wg.asarray(X)
    for k in range(200):
        compiled(x, 0.001 * (k + 1))
    assert len(compiled.traces) == 2  # of the first value, which may be the only one, and of all others


def test_numbers_that_are_returned() -> None:
    f = wg.compile(lambda x, a: (x.sum(), 2 * a + 1, a))
    for a in (0.5, 0.7, 0.9, 3, 4, 5):
        _, computed, given = f(wg.asarray(X), a)
        expected = wg.tensor([2 * a + 1, a])
        assert [computed.item(), given.item()] == expected.tolist()
        assert computed.dtype == given.dtype == expected.dtype
    assert len(f.traces) == 3


def test_every_kind_of_number_and_place() -> None:
    x = wg.asarray(X)
    positional, named, contained = (
        wg.compile(lambda x, a, b: x * a + b),
        wg.compile(lambda x, *, a, b: x * a + b),
        wg.compile(lambda tree: tree["x"] * tree["a"] + tree["b"][0]),
    )
    for k in range(50):
        a, b = np.float32(k / 7), len(X) + k
        positional(x, a, b)
        named(x, a=a, b=b)
        contained({"x": x, "a": a, "b": [b]})
    assert len(positional.traces) <= 3
    assert len(named.traces) <= 3
    assert len(contained.report()) <= 3


def test_gradients_and_higher_orders_beside_numbers() -> None:
    def f(x: Any, a: float) -> Any:
        return (wg.sin(x * a) * (a + 1)).sum()

    compiled = wg.compile(f)
    x = wg.asarray(X)
    for a in (0.5, 0.7, 1.3, 2):
        for transform in (
            lambda g: wg.grad(g)(x),
            lambda g: wg.jvp(g, (x,), (x,))[1],
            lambda g: wg.hvp(g, x, x),
        ):
            got, expected = (transform(lambda x, g=g, a=a: g(x, a)) for g in (compiled, f))
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12)


def test_a_comparison_is_a_guard() -> None:
    f = wg.compile(lambda x, a: x * a if 0.0 < a <= 1.0 else x - a)
    x = wg.asarray(X)
    for k in range(100):
        f(x, k / 50)
    assert len(f.traces) <= 4  # the first value; zero, the values up to one, and those above


def test_integers_that_are_sizes_stay_static() -> None:
    f = wg.compile(lambda x, n: x.reshape((n, -1)).sum(axis=n - n))
    for n in (1, 2, 3, 4, 2, 1):
        assert f(wg.ones((12,)), n).shape == (12 // n,)
    assert len(f.traces) == 4


def test_an_error_does_not_make_numbers_static() -> None:
    f = wg.compile(lambda x, y, a: (x + y) * a)
    x = wg.ones((3,))
    f(x, x, 0.5)
    f(x, x, 0.6)
    with pytest.raises(wg.ShapeError):
        f(x, wg.ones((4,)), 0.7)
    for k in range(20):
        f(x, x, k / 7)
    assert len(f.traces) == 2


def test_a_storm_of_static_values_warns_once_and_is_bounded() -> None:
    @wg.compile
    def f(x: Any, rate: float) -> Any:
        return x * math.exp(rate)

    x = wg.asarray(X)
    with pytest.warns(UserWarning, match=r"f: traced 32 times for different values of argument 'rate'") as caught:
        for k in range(300):
            np.testing.assert_array_equal(f(x, k / 100).numpy(), X * math.exp(k / 100))
    assert [w.filename for w in caught] == [__file__]
    assert len(f.traces) <= 128


def test_a_storm_of_static_containers_warns_once_and_is_bounded() -> None:
    f = wg.compile(lambda x, tags: x * len(tags[0]))
    x = wg.asarray(X)
    with pytest.warns(UserWarning, match="traced 32 times") as caught:
        for k in range(200):
            np.testing.assert_array_equal(f(x, ["a" * (k + 1)]).numpy(), X * (k + 1))
    assert [w.filename for w in caught] == [__file__]
    assert len(f.report()) <= 128


COMPOSITES: dict[str, tuple[Any, Any]] = {
    "leaky_relu": (activations._leaky_relu, lambda x, a: wg.leaky_relu(x, a)),
    "elu": (activations._elu, lambda x, a: wg.elu(x, a)),
    "celu": (activations._celu, lambda x, a: wg.celu(x, a)),
    "threshold": (activations._threshold, lambda x, a: wg.threshold(x, a, 2 * a)),
    "huber_loss": (losses._huber, lambda x, a: wg.huber_loss(x, x * 2.0, delta=a)),
    "cross_entropy": (
        class_losses._cross_entropy,
        lambda x, a: wg.cross_entropy(x.reshape((1, -1)), wg.asarray([1]), label_smoothing=a),
    ),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_take_numbers_as_operands(name: str) -> None:
    composite, f = COMPOSITES[name]
    x = wg.tensor(X, requires_grad=True)
    before = len(composite.traces)
    for k in range(1, 100):
        f(x, k / 101).sum().backward()
    assert len(composite.traces) - before <= 3
    tracemalloc.start()
    f(x, 0.123).sum().backward()
    gc.collect()  # empties Python's lists of free objects, too, which are no growth
    base = tracemalloc.get_traced_memory()[0]
    for k in range(1, 2000):
        f(x, k / 2003).sum().backward()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    assert grown < 20_000  # a trace alone is more


def test_composites_inside_a_compiled_function_pass_numbers_on() -> None:
    f = wg.compile(lambda x, a: wg.leaky_relu(x, a).sum() + wg.huber_loss(x, x * 2.0, delta=a))
    x = wg.asarray(X)
    for k in range(1, 50):
        np.testing.assert_allclose(f(x, k / 51).item(), f.function(x, k / 51).item(), rtol=1e-14)
    assert len(f.traces) <= 3
