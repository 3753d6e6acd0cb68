"""Samples: the right distribution, the same bits again, the same numbers in compiled functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

import wengert as wg
from tests.stats.cases import CASES, Case

N = 20_000
ALL = [pytest.param(c, id=name) for name, c in CASES.items()]
SMOOTH = [p for p in ALL if not p.values[0].whole]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", SMOOTH)
def test_continuous_samples_by_kolmogorov_and_smirnov(case: Case, dtype: str) -> None:
    x = case.make(dtype).sample((N,), generator=wg.Generator(seed=12))
    assert x.shape == (N, 2, 3) and x.dtype.name == dtype
    assert case.make(dtype).support.contains(x).numpy().all()
    parameters = np.broadcast_arrays(*(np.asarray(v, float) for v in case.parameters.values()))
    drawn = x.numpy().astype(float)
    if case.kind is wg.stats.VonMises:  # SciPy's angles lie around loc, ours around 0
        drawn -= 2 * np.pi * np.round((drawn - case.parameters["loc"]) / (2 * np.pi))
    for i in np.ndindex(2, 3):
        theirs = case.scipy(*(p[i] for p in parameters))
        assert scipy_stats.kstest(drawn[:, *i], theirs.cdf).pvalue > 1e-4, i


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", [p for p in ALL if p.values[0].whole])
def test_counts_by_their_frequencies(case: Case, dtype: str) -> None:
    x = case.make(dtype).sample((N,), generator=wg.Generator(seed=13)).numpy().astype(float)
    parameters = np.broadcast_arrays(*(np.asarray(v, float) for v in case.parameters.values()))
    for i in np.ndindex(2, 3):
        theirs = case.scipy(*(p[i] for p in parameters))
        values = np.arange(0, x[:, *i].max() + 1)
        expected = N * theirs.pmf(values + case.shift)
        observed = (x[:, *i][:, None] == values).sum(0)
        assert observed.sum() == N
        kept = expected >= 10
        chi2 = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
        assert kept.sum() == 1 or scipy_stats.chi2(kept.sum()).sf(chi2) > 1e-4, i


@pytest.mark.parametrize("case", [p for p in ALL if not {"mean", "variance"} & set(p.values[0].lacks)])
def test_moments(case: Case) -> None:
    d = case.make()
    x = d.sample((N,), generator=wg.Generator(seed=14)).numpy()
    assert (abs(x.mean(0) - d.mean.numpy()) < 5 * x.std(0) / np.sqrt(N)).all()
    squares = (x - x.mean(0)) ** 2
    assert (abs(squares.mean(0) - d.variance.numpy()) < 6 * squares.std(0) / np.sqrt(N) + 1e-12).all()


@pytest.mark.parametrize("case", ALL)
def test_generators_and_threads(case: Case) -> None:
    d, before = case.make(), wg.get_num_threads()
    try:
        found = []
        for n in (1, 2, 2):
            wg.set_num_threads(n)
            found.append(d.sample((3000,), generator=wg.Generator(seed=1)).numpy())
    finally:
        wg.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    g = wg.Generator(seed=1)
    first, second = (d.sample((3000,), generator=g).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, found[0])
    assert (first != second).any()
    wg.manual_seed(9)
    with_default = d.sample((5,)).numpy()
    np.testing.assert_array_equal(with_default, d.sample((5,), generator=wg.Generator(seed=9)).numpy())


@pytest.mark.parametrize("case", ALL)
def test_shapes(case: Case) -> None:
    d = case.make()
    assert d.batch_shape == (2, 3) and d.event_shape == ()
    assert d.sample().shape == (2, 3)
    assert d.sample(4).shape == d.sample((4,)).shape == d.sample([4]).shape == (4, 2, 3)
    assert d.sample((0, 2)).shape == (0, 2, 2, 3)
    x = case.points()[0]
    assert d.log_prob(x[0, 0]).shape == d.log_prob(x[0]).shape == (2, 3)
    assert d.log_prob(x[None, None]).shape == (1, 1, 2, 3)
    with pytest.raises(wg.ShapeError, match=r"log_prob.*batch shape \(2, 3\)"):
        d.log_prob(np.ones(4))


@pytest.mark.parametrize("case", ALL)
def test_compiled_functions_draw_the_same(case: Case) -> None:
    names = list(case.parameters)
    values = [wg.asarray(np.asarray(v, np.float32)) for v in case.parameters.values()]

    def f(*given: Any) -> Any:
        d = case.kind(**dict(zip(names, given)))
        x = d.sample((4,))
        return x, d.log_prob(x)

    compiled = wg.compile(f)
    for _ in range(2):
        wg.manual_seed(5)
        expected = [t.numpy() for t in f(*values)]
        wg.manual_seed(5)
        got = [t.numpy() for t in compiled(*values)]
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-5, atol=1e-5)
    wg.manual_seed(5)
    a, b = compiled(*values), compiled(*values)
    assert (a[0].numpy() != b[0].numpy()).any()


@pytest.mark.parametrize("name", ["Normal", "Gamma", "Beta", "StudentT", "Weibull"])
def test_compiled_samples_have_the_same_gradients(name: str) -> None:
    case = CASES[name]
    names = list(case.parameters)

    def f(*given: Any) -> Any:
        x = case.kind(**dict(zip(names, given))).sample((4,))
        return (x * x).sum()

    values = [wg.asarray(np.asarray(v, np.float64)) for v in case.parameters.values()]
    wg.manual_seed(5)
    expected = wg.grad(f, argnums=tuple(range(len(names))))(*values)
    wg.manual_seed(5)
    got = wg.grad(wg.compile(f), argnums=tuple(range(len(names))))(*values)
    for a, b in zip(got, expected):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
