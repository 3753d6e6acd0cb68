"""Making tensors of Python numbers: those that a dtype cannot hold are refused, never wrapped."""

import array
from typing import Any

import numpy as np
import pytest

import wengert as wg

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "make",
    [
        lambda i, dtype: wg.tensor(i, dtype=dtype),
        lambda i, dtype: wg.asarray([[0, i]], dtype=dtype)[0, 1],
        lambda i, dtype: wg.full((2,), i, dtype=dtype)[1],
        lambda i, dtype: wg.full_like(wg.zeros((1,), dtype=dtype), i)[0],
        lambda i, dtype: wg.arange(i, i + 1, dtype=dtype)[0],
    ],
    ids=["tensor", "asarray", "full", "full_like", "arange"],
)
def test_integers_up_to_the_bounds_and_no_further(make: Any, dtype: str) -> None:
    limits = np.iinfo(dtype)
    for i in (int(limits.min), int(limits.max)):
        assert make(i, dtype).item() == i
    for i in (int(limits.min) - 1, int(limits.max) + 1, 2**70, -(2**70)):
        with pytest.raises(wg.NumberRangeError, match=rf"the integer {i} does not fit {dtype}, which holds"):
            make(i, dtype)


def test_the_error_is_the_built_in_ones_too() -> None:
    for built_in in (OverflowError, ValueError, wg.WengertError):
        with pytest.raises(built_in):
            wg.tensor(300, dtype="uint8")


def test_large_integers_without_a_dtype_and_as_floats() -> None:
    assert wg.tensor(2**70, dtype="float32").item() == 2.0**70
    assert wg.tensor([2**70, 1.5], dtype="float64").tolist() == [2.0**70, 1.5]
    assert wg.tensor([-1, 2**70], dtype="complex128").tolist() == [-1 + 0j, 2.0**70 + 0j]
    assert wg.tensor(2**63).dtype == "uint64"  # as NumPy
    with pytest.raises(wg.NumberRangeError, match="int64"):
        wg.tensor([2**70])
    with pytest.raises(wg.NumberRangeError, match="int64"):
        wg.full((2,), 2**63)


def test_arrays_and_bools_are_converted_as_numpy_does() -> None:
    assert wg.asarray(np.array([300]), dtype="uint8").tolist() == [44]
    assert wg.tensor([True, 5], dtype="uint8").tolist() == [1, 5]
    assert wg.tensor(300, dtype="bool").item() is True
    assert wg.tensor([], dtype="uint8").shape == (0,)


def test_assignment_of_a_number_that_does_not_fit() -> None:
    x = wg.zeros((2,), dtype="uint8")
    with pytest.raises(wg.NumberRangeError, match="-1"):
        x[0] = -1
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize("make", [wg.linspace, wg.logspace, wg.geomspace])
def test_ranges_say_what_they_take(make: Any) -> None:
    name = make.__name__
    if make is not wg.linspace:  # which takes tensors: tests/functional/test_array_functions.py
        with pytest.raises(TypeError, match=f"{name}: start and stop must be numbers, got Tensor; use start"):
            make(wg.tensor(1.0), 2.0, 3)
    with pytest.raises(TypeError, match=f"{name}: start and stop must be numbers, got str"):
        make(1.0, "2", 3)
    with pytest.raises(TypeError, match=f"{name}: num must be an integer, got 3.0"):
        make(1.0, 2.0, 3.0)
    with pytest.raises(wg.ArgumentError, match=f"{name}: num must not be negative, got -1"):
        make(1.0, 2.0, -1)


def test_geomspace_does_not_cross_zero() -> None:
    with pytest.raises(wg.ArgumentError, match="no real multiples lead from 1.0 to -3.0; make one of them complex"):
        wg.geomspace(1.0, -3.0, 4)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.fill_(300),
        lambda x: wg.pad(x, 1, value=-1),
        lambda x: wg.randint(0, 257, (3,), dtype=x.dtype),
        lambda x: wg.randint(-1, 5, (3,), dtype=x.dtype),
        lambda x: np.add.at(x, [0], 300),
        lambda x: wg.compile(lambda x: x.fill_(300))(x),
    ],
)
def test_integers_that_do_not_fit_are_not_written(f: Any) -> None:
    x = wg.tensor([1, 2], dtype="uint8")
    with pytest.raises(wg.NumberRangeError, match="does not fit uint8, which holds 0 to 255"):
        f(x)
    assert x.tolist() == [1, 2]
    assert wg.randint(0, 256, (3,), dtype="uint8").shape == (3,)


