"""Attention modules: what needs no peer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from wengert.errors import ArgumentError, IndexRangeError, ShapeError


def test_weights_are_returned_or_never_made() -> None:
    m = wg.nn.MultiheadAttention(8, 2, batch_first=True)
    x = wg.randn(2, 6, 8)
    y, weights = m(x, x, x)
    z, nothing = m(x, x, x, need_weights=False)
    assert nothing is None and weights.shape == (2, 6, 6)
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights.detach().numpy().sum(-1), 1.0, rtol=1e-5)


def test_one_sequence_without_a_batch() -> None:
    m, x = wg.nn.MultiheadAttention(8, 2), wg.randn(6, 8)
    y, weights = m(x, x, x)
    z, _ = m(wg.expand_dims(x, axis=1), wg.expand_dims(x, axis=1), wg.expand_dims(x, axis=1))
    assert y.shape == (6, 8) and weights.shape == (6, 6)
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy()[:, 0], rtol=1e-5, atol=1e-6)


def test_dropout_only_while_training() -> None:
    layer, x = wg.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5), wg.randn(5, 3, 8)
    assert (layer(x).detach().numpy() != layer(x).detach().numpy()).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x).detach().numpy(), layer(x).detach().numpy())


def test_layers_of_an_encoder_do_not_share_weights() -> None:
    encoder = wg.nn.TransformerEncoder(wg.nn.TransformerEncoderLayer(8, 2, 16), 2)
    assert len(encoder.parameters()) == 24
    assert encoder.layers[0].linear1.weight is not encoder.layers[1].linear1.weight


def test_an_encoder_layer_inside_compile() -> None:
    layer, x = wg.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), wg.randn(5, 3, 8)
    np.testing.assert_allclose(
        wg.compile(lambda z: layer(z))(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="divisible by num_heads=3"):
        wg.nn.MultiheadAttention(8, 3)
    with pytest.raises(ShapeError, match="8 features"):
        wg.nn.MultiheadAttention(8, 2)(*[wg.ones((5, 2, 7))] * 3)
    with pytest.raises(ArgumentError, match="activation"):
        wg.nn.TransformerEncoderLayer(8, 2, activation="sine")
    with pytest.raises(ArgumentError, match="padding_idx"):
        wg.nn.Embedding(5, 2, padding_idx=5)
    with pytest.raises(IndexRangeError, match="9"):
        wg.nn.Embedding(5, 2)(wg.tensor([9]))


@pytest.mark.parametrize("window", [0, 1, (3, 0), (0, 2)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_window_hides_what_is_far(window: Any, is_causal: bool) -> None:
    q, k, v = (wg.asarray(np.random.default_rng(s).standard_normal((2, 3, 6, 4))) for s in range(3))
    before, after = (window, window) if isinstance(window, int) else window
    ahead = np.arange(6)[None, :] - np.arange(6)[:, None]
    near = (ahead >= -before) & (ahead <= after)
    y = wg.scaled_dot_product_attention(q, k, v, window=window, is_causal=is_causal)
    expected = wg.scaled_dot_product_attention(q, k, v, attn_mask=near, is_causal=is_causal)
    np.testing.assert_array_equal(y.numpy(), expected.numpy())
    bias = np.random.default_rng(9).standard_normal((6, 6))
    y = wg.scaled_dot_product_attention(q, k, v, attn_mask=wg.asarray(bias), window=window)
    expected = wg.scaled_dot_product_attention(q, k, v, attn_mask=wg.asarray(np.where(near, bias, -np.inf)))
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-13)


def test_groups_of_heads_share_keys_and_values() -> None:
    q, k, v = (np.random.default_rng(s).standard_normal((2, h, 5, 4)) for s, h in enumerate((6, 2, 2)))
    y = wg.scaled_dot_product_attention(q, k, v, enable_gqa=True, is_causal=True)
    spread = (np.repeat(x, 3, axis=1) for x in (k, v))
    np.testing.assert_allclose(
        y.numpy(), wg.scaled_dot_product_attention(q, *spread, is_causal=True).numpy(), rtol=1e-12
    )
    fd.check(
        lambda q, k, v: wg.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        q[:1, :, :3],
        k[:1, :, :3],
        v[:1, :, :3],
    )
    with pytest.raises(wg.ShapeError, match="a multiple of those of k and v"):
        wg.scaled_dot_product_attention(q[:, :5], k, v, enable_gqa=True)
    with pytest.raises(wg.ArgumentError, match="window must not be negative"):
        wg.scaled_dot_product_attention(q, q, q, window=-1)


@pytest.mark.parametrize(
    "options", [dict(num_kv_heads=2), dict(num_kv_heads=1), dict(window=1), dict(window=(2, 0))], ids=str
)
def test_the_module_in_groups_and_windows(options: dict[str, Any]) -> None:
    attention = wg.nn.MultiheadAttention(16, 4, batch_first=True, dtype="float64", **options)
    x = wg.asarray(np.random.default_rng(0).standard_normal((2, 5, 16)))
    y, weights = attention(x, x, x)
    z, _ = attention(x, x, x, need_weights=False)
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-10)
    other = wg.asarray(np.random.default_rng(1).standard_normal((2, 5, 16)))
    a, b = (attention(x, other, other, need_weights=n)[0].detach().numpy() for n in (False, True))
    np.testing.assert_allclose(a, b, rtol=1e-10)
    if "window" in options:
        hidden = weights.detach().numpy() == 0
        ahead = np.arange(5)[None, :] - np.arange(5)[:, None]
        before, after = (1, 1) if options["window"] == 1 else options["window"]
        np.testing.assert_array_equal(hidden[0], (ahead < -before) | (ahead > after))
    else:
        assert attention.in_proj_weight.shape == (16 + 2 * 4 * options["num_kv_heads"], 16)
    with pytest.raises(wg.ArgumentError, match="num_heads=4 must be divisible by num_kv_heads=3"):
        wg.nn.MultiheadAttention(16, 4, num_kv_heads=3)
