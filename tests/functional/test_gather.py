import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check


def data(*shape):
    return np.random.default_rng(2).standard_normal(shape)


I34 = np.array([[0, 2], [1, 1], [-1, 0]])


def test_take():
    a, i = data(3, 4, 2), np.array([[0, 3], [1, -1]])
    for axis in (1, -2):
        np.testing.assert_array_equal(wg.take(wg.asarray(a), i, axis=axis).numpy(), np.take(a, i, axis=axis))
    check(lambda x: wg.take(x, i, axis=1), a)
    assert wg.take(wg.tensor([1, 2]), []).shape == (0,)
    assert wg.index_select(wg.asarray(a), [2, 0], axis=0).shape == (2, 4, 2)


def test_take_along_axis():
    a = data(3, 4)
    np.testing.assert_array_equal(wg.take_along_axis(wg.asarray(a), I34, axis=1).numpy(), np.take_along_axis(a, I34, 1))
    check(lambda x: wg.take_along_axis(x, I34, axis=-1), a)
    one = np.array([[3]])  # broadcast along the other axis
    np.testing.assert_array_equal(wg.take_along_axis(wg.asarray(a), one, axis=1).numpy(), np.take_along_axis(a, one, 1))
    check(lambda x: wg.take_along_axis(x, I34, axis=1), data(1, 4))


SMALLER = [  # shapes of x and of the index, and the axis; the index is smaller than x on other axes
    ((4, 5), (2, 3), 1),
    ((4, 5), (2, 3), 0),
    ((4, 5), (1, 7), 1),
    ((4, 5), (6, 2), 0),
    ((3, 4, 2), (2, 4, 1), 1),
    ((3, 4, 2), (3, 4, 2), -1),
    ((4, 5), (0, 3), 1),
]


def smaller(shape, of, axis):
    """An index, and the places of x that it names, for NumPy."""
    i = np.random.default_rng(5).integers(0, shape[axis], of)
    places = list(np.indices(of))
    places[axis] = i
    return i, tuple(places)


@pytest.mark.parametrize(("shape", "of", "axis"), SMALLER)
def test_gather_with_a_smaller_index(shape, of, axis):
    a, (i, places) = data(*shape), smaller(shape, of, axis)
    for f in (wg.gather, wg.compile(wg.gather)):
        np.testing.assert_array_equal(f(wg.asarray(a), wg.asarray(i), axis=axis).numpy(), a[places])
    check(lambda x: wg.gather(x, i, axis=axis), a)


@pytest.mark.parametrize(("shape", "of", "axis"), SMALLER)
@pytest.mark.parametrize("larger", [0, 2], ids=["", "larger source"])
def test_scatter_with_a_smaller_index(shape, of, axis, larger):
    a, (i, places) = data(*shape), smaller(shape, of, axis)
    v = data(*(n + larger for n in of)) * 3.0
    used = v[tuple(slice(n) for n in of)]
    added, written = a.copy(), a.copy()
    np.add.at(added, places, used)
    for at in np.ndindex(*of):  # in order: of equal indices the last one wins
        written[tuple(p[at] for p in places)] = used[at]
    for f, expected in ((wg.scatter_add, added), (wg.scatter, written)):
        for g in (f, wg.compile(f)):
            y = g(wg.asarray(a), wg.asarray(i), wg.asarray(v), axis=axis)
            np.testing.assert_allclose(y.numpy(), expected, rtol=1e-14)
        check(lambda x, s, f=f: f(x, i, s, axis=axis), a, v)


def test_larger_indices_are_refused():
    x, wide = wg.ones((2, 3)), wg.zeros((3, 1), dtype="int64")
    for f in (
        lambda: wg.gather(x, wide, axis=1),
        lambda: wg.scatter(x, wide, wg.ones((3, 1)), axis=1),
        lambda: wg.scatter_add(x, wide, wg.ones((3, 1)), axis=1),
        lambda: wg.scatter(x, wide, wg.ones((2, 1)), axis=0),
        lambda: wg.gather(x, [0], axis=1),
    ):
        with pytest.raises(wg.ShapeError, match="no larger on any axis"):
            f()


def test_scatter():
    a, v, i = data(3, 4), data(3, 2), np.array([[0, 2], [1, 1], [3, 0]])
    expected = a.copy()
    np.put_along_axis(expected, i, v, 1)
    y = wg.scatter(wg.asarray(a), i, wg.asarray(v), axis=1)
    np.testing.assert_array_equal(y.numpy(), expected)
    check(lambda x, s: wg.scatter(x, i, s, axis=1), a, v)
    assert wg.scatter(wg.zeros((1, 3)), [[1]], 5.0, axis=1).tolist() == [[0.0, 5.0, 0.0]]


def test_scatter_add():
    a, v, i = data(3, 4), data(3, 2), np.array([[0, 2], [1, 1], [3, 0]])
    expected = a.copy()
    np.add.at(expected, (np.arange(3)[:, None], i), v)
    y = wg.scatter_add(wg.asarray(a), i, wg.asarray(v), axis=1)
    np.testing.assert_allclose(y.numpy(), expected)
    check(lambda x, s: wg.scatter_add(x, i, s, axis=1), a, v)


