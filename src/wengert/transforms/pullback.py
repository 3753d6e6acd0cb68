"""Reverse mode for every kind of tensor: cotangents of outputs pulled back to sources.

Plain tensors are walked natively. If the derivative itself must be differentiable, the same walk runs each node's VJP
program through dispatch, so that it is recorded. Duals split into value and tangent; traced values are transposed in their
trace.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert.autograd.forward import DualTensor
from wengert.errors import GradientError
from wengert.ops.registry import OPS
from wengert.ops.zero import ZERO
from wengert.program.ir import Const, Operand, Var
from wengert.program.trace import Tracer
from wengert.transforms.evaluate import evaluate
from wengert.transforms.linearize import is_linear, jvp_rule, transpose


def pull(
    outputs: Sequence[Any], bars: Sequence[Any], sources: Sequence[Any], *, retain: bool, record: bool
) -> list[Any]:
    """Cotangents of the sources; None where the outputs do not depend on one.

    `retain`: the graph can be walked again. `record`: the result is recorded, to be differentiated itself.
    """
    everything = [*outputs, *bars, *sources]
    top = max((x for x in everything if not x._plain), key=lambda x: x._level, default=None)
    if isinstance(top, DualTensor):
        return _pull_dual(top, outputs, bars, sources, retain, record)
    if isinstance(top, Tracer):
        return _pull_traced(top, outputs, bars, sources)
    if record:
        return _pull_recorded(outputs, bars, sources, retain)
    return _pull_native(outputs, bars, sources, retain)


def _zeros(x: Any) -> Any:
    from wengert.autograd.creation import zeros_like

    return zeros_like(x)


def _pull_native(outputs: Sequence[Any], bars: Sequence[Any], sources: Sequence[Any], retain: bool) -> list[Any]:
    edges = [_core.node_of(s) for s in sources]
    before = _core.set_grad_enabled(False)
    try:
        gradients, reached, _, _, _ = _core.backward(list(zip(outputs, bars)), edges, retain, False, False)
    finally:
        _core.set_grad_enabled(before)
    return [_zeros(s) if g is None and r else g for g, r, s in zip(gradients, reached, sources)]


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


def _pull_traced(top: Tracer, outputs: Sequence[Any], bars: Sequence[Any], sources: Sequence[Any]) -> list[Any]:
    trace = top._trace
    existing = list(trace.instructions)
    dots: dict[Var, Any] = {}
    variables = [trace.variables(s) for s in sources]
    for v in (v for found in variables for v in found):
        dots[v] = trace.tracer(Var(v.type, linear=True))
    tangents: dict[Var, Any] = dict(dots)

    def tensor(x: Operand) -> Any:
        return x.value if isinstance(x, Const) else trace.tracer(x)

    with trace:
        for i in existing:
            given = [tangents.get(x, ZERO) if isinstance(x, Var) else ZERO for x in i.inputs]
            if not i.op.differentiable or all(t is ZERO for t in given):
                continue
            ys = tuple(trace.tracer(v) for v in i.outputs)
            y_dots = jvp_rule(i.op, given, ys[0] if len(ys) == 1 else ys, [tensor(x) for x in i.inputs], i.attrs)
            for v, t in zip(i.outputs, (y_dots,) if i.op.n_outputs == 1 else y_dots):
                if t is not ZERO:
                    tangents[v] = t
        added = trace.instructions[len(existing) :]
        linear = [i for i in added if any(v.linear for v in i.outputs)]
        trace.instructions = [*existing, *(i for i in added if not any(v.linear for v in i.outputs))]
        cotangents: dict[Var, Any] = {}
        for y, bar in zip(outputs, bars):
            made = trace.operand(y, 0)
            y_dot: Any = tangents.get(made, ZERO) if isinstance(made, Var) else ZERO
            if is_linear(y_dot):
                cotangents[y_dot._var] = cotangents.get(y_dot._var, ZERO) + bar
        transpose(trace, linear, cotangents)
        results: list[Any] = []
        for found in variables:
            g: Any = ZERO
            for v in found:
                g = g + cotangents.get(dots[v]._var, ZERO)
            results.append(None if g is ZERO else g)
    return results


# --------------------------------------------------------------------------------- recording the derivative itself


def _reachable(roots: Sequence[Any], sources: Sequence[Any] | None = None) -> dict[int, Any]:
    """The nodes that the roots depend on; nodes before all sources, which lead to none of them, are left out."""
    first = 0 if sources is None else min((e[0].seq for e in sources if e is not None), default=0)
    found: dict[int, Any] = {}
    todo = [n for n, _ in roots]
    while todo:
        n = todo.pop()
        if n.key not in found and n.seq >= first:
            found[n.key] = n
            todo.extend(e[0] for e in n.edges if e is not None)
    return found


def _leading_to(nodes: dict[int, Any], sources: Sequence[Any]) -> set[int]:
    wanted = {e[0].key for e in sources if e is not None}
    for n in sorted(nodes.values(), key=lambda n: n.seq):
        if any(e is not None and e[0].key in wanted for e in n.edges):
            wanted.add(n.key)
    return wanted


def _pull_recorded(outputs: Sequence[Any], bars: Sequence[Any], sources: Sequence[Any], retain: bool) -> list[Any]:
    walk = RecordedWalk(outputs, bars, [_core.node_of(s) for s in sources])
    walk.run(retain)
    results = []
    for s, edge in zip(sources, walk.sources):
        g = None if edge is None else walk.gradient(edge)
        results.append(_zeros(s) if g is ZERO else g)
    return results


class RecordedWalk:
    """The backward walk with every VJP program run through dispatch."""

    def __init__(self, outputs: Sequence[Any], bars: Sequence[Any], sources: list[Any] | None) -> None:
        roots = [_core.node_of(y) for y in outputs]
        self.roots = [(r, bar) for r, bar in zip(roots, bars) if r is not None]
        self.nodes = _reachable([r for r, _ in self.roots], sources)
        self.sources = sources or []
        self.wanted = _leading_to(self.nodes, self.sources) if sources is not None else set(self.nodes)
        self.bars: dict[tuple[int, int], Any] = {}  # (node, output) → cotangent
        self.touched: set[int] = set()
        self.heap: list[tuple[int, int]] = []

    def gradient(self, edge: Any) -> Any:
        """The cotangent that arrived at (node, output): ZERO if only symbolic zeros did, None if nothing."""
        node, output = edge
        if (node.key, output) in self.bars:
            return self.bars[node.key, output]
        return ZERO if node.key in self.touched else None

    def send(self, node: Any, output: int, bar: Any) -> None:
        """Add to a cotangent, and schedule its node."""
        if node.key not in self.wanted:
            return
        if node.key not in self.touched:
            self.touched.add(node.key)
            heapq.heappush(self.heap, (-node.seq, node.key))
        if bar is not None:
            known = self.bars.get((node.key, output))
            self.bars[node.key, output] = bar if known is None else known + bar

    def run(self, retain: bool) -> None:
        """Walk from the roots to the end."""
        for (node, output), bar in self.roots:
            self.send(node, output, bar)
        while self.heap:
            node = self.nodes[heapq.heappop(self.heap)[1]]
            if node.hooks and (node.key, 0) in self.bars:
                for hook in list(node.hooks):
                    changed = hook(self.bars[node.key, 0])
                    if changed is not None:
                        self.bars[node.key, 0] = changed
            if not node.is_leaf:
                self.step(node, retain)

    def step(self, node: Any, retain: bool) -> None:
        """One node: its cotangents to those of its operands."""
        edges = node.edges
        bars = [self.bars.get((node.key, k)) for k in range(node.n_outputs)]
        if all(b is None for b in bars):
            results: list[Any] = [None] * len(edges)
        else:
            bars = [b if b is not None else _typed_zeros(node.output_types[k]) for k, b in enumerate(bars)]
            results = node.custom(bars, node) if node.custom is not None else self.derivative(node, bars, edges)
        if not retain:
            node.free()
        for edge, bar in zip(edges, results):
            if edge is not None:
                self.send(edge[0], edge[1], bar)

    def derivative(self, node: Any, bars: list[Any], edges: list[Any]) -> list[Any]:
        """The node's VJP program, for the operands that lead to a source."""
        derivation = node.derivation
        mask = sum(1 << k for k, e in enumerate(edges) if e is not None and e[0].key in self.wanted)
        program = derivation.vjp if mask == (1 << len(edges)) - 1 else derivation.narrow(mask)
        leaves, sizes = derivation.native.size_leaves, node.sizes
        saved = dict(zip(derivation.vjp.inputs[len(bars) :], node.saved))
        if derivation.replay is not None:
            fresh = evaluate(derivation.replay, [saved[v] for v in derivation.replay.inputs], leaves, sizes)
            saved.update(zip(derivation.replay.outputs, fresh))
        return evaluate(program, [*bars, *saved.values()], leaves, sizes)


def _typed_zeros(type_: tuple[int, tuple[int, ...]]) -> Any:
    return OPS["full"](type_[1], type_[0], 0.0)


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
