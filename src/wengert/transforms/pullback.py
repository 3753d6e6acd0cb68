"""Reverse mode for every kind of tensor: cotangents of outputs pulled back to sources.

Plain tensors are walked natively, recording or not. Duals split into value and tangent; traced values are transposed in
their trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert.errors import GradientError
from wengert.passes.callbacks import define_callback
from wengert.passes.linearize import is_linear, jvp_rule, transpose, zeros_like
from wengert.program.ir import Const, Instruction, Operand, Var
from wengert.program.trace import Trace, Tracer, untraced
from wengert.registry.precision import uncast
from wengert.registry.record import OPS
from wengert.registry.zero import ZERO
from wengert.tensors.dual import DualTensor


def pull(
    outputs: Sequence[Any], bars: Sequence[Any], sources: Sequence[Any], *, retain: bool, record: bool
) -> list[Any]:
    """Cotangents of the sources; None where the outputs do not depend on one.

    `retain`: the graph can be walked again. `record`: the result is recorded, to be differentiated itself.
    """
    found: list[Any] | None = _core.pull_back(outputs, bars, sources, retain, record)
    if found is not None:
        return found
    everything = [*outputs, *bars, *sources]
    top = max((x for x in everything if not x._plain), key=lambda x: x._level, default=None)
    own = max((x for x in (*outputs, *sources) if not x._plain), key=lambda x: x._level, default=None)
    if isinstance(own, DualTensor) and isinstance(top, Tracer):  # cotangents of many examples for a single evaluation
        top = own
    if isinstance(top, DualTensor):
        return _pull_dual(top, outputs, bars, sources, retain, record)
    if isinstance(top, Tracer):
        return _pull_traced(outputs, bars, sources, record)
    raise GradientError(f"a {type(top).__name__} cannot be differentiated backwards")


def _pull_dual(
    top: DualTensor, outputs: Sequence[Any], bars: Sequence[Any], sources: Sequence[Any], retain: bool, record: bool
) -> list[Any]:
    # With y = f(x + εẋ): the gradient's value is ȳ·∂y/∂x, and its tangent is ȳ·∂ẏ/∂x + ȳ̇·∂y/∂x.
    level = top._trace
    ys, y_dots = zip(*(level.split(y) for y in outputs))
    b, b_dots = zip(*(level.split(x) for x in bars))
    xs = [level.split(s)[0] for s in sources]
    values = pull(ys, b, xs, retain=True, record=record)
    pairs = [(y, bar) for y, bar in zip(y_dots, b) if y is not None]
    pairs += [(y, bar) for y, bar in zip(ys, b_dots) if bar is not None]
    if not pairs:
        return values
    tangents = pull([y for y, _ in pairs], [bar for _, bar in pairs], xs, retain=retain, record=record)
    return [v if v is None else level.dual(v, t) for v, t in zip(values, tangents)]


# ------------------------------------------------------------------------------------------------ traced values


def _pull_traced(outputs: Sequence[Any], bars: Sequence[Any], sources: Sequence[Any], record: bool) -> list[Any]:
    """Pull back in the trace of the outputs; cotangents may belong to a nested trace, such as those of many examples."""
    traced = [x for x in (*outputs, *sources) if isinstance(x, Tracer)]
    if not traced and not record and len(sources) <= _MOST_RESULTS:
        return _pull_recorded(outputs, bars, sources)
    if not traced:
        raise GradientError(
            "a function that was evaluated outside cannot be pulled back inside a function that is being traced, by compile "
            "or vmap; evaluate it there, with vjp or grad inside"
        )
    trace: Trace = max(traced, key=lambda x: x._level)._trace
    made = [
        trace.operand(y, 0) for y in outputs
    ]  # first, because a stale view is refreshed from its base by instructions
    existing = list(trace.instructions)
    dots: dict[Var, Any] = {}
    variables = [trace.variables(s) for s in sources]
    for v in (v for found in variables for v in found):
        dots[v] = trace.tracer(Var(v.type, linear=True))
    tangents: dict[Var, Any] = dict(dots)
    hooks = {v: _in_this_precision(calls) for v, calls in trace.hooks.items()}

    def tensor(x: Operand) -> Any:
        return x.value if isinstance(x, Const) else trace.tracer(x)

    with trace, uncast():  # rules keep the precision that they are written in
        for position, i in enumerate(existing):
            given = [tangents.get(x, ZERO) if isinstance(x, Var) else ZERO for x in i.inputs]
            if not i.op.differentiable or all(t is ZERO for t in given):
                continue
            operands = [tensor(x) for x in i.inputs]
            if i.op.linearize is not None:
                y_dots = _linearized(trace, existing, position, operands, given)
            else:
                ys = tuple(trace.tracer(v) for v in i.outputs)
                made_dots = jvp_rule(i.op, given, ys[0] if len(ys) == 1 else ys, operands, i.attrs)
                y_dots = (made_dots,) if i.op.n_outputs == 1 else made_dots
            for v, t in zip(i.outputs, y_dots):
                if t is not ZERO:
                    t = OPS["copy"](t) if v in hooks else t  # a separate cotangent
                    tangents[v] = dots[v] + t if v in dots else t  # a source that others lead to
        added = trace.instructions[len(existing) :]
        linear = [i for i in added if any(v.linear for v in i.outputs)]
        trace.instructions = [*existing, *(i for i in added if not any(v.linear for v in i.outputs))]
        cotangents: dict[Var, Any] = {}
        for y, bar in zip(made, bars):
            y_dot: Any = tangents.get(y, ZERO) if isinstance(y, Var) else ZERO
            if is_linear(y_dot):
                cotangents[y_dot._var] = cotangents.get(y_dot._var, ZERO) + bar
        hooked = {tangents[v]._var: calls for v, calls in hooks.items() if is_linear(tangents.get(v)) and v not in dots}
        transpose(trace, linear, cotangents, hooked=hooked)
        results: list[Any] = []
        for found in variables:
            g: Any = ZERO
            for v in found:
                g = g + cotangents.get(dots[v]._var, ZERO)
            results.append(None if g is ZERO else g)
    return results


def _in_this_precision(hooks: Sequence[Any]) -> Sequence[Any]:
    """The same functions, under the autocast that is on now: they are the user's."""
    policy: Any = _core.autocast_policy()
    if policy is None:
        return hooks

    def under(hook: Any) -> Any:
        def call(g: Any) -> Any:
            before = _core.set_autocast(policy)
            try:
                return hook(g)
            finally:
                _core.set_autocast(before)

        return call

    return [under(hook) for hook in hooks]


