import numpy as np
import pytest

import wengert as wg


def test_to_numpy_shares_memory():
    x = wg.tensor([[1.0, 2.0], [3.0, 4.0]])
    a = np.from_dlpack(x.T)
    np.testing.assert_array_equal(a, [[1.0, 3.0], [2.0, 4.0]])
    x.numpy()[0, 1] = 9.0
    assert a[1, 0] == 9.0
    assert x.__dlpack_device__() == (1, 0)


class Foreign:
    """Another library's array."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8", "float16", "float32", "float64"])
def test_from_another_library(dtype):
    a = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    x = wg.from_dlpack(Foreign(a))
    assert x.dtype == dtype
    a[0, 0] = 1
    assert x[0, 0].item() == 1
    assert wg.asarray(Foreign(a)).tolist() == a.tolist()
    y = wg.from_dlpack(Foreign(a), copy=True)
    a[0, 0] = 0
    assert y[0, 0].item() == 1


def test_lifetimes():
    x = wg.from_dlpack(Foreign(np.arange(5.0)))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    a = np.from_dlpack(wg.arange(5.0))
    assert a.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_read_only_and_errors():
    a = np.arange(3.0)
    a.flags.writeable = False
    x = wg.from_dlpack(a)
    x += 1.0
    assert a.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(TypeError, match="__dlpack__"):
        wg.from_dlpack([1.0])
    with pytest.raises(BufferError, match="bfloat16"):
        wg.ones((2,), dtype="bfloat16").__dlpack__()
    y = wg.from_dlpack(wg.tensor([1.0], requires_grad=True))
    assert not y.requires_grad


def test_elements_that_share_memory_are_copied():
    x = wg.tensor([1.0, 2.0])
    a = np.from_dlpack(wg.broadcast_to(x, (2, 2)))
    assert a.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert a.strides == (8, 4)
