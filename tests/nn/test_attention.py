"""Attention modules: what needs no peer."""

from __future__ import annotations

import numpy as np
import pytest

import wengert as wg
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
    with pytest.raises(ArgumentError, match="3 heads"):
        wg.nn.MultiheadAttention(8, 3)
    with pytest.raises(ShapeError, match="8 features"):
        wg.nn.MultiheadAttention(8, 2)(*[wg.ones((5, 2, 7))] * 3)
    with pytest.raises(ArgumentError, match="activation"):
        wg.nn.TransformerEncoderLayer(8, 2, activation="sine")
    with pytest.raises(ArgumentError, match="padding_idx"):
        wg.nn.Embedding(5, 2, padding_idx=5)
    with pytest.raises(IndexRangeError, match="9"):
        wg.nn.Embedding(5, 2)(wg.tensor([9]))
