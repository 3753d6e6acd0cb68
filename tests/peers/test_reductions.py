"""Reductions and scans beside PyTorch and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed: make peers")
jax = pytest.importorskip("jax", reason="JAX is not installed: make peers")

SHAPES: dict[str, tuple[int, ...]] = {"vector": (5,), "matrix": (3, 4), "stack": (2, 3, 4)}
AXES = (None, -1, 0)

Trio = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]

# name: ours, PyTorch's, JAX's; each takes (x, axis, keepdims). `axis` None is all of them.
REDUCTIONS: dict[str, Trio] = {
    "sum": (
        lambda x, a, k: wg.sum(x, axis=a, keepdims=k),
        lambda x, a, k: torch.sum(x, dim=_all(x, a), keepdim=k),
        lambda x, a, k: jnp.sum(x, axis=a, keepdims=k),
    ),
    "mean": (
        lambda x, a, k: wg.mean(x, axis=a, keepdims=k),
        lambda x, a, k: torch.mean(x, dim=_all(x, a), keepdim=k),
        lambda x, a, k: jnp.mean(x, axis=a, keepdims=k),
    ),
    "var": (
        lambda x, a, k: wg.var(x, axis=a, keepdims=k, correction=1),
        lambda x, a, k: torch.var(x, dim=_all(x, a), keepdim=k, correction=1),
        lambda x, a, k: jnp.var(x, axis=a, keepdims=k, ddof=1),
    ),
    "std": (
        lambda x, a, k: wg.std(x, axis=a, keepdims=k),
        lambda x, a, k: torch.std(x, dim=_all(x, a), keepdim=k, correction=0),
        lambda x, a, k: jnp.std(x, axis=a, keepdims=k),
    ),
    "max": (
        lambda x, a, k: wg.max(x, axis=a, keepdims=k),
        lambda x, a, k: torch.amax(x, dim=_all(x, a), keepdim=k),
        lambda x, a, k: jnp.max(x, axis=a, keepdims=k),
    ),
    "min": (
        lambda x, a, k: wg.min(x, axis=a, keepdims=k),
        lambda x, a, k: torch.amin(x, dim=_all(x, a), keepdim=k),
        lambda x, a, k: jnp.min(x, axis=a, keepdims=k),
    ),
    "logsumexp": (
        lambda x, a, k: wg.logsumexp(x, axis=a, keepdims=k),
        lambda x, a, k: torch.logsumexp(x, dim=_all(x, a), keepdim=k),
        lambda x, a, k: jax.scipy.special.logsumexp(x, axis=a, keepdims=k),
    ),
    "prod": (
        lambda x, a, k: wg.prod(x, axis=a, keepdims=k),
        lambda x, a, k: torch.prod(x) if a is None else torch.prod(x, dim=a, keepdim=k),
        lambda x, a, k: jnp.prod(x, axis=a, keepdims=k),
    ),
}

# name: each takes (x, axis) and keeps the shape.
SCANS: dict[str, Trio] = {
    "cumsum": (
        lambda x, a: wg.cumsum(x, axis=a),
        lambda x, a: torch.cumsum(x, a),
        lambda x, a: jnp.cumsum(x, a),
    ),
    "cumprod": (
        lambda x, a: wg.cumprod(x, axis=a),
        lambda x, a: torch.cumprod(x, a),
        lambda x, a: jnp.cumprod(x, a),
    ),
    "softmax": (
        lambda x, a: wg.softmax(x, a),
        lambda x, a: torch.softmax(x, a),
        lambda x, a: jax.nn.softmax(x, a),
    ),
    "log_softmax": (
        lambda x, a: wg.log_softmax(x, a),
        lambda x, a: torch.log_softmax(x, a),
        lambda x, a: jax.nn.log_softmax(x, a),
    ),
}


def _all(x: Any, axis: int | None) -> Any:
    return tuple(range(x.ndim)) if axis is None else axis


def _array(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(3).permutation(np.linspace(-1.9, 2.1, int(np.prod(shape)))).reshape(shape)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str, shape: tuple[int, ...], axis: int | None, keepdims: bool) -> None:
    ours, theirs, jaxs = (lambda x, f=f: f(x, axis, keepdims) for f in REDUCTIONS[name])
    without_keepdims = name == "prod" and axis is None and keepdims  # PyTorch's prod of all axes has no keepdim
    compare(ours, arrays=[_array(shape)], torch=None if without_keepdims else theirs, jax=jaxs)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", SCANS)
def test_scan(name: str, shape: tuple[int, ...], axis: int) -> None:
    ours, theirs, jaxs = (lambda x, f=f: f(x, axis) for f in SCANS[name])
    compare(ours, arrays=[_array(shape)], torch=theirs, jax=jaxs)


@pytest.mark.parametrize("zeros", [1, 2])
def test_products_with_zeros(zeros: int) -> None:
    x = np.array([1.5, -2.0, 0.7, 3.0])
    x[:zeros] = 0.0
    compare(lambda z: wg.prod(z), arrays=[x], torch=torch.prod, jax=jnp.prod)
    compare(lambda z: wg.cumprod(z, axis=0), arrays=[x], torch=lambda z: torch.cumprod(z, 0), jax=jnp.cumprod)
