"""The array API namespace, beyond what the data-apis suite checks (`make array-api`)."""

import math

import numpy as np
import pytest

import wengert as wg


def test_namespace():
    x = wg.ones((2,))
    for version in (None, "2021.12", "2024.12", wg.__array_api_version__):
        assert x.__array_namespace__(api_version=version) is wg
    with pytest.raises(ValueError, match=r"2020.12.*2024.12"):
        x.__array_namespace__(api_version="2020.12")
    assert (wg.e, wg.pi, wg.inf, wg.newaxis) == (math.e, math.pi, math.inf, None)
    assert math.isnan(wg.nan)


def test_info():
    info = wg.__array_namespace_info__()
    assert info.devices() == ("cpu",)
    assert info.default_dtypes()["real floating"] == wg.asarray(1.0).dtype == wg.float32
    assert info.default_dtypes()["complex floating"] == wg.asarray(1j).dtype == wg.complex64
    assert info.default_dtypes()["integral"] == info.default_dtypes()["indexing"] == wg.asarray(1).dtype == wg.int64
    assert list(info.dtypes(kind=("bool", "unsigned integer"))) == ["bool", "uint8", "uint16", "uint32", "uint64"]
    assert wg.ones((1,) * info.capabilities()["max dimensions"]).ndim == 12
    with pytest.raises(wg.DeviceError, match="cuda"):
        info.dtypes(device="cuda")
    with pytest.raises(ValueError, match="'real floating'"):
        info.dtypes(kind="floating")


def test_dtypes_equal_what_they_should():
    assert wg.float32 == "float32" == wg.float32.name
    assert wg.float64 == np.float64 == np.dtype("float64")
    assert wg.float64 != None and wg.float64 != [] and wg.float64 != 1  # noqa: E711
    assert wg.float32 not in {wg.float64: 1}
    with pytest.raises(TypeError, match="None is not a dtype"):
        wg.dtypes.as_dtype(None)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_finfo(dtype):
    info = wg.finfo(dtype)
    part = wg.ones((), dtype=info.dtype)
    assert (part + info.eps).item() > 1.0
    assert (part + info.eps / 4).item() == 1.0
    assert info.bits == 8 * info.dtype.itemsize
    assert (part * info.max).isfinite()
    assert (part * info.max * 2).isinf()
    assert info.min == -info.max
    assert info.tiny == info.smallest_normal == wg.finfo(wg.ones((), dtype=dtype)).smallest_normal
    with pytest.raises(TypeError, match="iinfo"):
        wg.finfo("int32")


def test_iinfo():
    assert (wg.iinfo("uint8").min, wg.iinfo(wg.ones((), dtype="int64")).max) == (0, 2**63 - 1)
    with pytest.raises(TypeError, match="finfo"):
        wg.iinfo("float32")