def test_what_newcomers_write_is_explained() -> None:
    x = wg.ones(2)
    for call, match in (
        (lambda: wg.Tensor([1.0, 2.0]), r"wengert.tensor\(data\) makes a tensor"),
        (lambda: wg.concat(x, x), r"concat: tensors must be passed as one list: concat\(\[a, b\], axis\)"),
        (lambda: wg.stack(x, x), "stack: tensors must be passed as one list"),
        (lambda: wg.manual_seed(1.5), "manual_seed: the seed must be an integer, got 1.5"),
        (lambda: wg.save({"x": x}, "x.safetensors"), "save: the path comes first, then the state; got dict"),
    ):
        with pytest.raises(TypeError, match=match):
            call()
    with pytest.raises(
        wg.ArgumentError, match=r"layer 0 is of type list, which cannot be called; of a list, pass .*\*layers"
    ):
        wg.nn.Sequential([wg.nn.ReLU()])  # type: ignore[arg-type]


def test_bools_of_other_bytes_are_true() -> None:
    a = np.array([2, 0, 255, 1], np.uint8).view(bool)
    x = wg.asarray(a)
    assert x.tolist() == [True, False, True, True]
    assert wg.sum(x).item() == wg.count_nonzero(x).item() == 3
    assert x.astype(wg.float32).tolist() == [1.0, 0.0, 1.0, 1.0]
    assert (x == True).tolist() == [True, False, True, True]  # noqa: E712 - elementwise
    assert wg.asarray(a[::-1]).astype(int).tolist() == [1, 1, 0, 1]
    assert wg.sum(wg.from_dlpack(a)).item() == 3
    with pytest.raises(wg.ArgumentError, match="bytes"):
        wg.asarray(a, copy=False)
    clean = np.array([True, False])
    wg.asarray(clean)[0] = False
    assert clean.tolist() == [False, False], "bools of usual bytes are shared"


class _Column:
    """What pandas, PIL and others are to NumPy."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1.0, 2.0], dtype)


@pytest.mark.parametrize("code", "bBhHiIqQfd")
def test_buffers_keep_their_dtype(code: str) -> None:
    a = array.array(code, [1, 2])
    for x in (wg.asarray(a), wg.asarray(memoryview(a)), wg.tensor(a), wg.tensor([a, a])[0]):
        assert x.dtype == np.asarray(a).dtype
        assert x.tolist() == [1, 2]
    wg.asarray(a)[0] = 7
    assert a[0] == 7, "asarray shares memory"
    wg.tensor(a)[0] = 9
    assert a[0] == 7, "tensor copies"


def test_arrays_of_others_keep_their_dtype() -> None:
    assert wg.asarray(_Column()).dtype == wg.asarray([_Column()]).dtype == wg.float64
    assert wg.asarray(bytearray(b"ab")).dtype == wg.uint8
    assert wg.asarray(memoryview(b"ab")).tolist() == [97, 98]
    assert wg.asarray([1.0, 2]).dtype == wg.float32
    assert wg.asarray([np.float64(1.0), 2.0]).dtype == wg.float64


def test_models_may_be_lists_and_numbers() -> None:
    assert wg.zeros_like([1, 2]).tolist() == [0, 0] and wg.zeros_like([1, 2]).dtype == wg.int64
    assert wg.ones_like(3.0).shape == () and wg.full_like([[1.0]], 7).tolist() == [[7.0]]
    assert wg.empty_like(np.ones(2)).dtype == wg.float64
    assert wg.rand_like([0.0, 0.0]).shape == wg.randn_like([0.0, 0.0]).shape == (2,)
    with pytest.raises(TypeError, match="cannot make a tensor of str"):
        wg.zeros_like("a")
