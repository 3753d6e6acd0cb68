"""Functions as programs: what a function reads from outside becomes arguments of it.

A solver evaluates a function again when it is differentiated, maybe after the transformation that it was called in has
ended. What it closes over (parameters of a module, tensors of an enclosing `grad`) must be arguments then, or their
derivative would be lost. Tracing finds them. It also makes functions comparable: two that do the same instructions
share what was compiled for one of them, even if they are different objects, as a lambda in a loop is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.errors import TraceError
from wengert.passes.evaluate import evaluate
from wengert.program.call_trace import CallTrace, ClosesOver
from wengert.program.ir import Const, Program, Type, Var
from wengert.program.sizes import own_symbols
from wengert.program.trace import tracing
from wengert.tensors.dual import DualTensor

_KEPT = 128  # sets of compiled functions


class Function:
    """A function of tensors of fixed shapes: its instructions, and the tensors from outside that it reads, `captured`.

    It is called with its arguments followed by values for those.
    """

    def __init__(self, program: Program, captured: Sequence[Any], key: Key | None = None) -> None:
        self.program, self.captured = program, list(captured)
        self.key = Key(program) if key is None else key

    def bare(self) -> Function:
        """The same without the captured tensors, which what is compiled of it must not keep."""
        return Function(self.program, (), self.key)

    def __call__(self, *inputs: Any) -> Any:
        results = evaluate(self.program, inputs, [], [])
        return results[0] if len(results) == 1 else tuple(results)


@own_symbols()
def as_function(f: Callable[..., Any], examples: Sequence[Any]) -> Function | None:
    """f, which returns one tensor or a tuple of them, as instructions on arguments like the examples.

    None where that cannot be: f looks at numbers (`if y[0] > 0`), changes or draws something, or closes over duals. It
    is then called as it is."""
    if tracing() is not None:
        return None
    trace = CallTrace()
    recording = _core.set_grad_enabled(True)
    _core.open_guards()
    try:
        names = [trace.argument(Type(x.dtype.code, tuple(int(n) for n in x.shape))) for x in examples]
        with trace:
            made = f(*names)
            results = made if isinstance(made, tuple) else (made,)
        program = trace.program([trace.operand(y, 0) for y in results])
        if trace.has_effects():
            return None
    except (TraceError, ClosesOver):
        return None
    finally:
        _core.close_guards()
        _core.set_grad_enabled(recording)
    return Function(program, [x for x, _ in trace.captured.values()])


class Key:
    """The instructions of a program: equal, and hashed alike, for programs that do the same."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, program: Program) -> None:
        self._parts = _parts(program)
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and (self is other or self._parts == other._parts)


def _parts(program: Program) -> Hashable:
    numbers: dict[Var, int] = {}

    def operand(x: Any) -> Hashable:
        if isinstance(x, Const):
            return (type(x.value), repr(x.value), x.dtype)  # repr: 0.0 and −0.0 are different, NaN is itself
        return x if x is None else numbers.setdefault(x, len(numbers))

    return (
        tuple((operand(v), v.type) for v in program.inputs),
        tuple(
            (i.op, tuple(map(operand, i.inputs)), repr(i.attrs), tuple((operand(o), o.type) for o in i.outputs))
            for i in program.instructions
        ),
        tuple(map(operand, program.outputs)),
    )


class Cache:
    """What was compiled, by key: the last ones that were used."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept under the key, or what `make` makes."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
            made = self._made[key] = make()
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
            return made


def is_differentiated(x: Any) -> bool:
    """Whether a derivative may be asked of what is computed from x."""
    if not isinstance(x, Tensor) or not x.dtype.is_inexact:
        return False
    return not x._plain or (_core.is_grad_enabled() and (x.requires_grad or bool(_core.recording_tapes())))


def numbers_of(x: Any) -> Any:
    """x without history and tangents: a plain tensor."""
    while isinstance(x, DualTensor):
        x = x.value
    return x.detach()
