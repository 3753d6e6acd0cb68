import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check, pulled


def data(*shape):
    return np.random.default_rng(1).standard_normal(shape)


CASES = [
    (lambda m, x: m.reshape(x, (4, -1)), data(2, 3, 4)),
    (lambda m, x: m.reshape(x, (-1,)), data(2, 3, 4)),
    (lambda m, x: m.reshape(x, (1, 2, 12, 1)), data(2, 3, 4)),
    (lambda m, x: m.reshape(x, (0, 5)), data(5, 0)),
    (lambda m, x: m.reshape(x, ()), data(1, 1)),
    (lambda m, x: m.permute_dims(x, (2, 0, 1)), data(2, 3, 4)),
    (lambda m, x: m.permute_dims(x, (-1, 0, 1)), data(2, 3, 4)),
    (lambda m, x: m.matrix_transpose(x), data(2, 3, 4)),
    (lambda m, x: m.swapaxes(x, 0, -1), data(2, 3, 4)),
    (lambda m, x: m.moveaxis(x, 0, -1), data(2, 3, 4)),
    (lambda m, x: m.moveaxis(x, (0, 1), (-1, 0)), data(2, 3, 4)),
    (lambda m, x: m.expand_dims(x, axis=1), data(2, 3)),
    (lambda m, x: m.expand_dims(x, axis=-1), data(2, 3)),
    (lambda m, x: m.expand_dims(x, axis=(0, 2)), data(2, 3)),
    (lambda m, x: m.squeeze(x), data(1, 3, 1)),
    (lambda m, x: m.squeeze(x, axis=(0, -1)), data(1, 3, 1)),
    (lambda m, x: m.broadcast_to(x, (4, 2, 3)), data(2, 1)),
    (lambda m, x: m.broadcast_to(x, (0, 3)), data(1, 3)),
    (lambda m, x: m.flip(x), data(2, 3)),
    (lambda m, x: m.flip(x, axis=1), data(2, 3)),
    (lambda m, x: m.flip(x, axis=(0, -1)), data(2, 3, 2)),
    (lambda m, x: m.flip(x), data(0, 3)),
    (lambda m, x: m.roll(x, 1), data(2, 3)),
    (lambda m, x: m.roll(x, -2, axis=1), data(2, 5)),
    (lambda m, x: m.roll(x, 7, axis=0), data(3, 2)),
    (lambda m, x: m.roll(x, (1, -1), axis=(0, 1)), data(3, 4)),
    (lambda m, x: m.roll(x, 0, axis=0), data(3, 4)),
    (lambda m, x: m.tile(x, 3), data(2, 3)),
    (lambda m, x: m.tile(x, (2, 1, 2)), data(2, 3)),
    (lambda m, x: m.tile(x, (2, 0)), data(2, 3)),
    (lambda m, x: m.repeat(x, 2), data(2, 3)),
    (lambda m, x: m.repeat(x, 3, axis=1), data(2, 3)),
    (lambda m, x: m.repeat(x, [1, 0, 2], axis=1), data(2, 3)),
    (lambda m, x: m.pad(x, ((1, 2), (0, 1))), data(2, 3)),
    (lambda m, x: m.pad(x, 1), data(2, 3)),
    (lambda m, x: m.pad(x, (1, 2), mode="edge"), data(2, 3)),
    (lambda m, x: m.pad(x, ((1, 1), (2, 1)), mode="reflect"), data(3, 4)),
    (lambda m, x: m.pad(x, ((5, 7), (2, 9)), mode="reflect"), data(3, 2)),
    (lambda m, x: m.pad(x, ((1, 2), (3, 7)), mode="wrap"), data(2, 3)),
    (lambda m, x: m.pad(x, 3, mode="reflect"), data(1)),
    (lambda m, x: m.pad(x, ((1, 1), (2, 1)), mode="symmetric"), data(3, 4)),
    (lambda m, x: m.pad(x, ((5, 7), (2, 9)), mode="symmetric"), data(1, 2)),
    (lambda m, x: m.triu(x, k=1), data(3, 4)),
    (lambda m, x: m.tril(x, k=-1), data(2, 3, 3)),
    (lambda m, x: m.diag(x, k=1), data(3)),
    (lambda m, x: m.diag(x, k=-2), data(3)),
    (lambda m, x: m.diag(x, k=1), data(3, 4)),
    (lambda m, x: m.concat([x, x * 2], axis=-1), data(2, 3)),
    (lambda m, x: m.concat([x, x * 2], axis=None), data(2, 3)),
    (lambda m, x: m.stack([x, x * 2, x], axis=1), data(2, 3)),
    (lambda m, x: m.stack([x, x * 2], axis=-1), data(2)),
    (lambda m, x: m.stack([x, x]), data()),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_against_numpy(case):
    f, a = CASES[case]
    y, expected = f(wg, wg.asarray(a)), f(np, a)
    assert y.shape == expected.shape
    np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_strided_input(case):
    f, a = CASES[case]
    odd = np.zeros((*(2 * n for n in a.shape),))[(..., *(slice(None, None, 2) for _ in a.shape))]
    odd[...] = a
    np.testing.assert_array_equal(f(wg, wg.asarray(odd)).numpy(), f(np, a))
    turned = a.T.copy().T
    np.testing.assert_array_equal(f(wg, wg.asarray(turned)).numpy(), f(np, a))


@pytest.mark.parametrize("case", range(len(CASES)))
def test_gradients(case):
    f, a = CASES[case]
    check(lambda x: f(wg, x), a)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_traced(case):
    f, a = CASES[case]
    compiled = wg.compile(lambda x: f(wg, x) * 1.0)
    np.testing.assert_array_equal(compiled(wg.asarray(a)).numpy(), f(np, a))


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 2, 5])
def test_diagonal(offset):
    a = data(2, 3, 4)
    y = wg.diagonal(wg.asarray(a), offset=offset)
    np.testing.assert_array_equal(y.numpy(), np.diagonal(a, offset, -2, -1))
    check(lambda x: wg.diagonal(x, offset=offset), a)
    y = wg.diagonal(wg.asarray(a), offset=offset, axis1=0, axis2=1)
    np.testing.assert_array_equal(y.numpy(), np.diagonal(a, offset))
    np.testing.assert_allclose(wg.trace(wg.asarray(a), offset=offset).numpy(), np.trace(a, offset, -2, -1))


