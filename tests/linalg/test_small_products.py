"""Small products, and tiles of larger ones that stay in the cache: the instruction sets with fused multiply-adds agree to
the bit, whatever their blocks."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import wengert as wg

SIZES = [(m, n, k) for m in (1, 2, 5, 6, 7, 8, 9, 33) for n in (1, 3, 4, 10, 17, 33, 64) for k in (1, 3, 8, 100)]
SIZES += [(m, n, k) for m in (130, 300) for n in (64, 272) for k in (48, 256)]  # in tiles


def products() -> str:
    """The bits of all products, of packed and of transposed operands."""
    rng = np.random.default_rng(0)
    made = []
    for m, n, k in SIZES:
        for dtype, tolerance in (("f4", 1e-4), ("f8", 1e-11)):
            a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(dtype)
            x, y = wg.tensor(a), wg.tensor(b)
            packed = wg.tensor(np.ascontiguousarray(b.T))
            for product in (x @ y.T, x @ packed, wg.tensor(np.ascontiguousarray(a.T)).T @ packed):
                np.testing.assert_allclose(product.numpy(), a @ b.T, rtol=1e-3, atol=tolerance)
                made.append(product)
    return wg.fingerprint(made)


def test_instruction_sets_agree() -> None:
    found = {}
    for level in ("v3", "v4"):
        run = subprocess.run(
            [sys.executable, "-c", "from tests.linalg.test_small_products import products; print(products())"],
            env={**os.environ, "WENGERT_ISA": level},
            capture_output=True,
            text=True,
        )
        if "does not have" not in run.stderr and "not among" not in run.stderr:
            assert run.returncode == 0, run.stderr
            found[level] = run.stdout
    if len(found) < 2:
        pytest.skip("this machine, or this build, has one of the two sets")
    assert found["v3"] == found["v4"]


def test_products_are_right() -> None:
    assert products()
