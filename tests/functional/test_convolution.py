"""Convolutions against SciPy and plain loops, in every combination of options, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, DTypeError, ShapeError

CONV = {1: wg.conv1d, 2: wg.conv2d, 3: wg.conv3d}
TRANSPOSED = {1: wg.conv_transpose1d, 2: wg.conv_transpose2d, 3: wg.conv_transpose3d}


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([3, seed]).uniform(-1.0, 1.0, shape)


def loops(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Convolution as it is written, element by element of the result."""
    rank = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_group = w.shape[0] // groups
    for at in np.ndindex(*sizes):
        window = tuple(
            slice(j * s, j * s + d * (k - 1) + 1, d) for j, s, d, k in zip(at, stride, dilation, w.shape[2:])
        )
        for o in range(w.shape[0]):
            g = o // per_group
            channels = slice(g * w.shape[1], (g + 1) * w.shape[1])
            y[(slice(None), o, *at)] = (x[(slice(None), channels, *window)] * w[o]).sum(tuple(range(1, rank + 2)))
    return y


def test_against_scipy() -> None:
    signal = pytest.importorskip("scipy.signal", reason="SciPy is not installed: make test installs it")
    x, w = data(1, 1, 9, 11)[0, 0], data(3, 4, seed=1)
    y = wg.conv2d(wg.asarray(x[None, None]), wg.asarray(w[None, None])).numpy()[0, 0]
    np.testing.assert_allclose(y, signal.correlate2d(x, w, "valid"), rtol=1e-12)
    same = wg.conv2d(wg.asarray(x[None, None]), wg.asarray(w[None, None]), padding="same").numpy()[0, 0]
    assert same.shape == x.shape
    np.testing.assert_allclose(same[1:-1, 1:-2], signal.correlate2d(x, w, "valid"), rtol=1e-12)


@st.composite
def convolutions(draw: Any) -> Any:
    """Shapes and options that fit each other."""
    rank = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    kernel = [draw(st.integers(1, 4 - (rank == 3))) for _ in range(rank)]
    stride, dilation = [draw(small) for _ in range(rank)], [draw(small) for _ in range(rank)]
    padding = [draw(st.integers(0, 3)) for _ in range(rank)]
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding)]
    most = 19 if rank == 1 else 10 if rank == 2 else 5
    spatial = [draw(st.integers(n, max(n, most))) for n in least]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, outputs = groups * draw(st.integers(1, 3)), groups * draw(st.sampled_from([1, 2, 5, 9, 20]))
    batch = draw(st.integers(0, 3))
    return (batch, channels, *spatial), (outputs, channels // groups, *kernel), stride, padding, dilation, groups


@settings(max_examples=80, deadline=None)
@given(convolutions())
def test_every_combination(case: Any) -> None:
    """Values against loops; the transposes by ⟨y_bar, T(x, w)⟩, which is the same number for all three."""
    x_shape, w_shape, stride, padding, dilation, groups = case
    x, w, b = data(*x_shape), data(*w_shape, seed=1), data(w_shape[0], seed=2)
    options: Any = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    f = CONV[len(stride)]
    expected = loops(x, w, stride, padding, dilation, groups)
    tx, tw = wg.asarray(x), wg.asarray(w)
    y = f(tx, tw, **options)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-11, atol=1e-12)
    biased = f(tx, tw, bias=wg.asarray(b), **options).numpy()
    np.testing.assert_allclose(biased, expected + b.reshape(-1, *(1 for _ in stride)), rtol=1e-11, atol=1e-12)
    y_bar = data(*expected.shape, seed=3)
    x_bar, w_bar = wg.vjp(lambda x, w: f(x, w, **options), tx, tw)[1](wg.asarray(y_bar))
    form = float((y_bar * expected).sum())
    assert float((x_bar.numpy() * x).sum()) == pytest.approx(form, rel=1e-10, abs=1e-10)
    assert float((w_bar.numpy() * w).sum()) == pytest.approx(form, rel=1e-10, abs=1e-10)
    narrow = f(tx.astype(wg.float32), tw.astype(wg.float32), **options)
    np.testing.assert_allclose(narrow.numpy(), expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(convolutions(), st.integers(0, 2))
def test_transposed_is_the_transpose(case: Any, extra: int) -> None:
    """⟨conv(x), y⟩ = ⟨x, conv_transpose(y)⟩, for the sizes that conv_transpose chooses."""
    _, w_shape, stride, padding, dilation, groups = case
    rank = len(stride)
    y = data(2, w_shape[0], *(3 for _ in stride), seed=4)
    w = data(*w_shape, seed=1)
    output_padding = [min(extra, max(s, d) - 1) for s, d in zip(stride, dilation)]
    options: Any = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    sizes = [
        2 * s - 2 * p + d * (k - 1) + e + 1
        for s, p, d, k, e in zip(stride, padding, dilation, w_shape[2:], output_padding)
    ]
    f = TRANSPOSED[rank]
    if min(sizes) < 1:
        with pytest.raises(ShapeError, match="would be empty"):
            f(wg.asarray(y), wg.asarray(w), output_padding=output_padding, **options)
        return
    got = f(wg.asarray(y), wg.asarray(w), output_padding=output_padding, **options).numpy()
    assert got.shape == (2, w_shape[1] * groups, *sizes)
    x = data(*got.shape, seed=5)
    there = loops(x, w, stride, padding, dilation, groups)[(..., *(slice(0, 3) for _ in stride))]
    assert float((got * x).sum()) == pytest.approx(float((there * y).sum()), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 3, 5, 4), (4, 3, 3, 2), {"padding": 1, "stride": 2}),
        ((1, 4, 6), (4, 2, 3), {"groups": 2, "dilation": 2}),
        ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), {"padding": (1, 0, 1)}),
        ((2, 3, 4, 4), (3, 1, 3, 3), {"groups": 3, "padding": "same"}),
    ],
)
def test_derivatives(shape: Any, kernel: Any, options: Any) -> None:
    f = CONV[len(shape) - 2]
    check(lambda x, w, b: f(x, w, bias=b, **options), data(*shape), data(*kernel, seed=1), data(kernel[0], seed=2))


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 4, 3, 3), (4, 2, 3, 2), {"stride": 2, "padding": 1, "output_padding": 1}),
        ((1, 4, 5), (4, 2, 3), {"groups": 2, "dilation": 2, "output_padding": 1}),
        ((1, 2, 2, 2, 2), (2, 1, 2, 2, 2), {"stride": (1, 2, 1)}),
    ],
)
def test_derivatives_of_the_transposed(shape: Any, kernel: Any, options: Any) -> None:
    f = TRANSPOSED[len(shape) - 2]
    outputs = kernel[1] * options.get("groups", 1)
    check(lambda x, w, b: f(x, w, bias=b, **options), data(*shape), data(*kernel, seed=1), data(outputs, seed=2))


