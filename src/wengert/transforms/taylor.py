"""Taylor mode: derivatives of any order along a path, by rules for series, not by nesting.

Each value of the program is a polynomial in t, y(t) = Σ yₖ tᵏ; each instruction makes the coefficients of its results of
those of its operands (Griewank & Walther, Evaluating Derivatives, 2008, chapter 13). Linear ops act on every coefficient,
bilinear ones convolve, and the elementary functions have recurrences: the field `taylor` of the record says so. Every other
op falls back on its derivative rule: y' = J(x, y) x' is a program of ops, whose series has one order less, and is known as
far as that of y; so coefficients follow one by one. That costs as many evaluations of the rule as there are orders, not
twice as many for each as nesting does. Loops and branches are nested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from wengert import tree
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.ops.series import Series, convolved
from wengert.passes.evaluate import apply
from wengert.passes.linearize import is_complex, jvp_rule, zeros_like
from wengert.program.ir import Const, Instruction, Type, Var
from wengert.program.trace import Trace
from wengert.registry.record import OPS, Op
from wengert.registry.zero import ZERO
from wengert.transforms.functional import _as_differentiable, _fitting, jvp
from wengert.transforms.hybrid import TracedFunction
from wengert.transforms.replay import replayed


def taylor(f: Callable[..., Any], x: Any, derivatives: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Evaluate f, and dᵏ/dtᵏ f(x(t)) at t = 0, the derivatives along the path x(t) = x + x₁ t + x₂ t²/2! + x₃ t³/3! + …

    `derivatives` are those of the path, [x₁, x₂, …], each like x; the result is f(x) and a list of as many
    derivatives. Along a straight line, [v, 0, 0, …], they are f'(x) v, f''(x)[v, v] and so on. f is traced, as by
    `compile`.

    >>> import wengert as wg
    >>> zero = wg.tensor(0.0)
    >>> y, (y1, y2, y3) = taylor(wg.sin, zero, [wg.tensor(1.0), zero, zero])
    >>> y.item(), y1.item(), y2.item(), y3.item()
    (0.0, 1.0, 0.0, -1.0)
    """
    if not isinstance(derivatives, (list, tuple)) or not derivatives:
        raise ArgumentError(
            f"taylor: takes the derivatives of the path, [x1, x2, …], at least one, got {type(derivatives).__name__}"
        )

    def taylor_of(x: Any, derivatives: Any) -> Any:
        return _derivatives(f, x, derivatives)

    y, found = replayed(taylor_of, f, ("taylor", len(derivatives)))(x, list(derivatives))
    return y, list(found)


def _derivatives(f: Callable[..., Any], x: Any, derivatives: Sequence[Any]) -> tuple[Any, list[Any]]:
    leaves, structure = tree.flatten(x)
    xs = [_as_differentiable(v, "taylor") for v in leaves]
    paths: list[Series] = [[v] for v in xs]
    for k, given in enumerate(derivatives, 1):
        parts = tree.leaves_like(given, structure, f"taylor: derivative {k} of the path")
        for path, v, x0 in zip(paths, parts, xs):
            path.append(_fitting(v, x0, f"taylor: derivative {k} of the path") * (1.0 / math.factorial(k)))
    traced = TracedFunction(lambda *given: f(tree.unflatten(structure, given)), xs, "taylor")
    order = len(derivatives)
    env: dict[Var, Series] = dict(zip(traced.program.inputs, paths))
    env.update((v, _constant(c, order)) for v, c in zip(traced.program.inputs[len(xs) :], traced.captured))
    _run(traced.program.instructions, env, order)
    outputs = [env[o] for o in traced.program.outputs]  # type: ignore[index]
    rows = [
        tree.unflatten(traced.structure, [_filled(s[k], s[0], math.factorial(k)) for s in outputs])
        for k in range(order + 1)
    ]
    return rows[0], rows[1:]


def _filled(coefficient: Any, like: Any, factor: int) -> Any:
    if coefficient is ZERO:
        return zeros_like(like)
    return coefficient * float(factor) if factor > 1 else coefficient


def _constant(x: Any, order: int) -> Series:
    return [x, *[ZERO] * order]


def _run(instructions: Sequence[Instruction], env: dict[Var, Series], order: int) -> None:
    """The series of what the instructions make."""
    for i in instructions:
        operands = [_constant(x.value, order) if isinstance(x, Const) else env[x] for x in i.inputs]
        env.update(zip(i.outputs, _series(i.op, operands, i.attrs, order)))


def _series(op: Op, operands: list[Series], attrs: tuple[Any, ...], order: int) -> list[Series]:
    """The series of an op's outputs."""
    inputs = [s[0] for s in operands]
    moving = any(c is not ZERO for s in operands for c in s[1:])
    rule = op.rule(any(map(is_complex, inputs)))
    if not moving or not op.differentiable or rule == "zero":
        outputs = apply(op, inputs, attrs)
        return [_constant(y, order) for y in ((outputs,) if op.n_outputs == 1 else outputs)]
    if op.linearize is not None:
        return _nested(op, operands, attrs, order)
    if "linear" in (rule, op.taylor):
        return _linear(op, operands, attrs, order)
    if "bilinear" in (rule, op.taylor):
        return [convolved(op, operands[0], operands[1], attrs, order)]
    found = op.taylor(op, operands, order) if callable(op.taylor) else None
    return [found] if found is not None else _by_derivative(op, operands, attrs, order)


