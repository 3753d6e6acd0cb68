"""Random functions: distributions, shapes, dtypes, gradients, and the same numbers in compiled functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

import wengert as wg
from tests.stats.checking import check_derivatives

N = 20_000
r = wg.random

SMOOTH: dict[str, tuple[Any, Any]] = {
    "gamma": (lambda **k: r.gamma(1.7, 2.0, (N,), **k), scipy_stats.gamma(1.7, scale=0.5)),
    "beta": (lambda **k: r.beta(0.7, 2.0, (N,), **k), scipy_stats.beta(0.7, 2.0)),
    "exponential": (lambda **k: wg.exponential(2.0, (N,), **k), scipy_stats.expon(scale=0.5)),
    "truncated": (
        lambda **k: wg.truncated_normal(0.5, 2.0, -1.0, 3.0, (N,), **k),
        scipy_stats.truncnorm(-0.75, 1.25, 0.5, 2.0),
    ),
    "upper tail": (lambda **k: wg.truncated_normal(0.0, 1.0, 4.0, 9.0, (N,), **k), scipy_stats.truncnorm(4.0, 9.0)),
    "lower tail": (lambda **k: wg.truncated_normal(0.0, 1.0, -9.0, -4.0, (N,), **k), scipy_stats.truncnorm(-9.0, -4.0)),
    "far tail": (lambda **k: wg.truncated_normal(0.0, 1.0, 40.0, np.inf, (N,), **k), scipy_stats.truncnorm(40.0, np.inf)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMOOTH)
def test_continuous(name: str, dtype: str) -> None:
    draw, theirs = SMOOTH[name]
    x = draw(dtype=dtype, generator=wg.Generator(seed=3))
    assert x.dtype.name == dtype and x.shape == (N,)
    assert scipy_stats.kstest(x.numpy().astype(float), theirs.cdf).pvalue > 1e-4
    np.testing.assert_array_equal(x.numpy(), draw(dtype=dtype, generator=wg.Generator(seed=3)).numpy())
    low, high = theirs.support()
    assert x.numpy().min() >= low and x.numpy().max() <= high


def test_counts() -> None:
    g = wg.Generator(seed=1)
    p = wg.poisson(3.0, (N,), generator=g).numpy()
    b = wg.binomial(20, 0.3, (N,), generator=g).numpy()
    m = wg.multinomial(6, [0.2, 0.3, 0.5], (N,), generator=g).numpy()
    for x, theirs in [
        (p, scipy_stats.poisson(3.0)),
        (b, scipy_stats.binom(20, 0.3)),
        (m[:, 2], scipy_stats.binom(6, 0.5)),
    ]:
        values = np.arange(x.max() + 1)
        observed, expected = (x[:, None] == values).sum(0), N * theirs.pmf(values)
        kept = expected > 10
        assert scipy_stats.chi2(kept.sum()).sf((((observed - expected) ** 2 / expected)[kept]).sum()) > 1e-4
    assert (m.sum(1) == 6).all()


def test_shapes_and_dtypes() -> None:
    assert r.gamma([1.0, 2.0]).shape == (2,) and r.gamma([1.0, 2.0], shape=(3, 2)).shape == (3, 2)
    assert r.beta(np.ones((2, 1)), np.ones(3)).dtype == wg.float64 and wg.poisson([1, 2]).dtype == wg.float32
    assert wg.multinomial([3, 4], [0.5, 0.5]).shape == (2, 2) and wg.multinomial(3, [0.5, 0.5], (4, 5)).shape == (
        4,
        5,
        2,
    )
    assert wg.binomial(3, 0.5).shape == () and wg.exponential(shape=(2,)).shape == (2,)
    assert wg.poisson(2.0, (4,), dtype="float64").dtype == wg.float64
    with pytest.raises(wg.ShapeError, match=r"gamma: parameters of shape \(2,\) do not broadcast to the shape \(3,\)"):
        r.gamma([1.0, 2.0], shape=(3,))
    with pytest.raises(wg.DTypeError, match="poisson: dtype must be a real floating type, got int64"):
        wg.poisson(2.0, dtype="int64")


@pytest.mark.parametrize(
    "draw, message",
    [
        (lambda: r.gamma(-1.0), "gamma: concentration must be positive, got -1"),
        (lambda: r.beta(1.0, 0.0), "beta: concentration0 must be positive"),
        (lambda: wg.exponential(0.0), "exponential: rate must be positive"),
        (lambda: wg.poisson(-1.0), "poisson: rate must be 0 or positive"),
        (lambda: wg.binomial(2.5, 0.5), "binomial: n must be a whole number"),
        (lambda: wg.binomial(2, 1.5), "binomial: p must be between 0 and 1"),
        (lambda: wg.multinomial(3, [0.0, 0.0]), "multinomial: p must be .* not all 0"),
        (lambda: wg.truncated_normal(0.0, 1.0, 2.0, 1.0), "low must be less than high"),
    ],
)
def test_bad_parameters(draw: Any, message: str) -> None:
    with pytest.raises(wg.ArgumentError, match=message):
        draw()


DRAWS: dict[str, Any] = {
    "gamma": lambda x: r.gamma(x, 2.0, (4, *x.shape)),
    "beta": lambda x: r.beta(x, 2.0),
    "exponential": lambda x: wg.exponential(x),
    "poisson": lambda x: wg.poisson(x * 5.0),
    "binomial": lambda x: wg.binomial(9, x / 4.0),
    "multinomial": lambda x: wg.multinomial(9, x),
    "truncated_normal": lambda x: wg.truncated_normal(x, 2.0, -1.0, 4.0),
}


@pytest.mark.parametrize("name", DRAWS)
def test_compiled_functions_draw_the_same(name: str) -> None:
    f = DRAWS[name]
    compiled = wg.compile(f)
    for n in (5, 5, 9, 1):
        x = wg.asarray(np.random.default_rng(n).uniform(0.5, 3.0, (n, 7)).astype(np.float32))
        wg.manual_seed(11)
        expected = [f(x).numpy() for _ in range(3)]
        state = wg.default_generator.get_state()
        wg.manual_seed(11)
        for y in expected:
            np.testing.assert_array_equal(compiled(x).numpy(), y)
        assert wg.default_generator.get_state() == state


def test_gradients() -> None:
    def truncated(*given: Any) -> Any:
        return wg.truncated_normal(*given, (2, 3), generator=wg.Generator(seed=2))

    low, high = np.full((2, 3), -1.0), np.full((2, 3), 2.5)
    check_derivatives(truncated, np.full((2, 3), 0.3), np.full((2, 3), 1.2), low, high)
    far = (np.full((2, 3), 0.1), np.full((2, 3), 1.2), np.full((2, 3), 8.0), np.full((2, 3), 9.5))
    check_derivatives(truncated, *far)
    check_derivatives(lambda rate: wg.exponential(rate, generator=wg.Generator(seed=2)), np.array([0.5, 2.0]))
    a = wg.tensor([0.5, 3.0], requires_grad=True)
    x = r.gamma(a, 2.0, (1000, 2))
    assert x.requires_grad and (x.sum(0).backward(wg.ones(2))[a].numpy() > 0).all()
    assert not wg.poisson(a).requires_grad and not wg.binomial(4, a / 4.0).requires_grad


def test_one_namespace_holds_them_all() -> None:
    for name in ("binomial", "exponential", "multinomial", "poisson", "truncated_normal", "randn", "Generator"):
        assert getattr(wg.random, name) is getattr(wg, name)