def test_segment_sum():
    a, ids = data(5, 2), np.array([0, 3, 0, 1, 3])
    expected = np.zeros((4, 2))
    np.add.at(expected, ids, a)
    np.testing.assert_allclose(wg.segment_sum(wg.asarray(a), ids, num_segments=4).numpy(), expected)
    check(lambda x: wg.segment_sum(x, ids, num_segments=4), a)


def test_one_hot():
    i = np.array([[0, 2], [1, 1]])
    y = wg.one_hot(i, 3)
    assert y.dtype == wg.float32
    np.testing.assert_array_equal(y.numpy(), np.eye(3)[i])
    assert wg.one_hot(wg.tensor([1]), 2, dtype=wg.bool_).dtype == "bool"


def test_embedding():
    w, i = data(5, 3), np.array([[1, 4], [1, 0]])
    np.testing.assert_array_equal(wg.embedding(i, wg.asarray(w)).numpy(), w[i])
    check(lambda x: wg.embedding(wg.asarray(i), x), w)


def test_nonzero():
    a = np.array([[0.0, 1.0], [np.nan, 0.0]])
    for x, y in zip(wg.nonzero(wg.asarray(a)), np.nonzero(a)):
        assert x.dtype == wg.int64
        np.testing.assert_array_equal(x.numpy(), y)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: wg.take(x, [0]), ValueError, "axis"),
        (lambda x: wg.take(x, [5], axis=0), IndexError, "5"),
        (lambda x: wg.take(x, [0.5], axis=0), TypeError, "integers"),
        (lambda x: wg.take_along_axis(x, [0], axis=0), ValueError, "axes"),
        (lambda x: wg.take_along_axis(x, [[9]], axis=1), IndexError, "9"),
        (lambda x: wg.scatter(x, [[0, 1]], [[1.0]], axis=0), ValueError, "no larger"),
        (lambda x: wg.one_hot([3], 3), IndexError, "index 3"),
        (lambda x: wg.one_hot([-1], 3), IndexError, "index -1"),
        (lambda x: wg.embedding([0], [1.0]), ValueError, "entries"),
        (lambda x: wg.segment_sum(x, [0], num_segments=2), ValueError, "one id"),
        (lambda x: wg.segment_sum(x, [0, 5], num_segments=2), IndexError, "5"),
        (lambda x: wg.index_select(x, [[0]], axis=0), ValueError, "vector"),
        (lambda x: wg.gather(x, [[0]], dim=1), TypeError, "axis"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call(wg.ones((2, 3)))


def test_indices_out_of_range_name_the_function():
    x = wg.ones((3, 2))
    for name, call in {
        "take": lambda: wg.take(x, [3], axis=0),
        "index_select": lambda: wg.index_select(x, [-4], axis=0),
        "scatter": lambda: wg.scatter(x, [[0, 3]], [[1.0, 2.0]], axis=0),
        "scatter_add": lambda: wg.scatter_add(x, [[0, 3]], [[1.0, 2.0]], axis=0),
        "segment_sum": lambda: wg.segment_sum(x, [0, 5, 0], num_segments=5),
        "embedding": lambda: wg.embedding([7], x),
        "take_along_axis": lambda: wg.take_along_axis(x, [[9, 9]], axis=0),
    }.items():
        with pytest.raises(wg.IndexRangeError, match=f"^{name}: "):
            call()
    with pytest.raises(wg.IndexRangeError, match="segment_sum: id -1 is negative"):
        wg.segment_sum(x, [0, -1, 0], num_segments=5)
    with pytest.raises(wg.ArgumentError, match="num_segments"):
        wg.segment_sum(x, [0, 0, 0], num_segments=-1)


def test_masks():
    a = data(3, 4)
    mask = a > 0.2
    np.testing.assert_array_equal(wg.masked_select(wg.asarray(a), wg.asarray(mask)).numpy(), a[mask])
    np.testing.assert_array_equal(wg.asarray(a)[wg.asarray(mask)].numpy(), a[mask])
    row = np.array([True, False, True, False])
    expected = a[np.broadcast_to(row, a.shape)]
    np.testing.assert_array_equal(wg.masked_select(wg.asarray(a), row).numpy(), expected)
    np.testing.assert_array_equal(wg.masked_fill(wg.asarray(a), mask, -1.0).numpy(), np.where(mask, -1.0, a))
    assert wg.masked_fill(wg.tensor([1, 2]), [True, False], 7).dtype == wg.int64
    check(lambda x: wg.masked_select(x * x, mask), a)
    check(lambda x: wg.masked_fill(x * x, mask, 3.0), a)
    check(lambda x, v: wg.masked_fill(x, mask, v), a, np.array(0.5))
    assert wg.masked_select(wg.ones((2, 2)), wg.zeros((2, 2)) > 1).shape == (0,)
    with pytest.raises(wg.DTypeError, match="masked_fill: the mask must be bool"):
        wg.masked_fill(wg.asarray(a), a, 0.0)
    with pytest.raises(wg.ShapeError, match="masked_select"):
        wg.masked_select(wg.asarray(a), [True, False, True])


def test_argwhere_and_bincount():
    a = np.array([[0, 3, 0], [1, 0, 2]])
    np.testing.assert_array_equal(wg.argwhere(wg.asarray(a)).numpy(), np.argwhere(a))
    i = np.array([3, 1, 1, 0])
    assert wg.bincount(wg.asarray(i)).tolist() == np.bincount(i).tolist()
    assert wg.bincount(wg.asarray(i), minlength=6).tolist() == np.bincount(i, minlength=6).tolist()
    weights = data(4)
    np.testing.assert_allclose(wg.bincount(i, weights=wg.asarray(weights)).numpy(), np.bincount(i, weights))
    check(lambda w: wg.bincount(i, weights=w), weights)
    assert wg.bincount([]).shape == (0,)
    with pytest.raises(wg.IndexRangeError, match="negative"):
        wg.bincount([1, -1])
    with pytest.raises(wg.ShapeError, match="bincount"):
        wg.bincount([[1]])


# Lines long enough for several blocks of indices and several tiles, whose negative indices are late and few.
@pytest.mark.parametrize("shape", [(3, 2000), (40, 1000), (2, 700, 3), (1, 20_000), (5, 1, 600)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int8])
def test_long_lines(shape, dtype):
    rng = np.random.default_rng(5)
    a, v = (rng.integers(-5, 6, shape).astype(dtype) for _ in range(2))
    n = shape[1]
    for i in (rng.integers(0, n, shape), rng.integers(-n, n, shape), np.sort(rng.integers(0, n, shape), axis=1)):
        i[-1, -1] = -1
        x, s = wg.asarray(a), wg.asarray(v)
        np.testing.assert_array_equal(wg.take_along_axis(x, i, axis=1).numpy(), np.take_along_axis(a, i, 1))
        expected = a.copy()
        grid = list(np.indices(shape))
        grid[1] = i
        np.add.at(expected, tuple(grid), v)
        np.testing.assert_array_equal(wg.scatter_add(x, i, s, axis=1).numpy(), expected)
        np.put_along_axis(expected, i, v, 1)
        y = wg.scatter(wg.asarray(expected), i, s, axis=1)
        np.testing.assert_array_equal(wg.take_along_axis(y, i, axis=1).numpy(), np.take_along_axis(expected, i, 1))


@pytest.mark.parametrize("shape", [(2, 700), (2, 700, 3)])
def test_scatter_add_of_half_precision_rounds_once(shape):
    i = np.zeros(shape, np.int64)
    y = wg.scatter_add(wg.full(shape, 2048.0, dtype=wg.float16), i, wg.ones(shape, dtype=wg.float16), axis=1)
    assert (y.numpy()[:, 0] == np.float16(2748)).all() and (y.numpy()[:, 1:] == 2048).all()


@pytest.mark.parametrize("bad", [700, -701, 2**62, -(2**63)])
@pytest.mark.parametrize("place", [0, 3, 699, 1399])
def test_the_first_index_out_of_range_is_named(bad, place):
    i = np.tile(np.arange(-350, 350), 100).reshape(100, 700)
    i.flat[place] = bad
    i.flat[60_000] = 5000  # a later one, which another thread may meet first
    x = wg.zeros((100, 700))
    for call in (
        lambda: wg.take_along_axis(x, i, axis=1),
        lambda: wg.scatter_add(x, i, wg.ones(i.shape), axis=1),
        lambda: wg.scatter(x, i, wg.ones(i.shape), axis=1),
        lambda: wg.take(x[0], i, axis=0),
    ):
        with pytest.raises(IndexError, match=rf"index {bad} is out of range for axis \d with size 700"):
            call()


def test_a_sorted_index_adds_like_any_other():
    rng = np.random.default_rng(6)
    ids = np.sort(rng.integers(0, 40_000, 90_000))
    a = rng.integers(-9, 9, (90_000, 2)).astype(np.float64)
    expected = np.zeros((40_000, 2))
    np.add.at(expected, ids, a)
    for order in (np.arange(90_000), rng.permutation(90_000)):
        y = wg.segment_sum(wg.asarray(a[order]), ids[order], num_segments=40_000)
        np.testing.assert_array_equal(y.numpy(), expected)
        one = wg.segment_sum(wg.asarray(a[order, 0]), ids[order], num_segments=40_000)
        np.testing.assert_array_equal(one.numpy(), expected[:, 0])


@pytest.mark.parametrize("shape", [(), (5,), (40_000,), (3, 20_000), (20_000, 1, 3), (0, 4), (7, 11, 13)])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_nonzero_over_tiles(shape, share):
    a = np.random.default_rng(7).random(shape) < share
    np.testing.assert_array_equal(wg.argwhere(wg.asarray(a)).numpy(), np.argwhere(a))
    if a.ndim:
        np.testing.assert_array_equal(wg.asarray(a * 2.5)[wg.asarray(a)].numpy(), (a * 2.5)[a])
