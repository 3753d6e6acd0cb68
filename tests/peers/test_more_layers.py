"""Less usual layers and losses beside PyTorch: values, both modes, second order, and state dicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
tf, tn, nn = torch.nn.functional, torch.nn, wg.nn

REDUCTIONS = ["mean", "sum", "none"]


def draw(*shape: int, seed: int = 3, low: float = -2.0, high: float = 2.0) -> Any:
    return np.random.default_rng(seed).uniform(low, high, shape)


def copied(theirs: Any, ours: Any) -> None:
    """The same weights in both, which have the same names."""
    state = {k: v.detach().numpy() for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    ours.requires_grad_(False)  # what is compared are the derivatives by the arguments


# -------------------------------------------------------------------------------------------------- distances


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_distances(p: float) -> None:
    a, b = draw(5, 3), draw(4, 3, seed=4)

    compare(
        lambda a, b: wg.cdist(a, b, p=p),
        torch=lambda a, b: torch.cdist(a, b, p=p, compute_mode="donot_use_mm_for_euclid_dist"),
        arrays=[a, b],
        lacks={"torch": ["jvp", "second order"]},
    )
    compare(
        lambda a: wg.pdist(a, p=p),
        torch=lambda a: torch.pdist(a, p=p),
        arrays=[a],
        lacks={"torch": ["jvp", "second order"]},
    )
    compare(
        lambda a, b: wg.pairwise_distance(a, b, p=p, keepdims=True),
        torch=lambda a, b: tf.pairwise_distance(a, b, p=p, keepdim=True),
        arrays=[a[:4], b],
    )


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_gradients_of_distances_at_equal_points(p: float) -> None:
    a = np.array([[0.0, 0.0], [1.0, 2.5], [1.0, 0.5]])
    seed = draw(3, 3)
    x, y = torch.tensor(a, requires_grad=True), wg.tensor(a, requires_grad=True)
    torch.cdist(x, x.detach().clone(), p=p).backward(torch.tensor(seed))
    grads = wg.cdist(y, y.detach(), p=p).backward(wg.asarray(seed))
    np.testing.assert_allclose(grads[y].numpy(), x.grad.numpy(), rtol=1e-13, atol=1e-14)


# ----------------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_losses_of_signs(reduction: str) -> None:
    t = np.sign(draw(4, 3, seed=9))
    compare(
        lambda x: wg.soft_margin_loss(x, wg.asarray(t), reduction=reduction),
        torch=lambda x: tf.soft_margin_loss(x, torch.tensor(t), reduction=reduction),
        arrays=[draw(4, 3)],
        lacks={"torch": ["jvp"]},
    )
    compare(
        lambda x: wg.hinge_embedding_loss(x * x, wg.asarray(t), margin=1.3, reduction=reduction),
        torch=lambda x: tf.hinge_embedding_loss(x * x, torch.tensor(t), margin=1.3, reduction=reduction),
        arrays=[draw(4, 3)],
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_multi_margin(weighted: bool, p: int, reduction: str) -> None:
    t, w = np.array([2, 0, 1, 2, 1]), draw(3, low=0.5)
    options: dict[str, Any] = {"p": p, "margin": 0.7, "reduction": reduction}
    compare(
        lambda x: wg.multi_margin_loss(x, t, weight=wg.asarray(w) if weighted else None, **options),
        torch=lambda x: tf.multi_margin_loss(
            x, torch.tensor(t), weight=torch.tensor(w) if weighted else None, **options
        ),
        arrays=[draw(5, 3)],
        lacks={"torch": ["jvp", "second order"]},  # its kernel has neither
    )
    ours, theirs = nn.MultiMarginLoss(p, 0.7), tn.MultiMarginLoss(p, 0.7)
    x = draw(3)
    assert ours(wg.asarray(x), wg.tensor(1)).item() == pytest.approx(theirs(torch.tensor(x), torch.tensor(1)).item())


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("swap", [False, True])
def test_triplets_with_any_distance(swap: bool, reduction: str) -> None:
    points = [draw(6, 4), draw(6, 4, seed=7), draw(6, 4, seed=8)]
    options: dict[str, Any] = {"swap": swap, "margin": 0.7, "reduction": reduction}
    compare(
        lambda a, n, f: wg.triplet_margin_with_distance_loss(a, n, f, **options),
        torch=lambda a, n, f: tf.triplet_margin_with_distance_loss(a, n, f, **options),
        arrays=points,
    )
    cosine = (lambda a, b: 1.0 - wg.cosine_similarity(a, b), lambda a, b: 1.0 - tf.cosine_similarity(a, b))
    ours = nn.TripletMarginWithDistanceLoss(distance_function=cosine[0], **options)
    theirs = tn.TripletMarginWithDistanceLoss(distance_function=cosine[1], **options)
    compare(ours, torch=theirs, arrays=points)


# ------------------------------------------------------------------------------------- activations and pooling


def test_activations() -> None:
    compare(lambda x: wg.tanh_shrink(x), torch=lambda x: tf.tanhshrink(x), arrays=[draw(4, 3)])
    compare(lambda x: wg.softmin(x, 0), torch=lambda x: tf.softmin(x, dim=0), arrays=[draw(4, 3)])
    compare(nn.RReLU(0.1, 0.4).eval(), torch=tn.RReLU(0.1, 0.4).eval(), arrays=[draw(4, 3)], lacks={"torch": ["jvp"]})


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 4), (2, 5, 3, 2), (2, 5, 3, 2, 2)])
def test_local_response_norm(shape: tuple[int, ...], size: int) -> None:
    if len(shape) == 2:  # PyTorch takes three axes or more
        x = draw(*shape)
        ours = wg.local_response_norm(x, size, alpha=0.3, beta=0.6, k=1.5).numpy()
        theirs = tf.local_response_norm(torch.tensor(x)[..., None], size, alpha=0.3, beta=0.6, k=1.5)[..., 0]
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-13)
        return
    compare(
        nn.LocalResponseNorm(size, 0.3, 0.6, 1.5),
        torch=tn.LocalResponseNorm(size, 0.3, 0.6, 1.5),
        arrays=[draw(*shape)],
    )


POOLS: list[Any] = [
    (1, (2, 3, 9), 3, {}), (2, (2, 3, 8, 7), (3, 2), dict(stride=2)), (2, (2, 3, 8, 7), 3, dict(ceil_mode=True)),
    (3, (1, 2, 5, 4, 6), 2, dict(ceil_mode=True)),
]  # fmt: skip


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
@pytest.mark.parametrize(("rank", "shape", "kernel", "options"), POOLS)
def test_power_pooling(rank: int, shape: tuple[int, ...], kernel: Any, options: dict[str, Any], p: float) -> None:
    compare(
        getattr(nn, f"LPPool{rank}d")(p, kernel, **options),
        torch=getattr(tn, f"LPPool{rank}d")(p, kernel, **options),
        arrays=[draw(*shape, low=0.2)],
    )


@pytest.mark.parametrize("kind", ["Zero", "Constant", "Reflection", "Replication", "Circular"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_padding(kind: str, rank: int, batched: bool) -> None:
    shape = (2, 3, 5, 4, 6)[0 if batched else 1 : 2 + rank] if rank < 3 else (2, 3, 5, 4, 6)[0 if batched else 1 :]
    value = (0.7,) if kind == "Constant" else ()
    for padding in (1, (2, 1, 0, 3, 1, 2)[: 2 * rank]):
        ours, theirs = (getattr(m, f"{kind}Pad{rank}d")(padding, *value) for m in (nn, tn))
        compare(lambda x, f=ours: f(x * x), torch=lambda x, f=theirs: f(x * x), arrays=[draw(*shape)])


# -------------------------------------------------------------------------------------------------- embeddings


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("layout", ["rows", "offsets", "with the last offset"])
def test_bags_of_embeddings(layout: str, mode: str, padding: int | None) -> None:
    index = np.array([[0, 2, 3], [2, 2, 2], [1, 4, 1], [3, 0, 4]])
    offsets = {"rows": None, "offsets": [0, 2, 2, 7], "with the last offset": [0, 2, 2, 7, 12]}[layout]
    given = index if offsets is None else index.reshape(-1)
    options: dict[str, Any] = {
        "mode": mode, "padding_idx": padding, "include_last_offset": layout == "with the last offset"
    }  # fmt: skip
    theirs_at = None if offsets is None else torch.tensor(offsets)
    compare(
        lambda w: wg.embedding_bag(given, w, offsets=offsets, **options),
        torch=lambda w: tf.embedding_bag(torch.tensor(given), w, theirs_at, **options),
        arrays=[draw(5, 3)],
        lacks={"torch": ["jvp", "second order"]},  # its kernel has neither
    )
    if mode != "sum":
        return
    compare(
        lambda w, s: wg.embedding_bag(given, w, offsets=offsets, per_sample_weights=s, **options),
        torch=lambda w, s: tf.embedding_bag(torch.tensor(given), w, theirs_at, per_sample_weights=s, **options),
        arrays=[draw(5, 3), draw(*given.shape, seed=8)],
        lacks={"torch": ["jvp", "second order"]},
    )


def test_modules_of_bags_have_the_same_state() -> None:
    theirs, ours = tn.EmbeddingBag(6, 4, padding_idx=1), nn.EmbeddingBag(6, 4, padding_idx=1)
    assert not ours.weight.numpy()[1].any()
    copied(theirs, ours)
    x = np.array([[0, 1, 5], [1, 1, 1]])
    np.testing.assert_allclose(
        ours(wg.asarray(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-6
    )


# ------------------------------------------------------------------------------------- transformers, many classes


NESTED = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")  # PyTorch's own affair


@NESTED
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_transformers(masked: bool, norm_first: bool) -> None:
    sizes = (8, 2, 2, 1, 16, 0.0)
    theirs = tn.Transformer(*sizes, batch_first=True, norm_first=norm_first).double()
    ours = nn.Transformer(*sizes, batch_first=True, norm_first=norm_first, dtype=wg.float64)
    copied(theirs, ours)
    src, tgt = draw(3, 5, 8), draw(3, 4, 8, seed=4)
    mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=wg.float64)
    np.testing.assert_array_equal(mask.numpy(), tn.Transformer.generate_square_subsequent_mask(4).numpy())
    padding = np.arange(5) >= np.array([[5], [3], [4]])
    masks: Any = {"tgt_mask": mask, "src_key_padding_mask": wg.asarray(padding)} if masked else {}
    their_masks = {k: torch.tensor(v.numpy()) for k, v in masks.items()}
    compare(
        lambda s, t: ours(s, t, **masks),
        torch=lambda s, t: theirs(s, t, **their_masks),
        arrays=[src, tgt],
        lacks={"torch": ["jvp", "second order"]},  # its fused attention has neither
        tolerance=1e-9,
    )


@NESTED
def test_transformers_start_alike() -> None:
    ours, theirs = nn.Transformer(64, 2, 1, 1, 128), tn.Transformer(64, 2, 1, 1, 128)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters()):
        assert a.detach().numpy().std() == pytest.approx(b.detach().numpy().std(), rel=0.1, abs=1e-3), name


@pytest.mark.parametrize("bias", [False, True])
def test_adaptive_softmax(bias: bool) -> None:
    theirs = tn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10, 15], div_value=2.0, head_bias=bias).double()
    ours = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10, 15], div_value=2.0, head_bias=bias, dtype=wg.float64)
    copied(theirs, ours)
    x = draw(7, 8)
    for target in ([0, 3, 4, 9, 19, 10, 14], [0, 1, 2, 3, 0, 1, 2]):
        t = np.array(target)
        compare(lambda x, t=t: tuple(ours(x, t)), torch=lambda x, t=t: tuple(theirs(x, torch.tensor(t))), arrays=[x])
        lazily = wg.compile(lambda x, t: tuple(ours(x, t)))(wg.asarray(x), wg.asarray(t))
        np.testing.assert_allclose(
            lazily[0].detach().numpy(), ours(wg.asarray(x), t).output.detach().numpy(), rtol=1e-12
        )
    compare(ours.log_prob, torch=theirs.log_prob, arrays=[x])
    np.testing.assert_array_equal(ours.predict(wg.asarray(x)).numpy(), theirs.predict(torch.tensor(x)).numpy())
    one = ours(wg.asarray(x[0]), wg.tensor(12))
    assert one.output.item() == pytest.approx(theirs(torch.tensor(x[0]), torch.tensor(12)).output.item(), rel=1e-12)


def test_small_layers() -> None:
    compare(nn.Unflatten(1, (2, -1)), torch=tn.Unflatten(1, (2, 3)), arrays=[draw(3, 6)])
    compare(nn.CosineSimilarity(), torch=tn.CosineSimilarity(), arrays=[draw(3, 4, 2), draw(3, 4, 2, seed=1)])
    compare(nn.PairwiseDistance(1.5), torch=tn.PairwiseDistance(1.5), arrays=[draw(3, 4), draw(3, 4, seed=1)])
