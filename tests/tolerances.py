"""The tolerances of the suite: one table, by dtype. An exception stands beside it with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np

# Relative, against the reference evaluated in float64 on the same inputs. About three units in the last place of
# the type; for the half precisions one, since they compute in float32 and round once.
VALUE = {
    "float64": 1e-14,
    "float32": 1e-6,
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "complex64": 2e-6,
    "complex128": 1e-14,
}
# Absolute, beside the relative one: where the exact result is zero. Times the size of the operands.
ABSOLUTE = {
    "float64": 1e-15,
    "float32": 5e-7,
    "float16": 1e-4,
    "bfloat16": 1e-3,
    "complex64": 5e-7,
    "complex128": 1e-15,
}

# Derivatives in float64 against finite differences of fourth order: what the difference quotient itself is worth.
FIRST_ORDER = 1e-7
SECOND_ORDER = 1e-6
# Two derivations of the same number in float64: forward and reverse, <y_bar, J x_dot> and <J' y_bar, x_dot>.
AGREEMENT = 1e-10
# Derivatives in a narrow dtype against those in float64: a rule is a few roundings.
NARROW_GRADIENT = {"float32": 2e-5, "float16": 3e-2, "bfloat16": 2e-1}

# op: (factor on VALUE, why)
LOOSER: dict[str, tuple[float, str]] = {
    **dict.fromkeys(
        ("conv", "conv_bias", "conv_transpose", "conv_kernel"),
        (16.0, "sums of dozens of products that cancel, in another order than the reference's"),
    ),
    **dict.fromkeys(
        ("matrix_exp", "matrix_exp_push"), (100.0, "small elements beside large ones: squaring errs by the largest")
    ),
    **dict.fromkeys(
        ("gammaincinv", "gammainccinv", "betaincinv"),
        (4.0, "SciPy's own error: against mpmath (tests/functional/test_incomplete.py) these are the nearer"),
    ),
    **dict.fromkeys(
        ("bessel_iv", "bessel_ive", "bessel_kv", "bessel_kve"),
        (10.0, "SciPy's own error, 4e-14 of kve; against mpmath (benchmarks/special.py) it is some units here"),
    ),
    "cofactor": (
        30.0,
        "of singular matrices: sums over singular vectors, where the reference multiplies whole numbers",
    ),
}


def assert_close(got: Any, expected: Any, dtype: str, op: str = "", scale: float = 1.0) -> None:
    """Compare with the table; integers and booleans must be equal, infinities and NaNs in the same places."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    if dtype not in VALUE:
        np.testing.assert_array_equal(got, expected)
        return
    factor = LOOSER[op][0] if op in LOOSER else 1.0
    wide = np.complex128 if dtype.startswith("complex") else np.float64
    np.testing.assert_allclose(
        got.astype(wide), expected.astype(wide), rtol=VALUE[dtype] * factor, atol=ABSOLUTE[dtype] * factor * scale
    )


def assert_same(got: Any, expected: Any) -> None:
    """The same dtype, shape and bits (but that a NaN is a NaN)."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype, f"dtype {got.dtype}, expected {expected.dtype}"
    if got.dtype.kind in "fV":  # V: bfloat16, of which NumPy's own comparison does not know what a NaN is
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected), "signs of zeros")
        got, expected = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(got, expected)


def assert_near(got: Any, expected: Any, tolerance: float, what: str = "") -> None:
    """Compare derivatives: relative to the largest element, since a difference quotient errs by that."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    assert (got.dtype.kind == "c") == (expected.dtype.kind == "c"), f"{what}: {got.dtype}, expected {expected.dtype}"
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    got, expected = got.astype(wide), expected.astype(wide)
    if got.size == 0:
        return
    size = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * size, err_msg=what)
