"""Random programs of matrices and numbers, among them sums: compiled, they have the bits of eager ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import wengert as wg
from tests.programs.test_random_programs import BINARY, SETTINGS, UNARY

Steps = list[tuple[str, int, int, int]]

SUMS: list[Any] = [wg.sum, wg.max, lambda x: wg.mean(x) * 0.5, lambda x: (x * x).sum()]
COLUMNS: list[Any] = [lambda x: x.sum(axis=1, keepdims=True), lambda x: wg.max(x, axis=1, keepdims=True)]


def run(steps: Steps, matrix: Any, *numbers: Any) -> list[Any]:
    """Every value that the steps make; `scalars` and `matrices` are few, so that most values are read several times."""
    matrices, scalars, made = [matrix], list(numbers), []
    for kind, which, i, j in steps:
        m, a, b = matrices[i % len(matrices)], scalars[i % len(scalars)], scalars[j % len(scalars)]
        binary, unary = BINARY[which % len(BINARY)], UNARY[which % len(UNARY)]
        if kind == "sum":
            scalars.append(SUMS[which % len(SUMS)](m))
        elif kind == "numbers":
            scalars.append(binary(a, b))
        elif kind == "number":
            scalars.append(unary(a))
        elif kind == "column":
            made.append(binary(COLUMNS[which % len(COLUMNS)](m), b))
        elif kind == "matrix":
            matrices.append(unary(m))
        else:
            matrices.append(binary(m, b) if which % 2 else binary(b, m))
    return [*made, *scalars[len(numbers) :], *matrices[1:], matrix + 1.0]


KINDS = ["sum", "sum", "numbers", "numbers", "mixed", "mixed", "mixed", "number", "column", "matrix"]
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 40), st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=10
)


def operands(shape: tuple[int, int], dtype: Any) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng([*shape, 3])
    return [rng.uniform(-1.5, 1.5, s).astype(dtype) for s in (shape, ())]


@given(STEPS, st.sampled_from([(1, 1), (1, 7), (7, 1), (3, 4), (2, 500), (300, 3)]))
@settings(SETTINGS, max_examples=150)
def test_values(steps: Steps, shape: tuple[int, int]) -> None:
    compiled = wg.compile(lambda *xs: run(steps, *xs))
    for dtype in (np.float32, np.float64):
        xs = [wg.asarray(a) for a in operands(shape, dtype)]
        for got, expected in zip(compiled(*xs), run(steps, *xs)):
            np.testing.assert_array_equal(got.numpy(), expected.numpy())


@given(STEPS, st.sampled_from([(1, 5), (5, 1), (3, 4), (2, 300)]))
@settings(SETTINGS, max_examples=40)
def test_gradients(steps: Steps, shape: tuple[int, int]) -> None:
    def total(*xs: Any) -> Any:
        return sum((wg.sin(y).sum() for y in run(steps, *xs)), xs[0].sum() * xs[1])

    xs = [wg.asarray(a) for a in operands(shape, np.float64)]
    eager, compiled = (wg.grad(f, (0, 1))(*xs) for f in (total, wg.compile(total)))
    for got, expected in zip(compiled, eager):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9, atol=1e-10)
