"""Rules of custom ops: whether they are linear in their tangents (or cotangents), and their transposes.

A rule runs once on symbolic tangents, among concrete values of everything else. What it does with the tangents is then a
list of instructions, each of which must be linear; their transposes in reverse order are the transpose of the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert._core import Tensor
from wengert.dtypes import ALL as DTYPES
from wengert.errors import CustomOpError, TraceError
from wengert.passes.linearize import transpose
from wengert.program.ir import Const, Instruction, Type, Var
from wengert.program.simplify import number_everywhere
from wengert.program.trace import Trace, Tracer
from wengert.registry.zero import ZERO
from wengert.tensors.creation import zeros_like
from wengert.tensors.numpy import data


def transposed(
    rule: Callable[..., Sequence[Any]], like: Sequence[Any], y_bars: Sequence[Any], problem: str, remedy: str
) -> list[Any]:
    """Cotangents of the rule's arguments, which have the types of `like`, from those of its results.

    Where the rule is not linear it raises CustomOpError, with the problem, the reason and the remedy.
    """
    trace = Trace()
    inputs = [trace.input(Type(x.dtype.code, x.shape), linear=True) for x in like]
    try:
        outputs = [y if isinstance(y, Tensor) else zeros_like(y_bars[0]) + y for y in rule(*inputs)]
        known = {t._var: x for x, t in trace.captured.values()}
        reason = not_linear(trace.instructions, outputs, known)
    except TraceError as e:
        reason = f"it asks for the numbers of one: {e}"
    if reason is not None:
        raise CustomOpError(f"{problem} ({reason}); {remedy}")
    bars: dict[Var, Any] = {}
    for y, y_bar in zip(outputs, y_bars):
        if isinstance(y, Tracer) and y._trace is trace:
            bars[y._var] = bars.get(y._var, ZERO) + y_bar
    transpose(trace, trace.instructions, bars, known)
    found = [bars.get(x._var, ZERO) for x in inputs]
    return [zeros_like(x) if b is ZERO else b for b, x in zip(found, like)]


def not_linear(
    instructions: Sequence[Instruction], outputs: Sequence[Any], known: dict[Var, Any] | None = None
) -> str | None:
    """Why the outputs are not linear in the linear values that the instructions read; None if they are."""
    producers = {v: i for i in instructions for v in i.outputs}
    live: set[Var] = set()
    for y in outputs:
        if isinstance(y, Tracer) and y._var.linear:
            live.add(y._var)
        elif not _is_zero(y, producers, known or {}):
            return "a result does not depend on them, but is not zero"
    for i in reversed(instructions):
        if live.isdisjoint(i.outputs):
            continue
        reason = _why_not_linear(i, producers, known or {})
        if reason is not None:
            return reason
        live.update(x for x in i.vars() if x.linear)
    return None


def _why_not_linear(i: Instruction, producers: dict[Var, Instruction], known: dict[Var, Any]) -> str | None:
    name = i.op.label
    linear = [isinstance(x, Var) and x.linear for x in i.inputs]
    rules = i.op.transpose if i.op.n_inputs >= 0 else i.op.transpose * len(i.inputs)
    if any(is_linear and (k >= len(rules) or rules[k] is None) for k, is_linear in enumerate(linear)):
        return f"{name} is not linear"
    if i.op.jvp == "bilinear":
        return f"{name} multiplies two of them" if all(linear) else None
    if not all(DTYPES[v.type.dtype].is_inexact for v in i.outputs):
        return f"{name} rounds them"
    # All other ops are jointly linear in the operands that have a transpose, not in each alone.
    others = [x for x, is_linear, rule in zip(i.inputs, linear, rules) if not is_linear and rule is not None]
    if all(_is_zero(x, producers, known) for x in others):
        return None
    return f"{name} adds something that does not depend on them"


def _is_zero(x: Any, producers: dict[Var, Instruction], known: dict[Var, Any]) -> bool:
    """Whether an operand or a result is known to be zero everywhere."""
    if isinstance(x, Tracer):
        x = x._var
    if isinstance(x, Var) and x in known:
        return _is_zero(known[x], producers, known)
    if isinstance(x, Var | Const):
        return number_everywhere(x, producers) == 0.0
    if isinstance(x, Tensor):
        return not data(x).any()
    return x is ZERO or not x


__all__ = ["not_linear", "transposed"]
