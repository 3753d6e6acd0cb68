"""Sorting, scanning and selecting beside PyTorch and JAX. Elements are distinct: at ties the libraries pick differently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed: make peers")
jax = pytest.importorskip("jax", reason="JAX is not installed: make peers")

SHAPES: dict[str, tuple[int, ...]] = {"vector": (6,), "matrix": (4, 5), "stack": (2, 3, 5)}


def distinct(shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(9)
    return (rng.permutation(int(np.prod(shape))) + rng.uniform(0, 0.5, int(np.prod(shape)))).reshape(shape) / 4 - 2


INDEX = np.array([2, 0, 0, 1])

# name: ours, PyTorch's, JAX's; each takes (x, axis).
FUNCTIONS: dict[str, tuple[Any, Any, Any]] = {
    "sort": (
        lambda x, a: wg.sort(x, axis=a),
        lambda x, a: torch.sort(x, dim=a).values,
        lambda x, a: jnp.sort(x, axis=a),
    ),
    "sort descending": (
        lambda x, a: wg.sort(x * x, axis=a, descending=True),
        lambda x, a: torch.sort(x * x, dim=a, descending=True).values,
        lambda x, a: jnp.sort(x * x, axis=a, descending=True),
    ),
    "topk": (
        lambda x, a: wg.topk(wg.sin(x), 2, axis=a)[0],
        lambda x, a: torch.topk(torch.sin(x), 2, dim=a).values,
        lambda x, a: jnp.moveaxis(jax.lax.top_k(jnp.moveaxis(jnp.sin(x), a, -1), 2)[0], -1, a),
    ),
    "bottom k": (
        lambda x, a: wg.topk(x, 2, axis=a, largest=False)[0],
        lambda x, a: torch.topk(x, 2, dim=a, largest=False).values,
        None,
    ),
    "median": (
        lambda x, a: wg.median(wg.exp(x), axis=a),
        lambda x, a: torch.quantile(torch.exp(x), 0.5, dim=a),
        lambda x, a: jnp.median(jnp.exp(x), axis=a),
    ),
    "quantile": (
        lambda x, a: wg.quantile(x * x * x, 0.3, axis=a, keepdims=True),
        lambda x, a: torch.quantile(x * x * x, 0.3, dim=a, keepdim=True),
        lambda x, a: jnp.quantile(x * x * x, 0.3, axis=a, keepdims=True),
    ),
    "quantiles": (
        lambda x, a: wg.quantile(x, [0.1, 0.75], axis=a),
        lambda x, a: torch.quantile(x, torch.tensor([0.1, 0.75], dtype=torch.float64), dim=a),
        lambda x, a: jnp.quantile(x, jnp.asarray([0.1, 0.75]), axis=a),
    ),
    "cumsum": (
        lambda x, a: wg.cumulative_sum(x * x, axis=a),
        lambda x, a: torch.cumsum(x * x, dim=a),
        lambda x, a: jnp.cumsum(x * x, axis=a),
    ),
    "cumprod": (
        lambda x, a: wg.cumulative_prod(x, axis=a),
        lambda x, a: torch.cumprod(x, dim=a),
        lambda x, a: jnp.cumprod(x, axis=a),
    ),
    "cummax": (
        lambda x, a: wg.cummax(x, axis=a)[0],
        lambda x, a: torch.cummax(x, dim=a).values,
        lambda x, a: jax.lax.cummax(x, axis=a % x.ndim),
    ),
    "cummin": (
        lambda x, a: wg.cummin(wg.cos(x), axis=a)[0],
        lambda x, a: torch.cummin(torch.cos(x), dim=a).values,
        lambda x, a: jax.lax.cummin(jnp.cos(x), axis=a % x.ndim),
    ),
    "logcumsumexp": (
        lambda x, a: wg.logcumsumexp(x, axis=a),
        lambda x, a: torch.logcumsumexp(x, dim=a),
        lambda x, a: jax.lax.cumlogsumexp(x, axis=a % x.ndim),
    ),
    "diff": (
        lambda x, a: wg.diff(x * x, axis=a, n=2),
        lambda x, a: torch.diff(x * x, n=2, dim=a),
        lambda x, a: jnp.diff(x * x, n=2, axis=a),
    ),
    "take": (
        lambda x, a: wg.take(x * x, INDEX[:2], axis=a),
        lambda x, a: torch.index_select(x * x, a, torch.tensor(INDEX[:2] % x.shape[a])),
        lambda x, a: jnp.take(x * x, INDEX[:2] % x.shape[a], axis=a),
    ),
}


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_along_an_axis(name: str, shape: tuple[int, ...], axis: int) -> None:
    ours, theirs, jaxs = FUNCTIONS[name]
    if name == "take" and shape[axis] < 3:
        shape = (3, *shape[1:])
    compare(
        lambda x: ours(x, axis),
        torch=lambda x: theirs(x, axis),
        jax=None if jaxs is None else lambda x: jaxs(x, axis),
        arrays=[distinct(shape)],
    )


def test_cumprod_with_zeros() -> None:
    x = np.array([1.5, 0.0, -2.0, 0.0, 3.0])
    compare(wg.cumulative_prod, torch=lambda t: torch.cumprod(t, 0), jax=jnp.cumprod, arrays=[x])


def test_scatter_and_segments() -> None:
    rng = np.random.default_rng(3)
    x, v, i = rng.standard_normal((3, 4)), rng.standard_normal((3, 2)), np.array([[0, 2], [1, 1], [3, 0]])
    it = torch.tensor(i)
    compare(
        lambda a, b: wg.scatter_add(a, i, b * b, axis=1),
        torch=lambda a, b: a.scatter_add(1, it, b * b),
        jax=lambda a, b: a.at[np.arange(3)[:, None], i].add(b * b),
        arrays=[x, v],
    )
    ids = np.array([0, 3, 0])
    compare(
        lambda a: wg.segment_sum(a * a, ids, num_segments=5),
        torch=lambda a: torch.zeros(5, 4, dtype=torch.float64).index_add(0, torch.tensor(ids), a * a),
        jax=lambda a: jax.ops.segment_sum(a * a, ids, num_segments=5),
        arrays=[x],
    )
    compare(
        lambda a: wg.take_along_axis(a * a, i, axis=1),
        torch=lambda a: torch.take_along_dim(a * a, it, 1),
        jax=lambda a: jnp.take_along_axis(a * a, i, 1),
        arrays=[x],
    )
    mask = x > 0
    compare(
        lambda a: (a * a)[wg.asarray(mask)],
        torch=lambda a: (a * a)[torch.tensor(mask)],
        jax=lambda a: (a * a)[mask],
        arrays=[x],
    )
