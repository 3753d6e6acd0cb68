"""Sizes, steps, offsets and counts that no tensor has: they mean what they do in NumPy, or are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg

A = np.arange(5.0)
BIG = 2**63
TOO_LARGE: dict[str, Callable[[Any], Any]] = {
    "randint, lowest": lambda x: wg.randint(-BIG, BIG - 1, (2,)),
    "randint, low": lambda x: wg.randint(-(2**62) - 1, 0, (2,)),
    "randint, high": lambda x: wg.randint(0, 2**64, (2,), dtype=wg.uint64),
    "reshape, product": lambda x: x.reshape((2**32, 2**32)),
    "reshape, empty": lambda x: x[:0].reshape((2**32, 2**32, 0)),
    "reshape": lambda x: x.reshape((BIG,)),
    "reshape, negative": lambda x: x.reshape((-BIG,)),
    "broadcast_to": lambda x: x.broadcast_to((BIG, 5)),
    "triu": lambda x: wg.triu(x.reshape(5, 1), BIG),
    "topk": lambda x: wg.topk(x, BIG),
    "pad": lambda x: wg.pad(x, ((BIG, 0),)),
    "conv1d": lambda x: wg.conv1d(x.reshape(1, 1, 5), wg.ones((1, 1, 2)), padding=BIG),
}
NO_MEMORY: dict[str, Callable[[], Any]] = {
    "zeros": lambda: wg.zeros((BIG,)),
    "zeros, product": lambda: wg.zeros((2**32, 2**32)),
    "ones, beside 0": lambda: wg.ones((2**64, 0)),
    "full": lambda: wg.full((2**62,), 1),
    "randn": lambda: wg.randn(BIG),
    "permutation": lambda: wg.permutation(BIG),
    "arange": lambda: wg.arange(BIG),
    "arange, floats": lambda: wg.arange(0.0, 1e300),
    "linspace": lambda: wg.linspace(0.0, 1.0, BIG),
    "eye": lambda: wg.eye(2**40),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_is_named(name: str) -> None:
    function = name.split(",")[0]
    message = f"^(conv|unslice|{function}): .*(out of range|cannot reach|more than a tensor can hold|does not fit)"
    with pytest.raises((wg.NumberRangeError, wg.ShapeError), match=message):
        TOO_LARGE[name](wg.asarray(A))


@pytest.mark.parametrize("name", NO_MEMORY)
def test_what_fits_nowhere_is_a_memory_error(name: str) -> None:
    with pytest.raises(MemoryError, match=r"out of memory.*(does not fit|address space)"):
        NO_MEMORY[name]()


def test_an_allocation_that_fails_says_what_it_was_for() -> None:
    with pytest.raises(MemoryError, match=r"out of memory: float64\(1048576, 4194304\) takes 33554432 MB"):
        wg.zeros((2**20, 2**22), dtype=wg.float64)


@pytest.mark.parametrize("step", [BIG, -BIG, 2**64, -(2**70), 2**62, -(2**62), 5, -5])
def test_steps_beyond_the_axis(step: int) -> None:
    for key in (slice(None, None, step), slice(1, None, step), slice(3, 1, step), slice(-(2**70), 2**70, step)):
        assert wg.asarray(A)[key].tolist() == A[key].tolist()
        assert wg.compile(lambda x: x[key])(wg.asarray(A)).tolist() == A[key].tolist()
        x, a = wg.asarray(A.copy()), A.copy()
        x[key], a[key] = 7.0, 7.0
        assert x.tolist() == a.tolist()


def test_randint_reaches_its_ends() -> None:
    drawn = wg.randint(-(2**62), 2**63 - 1, (1000,), generator=wg.Generator(seed=0)).numpy()
    assert drawn.min() < -(2**61) and drawn.max() > 2**62
    assert set(wg.randint(2**63 - 3, 2**63 - 1, (50,)).tolist()) == {2**63 - 3, 2**63 - 2}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_rounding_to_any_number_of_decimals(dtype: str) -> None:
    """Powers of ten that the dtype does not have leave numbers as they are, or nothing of them."""
    x = wg.tensor([1.5, -0.75, 3e4, 0.0, np.inf], dtype=dtype)
    for decimals in (10, 40, 400, BIG):
        assert (wg.round(x, decimals) == x).all()
    for decimals in (-5, -40, -400, -BIG):
        assert wg.round(x[:4], decimals).tolist() == [0.0] * 4
    if not dtype.startswith("complex"):
        assert wg.round(x, -40)[4].item() == np.inf
    exact = wg.tensor([1234, -5])
    assert wg.round(exact, BIG).tolist() == [1234, -5] and wg.round(exact, -BIG).tolist() == [0, 0]
    assert wg.round(wg.tensor(0.123, dtype="float16"), 2).item() == np.float16(0.12)
