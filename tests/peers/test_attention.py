"""Attention beside PyTorch: values, both modes and second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
F = torch.nn.functional


def _math(*args: Any, **options: Any) -> Any:
    """PyTorch's own composed form: the fused ones have neither forward mode nor a second derivative."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*args, **options)


def _draw(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal(s) for s in shapes]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("t", "s"), [(5, 5), (3, 7), (7, 3), (70, 280)])
def test_attention(t: int, s: int, causal: bool) -> None:
    compare(
        lambda *xs: wg.scaled_dot_product_attention(*xs, is_causal=causal, scale=0.3),
        torch=lambda *xs: _math(*xs, is_causal=causal, scale=0.3),
        arrays=_draw((2, t, 4), (2, s, 4), (2, s, 3)),
    )


def test_boolean_mask() -> None:
    mask = np.random.default_rng(5).random((2, 1, 5, 6)) < 0.7
    mask[..., 0] = True
    compare(
        lambda *xs: wg.scaled_dot_product_attention(*xs, attn_mask=mask),
        torch=lambda *xs: _math(*xs, attn_mask=torch.tensor(mask)),
        arrays=_draw((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 2)),
    )


def test_added_mask_and_its_derivatives() -> None:
    compare(
        lambda q, k, v, m: wg.scaled_dot_product_attention(q, k, v, attn_mask=m),
        torch=lambda q, k, v, m: _math(q, k, v, attn_mask=m),
        arrays=_draw((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 2), (5, 6)),
    )


def test_a_query_that_sees_nothing() -> None:
    q, k, v = _draw((3, 4), (5, 4), (5, 2))
    mask = np.ones((3, 5), bool)
    mask[1] = False
    ours = wg.scaled_dot_product_attention(q, k, v, attn_mask=mask).numpy()
    theirs = _math(*map(torch.tensor, (q, k, v)), attn_mask=torch.tensor(mask)).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
