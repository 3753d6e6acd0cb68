"""A check of a custom operation: its rule against numbers, and what a rule must keep to besides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.autograd.reverse import grad_of
from wengert.debug.deadline import deadline
from wengert.debug.gradient_check import check_gradients
from wengert.debug.gradient_problem import Array, Problem, wide
from wengert.debug.gradient_report import GradientReport
from wengert.errors import CustomOpError, GradientError
from wengert.modes import enable_grad
from wengert.tensors.conversion import tensor

_LINEAR = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "complex64": 1e-4}  # and 1e-10 of wider ones


def check_custom_op(op: Callable[..., Any], *inputs: Any, time_limit: float | None = 60.0) -> GradientReport:
    """Check a custom operation at some inputs: `bool(report)`, and `print(report)` for what is wrong with it.

    Besides comparing the rule with numerical derivatives as `check_gradients` does (in both modes, at first and
    second order), it checks that the forward function gives the same results twice, that neither function writes to
    its arguments, that the rule is linear in its (co)tangents, and that the rule itself can be differentiated.

    >>> import wengert as wg
    >>> class Scale(wg.CustomOp):
    ...     def forward(self, x):
    ...         return 3.0 * x
    ...     def backward(self, y_bar, x):
    ...         return 3.0 * y_bar + 0.1
    >>> report = check_custom_op(Scale(), wg.tensor([1.0, 2.0]))
    >>> report.verdict, report.problems[0].partition(":")[0]
    ('bug', 'not linear')
    """
    name = getattr(op, "__name__", type(op).__name__)
    with deadline(time_limit, "check_custom_op"):
        problem = Problem(op, inputs, "check_custom_op")
        problem.values(problem.points)  # what forward raises is the caller's
        try:
            found = _found(problem)
            report = check_gradients(op, *inputs, time_limit=None)
        except CustomOpError as e:  # of the rule: such as a gradient of another shape
            return GradientReport((), name=name, problems=(f"refused: {e}",))
        missing = [n for n in report.notes if n.startswith("second order is not available")]
        found += [f"no second order: {n.partition(': ')[2]}" for n in missing]
        notes = tuple(n for n in report.notes if n not in missing)
        return replace(report, name=name, problems=tuple(found), notes=notes)


def _found(problem: Problem) -> list[str]:
    """What is wrong with an operation, besides numbers."""
    return [*_written(problem), *_other_results(problem)] or _other_gradients(problem) or _not_linear(problem)


def _other_results(problem: Problem) -> list[str]:
    first, second = problem.values(problem.points), problem.values(problem.points)
    if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, second)):
        return []
    return [
        "not deterministic: forward gave other results for the same inputs; draw from a generator outside, and pass what "
        "was drawn as an argument, or declare the op with pure=False"
    ]


def _other_gradients(problem: Problem) -> list[str]:
    seeds = _seeds(problem(*problem.tensors(problem.points)), 1)
    with contextlib.suppress(GradientError):
        pairs = zip(problem.labels, _pulled(problem, seeds), _pulled(problem, seeds))
        return [
            f"not deterministic: the rule gave another gradient by {label} for the same cotangent"
            for label, a, b in pairs
            if not np.array_equal(a, b, equal_nan=True)
        ]
    return []


def _seeds(ys: Sequence[Tensor], number: int) -> list[Tensor]:
    rng = np.random.default_rng([23, number])
    return [tensor(rng.uniform(0.5, 1.5, tuple(y.shape)), dtype=y.dtype) for y in ys]


def _pulled(problem: Problem, seeds: Sequence[Tensor]) -> list[Array]:
    xs = problem.tensors(problem.points, requires_grad=True)
    with enable_grad():
        gs = grad_of(problem(*xs), xs, list(seeds), allow_unused=True)
    return [np.zeros_like(wide(x)) if g is None else wide(g) for g, x in zip(gs, xs)]


def _written(problem: Problem) -> list[str]:
    """What forward or the rule write to."""
    xs = problem.tensors(problem.points, requires_grad=True)

    def changed() -> list[str]:
        pairs = zip(problem.labels, xs, problem.points)
        return [label for label, x, before in pairs if not np.array_equal(wide(x), before, equal_nan=True)]

    who = "forward"
    with enable_grad():
        ys = problem(*xs)
        if not changed():
            who = "the rule"
            with contextlib.suppress(GradientError):  # one that is missing: check_gradients says so
                grad_of(ys, xs, _seeds(ys, 0), allow_unused=True)
    return [
        f"written to: {who} changes {label}, which belongs to the caller; write to a clone()" for label in changed()
    ]


def _not_linear(problem: Problem) -> list[str]:
    """A rule is linear in its cotangent: pull(2a − 3b) = 2 pull(a) − 3 pull(b)."""
    ys = problem(*problem.tensors(problem.points))
    a, b = _seeds(ys, 1), _seeds(ys, 2)
    try:
        pulled_a, pulled_b = _pulled(problem, a), _pulled(problem, b)
        both = _pulled(problem, [2 * s - 3 * t for s, t in zip(a, b)])
    except GradientError:
        return []
    tolerance = max(_LINEAR.get(d.name, 1e-10) for d in problem.dtypes)
    found = []
    for label, ga, gb, g in zip(problem.labels, pulled_a, pulled_b, both):
        size = np.max(np.abs(ga) + np.abs(gb), initial=0.0)
        off = np.max(np.abs(g - 2 * ga + 3 * gb), initial=0.0)
        if off > tolerance * size:
            found.append(
                f"not linear: a rule is linear in its cotangent, but its gradient by {label} of 2a − 3b is off by {off:.3g}"
            )
    return found


__all__ = ["check_custom_op"]
