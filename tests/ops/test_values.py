"""Every op x sample x dtype: the value against the reference, and its dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.sampling import (
    INTEGERS,
    OPS,
    TESTED_ELSEWHERE,
    WITHOUT_REFERENCE,
    all_dtypes_of,
    array,
    call,
    cases,
    dtypes_of,
    evaluate,
    has_kind,
    has_numbers,
    make,
    numpy_dtype,
    outputs,
    reference,
    references,
    supports,
    tensor,
)
from tests.tolerances import assert_close, assert_same
from wengert import _core
from wengert.dtypes import ALL, as_dtype
from wengert.registry.record import Op
from wengert.registry.samples import Sample


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_every_op_has_samples_and_a_formula(op: Op) -> None:
    assert op.samples, f"{op.name} has no samples: nothing would test it"
    assert op.formula


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_every_op_has_a_reference_or_a_reason(op: Op) -> None:
    assert (op.reference is None) == (op.name in WITHOUT_REFERENCE)


@pytest.mark.parametrize(
    "op", [op for op in OPS.values() if op.differentiable and op.jvp not in ("undefined", "zero")], ids=str
)
def test_every_derivative_is_tested(op: Op) -> None:
    if op.name in TESTED_ELSEWHERE:
        return
    assert any(s.gradients and has_numbers(s) for s in op.samples), f"no sample checks the rule of {op.name}"


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, s: op.reference is not None))
def test_value(op: Op, sample: Sample) -> None:
    for dtype in all_dtypes_of(op, sample):
        arrays = make(sample, dtype, op.name)
        made = outputs(op, [tensor(a) for a in arrays], sample.attrs)
        for got, expected in zip(map(array, made), references(op, arrays, sample.attrs), strict=True):
            _check_value(op, dtype, arrays, got, expected)


def _check_value(op: Op, dtype: str, arrays: list[Any], got: Any, expected: Any) -> None:
    if op.elementwise:
        _check_elementwise_dtype(op, arrays, got)
    with np.errstate(all="ignore"):
        if got.dtype != expected.dtype:
            expected = expected.astype(got.dtype)
    try:
        assert_close(got, expected, _name(got), op.name)
    except AssertionError as e:
        raise AssertionError(f"{op.name} of {dtype}: {e}") from None


def _name(a: np.ndarray[Any, Any]) -> str:
    return as_dtype(a.dtype).name


def _check_elementwise_dtype(op: Op, arrays: list[Any], got: Any) -> None:
    code = as_dtype(arrays[-1].dtype).code
    assert _name(got) == ALL[_core.elementwise_dtypes(op.name, code)[1]].name


def _unary_or_binary(op: Op, sample: Sample) -> bool:
    return op.elementwise and sample is op.samples[0] and has_kind(sample, "float") and op.name != "where"


@pytest.mark.parametrize(("op", "sample"), cases(_unary_or_binary))
def test_integers_as_operands(op: Op, sample: Sample) -> None:
    """Ops of floating numbers turn integers into float32; others compute in the integers."""
    for name in INTEGERS:
        if not supports(op, as_dtype(name)):
            continue
        arrays = [np.ceil(np.abs(np.nan_to_num(a, posinf=7))) for a in make(sample, "float64", op.name)]
        arrays = [np.minimum(a, 100).astype(name) for a in arrays]
        if op.name in ("asin", "acos", "atanh", "erfinv"):
            arrays = [np.zeros_like(a) for a in arrays]
        got = evaluate(op, arrays, sample.attrs)
        wanted = ALL[_core.elementwise_dtypes(op.name, as_dtype(name).code)[0]]
        exact = wanted.is_integer
        with np.errstate(all="ignore"):
            wide = [a if exact else a.astype(np.float64) for a in arrays]
            expected = np.asarray(op.reference(*wide)).astype(got.dtype)  # type: ignore[misc]
        assert_close(got, expected, _name(got), op.name)


SHAPES = [(), (0,), (1,), (1, 1), (3, 0, 2), (5,), (2, 1, 3), (16,), (17,), (33,), (1027,)]


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, s: op.elementwise and s is op.samples[0]))
def test_elementwise_of_any_shape(op: Op, sample: Sample) -> None:
    """Vector kernels have heads and tails; an op of no elements has none."""
    dtype = dtypes_of(sample)[0]
    for shape in SHAPES:
        resized = Sample(tuple(_resized(a, shape) for a in sample.inputs))
        arrays = make(resized, dtype, op.name)
        got = evaluate(op, arrays, ())
        expected = reference(op, arrays, ())
        assert got.shape == shape
        assert_close(got, expected.astype(got.dtype), _name(got), op.name)


def _resized(a: Any, shape: tuple[int, ...]) -> Any:
    if a.values is not None:
        return a._replace(shape=shape, values=None, low=-1.0, high=1.0)
    return a._replace(shape=shape)


def _binary(op: Op, sample: Sample) -> bool:
    return op.elementwise and op.n_inputs == 2 and sample is op.samples[0]


BROADCASTS = [((2, 1, 3), (4, 1)), ((), (3, 2)), ((1,), (5,)), ((3, 1), (1, 4)), ((0, 3), (1, 3)), ((4, 1, 1), (0,))]


@pytest.mark.parametrize(("op", "sample"), cases(_binary))
def test_operands_broadcast(op: Op, sample: Sample) -> None:
    dtype = dtypes_of(sample)[0]
    for a_shape, b_shape in BROADCASTS:
        resized = Sample(tuple(_resized(a, s) for a, s in zip(sample.inputs, (a_shape, b_shape))))
        arrays = make(resized, dtype, op.name)
        got = evaluate(op, arrays, ())
        expected = reference(op, arrays, ())
        assert got.shape == np.broadcast_shapes(a_shape, b_shape)
        assert_close(got, expected.astype(got.dtype), _name(got), op.name)


@pytest.mark.parametrize(("op", "sample"), cases(_binary))
def test_python_scalars_keep_the_dtype(op: Op, sample: Sample) -> None:
    for dtype in dtypes_of(sample):
        a, b = make(sample, dtype, op.name)
        scalar: Any = float(b.flat[0]) if has_kind(sample, "float") else b.flat[0].item()
        right = array(call(op, (tensor(a), scalar), ()))
        left = array(call(op, (scalar, tensor(b)), ()))
        full_a, full_b = np.full_like(a, scalar), np.full_like(b, scalar)
        assert_same(right, evaluate(op, [a, full_b], ()))
        assert_same(left, evaluate(op, [full_a, b], ()))
        assert right.dtype == left.dtype == evaluate(op, [a, b], ()).dtype


def test_promotion_follows_the_array_api() -> None:
    names = [d for d in ALL if d.name not in ("float16", "bfloat16")]
    for a in names:
        for b in names:
            if a.kind == "b" or b.kind == "b" or (a.kind in "iu") != (b.kind in "iu"):
                continue  # mixed kinds are ours to choose
            if {a.name, b.name} & {"uint64"} and {a.kind, b.kind} == {"i", "u"}:
                continue  # undefined in the standard
            expected = np.promote_types(numpy_dtype(a.name), numpy_dtype(b.name)).name
            assert ALL[_core.promote(a.code, b.code)].name == expected, (a, b)


def test_promotion_is_symmetric() -> None:
    for a in ALL:
        assert _core.promote(a.code, a.code) == a.code
        for b in ALL:
            assert _core.promote(a.code, b.code) == _core.promote(b.code, a.code)


@pytest.mark.parametrize("dtype", [d.name for d in ALL if d.kind != "b"])
def test_creation_in_every_dtype(dtype: str) -> None:
    code = as_dtype(dtype).code
    for name, attrs, expected in (
        ("full", ((2, 3), code, 7.0), np.full((2, 3), 7.0)),
        ("iota", ((4,), code, 2.0, 3.0), np.array([2.0, 5.0, 8.0, 11.0])),
        ("size_scalar", ((5,), code), np.array(5.0)),
    ):
        got = OPS[name](*attrs)
        assert got.dtype == dtype
        np.testing.assert_array_equal(array(got).astype(np.complex128), expected)
