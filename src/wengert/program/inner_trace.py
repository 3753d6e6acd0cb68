"""Tracing a part of a function: the computation for one example in vmap, or a branch of cond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from wengert import _core
from wengert._core import Tensor
from wengert.errors import TraceError
from wengert.program.call_trace import CallTrace, Name, call_trace
from wengert.program.ir import Var
from wengert.program.trace import Trace, Tracer
from wengert.registry.record import Op
from wengert.user_line import user_line


class InnerTrace(CallTrace):
    """A program under construction. Every tensor from outside becomes an input: plain, dual, or of the enclosing trace."""

    absorbs = True
    what = "the function"  # how messages call the traced function
    remedy = ""

    def __init__(self) -> None:
        super().__init__()
        self.outer = call_trace()
        if self.outer is not None:
            self.made = self.outer.made

    def capture(self, x: Any) -> Name:
        """A tensor from outside, of any level."""
        if isinstance(x, Name) and isinstance(x._trace, CallTrace):
            x._trace._require_open((x,))
        name: Any = Trace.capture(self, x)
        self._entry.setdefault(name, name._var)
        return name  # type: ignore[no-any-return]

    def __exit__(self, *exc: object) -> None:
        captured, self.captured = self.captured, {}
        super().__exit__(*exc)
        self.captured = captured
        for x, _ in captured.values():
            if x._plain:
                _core.mark_changed(x, False)

    def _own(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or (isinstance(x, Tracer) and x._trace is self):
            return x
        return self.capture(x)

    def emit(self, op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """Append an instruction and return its outputs as tensors."""
        return super().emit(op, [self._own(x) for x in inputs], attrs)

    def variables(self, x: Any) -> list[Var]:
        """The values whose cotangents add up to the gradient with respect to x."""
        if isinstance(x, Tracer) and x._trace is not self:
            known = self.captured.get(id(x))
            return [] if known is None else super().variables(known[1])
        return super().variables(x)

    def owns(self, x: Any) -> bool:
        """Whether x is not a tensor of a transformation inside the function."""
        return bool(x._plain or x._level <= self.level)

    def write(self, x: Any, value: Any, op: str) -> None:
        """Give x a new value from here on."""
        super().write(self._own(x), self._own(value), op)
        if x._plain:
            _core.mark_changed(x, True)

    def read(self, owner: Any, setting: str) -> None:
        """Note that the function read an attribute."""
        if self.outer is not None:
            self.outer.read(owner, setting)

    def scalars(self, read: Any, count: int, dtype: Any) -> NoReturn:
        """Not available."""
        self._refuse_effect("steps an optimizer")

    def accumulate(self, x: Any, gradient: Any) -> None:
        """Not available."""
        self._refuse_effect("calls backward()")

    def grad(self, x: Any) -> NoReturn:
        """Not available."""
        self._refuse_effect("reads .grad")

    def set_grad(self, x: Any, gradient: Any) -> NoReturn:
        """Not available."""
        self._refuse_effect("changes .grad")

    def act(self, do: Any, save: Any) -> NoReturn:
        """Not available."""
        self._refuse_effect("steps a schedule or an average")

    def _refuse_effect(self, effect: str) -> NoReturn:
        raise TraceError(f"{self.what} {effect}, at {user_line()}, {self.remedy}")
