"""Every op of the registry under autocast: the precision that its record says, and the same bits in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.ops.sampling import OPS, array, call, cases, has_kind, make, tensor
from wengert.dtypes import as_dtype
from wengert.registry.precision import WORDS
from wengert.registry.record import Op
from wengert.registry.samples import Sample

HALVES = (wg.float16, wg.bfloat16)


def _first_floating() -> list[Any]:
    """Of each public op the first sample with floating operands that has no zero size."""
    found: dict[str, Any] = {}
    for case in cases(lambda op, s: has_kind(s, "float") and all(0 not in a.shape for a in s.inputs)):
        found.setdefault(case.values[0].name, case)
    return list(found.values())


def _results(y: Any) -> list[Any]:
    return list(y) if isinstance(y, (tuple, list)) else [y]


def _cast(op: Op, x: Any, low: Any) -> Any:
    """What autocast makes of an operand, said once more."""
    if op.precision == "low" and x.dtype == wg.float32:
        return x.astype(low)
    return x.astype(wg.float32) if op.precision == "full" and x.dtype in HALVES else x


@pytest.mark.parametrize("low", HALVES)
@pytest.mark.parametrize(("op", "sample"), _first_floating())
def test_operands_are_cast_as_the_record_says(op: Op, sample: Sample, low: Any) -> None:
    given = [tensor(a) for a in make(sample, "float32", op.name)]
    if op.precision == "full":
        given = [x.astype(low) if x.dtype == wg.float32 else x for x in given]
    try:
        expected = _results(call(op, [_cast(op, x, low) for x in given], sample.attrs))
    except wg.DTypeError:
        assert op.precision == "any"  # it has no kernel for half precision, and is not asked for one
        return

    def f(*xs: Any) -> Any:
        return tuple(_results(call(op, list(xs), sample.attrs)))

    with wg.autocast(low):
        eager, compiled = f(*given), wg.compile(f)(*given)
    for results in (eager, compiled):
        assert [y.dtype for y in results] == [y.dtype for y in expected]
        assert all(np.array_equal(array(a), array(b), equal_nan=True) for a, b in zip(results, expected))


def test_every_op_says_its_precision() -> None:
    assert {op.precision for op in OPS.values()} == set(WORDS)
    products = {name for name, op in OPS.items() if op.precision == "low"}
    assert {"matmul", "conv", "conv_bias", "conv_transpose", "lstm", "gru"} == products
    assert as_dtype("bfloat16") == wg.bfloat16
