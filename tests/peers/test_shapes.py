"""Shape, indexing, gathering and product functions beside PyTorch and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed: make peers")

Row = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]

COLUMNS = np.array([[0, 2], [1, 1], [3, 0]])
PICKED = np.array([2, 0, 2])
MASK = np.array([[True, False, True, False], [False, False, True, True], [True, True, False, False]])

# name: ours, PyTorch's, JAX's, shapes of the operands.
FUNCTIONS: dict[str, Row] = {
    "reshape": (lambda x: x.reshape(4, 3), lambda x: x.reshape(4, 3), lambda x: x.reshape(4, 3), [(3, 4)]),
    "permute_dims": (
        lambda x: wg.permute_dims(x, (2, 0, 1)),
        lambda x: x.permute(2, 0, 1),
        lambda x: x.transpose(2, 0, 1),
        [(2, 3, 4)],
    ),
    "broadcast_to": (
        lambda x: wg.broadcast_to(x, (3, 2, 4)),
        lambda x: x.broadcast_to((3, 2, 4)),
        lambda x: jnp.broadcast_to(x, (3, 2, 4)),
        [(2, 1)],
    ),
    "squeeze": (lambda x: wg.squeeze(x, axis=1), lambda x: x.squeeze(1), lambda x: x.squeeze(1), [(3, 1, 2)]),
    "expand_dims": (
        lambda x: wg.expand_dims(x, axis=1),
        lambda x: x.unsqueeze(1),
        lambda x: jnp.expand_dims(x, 1),
        [(3, 2)],
    ),
    "concat": (
        lambda a, b: wg.concat([a, b], axis=1),
        lambda a, b: torch.cat([a, b], 1),
        lambda a, b: jnp.concatenate([a, b], 1),
        [(2, 3), (2, 1)],
    ),
    "stack": (
        lambda a, b: wg.stack([a, b], axis=1),
        lambda a, b: torch.stack([a, b], 1),
        lambda a, b: jnp.stack([a, b], 1),
        [(2, 3), (2, 3)],
    ),
    "split": (
        lambda x: wg.split(x, 2, axis=1),
        lambda x: torch.tensor_split(x, 2, 1),
        lambda x: jnp.split(x, 2, 1),
        [(3, 4)],
    ),
    "flip": (lambda x: wg.flip(x, axis=0), lambda x: torch.flip(x, [0]), lambda x: jnp.flip(x, 0), [(3, 4)]),
    "roll": (lambda x: wg.roll(x, 2, axis=1), lambda x: torch.roll(x, 2, 1), lambda x: jnp.roll(x, 2, 1), [(3, 4)]),
    "tile": (lambda x: wg.tile(x, (2, 3)), lambda x: torch.tile(x, (2, 3)), lambda x: jnp.tile(x, (2, 3)), [(3, 2)]),
    "repeat": (
        lambda x: wg.repeat(x, 3, axis=1),
        lambda x: torch.repeat_interleave(x, 3, 1),
        lambda x: jnp.repeat(x, 3, 1),
        [(3, 2)],
    ),
    "pad constant": (
        lambda x: wg.pad(x, ((1, 2), (0, 3)), value=1.5),
        lambda x: torch.nn.functional.pad(x, (0, 3, 1, 2), value=1.5),
        lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=1.5),
        [(3, 2)],
    ),
    "pad reflect": (
        lambda x: wg.pad(x, ((0, 0), (2, 1)), mode="reflect"),
        lambda x: torch.nn.functional.pad(x, (2, 1), mode="reflect"),
        lambda x: jnp.pad(x, ((0, 0), (2, 1)), mode="reflect"),
        [(3, 4)],
    ),
    "tril": (lambda x: wg.tril(x, k=-1), lambda x: torch.tril(x, -1), lambda x: jnp.tril(x, -1), [(4, 3)]),
    "triu": (lambda x: wg.triu(x, k=1), lambda x: torch.triu(x, 1), lambda x: jnp.triu(x, 1), [(2, 4, 3)]),
    "diagonal": (lambda x: wg.diagonal(x), lambda x: torch.diagonal(x), lambda x: jnp.diagonal(x), [(4, 3)]),
    "slice": (lambda x: x[1:, ::2], lambda x: x[1:, ::2], lambda x: x[1:, ::2], [(3, 5)]),
    "slice and new axis": (lambda x: x[:, None, 1], lambda x: x[:, None, 1], lambda x: x[:, None, 1], [(3, 5)]),
    "index": (lambda x: x[PICKED], lambda x: x[torch.tensor(PICKED)], lambda x: x[PICKED], [(3, 2)]),
    "index of two axes": (
        lambda x: x[PICKED, PICKED],
        lambda x: x[torch.tensor(PICKED), torch.tensor(PICKED)],
        lambda x: x[PICKED, PICKED],
        [(3, 4)],
    ),
    "mask": (lambda x: x[wg.asarray(MASK)], lambda x: x[torch.tensor(MASK)], lambda x: x[MASK], [(3, 4)]),
    "where": (
        lambda a, b: wg.where(wg.asarray(MASK), a, b),
        lambda a, b: torch.where(torch.tensor(MASK), a, b),
        lambda a, b: jnp.where(MASK, a, b),
        [(3, 4), (1, 4)],
    ),
    "take": (
        lambda x: wg.take(x, wg.asarray(PICKED), axis=1),
        lambda x: torch.index_select(x, 1, torch.tensor(PICKED)),
        lambda x: jnp.take(x, PICKED, axis=1),
        [(2, 4)],
    ),
    "take_along_axis": (
        lambda x: wg.take_along_axis(x, wg.asarray(COLUMNS), axis=1),
        lambda x: torch.take_along_dim(x, torch.tensor(COLUMNS), 1),
        lambda x: jnp.take_along_axis(x, COLUMNS, 1),
        [(3, 4)],
    ),
    "scatter_add": (
        lambda x, s: wg.scatter_add(x, wg.asarray(COLUMNS), s, axis=1),
        lambda x, s: torch.scatter_add(x, 1, torch.tensor(COLUMNS), s),
        lambda x, s: x.at[np.arange(3)[:, None], COLUMNS].add(s),
        [(3, 4), (3, 2)],
    ),
    "segment_sum": (
        lambda x: wg.segment_sum(x, wg.asarray(PICKED), num_segments=4),
        lambda x: torch.zeros((4, 2), dtype=x.dtype).index_add(0, torch.tensor(PICKED), x),
        lambda x: jnp.zeros((4, 2)).at[PICKED].add(x),
        [(3, 2)],
    ),
    "matmul": (lambda a, b: a @ b, lambda a, b: a @ b, lambda a, b: a @ b, [(3, 4), (4, 2)]),
    "matmul of stacks": (lambda a, b: a @ b, lambda a, b: a @ b, lambda a, b: a @ b, [(2, 1, 3, 4), (5, 4, 2)]),
    "matrix times vector": (lambda a, b: a @ b, lambda a, b: a @ b, lambda a, b: a @ b, [(3, 4), (4,)]),
    "vector times matrix": (lambda a, b: a @ b, lambda a, b: a @ b, lambda a, b: a @ b, [(3,), (3, 2)]),
    "dot": (lambda a, b: a @ b, lambda a, b: a @ b, lambda a, b: a @ b, [(5,), (5,)]),
    "tensordot": (
        lambda a, b: wg.tensordot(a, b, axes=((1, 2), (0, 1))),
        lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])),
        lambda a, b: jnp.tensordot(a, b, ((1, 2), (0, 1))),
        [(2, 3, 4), (3, 4, 5)],
    ),
    "outer": (lambda a, b: wg.outer(a, b), lambda a, b: torch.outer(a, b), lambda a, b: jnp.outer(a, b), [(3,), (4,)]),
    "vecdot": (
        lambda a, b: wg.vecdot(a, b),
        lambda a, b: torch.linalg.vecdot(a, b),
        lambda a, b: jnp.vecdot(a, b),
        [(2, 4), (2, 4)],
    ),
    "linear": (
        lambda x, w, b: wg.linear(x, w, b),
        lambda x, w, b: torch.nn.functional.linear(x, w, b),
        lambda x, w, b: x @ w.T + b,
        [(5, 3), (2, 3), (2,)],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    ours, theirs, jaxs, shapes = FUNCTIONS[name]
    rng = np.random.default_rng(5)
    compare(ours, arrays=[rng.uniform(-2, 2, s) for s in shapes], torch=theirs, jax=jaxs)
