"""Discrete Fourier transforms beside PyTorch and JAX: every form, odd and even lengths, padded and cut, every norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed: make peers")

NORMS = ("backward", "ortho", "forward")
LENGTHS = (None, 4, 7, 12)


def numbers(*shape: int, real: bool = False) -> Any:
    rng = np.random.default_rng(6)
    x = rng.standard_normal(shape)
    return x if real else x + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_axis(name: str, n: int | None, norm: str) -> None:
    f, theirs, jaxs = getattr(wg.fft, name), getattr(torch.fft, name), getattr(jnp.fft, name)
    x = numbers(3, 6, real=name in ("rfft", "ihfft"))
    compare(
        lambda t: f(t, n=n, norm=norm),
        torch=lambda t: theirs(t, n=n, norm=norm),
        jax=lambda t: jaxs(t, n=n, norm=norm),
        arrays=[x],
    )


@pytest.mark.parametrize("s", [None, (5, 4)])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_axes(name: str, s: tuple[int, ...] | None) -> None:
    f, theirs, jaxs = getattr(wg.fft, name), getattr(torch.fft, name), getattr(jnp.fft, name)
    x = numbers(2, 3, 6, real=name.startswith("rfft"))
    compare(
        lambda t: f(t, s=s, axes=(-2, -1), norm="ortho"),
        torch=lambda t: theirs(t, s=s, dim=(-2, -1), norm="ortho"),
        jax=lambda t: jaxs(t, s=s, axes=(-2, -1), norm="ortho"),
        arrays=[x],
    )


def test_a_real_function_of_a_spectrum() -> None:
    """Second order that is not zero: the power spectrum, filtered."""
    x, h = numbers(9, real=True), numbers(5)

    compare(
        lambda a, b: wg.abs(wg.fft.irfft(wg.fft.rfft(a * a) * b, n=9)),
        torch=lambda a, b: torch.abs(torch.fft.irfft(torch.fft.rfft(a * a) * b, n=9)),
        jax=lambda a, b: jnp.abs(jnp.fft.irfft(jnp.fft.rfft(a * a) * b, n=9)),
        arrays=[x, h],
    )


def test_shifts() -> None:
    x = numbers(5, 4, real=True)
    for name in ("fftshift", "ifftshift"):
        f, theirs, jaxs = getattr(wg.fft, name), getattr(torch.fft, name), getattr(jnp.fft, name)
        compare(lambda t, f=f: f(t * t), torch=lambda t, g=theirs: g(t * t), jax=lambda t, g=jaxs: g(t * t), arrays=[x])
