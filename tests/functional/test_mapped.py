"""Public functions under vmap: what is composed of ops, checks its arguments or picks its axes maps like the ops do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg

RNG = np.random.default_rng(0)
N = 3
INDEX = RNG.integers(0, 4, (N, 4))

# Functions of one example: a matrix x of 4×4 (well conditioned), and a vector of four indices i.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda x, i: x.mean(axis=-1),
    "var": lambda x, i: wg.var(x, axis=0),
    "std": lambda x, i: wg.std(x),
    "logsumexp": lambda x, i: wg.logsumexp(x, axis=1),
    "median": lambda x, i: wg.median(x, axis=1),
    "quantile": lambda x, i: wg.quantile(x, 0.3, axis=0),
    "sort": lambda x, i: wg.sort(x, axis=0, descending=True),
    "argsort": lambda x, i: wg.argsort(x, axis=-1),
    "topk": lambda x, i: wg.topk(x, 2)[0],
    "cumsum": lambda x, i: wg.cumsum(x, axis=0),
    "cummax": lambda x, i: wg.cummax(x, axis=1)[0],
    "diff": lambda x, i: wg.diff(x, axis=0),
    "gather": lambda x, i: x[i],
    "gather columns": lambda x, i: x[:, i],
    "pairs": lambda x, i: x[i, i],
    "take": lambda x, i: wg.take(x, i, axis=1),
    "take_along_axis": lambda x, i: wg.take_along_axis(x, i[:, None], axis=1),
    "scatter_add": lambda x, i: wg.zeros((4, 4), dtype=x.dtype).at[i].add(x),
    "one_hot": lambda x, i: wg.one_hot(i, 4) * x,
    "embedding": lambda x, i: wg.embedding(i, x),
    "segment_sum": lambda x, i: wg.segment_sum(x, i, num_segments=4),
    "where": lambda x, i: wg.where(x > 0, wg.sqrt(abs(x)), 0.0),
    "clip": lambda x, i: wg.clip(x, -0.5, 0.5),
    "roll": lambda x, i: wg.roll(x, 1, axis=0),
    "flip": lambda x, i: wg.flip(x, axis=1),
    "pad": lambda x, i: wg.pad(x, ((1, 1), (0, 2))),
    "tile": lambda x, i: wg.tile(x, (2, 1)),
    "repeat": lambda x, i: wg.repeat(x, 2, axis=0),
    "stack": lambda x, i: wg.stack([x, x * 2.0], axis=1),
    "split": lambda x, i: wg.split(x, 2, axis=1)[1],
    "triu": lambda x, i: wg.triu(x, k=1),
    "diagonal": lambda x, i: x.diagonal(),
    "trace": lambda x, i: wg.trace(x),
    "transpose": lambda x, i: x.T @ x,
    "einsum": lambda x, i: wg.einsum("ij,kj->ik", x, x),
    "tensordot": lambda x, i: wg.tensordot(x, x, axes=1),
    "kron": lambda x, i: wg.kron(x, x),
    "outer": lambda x, i: wg.outer(x[0], x[1]),
    "vector products": lambda x, i: x[0] @ x[1] + wg.vecdot(x, x),
    "solve": lambda x, i: wg.linalg.solve(x, x[0]),
    "inv": lambda x, i: wg.linalg.inv(x),
    "det": lambda x, i: wg.linalg.det(x),
    "slogdet": lambda x, i: wg.linalg.slogdet(x)[1],
    "cholesky": lambda x, i: wg.linalg.cholesky(x @ x.T + wg.eye(4, dtype=x.dtype)),
    "eigvalsh": lambda x, i: wg.linalg.eigvalsh(x + x.T),
    "svdvals": lambda x, i: wg.linalg.svdvals(x),
    "pinv": lambda x, i: wg.linalg.pinv(x),
    "norm": lambda x, i: wg.linalg.norm(x),
    "fft": lambda x, i: abs(wg.fft.fft(x, axis=0)),
    "rfft": lambda x, i: abs(wg.fft.rfft(x)),
    "softmax": lambda x, i: wg.softmax(x, axis=0),
    "log_softmax": lambda x, i: wg.log_softmax(x, axis=-1),
    "layer_norm": lambda x, i: wg.layer_norm(x, (4,)),
    "rms_norm": lambda x, i: wg.rms_norm(x, (4,)),
    "group_norm": lambda x, i: wg.group_norm(x[None], 2),
    "cross_entropy": lambda x, i: wg.cross_entropy(x, i),
    "nll_loss": lambda x, i: wg.nll_loss(wg.log_softmax(x, axis=-1), i),
    "mse_loss": lambda x, i: wg.mse_loss(x, x * 0.5),
    "huber_loss": lambda x, i: wg.huber_loss(x, x * 0.5),
    "gelu": lambda x, i: wg.gelu(x) + wg.silu(x) + wg.softplus(x),
    "attention": lambda x, i: wg.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "conv1d": lambda x, i: wg.conv1d(x[None], x[:, :, None], padding=1),
    "conv2d": lambda x, i: wg.conv2d(x[None, None], x[None, None, :3, :3]),
    "max_pool2d": lambda x, i: wg.max_pool2d(x[None, None], 2),
    "avg_pool2d": lambda x, i: wg.avg_pool2d(x[None, None], 2),
    "upsample": lambda x, i: wg.upsample(x[None, None], scale=2),
    "unfold": lambda x, i: wg.unfold(x[None, None], 2),
    "interp": lambda x, i: wg.interp(x[0], wg.arange(4, dtype=x.dtype), x[1]),
    "searchsorted": lambda x, i: wg.searchsorted(wg.sort(x[0]), x),
    "cov": lambda x, i: wg.cov(x),
    "trapezoid": lambda x, i: wg.trapezoid(x, axis=-1),
    "norm of a distribution": lambda x, i: wg.stats.Normal(x, wg.exp(x)).log_prob(0.5),
    "entropy": lambda x, i: wg.stats.Categorical(logits=x).entropy(),
    "no_grad": lambda x, i: wg.no_grad()(lambda: x.sum())() * x,
    "detach": lambda x, i: x.detach() * x,
    "sizes": lambda x, i: x / x.shape[0] + len(i),
}


def examples() -> Any:
    return RNG.normal(size=(N, 4, 4)) + 3.0 * np.eye(4)[::-1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_the_loop(name: str) -> None:
    f, x = FUNCTIONS[name], examples()

    def both(x: Any, i: Any) -> Any:
        y = f(x, i)
        if not y.dtype.is_floating:
            return y, y
        return y, wg.grad(lambda z: (wg.sin(f(z, i)) * 0.5).sum())(x)

    got = wg.vmap(both)(wg.asarray(x), wg.asarray(INDEX))
    for k in range(N):
        expected = both(wg.asarray(x[k]), wg.asarray(INDEX[k]))
        for g, e in zip(got, expected):
            np.testing.assert_allclose(np.asarray(g)[k], np.asarray(e), rtol=1e-9, atol=1e-10)
