"""Methods that change a tensor in place. Each computes the new value with its op and gives it to the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import DType
from wengert.errors import DTypeError, ShapeError
from wengert.functional.elementwise import clip, pow, power_operator
from wengert.functional.gather import masked_fill, scatter, scatter_add
from wengert.functional.indexing import assign
from wengert.functional.linear import matmul
from wengert.functional.scatter_reduce import scatter_reduce
from wengert.program.call_trace import Name, call_trace
from wengert.program.trace import Tracer
from wengert.registry.record import OPS
from wengert.tensors.arguments import as_dtype_of, as_tensor, describe, full, native, shape_text
from wengert.tensors.conversion import check_range
from wengert.tensors.random import randn, uniform

_broadcast_to = native("broadcast_to")
_KIND_ORDER = "buifc"


def _same_kind(given: DType, wanted: DType) -> bool:
    """Whether a result of one dtype may be stored in another: precision may be lost, fractions may not."""
    ranks = [max(_KIND_ORDER.index(d.kind), 2 if d.kind == "u" else 0) for d in (given, wanted)]
    return ranks[0] <= ranks[1]


def store(x: Tensor, value: Tensor, name: str, fresh: bool = False) -> Tensor:
    """x with a new value of its own shape; the dtype may only lose precision. `fresh`: nobody else holds the value."""
    if tuple(value.shape) != tuple(x.shape):
        raise ShapeError(f"{name}: the result {describe(value)} does not fit in place of {describe(x)}")
    if not _same_kind(value.dtype, x.dtype):
        raise DTypeError(
            f"{name}: the result is {value.dtype.name} and cannot be stored in place of {describe(x)}; use astype first"
        )
    value = as_dtype_of(value, x.dtype)
    if fresh and x._plain and value._plain and call_trace() is None:
        return x._take(value, name)
    return assign(x, value, name)


def _method(f: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        value = f(self, *args, **options)
        return store(self, value, name, fresh=not any(value is x for x in (self, *args)))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{name[:-1]}` in place."
    return method


def _operator(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    def operator(self: Tensor, other: Any) -> Any:
        if isinstance(self, Tracer) and not isinstance(self, Name):
            return NotImplemented  # x += y in the rule of an op makes a new x
        result = f(self, other)
        if result is NotImplemented:
            return result
        return store(self, result, name, fresh=result is not self and result is not other)

    operator.__name__ = operator.__qualname__ = name
    return operator


def copy_(self: Tensor, other: Any) -> Tensor:
    """Overwrite the elements with those of another tensor, broadcast and cast to this one.

    >>> import wengert as wg
    >>> wg.zeros((2,)).copy_(wg.tensor([1, 2])).tolist()
    [1.0, 2.0]
    """
    source = as_dtype_of(as_tensor(other, "copy_"), self.dtype)
    if tuple(source.shape) != tuple(self.shape):
        try:
            source = _broadcast_to(source, self.shape)
        except ShapeError:
            message = f"copy_: shape {shape_text(source.shape)} does not broadcast to {describe(self)}"
            raise ShapeError(message) from None
    return assign(self, source, "copy_")


def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to a value.

    >>> import wengert as wg
    >>> wg.zeros((2,)).fill_(3.0).tolist()
    [3.0, 3.0]
    """
    if isinstance(value, Tensor):
        if value.ndim:
            raise ShapeError(f"fill_: takes one number, got {describe(value)}; use copy_")
        return copy_(self, value)
    check_range(value, self.dtype, "fill_")
    if self.dtype.kind in "iub" and abs(value) > 2**53:
        return copy_(self, as_tensor(int(value), "fill_"))
    return assign(self, full(self.shape, value, self.dtype, like=self), "fill_")


def zero_(self: Tensor) -> Tensor:
    """Set every element to zero.

    >>> import wengert as wg
    >>> wg.ones((2,)).zero_().tolist()
    [0.0, 0.0]
    """
    return assign(self, full(self.shape, 0.0, self.dtype, like=self), "zero_")


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Draw every element from a normal distribution."""
    return assign(
        self,
        randn(self.shape, mean=mean, std=std, dtype=self.dtype, generator=generator),
        "normal_",
    )


def uniform_(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    """Draw every element uniformly from [low, high)."""
    return assign(self, uniform(low, high, self.shape, dtype=self.dtype, generator=generator), "uniform_")


def _keeps_dtype(name: str) -> bool:
    for dtype in ("float32", "int64"):
        code = next(d for d, row in enumerate(_core.dtype_table) if row[0] == dtype)
        try:
            computed, result = _core.elementwise_dtypes(name, code)
        except TypeError:
            continue
        return bool(computed == result)
    return False


_OPERATORS = {
    "__iadd__": "add",
    "__isub__": "sub",
    "__imul__": "mul",
    "__itruediv__": "div",
    "__ifloordiv__": "floor_divide",
    "__imod__": "remainder",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift",
}


def methods() -> dict[str, Any]:
    """All in-place methods and operators by name: one for every elementwise op whose result has its operand's dtype."""
    table: dict[str, Any] = {
        op.name + "_": _method(op.function, op.name + "_")
        for op in OPS.values()
        if op.elementwise and op.public and not op.n_conditions and _keeps_dtype(op.name)
    }
    for f in (pow, clip, masked_fill, scatter, scatter_add, scatter_reduce):
        table[f.__name__ + "_"] = _method(f, f.__name__ + "_")
    table.update({f.__name__: f for f in (copy_, fill_, zero_, normal_, uniform_)})
    table.update({slot: _operator(_slot_of(slot), slot) for slot in _OPERATORS})
    table["__ipow__"] = _operator(power_operator, "__ipow__")
    table["__imatmul__"] = _operator(matmul, "__imatmul__")
    return table


def _slot_of(slot: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(Tensor, slot.replace("__i", "__", 1))
    return method