def test_third_order() -> None:
    """The form is closed under differentiation: each derivative of a derivative is again one of its parts."""
    x, w = wg.asarray(data(1, 2, 4, 4)), wg.asarray(data(2, 2, 3, 3, seed=1))

    def f(x: Any, w: Any) -> Any:
        return (wg.tanh(wg.conv2d(x, w, padding=1)) ** 2).sum()

    third = wg.grad(lambda x: (wg.grad(lambda x: (wg.grad(f)(x, w) ** 2).sum())(x) ** 2).sum())(x)
    h, v = 1e-5, data(1, 2, 4, 4, seed=9)
    g = lambda t: float((wg.grad(lambda x: (wg.grad(f)(x, w) ** 2).sum())(x + t * wg.asarray(v)) ** 2).sum().item())
    assert float((third.numpy() * v).sum()) == pytest.approx((g(h) - g(-h)) / (2 * h), rel=1e-6)


def test_complex() -> None:
    x, w = data(1, 2, 5, 5) + 1j * data(1, 2, 5, 5, seed=1), data(3, 2, 3, 3, seed=2) + 1j * data(3, 2, 3, 3, seed=3)
    b = data(3, seed=4) + 1j * data(3, seed=5)
    y = wg.conv2d(wg.asarray(x), wg.asarray(w), bias=wg.asarray(b)).numpy()
    real, imaginary = (
        loops(x.real, w.real, (1, 1), (0, 0), (1, 1), 1) - loops(x.imag, w.imag, (1, 1), (0, 0), (1, 1), 1),
        loops(x.real, w.imag, (1, 1), (0, 0), (1, 1), 1) + loops(x.imag, w.real, (1, 1), (0, 0), (1, 1), 1),
    )
    np.testing.assert_allclose(y, real + 1j * imaginary + b.reshape(-1, 1, 1), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precisions_are_computed_in_float32(dtype: str) -> None:
    x, w = (wg.asarray(a).astype(dtype) for a in (data(2, 16, 9, 9), data(8, 16, 3, 3, seed=1)))
    y = wg.conv2d(x, w)
    wide = wg.conv2d(x.astype(wg.float32), w.astype(wg.float32))
    assert y.dtype.name == dtype
    assert bool((y == wide.astype(dtype)).all())


def test_dtypes_promote() -> None:
    y = wg.conv1d(wg.asarray(data(1, 1, 4)), wg.asarray(data(1, 1, 2)).astype(wg.float32))
    assert y.dtype == wg.float64
    assert wg.conv1d([[[1, 2, 3]]], [[[1, 1]]]).tolist() == [[[3.0, 5.0]]]


def test_without_batch() -> None:
    x, w = wg.asarray(data(3, 6, 6)), wg.asarray(data(4, 3, 3, 3, seed=1))
    np.testing.assert_array_equal(wg.conv2d(x, w).numpy(), wg.conv2d(x[None], w).numpy()[0])
    y = wg.conv_transpose2d(wg.asarray(data(4, 6, 6)), w)
    assert y.shape == (3, 8, 8)


def test_operands_of_any_strides() -> None:
    x, w = data(6, 5, 3, 2), data(3, 2, 3, 4, seed=1)
    tx, tw = wg.asarray(x).permute_dims((3, 2, 1, 0))[:, ::-1], wg.asarray(w).permute_dims((3, 1, 0, 2))
    got = wg.conv2d(tx[:, :2], tw)
    packed = wg.conv2d(
        wg.asarray(np.ascontiguousarray(x.transpose(3, 2, 1, 0)[:, ::-1][:, :2])),
        wg.asarray(np.ascontiguousarray(w.transpose(3, 1, 0, 2))),
    )
    np.testing.assert_array_equal(got.numpy(), packed.numpy())


# Wide and narrow images, many and few channels, strides, groups: every path through the kernels.
PATHS = [
    ((5, 3, 33, 29), (32, 3, 3, 3), {"padding": 1}),
    ((4, 40, 14, 14), (24, 40, 3, 3), {"padding": 1}),
    ((3, 70, 7, 7), (70, 70, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 16, 40, 40), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
    ((2, 300, 9, 9), (20, 300, 1, 1), {}),
    ((1, 2, 3, 1500), (3, 2, 3, 9), {"padding": (1, 4), "dilation": (1, 2)}),
    ((1, 64, 20, 20), (96, 64, 3, 3), {}),
    ((9, 4, 5, 5), (7, 4, 5, 5), {}),
]


@pytest.mark.parametrize(("shape", "kernel", "options"), PATHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_do_not_depend_on_threads(shape: Any, kernel: Any, options: Any, dtype: str) -> None:
    x, w, b = (wg.asarray(a).astype(dtype) for a in (data(*shape), data(*kernel, seed=1), data(kernel[0], seed=2)))
    results = []
    before = wg.get_num_threads()
    try:
        for threads in (1, 2, 5):
            wg.set_num_threads(threads)
            y, pull = wg.vjp(lambda x, w, b: wg.conv2d(x, w, bias=b, **options), x, w, b)
            bar = wg.asarray(data(*y.shape, seed=3)).astype(dtype)
            results.append([t.numpy().copy() for t in (y, *pull(bar))])
    finally:
        wg.set_num_threads(before)
    for other in results[1:]:
        for a, b_ in zip(results[0], other):
            np.testing.assert_array_equal(a, b_)


@pytest.mark.parametrize(("shape", "kernel", "options"), PATHS)
def test_paths_agree_with_the_reference(shape: Any, kernel: Any, options: Any) -> None:
    """In float32, where vectors are widest, against the registry's reference in float64."""
    from wengert.ops.conv import _np_conv, _np_conv_kernel, _np_conv_transpose

    x, w = data(*shape), data(*kernel, seed=1)
    y, pull = wg.vjp(
        lambda x, w: wg.conv2d(x, w, **options), wg.asarray(x).astype(wg.float32), wg.asarray(w).astype(wg.float32)
    )
    pair = lambda v: (v, v) if isinstance(v, int) else v
    rest = [pair(options.get(k, d)) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1))]
    groups = options.get("groups", 1)
    bar = data(*y.shape, seed=3)
    x_bar, w_bar = pull(wg.asarray(bar).astype(wg.float32))
    for got, expected in (
        (y, _np_conv(x, w, y.shape[2:], *rest, groups)),
        (x_bar, _np_conv_transpose(bar, w, x.shape[2:], *rest, groups)),
        (w_bar, _np_conv_kernel(x, bar, w.shape[2:], *rest, groups)),
    ):
        size = np.abs(expected).max()
        np.testing.assert_allclose(got.numpy(), expected, atol=2e-6 * size, rtol=2e-5)


def test_what_is_outside_does_not_count() -> None:
    """Infinite neighbours of a row or a channel reach only the outputs whose windows cover them."""
    for channels, outputs in ((1, 1), (1, 32), (32, 32)):
        x = np.ones((1, channels, 5, 13), np.float32)
        x[0, 0, 2, 0] = np.inf
        w = np.ones((outputs, channels, 3, 3), np.float32)
        y, pull = wg.vjp(lambda x, w: wg.conv2d(x, w, padding=1), wg.asarray(x), wg.asarray(w))
        finite = np.isfinite(y.numpy()[0, 0])
        assert not finite[1:4, :2].any() and finite.sum() == 5 * 13 - 6
        x_bar, w_bar = pull(wg.ones(y.shape))
        assert np.isfinite(x_bar.numpy()).all()
        # The column to the left of the image is padding: taps on the right never meet x[..., 0].
        assert np.isfinite(w_bar.numpy()[0, 1:]).all()


def test_compiled() -> None:
    x, w, b = wg.asarray(data(2, 3, 8, 8)), wg.asarray(data(4, 3, 3, 3, seed=1)), wg.asarray(data(4, seed=2))

    def f(x: Any, w: Any, b: Any) -> Any:
        return wg.relu(wg.conv2d(x, w, bias=b, padding=1, stride=2)).sum()

    g = wg.compile(f)
    for n in (2, 5):  # another batch size is the same program
        xs = wg.asarray(data(n, 3, 8, 8))
        np.testing.assert_array_equal(g(xs, w, b).numpy(), f(xs, w, b).numpy())
        for a, e in zip(wg.grad(g, (0, 1, 2))(xs, w, b), wg.grad(f, (0, 1, 2))(xs, w, b)):
            np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-12, atol=1e-13)
    assert len(g.report()) == 1
    assert wg.compile(lambda x: wg.conv2d(x, w, padding="same"))(x).shape == (2, 4, 8, 8)


