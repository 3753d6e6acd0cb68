"""The update of an optimizer: a rule written in Python, traced into one program, applied in place to many parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from wengert import _core
from wengert.dtypes import DType, float32
from wengert.program.ir import Type
from wengert.program.lower import lower
from wengert.program.simplify import simplify
from wengert.program.trace import Trace
from wengert.tensors.arguments import as_dtype_of

# rule(p, g, *state, *scalars) → (p, *state): elementwise in the tensors; scalars are tensors without axes.
Rule = Callable[..., tuple[Any, ...]]

_EXAMPLE_SIZE = 64


def state_dtype(dtype: DType) -> DType:
    """What an optimizer computes in and keeps its state in: float32 for parameters of half precision."""
    return float32 if dtype.itemsize == 2 else dtype


@functools.cache
def update_program(rule: Rule, dtype: DType, n_state: int, n_scalars: int) -> Any:
    """The rule for parameters of this dtype: one fused group that takes its shape from its inputs, so any rank will do."""
    wide = state_dtype(dtype)
    trace = Trace()
    _core.open_guards()
    try:
        shape = (_core.new_symbol(0, 0, 0, _EXAMPLE_SIZE),)
        p, g = (trace.input(Type(dtype.code, shape)) for _ in range(2))
        state = [trace.input(Type(wide.code, shape)) for _ in range(n_state)]
        scalars = [trace.input(Type(wide.code, ())) for _ in range(n_scalars)]
        with trace:
            new_p, *new_state = rule(as_dtype_of(p, wide), as_dtype_of(g, wide), *state, *scalars)
            new_p = as_dtype_of(new_p, dtype)
        program = simplify(trace.program([x._var for x in (new_p, *new_state)]))
        made = lower(program)
        made.name = f"{getattr(rule, '__name__', 'optimizer').strip('_')} update"
        return made
    finally:
        _core.close_guards()
