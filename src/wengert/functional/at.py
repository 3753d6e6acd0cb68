"""`x.at[key].set(v)` and its kin: what `x[key] = v`, `x[key] += v`, … would make of x, as a new tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert._core import Tensor
from wengert.functional.indexing import getitem, setitem
from wengert.functional.scatter_reduce import scatter_reduce
from wengert.functional.subscripts import entries_of
from wengert.tensors.arguments import as_dtype_of, as_tensor, iota, native
from wengert.tensors.conversion import asarray

_reshape, _copy, _broadcast_to = native("reshape"), native("copy"), native("broadcast_to")
_maximum, _minimum, _mul, _add = native("maximum"), native("minimum"), native("mul"), native("add")


class At:
    """`x.at`, which takes every key that `x[key]` takes.

    >>> import wengert as wg
    >>> x = wg.tensor([1.0, 2.0, 3.0])
    >>> x.at[[0, 0]].add(10.0).tolist(), x.at[1:].set(0.0).tolist()
    ([21.0, 2.0, 3.0], [1.0, 0.0, 0.0])
    """

    __slots__ = ("_x",)

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> Selection:
        return Selection(self._x, key)

    def __repr__(self) -> str:
        return f"<at of {self._x!r}>"


class Selection:
    """A part of a tensor, to be read or replaced. A place that the key names twice is changed twice; of several values that
    are set the last one wins. Derivatives flow to the tensor and to the value."""

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Any) -> None:
        self._x, self._key = x, key

    def get(self) -> Tensor:
        """x[key]."""
        return getitem(self._x, self._key)

    def set(self, value: Any) -> Tensor:
        """x with the value at the place."""
        y: Tensor = _copy(self._x)
        setitem(y, self._key, value)
        return y

    def add(self, value: Any) -> Tensor:
        """x with the value added at the place."""
        return self._combined(value, _add, "sum")

    def multiply(self, value: Any) -> Tensor:
        """x multiplied by the value at the place."""
        return self._combined(value, _mul, "prod")

    mul = multiply

    def max(self, value: Any) -> Tensor:
        """x with the larger of itself and the value at the place."""
        return self._combined(value, _maximum, "amax")

    def min(self, value: Any) -> Tensor:
        """x with the smaller of itself and the value at the place."""
        return self._combined(value, _minimum, "amin")

    def _combined(self, value: Any, op: Callable[..., Tensor], reduce: str) -> Tensor:
        x = self._x
        entries, basic = entries_of(self._key, "at", x)
        if basic:  # no place is named twice
            return self.set(op(self.get(), self._value(value)))
        flat = _reshape(x, (x.size,))
        places = getitem(_reshape(iota(x.size, like=x), x.shape), self._key)
        v = _broadcast_to(self._value(value), places.shape)
        n = places.size
        y = scatter_reduce(flat, _reshape(places, (n,)), _reshape(v, (n,)), axis=0, reduce=reduce)
        return _reshape(y, x.shape)

    def _value(self, value: Any) -> Tensor:
        """The value in x's dtype; a Python number takes it at once."""
        if isinstance(value, (bool, int, float, complex, list, tuple)):
            return asarray(value, dtype=self._x.dtype)
        return as_dtype_of(as_tensor(value, "at"), self._x.dtype)
