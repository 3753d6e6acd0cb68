"""Casts: every pair of dtypes as NumPy does it, and their derivatives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.sampling import array, numpy_dtype, tensor
from tests.tolerances import assert_same
from wengert.dtypes import ALL, DType
from wengert.ops import OPS
from wengert.transforms.functional import jvp, vjp

cast = OPS["cast"]
PAIRS = [pytest.param(a, b, id=f"{a.name}-{b.name}") for a in ALL for b in ALL if a.kind != "c" or b.kind == "c"]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_cast(source: DType, target: DType) -> None:
    values = [0, 1, 2, 3, 100, 127] if source.kind != "b" else [0, 1]
    if source.kind in "ifc" and target.kind != "u":
        values = [*values, -1, -100, -128]
    x = np.array(values).astype(numpy_dtype(source.name))
    if source.kind in "fc" and target.kind in "fc":
        x = np.concatenate([x, x / 7, np.array([np.inf, np.nan], x.dtype)])
    got = array(cast(tensor(x), target.code))
    with np.errstate(all="ignore"):
        expected = x.astype(numpy_dtype(target.name))
    assert_same(got, expected)


def test_rounding_to_half_precisions_is_to_even() -> None:
    x = np.random.default_rng(1).uniform(-3, 3, 4097).astype(np.float32)
    x = np.concatenate([x, np.float32([65519.9, 65520.0, -70000.0, 1e-8, 6e-8, 3.4e38, 2.0**-24, 2.0**-25])])
    for name in ("float16", "bfloat16"):
        with np.errstate(over="ignore"):
            expected = x.astype(numpy_dtype(name))
        got = array(cast(tensor(x), next(d.code for d in ALL if d.name == name)))
        np.testing.assert_array_equal(got, expected)


def test_float64_to_half_rounds_once() -> None:
    # 1 + 2^-11 + 2^-40: through float32 this would be a tie, and round down.
    x = np.array([1 + 2.0**-11 + 2.0**-40])
    assert array(cast(tensor(x), 9))[0] == np.float16(x[0])


@pytest.mark.parametrize("target", [d for d in ALL if d.kind == "f"], ids=str)
def test_derivative_is_a_cast_back(target: DType) -> None:
    x = tensor(np.array([0.5, -1.5]))
    y, pull = vjp(lambda z: cast(z, target.code), x)
    (g,) = pull(cast(tensor(np.array([2.0, -0.25])), target.code))
    assert g.dtype.name == "float64"
    np.testing.assert_array_equal(array(g), [2.0, -0.25])
    _, y_dot = jvp(lambda z: cast(z, target.code), (x,), (tensor(np.array([2.0, -0.25])),))
    assert y_dot.dtype == target


def test_casts_to_integers_cut_derivatives() -> None:
    x = tensor(np.array([0.5, -1.5]))
    _, pull = vjp(lambda z: cast(cast(z, 4), 12) * z, x)
    np.testing.assert_array_equal(array(pull(tensor(np.ones(2)))[0]), [0.0, -1.0])
