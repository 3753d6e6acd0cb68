"""Operands as they come: transposed, stepped, reversed, broadcast. Values and derivatives do not depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests import finite_differences as fd
from tests.ops.sampling import (
    COMPLEXES,
    Differentiable,
    array,
    call,
    cases,
    differentiable,
    dtypes_of,
    make,
    takes_complex,
    tensor,
)
from tests.tolerances import AGREEMENT, assert_close, assert_near, assert_same
from wengert.dtypes import as_dtype
from wengert.ops import OPS
from wengert.registry.record import Op
from wengert.registry.samples import Sample
from wengert.transforms.functional import jvp, vjp


def transposed(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asfortranarray(a) if a.ndim > 1 else a


def stepped(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not a.ndim:
        return a
    big = np.zeros(tuple(2 * n + 1 for n in a.shape), a.dtype)
    view = big[tuple(slice(1, None, 2) for _ in a.shape)]
    view[...] = a
    return view


def reversed_(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flip = tuple(slice(None, None, -1) for _ in a.shape)
    return np.ascontiguousarray(a[flip])[flip] if a.ndim else a


def offset(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Packed rows of a wider matrix, not at its start."""
    if not a.ndim:
        return a
    big = np.zeros((*a.shape[:-1], a.shape[-1] + 3), a.dtype)
    big[..., 2 : 2 + a.shape[-1]] = a
    return big[..., 2 : 2 + a.shape[-1]]


LAYOUTS = [transposed, stepped, reversed_, offset]
Layout = Callable[[Any], Any]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("op", "sample"), cases(lambda op, s: any(a.shape for a in s.inputs)))
def test_value_of_any_layout(op: Op, sample: Sample, layout: Layout) -> None:
    for dtype in (*dtypes_of(sample)[:2], *(COMPLEXES[:1] if takes_complex(op, sample) else ())):
        arrays = make(sample, dtype, op.name)
        packed = array(call(op, [tensor(a) for a in arrays], sample.attrs))
        given = [tensor(layout(a)) for a in arrays]
        for t, a in zip(given, arrays):
            np.testing.assert_array_equal(array(t), a)
        got = array(call(op, given, sample.attrs))
        if op.elementwise or op.view:
            assert_same(got, packed)
        else:
            assert_close(got, packed, as_dtype(got.dtype).name)


@pytest.mark.parametrize("layout", [transposed, stepped, reversed_], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("op", "sample"), cases(differentiable))
def test_derivative_of_any_layout(op: Op, sample: Sample, layout: Layout) -> None:
    f = Differentiable(op, sample)
    y, pull = vjp(f, *map(tensor, f.xs))
    (bar,) = fd.seeds([y.shape], 1)
    packed = [array(g) for g in pull(tensor(bar))]
    _, pull = vjp(f, *(tensor(layout(x)) for x in f.xs))
    for g, e in zip(pull(tensor(layout(bar))), packed):
        assert_near(array(g), e, AGREEMENT)
    x_dots = fd.seeds([x.shape for x in f.xs])
    _, y_dot = jvp(f, tuple(map(tensor, f.xs)), tuple(map(tensor, x_dots)))
    _, laid = jvp(f, tuple(tensor(layout(x)) for x in f.xs), tuple(tensor(layout(d)) for d in x_dots))
    assert_near(array(laid), array(y_dot), AGREEMENT)


def _singular(sample: Sample) -> bool:
    return any(a.form and len(a.shape) == 2 for a in sample.inputs)  # if all rows are the same


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, s: any(a.shape for a in s.inputs)))
def test_broadcast_operands(op: Op, sample: Sample) -> None:
    """Stride 0: one row stands for all."""
    arrays = make(sample, dtypes_of(sample)[0], op.name)
    if any(0 in a.shape for a in arrays) or _singular(sample):
        return
    rows = [a[(slice(0, 1),) + (slice(None),) * (a.ndim - 1)] if a.ndim else a for a in arrays]
    spread = [OPS["broadcast_to"](tensor(r), a.shape) for r, a in zip(rows, arrays)]
    packed = [tensor(np.broadcast_to(r, a.shape).copy()) for r, a in zip(rows, arrays)]
    got = array(call(op, spread, sample.attrs))
    expected = array(call(op, packed, sample.attrs))
    assert_close(got, expected, as_dtype(got.dtype).name)


@pytest.mark.parametrize(("op", "sample"), cases(differentiable))
def test_derivative_of_broadcast_operands_and_seeds(op: Op, sample: Sample) -> None:
    f = Differentiable(op, sample)
    if any(0 in x.shape for x in f.xs) or _singular(sample):
        return
    rows = [x[(slice(0, 1),) + (slice(None),) * (x.ndim - 1)] if x.ndim else x for x in f.xs]
    spread = [OPS["broadcast_to"](tensor(r), x.shape) for r, x in zip(rows, f.xs)]
    packed = [tensor(np.broadcast_to(r, x.shape).copy()) for r, x in zip(rows, f.xs)]
    y, pull = vjp(f, *packed)
    seed = 0.7
    expected = pull(tensor(np.full(y.shape, seed)))
    _, pull = vjp(f, *spread)
    got = pull(OPS["broadcast_to"](tensor(np.asarray(seed)), y.shape))
    for g, e in zip(got, expected):
        assert_near(array(g), array(e), AGREEMENT)


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, s: bool(s.inputs)))
def test_operands_are_not_written(op: Op, sample: Sample) -> None:
    arrays = make(sample, dtypes_of(sample)[0], op.name)
    before = [a.copy() for a in arrays]
    call(op, [tensor(a) for a in arrays], sample.attrs)
    for a, b in zip(arrays, before):
        np.testing.assert_array_equal(a, b)
