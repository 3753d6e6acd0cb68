import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check


def data(*shape):
    return np.random.default_rng(3).standard_normal(shape)


SHAPES = [
    ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)),
    ((2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((4, 1, 2, 3), (5, 3, 2)),
    ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((5, 1, 3), (5, 3, 1)), ((6, 2, 2, 3), (3, 4)), ((0, 2, 3), (0, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul(left, right):
    a, b = data(*left), data(*right)
    y, expected = wg.asarray(a) @ wg.asarray(b), a @ b
    assert y.shape == np.shape(expected)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose((a @ wg.asarray(b)).numpy(), expected, rtol=1e-12)
    check(wg.matmul, a, b)


def test_matmul_of_views():
    a, b = data(4, 6), data(6, 4)
    x, y = wg.asarray(a), wg.asarray(b)
    np.testing.assert_allclose((x.T[::2] @ y.T[:, 1::2]).numpy(), a.T[::2] @ b.T[:, 1::2])
    np.testing.assert_allclose((x[:, ::-1] @ y).numpy(), a[:, ::-1] @ b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
def test_matmul_dtypes(dtype):
    a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    y = wg.asarray(a).astype(dtype) @ wg.asarray(b).astype(dtype)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype("float64").numpy(), a @ b)


def test_mixed_dtypes_promote():
    assert (wg.ones((2, 2)) @ wg.ones((2, 2), dtype="float64")).dtype == wg.float64
    assert (wg.ones((2, 2), dtype="int64") @ wg.ones((2,))).dtype == wg.float32


def test_other_products():
    a, b = data(2, 3, 4), data(4, 3, 5)
    for axes in (1, ((1, 2), (1, 0)), (2, 0), ([-1], [0])):
        y = wg.tensordot(wg.asarray(a), wg.asarray(b), axes=axes)
        np.testing.assert_allclose(y.numpy(), np.tensordot(a, b, axes=axes))
    check(lambda x, y: wg.tensordot(x, y, axes=((1, 2), (1, 0))), a, b)
    u, v = data(3), data(3)
    np.testing.assert_allclose(wg.outer(wg.asarray(u), wg.asarray(v)).numpy(), np.outer(u, v))
    np.testing.assert_allclose(wg.dot(wg.asarray(u), wg.asarray(v)).numpy(), u @ v)
    np.testing.assert_allclose(wg.vecdot(wg.asarray(a), wg.asarray(data(3, 4))).numpy(), np.vecdot(a, data(3, 4)))
    check(wg.outer, u, v)
    check(wg.dot, u, v)
    check(lambda x, y: wg.vecdot(x, y, axis=-2), a, data(3, 4))


@pytest.mark.parametrize("lead", [(), (5,), (2, 5), (0,)])
def test_linear(lead):
    x, w, b = data(*lead, 3), data(4, 3), data(4)
    np.testing.assert_allclose(wg.linear(*map(wg.asarray, (x, w, b))).numpy(), x @ w.T + b)
    np.testing.assert_allclose(wg.linear(wg.asarray(x), wg.asarray(w)).numpy(), x @ w.T)
    check(wg.linear, x, w, b)
    check(lambda x, w: wg.linear(x, w), x, w)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: wg.ones((2, 3)) @ wg.ones((2, 3)), "matmul"),
        (lambda: wg.ones((2, 3)) @ wg.ones((4,)), "matmul"),
        (lambda: wg.ones((2, 2, 3)) @ wg.ones((3, 3, 1)), "matmul"),
        (lambda: wg.ones((2, 3)) @ wg.tensor(2.0), "matmul"),
        (lambda: wg.linear(wg.ones((2, 3)), wg.ones((3, 4))), "linear"),
        (lambda: wg.linear(wg.ones((2, 3)), wg.ones((4, 3)), wg.ones((3,))), "bias"),
        (lambda: wg.dot(wg.ones((2, 3)), wg.ones((3,))), "dot"),
        (lambda: wg.outer(wg.ones((2, 3)), wg.ones((3,))), "outer"),
        (lambda: wg.tensordot(wg.ones((2, 3)), wg.ones((2, 3)), axes=1), "tensordot"),
    ],
)
def test_errors(call, match):
    with pytest.raises(wg.ShapeError, match=match):
        call()


def test_operator_leaves_foreign_types_alone():
    with pytest.raises(TypeError):
        wg.ones((2, 2)) @ "a"


def test_linear_checks_every_call_though_it_was_compiled_for_others() -> None:
    """Arguments are checked once per signature; sizes that do not fit are still refused, in numbers."""
    good = wg.ones((4, 3)), wg.ones((2, 3)), wg.ones((2,))
    assert wg.linear(*good).tolist() == [[4.0, 4.0]] * 4
    for bad, parts in (
        ((wg.ones((4, 5)), good[1], good[2]), ("float32(4, 5)", "float32(2, 3)")),
        ((good[0], good[1], wg.ones((7,))), ("bias float32(7,)", "float32(2, 3)")),
        ((good[0], wg.ones((3,)), None), ("float32(4, 3)", "float32(3,)")),
    ):
        with pytest.raises(wg.ShapeError) as e:
            wg.linear(*bad)
        assert all(p in str(e.value) for p in parts), str(e.value)
    assert wg.linear(*good).shape == (4, 2)
    np.testing.assert_array_equal(
        wg.linear(np.ones((4, 3), "float32"), [[1.0, 2.0, 3.0]]).numpy(), np.full((4, 1), 6.0)
    )
    assert wg.linear(wg.ones((2, 3), dtype=wg.float64), good[1], good[2]).dtype == wg.float64
    with pytest.raises(TypeError, match="linear: got object"):
        wg.linear(object(), good[1])
