"""Attention modules, encoder layers and embeddings beside PyTorch, with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")


def _loaded(ours: Any, theirs: Any) -> None:
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})


def _draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def _same(a: Any, b: Any, what: str = "") -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=what)


def _same_gradients(ours: Any, theirs: Any, y: Any, z: Any, x: Any, x_peer: Any) -> None:
    seed = _draw(*z.shape, seed=9)
    (y * wg.asarray(seed)).sum().backward()
    (z * torch.tensor(seed)).sum().backward()
    _same(x.grad, x_peer.grad, "input")
    for (key, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        _same(a.grad, b.grad, key)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("masked", ["", "attn", "padding", "both", "causal"])
def test_multihead_attention(masked: str, batch_first: bool, need_weights: bool) -> None:
    torch.manual_seed(1)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first, dtype=torch.float64)
    torch.nn.init.normal_(theirs.in_proj_bias)
    ours = wg.nn.MultiheadAttention(8, 2, batch_first=batch_first, dtype="float64")
    _loaded(ours, theirs)
    a = _draw(3, 5, 8) if batch_first else _draw(5, 3, 8)
    x, peer = wg.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    attn = np.random.default_rng(2).random((5, 5)) < 0.3
    np.fill_diagonal(attn, False)
    padding = np.zeros((3, 5), bool)
    padding[0, 4] = padding[2, 3:] = True
    options: dict[str, Any] = {}
    if masked in ("attn", "both"):
        options["attn_mask"] = attn
    if masked in ("padding", "both"):
        options["key_padding_mask"] = padding
    if masked == "causal":
        options["attn_mask"] = np.triu(np.ones((5, 5), bool), 1)
    y, weights = ours(x, x, x, need_weights=need_weights, **options)
    z, expected = theirs(
        peer, peer, peer, need_weights=need_weights, **{k: torch.tensor(m) for k, m in options.items()}
    )
    _same(y, z)
    assert (weights is None) == (expected is None)
    if weights is not None:
        _same(weights, expected)
    if masked == "causal":
        _same(ours(x, x, x, need_weights=need_weights, is_causal=True)[0], z)
    _same_gradients(ours, theirs, y, z, x, peer)


def test_attention_to_other_keys_and_values() -> None:
    theirs = torch.nn.MultiheadAttention(8, 4, batch_first=True, bias=False, dtype=torch.float64)
    ours = wg.nn.MultiheadAttention(8, 4, batch_first=True, bias=False, dtype="float64")
    _loaded(ours, theirs)
    q, k, v = _draw(2, 3, 8), _draw(2, 6, 8, seed=1), _draw(2, 6, 8, seed=2)
    y, w = ours(*map(wg.asarray, (q, k, v)), average_attn_weights=False)
    z, u = theirs(*map(torch.tensor, (q, k, v)), average_attn_weights=False)
    _same(y, z)
    _same(w, u)
    added = _draw(8, 3, 6, seed=4)
    _same(
        ours(*map(wg.asarray, (q, k, v)), attn_mask=added, need_weights=False)[0],
        theirs(*map(torch.tensor, (q, k, v)), attn_mask=torch.tensor(added), need_weights=False)[0],
    )


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(activation: str, norm_first: bool) -> None:
    torch.manual_seed(2)
    options: dict[str, Any] = dict(dropout=0.0, activation=activation, norm_first=norm_first, batch_first=True)
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, dtype=torch.float64, **options)
    ours = wg.nn.TransformerEncoderLayer(8, 2, 16, dtype="float64", **options)
    _loaded(ours, theirs)
    a = _draw(3, 5, 8)
    x, peer = wg.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    hidden = np.triu(np.ones((5, 5), bool), 1)
    y, z = ours(x, hidden), theirs(peer, torch.tensor(hidden))
    _same(y, z)
    _same_gradients(ours, theirs, y, z, x, peer)


def test_encoder() -> None:
    torch.manual_seed(3)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, dtype=torch.float64)
    theirs = torch.nn.TransformerEncoder(
        layer, 3, norm=torch.nn.LayerNorm(8, dtype=torch.float64), enable_nested_tensor=False
    )
    ours = wg.nn.TransformerEncoder(
        wg.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, dtype="float64"), 3, wg.nn.LayerNorm(8, dtype="float64")
    )
    _loaded(ours, theirs)
    a = _draw(5, 3, 8)
    x, peer = wg.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    y, z = ours(x), theirs(peer)
    _same(y, z)
    _same_gradients(ours, theirs, y, z, x, peer)


def test_embedding_with_padding() -> None:
    theirs = torch.nn.Embedding(7, 3, padding_idx=2, dtype=torch.float64)
    ours = wg.nn.Embedding(7, 3, padding_idx=2, dtype="float64")
    assert not ours.weight.detach().numpy()[2].any()
    _loaded(ours, theirs)
    index = np.array([[1, 2, 2], [6, 1, 1]])
    y, z = ours(wg.asarray(index)), theirs(torch.tensor(index))
    _same(y, z)
    seed = _draw(2, 3, 3)
    (y * wg.asarray(seed)).sum().backward()
    (z * torch.tensor(seed)).sum().backward()
    _same(ours.weight.grad, theirs.weight.grad)
