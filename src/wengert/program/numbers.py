"""Python numbers while tracing: arguments of a compiled function whose values change from call to call.

A number stands for an operand without axes, as weak beside tensors as the number itself. Arithmetic with other numbers
gives numbers, in double precision as Python's. Comparing an argument with a constant is a condition of the trace, a guard.
Whoever asks for the value itself (a size, an axis, a branch on something computed) makes the argument static: then the
function is traced for each of its values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert import _core
from wengert.dtypes import ALL as DTYPES
from wengert.dtypes import DType, float32, float64, int64
from wengert.errors import TraceError
from wengert.registry.record import OPS

_core.set_numpy_types(np.float64, np.float32, np.int64)

_DTYPES: dict[type, DType] = {float: float64, int: int64, np.float64: float64, np.float32: float32, np.int64: int64}
_LARGEST_ARGUMENT = 2**31  # as core/bind/call_arguments.cpp: kLargestInteger
_LARGEST_EXACT = 2**53  # largest integer that float64 represents exactly
_Comparison = _core.NumberGuard.Comparison
_COMPARISONS: dict[_core.NumberGuard.Comparison, Callable[[Any, Any], bool]] = {
    _Comparison.LESS: operator.lt,
    _Comparison.LESS_EQUAL: operator.le,
    _Comparison.EQUAL: operator.eq,
    _Comparison.GREATER_EQUAL: operator.ge,
    _Comparison.GREATER: operator.gt,
}


def may_be_operand(x: Any) -> bool:
    """Whether a number of this type and size can be an operand of a compiled function."""
    dtype = _DTYPES.get(type(x))
    return dtype is not None and (dtype is not int64 or abs(int(x)) <= _LARGEST_ARGUMENT)


def operand_type(x: Any) -> tuple[int, tuple[int, ...]]:
    """Dtype code and shape of the operand for a number."""
    return _DTYPES[type(x)].code, ()


class Numbers:
    """What a trace learns about the numbers that are its operands."""

    def __init__(self) -> None:
        self.needed: set[int] = set()  # positions of arguments whose actual values the function needed
        self.guards: list[_core.NumberGuard] = []
        self.ended = False

    def argument(self, x: Any, tracer: Any, position: int, index: int) -> Number:
        """The number that represents argument x, which is input `index` of the program."""
        bound = _LARGEST_ARGUMENT if _DTYPES[type(x)] is int64 else 0
        return _number(self, tracer, x, frozenset({position}), bound, index)


class Number:
    """A number that is only known when the program runs: a value of the program, with its value in the traced call."""

    __slots__ = ("_bound", "_hint", "_index", "_numbers", "_roots", "_tensor")

    _numbers: Numbers
    _tensor: Any  # 0-d
    _hint: Any
    _roots: frozenset[int]  # positions of the arguments that it is computed from
    _bound: int  # bound on the absolute value of an integer
    _index: int  # input number of an argument; -1 if computed

    @property  # type: ignore[misc]  # read-only
    def __class__(self) -> Any:  # so that isinstance(x, float) holds as for the number itself
        return type(self._hint)

    def known(self) -> Any:
        """The actual value. The arguments that it is computed from become static."""
        if self._numbers.ended:
            raise TraceError("a number was kept from the tracing of a compiled function, where it has no value")
        self._numbers.needed |= self._roots
        return self._hint

    def zero(self) -> int | float:
        """A Python number of the same kind."""
        return 0 if self._tensor.dtype is int64 else 0.0

    def weak(self, dtype: int) -> Any:
        """The number as an operand beside tensors of this dtype: a traced tensor, or the actual value if it has to fit."""
        kind = DTYPES[dtype].kind
        if kind in "iub" and (dtype != int64.code or self._tensor.dtype != int64):
            return self.known()
        return self._tensor if self._tensor.dtype.code == dtype else OPS["cast"](self._tensor, dtype)

    def _compare(self, other: Any, which: _core.NumberGuard.Comparison) -> Any:
        if isinstance(other, _core.Tensor):
            return NotImplemented
        constant = type(other) in (int, float, bool) and abs(other) <= _LARGEST_EXACT
        if self._index < 0 or not constant:
            return bool(_COMPARISONS[which](self.known(), _known(other)))
        outcome = bool(_COMPARISONS[which](self._hint, other))
        self._numbers.guards.append(_core.NumberGuard(self._index, which, float(other), outcome))
        return outcome

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, _Comparison.LESS)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, _Comparison.LESS_EQUAL)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, _Comparison.EQUAL)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, _Comparison.GREATER_EQUAL)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, _Comparison.GREATER)

    def __ne__(self, other: object) -> Any:
        equal = self._compare(other, _Comparison.EQUAL)
        return equal if equal is NotImplemented else not equal

    def __bool__(self) -> bool:
        return not self._compare(0, _Comparison.EQUAL)

    def __hash__(self) -> int:
        return hash(self.known())

    def __neg__(self) -> Any:
        return _number(self._numbers, -self._tensor, -self._hint, self._roots, self._bound)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _number(self._numbers, OPS["abs"](self._tensor), abs(self._hint), self._roots, self._bound)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.known(), name)


class Integer(Number):
    """A number that can be an index."""

    __slots__ = ()

    def __index__(self) -> int:
        return operator.index(self.known())


_core.set_traced_number(Number)


def _number(numbers: Numbers, tensor: Any, hint: Any, roots: frozenset[int], bound: int = 0, index: int = -1) -> Number:
    x: Number = (Integer if tensor.dtype is int64 else Number).__new__(Integer if tensor.dtype is int64 else Number)
    x._numbers, x._tensor, x._hint, x._roots, x._bound, x._index = numbers, tensor, hint, roots, bound, index
    return x


def is_number(x: Any) -> bool:
    """Whether x represents a number while tracing."""
    return type(x) is Number or type(x) is Integer


def as_real(x: Any) -> Any:
    """The number as a Python float, exactly, so that computations with it do not use the precision of a NumPy scalar."""
    if not is_number(x):
        return x if type(x) is float else float(x)
    if x._tensor.dtype is float64:
        return x
    return _number(x._numbers, OPS["cast"](x._tensor, float64.code), float(x._hint), x._roots, index=x._index)


def _known(x: Any) -> Any:
    return x.known() if is_number(x) else x


def _arithmetic(name: str, f: Callable[[Any, Any], Any], op: str) -> Any:
    """An operator on two numbers, at least one of which is symbolic."""

    def apply(a: Any, b: Any) -> Any:
        parts = [x for x in (a, b) if is_number(x)]
        if any(isinstance(x, (_core.Tensor, _core.Dim, np.ndarray)) for x in (a, b)):
            return NotImplemented
        hint = f(*(x._hint if is_number(x) else x for x in (a, b)))
        dtype, bound = _result(op, a, b), _bound(op, a, b)
        if dtype is None or bound > _LARGEST_EXACT:
            return f(_known(a), _known(b))
        operands = [_as_operand(x, dtype) for x in (a, b)]
        roots = frozenset().union(*(x._roots for x in parts))
        return _number(parts[0]._numbers, OPS[op](*operands), hint, roots, bound)

    apply.__name__ = name
    return apply


def _result(op: str, a: Any, b: Any) -> DType | None:
    """The dtype in which Python, or NumPy for its scalars, computes; None if we do not have it."""
    dtypes = [x._tensor.dtype if is_number(x) else _DTYPES.get(type(x)) for x in (a, b)]
    if None in dtypes:
        return None
    if float32 in dtypes:  # beside a constant of Python it stays float32; beside an argument that depends on its type
        return float32 if not (is_number(a) and is_number(b)) and op != "div" else None
    return float64 if op == "div" or float64 in dtypes else int64


def _bound(op: str, a: Any, b: Any) -> int:
    bounds = [x._bound if is_number(x) else abs(x) if type(x) is int else 0 for x in (a, b)]
    return bounds[0] * bounds[1] if op == "mul" else 0 if op == "div" else bounds[0] + bounds[1]


def _as_operand(x: Any, dtype: DType) -> Any:
    if not is_number(x):
        return float(x) if dtype is not int64 else x
    return x._tensor if x._tensor.dtype is dtype else OPS["cast"](x._tensor, dtype.code)


def _on_known(name: str, f: Callable[..., Any]) -> Any:
    def apply(self: Any, *rest: Any) -> Any:
        if any(isinstance(x, _core.Tensor) for x in rest):
            return NotImplemented
        return f(self.known(), *map(_known, rest))

    apply.__name__ = name
    return apply


def _on_known_reflected(name: str, f: Callable[..., Any]) -> Any:
    def apply(self: Any, other: Any) -> Any:
        return NotImplemented if isinstance(other, _core.Tensor) else f(_known(other), self.known())

    apply.__name__ = name
    return apply


def _define_operators() -> None:
    for name, op in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div")):
        forward = _arithmetic(f"__{name}__", getattr(operator, name), op)
        setattr(Number, f"__{name}__", forward)
        setattr(Number, f"__r{name}__", lambda b, a, forward=forward: forward(a, b))
    for name in ("pow", "floordiv", "mod", "divmod"):
        f = getattr(operator, name, divmod)
        setattr(Number, f"__{name}__", _on_known(f"__{name}__", f))
        setattr(Number, f"__r{name}__", _on_known_reflected(f"__r{name}__", f))
    for name, f in (("float", float), ("int", int), ("complex", complex), ("repr", repr), ("str", str), ("format", format),
                    ("round", round)):  # fmt: skip
        setattr(Number, f"__{name}__", _on_known(f"__{name}__", f))
    for name in ("trunc", "floor", "ceil"):
        setattr(
            Number, f"__{name}__", _on_known(f"__{name}__", lambda x, name=name: getattr(float(x), f"__{name}__")())
        )


_define_operators()
