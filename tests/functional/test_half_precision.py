"""More than 65,504 elements in half precision: float16 ends there, so that neither their number nor their sum fits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg

N = 70_001
UNITS = {"float16": 1e-3, "bfloat16": 8e-3}


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) + 0.5


def classes(n: int, of: int) -> Any:
    return np.random.default_rng(1).integers(0, of, n)


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "cosine_similarity": (wg.cosine_similarity, [values(N), values(N, seed=2)]),
    "cosine_embedding_loss": (
        lambda a, b: wg.cosine_embedding_loss(a, b, [1]),
        [values(1, N), values(1, N, seed=2)],
    ),
    "triplet_margin_loss": (
        lambda a, b, c: wg.triplet_margin_loss(a, b, c),
        [values(1, N), values(1, N, seed=2), values(1, N, seed=3) * 0.9],
    ),
    "cross_entropy, many samples": (lambda x: wg.cross_entropy(x, classes(N, 3)), [values(N, 3)]),
    "cross_entropy, weights": (
        lambda x: wg.cross_entropy(x, classes(N, 3), weight=[1.0, 2.0, 3.0]),
        [values(N, 3)],
    ),
    "cross_entropy, many classes": (lambda x: wg.cross_entropy(x, classes(2, N)), [values(2, N)]),
    "cross_entropy, smoothed": (
        lambda x: wg.cross_entropy(x, classes(2, N), label_smoothing=0.1),
        [values(2, N)],
    ),
    "cross_entropy, probabilities": (lambda x: wg.cross_entropy(x, wg.softmax(x.detach())), [values(2, N)]),
    "nll_loss": (lambda x: wg.nll_loss(x, classes(N, 3)), [-abs(values(N, 3))]),
    "kl_div": (
        lambda x, t: wg.kl_div(x, t, reduction="batchmean"),
        [-abs(values(N, 2)), abs(values(N, 2, seed=1)) + 0.1],
    ),
    "logsumexp": (wg.logsumexp, [values(2, N)]),
    "log_softmax": (wg.log_softmax, [values(2, N)]),
    "log_softmax, another axis": (lambda x: wg.log_softmax(x, 0), [values(N, 2)]),
    "quantile": (lambda x: wg.quantile(x, [0.0, 0.3, 0.999, 1.0]), [values(N)]),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_sums_and_counts_are_taken_in_float32(name: str, dtype: str) -> None:
    f, arrays = CASES[name]
    xs = [wg.asarray(a).astype(dtype) for a in arrays]
    y = f(*xs)
    assert y.dtype == dtype
    exact = f(*(x.astype("float64") for x in xs)).numpy()
    np.testing.assert_allclose(y.astype("float64").numpy(), exact, rtol=UNITS[dtype], atol=UNITS[dtype])


# Gradients that are no numbers of float16 at this scale, or the difference of nearly equal ones.
NO_GRADIENT = ("log_softmax", "log_softmax, another axis", "cross_entropy, probabilities")


@pytest.mark.parametrize("name", [n for n in CASES if n not in NO_GRADIENT])
def test_gradients_are_finite_and_near_those_of_float64(name: str) -> None:
    f, arrays = CASES[name]
    gradients = []
    for dtype in ("float16", "float64"):
        xs = [wg.asarray(a).astype("float16").astype(dtype).detach().requires_grad_() for a in arrays]
        scale = 4096.0  # as a loss scale: gradients of a mean of so many lie below the smallest float16
        got = (f(*xs).astype("float64").sum() * scale).backward()
        gradients.append([got[x].astype("float64").numpy() for x in xs])
    for g, exact in zip(*gradients):
        assert np.isfinite(g).all()
        np.testing.assert_allclose(g, exact, rtol=1e-2, atol=1e-2 * np.abs(exact).max())


def test_the_loss_has_the_dtype_of_its_scores() -> None:
    x, t = wg.zeros((4, 3), dtype="float16"), wg.zeros((4,), dtype="int64")
    assert wg.cross_entropy(x, t, reduction="none").dtype == "float16"
    assert wg.cross_entropy(x, t, weight=wg.ones((3,)), label_smoothing=0.1).dtype == "float16"
    assert wg.cross_entropy(x, wg.ones((4, 3), dtype="float32")).dtype == "float32"
