"""Where to look when a derivative is wrong: the rules and the detached values that it went through, with their lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wengert import _core
from wengert.debug.custom_rules import call_of, place_of_rule
from wengert.debug.explain import place_of_end
from wengert.debug.gradient_problem import Problem
from wengert.modes import enable_grad
from wengert.registry.record import find_op
from wengert.transforms.pullback import reachable

_PACKAGE = str(Path(__file__).parents[1])
_MOST = 6  # that are named


def suspects(problem: Problem) -> list[str]:
    """What a reverse pass of the problem goes through that is not the library's own mathematics, in words."""
    xs = problem.tensors(problem.points, requires_grad=True)
    with enable_grad():
        ys = problem(*xs)
    edges = [edge for y in ys if (edge := _core.node_of(y)) is not None]
    nodes = sorted(reachable(edges).values(), key=lambda n: n.seq)
    found: dict[str, None] = {}
    for n in (n for n in nodes if not n.is_leaf):
        found.update((f"a custom operation is on the way: {r}", None) for r in _custom_operations(n))
    for n in (n for n in nodes if not n.is_leaf):
        found.update((f"a value without gradient is on the way: {d}", None) for d in _detached(n))
    shown = list(found)[:_MOST]
    return shown if len(found) <= _MOST else [*shown, f"and {len(found) - _MOST} more of such"]


def _custom_operations(n: Any) -> Iterator[str]:
    if (call := call_of(n)) is not None:
        yield _described(call, n.line)
    for i in _instructions(n):
        call = getattr(getattr(i.op.jvp, "__self__", None), "call", None)
        if call is not None:
            yield _described(call, n.line if i.origin is None else str(i.origin.line))


def _detached(n: Any) -> Iterator[str]:
    if (end := _core.path_end(n.end)) is not None:
        yield place_of_end(end, n)
    for i in _instructions(n):
        if i.op.detaches and i.origin is not None:
            yield f"detach() or no_grad() at {i.origin.line}, in {n.name}"


def _instructions(n: Any) -> Sequence[Any]:
    """Those of a compiled function."""
    if n.custom is not None or n.derivation is None or find_op(n.name) is not None:
        return ()
    return n.derivation.forward.instructions  # type: ignore[no-any-return]


def _described(call: Any, line: str) -> str:
    rule = place_of_rule(call)
    called = "" if line.startswith(_PACKAGE) else f", called at {line}"  # by the checker itself
    return f"{call.name}{called}" + (f"; its rule is at {rule}" if rule else "")
