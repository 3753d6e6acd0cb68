"""Attention: values in NumPy, blocks beyond one, masks, both modes, second order, memory, threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wengert as wg
from tests import finite_differences as fd
from tests.tolerances import AGREEMENT, FIRST_ORDER, SECOND_ORDER, assert_near, assert_same
from wengert.errors import ArgumentError, DTypeError, ShapeError


def reference(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None) -> Any:
    """softmax(scale q kᵀ) v in NumPy; zeros for a query that sees nothing."""
    s = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    largest = s.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(np.isneginf(largest), 0.0, largest))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1.0, total) @ v


def draw(*shapes: tuple[int, ...], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s) for s in shapes]


def attend(*xs: Any, **options: Any) -> Any:
    return wg.scaled_dot_product_attention(*(wg.asarray(x) for x in xs), **options).numpy()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("t", "s"), [(1, 1), (3, 7), (7, 3), (64, 256), (65, 257), (130, 600), (300, 40)])
def test_values_across_blocks(t: int, s: int, causal: bool) -> None:
    q, k, v = draw((2, t, 5), (2, s, 5), (2, s, 3))
    np.testing.assert_allclose(
        attend(q, k, v, is_causal=causal), reference(q, k, v, None, causal), rtol=1e-12, atol=1e-13
    )


def test_the_large_blocks_of_many_batches() -> None:
    """Sixteen batches take blocks of 256 queries and 512 keys."""
    q, k, v = draw((16, 300, 4), (16, 600, 4), (16, 600, 3))
    for causal in (False, True):
        got = attend(q, k, v, is_causal=causal)
        np.testing.assert_allclose(got, reference(q, k, v, None, causal), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "shape", [(70, 300), (1, 300), (70, 1), (300,), (2, 1, 70, 300), (3, 70, 300), (1, 1), (5, 1, 3, 70, 300)]
)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_broadcast(shape: tuple[int, ...], kind: str) -> None:
    q, k, v, m = draw((2, 3, 70, 4), (2, 3, 300, 4), (2, 3, 300, 4), shape)
    mask = m > -0.5 if kind == "bool" else m
    np.testing.assert_allclose(attend(q, k, v, attn_mask=mask), reference(q, k, v, mask), rtol=1e-12, atol=1e-13)
    both = attend(q, k, v, attn_mask=mask, is_causal=True)
    np.testing.assert_allclose(both, reference(q, k, v, mask, True), rtol=1e-12, atol=1e-13)


def test_leading_axes_broadcast() -> None:
    q, k, v = draw((2, 3, 4, 5), (1, 6, 5), (6, 2))
    wide = np.broadcast_to(k, (2, 3, 6, 5)), np.broadcast_to(v, (2, 3, 6, 2))
    np.testing.assert_allclose(attend(q, k, v), reference(q, *wide), rtol=1e-12)


def test_heads_as_a_permuted_view() -> None:
    """(B, T, H, d) seen as (B, H, T, d): no copy, the same numbers."""
    q, k, v = draw((2, 70, 3, 8), (2, 300, 3, 8), (2, 300, 3, 8))
    heads = [wg.asarray(x).permute_dims((0, 2, 1, 3)) for x in (q, k, v)]
    got = wg.scaled_dot_product_attention(*heads).numpy()
    np.testing.assert_allclose(got, reference(*(x.transpose(0, 2, 1, 3) for x in (q, k, v))), rtol=1e-12, atol=1e-13)


def test_a_query_that_sees_nothing_gives_zeros_and_no_nan() -> None:
    q, k, v = (wg.tensor(x, requires_grad=True) for x in draw((3, 4), (300, 4), (300, 2)))
    mask = np.ones((3, 300), bool)
    mask[1] = False
    for given_mask in (mask, np.where(mask, 0.0, -np.inf)):
        o = wg.scaled_dot_product_attention(q, k, v, attn_mask=given_mask)
        assert o.detach().numpy()[1].tolist() == [0.0, 0.0]
        grads = o.backward(wg.asarray(fd.seeds([(3, 2)])[0]))
        assert all(np.isfinite(grads[x].numpy()).all() for x in (q, k, v))
        assert not grads[q].numpy()[1].any()


def test_extreme_scores_stay_finite() -> None:
    q, k, v = draw((4, 8), (9, 8), (9, 3))
    got = attend(q * 1e4, k * 1e4, v)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, reference(q * 1e4, k * 1e4, v), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("option", ["plain", "causal", "bool", "float"])
def test_derivatives_across_blocks(option: str) -> None:
    """Forward, reverse and second order on 70 queries and 300 keys: two blocks of each."""
    xs = draw((70, 3), (300, 3), (300, 2))
    (m,) = draw((70, 300), seed=5)
    mask = {"bool": m > 0, "float": m}.get(option)

    def f(*zs: Any) -> Any:
        return wg.scaled_dot_product_attention(*zs, attn_mask=mask, is_causal=option == "causal")

    def on_arrays(*zs: Any) -> Any:
        return reference(*zs, mask, option == "causal")

    dots, vs = fd.seeds([x.shape for x in xs]), [wg.asarray(d) for d in fd.seeds([x.shape for x in xs], 2)]
    ts = [wg.asarray(x) for x in xs]
    y, y_dot = wg.jvp(f, ts, [wg.asarray(d) for d in dots])
    assert_near(y_dot.numpy(), fd.directional(on_arrays, xs, dots), FIRST_ORDER)
    (bar,) = fd.seeds([y.shape], 1)
    bars = [g.numpy() for g in wg.vjp(f, *ts)[1](wg.asarray(bar))]
    assert fd.inner([bar], [y_dot.numpy()]) == pytest.approx(fd.inner(bars, dots), rel=AGREEMENT)

    def gradient(*zs: Any) -> Any:
        return wg.vjp(f, *zs)[1](wg.asarray(bar))

    forward = [g.numpy() for g in wg.jvp(gradient, ts, vs)[1]]
    reverse = [g.numpy() for g in wg.vjp(gradient, *ts)[1](tuple(vs))]
    numeric = fd.directional(
        lambda *zs: np.concatenate([g.numpy().ravel() for g in gradient(*(wg.asarray(z) for z in zs))]),
        xs,
        [v.numpy() for v in vs],
    )
    assert_near(np.concatenate([g.ravel() for g in forward]), numeric, SECOND_ORDER)
    for a, b in zip(forward, reverse):
        assert_near(b, a, AGREEMENT)


def test_gradient_of_an_added_mask() -> None:
    q, k, v, m = draw((2, 4, 3), (2, 5, 3), (2, 5, 2), (4, 5))
    (bar,) = fd.seeds([(2, 4, 2)])

    def loss(z: Any) -> Any:
        return (wg.scaled_dot_product_attention(q, k, v, attn_mask=z) * wg.asarray(bar)).sum()

    got = wg.grad(loss)(wg.asarray(m)).numpy()
    assert_near(got, fd.gradient(lambda z: np.sum(bar * reference(q, k, v, z)), [m])[0], FIRST_ORDER)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    t=st.integers(0, 80),
    s=st.integers(0, 270),
    d=st.integers(1, 9),
    e=st.integers(0, 5),
    causal=st.booleans(),
    masked=st.sampled_from(["", "bool", "float"]),
)
def test_any_shape(batch: list[int], t: int, s: int, d: int, e: int, causal: bool, masked: str) -> None:
    q, k, v, m = draw((*batch, t, d), (*batch, s, d), (*batch, s, e), (t, s), seed=t * 1000 + s)
    mask = {"bool": m > 0.5, "float": m}.get(masked)
    got = attend(q, k, v, attn_mask=mask, is_causal=causal)
    np.testing.assert_allclose(got, reference(q, k, v, mask, causal), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 2e-2)])
def test_narrow_dtypes(dtype: str, tolerance: float) -> None:
    xs = draw((2, 70, 16), (2, 300, 16), (2, 300, 8))
    ts = [wg.asarray(x).astype(dtype).requires_grad_() for x in xs]
    o = wg.scaled_dot_product_attention(*ts)
    assert o.dtype.name == dtype
    rounded = [np.asarray(t.detach().astype("float64")) for t in ts]
    assert_near(o.astype("float64").detach().numpy(), reference(*rounded), tolerance)
    o.sum().backward()
    assert all(t.grad is not None and t.grad.dtype.name == dtype for t in ts)


def test_dropout_drops_weights_and_derivatives_agree() -> None:
    xs = draw((2, 70, 4), (2, 300, 4), (2, 300, 3))

    def f(*zs: Any) -> Any:
        wg.manual_seed(3)
        return wg.scaled_dot_product_attention(*zs, dropout_p=0.4)

    wg.manual_seed(3)
    kept = (wg.rand(2, 70, 300).numpy() >= np.float32(0.4)) / 0.6

    def on_arrays(q: Any, k: Any, v: Any) -> Any:
        s = q @ np.swapaxes(k, -1, -2) / 2
        e = np.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) * kept) @ v

    ts = [wg.asarray(x) for x in xs]
    np.testing.assert_allclose(f(*ts).numpy(), on_arrays(*xs), rtol=1e-11, atol=1e-12)
    dots = fd.seeds([x.shape for x in xs])
    y, y_dot = wg.jvp(f, ts, [wg.asarray(d) for d in dots])
    assert_near(y_dot.numpy(), fd.directional(on_arrays, xs, dots), FIRST_ORDER)
    (bar,) = fd.seeds([y.shape], 1)
    bars = [g.numpy() for g in wg.vjp(f, *ts)[1](wg.asarray(bar))]
    assert fd.inner([bar], [y_dot.numpy()]) == pytest.approx(fd.inner(bars, dots), rel=AGREEMENT)


def test_everything_dropped_is_zero() -> None:
    q, k, v = draw((3, 4), (5, 4), (5, 2))
    assert not attend(q, k, v, dropout_p=1.0).any()


def test_inside_compile() -> None:
    xs = [wg.asarray(x) for x in draw((2, 70, 4), (2, 300, 4), (2, 300, 3))]

    @wg.compile
    def f(q: Any, k: Any, v: Any) -> Any:
        return wg.tanh(wg.scaled_dot_product_attention(q, k, v, is_causal=True))

    def g(q: Any, k: Any, v: Any) -> Any:
        return wg.tanh(wg.scaled_dot_product_attention(q, k, v, is_causal=True))

    assert_same(f(*xs).numpy(), g(*xs).numpy())
    for a, b in zip(wg.grad(lambda *z: f(*z).sum(), (0, 1, 2))(*xs), wg.grad(lambda *z: g(*z).sum(), (0, 1, 2))(*xs)):
        assert_near(a.numpy(), b.numpy(), AGREEMENT)


def test_dropout_inside_compile() -> None:
    (x,) = (wg.asarray(a) for a in draw((2, 70, 4)))

    def f(q: Any) -> Any:
        return wg.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    wg.manual_seed(3)
    expected = [f(x).numpy() for _ in range(2)]
    wg.manual_seed(3)
    compiled = wg.compile(f)
    for y in expected:
        assert_same(compiled(x).numpy(), y)
    assert (expected[0] != expected[1]).any()


def test_memory_grows_with_the_length_not_its_square() -> None:
    """At T = 4096 all weights would be 64 MB; forward and backward stay far below."""
    t, d = 4096, 16
    q, k, v = (wg.tensor(x.astype("float32"), requires_grad=True) for x in draw((1, t, d), (1, t, d), (1, t, d)))
    wg.empty_pool()
    before = wg.memory_stats().live_bytes
    wg.reset_peak()
    wg.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    assert wg.memory_stats().peak_bytes - before < 40 * t * d * 4


def test_bits_do_not_depend_on_threads() -> None:
    ts = [wg.asarray(x.astype("float32")) for x in draw((1, 300, 8), (1, 1500, 8), (1, 1500, 8))]
    before, results = wg.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            wg.set_num_threads(n)
            y, pull = wg.vjp(lambda *z: wg.scaled_dot_product_attention(*z, is_causal=True), *ts)
            results.append([y.numpy().copy(), *(g.numpy().copy() for g in pull(y))])
    finally:
        wg.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert_same(a, b)


def test_options_may_be_tensors_and_numpy_numbers() -> None:
    q, k, v = draw((3, 4), (3, 4), (3, 2))
    expected = attend(q, k, v, scale=0.5, is_causal=True)
    for scale in (wg.tensor(0.5), np.float32(0.5), np.array(0.5)):
        for causal in (wg.tensor(True), np.True_, 1):
            assert_same(attend(q, k, v, scale=scale, is_causal=causal), expected)


def test_errors() -> None:
    x = np.ones((2, 3))
    with pytest.raises(ShapeError, match="positions, features"):
        wg.scaled_dot_product_attention(np.ones(3), x, x)
    with pytest.raises(ShapeError, match=r"attention.*float64\(4, 2\)"):
        wg.scaled_dot_product_attention(x, np.ones((4, 2)), np.ones((4, 3)))
    with pytest.raises(ShapeError, match="mask"):
        wg.scaled_dot_product_attention(x, x, x, attn_mask=np.ones((3, 2), bool))
    with pytest.raises(DTypeError, match="attn_mask"):
        wg.scaled_dot_product_attention(x, x, x, attn_mask=np.ones((2, 2), int))
    with pytest.raises(DTypeError, match="real"):
        wg.scaled_dot_product_attention(x + 0j, x + 0j, x + 0j)
    with pytest.raises(ArgumentError, match="the probability must be between"):
        wg.scaled_dot_product_attention(x, x, x, dropout_p=1.5)


# -------------------------------------------------------------------------------------------------- rotary positions


def rotated(x: Any, positions: Any, base: float, interleaved: bool) -> Any:
    """Each pair of features as a complex number, turned."""
    d = x.shape[-1]
    angle = np.asarray(positions)[..., None] * base ** (-2.0 * np.arange(d // 2) / d)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., : d // 2], x[..., d // 2 :])
    z = (a + 1j * b) * np.exp(1j * angle)
    return np.stack([z.real, z.imag], -1).reshape(x.shape) if interleaved else np.concatenate([z.real, z.imag], -1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(interleaved: bool) -> None:
    (x,) = draw((2, 3, 5, 8))
    got = wg.rotary_embedding(x, interleaved=interleaved)
    np.testing.assert_allclose(got.numpy(), rotated(x, np.arange(5), 10000.0, interleaved), rtol=1e-12, atol=1e-13)
    places = np.array([[[4, 0, 9, 1, 1]], [[7, 7, 3, 2, 0]]])
    got = wg.rotary_embedding(x, positions=places, base=100.0, interleaved=interleaved)
    np.testing.assert_allclose(got.numpy(), rotated(x, places, 100.0, interleaved), rtol=1e-12, atol=1e-13)
    (bar,) = fd.seeds([x.shape])
    _, pull = wg.vjp(lambda z: wg.rotary_embedding(z, interleaved=interleaved), wg.asarray(x))
    back = rotated(bar, -np.arange(5), 10000.0, interleaved)  # the transpose of a rotation turns back
    np.testing.assert_allclose(pull(wg.asarray(bar))[0].numpy(), back, rtol=1e-12, atol=1e-13)


def test_rotary_embedding_errors() -> None:
    with pytest.raises(ShapeError, match="even"):
        wg.rotary_embedding(np.ones((2, 3)))
    with pytest.raises(ShapeError, match="positions"):
        wg.rotary_embedding(np.ones((2, 4)), positions=[[0, 1], [0, 1], [0, 1]])
    with pytest.raises(ArgumentError, match="base"):
        wg.rotary_embedding(np.ones((2, 4)), base=0.0)


@pytest.mark.parametrize(("t", "s"), [(130, 600), (300, 70), (257, 257), (3, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_cotangents_across_blocks(t: int, s: int, causal: bool) -> None:
    """Against the formula; with causal queries whole blocks of keys are seen by none, and have zeros."""
    rng = np.random.default_rng([7, t, s])
    q, k, v = (rng.standard_normal((2, n, 5)) for n in (t, s, s))
    bar = rng.standard_normal((2, t, 5))
    f = lambda *z: wg.scaled_dot_product_attention(*z, is_causal=causal)
    got = wg.vjp(f, *map(wg.asarray, (q, k, v)))[1](wg.asarray(bar))
    scores = np.einsum("btd,bsd->bts", q, k) / np.sqrt(5)
    w = np.where(np.tri(t, s) > 0, np.exp(scores), 0.0) if causal else np.exp(scores)
    w = w / np.maximum(w.sum(-1, keepdims=True), 1e-300)
    w_bar = np.einsum("bte,bse->bts", bar, v)
    s_bar = w * (w_bar - (w * w_bar).sum(-1, keepdims=True)) / np.sqrt(5)
    expected = s_bar @ k, np.swapaxes(s_bar, 1, 2) @ q, np.swapaxes(w, 1, 2) @ bar
    for x, y in zip(got, expected):
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 10.0, 40.0, 100.0])
def test_second_derivative_of_peaked_weights_in_float32(size: float) -> None:
    """By v it is a small difference of large terms where one weight is nearly 1: they must not be rounded apart."""
    arrays = [a.astype(np.float32) for a in draw(*[(2, 8, 8)] * 5)]
    arrays[0] *= np.float32(size)

    def by_v(dtype: str) -> list[Any]:
        q, k, v, o_bar, u = (wg.asarray(a.astype(dtype)) for a in arrays)

        def value(q: Any, k: Any, v: Any) -> Any:
            return (wg.scaled_dot_product_attention(q, k, v) * o_bar).sum()

        def reverse(v: Any) -> Any:
            q_bar, k_bar = wg.grad(value, argnums=(0, 1))(q, k, v)
            return ((q_bar + k_bar) * u).sum()

        def forward(v: Any) -> Any:
            return wg.jvp(lambda q, k: value(q, k, v), (q, k), (u, u))[1]

        return [wg.grad(f)(v).numpy() for f in (reverse, forward)]

    for narrow, exact in zip(by_v("float32"), by_v("float64")):
        np.testing.assert_allclose(narrow, exact, atol=3e-5 * np.abs(exact).max(), rtol=0)