def test_constant_padding_of_other_values():
    a = data(2, 3)
    expected = np.pad(a, ((1, 2), (0, 1)), constant_values=7.0)
    np.testing.assert_array_equal(wg.pad(wg.asarray(a), ((1, 2), (0, 1)), value=7.0).numpy(), expected)
    check(lambda x: wg.pad(x, 1, value=7.0), a)


@pytest.mark.parametrize("how", [3, [1, 4], [0, 2, 2, 9], [-2], [4, 1]])
def test_split(how):
    a = data(6, 2)
    ours, numpys = wg.split(wg.asarray(a), how), np.split(a, how)
    assert len(ours) == len(numpys)
    for x, y in zip(ours, numpys):
        np.testing.assert_array_equal(x.numpy(), y)
    check(lambda x: wg.concat([p * (k + 1) for k, p in enumerate(wg.split(x, how))]), a)
    assert [p.shape for p in wg.split(wg.asarray(a), 2, axis=1)] == [(6, 1), (6, 1)]


def test_unstack_and_flatten():
    a = data(2, 3, 4)
    for k in range(3):
        for x, y in zip(wg.unstack(wg.asarray(a), k), np.unstack(a, axis=k)):
            np.testing.assert_array_equal(x.numpy(), y)
    assert wg.flatten(wg.asarray(a)).shape == (24,)
    assert wg.flatten(wg.asarray(a), 1).shape == (2, 12)
    assert wg.flatten(wg.tensor(1.0)).shape == (1,)
    check(lambda x: wg.flatten(x, 0, 1), a)


def test_broadcast_arrays():
    ours = wg.broadcast_arrays(wg.ones((2, 1)), wg.ones((3,)))
    assert [x.shape for x in ours] == [(2, 3), (2, 3)]
    check(lambda a, b: wg.mul(*wg.broadcast_arrays(a, b)), data(2, 1), data(3))


def test_promotion_of_joined_tensors():
    y = wg.concat([wg.tensor([1, 2]), wg.tensor([0.5])])
    assert y.dtype == wg.float32
    assert y.tolist() == [1.0, 2.0, 0.5]


