"""The kernels of products and of their tiles: ragged blocks, any layout. Where the operands stay in the cache, the
instruction sets with fused multiply-adds agree to the bit, whatever their blocks."""

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


LARGE = [
    (64, 64, 257),
    (65, 79, 513),
    (73, 100, 1030),
    (257, 70, 300),
    (129, 130, 512),
    (300, 90, 700),
    (1000, 64, 520),
]


@pytest.mark.parametrize(("m", "n", "k"), LARGE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_larger_products(m: int, n: int, k: int, dtype: str) -> None:
    """Tiles with packed operands: ragged in every direction, of any layout, among other numbers, on any threads."""
    rng = np.random.default_rng([m, n, k])
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    x, y = wg.tensor(a.astype(dtype)), wg.tensor(b.astype(dtype))
    wide = wg.tensor(np.full((m, 2 * k + 3), np.nan, dtype))
    wide[:, 3 : k + 3] = x
    left = {"rows": x, "columns": wg.clone(x.T).T, "part": wide[:, 3 : k + 3], "backwards": wg.flip(x, 0)[::-1]}
    right = {"rows": y, "columns": wg.clone(y.T).T, "backwards": wg.flip(y, 1)[:, ::-1]}
    expected = a.astype(dtype).astype("float64") @ b.astype(dtype).astype("float64")
    found = {(p, q): (left[p] @ right[q]).numpy() for p in left for q in right}
    for layouts, product in found.items():
        error = np.abs(product - expected).max()
        assert error < (2e-4 if dtype == "float32" else 3e-13), (layouts, error)
    threads = wg.get_num_threads()
    try:
        wg.set_num_threads(1)
        for (p, q), product in found.items():
            assert np.array_equal((left[p] @ right[q]).numpy(), product), (p, q)
    finally:
        wg.set_num_threads(threads)
    many = (wg.stack([x, x * 2.0]) @ wg.stack([y, y])).numpy()
    assert np.array_equal(many[0], found["rows", "rows"])
    assert np.array_equal(many[1], 2.0 * found["rows", "rows"])


def test_infinities_stay_in_their_rows_and_columns() -> None:
    """What fills up a packed block touches nothing."""
    x, y = np.ones((67, 600), "float32"), np.ones((600, 75), "float32")
    x[66, 599], y[599, 74] = np.inf, np.nan
    product = (wg.tensor(x) @ wg.tensor(y)).numpy()
    assert np.isnan(product[:, 74]).all() and np.isinf(product[66, :74]).all()
    assert np.array_equal(product[:66, :74], np.full((66, 74), 600, "float32"))
