"""JVP and transpose of programs: the two halves from which every derivative is made.

`linearize` runs a program together with its tangents. The instructions that depend on a tangent are linear in it;
`transpose` walks them backwards. Nothing else in the library differentiates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import GeneratorType
from typing import Any

from wengert._core import Tensor
from wengert.errors import GradientError
from wengert.program.ir import Const, Instruction, Operand, Var
from wengert.program.nested import Task, finished, settled
from wengert.program.trace import Trace, Tracer, create, origins
from wengert.registry.record import OPS, Op
from wengert.registry.zero import ZERO


def jvp_rule(op: Op, tangents: Sequence[Any], outputs: Any, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """Output tangents of one op by its rule; `ZERO` for tangents that are zero as a whole."""
    return settled(_by_rule(op, tangents, outputs, inputs, attrs))


def _by_rule(op: Op, tangents: Sequence[Any], outputs: Any, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """The same, or the task that makes them."""
    rule = op.jvp if op.complex_jvp is None else op.rule(any(map(is_complex, inputs)))
    if rule == "zero" or all(t is ZERO for t in tangents):
        return ZERO if op.n_outputs == 1 else (ZERO,) * op.n_outputs
    if rule == "undefined":
        raise GradientError(f"{op.name} has no derivative; cut the graph before it with detach() or stop_gradient()")
    if rule == "linear":
        return _linear(op, tangents, inputs, attrs)
    if rule == "bilinear":
        a, b = inputs
        left = op(tangents[0], b, *attrs) if tangents[0] is not ZERO else ZERO
        right = op(a, tangents[1], *attrs) if tangents[1] is not ZERO else ZERO
        return left + right
    assert callable(rule)
    return rule(*tangents, outputs, *inputs, **op.named_attrs(attrs))


def is_complex(x: Any) -> bool:
    """Whether an operand, a tensor or a literal, is complex."""
    return x.dtype.kind == "c" if isinstance(x, Tensor) else isinstance(x, complex)


def _linear(op: Op, tangents: Sequence[Any], inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    if op.n_inputs == 1:
        return op(tangents[0], *attrs)
    filled = [zeros_like(x) if t is ZERO else t for t, x in zip(tangents, inputs)]
    return op(filled, *attrs) if op.n_inputs < 0 else op(*filled, *attrs)


def zeros_like(x: Any) -> Any:
    """Zeros of x's shape and dtype."""
    return create(OPS["full"], (x.shape, x.dtype.code, 0.0))


def linearize(
    apply: Callable[[Op, Sequence[Any], tuple[Any, ...]], Any],
    instructions: Sequence[Instruction],
    primals: dict[Var, Any],
    tangents: dict[Var, Any],
    forward: bool = False,
) -> None:
    """Run `instructions` on primals and tangents, adding the results to both dictionaries.

    `apply(op, inputs, attrs)` runs one: in a trace it is that one's `process`. `forward`: nothing will be transposed.
    """
    finished(linearizing(apply, instructions, primals, tangents, forward))


def linearizing(
    apply: Callable[[Op, Sequence[Any], tuple[Any, ...]], Any],
    instructions: Sequence[Instruction],
    primals: dict[Var, Any],
    tangents: dict[Var, Any],
    forward: bool = False,
) -> Task[None]:
    """The task of `linearize`."""
    with origins() as origin:
        for i in instructions:
            origin.set(i)
            inputs = [x.value if isinstance(x, Const) else primals[x] for x in i.inputs]
            moves = not tangents.keys().isdisjoint(i.inputs)
            dots = [tangents.get(x, ZERO) if isinstance(x, Var) else ZERO for x in i.inputs] if moves else []
            if moves and i.op.linearize is not None:
                made = i.op.linearize(inputs, dots, i.attrs, forward)
                ys, y_dots = (yield made) if isinstance(made, GeneratorType) else made
                primals.update(zip(i.outputs, ys))
                tangents.update((v, d) for v, d in zip(i.outputs, y_dots) if d is not ZERO)
                continue
            outputs = apply(i.op, inputs, i.attrs)
            ys = (outputs,) if i.op.n_outputs == 1 else outputs
            primals.update(zip(i.outputs, ys))
            if not moves or not i.op.differentiable:
                continue
            y_dots = _by_rule(i.op, dots, outputs, inputs, i.attrs)
            if isinstance(y_dots, GeneratorType):
                y_dots = yield y_dots
            for v, y_dot in zip(i.outputs, (y_dots,) if i.op.n_outputs == 1 else y_dots):
                if y_dot is not ZERO:
                    tangents[v] = y_dot


