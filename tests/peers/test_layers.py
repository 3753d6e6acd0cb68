"""Layers beside PyTorch, with the same weights: cells, decoders, products of pairs, norms of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def load(ours: Any, theirs: Any) -> None:
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})


def check(ours: Any, theirs: Any, *arrays: Any, rtol: float = 1e-9, **options: Any) -> None:
    """Results, and the gradients of arguments and parameters."""
    xs = [wg.tensor(a, requires_grad=True) for a in arrays]
    peers = [torch.tensor(a, requires_grad=True) for a in arrays]
    theirs_options = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    ys, zs = ours(*xs, **options), theirs(*peers, **theirs_options)
    ys, zs = (list(r) if isinstance(r, tuple) else [r] for r in (ys, zs))
    for k, (y, z) in enumerate(zip(ys, zs, strict=True)):
        np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=rtol, atol=1e-11, err_msg=f"result {k}")
    seeds = [draw(*z.shape, seed=9 + k) for k, z in enumerate(zs)]
    wg.sum(wg.stack([(y * wg.asarray(s)).sum() for y, s in zip(ys, seeds)])).backward()
    sum((z * torch.tensor(s)).sum() for z, s in zip(zs, seeds)).backward()
    theirs_by_name = dict(theirs.named_parameters())
    pairs = [(f"argument {k}", x, p) for k, (x, p) in enumerate(zip(xs, peers))]
    pairs += [(name, p, theirs_by_name[name]) for name, p in ours.named_parameters()]
    for name, x, p in pairs:
        np.testing.assert_allclose(x.grad.numpy(), p.grad.numpy(), rtol=rtol, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells(name: str, bias: bool) -> None:
    theirs = getattr(torch.nn, name)(5, 3, bias=bias, dtype=torch.float64)
    ours = getattr(wg.nn, name)(5, 3, bias, dtype="float64")
    load(ours, theirs)
    check(ours, theirs, draw(4, 5))
    check(ours, theirs, draw(5))
    if name == "LSTMCell":
        y, z = (cell(x, (h, c)) for cell, (x, h, c) in (
            (ours, map(wg.asarray, (draw(4, 5), draw(4, 3, seed=1), draw(4, 3, seed=2)))),
            (theirs, map(torch.tensor, (draw(4, 5), draw(4, 3, seed=1), draw(4, 3, seed=2)))),
        ))  # fmt: skip
        for a, b in zip(y, z):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-11)
    else:
        ours.zero_grad(), theirs.zero_grad()
        check(ours, theirs, draw(4, 5), draw(4, 3, seed=1))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", ["", "masks", "padding"])
def test_transformer_decoders(masked: str, norm_first: bool) -> None:
    options: dict[str, Any] = dict(dropout=0.0, batch_first=True, norm_first=norm_first, activation="gelu")
    theirs = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(8, 2, 16, dtype=torch.float64, **options), 2)
    ours = wg.nn.TransformerDecoder(wg.nn.TransformerDecoderLayer(8, 2, 16, dtype="float64", **options), 2)
    load(ours, theirs)
    masks: dict[str, Any] = {}
    if masked == "masks":
        masks = {"tgt_mask": np.triu(np.ones((5, 5), bool), 1), "memory_mask": draw(5, 7)}
    if masked == "padding":
        tgt, memory = np.zeros((3, 5), bool), np.zeros((3, 7), bool)
        tgt[1, 4:] = memory[2, 3:] = True
        masks = {"tgt_key_padding_mask": tgt, "memory_key_padding_mask": memory}
    check(ours, theirs, draw(3, 5, 8), draw(3, 7, 8, seed=1), **masks)


def test_bilinear() -> None:
    theirs, ours = torch.nn.Bilinear(3, 4, 5, dtype=torch.float64), wg.nn.Bilinear(3, 4, 5, dtype="float64")
    load(ours, theirs)
    check(ours, theirs, draw(6, 3), draw(6, 4, seed=1))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_weight_norm(axis: int | None) -> None:
    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3, dtype=torch.float64), dim=axis)
    ours = wg.nn.weight_norm(wg.nn.Linear(4, 3, dtype="float64"), axis=axis)
    if axis is None:  # one number there, a matrix of one element here
        state = {k: v.numpy() for k, v in theirs.state_dict().items()}
        state["parametrizations.weight.original0"] = state["parametrizations.weight.original0"].reshape(1, 1)
        ours.load_state_dict(state)
        np.testing.assert_allclose(ours.weight.detach().numpy(), theirs.weight.detach().numpy(), rtol=1e-12)
        return
    load(ours, theirs)
    with wg.no_grad(), torch.no_grad():
        for m in (ours, theirs):
            m.parametrizations["weight"].original0.mul_(1.7)
    check(ours, theirs, draw(5, 4))


@pytest.mark.parametrize("kind", ["Linear", "Conv2d", "ConvTranspose2d"])
def test_spectral_norm(kind: str) -> None:
    sizes = (4, 3) if kind == "Linear" else (4, 3, 2)
    theirs = torch.nn.utils.parametrizations.spectral_norm(getattr(torch.nn, kind)(*sizes, dtype=torch.float64))
    ours = wg.nn.spectral_norm(getattr(wg.nn, kind)(*sizes, dtype="float64"))
    load(ours, theirs)
    x = draw(5, 4) if kind == "Linear" else draw(2, 4, 5, 6)
    for _ in range(2):  # each call improves the singular vectors, and both do so alike
        check(ours, theirs, x)
        ours.zero_grad(), theirs.zero_grad()
    ours.eval(), theirs.eval()
    check(ours, theirs, x)
    np.testing.assert_allclose(
        ours.state_dict()["parametrizations.weight.0._u"].numpy(),
        theirs.parametrizations.weight[0]._u.numpy(),
        rtol=1e-9,
    )


def test_backward_hooks_see_what_pytorchs_see() -> None:
    seen: dict[str, list[Any]] = {"ours": [], "theirs": []}
    theirs, ours = torch.nn.Bilinear(3, 4, 2, dtype=torch.float64), wg.nn.Bilinear(3, 4, 2, dtype="float64")
    load(ours, theirs)

    def keeping(which: str) -> Any:
        def hook(module: Any, inputs: Any, outputs: Any) -> Any:
            seen[which] += [None if g is None else np.array(g.detach().numpy()) for g in (*inputs, *outputs)]
            return tuple(None if g is None else g * 2 for g in inputs)

        return hook

    ours.register_full_backward_hook(keeping("ours"))
    theirs.register_full_backward_hook(keeping("theirs"))
    check(ours, theirs, draw(5, 3), draw(5, 4, seed=1))
    assert len(seen["ours"]) == len(seen["theirs"]) == 3
    for a, b in zip(seen["ours"], seen["theirs"]):
        np.testing.assert_allclose(a, b, rtol=1e-10)
