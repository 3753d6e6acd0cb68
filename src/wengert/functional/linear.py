"""Products of matrices and vectors, with broadcasting over batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import checked_composite, composite
from wengert.errors import ShapeError
from wengert.functional.reductions import sum
from wengert.functional.shapes import moveaxis
from wengert.functional.shortcuts import shortcut
from wengert.ops.tangents import conj
from wengert.program.trace import broadcast_shapes
from wengert.tensors.arguments import (
    as_floating,
    as_tensor,
    describe,
    native,
    one_axis,
    product,
    promoted,
    promoted_for,
)

_matmul, _reshape, _broadcast_to = native("matmul"), native("reshape"), native("broadcast_to")
_mul, _permute = native("mul"), native("permute")


@shortcut
def matmul(a: Any, b: Any) -> Tensor:
    """The matrix product Σₖ aᵢₖ bₖⱼ over the last two axes, also written `a @ b`.

    Leading axes broadcast; a vector counts as a row on the left and as a column on the right.

    >>> matmul([[1, 2], [3, 4]], [1, 1]).tolist()
    [3, 7]
    """
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        a, b = as_tensor(a, "matmul"), as_tensor(b, "matmul")
    if a.dtype.code != b.dtype.code:
        a, b = promoted_for("matmul", [a, b])
    if a.ndim == 2 and b.ndim == 2:
        return _matmul(a, b, 0, 0)
    return _product(a, b)


@composite(precision="low", functions=("matmul",))
def _product(a: Tensor, b: Tensor) -> Tensor:
    """A product of anything but two matrices: one native call for the product and its reshapes."""
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul: operands need at least one axis, got {describe(a)} and {describe(b)}; use *")
    inner = a.shape[-1], b.shape[-2 if b.ndim > 1 else 0]
    if inner[0] != inner[1]:
        raise ShapeError(
            f"matmul: {describe(a)} and {describe(b)} do not fit: the last axis of the first has size "
            f"{inner[0]}, the {'second to last' if b.ndim > 1 else 'only'} axis of the second {inner[1]}"
        )
    if b.ndim <= 2:
        return _tall(a, b)
    return _batched(a, b)


def _tall(a: Tensor, b: Tensor) -> Tensor:
    """b is one matrix or vector: all rows of a are one product."""
    columns = b if b.ndim == 2 else _reshape(b, (b.shape[0], 1))
    lead = a.shape[:-1]
    y = _matmul(_reshape(a, (product(lead), a.shape[-1])), columns, 0, 0)
    return _reshape(y, (*lead, *b.shape[1:]))


def _batched(a: Tensor, b: Tensor) -> Tensor:
    rows = a if a.ndim > 1 else _reshape(a, (1, a.shape[0]))
    batch = broadcast_shapes("matmul", rows.shape[:-2], b.shape[:-2])
    y = _matmul(_spread(rows, batch), _spread(b, batch), 0, 0)
    return y if a.ndim > 1 else _reshape(y, (*batch, b.shape[-1]))


def _spread(x: Tensor, batch: tuple[Any, ...]) -> Tensor:
    shape = (*batch, *x.shape[-2:])
    return x if x.shape == shape else _broadcast_to(x, shape)


def dot(a: Any, b: Any) -> Tensor:
    """Σᵢ aᵢ bᵢ of two vectors.

    >>> dot([1.0, 2.0], [3.0, 4.0]).item()
    11.0
    """
    a, b = as_tensor(a, "dot"), as_tensor(b, "dot")
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"dot: takes two vectors, got {describe(a)} and {describe(b)}; use matmul or tensordot")
    return matmul(a, b)


def vecdot(a: Any, b: Any, *, axis: int = -1) -> Tensor:
    """Σ conj(a) b along an axis, with broadcasting.

    >>> vecdot([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).tolist()
    [3.0, 7.0]
    """
    y: Tensor = _vecdot(a, b, axis)
    return y


def _vecdot_operands(a: Any, b: Any, axis: Any) -> tuple[Any, ...]:
    return as_tensor(a, "vecdot"), as_tensor(b, "vecdot"), axis


@checked_composite(_vecdot_operands, precision="full", functions=("vecdot",))
def _vecdot(a: Any, b: Any, axis: int) -> Any:
    a, b, _ = _vecdot_operands(a, b, axis)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"vecdot: operands need at least one axis, got {describe(a)} and {describe(b)}")
    one_axis(axis, min(a.ndim, b.ndim), "vecdot")
    k = axis if axis < 0 else axis - max(a.ndim, b.ndim)
    if a.shape[k] != b.shape[k]:
        raise ShapeError(f"vecdot: axis {axis} of {describe(a)} and {describe(b)} has different sizes")
    return sum(conj(a) * b, k, dtype=promoted([a, b])[0].dtype)


def outer(a: Any, b: Any) -> Tensor:
    """aᵢ bⱼ of two vectors.

    >>> outer([1, 2], [3, 4]).tolist()
    [[3, 4], [6, 8]]
    """
    a, b = as_tensor(a, "outer"), as_tensor(b, "outer")
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer: takes two vectors, got {describe(a)} and {describe(b)}")
    return _mul(_reshape(a, (a.shape[0], 1)), b)


def tensordot(a: Any, b: Any, *, axes: int | Sequence[Any] = 2) -> Tensor:
    """Sum over the last `axes` axes of a and the first of b, or over the pairs that `axes = (of_a, of_b)` names.

    >>> tensordot([[1, 2], [3, 4]], [[1, 0], [0, 1]], axes=1).tolist()
    [[1, 2], [3, 4]]
    """
    a, b = promoted_for("matmul", [as_tensor(a, "tensordot"), as_tensor(b, "tensordot")])
    if isinstance(axes, int):
        of_a, of_b = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        of_a, of_b = ([x] if isinstance(x, int) else list(x) for x in axes)
    if len(of_a) != len(of_b):
        raise ShapeError(f"tensordot: {len(of_a)} axes of the first operand, {len(of_b)} of the second")
    of_a = [one_axis(x, a.ndim, "tensordot") for x in of_a]
    of_b = [one_axis(x, b.ndim, "tensordot") for x in of_b]
    if any(a.shape[i] != b.shape[j] for i, j in zip(of_a, of_b)):
        raise ShapeError(f"tensordot: sizes of axes {of_a} of {describe(a)} and {of_b} of {describe(b)} differ")
    a, b = moveaxis(a, of_a, range(-len(of_a), 0)), moveaxis(b, of_b, range(len(of_b)))
    rows, cols = a.shape[: a.ndim - len(of_a)], b.shape[len(of_b) :]
    n = product(b.shape[: len(of_b)])
    y = _matmul(_reshape(a, (product(rows), n)), _reshape(b, (n, product(cols))), 0, 0)
    return _reshape(y, (*rows, *cols))


def _linear_operands(*given: Any) -> tuple[Any, ...]:
    return tuple(None if x is None else as_tensor(x, "linear") for x in given)


@checked_composite(_linear_operands, precision="low", functions=("linear",))
def _linear(x: Any, weight: Any, bias: Any) -> Any:
    x, weight, bias = _linear_operands(x, weight, bias)
    if x.ndim == 0 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: {describe(x)} and weight {describe(weight)} do not fit: "
            "the weight is (outputs, inputs), and inputs is the last size of x"
        )
    if bias is not None and (bias.ndim > 1 or (bias.ndim == 1 and bias.shape[0] != weight.shape[0])):
        raise ShapeError(f"linear: bias {describe(bias)} does not fit weight {describe(weight)}")
    if x.dtype.code != weight.dtype.code:
        x, weight = promoted([x, weight])
    y = _project(x, weight)
    return y if bias is None else y + bias


def _project(x: Tensor, weight: Tensor) -> Tensor:
    if x.ndim == 2:
        return _matmul(x, weight, 0, 1)
    lead = x.shape[:-1]
    y = _matmul(_reshape(x, (product(lead), x.shape[-1])), weight, 0, 1)
    return _reshape(y, (*lead, weight.shape[0]))


def linear(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """x weightᵀ + bias; weight is (outputs, inputs).

    >>> linear([[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.5, 0.5, 0.5]).tolist()
    [[1.5, 2.5, 3.5]]
    """
    y: Tensor = _linear(x, weight, bias)
    return y


@composite(precision="low", functions=("bilinear",))
def _bilinear(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    # (…, i) and (o, i, j) give (…, o, j), of which each row is multiplied by b.
    rows, i, j = weight.shape
    flat = _reshape(_permute(weight, (1, 0, 2)), (i, rows * j))
    made = _matmul(_reshape(a, (product(a.shape[:-1]), i)), flat, 0, 0)
    parts = _reshape(made, (*a.shape[:-1], rows, j)) * _reshape(b, (*b.shape[:-1], 1, j))
    y = sum(parts, -1)
    return y if bias is None else y + bias


def bilinear(a: Any, b: Any, weight: Any, bias: Any = None) -> Tensor:
    """y[…, o] = Σ a[…, i] W[o, i, j] b[…, j] + bias[o], with W of shape (out, of a, of b).

    >>> import wengert as wg
    >>> bilinear([1.0, 2.0], [3.0], wg.ones((4, 2, 1))).tolist()
    [9.0, 9.0, 9.0, 9.0]
    """
    given = [as_floating(as_tensor(x, "bilinear")) for x in (a, b, weight, *(() if bias is None else (bias,)))]
    x, y, w, *rest = promoted(given)
    fits = w.ndim == 3 and x.ndim >= 1 and y.ndim >= 1 and tuple(x.shape[:-1]) == tuple(y.shape[:-1])
    fits = fits and x.shape[-1] == w.shape[1] and y.shape[-1] == w.shape[2]
    if not fits or any(tuple(r.shape) != (w.shape[0],) for r in rest):
        raise ShapeError(
            "bilinear: takes (…, i), (…, j), a weight (out, i, j) and a bias (out,), got "
            f"{', '.join(describe(t) for t in (x, y, w, *rest))}"
        )
    single = x.ndim == 1
    if single:
        x, y = _reshape(x, (1, *x.shape)), _reshape(y, (1, *y.shape))
    made: Tensor = _bilinear(x, y, w, rest[0] if rest else None)
    return _reshape(made, made.shape[1:]) if single else made