def transpose(
    trace: Trace,
    linear: Sequence[Instruction],
    bars: dict[Var, Any],
    known: Mapping[Var, Any] | None = None,
    hooked: Mapping[Var, Sequence[Callable[[Any], Any]]] | None = None,
) -> None:
    """Walk linear instructions backwards in `trace`, adding the cotangents of their operands to `bars`.

    `known`: operands that have numbers already. `hooked`: functions that may change the cotangents of these values.
    """
    finished(transposing(trace, linear, bars, known, hooked))


def transposing(
    trace: Trace,
    linear: Sequence[Instruction],
    bars: dict[Var, Any],
    known: Mapping[Var, Any] | None = None,
    hooked: Mapping[Var, Sequence[Callable[[Any], Any]]] | None = None,
) -> Task[None]:
    """The task of `transpose`."""
    with origins() as origin:
        for i in reversed(linear):
            origin.set(i)
            y_bars = [bars.pop(v, ZERO) for v in i.outputs]
            if hooked:
                y_bars = [b if b is ZERO else _changed(b, hooked.get(v, ())) for v, b in zip(i.outputs, y_bars)]
            y_bar = y_bars[0] if i.op.n_outputs == 1 else tuple(y_bars)
            if y_bar is ZERO or all(b is ZERO for b in y_bars):
                continue
            operands = [known[x] if known and x in known else _readable(trace, x) for x in i.inputs]  # type: ignore[index]
            which = [k for k, x in enumerate(i.inputs) if isinstance(x, Var) and x.linear]
            x_bars = _transposed(i, y_bar, operands, which)
            if isinstance(x_bars, GeneratorType):
                x_bars = yield x_bars
            for k, x_bar in zip(which, x_bars):
                x: Any = i.inputs[k]
                bars[x] = bars.get(x, ZERO) + x_bar


def _changed(bar: Any, hooks: Sequence[Callable[[Any], Any]]) -> Any:
    for hook in hooks:
        made = hook(bar)
        bar = bar if made is None else made
    return bar


def _readable(trace: Trace, x: Operand) -> Any:
    # A transpose may ask for the type of a linear operand, but its numbers do not exist.
    return x.value if isinstance(x, Const) else trace.tracer(x)


def _transposed(i: Instruction, y_bar: Any, operands: list[Any], which: list[int]) -> Any:
    """The cotangents of these operands, or the task that makes them. A variadic op has one rule for all of its operands."""
    op = i.op
    if not op.transpose:
        raise GradientError(
            f"{op.name} was used in a derivative rule as a linear op, but has no transpose; "
            "rules may use linear ops of the tangents only"
        )
    attrs = op.named_attrs(i.attrs)
    if op.n_inputs < 0:
        rule = op.transpose[0]
        assert rule is not None
        return rule(y_bar, which, operands, **attrs)
    return [_transpose_rule(op, k)(y_bar, *operands, **attrs) for k in which]


def _transpose_rule(op: Op, which: int) -> Callable[..., Any]:
    rule = op.transpose[which] if which < len(op.transpose) else None
    if rule is None:
        raise GradientError(f"{op.name} is not linear in operand {which}")
    return rule


def is_linear(x: Any) -> bool:
    """Whether a traced value depends on a tangent."""
    return isinstance(x, Tracer) and x._var.linear