KINDS = [
    "bool",
    "int8",
    "uint8",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("a", KINDS)
@pytest.mark.parametrize("scalar", [True, 2, 2.5, 1j, np.float64(2.5), np.int64(2), np.bool_(True)], ids=repr)
def test_result_type_says_what_promotion_does(a, scalar):
    x = wg.ones((2,), dtype=a)
    assert wg.result_type(x, scalar) == wg.result_type(scalar, a) == wg.where(wg.tensor(True), x, scalar).dtype


@pytest.mark.parametrize("a", KINDS)
@pytest.mark.parametrize("b", KINDS)
def test_result_type_of_two(a, b):
    x, y = wg.ones((2,), dtype=a), wg.ones((2,), dtype=b)
    assert wg.result_type(a, y) == wg.result_type(b, x) == wg.where(wg.tensor(True), x, y).dtype
    assert wg.can_cast(x, wg.result_type(a, b))
    assert wg.can_cast(a, b) == (wg.result_type(a, b) == b)


def test_result_type_of_numbers():
    assert wg.result_type(1, 2.0) == wg.float32
    assert wg.result_type(True) == wg.bool
    with pytest.raises(ValueError, match="at least one"):
        wg.result_type()


def test_copies():
    a = np.arange(3.0)
    x = wg.asarray(a, copy=False)
    a[0] = 5.0
    assert x[0].item() == 5.0
    assert wg.asarray(a, copy=True).numpy() is not a
    for obj in (a, x):
        with pytest.raises(ValueError, match="only by a copy"):
            wg.asarray(obj, dtype="float32", copy=False)
    t = wg.ones((2, 3)).T
    assert t.reshape((3, 2), copy=True).data_ptr != t.data_ptr
    assert wg.reshape(t, shape=(3, 1, 2), copy=False).data_ptr == t.data_ptr
    with pytest.raises(ValueError, match="no view"):
        t.reshape((6,), copy=False)
    assert t.astype("float32", copy=False) is t
    assert t.astype("float32", device="cpu").data_ptr != t.data_ptr


def test_lists_of_tensors_keep_gradients():
    a, b = wg.tensor(2.0, requires_grad=True), wg.tensor([1.0, 3.0], requires_grad=True)
    y = wg.asarray([[a, 1.0], [4, b[1]]])
    assert y.dtype == wg.float32
    assert y.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    grads = (y * wg.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert grads[a].item() == 1.0
    assert grads[b].tolist() == [0.0, 4.0]
    assert wg.tensor([a, a]).requires_grad
    assert wg.asarray([wg.tensor(1.0), 2.0], dtype="float64").dtype == wg.float64
    with pytest.raises(wg.ShapeError, match="must have one shape"):
        wg.asarray([a, b])
    assert wg.compile(lambda x: wg.asarray([x[1], x[0] * 2, 7.0]))(wg.tensor([1.0, 2.0])).tolist() == [2.0, 2.0, 7.0]


def test_friendly_shapes():
    x = wg.arange(6)
    assert (
        x.reshape(2, 3).shape
        == x.reshape((2, 3)).shape
        == x.reshape([2, -1]).shape
        == wg.reshape(x, shape=(2, 3)).shape
    )
    assert x.reshape(6).shape == x.reshape(np.int64(6)).shape == (6,)
    y = x.reshape(1, 2, 3)
    assert y.permute_dims(2, 0, 1).shape == y.permute_dims((2, 0, 1)).shape == wg.permute_dims(y, axes=[2, 0, 1]).shape
    assert wg.tensor(1).broadcast_to(2, 2).shape == wg.broadcast_to(wg.tensor(1), shape=(2, 2)).shape
    assert wg.broadcast_shapes((3, 1), (1, 4), ()) == (3, 4)
    with pytest.raises(ValueError, match="broadcast_shapes"):
        wg.broadcast_shapes((2,), (3,))


def test_an_axis_out_of_range_is_an_index_error_too():
    for error in (IndexError, ValueError, wg.ShapeError, wg.AxisError):
        with pytest.raises(error, match="axis 3"):
            wg.ones((2,)).sum(3)


def test_numbers_that_a_double_cannot_hold():
    assert wg.full((2,), 2**63 - 1).tolist() == [2**63 - 1] * 2
    assert wg.full((), 2**64 - 1, dtype="uint64").item() == 2**64 - 1
    assert wg.arange(2**60, 2**60 + 5, 2).tolist() == [2**60, 2**60 + 2, 2**60 + 4]
    assert wg.arange(5, -2, -3).tolist() == [5, 2, -1]
    assert wg.asarray(1e39).item() == math.inf  # and no warning
    assert wg.linspace(0, 1j, 3).tolist() == [0, 0.5j, 1j]
    assert wg.linspace(0, 1, 3, dtype=None).dtype == wg.eye(2, dtype=None).dtype == wg.float32


def test_floor_divide_of_infinities():
    inf = math.inf
    a, b = wg.tensor([inf, -inf, inf, 1.0, -1.0, 1.0, inf, 0.0]), wg.tensor([2.0, 2.0, -2.0, inf, inf, -inf, inf, 0.0])
    y = a // b
    np.testing.assert_array_equal(y.numpy(), [inf, -inf, -inf, 0.0, -0.0, -0.0, math.nan, math.nan])
    assert y[3:6].signbit().tolist() == [False, True, True]


def test_python_numbers():
    assert complex(wg.tensor(1 + 2j)) == 1 + 2j
    assert complex(wg.tensor(2)) == 2 + 0j
    with pytest.raises(ValueError, match="one element"):
        complex(wg.ones((2,)))
    assert wg.ones((2,)).to_device("cpu").device == "cpu"
    with pytest.raises(wg.DeviceError):
        wg.ones((2,)).to_device("cuda")
    with pytest.raises(ValueError, match="stream"):
        wg.ones((2,)).to_device("cpu", stream=1)


def test_signs_of_zeros_in_complex_functions():
    y = wg.expm1(wg.tensor([complex(-0.0, 0.0), complex(0.0, 0.0)])).numpy()
    assert not np.signbit(y.real).any()
    z = wg.tanh(wg.tensor([complex(math.inf, 2.0), complex(math.inf, -2.0), complex(-math.inf, 2.0)])).numpy()
    assert z.real.tolist() == [1.0, 1.0, -1.0]
    assert np.signbit(z.imag).tolist() == [False, True, False]
    x = wg.zeros((), dtype="complex128")
    x[()] = 16777217j
    assert x.item() == 16777217j
