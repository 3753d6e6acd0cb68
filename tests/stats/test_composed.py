"""Distributions made of others: Independent, Mixture, Transformed; and the transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

import wengert as wg
from tests.stats.checking import check_derivatives
from wengert.stats import transforms as t

N = 20_000
RNG = np.random.default_rng(8)
LOC, SCALE = np.array([[-1.0, 0.5, 2.0], [0.0, 1.0, -2.0]]), np.array([0.5, 1.0, 0.7])
WEIGHTS = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])


def near(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=tolerance)
    assert got.shape == np.shape(expected)


def normals() -> Any:
    return wg.stats.Normal(wg.asarray(LOC), wg.asarray(SCALE))


def test_independent() -> None:
    d, x = wg.stats.Independent(normals(), 1), RNG.normal(size=(4, 2, 3))
    assert d.batch_shape == (2,) and d.event_shape == (3,) and d.reparametrised
    near(d.log_prob(x), scipy_stats.norm(LOC, SCALE).logpdf(x).sum(-1))
    near(d.entropy(), np.broadcast_to(scipy_stats.norm(LOC, SCALE).entropy(), (2, 3)).sum(-1))
    near(d.mean, LOC)
    assert d.sample((5,)).shape == (5, 2, 3) and d.support.contains(x).shape == (4, 2)
    both = wg.stats.Independent(normals(), 2)
    assert both.batch_shape == () and both.log_prob(x).shape == (4,)
    assert wg.stats.Independent(normals(), 0).log_prob(x).shape == (4, 2, 3)
    check_derivatives(lambda loc, x: wg.stats.Independent(wg.stats.Normal(loc, 1.0), 1).log_prob(x), LOC, x[0])
    with pytest.raises(wg.ArgumentError, match="event_ndim must be between 0 and the 2 axes"):
        wg.stats.Independent(normals(), 3)
    with pytest.raises(wg.ShapeError, match=r"event shape \(3,\)"):
        d.log_prob(np.ones(2))


def mixture(weights: Any = WEIGHTS, loc: Any = LOC, scale: Any = SCALE) -> Any:
    categories = wg.stats.Categorical(wg.asarray(weights) if not isinstance(weights, wg.Tensor) else weights)
    made = (wg.asarray(a) if not isinstance(a, wg.Tensor) else a for a in (loc, scale))
    return wg.stats.Mixture(categories, wg.stats.Normal(*made))


def test_mixture() -> None:
    d, x, parts = mixture(), RNG.normal(size=(4, 2)), scipy_stats.norm(LOC, SCALE)
    assert d.batch_shape == (2,) and d.event_shape == ()
    near(d.log_prob(x), np.log((WEIGHTS * parts.pdf(x[..., None])).sum(-1)))
    near(d.cdf(x), (WEIGHTS * parts.cdf(x[..., None])).sum(-1))
    near(d.survival(x), (WEIGHTS * parts.sf(x[..., None])).sum(-1))
    mean = (WEIGHTS * LOC).sum(-1)
    near(d.mean, mean)
    near(d.variance, (WEIGHTS * (SCALE**2 + LOC**2)).sum(-1) - mean**2)
    check_derivatives(
        lambda z, loc, s, x: mixture(wg.softmax(z), loc, s).log_prob(x), np.log(WEIGHTS), LOC, SCALE, x[0]
    )


def test_samples_of_mixtures() -> None:
    d = mixture()
    x = d.sample((N,), generator=wg.Generator(seed=1)).numpy()
    assert x.shape == (N, 2) and not d.reparametrised
    for i in range(2):
        cdf = lambda v, i=i: (WEIGHTS[i] * scipy_stats.norm(LOC[i], SCALE).cdf(v[:, None])).sum(-1)
        assert scipy_stats.kstest(x[:, i], cdf).pvalue > 1e-4
    shared = wg.stats.Mixture(wg.stats.Categorical(wg.asarray(WEIGHTS[0])), normals())
    assert shared.sample((7,)).shape == (7, 2)
    vectors = wg.stats.Mixture(
        wg.stats.Categorical([0.5, 0.5]), wg.stats.Independent(wg.stats.Normal([[-9.0, -9.0], [9.0, 9.0]], 0.1), 1)
    )
    y = vectors.sample((100,), generator=wg.Generator(seed=2)).numpy()
    assert y.shape == (100, 2) and (np.sign(y[:, 0]) == np.sign(y[:, 1])).all() and len({*np.sign(y[:, 0])}) == 2
    assert vectors.mean.shape == (2,) and vectors.log_prob(y).shape == (100,)


def test_mixtures_that_do_not_fit() -> None:
    with pytest.raises(wg.ArgumentError, match="one for each of the 2 classes"):
        wg.stats.Mixture(wg.stats.Categorical([0.5, 0.5]), normals())
    with pytest.raises(wg.ArgumentError, match=r"batch shape \(5,\)"):
        wg.stats.Mixture(wg.stats.Categorical(np.full((5, 3), 1 / 3)), normals())
    with pytest.raises(TypeError, match="Categorical"):
        wg.stats.Mixture(normals(), normals())


TRANSFORMS: dict[str, tuple[Any, Any]] = {
    "affine": (t.Affine(wg.asarray(np.array([0.5, -1.0, 2.0])), -1.5), RNG.normal(size=(2, 3))),
    "exp": (t.Exp(), RNG.normal(size=(2, 3))),
    "power": (t.Power(2.5), RNG.uniform(0.2, 2.0, (2, 3))),
    "sigmoid": (t.Sigmoid(), RNG.normal(size=(2, 3))),
    "softplus": (t.Softplus(), RNG.normal(size=(2, 3))),
    "tanh": (t.Tanh(), RNG.normal(size=(2, 3))),
    "stick breaking": (t.StickBreaking(), RNG.normal(size=(2, 3))),
    "composed": (t.Compose([t.Affine(0.5, 2.0), t.Tanh(), t.StickBreaking()]), RNG.normal(size=(2, 3))),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    f, x = TRANSFORMS[name]
    z = wg.asarray(x)
    y = f(z)
    near(f.inverse(y), x, 1e-9)
    assert tuple(y.shape) == f.shape_after((2, 3)) and f.codomain.contains(y).numpy().all()
    got = f.log_abs_det(z, y).numpy()
    for i in range(2):
        jacobian = wg.jacobian(lambda v: f(v))(z[i]).numpy()[:3]  # probabilities: all but the last
        expected = np.linalg.slogdet(jacobian)[1]
        total = got[i] if f.event_ndim else got[i].sum()
        assert total == pytest.approx(expected, rel=1e-9)
    if f.increasing is not None:
        step = (f(z + 1e-3) > y).numpy()
        assert step.all() if f.increasing else not step.any()


def test_transformed_numbers() -> None:
    d = wg.stats.Transformed(normals(), t.Exp())
    ours = wg.stats.LogNormal(wg.asarray(LOC), wg.asarray(SCALE))
    x = RNG.uniform(0.1, 3.0, (4, 2, 3))
    near(d.log_prob(x), ours.log_prob(x).numpy())
    near(d.cdf(x), ours.cdf(x).numpy())
    near(d.survival(x), ours.survival(x).numpy())
    near(d.icdf(0.3), ours.icdf(0.3).numpy())
    np.testing.assert_array_equal(
        d.sample((3,), generator=wg.Generator(seed=2)).numpy(),
        np.exp(normals().sample((3,), generator=wg.Generator(seed=2)).numpy()),
    )
    assert (d.log_prob(-1.0).numpy() == -np.inf).all()
    falling = wg.stats.Transformed(wg.stats.Exponential(1.0), t.Affine(0.0, -1.0))
    assert falling.cdf(-1.0).item() == pytest.approx(np.exp(-1.0)) and falling.icdf(0.25).item() == pytest.approx(
        np.log(0.25)
    )
    check_derivatives(
        lambda loc, x: wg.stats.Transformed(wg.stats.Normal(loc, 0.7), [t.Affine(0.5, 2.0), t.Sigmoid()]).log_prob(x),
        LOC, RNG.uniform(0.1, 0.9, (2, 3)),
    )  # fmt: skip


def test_transformed_vectors() -> None:
    base = wg.stats.Independent(normals(), 1)
    d = wg.stats.Transformed(base, t.StickBreaking())
    x = d.sample((50,), generator=wg.Generator(seed=3))
    assert d.batch_shape == (2,) and d.event_shape == (4,) and x.shape == (50, 2, 4)
    np.testing.assert_allclose(x.numpy().sum(-1), 1.0)
    assert d.log_prob(x).shape == (50, 2) and np.isfinite(d.log_prob(x).numpy()).all()
    with pytest.raises(NotImplementedError, match="cdf"):
        d.cdf(x)
    pushed = wg.stats.Transformed(wg.stats.Normal(wg.asarray(LOC), 1.0), t.StickBreaking())
    assert pushed.batch_shape == (2,) and pushed.event_shape == (4,)
    loc = wg.asarray(LOC).requires_grad_()
    made = wg.stats.Transformed(wg.stats.Normal(loc, 1.0), t.Tanh())
    assert made.sample().sum().backward()[loc].shape == (2, 3)


def test_transforms_of_users() -> None:
    class Cube(t.Transform):
        increasing = True

        def __call__(self, x: Any) -> Any:
            return x * x * x

        def inverse(self, y: Any) -> Any:
            return wg.sign(y) * wg.abs(y) ** (1 / 3)

        def log_abs_det(self, x: Any, y: Any) -> Any:
            return wg.log(3.0 * x * x)

    d = wg.stats.Transformed(normals(), Cube())
    x = RNG.normal(size=(2, 3))
    near(d.log_prob(x**3), normals().log_prob(x).numpy() - np.log(3 * x**2), 1e-8)
    with pytest.raises(NotImplementedError, match="must define inverse"):
        t.Transform().inverse(1.0)
    with pytest.raises(TypeError, match="takes at least one transform, got ufunc"):
        t.Compose([np.exp])
    with pytest.raises(wg.ArgumentError, match="scale must not be 0"):
        t.Affine(0.0, 0.0)