def _linearized(
    trace: Trace, existing: list[Instruction], position: int, operands: Sequence[Any], dots: Sequence[Any]
) -> Sequence[Any]:
    """Tangents by a rule that replaces its primal: a loop that keeps its carried values takes the place of the original
    loop."""
    i, start = existing[position], len(trace.instructions)
    ys, y_dots = i.op.linearize(operands, dots, i.attrs, False)  # type: ignore[misc]
    names = {y._var: o for y, o in zip(ys, i.outputs)}
    added = trace.instructions[start:]
    primal = next((k for k in added if k.outputs[: len(ys)] == tuple(names)), None)
    if primal is None or not set(primal.vars()) <= set(i.vars()):
        return y_dots  # type: ignore[no-any-return]
    renamed = [
        Instruction(
            k.op,
            tuple(names.get(x, x) if isinstance(x, Var) else x for x in k.inputs),
            k.attrs,
            tuple(names.get(o, o) for o in k.outputs),
            k.origin,
        )
        for k in (primal, *(k for k in added if k is not primal))
    ]
    existing[position] = renamed[0]
    trace.instructions[start:] = renamed[1:]
    return y_dots  # type: ignore[no-any-return]


_MOST_RESULTS = 4  # of a callback, as core/ops/op.h: kMaxOutputs


def _pull_recorded(outputs: Sequence[Any], bars: Sequence[Any], sources: Sequence[Any]) -> list[Any]:
    """Pull back through instructions recorded before the trace: by an instruction that walks them, linear in the
    cotangents."""

    def walk(*given: Any) -> list[Any]:
        with untraced():
            found = pull(outputs, given, sources, retain=True, record=False)
        return [zeros_like(x) if g is None else g for g, x in zip(found, sources)]

    types = [(x.dtype.code, tuple(x.shape)) for x in sources]
    made = define_callback("pullback", len(bars), types, walk, jvp="linear")(*bars)
    return [made] if len(sources) == 1 else list(made)


def reachable(roots: Sequence[Any]) -> dict[int, Any]:
    """All recorded instructions that lead to these, by key."""
    found: dict[int, Any] = {}
    todo = [n for n, _ in roots]
    while todo:
        n = todo.pop()
        if n.key not in found:
            found[n.key] = n
            todo.extend(e[0] for e in n.edges if e is not None)
    return found


def require_real(y: Any, what: str) -> None:
    """Raise if y is complex: a gradient without a seed is that of a real number."""
    if y.dtype.kind == "c":
        raise GradientError(
            f"{what}: the tensor is {y.dtype.name}{tuple(y.shape)}; without a seed only a real number has a gradient. "
            "Take abs(y), real(y) or imag(y), or pass a seed"
        )


def require_scalar(y: Any, what: str) -> None:
    """Raise unless y has one element."""
    if y.ndim != 0 and y.size != 1:
        raise GradientError(
            f"{what}: the result has shape {tuple(y.shape)}, and only a scalar has a gradient; "
            "reduce it (sum, mean), or pass a seed of that shape"
        )
