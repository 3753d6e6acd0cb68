"""Functions that have NumPy's names and signatures: NumPy is the judge of values, finite differences of derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check, seeds_like
from tests.tolerances import SECOND_ORDER

RNG = np.random.default_rng(8)
A, B = RNG.standard_normal((3, 5)), RNG.standard_normal((2, 5))
V, W = RNG.standard_normal(6), RNG.standard_normal(4)
X = np.sort(RNG.uniform(0, 4, 5))
inf, nan = np.inf, np.nan
HOLES = np.where(RNG.uniform(size=(3, 5)) < 0.3, nan, A)
HOLES[1] = nan

# The call with a module that has NumPy's names, and the arrays that it is differentiated by.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "trapezoid": (lambda m, y: m.trapezoid(y), (A,)),
    "trapezoid, dx, axis": (lambda m, y: m.trapezoid(y, dx=0.25, axis=0), (A,)),
    "trapezoid, x": (lambda m, y, x: m.trapezoid(y, x), (A, X)),
    "trapezoid, x of y's shape": (lambda m, y, x: m.trapezoid(y, x, axis=0), (A, B[:1] * A)),
    "trapezoid, one sample": (lambda m, y: m.trapezoid(y, axis=0), (A[:1],)),
    "interp": (lambda m, x, xp, fp: m.interp(x, xp, fp), (np.array([[0.2, 1.1], [5.0, -1.0]]), X, V[:5])),
    "interp, left and right": (
        lambda m, x, fp: m.interp(x, X, fp, left=-7.0, right=9.0),
        (np.array([-1.0, 2.0, 7.0]), V[:5]),
    ),
    "interp, period": (
        lambda m, x, fp: m.interp(x, np.array([3.5, 0.5, 2.0]), fp, period=4.0),
        (np.array([-1.3, 0.1, 1.0, 3.9, 9.0]), V[:3]),
    ),
    "interp, one point": (lambda m, x, fp: m.interp(x, np.array([1.0]), fp), (V, V[:1])),
    "interp, 0-d": (lambda m, x, fp: m.interp(x, X, fp), (np.array(1.7), V[:5])),
    **{
        f"convolve, {mode}, {len(a)} and {len(v)}": (lambda m, a, v, mode=mode: m.convolve(a, v, mode), (a, v))
        for mode in ("full", "same", "valid")
        for a, v in ((V, W), (W, V), (V, W[:3]), (W[:3], V), (V, V), (V, W[:1]))
    },
    **{
        f"correlate, {mode}, {len(a)} and {len(v)}": (lambda m, a, v, mode=mode: m.correlate(a, v, mode), (a, v))
        for mode in ("full", "same", "valid")
        for a, v in ((V, W), (W, V), (V, W[:3]), (W[:3], V), (V[:5], W), (W, V[:5]), (W[:1], V))
    },
    "cov": (lambda m, x: m.cov(x), (A,)),
    "cov, y": (lambda m, x, y: m.cov(x, y), (A, B)),
    "cov, columns": (lambda m, x: m.cov(x, rowvar=False), (A,)),
    "cov, bias": (lambda m, x: m.cov(x, bias=True), (A,)),
    "cov, ddof": (lambda m, x: m.cov(x, ddof=2), (A,)),
    "cov, vector": (lambda m, x: m.cov(x), (V,)),
    "cov, weights": (
        lambda m, x, w: m.cov(x, fweights=np.array([1, 2, 0, 1, 3]), aweights=w),
        (A, np.abs(B[0]) + 0.1),
    ),
    "corrcoef": (lambda m, x: m.corrcoef(x), (A,)),
    "corrcoef, y": (lambda m, x, y: m.corrcoef(x, y), (V, V**2)),
    "nan_to_num": (lambda m, x: m.nan_to_num(x), (HOLES,)),
    "nan_to_num, values": (
        lambda m, x: m.nan_to_num(x, nan=2.0, posinf=7.0, neginf=-8.0),
        (np.array([1.0, nan, inf, -inf]),),
    ),
    "nansum": (lambda m, x: m.nansum(x, axis=1), (HOLES,)),
    "nansum, all": (lambda m, x: m.nansum(x), (HOLES,)),
    "nanmean": (lambda m, x: m.nanmean(x, axis=0, keepdims=True), (HOLES,)),
    "nanmax": (lambda m, x: m.nanmax(x, axis=0), (HOLES,)),
    "nanmin": (lambda m, x: m.nanmin(x), (HOLES,)),
    **{f"rot90, {k}": (lambda m, x, k=k: m.rot90(x, k), (A,)) for k in (-1, 0, 1, 2, 3, 5)},
    "rot90, axes": (lambda m, x: m.rot90(x, 1, (2, 0)), (RNG.standard_normal((2, 3, 4)),)),
    "vander": (lambda m, x: m.vander(x), (np.array([0.0, -1.5, 2.0]),)),
    "vander, increasing": (lambda m, x: m.vander(x, 5, increasing=True), (np.array([0.0, -1.5, 2.0]),)),
    "vander, few": (lambda m, x: m.vander(x, 1), (V,)),
    "bincount": (lambda m, w: m.bincount(np.array([1, 0, 3, 1, 1]), weights=w, minlength=6), (V[:5],)),
    "histogram": (lambda m, w: m.histogram(V, 4, weights=w)[0], (V**2,)),
    "histogram, edges": (lambda m, w: m.histogram(V, np.array([-1.0, 0.0, 0.2, 2.0]), weights=w)[0], (V**2,)),
    "histogram, density": (lambda m, w: m.histogram(V, 3, range=(-1, 1), density=True, weights=w)[0], (V**2,)),
}
STEPS = [n for n in CASES if n.startswith("nan")]  # finite differences of NaN are NaN
SMOOTH = [n for n in CASES if n not in STEPS]


def of_wengert(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    call, arrays = CASES[name]
    return (lambda *xs: call(wg, *xs)), arrays


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:All-NaN slice")
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    call, arrays = CASES[name]
    expected = np.asarray(call(np, *arrays))
    for got in (call(wg, *map(wg.asarray, arrays)), wg.compile(of_wengert(name)[0])(*map(wg.asarray, arrays))):
        assert tuple(got.shape) == expected.shape and got.dtype == expected.dtype
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-14)
    by_numpy = call(np, *(wg.tensor(a, requires_grad=True) for a in arrays))  # NEP 18: NumPy's own name
    assert isinstance(by_numpy, wg.Tensor) and by_numpy.requires_grad
    np.testing.assert_allclose(by_numpy.detach().numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name: str) -> None:
    f, arrays = of_wengert(name)
    check(f, *arrays)
    check(wg.compile(f), *arrays)


@pytest.mark.parametrize("name", SMOOTH)
def test_forward_mode_agrees_with_reverse(name: str) -> None:
    f, arrays = of_wengert(name)
    dots = seeds_like(arrays, 3)
    xs = [wg.tensor(a, requires_grad=True) for a in arrays]
    y, y_dot = wg.jvp(f, tuple(map(wg.asarray, arrays)), tuple(map(wg.asarray, dots)))
    (seed,) = seeds_like([y.numpy()], 4)
    grads = wg.grad_of((f(*xs) * wg.asarray(seed)).sum(), xs, allow_unused=True)
    pulled = sum(np.sum(g.numpy() * d) for g, d in zip(grads, dots) if g is not None)
    np.testing.assert_allclose(np.sum(y_dot.numpy() * seed), pulled, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_second_order(name: str) -> None:
    f, arrays = of_wengert(name)

    def slope(*xs: Any) -> Any:
        y = f(*xs)
        (seed,) = seeds_like([np.empty(tuple(y.shape))], 5)
        return wg.concat(
            [g.flatten() for g in wg.grad(lambda *z: (wg.sin(f(*z)) * seed).sum(), tuple(range(len(xs))))(*xs)]
        )

    check(slope, *arrays, tolerance=SECOND_ORDER)


@pytest.mark.parametrize("name", STEPS)
def test_gradients_are_one_where_an_element_counts(name: str) -> None:
    f, arrays = of_wengert(name)
    x = wg.tensor(arrays[0], requires_grad=True)
    y = f(x)
    seed = np.where(np.isnan(y.detach().numpy()), 0.0, seeds_like([y.detach().numpy()])[0])
    g = wg.grad_of((wg.where(y.detach() == y.detach(), y, 0.0) * wg.asarray(seed)).sum(), x)[0].numpy()
    assert np.isfinite(g).all() and not g[~np.isfinite(arrays[0])].any()
    finite = np.isfinite(arrays[0])

    def value(z: Any) -> Any:
        full = np.array(arrays[0])
        full[finite] = z
        with np.errstate(all="ignore"):
            return np.nansum(CASES[name][0](wg, wg.asarray(full)).numpy() * seed)

    from tests.finite_differences import gradient

    np.testing.assert_allclose(g[finite], gradient(value, [arrays[0][finite]])[0], rtol=1e-7, atol=1e-8)


# ---------------------------------------------------------------------------------------------- dtypes and strides


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "complex128"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolution_in_every_dtype(mode: str, dtype: str) -> None:
    a, v = ((10 * np.abs(x)).astype(dtype) for x in (V, W))
    if dtype == "complex128":
        a, v = a * (1 + 2j), v * (0.5 - 1j)
    for name in ("convolve", "correlate"):
        y, expected = getattr(wg, name)(wg.asarray(a), wg.asarray(v), mode), getattr(np, name)(a, v, mode)
        assert y.dtype == expected.dtype
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)
    if dtype == "complex128":
        check_complex(lambda x, w: wg.correlate(x, w, mode), a, v)


def check_complex(f: Callable[..., Any], *arrays: Any) -> None:
    from tests.finite_differences import gradient

    xs = [wg.tensor(a, requires_grad=True) for a in arrays]
    y = f(*xs)
    (seed,) = seeds_like([y.detach().numpy()])
    grads = y.backward(wg.asarray(seed))
    value = lambda *zs: np.real(np.sum(np.conj(seed) * f(*map(wg.asarray, zs)).numpy()))
    for x, e in zip(xs, gradient(value, arrays)):
        np.testing.assert_allclose(grads[x].numpy(), e, rtol=1e-7, atol=1e-8)


def test_complex_values() -> None:
    z = A + 1j * A[::-1]
    np.testing.assert_allclose(wg.cov(wg.asarray(z)).numpy(), np.cov(z), rtol=1e-12)
    np.testing.assert_allclose(wg.corrcoef(wg.asarray(z)).numpy(), np.corrcoef(z), rtol=1e-12)
    check_complex(wg.cov, z)
    holes = np.array([complex(nan, 1), complex(inf, nan), 2 + 1j])
    np.testing.assert_array_equal(wg.nan_to_num(wg.asarray(holes)).numpy(), np.nan_to_num(holes))
    np.testing.assert_allclose(wg.interp([0.5], X, wg.asarray(z[0])).numpy(), np.interp([0.5], X, z[0]), rtol=1e-6)
    check_complex(lambda f: wg.interp(wg.asarray(np.array([1.5, 9.0])), X, f), z[0])


def test_odd_strides() -> None:
    x, v = wg.asarray(A.T)[::-2], wg.asarray(V)[::-1]
    np.testing.assert_allclose(wg.cov(x).numpy(), np.cov(A.T[::-2]), rtol=1e-12)
    np.testing.assert_allclose(wg.trapezoid(x, axis=0).numpy(), np.trapezoid(A.T[::-2], axis=0), rtol=1e-12)
    np.testing.assert_allclose(wg.convolve(v, v[::2]).numpy(), np.convolve(V[::-1], V[::-1][::2]), rtol=1e-12)
    np.testing.assert_array_equal(wg.rot90(x).numpy(), np.rot90(A.T[::-2]))


def test_interpolation_at_the_points_and_of_nan() -> None:
    x = wg.tensor([0.0, 1.0, 3.0, nan], dtype="float64", requires_grad=True)
    y = wg.interp(x, [0.0, 1.0, 3.0], [5.0, 7.0, 3.0])
    np.testing.assert_array_equal(y.detach().numpy(), [5.0, 7.0, 3.0, nan])
    np.testing.assert_array_equal(wg.grad_of(y[:3].sum(), x)[0].numpy(), [2.0, -2.0, -2.0, 0.0])
    twice = wg.interp([1.0, 0.5], wg.tensor([0.0, 1.0, 1.0, 2.0]), [0.0, 1.0, 5.0, 6.0])  # a jump
    assert twice.tolist() == [5.0, 0.5]


def test_histograms_count() -> None:
    x = np.array([0.0, 0.1, 0.5, 1.0, 1.0, -3.0, nan])
    for bins in (3, [0.0, 0.5, 1.0]):
        counts, edges = wg.histogram(wg.asarray(x), bins, range=(0.0, 1.0))
        expected = np.histogram(x, bins, range=(0.0, 1.0))
        assert counts.tolist() == expected[0].tolist() and counts.dtype == "int64"
        np.testing.assert_allclose(edges.numpy(), expected[1])
    whole, edges = wg.histogram([1, 2, 2, 5], 4)
    assert whole.tolist() == [1, 2, 0, 1] and edges.dtype == "float64"
    assert wg.histogram(wg.ones((3,)), 2)[0].tolist() == np.histogram(np.ones(3), 2)[0].tolist()
    assert wg.histogram([], 2)[0].tolist() == [0, 0]
    inside = wg.compile(lambda t: wg.histogram(t, 3, range=(0.0, 1.0))[0])
    assert inside(wg.asarray(x)).tolist() == [2, 1, 2]


def test_nothing_and_missing() -> None:
    assert wg.trapezoid(wg.zeros((2, 0))).tolist() == [0.0, 0.0]
    assert wg.interp(wg.zeros((0,)), [0.0, 1.0], [1.0, 2.0]).shape == (0,)
    assert wg.rot90(wg.zeros((0, 3))).shape == (3, 0)
    assert wg.vander(wg.zeros((0,))).shape == (0, 0) and wg.vander([1.0, 2.0], 0).shape == (2, 0)
    assert wg.nansum(wg.zeros((0,))).item() == 0.0 and wg.nansum([1, 2]).dtype == "int64"
    assert np.isnan(wg.nanmean([nan, nan]).item()) and np.isnan(wg.nanmax([nan, nan]).item())
    assert wg.nanmax([-inf, nan]).item() == -inf and wg.nanmax([3, 1]).item() == 3
    assert wg.nan_to_num([1, 2]).tolist() == [1, 2]
    assert wg.nanmean(wg.ones((70_001,), dtype="float16")).item() == 1.0
    assert np.isnan(wg.cov([[1.0], [2.0]]).numpy()).all()  # one observation


def test_spaced_numbers() -> None:
    np.testing.assert_allclose(wg.logspace(0, 3, 7, base=2.0, dtype="float64").numpy(), np.logspace(0, 3, 7, base=2.0))
    np.testing.assert_allclose(wg.geomspace(1, 1000, dtype="float64").numpy(), np.geomspace(1, 1000))
    np.testing.assert_allclose(
        wg.geomspace(-1, -8, 4, endpoint=False).numpy(), np.geomspace(-1, -8, 4, endpoint=False), rtol=1e-6
    )
    assert wg.logspace(0, 1, 3).dtype == "float32" and wg.logspace(0, 1, 0).shape == (0,)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: wg.trapezoid(A, x=V), wg.ShapeError, "trapezoid: points"),
        (lambda: wg.trapezoid(1.0), wg.AxisError, "trapezoid"),
        (lambda: wg.interp(V, X, V), wg.ShapeError, "interp: xp and fp must be vectors of the same length"),
        (lambda: wg.interp(V, [], []), wg.ShapeError, "one point"),
        (lambda: wg.interp(V, [1.0, 0.0], [0.0, 1.0]), wg.ArgumentError, "xp must be increasing"),
        (lambda: wg.interp(V, X, X, period=0), wg.ArgumentError, "period"),
        (lambda: wg.interp(V + 1j, X, X), wg.DTypeError, "x must be real"),
        (lambda: wg.convolve(A, V), wg.ShapeError, r"convolve: takes vectors, got float64\(3, 5\)"),
        (lambda: wg.correlate(V, []), wg.ShapeError, "correlate: vectors must not be empty"),
        (lambda: wg.convolve(V, W, "half"), wg.ArgumentError, "'full', 'same' or 'valid', got 'half'"),
        (lambda: wg.cov(np.ones((2, 2, 2))), wg.ShapeError, "cov: takes a vector or a matrix"),
        (lambda: wg.cov(A, aweights=[1.0]), wg.ShapeError, "aweights .* 5 observations"),
        (lambda: wg.rot90(A, 1, (0, 0)), wg.ArgumentError, "the two axes must differ"),
        (lambda: wg.rot90(V), wg.AxisError, "rot90"),
        (lambda: wg.vander(A), wg.ShapeError, "vander: takes a vector"),
        (lambda: wg.vander(V, -1), wg.ArgumentError, "negative"),
        (lambda: wg.histogram(V, 0), wg.ArgumentError, "bins must be at least 1"),
        (lambda: wg.histogram(V, [1.0, 0.0]), wg.ArgumentError, "edges must be increasing"),
        (lambda: wg.histogram([nan, 1.0]), wg.ArgumentError, "range must be finite"),
        (lambda: wg.histogram(V, weights=W), wg.ShapeError, "histogram: weights"),
        (lambda: wg.compile(wg.histogram)(wg.asarray(V)), wg.TraceError, "pass range="),
        (lambda: wg.histogram(V, range=3), wg.ArgumentError, r"range must be \(low, high\), got 3"),
        (lambda: wg.histogram(V, range=(1, 2, 3)), wg.ArgumentError, r"range must be \(low, high\), got \(1, 2, 3\)"),
        (lambda: wg.convolve([True], [True]), wg.DTypeError, r"convolve: takes numbers, got bool\(1,\)"),
        (
            lambda: wg.cov(A, V[:3]),
            wg.ShapeError,
            "cov: m and y must have the same number of observations, got 5 and 3",
        ),
        (lambda: wg.nansum(V, axis=3), wg.AxisError, "nansum: axis 3"),
        (lambda: wg.nanmax([1j]), wg.DTypeError, "nanmax: complex numbers are not ordered"),
        (lambda: wg.geomspace(0, 1), wg.ArgumentError, "neither end may be 0"),
        (lambda: wg.logspace(0, 1, -1), wg.ArgumentError, "negative"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_vander_of_narrow_integers_does_not_wrap_around() -> None:
    assert wg.vander(wg.tensor([9], dtype="int8"), 4).tolist() == [[729, 81, 9, 1]]


def test_round_to_decimals() -> None:
    x = wg.tensor([1.256, -2.5], dtype="float64")
    assert wg.round(x).tolist() == x.round().tolist() == [1.0, -2.0]
    for y in (wg.round(x, 2), wg.round(x, decimals=2), x.round(2), round(x, 2), np.round(x, 2)):  # type: ignore[call-overload]
        np.testing.assert_allclose(y.numpy(), [1.26, -2.5])
    assert wg.round(wg.tensor([149, -151]), -2).tolist() == [100, -200]
