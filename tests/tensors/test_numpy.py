import numpy as np
import pytest

import wengert as wg

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "bfloat16", "float32", "float64"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_shares_memory(dtype):
    x = wg.tensor([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    a = x.numpy()
    assert a.dtype == x.dtype.to_numpy()
    a[0, 0] = 0
    assert x[0, 0].item() == 0
    back = wg.asarray(a)
    assert back.dtype == x.dtype
    a[1, 0] = 1
    assert back[1, 0].item() == 1
    assert x.tolist() == a.astype(np.float64).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_views(dtype):
    x = wg.arange(24).astype(dtype).reshape(2, 3, 4)
    y = x.permute_dims(2, 0, 1)[::-2, :, 1:]
    expected = x.numpy().transpose(2, 0, 1)[::-2, :, 1:]
    np.testing.assert_array_equal(y.numpy(), expected)
    assert np.shares_memory(y.numpy(), x.numpy())


def test_asarray_and_dtype():
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    np.testing.assert_array_equal(np.asarray(x), [1.0, 2.0])
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.array(x).dtype == np.float32
    half = wg.tensor([1.0, 2.0]).astype("bfloat16")
    assert np.asarray(half).dtype == half.dtype.to_numpy()
    assert half.tolist() == [1.0, 2.0]


def test_written_from_numpy_is_seen_after_in_place():
    x = wg.zeros((3,))
    a = x.numpy()
    x += 1.0
    assert a.tolist() == [1.0] * 3
    a[:] = 5.0
    assert x.tolist() == [5.0] * 3


def test_zero_dimensional_and_empty():
    assert wg.tensor(3.0).numpy().shape == ()
    assert wg.tensor(3).tolist() == 3
    assert wg.zeros((0, 2)).numpy().shape == (0, 2)


def test_numpy_on_the_left():
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    a = np.array([3.0, 4.0], np.float32)
    for y, expected in (
        (a * x, [3.0, 8.0]), (a + x, [4.0, 6.0]), (a - x, [2.0, 2.0]), (a / x, [3.0, 2.0]), (a**x, [3.0, 16.0]),
    ):  # fmt: skip
        assert isinstance(y, wg.Tensor)
        assert y.requires_grad
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-6)
    for scalar in (np.float64(2.0), np.float32(2.0), np.int64(2)):
        y = scalar * x
        assert isinstance(y, wg.Tensor)
        assert y.dtype == wg.float32
    assert (a < x).tolist() == [False, False]
    assert (a @ x).item() == 11.0


@pytest.mark.parametrize(
    "look", [repr, str, wg.fingerprint, lambda y: y.tolist(), lambda y: y._repr_html_(), lambda y: f"{y[1]:.2f}"]
)
def test_looking_at_a_tensor_changes_nothing_for_writes(look):
    """Memory that NumPy may write to is pinned, and saved values in it cannot be protected; a look is over at once."""
    x = wg.tensor([0.5, 1.0, 2.0], requires_grad=True)
    y = wg.exp(x)
    look(y)
    z = (y * y).sum()
    y *= 2.0
    np.testing.assert_allclose(z.backward()[x].numpy(), 2.0 * np.exp(2.0 * x.detach().numpy()), rtol=1e-6)


def test_a_result_of_a_checkpoint_may_be_written_to():
    x = wg.tensor([0.5, 1.0], requires_grad=True)
    y = wg.checkpoint(wg.exp, x)
    z = (y * y).sum()
    y *= 2.0
    np.testing.assert_allclose(z.backward()[x].numpy(), 2.0 * np.exp(2.0 * x.detach().numpy()), rtol=1e-6)
