"""Every op: the pattern of its Jacobian has all entries that are not zero, and no others where structure alone decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.sampling import TESTED_ELSEWHERE, Differentiable, array, cases, differentiable, kind_of, tensor
from wengert.ops import OPS
from wengert.ops.sparsity import WORDS
from wengert.registry.record import Op
from wengert.registry.samples import Sample
from wengert.transforms.jacobian import jacfwd
from wengert.transforms.sparsity import detect

_MOST = 40_000  # entries of a dense Jacobian

# Ops whose records are patterns, exactly. The others mix what they read, and numbers may vanish.
EXACT = {"elementwise", "same", "moves", "adds", "along"}
EXACT_OPS = (
    "reshape", "sum", "cumsum", "matmul", "conv", "conv_transpose", "conv_kernel", "conv_bias", "pool_sum", "pool_spread",
    "softmax", "where", "prod", "standardise_tangent", "solve_triangular", "logcumsumexp",
)  # fmt: skip
# Ops with derivatives that are zero at some of the samples' numbers.
VANISHING = {
    **dict.fromkeys(["maximum", "minimum", "clip", "relu", "hard_swish", "hard_swish_slope"], "parts are constant"),
    **dict.fromkeys(
        ["nextafter", "remainder", "betainc_by_ab", "gammainc_by_a"], "an operand does not matter everywhere"
    ),
    **dict.fromkeys(["random_dropout", "pool_take"], "draws or data decide"),
    "copysign": "the sign's operand has no derivative",
    "floor_divide": "flat",
    "solve_triangular": "the triangle that is not read",
    "make_complex": "real and imaginary parts are one element",
    "where": "random data decide",
}


def _fits(op: Op, sample: Sample) -> bool:
    return differentiable(op, sample) and not sample.phases


def _size(f: Differentiable) -> int:
    return sum(x.size for x in f.xs) * int(array(f(*(tensor(x) for x in f.xs))).size)


def _dense(f: Differentiable, n: int) -> Any:
    xs = [tensor(x) for x in f.xs]
    blocks = jacfwd(f, tuple(range(len(xs))))(*xs)
    return np.concatenate(
        [array(b).reshape(b.size // x.size if x.size else n, x.size) for b, x in zip(blocks, f.xs)], 1
    )


@pytest.mark.parametrize(("op", "sample"), cases(_fits))
def test_pattern_has_all_entries(op: Op, sample: Sample) -> None:
    f = Differentiable(op, sample)
    if _size(f) > _MOST:
        pytest.skip("a dense Jacobian of this size takes long; smaller samples of the op are there")
    xs = tuple(tensor(x) for x in f.xs)
    found = detect(f, xs, {}, tuple(range(len(xs))), "test").sets
    pattern = np.zeros((found.n_rows, found.n_columns), bool)
    pattern[found.rows(), found.columns] = True
    if op.name in TESTED_ELSEWHERE:
        return  # what its tangents are is not the derivative of the op itself
    nonzero = _dense(f, found.n_rows) != 0
    missing = np.argwhere(nonzero & ~pattern)
    assert not len(missing), f"{op.name} has an entry {missing[0]} that its pattern lacks"
    literal = any(kind_of(a) == "float" and a.values is not None for a in sample.inputs)  # with zeros among them
    if (op.sparsity in EXACT or op.name in EXACT_OPS) and op.name not in VANISHING and not literal:
        assert np.array_equal(pattern, nonzero), op.name


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_op_says_what_its_results_depend_on(op: Op) -> None:
    assert callable(op.sparsity) or op.sparsity in WORDS
