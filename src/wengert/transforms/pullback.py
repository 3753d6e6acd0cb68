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
from wengert.passes.linearize import zeros_like
from wengert.program.trace import Trace, Tracer, untraced
from wengert.registry.precision import uncast
from wengert.registry.zero import ZERO
from wengert.tensors.dual import DualTensor
from wengert.transforms.traced_walk import pull_through


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
    variables = [trace.variables(s) for s in sources]
    hooks = {v: _in_this_precision(calls) for v, calls in trace.hooks.items()}
    with trace, uncast():  # rules keep the precision that they are written in
        cotangents = pull_through(trace, made, bars, [v for found in variables for v in found], hooks)
        results: list[Any] = []
        for found in variables:
            g: Any = ZERO
            for v in found:
                g = g + cotangents.get(v, ZERO)
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
