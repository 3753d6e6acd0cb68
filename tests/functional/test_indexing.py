import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check

S = slice
MASK2 = np.array([[True, False, True], [False, False, True]])
KEYS_234 = [
    0, -1, (1, 2), (1, 2, 3), S(None), S(1, None), S(None, None, -1), S(0, 0), S(5, 9), S(-1, None),
    (S(None), 1), (S(None), S(None, None, 2), S(3, 0, -2)), (Ellipsis, 1), (0, Ellipsis, 2), Ellipsis, None,
    (None, 0, None), (S(None), None, S(1, 3)), (Ellipsis, None), (0, None, Ellipsis, None, 1), (),
    [0, 1, 0], [-1], [], ([0, 1], [2, 0]), ([0, 1], S(None), [1, 3]), (S(None), [0, 2], [1, 3]),
    (S(None), [[0, 2], [1, 1]]), (S(None), S(None), [3, 0]), ([0, 1], 1), (0, [2, 1]), (0, S(None), [2, 1]),
    (S(None), 0, [1, 2]), ([1, 0], S(None), 2), (S(0, 1), [0, 2], S(None, None, -1)), ([[0], [1]], [[0, 2]]),
    ([[0], [1]], S(None), [0, 2]), (None, [0, 1], S(None), [0, 1]), (S(None), None, [0, 2]), ([0, 1], None, [0, 2]),
    (Ellipsis, [0, 1]), ([1], Ellipsis, [0]), MASK2, (MASK2, [0, 1, 2]), (MASK2, 1), (MASK2, S(1, 3)),
    (S(None), S(None), np.array([True, False, True, True])), (0, np.array([True, False, True])),
    (np.array([True, False]), S(None), [1]), np.array([False, False]), True, False, (True, 0), (S(None), True),
    np.array(1), (np.array(1), S(None), [1, 2]), np.int32(1), (np.array([0, 1], np.uint8),),
    (np.array([0, 1]), np.array([[1], [2]])), np.ones((2, 3, 4), bool), np.zeros((2, 3, 4), bool),
    ((0, 1), (1, 2)), (S(1, None), [True, False, True], [0, 3]),
]  # fmt: skip


def fresh():
    return np.arange(24.0).reshape(2, 3, 4) + 1


@pytest.mark.parametrize("k", range(len(KEYS_234)))
def test_reading(k):
    key, a = KEYS_234[k], fresh()
    y, expected = wg.asarray(a)[key], a[key]
    assert y.shape == np.shape(expected)
    np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize("k", range(len(KEYS_234)))
def test_reading_strided(k):
    key = KEYS_234[k]
    a = np.arange(96.0).reshape(4, 6, 4)[::2, ::-2].copy(order="F")[:, :, ::-1]
    np.testing.assert_array_equal(wg.asarray(a)[key].numpy(), a[key])


@pytest.mark.parametrize("k", range(len(KEYS_234)))
def test_reading_gradients(k):
    check(lambda x: x[KEYS_234[k]] * 2.0, fresh())


@pytest.mark.parametrize("k", range(len(KEYS_234)))
@pytest.mark.parametrize("scalar", [True, False])
def test_writing(k, scalar):
    key, a = KEYS_234[k], fresh()
    x = wg.tensor(a)
    value = 7.5 if scalar else 100.0 + np.arange(float(np.size(a[key]))).reshape(np.shape(a[key]))
    x[key] = value
    a[key] = value
    np.testing.assert_array_equal(x.numpy(), a)


@pytest.mark.parametrize("k", range(len(KEYS_234)))
def test_writing_gradients(k):
    key, a = KEYS_234[k], fresh()

    def f(x, v):
        y = x * 2.0
        y[key] = v * 3.0
        return y * y

    check(f, a / 24, np.random.default_rng(0).standard_normal(np.shape(a[key])), tolerance=2e-6)


@pytest.mark.parametrize("k", range(len(KEYS_234)))
def test_traced(k):
    key, a = KEYS_234[k], fresh()
    y = wg.compile(lambda x: x[key] * 1.0)(wg.asarray(a))
    np.testing.assert_array_equal(y.numpy(), a[key])


def test_tensors_as_indices():
    a = fresh()
    x, i, m = wg.tensor(a), wg.tensor([1, 0]), wg.tensor(MASK2)
    np.testing.assert_array_equal(x[i].numpy(), a[[1, 0]])
    np.testing.assert_array_equal(x[:, i].numpy(), a[:, [1, 0]])
    np.testing.assert_array_equal(x[m].numpy(), a[MASK2])
    np.testing.assert_array_equal(x[x > 5].numpy(), a[a > 5])
    np.testing.assert_array_equal(x[wg.tensor(1)].numpy(), a[1])
    np.testing.assert_array_equal(x[wg.tensor([1, 0], dtype="int8"), i].numpy(), a[[1, 0], [1, 0]])


