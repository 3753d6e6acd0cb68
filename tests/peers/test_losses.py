"""Losses beside PyTorch: reductions, weights, smoothing, ignored classes, extreme logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
F = torch.nn.functional

RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((2, 6, 4)) * 2
P, T = RNG.uniform(0.05, 0.95, (2, 6, 4))
W = RNG.uniform(0.2, 2.0, 4)
SIGNS = np.where(RNG.random((6, 4)) < 0.5, -1.0, 1.0)
REDUCTIONS = ["mean", "sum", "none"]

PAIRS: dict[str, tuple[Any, Any, list[Any]]] = {
    "mse_loss": (wg.mse_loss, F.mse_loss, [X, Y]),
    "l1_loss": (wg.l1_loss, F.l1_loss, [X, Y]),
    "smooth_l1_loss": (
        lambda a, b, **o: wg.smooth_l1_loss(a, b, beta=0.7, **o),
        lambda a, b, **o: F.smooth_l1_loss(a, b, beta=0.7, **o),
        [X, Y],
    ),
    "smooth_l1_loss 0": (
        lambda a, b, **o: wg.smooth_l1_loss(a, b, beta=0.0, **o),
        lambda a, b, **o: F.smooth_l1_loss(a, b, beta=0.0, **o),
        [X, Y],
    ),
    "huber_loss": (
        lambda a, b, **o: wg.huber_loss(a, b, delta=0.6, **o),
        lambda a, b, **o: F.huber_loss(a, b, delta=0.6, **o),
        [X, Y],
    ),
    "bce_loss": (
        lambda p, t, **o: wg.bce_loss(p, t, weight=np.abs(Y), **o),
        lambda p, t, **o: F.binary_cross_entropy(p, t, weight=torch.tensor(np.abs(Y)), **o),
        [P, T],
    ),
    "bce_with_logits": (
        lambda x, t, **o: wg.bce_with_logits(x, t, weight=np.abs(Y), pos_weight=W, **o),
        lambda x, t, **o: F.binary_cross_entropy_with_logits(
            x, t, weight=torch.tensor(np.abs(Y)), pos_weight=torch.tensor(W), **o
        ),
        [X, T],
    ),
    "kl_div": (wg.kl_div, F.kl_div, [np.log(P), T]),
    "kl_div log": (
        lambda a, b, **o: wg.kl_div(a, b, log_target=True, **o),
        lambda a, b, **o: F.kl_div(a, b, log_target=True, **o),
        [np.log(P), np.log(T)],
    ),
    "cosine_embedding_loss": (
        lambda a, b, **o: wg.cosine_embedding_loss(a, b, SIGNS[:, 0], margin=0.1, **o),
        lambda a, b, **o: F.cosine_embedding_loss(a, b, torch.tensor(SIGNS[:, 0]), margin=0.1, **o),
        [X, Y],
    ),
    "triplet_margin_loss": (
        lambda a, b, c, **o: wg.triplet_margin_loss(a, b, c, margin=2.0, **o),
        lambda a, b, c, **o: F.triplet_margin_loss(a, b, c, margin=2.0, **o),
        [X, Y, P],
    ),
    "hinge_loss": (
        lambda x, **o: wg.hinge_loss(x, SIGNS, **o),
        lambda x, reduction: _reduced(torch.relu(1 - x * torch.tensor(SIGNS)), reduction),
        [X],
    ),
    "focal_loss": (
        lambda x, **o: wg.focal_loss(x, SIGNS > 0, alpha=0.3, gamma=1.7, **o),
        lambda x, reduction: _reduced(_focal(x, torch.tensor((SIGNS > 0) * 1.0), 0.3, 1.7), reduction),
        [X],
    ),
}


def _reduced(loss: Any, reduction: str) -> Any:
    return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()


def _focal(x: Any, t: Any, alpha: float, gamma: float) -> Any:
    p = torch.sigmoid(x)
    p_t = p * t + (1 - p) * (1 - t)
    weight = alpha * t + (1 - alpha) * (1 - t)
    return weight * (1 - p_t) ** gamma * F.binary_cross_entropy_with_logits(x, t, reduction="none")


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_loss(name: str, reduction: str) -> None:
    ours, theirs, arrays = PAIRS[name]
    compare(
        lambda *xs: ours(*xs, reduction=reduction), torch=lambda *xs: theirs(*xs, reduction=reduction), arrays=arrays
    )


def test_kl_div_per_batch() -> None:
    compare(
        lambda a, b: wg.kl_div(a, b, reduction="batchmean"),
        torch=lambda a, b: F.kl_div(a, b, reduction="batchmean"),
        arrays=[np.log(P), T],
    )


def test_cosine_similarity() -> None:
    compare(wg.cosine_similarity, torch=lambda a, b: F.cosine_similarity(a, b, dim=-1), arrays=[X, Y])
    compare(
        lambda a, b: wg.cosine_similarity(a, b, axis=0),
        torch=lambda a, b: F.cosine_similarity(a, b, dim=0),
        arrays=[X, Y[:, :1]],
    )


# ------------------------------------------------------------------------------------------------------ classes

LOGITS = {"batch": (6, 4), "image": (3, 4, 2, 5), "vector": (4,)}


def _targets(shape: tuple[int, ...]) -> Any:
    rest = (shape[0], *shape[2:]) if len(shape) > 1 else ()
    return np.random.default_rng(3).integers(0, 4, rest)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("ignored", [-100, 2])
@pytest.mark.parametrize("shape", LOGITS.values(), ids=LOGITS)
def test_cross_entropy_of_indices(
    shape: tuple[int, ...], ignored: int, smoothing: float, weighted: bool, reduction: str
) -> None:
    x, target = np.random.default_rng(4).standard_normal(shape), _targets(shape)
    weight = W if weighted else None
    options: dict[str, Any] = dict(ignore_index=ignored, label_smoothing=smoothing, reduction=reduction)
    compare(
        lambda z: wg.cross_entropy(z, target, weight=weight, **options),
        torch=lambda z: F.cross_entropy(
            z, torch.tensor(target), weight=None if weight is None else torch.tensor(weight), **options
        ),
        arrays=[x],
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("shape", LOGITS.values(), ids=LOGITS)
def test_cross_entropy_of_probabilities(
    shape: tuple[int, ...], smoothing: float, weighted: bool, reduction: str
) -> None:
    x, t = np.random.default_rng(5).standard_normal((2, *shape))
    weight = W if weighted else None
    options: dict[str, Any] = dict(label_smoothing=smoothing, reduction=reduction)
    compare(
        lambda z, p: wg.cross_entropy(z, p, weight=weight, **options),
        torch=lambda z, p: F.cross_entropy(z, p, weight=None if weight is None else torch.tensor(weight), **options),
        arrays=[x, np.abs(t)],
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(weighted: bool, reduction: str) -> None:
    target, weight = np.array([0, 3, 2, 2, 1, 0]), W if weighted else None
    compare(
        lambda z: wg.nll_loss(z, target, weight=weight, ignore_index=3, reduction=reduction),
        torch=lambda z: F.nll_loss(
            z,
            torch.tensor(target),
            weight=None if weight is None else torch.tensor(weight),
            ignore_index=3,
            reduction=reduction,
        ),
        arrays=[X],
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_batch_that_is_ignored_as_a_whole(reduction: str) -> None:
    """The mean of nothing is NaN in both libraries; sums and elements are zeros."""
    target = np.full(6, -100)
    a = wg.cross_entropy(X, target, reduction=reduction).numpy()
    b = F.cross_entropy(torch.tensor(X), torch.tensor(target), reduction=reduction).numpy()
    np.testing.assert_array_equal(a, b)


def test_extreme_logits() -> None:
    x = np.array([[1e4, -1e4, 0.0, 1e4], [-1e4, -1e4, -1e4, 0.0]])
    target = np.array([1, 3])
    compare(
        lambda z: wg.cross_entropy(z, target, reduction="none"),
        torch=lambda z: F.cross_entropy(z, torch.tensor(target), reduction="none"),
        arrays=[x],
    )
    t = np.array([[1.0, 0.0, 0.3, 0.0], [1.0, 0.0, 0.5, 0.5]])
    compare(
        lambda z: wg.bce_with_logits(z, t, reduction="none"),
        torch=lambda z: F.binary_cross_entropy_with_logits(z, torch.tensor(t), reduction="none"),
        arrays=[x],
    )