def test_methods():
    x = wg.asarray(data(2, 6))
    assert x.reshape(3, 4).shape == x.reshape((3, 4)).shape == x.reshape([3, -1]).shape == (3, 4)
    assert x.permute_dims(1, 0).shape == x.T.shape == x.mT.shape == (6, 2)
    y = x.clone()
    y[0, 0] = 99.0
    assert x[0, 0].item() != 99.0
    assert x.astype("float32").dtype == wg.float32
    assert x.astype(wg.float64, copy=False) is x
    (g,) = pulled(lambda t: t.astype("float32") * 3.0, np.array([0.5, 0.25]), seed=np.array([1.0, 2.0]))
    assert g.dtype == np.float64
    assert g.tolist() == [3.0, 6.0]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: x.reshape(4, -1), ValueError, "reshape"),
        (lambda x: x.reshape(-1, -1), ValueError, "only one"),
        (lambda x: x.reshape(7), ValueError, "reshape"),
        (lambda x: x.permute_dims(0, 0), ValueError, "permutation"),
        (lambda x: x.squeeze(0), ValueError, "size 2"),
        (lambda x: x.broadcast_to((4, 5)), ValueError, "broadcast"),
        (lambda x: x.split(4), ValueError, "split"),
        (lambda x: x[:0].split(2**64), ValueError, "split: axis 0 .* is empty; it makes at most"),
        (lambda x: x.expand_dims(5), ValueError, "axis 5"),
        (lambda x: wg.concat([]), ValueError, "at least one"),
        (lambda x: wg.concat([x, wg.ones((3, 3))], axis=1), ValueError, "concat"),
        (lambda x: wg.stack([x, wg.ones((3, 3))]), ValueError, "stack"),
        (lambda x: x.pad(1, mode="mirror"), ValueError, "mode"),
        (lambda x: x.pad(((1, 2, 3),)), ValueError, "pad_width"),
        (lambda x: x.repeat([1, 2], axis=1), ValueError, "repeat"),
        (lambda x: x.tile((-1,)), ValueError, "negative"),
        (lambda x: x.astype("str"), TypeError, "dtype"),
        (lambda x: x.expand_dims(dim=0), TypeError, "axis"),
        (lambda x: x.unsqueeze(0), AttributeError, "expand_dims"),
        (lambda x: x.view(-1), AttributeError, "reshape"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call(wg.ones((2, 3)))


def test_symbolic_sizes_survive():
    f = wg.compile(lambda x: wg.reshape(x, (-1, 2)).sum(1) + wg.flip(x).reshape(-1, 2).mean(1))
    for n in (2, 3, 7):
        a = np.arange(4.0 * n).reshape(n, 4)
        expected = a.reshape(-1, 2).sum(1) + np.flip(a).reshape(-1, 2).mean(1)
        np.testing.assert_allclose(f(wg.asarray(a)).numpy(), expected)


# Results of several tiles, whose ends fall into operands, and operands without elements.
@pytest.mark.parametrize("sizes", [(400, 1, 0, 700), (0, 0, 900), (3,) * 200, (0, 0), (1000, 0)])
@pytest.mark.parametrize("shape", [(-1, 300), (300, -1), (7, -1, 50), (7, 50, -1), (0, -1)])
def test_concat_over_tiles(sizes, shape):
    axis = shape.index(-1)
    parts = [np.random.default_rng(k).random([n if s == -1 else s for s in shape]) for k, n in enumerate(sizes)]
    expected = np.concatenate(parts, axis)
    tensors = [wg.asarray(p) for p in parts]
    np.testing.assert_array_equal(wg.concat(tensors, axis).numpy(), expected)
    strided = [wg.asarray(np.asfortranarray(p)) if k % 2 else t for k, (p, t) in enumerate(zip(parts, tensors))]
    np.testing.assert_array_equal(wg.concat(strided, axis).numpy(), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int8, bool])
@pytest.mark.parametrize("shape", [(600, 500), (5, 300, 40), (1, 1), (0, 3), (70_000,)])
def test_pad_over_tiles(shape, dtype):
    a = (np.random.default_rng(1).random(shape) * 9).astype(dtype)
    for widths in (0, 2, (1, 0), (0, 3), tuple((k, 2 - k) for k in range(len(shape))), np.int64(1), [[1, 2]]):
        for x in (a, np.asfortranarray(a), a[..., ::-1]):
            y = wg.pad(wg.asarray(x), widths)
            np.testing.assert_array_equal(y.numpy(), np.pad(x, widths))


def test_pad_checks_its_widths():
    for bad in (((1, -1), (0, 0)), -1, ((0, 0), (0, -2))):
        with pytest.raises(wg.errors.ArgumentError, match="must not be negative"):
            wg.pad(wg.ones((2, 2)), bad)
    for bad in (((1, 2, 3), (1, 2, 3)), ((1, 1),) * 3):
        with pytest.raises(wg.errors.ShapeError, match="pad_width"):
            wg.pad(wg.ones((2, 2)), bad)


def test_widths_of_pad_are_integers() -> None:
    """They were cut to integers, silently."""
    for widths in (1.5, ((1.5, 1),), ((True, False),)):
        with pytest.raises(wg.ArgumentError, match="pad: widths must be integers, got"):
            wg.pad(wg.ones((3,)), widths)
