"""Derivatives by values and parameters, in both modes and at second order; those of samples keep their probability."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from tests.stats.cases import CASES, Case
from tests.stats.checking import check_derivatives

SMOOTH = [pytest.param(c, id=name) for name, c in CASES.items() if not c.whole]


def differentiable(case: Case) -> dict[str, Any]:
    return {k: np.asarray(v) for k, v in case.parameters.items() if k not in case.fixed}


def method(case: Case, name: str, *, by_value: bool = True) -> Any:
    """A method as a function of the parameters that have derivatives, and of the value."""
    names = list(differentiable(case))
    x = None if by_value else case.points()[0]

    def f(*given: Any) -> Any:
        d = case.make(**dict(zip(names, given)))
        return getattr(d, name)(given[-1] if by_value else x)

    return f


@pytest.mark.parametrize("case", SMOOTH)
def test_log_prob(case: Case) -> None:
    check_derivatives(method(case, "log_prob"), *differentiable(case).values(), case.points()[0])


@pytest.mark.parametrize("case", [pytest.param(c, id=name) for name, c in CASES.items() if c.whole])
def test_log_prob_of_whole_numbers(case: Case) -> None:
    check_derivatives(method(case, "log_prob", by_value=False), *differentiable(case).values())


@pytest.mark.parametrize("case", [p for p in SMOOTH if "cdf" not in p.values[0].lacks])
def test_cdf(case: Case) -> None:
    check_derivatives(method(case, "cdf"), *differentiable(case).values(), case.points()[0])


@pytest.mark.parametrize("case", [p for p in SMOOTH if "icdf" not in p.values[0].lacks])
def test_icdf(case: Case) -> None:
    p = np.random.default_rng(4).uniform(0.1, 0.9, (2, 3))
    check_derivatives(method(case, "icdf"), *differentiable(case).values(), p)


@pytest.mark.parametrize("statistic", ["entropy", "mean", "variance"])
@pytest.mark.parametrize("case", [pytest.param(c, id=name) for name, c in CASES.items()])
def test_statistics(case: Case, statistic: str) -> None:
    if statistic in case.lacks:
        return
    names = list(differentiable(case))

    def f(*given: Any) -> Any:
        d = case.make(**dict(zip(names, given)))
        return d.entropy() if statistic == "entropy" else getattr(d, statistic)

    check_derivatives(f, *differentiable(case).values())


@pytest.mark.parametrize("case", [p for p in SMOOTH if p.values[0].kind.reparametrised and p.values[0].sources == 1])
def test_samples_keep_their_probability(case: Case) -> None:
    """d/dθ F(x(θ); θ) = 0 for the sample x(θ): the derivative of a sample, beside SciPy's distribution."""
    names, values = list(differentiable(case)), list(differentiable(case).values())
    step = 1e-4

    def sample(*given: Any) -> Any:
        return case.make(**dict(zip(names, given))).sample((4,), generator=wg.Generator(seed=5))

    x = sample(*(wg.asarray(v) for v in values)).numpy()
    for k, v in enumerate(values):
        dots = tuple(wg.asarray(np.ones_like(u) if i == k else np.zeros_like(u)) for i, u in enumerate(values))
        x_dot = wg.jvp(sample, tuple(wg.asarray(u) for u in values), dots)[1].numpy()

        def probability(t: float, k: int = k, v: Any = v) -> Any:
            moved = [u + t if i == k else u for i, u in enumerate(values)]
            return case.scipy(*moved).cdf(x)

        by_parameter = sum(w * probability(i * step) for i, w in ((-2, 1), (-1, -8), (1, 8), (2, -1))) / (12 * step)
        np.testing.assert_allclose(x_dot, -by_parameter / case.beside().pdf(x), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("case", [p for p in SMOOTH if p.values[0].kind.reparametrised])
def test_samples_have_both_modes_and_a_second_order(case: Case) -> None:
    names, values = list(differentiable(case)), list(differentiable(case).values())

    def f(*given: Any) -> Any:
        x = case.make(**dict(zip(names, given))).sample((2,), generator=wg.Generator(seed=6))
        return (x * x).sum()

    tensors = tuple(wg.asarray(v) for v in values)
    dots = tuple(wg.asarray(np.random.default_rng(1).normal(size=v.shape)) for v in values)
    forward = wg.jvp(f, tensors, dots)[1].item()
    grads = wg.vjp(f, *tensors)[1](wg.tensor(1.0, dtype=wg.float64))
    assert forward == pytest.approx(sum((g * d).sum().item() for g, d in zip(grads, dots)), rel=1e-10)
    second = wg.jvp(lambda *xs: wg.vjp(f, *xs)[1](wg.tensor(1.0, dtype=wg.float64)), tensors, dots)[1]
    assert all(np.isfinite(s.numpy()).all() for s in second)


@pytest.mark.parametrize("case", [p for p in CASES.values() if not p.kind.reparametrised and "sample" not in p.lacks])
def test_samples_that_are_not_reparametrised_are_constants(case: Case) -> None:
    given = {k: wg.asarray(np.asarray(v)).requires_grad_() for k, v in case.parameters.items() if k not in case.fixed}
    assert not case.make(**given).sample((3,)).requires_grad


@pytest.mark.parametrize("case", [p for p in SMOOTH if p.values[0].sources > 1])
def test_derivatives_of_samples_are_right_on_average(case: Case) -> None:
    """d/dθ E[x²] by SciPy's moments, within five standard errors of the mean over samples."""
    names, values, n = list(differentiable(case)), list(differentiable(case).values()), 40_000

    def squares(*given: Any) -> Any:
        x = case.make(**dict(zip(names, given))).sample((n,), generator=wg.Generator(seed=7))
        return x * x

    def moment(*given: Any) -> Any:
        theirs = case.scipy(*given)
        return theirs.var() + theirs.mean() ** 2

    for k in range(len(values)):
        dots = [np.ones_like(v) if i == k else np.zeros_like(v) for i, v in enumerate(values)]
        slopes = wg.jvp(squares, tuple(map(wg.asarray, values)), tuple(map(wg.asarray, dots)))[1].numpy()
        error = slopes.std(0) / np.sqrt(n)
        expected = np.broadcast_to(fd.directional(moment, values, dots), error.shape)
        assert (abs(slopes.mean(0) - expected) < 5 * error).all(), names[k]
