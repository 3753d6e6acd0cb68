"""Forward mode: tensors that carry a tangent.

A dual tensor at a level pairs a value with a tangent; both may be duals of lower levels. An op on duals of plain tensors is
applied natively, as one program for value and tangent. What comes here is the rest: where a function is being traced, the
op is an instruction of the trace, and its rule makes those of its tangent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import DType
from wengert.errors import GradientError, ShapeError
from wengert.passes.linearize import is_complex, jvp_rule
from wengert.program.call_trace import Name
from wengert.program.nested import settled
from wengert.registry.record import Op
from wengert.registry.zero import ZERO
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import zeros_like
from wengert.tensors.leaving import refuse_leaving
from wengert.tensors.rebinding import Pair, View, another_name, argument, end, note_view, write


@_core.core_layout  # writing a value with a tangent into a plain tensor turns it into one of these
class DualTensor(Tensor):
    """A value and its tangent. `dual(value, tangent)` makes one, and so does every operation on one.

    >>> import wengert as wg
    >>> y = wg.exp(DualTensor(wg.tensor(0.0), wg.tensor(2.0)))
    >>> y.value.item(), y.tangent.item()
    (1.0, 2.0)
    """

    __slots__ = ()

    def __init__(self, value: Any, tangent: Any) -> None:
        _core.hold(self, dual(value, tangent)._pair)

    @property
    def _pair(self) -> Pair:
        pair: Pair = _core.pair_of(self)
        return pair

    @property
    def value(self) -> Tensor:
        """The value without its tangent, as a new tensor: writing to it does not change the dual."""
        value: Tensor = another_name(self._pair.value)
        return value

    @property
    def tangent(self) -> Tensor:
        """The derivative along the direction of this level; zeros if nothing depends on it."""
        tangent = self._tangent
        if tangent is None:
            return zeros_like(self.value)
        named: Tensor = another_name(tangent)
        return named

    @property
    def _tangent(self) -> Tensor | None:
        tangent: Tensor | None = self._pair.tangent
        return tangent

    @property
    def _trace(self) -> Any:
        return self._pair.level

    @property
    def _level(self) -> int:
        level: int = self._pair.level.level
        return level

    @property
    def shape(self) -> tuple[int, ...]:
        return self._pair.value.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> DType:
        return self._pair.value.dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return self._pair.value.ndim  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        return self._pair.value.size  # type: ignore[no-any-return]

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]  # nobody sets it
        return self._pair.value.requires_grad  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> NoReturn:
        refuse_leaving(self, "float", True)

    def __int__(self) -> int:
        return int(self.value)

    def __complex__(self) -> NoReturn:
        refuse_leaving(self, "complex", True)

    def __index__(self) -> int:
        return self.value.__index__()

    def item(self) -> NoReturn:
        """Not available: a Python number has no tangent; use `value.item()`."""
        refuse_leaving(self, "item", True)

    def numpy(self) -> NoReturn:
        """Not available: an array has no tangent; use `value.numpy()`."""
        refuse_leaving(self, "numpy", True)

    def detach(self) -> Tensor:
        """The value without its tangent, cut from the graph."""
        return self.value.detach()

    def __repr__(self) -> str:
        return f"DualTensor(value={self.value!r}, tangent={self.tangent!r})"


class DualName(DualTensor, Name):  # type: ignore[misc, override]  # each has its own idea of the same attributes
    """A traced tensor into which a value with a tangent was written."""

    __slots__ = ()


@_core.core_layout
class _Level(_core.Level):
    """Applies ops to duals of one level; called by dispatch. `level` is its number.

    `turned` holds weak references to tensors that became duals of this level by a write.
    """

    __slots__ = ()
    dual_type, traced_dual_type = (
        DualTensor,
        DualName,
    )  # what tensors become when a value with a tangent is written to them

    def pair(self, value: Any, tangent: Any) -> DualTensor:
        """A dual of this level; a tangent of None is zero."""
        made = DualTensor.__new__(DualTensor)
        _core.hold(made, Pair(value, tangent, self))
        return made

    def dual(self, value: Any, tangent: Any) -> Any:
        """As `pair`, but a value without a tangent stays as it is."""
        return value if tangent is None or tangent is ZERO else self.pair(value, tangent)

    def split(self, x: Any) -> tuple[Any, Any]:
        if isinstance(x, DualTensor) and (pair := x._pair).level is self:
            return pair.value, pair.tangent
        return x, None

    def another_name(self, x: DualTensor) -> DualTensor:
        """x under a new name."""
        return self.pair(*self.split(x))

    def rebind(self, x: Any, value: Any, name: str) -> None:
        """Give x a new value from here on."""
        write(x, value, self, name)

    def process(self, op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        pairs = [self.split(x) for x in inputs]
        values, tangents = [v for v, _ in pairs], [t for _, t in pairs]
        dots = [ZERO if t is None else t for t in tangents]
        if op.linearize is not None and any(d is not ZERO for d in dots):
            return self._duals(op, *settled(op.linearize(values, dots, attrs, True)))
        outputs = op(values, *attrs) if op.n_inputs < 0 else op(*values, *attrs)
        if not op.differentiable or op.rule(any(map(is_complex, values))) == "zero":
            return outputs
        if op.view:
            return self._view(op, inputs[0], tangents[0], outputs, attrs)
        if all(t is None for t in tangents):
            return outputs
        y_dots = jvp_rule(op, dots, outputs, values, attrs)
        return self._duals(op, outputs, y_dots) if op.n_outputs > 1 else self._duals(op, (outputs,), (y_dots,))

    def _duals(self, op: Op, ys: Sequence[Any], y_dots: Sequence[Any]) -> Any:
        duals = tuple(self.dual(y, t) for y, t in zip(ys, y_dots))
        return duals[0] if op.n_outputs == 1 else duals

    def _view(self, op: Op, x: DualTensor, x_dot: Any, value: Any, attrs: tuple[Any, ...]) -> DualTensor:
        """Apply a view op, which is always linear, to a dual; the result follows writes to it."""
        y = self.pair(value, None if x_dot is None else op(x_dot, *attrs))
        note_view(y, x, op, attrs)
        return y


_core.set_dual_types(DualTensor, Pair, View, _Level)


def dual(value: Any, tangent: Any) -> DualTensor:
    """Pair a value with a tangent: every operation on the result also computes the derivative along the tangent.

    Forward mode without a function: results have a `value` and a `tangent`. The tangent has the shape of the value.

    >>> import wengert as wg
    >>> x = dual(wg.tensor(2.0), wg.tensor(1.0))
    >>> y = x * x
    >>> y.value.item(), y.tangent.item()
    (4.0, 4.0)
    """
    return _make(_core.shared_level(), value, tangent)


def _make(level: _Level, value: Any, tangent: Any) -> DualTensor:
    value = asarray(value)
    tangent = asarray(tangent, dtype=value.dtype)
    if not value.dtype.is_inexact:
        raise GradientError(f"dual: only floating tensors have tangents, got {value.dtype.name}{tuple(value.shape)}")
    if tuple(tangent.shape) != tuple(value.shape):
        raise ShapeError(f"dual: a tangent of shape {tuple(tangent.shape)} for a value of shape {tuple(value.shape)}")
    made: DualTensor = argument(level, value, tangent)
    return made


class running_forward:
    """Marks the extent of a forward-mode transformation: inside, `dual` makes inner duals; at its end, tensors that got
    tangents of its level by writes lose them."""

    def __init__(self, level: _Level) -> None:
        self._level = level

    def __enter__(self) -> None:
        _core.enter_forward()

    def __exit__(self, *exc: object) -> None:
        _core.leave_forward()
        end(self._level)


class ForwardADContext:
    """A direction of differentiation of its own, with every function also as a method.

    >>> import wengert as wg
    >>> with ForwardADContext() as ctx:
    ...     x = ctx.dual(wg.tensor(2.0), wg.tensor(1.0))
    ...     z = ctx.mul(ctx.sin(x), x)
    >>> round(z.tangent.item(), 4)
    0.077
    """

    def __init__(self) -> None:
        self._level = _Level()

    def __enter__(self) -> ForwardADContext:
        self._level = _Level()
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def dual(self, value: Any, tangent: Any) -> Any:
        """A tensor with a tangent in this context's direction."""
        return _make(self._level, value, tangent)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import wengert

        function = getattr(wengert, name, None) if not name.startswith("_") else None
        if function is None:
            raise AttributeError(f"ForwardADContext has no method {name!r}: wengert has no such function")
        return function  # type: ignore[no-any-return]


__all__ = ["DualTensor", "ForwardADContext", "dual"]
