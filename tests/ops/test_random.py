"""Random ops: the right distribution, the same numbers again, and streams that do not meet."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.sampling import array
from wengert import _core
from wengert.dtypes import bfloat16, float16, float32, float64
from wengert.errors import WengertError
from wengert.ops import OPS

N = 200_000
uniform, normal, integers = OPS["random_uniform"], OPS["random_normal"], OPS["random_integers"]


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_uniform(dtype: object) -> None:
    x = array(uniform((N,), dtype.code, (1, 2), (0,))).astype(np.float64)  # type: ignore[attr-defined]
    assert x.min() >= 0.0 and x.max() < 1.0
    assert x.mean() == pytest.approx(0.5, abs=5e-3)
    assert x.var() == pytest.approx(1 / 12, abs=2e-3)
    histogram, _ = np.histogram(x, 16, (0, 1))
    assert np.abs(histogram - N / 16).max() < 6 * np.sqrt(N / 16)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_normal(dtype: object) -> None:
    x = array(normal((N,), dtype.code, (1, 2), (0,))).astype(np.float64)  # type: ignore[attr-defined]
    assert x.mean() == pytest.approx(0.0, abs=0.012)
    assert x.std() == pytest.approx(1.0, abs=0.012)
    assert (x**3).mean() == pytest.approx(0.0, abs=0.05)
    assert (x**4).mean() == pytest.approx(3.0, abs=0.1)
    assert np.isfinite(x).all()
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.01


def test_integers() -> None:
    x = array(integers((N,), (1, 2), (0,), (-3,), (4,)))
    assert x.dtype == np.int64
    assert set(np.unique(x)) == set(range(-3, 4))
    counts = np.bincount(x + 3)
    assert np.abs(counts - N / 7).max() < 6 * np.sqrt(N / 7)


def test_the_same_key_draws_the_same() -> None:
    for n in (1, 2):
        _core.set_num_threads(n)
        a = array(normal((1001,), 11, (5, 6), (0,)))
        np.testing.assert_array_equal(a, array(normal((1001,), 11, (5, 6), (0,))))
        assert not np.array_equal(a, array(normal((1001,), 11, (5, 7), (0,))))
        assert not np.array_equal(a, array(normal((1001,), 11, (4, 6), (0,))))
        assert not np.array_equal(a, array(normal((1001,), 11, (5, 6), (1 << 20,))))


def test_threads_do_not_change_the_numbers() -> None:
    draws = []
    for n in (1, 2):
        _core.set_num_threads(n)
        draws.append(array(uniform((300_001,), 11, (9, 9), (0,))))
    np.testing.assert_array_equal(*draws)


def test_a_prefix_is_a_prefix() -> None:
    """The stream does not depend on how much of it is drawn."""
    long, short = array(uniform((1000,), 11, (1, 1), (0,))), array(uniform((10,), 11, (1, 1), (0,)))
    np.testing.assert_array_equal(long[:10], short)


def test_empty_and_scalar() -> None:
    assert array(uniform((0, 3), 11, (1, 2), (0,))).shape == (0, 3)
    assert array(normal((), 12, (1, 2), (0,))).shape == ()


def test_empty_range_raises() -> None:
    with pytest.raises(WengertError, match="random_integers"):
        integers((2,), (1, 2), (0,), (3,), (2,))
