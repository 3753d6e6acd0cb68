"""Functions of networks beside PyTorch: losses, windows, pooling with indices, resampling, attention in groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
tf = torch.nn.functional

REDUCTIONS = ["mean", "sum", "none"]


def draw(*shape: int, seed: int = 3, low: float = -2.0, high: float = 2.0) -> Any:
    return np.random.default_rng(seed).uniform(low, high, shape)


def integers(high: int, *shape: int, low: int = 0) -> Any:
    return np.random.default_rng(5).integers(low, high, shape)


def compare_linear(ours: Any, theirs: Any, *arrays: Any, **options: Any) -> None:
    """Of squares, so that there is a second order to compare."""
    compare(
        lambda *xs: ours(*(x * x for x in xs)),
        torch=lambda *xs: theirs(*(x * x for x in xs)),
        arrays=arrays,
        **options,
    )


# -------------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (4, 1), (4,), ()])
def test_gaussian_nll(shape: tuple[int, ...], full: bool, reduction: str) -> None:
    options: dict[str, Any] = {"full": full, "reduction": reduction}
    x, t, v = draw(4, 3), draw(4, 3, seed=4), draw(*shape, seed=5, low=0.2)
    theirs = lambda x, t, v: tf.gaussian_nll_loss(x, t, v if v.ndim else v.expand(4, 3), **options)
    compare(lambda x, t, v: wg.gaussian_nll_loss(x, t, v, **options), torch=theirs, arrays=[x, t, v])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("log_input", [False, True])
def test_poisson_nll(log_input: bool, full: bool, reduction: str) -> None:
    options: dict[str, Any] = {"full": full, "log_input": log_input, "reduction": reduction}
    t = integers(6, 4, 3).astype(np.float64)
    compare(
        lambda x: wg.poisson_nll_loss(x, wg.asarray(t), **options),
        torch=lambda x: tf.poisson_nll_loss(x, torch.tensor(t), **options),
        arrays=[draw(4, 3, low=0.3)],
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margin_ranking(reduction: str) -> None:
    t = np.sign(draw(5, seed=9))
    compare_linear(
        lambda a, b: wg.margin_ranking_loss(a, b, wg.asarray(t), margin=0.3, reduction=reduction),
        lambda a, b: tf.margin_ranking_loss(a, b, torch.tensor(t), margin=0.3, reduction=reduction),
        draw(5), draw(5, seed=7),
    )  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
def test_triplet_margin(p: float, swap: bool, reduction: str) -> None:
    options: dict[str, Any] = {"p": p, "margin": 0.7, "swap": swap, "reduction": reduction}
    compare(
        lambda a, n, f: wg.triplet_margin_loss(a, n, f, **options),
        torch=lambda a, n, f: tf.triplet_margin_loss(a, n, f, **options),
        arrays=[draw(6, 4), draw(6, 4, seed=7), draw(6, 4, seed=8)],
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_losses(reduction: str) -> None:
    target = np.array([[3, 0, -1, 1], [2, -1, 0, 0], [-1, 3, 2, 1], [0, 1, 2, 3]])
    compare_linear(
        lambda x: wg.multilabel_margin_loss(x, target, reduction=reduction),
        lambda x: tf.multilabel_margin_loss(x, torch.tensor(target), reduction=reduction),
        draw(4, 4),
        lacks={"torch": ["jvp", "second order"]},  # its kernel has neither
    )
    t, w = integers(2, 4, 5).astype(np.float64), draw(5, low=0.5)
    compare(
        lambda x: wg.multilabel_soft_margin_loss(x, wg.asarray(t), weight=wg.asarray(w), reduction=reduction),
        torch=lambda x: tf.multilabel_soft_margin_loss(x, torch.tensor(t), torch.tensor(w), reduction=reduction),
        arrays=[draw(4, 5)],
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("blank", [0, 2])
def test_ctc(joined: bool, blank: int, reduction: str) -> None:
    frames, lengths = np.array([7, 5, 6, 7]), np.array([3, 2, 0, 4])
    classes = [c for c in range(5) if c != blank]
    labels = np.array([[0, 0, 1, 0], [2, 2, 0, 0], [0, 0, 0, 0], [3, 1, 1, 2]])  # repeated ones need a blank between
    targets = np.take(classes, labels)
    given = np.concatenate([row[:n] for row, n in zip(targets, lengths)]) if joined else targets
    options: dict[str, Any] = {"blank": blank, "reduction": reduction}
    # PyTorch's gradient assumes that log_softmax comes before; after it both agree.
    compare(
        lambda x: wg.ctc_loss(wg.log_softmax(x, -1), given, frames, lengths, **options),
        torch=lambda x: tf.ctc_loss(
            x.log_softmax(-1), torch.tensor(given), torch.tensor(frames), torch.tensor(lengths), **options
        ),
        arrays=[draw(7, 4, 5)],
        lacks={"torch": ["jvp", "second order"]},  # its kernel has neither
        tolerance=1e-9,
    )


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_of_sequences_that_do_not_fit(zero_infinity: bool) -> None:
    x = draw(3, 2, 4)
    options: dict[str, Any] = {"reduction": "none", "zero_infinity": zero_infinity}
    ours = wg.ctc_loss(wg.log_softmax(wg.asarray(x), -1), [[1, 1], [1, 2]], [2, 3], [2, 2], **options)
    theirs = tf.ctc_loss(
        torch.tensor(x).log_softmax(-1),
        torch.tensor([[1, 1], [1, 2]]),
        torch.tensor([2, 3]),
        torch.tensor([2, 2]),
        **options,
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)


# -------------------------------------------------------------------------------------------------- pictures


WINDOWS: list[dict[str, Any]] = [
    {},
    dict(stride=2),
    dict(padding=1, dilation=2),
    dict(padding=(1, 0), stride=(2, 1), dilation=(1, 2)),
]


@pytest.mark.parametrize("options", WINDOWS, ids=str)
@pytest.mark.parametrize("kernel", [2, (3, 2)])
def test_unfold_and_fold(kernel: Any, options: dict[str, Any]) -> None:
    x = draw(2, 3, 7, 6)
    compare_linear(lambda x: wg.unfold(x, kernel, **options), lambda x: tf.unfold(x, kernel, **options), x)
    columns = tf.unfold(torch.tensor(x), kernel, **options).shape
    compare_linear(
        lambda x: wg.fold(x, (7, 6), kernel, **options),
        lambda x: tf.fold(x, (7, 6), kernel, **options),
        draw(*columns),
    )


def test_pixel_shuffle() -> None:
    compare_linear(lambda x: wg.pixel_shuffle(x, 3), lambda x: tf.pixel_shuffle(x, 3), draw(2, 18, 2, 3))
    compare_linear(lambda x: wg.pixel_unshuffle(x, 2), lambda x: tf.pixel_unshuffle(x, 2), draw(3, 2, 4, 6))


POOLS: list[Any] = [
    (1, (2, 3, 9), 3, {}),
    (1, (2, 3, 9), 2, dict(stride=1, padding=1)),
    (2, (2, 3, 8, 7), 2, {}),
    (2, (2, 3, 8, 7), (3, 2), dict(stride=2, padding=1)),
    (2, (3, 8, 7), 3, dict(dilation=2, ceil_mode=True)),
    (3, (1, 2, 5, 4, 6), 2, dict(ceil_mode=True)),
]


@pytest.mark.parametrize(("rank", "shape", "kernel", "options"), POOLS)
def test_pooling_with_indices_and_back(rank: int, shape: tuple[int, ...], kernel: Any, options: dict[str, Any]) -> None:
    x = np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype(np.float64)
    y, at = getattr(wg, f"max_pool{rank}d")(wg.asarray(x), kernel, **options, return_indices=True)
    z, there = getattr(tf, f"max_pool{rank}d")(torch.tensor(x), kernel, **options, return_indices=True)
    np.testing.assert_array_equal(y.numpy(), z.numpy())
    np.testing.assert_array_equal(at.numpy(), there.numpy())
    if "dilation" in options or "ceil_mode" in options:
        return
    size = shape[-rank:]
    unpool, theirs = getattr(wg, f"max_unpool{rank}d"), getattr(tf, f"max_unpool{rank}d")
    overlapping = options.get("stride") is not None
    compare_linear(
        lambda y: unpool(y, at, kernel, **options, output_size=size),
        lambda y: theirs(y, there, kernel, **options, output_size=size),
        np.ones_like(y.numpy()),
        # What is found in several windows is written twice, and of the gradients PyTorch keeps both.
        lacks={"torch": ["vjp", "second order", "jvp"] if overlapping else []},
    )


@pytest.mark.parametrize(
    ("rank", "shape", "size"),
    [(1, (2, 3, 10), 4), (2, (2, 3, 8, 7), (3, 7)), (2, (3, 8, 6), 2), (3, (1, 2, 5, 4, 6), (2, 3, 4))],
)
def test_adaptive_pooling_with_indices(rank: int, shape: tuple[int, ...], size: Any) -> None:
    x = np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape).astype(np.float64)
    y, at = getattr(wg, f"adaptive_max_pool{rank}d")(wg.asarray(x), size, return_indices=True)
    z, there = getattr(tf, f"adaptive_max_pool{rank}d")(torch.tensor(x), size, return_indices=True)
    np.testing.assert_array_equal(y.numpy(), z.numpy())
    np.testing.assert_array_equal(at.numpy(), there.numpy())


@pytest.mark.parametrize(
    "how", [dict(size=(5, 9)), dict(size=(3, 4)), dict(scale=1.7), dict(scale=(0.6, 2.3))], ids=str
)
@pytest.mark.parametrize("mode", ["nearest-exact", "bicubic", "bicubic, corners"])
def test_resampling(mode: str, how: dict[str, Any]) -> None:
    kind, _, corners = mode.partition(", ")
    options = {"align_corners": True} if corners else {}
    theirs = {"scale_factor" if k == "scale" else k: v for k, v in how.items()}
    compare_linear(
        lambda x: wg.upsample(x, mode=kind, **how, **options),
        lambda x: tf.interpolate(x, mode=kind, **theirs, **options),
        draw(2, 3, 6, 7),
    )


@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 2, 4, 5, 3)])
def test_nearest_exact_of_other_ranks(shape: tuple[int, ...]) -> None:
    compare_linear(
        lambda x: wg.upsample(x, scale=1.5, mode="nearest-exact"),
        lambda x: tf.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
        draw(*shape),
    )


# -------------------------------------------------------------------------------------------------- attention, products


# PyTorch takes a mask or is_causal, not both.
@pytest.mark.parametrize(
    ("masked", "causal"), [(None, False), (None, True), *((m, False) for m in ("bool", "float", "heads"))]
)
def test_grouped_queries(masked: str | None, causal: bool) -> None:
    shapes = {"bool": (5, 6), "float": (2, 1, 5, 6), "heads": (2, 6, 5, 6)}
    m = None if masked is None else draw(*shapes[masked], seed=1)
    if masked == "bool" and m is not None:
        m = m > -1.0
    theirs = None if m is None else torch.tensor(m)

    def peer(q: Any, k: Any, v: Any) -> Any:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the others have no second order
            return tf.scaled_dot_product_attention(q, k, v, attn_mask=theirs, is_causal=causal, enable_gqa=True)

    ours = None if m is None else wg.asarray(m)
    compare(
        lambda q, k, v: wg.scaled_dot_product_attention(q, k, v, attn_mask=ours, is_causal=causal, enable_gqa=True),
        torch=peer,
        arrays=[draw(2, 6, 5, 4), draw(2, 3, 6, 4, seed=4), draw(2, 3, 6, 4, seed=5)],
    )


def test_rnn_cell_and_bilinear() -> None:
    arrays = [draw(4, 5), draw(4, 3, seed=4), draw(3, 5, seed=5), draw(3, 3, seed=6), draw(3, seed=7), draw(3, seed=8)]
    for kind in ("tanh", "relu"):
        compare(
            lambda *a: wg.rnn_cell(*a, nonlinearity=kind),
            torch=lambda *a: getattr(torch._VF, f"rnn_{kind}_cell")(*a),
            arrays=arrays,
        )
    for lead in ((4,), (), (2, 3)):
        compare(
            wg.bilinear,
            torch=tf.bilinear,
            arrays=[draw(*lead, 3), draw(*lead, 2, seed=4), draw(5, 3, 2, seed=5), draw(5, seed=6)],
            lacks={"torch": ["jvp"]},  # it has no forward mode
        )
