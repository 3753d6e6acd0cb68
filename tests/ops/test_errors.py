"""Invalid samples: each raises the error that it names, says which op, and leaves the operands alone."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.ops.sampling import OPS, array, call, make, tensor
from wengert import errors
from wengert.registry.record import Op
from wengert.registry.samples import Invalid, Sample
from wengert.tensors.conversion import asarray

INVALID = [
    pytest.param(op, invalid, id=f"{op.name}-{k}") for op in OPS.values() for k, invalid in enumerate(op.invalid)
]


@pytest.mark.parametrize(("op", "invalid"), INVALID)
def test_invalid_sample(op: Op, invalid: Invalid) -> None:
    arrays = make(Sample(invalid.inputs, invalid.attrs), "float64", op.name)
    tensors = [tensor(a) for a in arrays]
    with pytest.raises(getattr(errors, invalid.error), match=re.escape(invalid.match)) as caught:
        call(op, tensors, invalid.attrs)
    assert op.name in str(caught.value), f"the message does not name the op: {caught.value}"
    for t, a in zip(tensors, arrays):
        np.testing.assert_array_equal(array(t), a)


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.n_inputs > 0], ids=str)
def test_wrong_number_of_arguments(op: Op) -> None:
    with pytest.raises(TypeError, match=op.name):
        op()


BINARY = [op for op in OPS.values() if op.elementwise and op.n_inputs == 2]


@pytest.mark.parametrize("op", BINARY, ids=str)
def test_mismatched_shapes_name_both(op: Op) -> None:
    dtype = np.int64 if op.invalid and op.invalid[0].error == "DTypeError" else np.float64
    a, b = asarray(np.ones((2, 3), dtype)), asarray(np.ones((2, 4), dtype))
    with pytest.raises(errors.ShapeError) as caught:
        op(a, b)
    message = str(caught.value)
    assert op.name in message and "(2, 3)" in message and "(2, 4)" in message


# Attributes that no op may take without a word: (op, shapes, attributes).
X: Any = np.arange(12.0).reshape(3, 4)
BAD_ATTRIBUTES: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("reshape", (X,), ((-1, 4),)),
    ("reshape", (X,), ((5, 3),)),
    ("permute", (X,), ((0,),)),
    ("permute", (X,), ((0, 2),)),
    ("permute", (X,), ((0, -1),)),
    ("broadcast_to", (X,), ((4,),)),
    ("broadcast_to", (X,), ((3, -4),)),
    ("cast", (X,), (99,)),
    ("cast", (X,), (-1,)),
    ("slice", (X,), ((0, 0), (3, 5), (1, 1))),
    ("slice", (X,), ((-1, 0), (1, 4), (1, 1))),
    ("slice", (X,), ((2, 0), (2, 4), (1, 1))),
    ("slice", (X,), ((0, 0), (2, 4), (-1, 1))),
    ("slice", (X,), ((0,), (3,), (1,))),
    ("slice", (X,), ((0, 0), (3, 4), (0, 1))),
    ("unslice", (X,), ((2, 4), (0, 0), (1, 1))),
    ("unslice", (X,), ((3, 4), (1, 0), (1, 1))),
    ("slice_update", (X, np.ones((2, 2))), ((2, 0), (1, 1))),
    ("slice_update", (X, np.ones(2)), ((2, 0), (1, 1))),
    ("concat", (X, np.ones((3, 3))), (0,)),
    ("concat", (X, X), (2,)),
    ("concat", (), (0,)),
    ("as_strided", (X,), ((4, 4), (4, 1), (0,))),
    ("as_strided", (X,), ((2, 2), (4, 1), (11,))),
    ("as_strided", (X,), ((2, 2), (4, 1), (-1,))),
    ("as_strided", (X,), ((2, 2), (-4, 1), (0,))),
    ("as_strided_add", (np.ones((4, 4)),), ((3, 4), (4, 1), (0,))),
    ("as_strided_update", (X, np.ones((4, 4))), ((4, 4), (4, 1), (0,))),
    ("triu", (np.ones(3),), (0,)),
    ("tril", (np.ones(3),), (0,)),
    ("sum", (X,), ((2,), 0)),
    ("sum", (X,), ((0, 0), 0)),
    ("max", (X,), ((1, 1), 0)),
    ("argmax", (X,), (2, 0)),
    ("take", (X, np.array([0, 3])), (0,)),
    ("take", (X, np.array([-4])), (0,)),
    ("take", (X, np.array([0])), (2,)),
    ("take", (X, np.array([0.5])), (0,)),
    ("index_add", (np.ones((2, 4)), np.array([0, 3])), ((3, 4), 0)),
    ("index_add", (np.ones((2, 4)), np.array([0, 1])), ((3, 5), 0)),
    ("index_put", (X, np.array([3]), np.ones((1, 4))), (0,)),
    ("index_put", (X, np.array([0]), np.ones((2, 4))), (0,)),
    ("take_along_axis", (X, np.array([[0], [4], [0]])), (1,)),
    ("take_along_axis", (X, np.array([0])), (1,)),
    ("scatter_along_axis", (X, np.array([[0], [4], [0]]), np.ones((3, 1))), (1,)),
    ("scatter_along_axis", (X, np.array([[0], [1], [0]]), np.ones((3, 2))), (1,)),
    ("scatter_add_along_axis", (np.ones((3, 1)), np.array([[0], [9], [0]])), ((3, 4), 1)),
    ("winners", (np.array([0, 5]),), ((5,),)),
    ("matmul", (X, X), (0, 0)),
    ("matmul", (np.ones(3), X), (0, 0)),
    ("matmul", (X, np.ones((2, 4, 3))), (0, 0)),
    ("full", (), ((-1,), 11, 0.0)),
    ("full", (), ((2,), 99, 0.0)),
    ("iota", (), ((-2,), 11, 0.0, 1.0)),
    ("cumsum", (X,), (2, 0)),
    ("cumprod", (X,), (2, 0)),
    ("random_uniform", (), ((2,), 4, (1, 2), (0,))),
    ("random_integers", (), ((2,), (1, 2), (0,), (5,), (5,))),
]


@pytest.mark.parametrize(("name", "arrays", "attrs"), BAD_ATTRIBUTES, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_attributes(name: str, arrays: tuple[Any, ...], attrs: tuple[Any, ...]) -> None:
    with pytest.raises(errors.WengertError) as caught:
        call(OPS[name], [asarray(np.array(a)) for a in arrays], attrs)
    assert name in str(caught.value), f"the message does not name the op: {caught.value}"


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.n_inputs == 1 and op.elementwise], ids=str)
def test_what_is_not_a_tensor(op: Op) -> None:
    for junk in ("text", None, object(), {}):
        with pytest.raises(TypeError):
            op(junk)
