"""Trees as vectors: layouts, dtypes, broadcasting, and what is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import wengert as wg
from wengert.numerics.vectors import Layout


class Pair(NamedTuple):
    a: Any
    b: Any


TREE = {"x": np.arange(6.0).reshape(2, 3), "y": Pair(1.5, [np.array([7.0])]), "none": None}


def layout(example: Any, **given: Any) -> Layout:
    return Layout(example, "solver", "x0", **given)


def test_there_and_back() -> None:
    made = layout(TREE)
    v = made.vector()
    assert v.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.5, 7.0] and made.size == 8 and v.dtype == wg.float64
    back = made.tree(v)
    assert isinstance(back["y"], Pair) and back["none"] is None and back["y"].b[0].shape == (1,)
    np.testing.assert_array_equal(back["x"].numpy(), TREE["x"])
    rows = made.tree(wg.stack([v, v + 1.0, v]))
    assert rows["x"].shape == (3, 2, 3) and rows["y"].a.tolist() == [1.5, 2.5, 1.5]


def test_gradients_pass_through() -> None:
    def f(a: Any, b: Any) -> Any:
        made = layout({"a": a, "b": b})
        return (made.tree(made.vector() ** 2)["b"] * wg.asarray(np.array([1.0, -3.0]))).sum()

    a, b = wg.asarray(np.array([[2.0]])), wg.asarray(np.array([5.0, 7.0]))
    by_a, by_b = wg.grad(f, argnums=(0, 1))(a, b)
    assert by_a.tolist() == [[0.0]] and by_b.tolist() == [10.0, -42.0]


@pytest.mark.parametrize(
    ("example", "dtype"),
    [
        (1, "float64"),
        ([1, 2], "float64"),
        (wg.tensor([1.0]), "float32"),
        ({"a": wg.tensor([1.0]), "b": 2.0}, "float32"),  # a plain number takes the dtype beside it
        ({"a": wg.tensor([1.0]), "b": np.float64(2.0)}, "float32"),
        ({"a": wg.tensor([1.0]), "b": np.ones(1)}, "float64"),
        (wg.tensor([1, 2]), "float64"),
        (np.ones(2, np.float32), "float32"),
    ],
)
def test_dtypes(example: Any, dtype: str) -> None:
    assert layout(example).dtype.name == dtype


def test_numbers_for_all() -> None:
    made = layout(TREE)
    assert made.filled(2.0, "atol").tolist() == [2.0] * 8
    given = {"x": [1.0, 2.0, 3.0], "y": Pair(4.0, [5.0]), "none": None}
    with pytest.raises(wg.ArgumentError, match="atol has another structure"):
        made.filled(given, "atol")
    given["x"] = np.array([1.0, 2.0, 3.0])
    assert made.filled(given, "atol").tolist() == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    given["x"] = np.ones(2)
    with pytest.raises(wg.ShapeError, match=r"atol has shape \(2,\), which does not broadcast to \(2, 3\) of x0"):
        made.filled(given, "atol")


def test_lists_of_rows_are_read_as_one_array() -> None:
    made = layout(np.zeros((2, 3)))
    row = wg.asarray(np.ones(3))
    assert made.read([row, 2.0 * row], "f").tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    with pytest.raises(wg.ArgumentError, match="another structure"):
        made.read([row, row, row], "f")