def test_only_what_is_asked_for_is_computed() -> None:
    """Frozen data have no gradient, and a tape that needs none for x keeps no weight for it."""
    x, w = wg.asarray(data(2, 3, 6, 6)), wg.tensor(data(4, 3, 3, 3, seed=1), requires_grad=True)
    grads = wg.conv2d(x, w).sum().backward()
    assert grads.get(x) is None and grads[w].shape == w.shape


X, W = wg.ones((2, 4, 8, 8)), wg.ones((6, 4, 3, 3))
BAD: list[Any] = [
    (lambda: wg.conv2d(X, wg.ones((6, 3, 3, 3))), ShapeError, "conv2d: the weight takes 3"),
    (lambda: wg.conv2d(X, wg.ones((6, 4, 3))), ShapeError, "weight with 4 axes"),
    (lambda: wg.conv2d(wg.ones((8, 8)), W), ShapeError, "conv2d: takes x of shape"),
    (lambda: wg.conv2d(X, W, groups=3), ShapeError, "groups=3 does not divide the 4 channels of x"),
    (lambda: wg.conv2d(X, wg.ones((7, 2, 3, 3)), groups=2), ShapeError, "does not divide the 7 channels of the weight"),
    (lambda: wg.conv2d(X, W, groups=0), ArgumentError, "groups must be positive"),
    (lambda: wg.conv2d(X, W, stride=0), ArgumentError, "stride must be positive, got 0"),
    (lambda: wg.conv2d(X, W, stride=(1, -2)), ArgumentError, "stride must be positive"),
    (lambda: wg.conv2d(X, W, dilation=0), ArgumentError, "dilation must be positive"),
    (lambda: wg.conv2d(X, W, padding=-1), ArgumentError, "padding must be at least 0"),
    (lambda: wg.conv2d(X, W, padding=(1, 1, 1)), ArgumentError, "padding must be one integer or 2"),
    (lambda: wg.conv2d(X, W, padding=1.5), ArgumentError, "padding must be an integer"),
    (lambda: wg.conv2d(X, W, padding="full"), ArgumentError, '"same" or "valid"'),
    (lambda: wg.conv2d(X, W, padding="same", stride=2), ArgumentError, "needs stride 1"),
    (lambda: wg.conv2d(X, wg.ones((6, 4, 9, 3))), ShapeError, "larger than the padded input"),
    (lambda: wg.conv2d(X, W, dilation=4), ShapeError, "larger than the padded input"),
    (lambda: wg.conv2d(X, wg.ones((6, 4, 0, 3))), ShapeError, "kernel of (0, 3)"),
    (lambda: wg.conv2d(X, W, bias=wg.ones((4,))), ShapeError, "bias must have shape (6,)"),
    (lambda: wg.conv_transpose2d(X, W), ShapeError, "the weight takes 6 channels, x has 4"),
    (lambda: wg.conv_transpose2d(X, wg.ones((4, 6, 3, 3)), output_padding=1), ArgumentError, "output_padding"),
    (lambda: wg.conv_transpose2d(X, wg.ones((4, 6, 1, 1)), padding=8), ShapeError, "would be empty"),
]


@pytest.mark.parametrize(("call", "error", "match"), BAD)
def test_bad_input(call: Any, error: Any, match: str) -> None:
    import re

    with pytest.raises(error, match=re.escape(match)):
        call()


def test_integers_are_refused_by_the_op() -> None:
    from wengert.ops import OPS

    with pytest.raises(DTypeError, match="floating or complex"):
        x = wg.ones((1, 1, 4), dtype=wg.int64)
        OPS["conv"](x, x, (1,), (1,), (0,), (1,), 1)