def test_traced_indices():
    a = fresh()
    f = wg.compile(lambda x, i, j: x[i, :, j])
    i, j = np.array([1, 0, -1]), np.array([3, -2, 0])
    np.testing.assert_array_equal(f(wg.asarray(a), wg.asarray(i), wg.asarray(j)).numpy(), a[i, :, j])
    with pytest.raises(IndexError):
        f(wg.asarray(a), wg.asarray(i), wg.tensor([4, 0, 0]))
    with pytest.raises(wg.TraceError, match="where"):
        wg.compile(lambda x: x[x > 0])(wg.asarray(a))


def test_traced_slices_follow_sizes():
    f = wg.compile(lambda x: x[1:-1] + x[2:] + x[:-2])
    for n in (4, 5, 9):
        a = np.arange(float(n))
        np.testing.assert_array_equal(f(wg.asarray(a)).numpy(), a[1:-1] + a[2:] + a[:-2])


def test_views_share_memory():
    x = wg.tensor(fresh())
    row = x[0]
    row[1, 2] = -5.0
    assert x[0, 1, 2].item() == -5.0
    x[0, 0] = 9.0
    assert row[0].tolist() == [9.0] * 4


def test_repeated_indices_last_wins():
    x, v = (
        wg.zeros((3,), dtype="float64"),
        wg.tensor([1.0, 2.0, 3.0], dtype="float64", requires_grad=True),
    )
    x[[0, 0, 2]] = v
    assert x.tolist() == [2.0, 0.0, 3.0]

    def f(x, v):
        y = x * 1.0
        y[[0, 0, 2]] = v
        return y

    check(f, np.zeros(3), np.array([1.0, 2.0, 3.0]))


def test_shift_onto_itself():
    x = wg.tensor([1.0, 2.0, 3.0, 4.0])
    x[1:] = x[:-1]
    assert x.tolist() == [1.0, 1.0, 2.0, 3.0]


def test_dtypes():
    x = wg.tensor([1, 2, 3])
    x[0] = 2.7
    assert x.tolist() == [2, 2, 3]
    x[x > 2] = wg.tensor(9.9)
    assert x.tolist() == [2, 2, 9]
    b = wg.tensor([True, False])
    b[1] = True
    assert b.all()


def test_value_with_leading_ones():
    x = wg.zeros((2, 3))
    x[0] = wg.ones((1, 1, 3))
    assert x[0].tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (2, ["index 2", "axis 0", "size 2"]),
        (-3, ["index -3"]),
        ((0, 3), ["index 3", "axis 1", "size 3"]),
        ([0, 5], ["5", "axis 0", "size 2"]),
        (([0, 1], [0, -4]), ["index -4", "axis 1", "size 3"]),
        ((S(None), [0, 3], [0, 0]), ["index 3", "axis 1", "size 3"]),
        ((0, 0, 0, 0), ["4 indices", "3 axes"]),
        ((Ellipsis, Ellipsis), ["ellipsis"]),
        (np.ones(3, bool), ["mask", "axis 0"]),
        (([0, 1], [0, 1, 2]), ["broadcast"]),
        (S(None, None, 0), ["step"]),
    ],
)
def test_index_errors(key, words):
    x = wg.tensor(fresh())
    for act in (lambda: x[key], lambda: x.__setitem__(key, 0.0)):
        with pytest.raises(IndexError) as e:
            act()
        for w in words:
            assert w in str(e.value)


@pytest.mark.parametrize("n", [0, 1, 5, 40000])
def test_several_arrays_of_one_shape(n):
    rng = np.random.default_rng(n)
    a = rng.standard_normal((30, 7, 4))
    i, j = (rng.integers(-size, size, 3 * n)[::3].reshape(n, 1) for size in (30, 7))  # with strides
    x = wg.asarray(a)
    np.testing.assert_array_equal(x[wg.asarray(i), wg.asarray(j)].numpy(), a[i, j])
    np.testing.assert_array_equal(wg.swapaxes(x, 0, 1)[wg.asarray(j), wg.asarray(i)].numpy(), a[i, j])
    pulled = wg.vjp(lambda x: x[wg.asarray(i), wg.asarray(j)], x)[1](wg.ones((n, 1, 4), dtype=wg.float64))[0]
    counts = np.zeros(a.shape)
    np.add.at(counts, (i, j), 1.0)
    np.testing.assert_array_equal(pulled.numpy(), counts)