def _linear(op: Op, operands: list[Series], attrs: tuple[Any, ...], order: int) -> list[Series]:
    """Every coefficient by itself: the derivative rule of a linear op is the op."""
    inputs = [s[0] for s in operands]
    outputs = apply(op, inputs, attrs)
    series = [[y] for y in ((outputs,) if op.n_outputs == 1 else outputs)]
    for k in range(1, order + 1):
        made = jvp_rule(op, [s[k] for s in operands], outputs, inputs, attrs)
        for s, y in zip(series, (made,) if op.n_outputs == 1 else made):
            s.append(y)
    return series


# -------------------------------------------------------------------------------------------------- all other ops


def _by_derivative(op: Op, operands: list[Series], attrs: tuple[Any, ...], order: int) -> list[Series]:
    """By the op's derivative rule, y' = J(x, y) x', one coefficient after the other."""
    inputs = [s[0] for s in operands]
    outputs = apply(op, inputs, attrs)
    results = [outputs] if op.n_outputs == 1 else list(outputs)
    rule = _DerivativeRule(op, operands, results, attrs)
    series = [[y] for y in results]
    steps = range(1, order + 1) if rule.reads_outputs else (order,)  # else all coefficients are known at once
    for k in steps:
        for s, slope in zip(series, rule.series(operands, series, k - 1)):
            first = len(s)
            s += [_over(c, j) for j, c in enumerate(slope[first - 1 : k], first)]
    return series


def _over(coefficient: Any, k: int) -> Any:
    return coefficient if coefficient is ZERO or k == 1 else coefficient * (1.0 / k)


class _DerivativeRule:
    """The derivative rule of an op as a program of the tangents of what moves, the outputs, and the inputs."""

    def __init__(self, op: Op, operands: list[Series], results: list[Any], attrs: tuple[Any, ...]) -> None:
        self.moving = [k for k, s in enumerate(operands) if any(c is not ZERO for c in s[1:])]
        self.trace = trace = Trace()
        tensors = {k: s[0] for k, s in enumerate(operands) if isinstance(s[0], Tensor)}
        dots = {k: trace.input(_type(tensors[k]), linear=True) for k in self.moving}
        ys = [trace.input(_type(y)) for y in results]
        xs = {k: trace.input(_type(x)) for k, x in tensors.items()}
        self.dots, self.ys = [dots[k]._var for k in self.moving], [y._var for y in ys]
        self.xs = {k: x._var for k, x in xs.items()}
        inputs = [xs.get(k, s[0]) for k, s in enumerate(operands)]
        with trace:
            tangents = [dots.get(k, ZERO) for k in range(len(operands))]
            made = jvp_rule(op, tangents, ys[0] if op.n_outputs == 1 else tuple(ys), inputs, attrs)
            results = [made] if op.n_outputs == 1 else list(made)
            self.results = [None if r is ZERO else trace.value(r) for r in results]
        read = {v for i in trace.instructions for v in i.vars()}
        self.reads_outputs = any(y in read for y in self.ys)

    def series(self, operands: list[Series], outputs: list[Series], order: int) -> list[Series]:
        """The coefficients of the outputs' slopes."""
        env: dict[Var, Series] = {v: _constant(x, order) for x, t in self.trace.captured.values() for v in (t._var,)}
        for v, k in zip(self.dots, self.moving):
            slopes = [ZERO if c is ZERO else c * float(j) for j, c in enumerate(operands[k][1:], 1)]
            env[v] = _as_numbers(slopes[: order + 1], operands[k][0])
        for v, s in zip(self.ys, outputs):
            env[v] = [*s, *[ZERO] * order][: order + 1]
        for k, v in self.xs.items():
            env[v] = operands[k][: order + 1]
        _run(self.trace.instructions, env, order)
        return [[ZERO] * (order + 1) if r is None else env[r] for r in self.results]


def _type(x: Any) -> Type:
    return Type(x.dtype.code, tuple(x.shape))


def _as_numbers(series: Series, like: Any) -> Series:
    """With zeros in the first place where it vanishes: ops need operands."""
    return [zeros_like(like), *series[1:]] if series[0] is ZERO else series


def _nested(op: Op, operands: list[Series], attrs: tuple[Any, ...], order: int) -> list[Series]:
    """By derivatives of derivatives along the path."""

    def along(t: Any) -> list[list[Any]]:
        at = []
        for s in operands:
            x = s[0]
            for k in range(1, len(s)):
                if s[k] is not ZERO:
                    x = x + s[k] * t**k
            at.append(x)
        outputs = apply(op, at, attrs)
        return [[y] for y in ((outputs,) if op.n_outputs == 1 else outputs)]

    def next_order(g: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def derived(t: Any) -> Any:
            values, slopes = jvp(g, (t,), (_one(t),))
            return [[*v, s[-1]] for v, s in zip(values, slopes)]

        return derived

    f: Callable[[Any], Any] = along
    for _ in range(order):
        f = next_order(f)
    first = next(s[0] for s in operands if isinstance(s[0], Tensor) and s[0].dtype.is_inexact)
    found = f(zeros_like(OPS["sum"](first, tuple(range(first.ndim)), 0)))
    return [[y if k < 2 else y * (1.0 / math.factorial(k)) for k, y in enumerate(row)] for row in found]


def _one(t: Any) -> Any:
    return zeros_like(t) + 1.0


__all__ = ["taylor"]
