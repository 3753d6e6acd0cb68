"""Fourier transforms: values as NumPy's, exact adjoints, both modes, traced, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, DTypeError, ShapeError, WengertError

NORMS = ("backward", "ortho", "forward")


def numbers(*shape: int, real: bool = False) -> Any:
    rng = np.random.default_rng(8)
    x = rng.standard_normal(shape)
    return x if real else x + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 1, 2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_values_and_adjoints_of_one_axis(name: str, n: int | None, norm: str) -> None:
    f, theirs = getattr(wg.fft, name), getattr(np.fft, name)
    for size, axis in ((5, -1), (6, 0)):
        x = numbers(*((size, 3) if axis == 0 else (3, size)), real=name in ("rfft", "ihfft"))
        expected = theirs(x, n=n, axis=axis, norm=norm)
        y, pull = wg.vjp(lambda t, a=axis: f(t, n=n, axis=a, norm=norm), wg.asarray(x))
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-13)
        # Linear: J x is f(x), and ⟨y_bar, f(x)⟩ = ⟨Jᵀ y_bar, x⟩, for every y_bar.
        y_bar = numbers(*y.shape, real=not np.iscomplexobj(expected))[::-1].copy()
        (x_bar,) = pull(wg.asarray(y_bar))
        assert x_bar.dtype.kind == ("c" if np.iscomplexobj(x) else "f")
        left, right = np.vdot(y_bar, expected).real, np.vdot(x_bar.numpy(), x).real
        assert left == pytest.approx(right, rel=1e-11)
        _, y_dot = wg.jvp(lambda t, a=axis: f(t, n=n, axis=a, norm=norm), (wg.asarray(x),), (wg.asarray(x),))
        np.testing.assert_allclose(y_dot.numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("s", "axes"), [(None, None), (None, (0, 2)), ((3, 7), (1, 2)), ((4,), (0,)), (None, (-1, 0))])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_values_and_adjoints_of_several_axes(name: str, s: Any, axes: Any) -> None:
    f, theirs = getattr(wg.fft, name), getattr(np.fft, name)
    x = numbers(3, 4, 5, real=name == "rfftn")
    expected = theirs(x, s=s, axes=axes, norm="ortho")
    y, pull = wg.vjp(lambda t: f(t, s=s, axes=axes, norm="ortho"), wg.asarray(x))
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-11, atol=1e-13)
    y_bar = numbers(*y.shape, real=name == "irfftn")[::-1].copy()
    left, right = np.vdot(y_bar, expected).real, np.vdot(pull(wg.asarray(y_bar))[0].numpy(), x).real
    assert left == pytest.approx(right, rel=1e-11)


def test_two_axes() -> None:
    x = numbers(2, 4, 6)
    for name in ("fft2", "ifft2", "irfft2"):
        np.testing.assert_allclose(getattr(wg.fft, name)(wg.asarray(x)).numpy(), getattr(np.fft, name)(x), atol=1e-12)
    np.testing.assert_allclose(wg.fft.rfft2(wg.asarray(x.real.copy())).numpy(), np.fft.rfft2(x.real), atol=1e-12)


def test_gradients_against_differences() -> None:
    for n in (4, 5):
        check(lambda x: wg.abs(wg.fft.rfft(x * x)), numbers(2, n, real=True))
        check(lambda x, n=n: wg.fft.irfft(wg.make_complex(x, x * x), n=n), numbers(2, 3, real=True))
        check(lambda x: wg.real(wg.fft.ihfft(x * x)) + wg.imag(wg.fft.ihfft(x)), numbers(n, real=True))


def test_precision_stays() -> None:
    for narrow, wide in ((np.float32, np.complex64), (np.float64, np.complex128)):
        x = numbers(4, real=True).astype(narrow)
        assert wg.fft.rfft(wg.asarray(x)).dtype == wide
        assert wg.fft.fft(wg.asarray(x)).dtype == wide
        assert wg.fft.irfft(wg.asarray(x.astype(wide))).dtype == narrow
        assert wg.fft.hfft(wg.asarray(x.astype(wide))).dtype == narrow
    assert wg.fft.fft([1, 2]).dtype == wg.complex64


def test_inside_compiled_functions_at_any_size() -> None:
    @wg.compile
    def smooth(x: Any) -> Any:
        return wg.fft.irfft(wg.fft.rfft(x) * 0.5, n=x.shape[-1]) + wg.real(wg.fft.ifft(wg.fft.fft(x)))

    for shape in ((2, 6), (2, 7), (3, 16)):
        x = numbers(*shape, real=True)
        np.testing.assert_allclose(smooth(wg.asarray(x)).numpy(), 1.5 * x, atol=1e-13)
        gradient = wg.grad(lambda t: (smooth(t) * smooth(t)).sum())(wg.asarray(x)).numpy()
        np.testing.assert_allclose(gradient, 4.5 * x, atol=1e-12)


def test_second_order() -> None:
    x, v = (wg.asarray(numbers(6, real=True)[::s].copy()) for s in (1, -1))

    def energy(t: Any) -> Any:
        spectrum = wg.fft.rfft(t * t)
        return (wg.real(spectrum) ** 2 + wg.imag(spectrum) ** 2).sum()

    step = 1e-5
    numeric = (wg.grad(energy)(x + step * v).numpy() - wg.grad(energy)(x - step * v).numpy()) / (2 * step)
    np.testing.assert_allclose(wg.hvp(energy, x, v).numpy(), numeric, rtol=1e-7, atol=1e-7)


def test_frequencies_and_shifts() -> None:
    for n in (1, 4, 5):
        np.testing.assert_allclose(wg.fft.fftfreq(n, d=0.1, dtype=wg.float64).numpy(), np.fft.fftfreq(n, 0.1))
        np.testing.assert_allclose(wg.fft.rfftfreq(n, d=0.1, dtype=wg.float64).numpy(), np.fft.rfftfreq(n, 0.1))
    assert wg.fft.fftfreq(3).dtype == wg.float32
    x = np.arange(20).reshape(4, 5)
    for axes in (None, 0, 1, (0, 1)):
        np.testing.assert_array_equal(wg.fft.fftshift(wg.asarray(x), axes=axes).numpy(), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(wg.fft.ifftshift(wg.asarray(x), axes=axes).numpy(), np.fft.ifftshift(x, axes))


def test_odd_layouts() -> None:
    x = numbers(6, 8)
    for view in (x[::2, ::-1], x.T, x[1:, 3:]):
        np.testing.assert_allclose(wg.fft.fft(wg.asarray(view), axis=0).numpy(), np.fft.fft(view, axis=0), atol=1e-12)


def test_errors() -> None:
    x = wg.zeros((2, 4), dtype=wg.complex64)
    with pytest.raises(ArgumentError, match="fft: norm must be .*got 'both'"):
        wg.fft.fft(x, norm="both")
    with pytest.raises(ShapeError, match="fft: axis 2"):
        wg.fft.fft(x, axis=2)
    with pytest.raises(ArgumentError, match="ifft: .*at least 1, got 0"):
        wg.fft.ifft(x, n=0)
    with pytest.raises(TypeError, match="fft: the length"):
        wg.fft.fft(x, n=1.5)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="rfft: takes real numbers, got complex64"):
        wg.fft.rfft(x)
    with pytest.raises(DTypeError, match="ihfft: takes real numbers"):
        wg.fft.ihfft(x)
    with pytest.raises(ShapeError, match="fftn: s has 1 lengths for 2 axes"):
        wg.fft.fftn(x, s=(3,), axes=(0, 1))
    with pytest.raises(ShapeError, match="fftn: axes .* repeat an axis"):
        wg.fft.fftn(x, axes=(0, 0))
    with pytest.raises(ShapeError, match="rfftn: needs at least one axis"):
        wg.fft.rfftn(wg.zeros(()))
    with pytest.raises(DTypeError, match="fftfreq"):
        wg.fft.fftfreq(4, dtype=wg.int64)
    with pytest.raises(WengertError, match="empty"):
        wg.fft.fft(wg.zeros((0,)))


def test_no_norm_is_the_default_one() -> None:
    x = np.random.default_rng(0).standard_normal((4, 6))
    for ours, theirs in ((wg.fft.fft, np.fft.fft), (wg.fft.ifft2, np.fft.ifft2), (wg.fft.irfft, np.fft.irfft)):
        np.testing.assert_allclose(ours(wg.asarray(x), norm=None).numpy(), theirs(x, norm=None), atol=1e-12)
