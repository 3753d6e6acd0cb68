import copy
import math
import pickle

import numpy as np
import pytest

import wengert as wg


def test_every_function_is_a_method():
    takes_no_tensor_first = {"concat", "stack", "broadcast_arrays", "broadcast_shapes", "einsum", "make_complex"}
    takes_no_tensor_first |= {"select", "jn", "yn", "kn", "legendre", "sph_harm_y"}
    functions = set(wg.functional.__all__) - takes_no_tensor_first
    assert [n for n in functions if not hasattr(wg.Tensor, n)] == []
    a, b = wg.tensor([1.0, 2.0]), wg.tensor([3.0, 5.0])
    assert a.add(b).tolist() == [4.0, 7.0]
    assert a.sub(b).mul(b).div(2.0).tolist() == [-3.0, -7.5]
    assert a.pow(2).matmul(b).item() == 23.0
    assert wg.tensor([True, False]).where(a, b).tolist() == [1.0, 5.0]


def test_properties():
    x = wg.ones((2, 3))
    assert x.device == "cpu"
    assert repr(x.device) == "device('cpu')"
    assert x.T.shape == x.mT.shape == (3, 2)
    assert wg.ones((4, 2, 3)).mT.shape == (4, 3, 2)
    assert x.nbytes == 24
    with pytest.raises(wg.ShapeError, match="mT"):
        wg.ones((2, 2, 2)).T
    assert wg.ones((2,)).T.shape == (2,)


def test_printing():
    assert repr(wg.tensor([[1.0, 2.0], [3.0, 4.5]])) == "tensor([[1. , 2. ],\n        [3. , 4.5]])"
    assert repr(wg.tensor([1, 2], dtype="int8")) == "tensor([1, 2], dtype=int8)"
    assert repr(wg.tensor(1.0, requires_grad=True)) == "tensor(1., requires_grad=True)"
    assert repr(wg.zeros((0,))) == "tensor([])"
    assert repr(wg.zeros((0, 2), dtype="float64")) == "tensor([], dtype=float64, shape=(0, 2))"
    assert "bfloat16" in repr(wg.ones((2,), dtype="bfloat16"))
    assert f"{wg.tensor(math.pi):.3f}" == "3.142"
    assert f"{wg.tensor(7):03d}" == "007"
    assert f"{wg.tensor([1, 2])}" == "tensor([1, 2])"
    with pytest.raises(TypeError, match="one element"):
        f"{wg.tensor([1.0, 2.0]):.2f}"


def test_to():
    x = wg.ones((2,))
    assert x.to("cpu") is x
    assert x.to(wg.float64).dtype == x.to(dtype=float, copy=True).astype("float64").dtype == wg.float64
    assert x.to(wg.tensor([1])).dtype == wg.int64
    assert x.to("float16").dtype == wg.float16
    assert x.to(copy=True) is not x
    with pytest.raises(wg.DeviceError, match="cuda"):
        x.to("cuda")


def test_nan_and_inf():
    assert wg.tensor([1.0, math.nan]).has_nan()
    assert not wg.tensor([1.0, math.inf]).has_nan()
    assert wg.tensor([1.0, -math.inf]).has_inf()
    assert not wg.tensor([1, 2]).has_inf()
    assert wg.tensor([1.0, math.nan]).isnan().any()


def test_copies():
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    y = copy.deepcopy({"x": x, "again": x})
    assert y["x"] is y["again"]
    assert y["x"].requires_grad
    assert y["x"].grad.tolist() == [2.0, 4.0]
    with wg.no_grad():
        y["x"] += 1.0
    assert x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool", "uint64"])
def test_pickle(dtype):
    x = wg.tensor([[1, 0], [1, 1]]).astype(dtype)
    y = pickle.loads(pickle.dumps(x.T))
    assert y.dtype == x.dtype
    assert y.tolist() == x.T.tolist()
    assert pickle.loads(pickle.dumps(wg.tensor(1.0, requires_grad=True))).requires_grad
    z = pickle.loads(pickle.dumps(wg.tensor(1.0, requires_grad=True) * 2))
    assert not z.requires_grad
    assert z.item() == 2.0


def test_iteration_and_membership():
    x = wg.tensor([[1, 2], [3, 4]])
    rows = list(x)
    assert [r.tolist() for r in rows] == [[1, 2], [3, 4]]
    assert [r.tolist() for r in reversed(x)] == [[3, 4], [1, 2]]
    a, b = wg.tensor([1.0, 2.0])
    assert b.item() == 2.0
    assert 2.0 in wg.tensor([1.0, 2.0])
    assert np.float32(9.0) not in wg.tensor([1.0, 2.0])
    assert len({a, b, a}) == 2


def test_out_is_a_tensor() -> None:
    with pytest.raises(TypeError, match="mul: out must be a tensor to write into, got numpy.ndarray"):
        wg.mul(wg.ones((2,)), 2.0, out=np.zeros(2))


def test_round() -> None:
    x = np.array([1.2345, -0.5, 2.5, 1234.5])
    for n in (None, 0, 1, 3, -2):
        t = wg.tensor(x, requires_grad=True)
        y = round(t) if n is None else round(t, n)
        np.testing.assert_array_equal(y.detach().numpy(), np.round(x, n or 0))
        assert wg.grad_of(y.sum(), t)[0].tolist() == [0.0] * 4
    assert round(wg.tensor(2.6)).item() == 3.0
    whole = wg.tensor([1250, -1349], dtype="int16")
    assert round(whole, 2).tolist() == [1250, -1349]
    assert round(whole, -2).tolist() == np.round(np.array([1250, -1349]), -2).tolist()
    assert round(whole, -2).dtype == "int16"
    assert wg.compile(lambda t: round(t, 1))(wg.tensor([0.26, 0.24])).tolist() == wg.tensor([0.3, 0.2]).tolist()


def test_divmod() -> None:
    a, b = np.array([7.0, -7.0, 7.5]), np.array([2.0, 2.0, -2.0])
    x = wg.tensor(a, requires_grad=True)
    for got, expected in [
        (divmod(x, wg.asarray(b)), divmod(a, b)),
        (divmod(x, 2), divmod(a, 2)),
        (divmod(9, wg.asarray(b)), divmod(9, b)),
        (divmod(x, b), divmod(a, b)),
        (divmod(a, wg.asarray(b)), divmod(a, b)),
    ]:
        for y, z in zip(got, expected, strict=True):
            np.testing.assert_array_equal(y.detach().numpy(), z)
    q, r = divmod(x, wg.asarray(b))
    assert (q * 3.0 + r * 2.0).sum().backward()[x].tolist() == [2.0] * 3
    with pytest.raises(TypeError, match="unsupported operand"):
        divmod(x, "2")


def test_conversions_to_python_numbers() -> None:
    for value in (2.6, -2.6):
        for t in (wg.tensor(value, dtype="float64"), wg.tensor([[value]], dtype="float64")):
            for f in (math.floor, math.ceil, math.trunc, float, int, complex, bool):
                assert f(t) == f(value) and type(f(t)) is type(f(value))
    large = wg.tensor(2**62 + 1)
    assert math.floor(large) == math.ceil(large) == math.trunc(large) == int(large) == 2**62 + 1
    assert range(5)[wg.tensor(3)] == 3
    for f in (math.floor, math.ceil, math.trunc, float, int, complex):
        with pytest.raises(ValueError, match="only a tensor with one element converts"):
            f(wg.ones((2,)))
    with pytest.raises(wg.TraceError, match="the data of a tensor"):
        wg.compile(math.floor)(wg.tensor(2.5))
