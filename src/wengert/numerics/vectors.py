"""Nested containers of numbers as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert import functional as F
from wengert import tree
from wengert._core import Tensor
from wengert.dtypes import DType, float32, float64, result_type
from wengert.errors import ArgumentError, DTypeError, ShapeError, WengertError
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import full


class Layout:
    """Where the leaves of a tree lie in a vector. A list of numbers is one leaf, a vector, as NumPy reads it."""

    def __init__(self, example: Any, who: str, what: str, *, complex_allowed: bool = False) -> None:
        """`who` and `what` (the function, and the argument that was given) stand in messages."""
        self.who, self.what = who, what
        leaves, self.structure = tree.flatten(_as_one_array(example))
        typed = [x.dtype for x in leaves if isinstance(x, Tensor) and x.dtype.is_inexact]
        number = result_type(*typed) if typed else float64  # of plain numbers
        self.leaves = [_floating(x, number, who, what) for x in leaves]
        if not any(math.prod(x.shape) for x in self.leaves):
            raise ArgumentError(f"{who}: there are no numbers in {what}")
        kinds = {x.dtype.kind for x in self.leaves}
        if "c" in kinds and (not complex_allowed or len(kinds) > 1):
            other = "real and complex numbers; make all of them complex" if complex_allowed else "complex numbers"
            raise DTypeError(
                f"{who}: {what} holds {other}" + ("" if complex_allowed else "; split them into two parts")
            )
        self.dtypes: list[DType] = [x.dtype for x in self.leaves]
        self.shapes: list[tuple[int, ...]] = [tuple(int(n) for n in x.shape) for x in self.leaves]
        self.sizes = [math.prod(s) for s in self.shapes]
        self.size = sum(self.sizes)
        self.dtype: DType = result_type(*self.dtypes)

    @property
    def real(self) -> DType:
        """The dtype of times and norms beside the vector."""
        return float32 if self.dtype.name in ("float32", "complex64") else float64

    def vector(self) -> Any:
        """The leaves that the layout was made of, as a vector; differentiable."""
        return self.joined(self.leaves)

    def joined(self, leaves: Sequence[Any]) -> Any:
        """Leaves of these shapes as a vector; differentiable."""
        flat = [F.reshape(_cast(x, self.dtype), (n,)) for x, n in zip(leaves, self.sizes)]
        return flat[0] if len(flat) == 1 else F.concat(flat)

    def tree(self, vector: Any) -> Any:
        """The containers, filled from a vector; its leading axes are those of every leaf. Differentiable."""
        lead = tuple(vector.shape[:-1])
        parts, at = [], 0
        for shape, n, dtype in zip(self.shapes, self.sizes, self.dtypes):
            part = vector if len(self.sizes) == 1 else vector[..., at : at + n]
            parts.append(_cast(F.reshape(part, (*lead, *shape)), dtype))
            at += n
        return tree.unflatten(self.structure, parts)

    def read(self, value: Any, source: str) -> Any:
        """A tree like the example as a vector: the same structure, shapes and dtypes. `source` says what made it."""
        try:
            given = self._leaves_of(value, source)
        except ArgumentError as e:
            raise type(e)(f"{self.who}: {e}") from None
        return self.joined([self._checked(x, k, source) for k, x in enumerate(given)])

    def filled(self, value: Any, name: str) -> np.ndarray[Any, Any]:
        """A number for all, or a tree like the example whose leaves broadcast, as an array of float64."""
        if isinstance(value, (int, float, np.number)) or (isinstance(value, Tensor) and value.ndim == 0):
            return np.full(self.size, float(value))
        value = _as_one_array(value)
        leaves = [value] if self.structure.is_leaf else tree.leaves_like(value, self.structure, f"{self.who}: {name}")
        arrays = [np.asarray(x.detach() if isinstance(x, Tensor) else x, np.float64) for x in leaves]
        for a, shape in zip(arrays, self.shapes):
            if a.ndim > len(shape) or any(n not in (1, m) for n, m in zip(a.shape[::-1], shape[::-1])):
                raise ShapeError(
                    f"{self.who}: {name} has shape {a.shape}, which does not broadcast to {shape} of {self.what}"
                )
        return np.concatenate([np.broadcast_to(a, s).ravel() for a, s in zip(arrays, self.shapes)])

    def _leaves_of(self, value: Any, source: str) -> list[Any]:
        if value is None:
            raise ArgumentError(f"{source} returned None. Is its `return` missing?")
        rows = isinstance(value, (list, tuple)) and not hasattr(value, "_fields")
        if self.structure.is_leaf and rows and self.shapes[0][:1] == (len(value),):
            return [_stacked(value, self.dtypes[0])]
        return tree.leaves_like(value, self.structure, f"what {source} returned")

    def _checked(self, x: Any, k: int, source: str) -> Any:
        dtype, shape = self.dtypes[k], self.shapes[k]
        if isinstance(x, (bool, int, float, complex)) and not shape:
            return full((), x, dtype=dtype)
        t = x if isinstance(x, Tensor) else asarray(x)
        if tuple(t.shape) == shape and t.dtype == dtype:
            return t
        expected, got = f"{dtype.name}{shape}", f"{t.dtype.name}{tuple(t.shape)}"
        error: type[WengertError] = ShapeError if tuple(t.shape) != shape else DTypeError
        place = "" if self.structure.is_leaf else f" at leaf {k} of {self.structure}"
        remedy = "" if error is ShapeError else f"; convert with astype(wg.{dtype.name})"
        raise error(f"{self.who}: {source} returned {got}{place}, expected {expected}, as in {self.what}{remedy}")


def _as_one_array(x: Any) -> Any:
    numbers = (int, float, complex, np.number)
    if type(x) in (list, tuple) and x and all(isinstance(v, numbers) for v in x):
        return np.asarray(x)
    return x


def _stacked(rows: Any, dtype: DType) -> Any:
    return F.stack([x if isinstance(x, Tensor) else asarray(x, dtype=dtype) for x in rows])


def _floating(x: Any, number: DType, who: str, what: str) -> Any:
    """A leaf as a floating tensor; plain numbers have the dtype of the tensors beside them, float64 if there are none."""
    if isinstance(x, (bool, int, float)):
        return asarray(float(x), dtype=number)
    t = x if isinstance(x, Tensor) else asarray(np.asarray(x))
    if t.dtype.kind in "biu":
        t = F.astype(t, float64)
    if t.dtype not in (float32, float64) and t.dtype.kind != "c":
        raise DTypeError(f"{who}: {what} is {t.dtype.name}{tuple(t.shape)}; use float32 or float64")
    return t


def _cast(x: Any, dtype: DType) -> Any:
    return x if x.dtype == dtype else F.astype(x, dtype)