@pytest.mark.parametrize("key", [([0, 1], [0, 3]), ([0, 1], [-4, 0]), ([2, 0], [0, 0])])
def test_each_of_several_arrays_is_checked(key):
    # 0 · 3 + 3 would be an element of the next row
    with pytest.raises(IndexError, match="out of range for axis"):
        wg.tensor(fresh())[tuple(wg.tensor(k) for k in key)]


def test_type_errors():
    x = wg.tensor(fresh())
    with pytest.raises(TypeError, match="str"):
        x["a"]
    with pytest.raises(TypeError, match="integers or bools"):
        x[[0.5]]
    with pytest.raises(TypeError):
        del x[0]
    with pytest.raises(wg.ShapeError, match="does not fit"):
        x[0] = np.ones((5, 4))
    with pytest.raises(IndexError):
        wg.tensor(1.0)[0]
    np.testing.assert_array_equal(x.numpy(), fresh())


def test_leaves_are_protected():
    x = wg.ones((3,), requires_grad=True)
    with pytest.raises(wg.InPlaceError, match="no_grad"):
        x[0] = 2.0
    with wg.no_grad():
        x[0] = 2.0
    assert x.tolist() == [2.0, 1.0, 1.0]


def test_iteration():
    x = wg.tensor(fresh())
    assert [y.shape for y in x] == [(3, 4), (3, 4)]
    assert len(x) == 2
    with pytest.raises(TypeError):
        iter(wg.tensor(1.0))
    assert 5.0 in x
    assert 99.0 not in x


def test_numbers_that_are_written_are_not_rounded_on_their_way():
    x = wg.zeros((4,), dtype="float64")
    x[0] = 0.1
    x[wg.tensor([False, True, False, False])] = 0.2
    x[2:] = [0.3, 16777217.0]
    assert x.tolist() == [0.1, 0.2, 0.3, 16777217.0]
    big = wg.zeros((2,), dtype="int64")
    big[1] = 2**63 - 1
    assert big.tolist() == [0, 2**63 - 1]


def test_masks_with_axes_of_size_zero_select_nothing():
    assert wg.ones((0, 3))[wg.zeros((0, 0), dtype="bool")].shape == (0,)
    assert wg.ones((2, 3))[wg.zeros((0,), dtype="bool")].shape == (0, 3)
    x = wg.ones((2, 3))
    x[wg.zeros((2, 0), dtype="bool")] = 5.0
    assert x.tolist() == [[1.0] * 3] * 2
    with pytest.raises(IndexError, match="axis 1 has size 3, not 1"):
        x[wg.zeros((2, 1), dtype="bool")]


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_writing_by_a_mask_without_axes(shape):
    def f(x, s):
        y = x * 2.0
        y[s > 0.5] = s
        return y

    x = wg.tensor(np.full(shape, 0.3))
    for s in (0.25, 0.75):
        expected = np.full(shape, s if s > 0.5 else 0.6)
        for g in (f, wg.compile(f)):
            np.testing.assert_allclose(g(x, wg.tensor(s, dtype="float64")).numpy(), expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: x[i],
        lambda x, i: x[i, i],
        lambda x, i: wg.take(x, i, axis=0),
        lambda x, i: wg.take_along_axis(x, wg.reshape(i, (1, 2)), axis=0),
        lambda x, i: wg.embedding(i, x),
        lambda x, i: wg.scatter_add(x, wg.reshape(i, (2, 1)), wg.ones((2, 1)), axis=1),
        lambda x, i: wg.segment_sum(x, i, num_segments=2),
        lambda x, i: wg.cross_entropy(x, i),
    ],
)
def test_unsigned_indices_do_not_wrap_round(f, compiled):
    x = wg.tensor([[1.0, 2.0], [3.0, 4.0]])
    g = wg.compile(f) if compiled else f
    small = wg.tensor([1, 0], dtype="uint64")
    np.testing.assert_array_equal(g(x, small).numpy(), f(x, wg.tensor([1, 0])).numpy())
    for bad in (2**64 - 1, 2**63, 2**63 + 1, 2):
        with pytest.raises(IndexError, match="out of range"):
            g(x, wg.asarray(np.array([0, bad], np.uint64)))


def test_unsigned_indices_are_not_written_at_the_end():
    x = wg.zeros(3)
    with pytest.raises(IndexError, match=str(2**64 - 1)):
        x[wg.asarray(np.array([2**64 - 1], np.uint64))] = 5.0
    assert x.tolist() == [0.0, 0.0, 0.0]
