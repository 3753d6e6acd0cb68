"""Ops whose kernel is a Python function, made while tracing. Under vmap they are called once per example."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from wengert import _core
from wengert.passes.batch import batched_function
from wengert.passes.example_axis import all_mapped
from wengert.registry.record import CALLBACKS, OPS, Op, Rule
from wengert.registry.zero import ZERO

_IN_A_LOOP = "in a loop"
_numbers = itertools.count()


def define_callback(
    name: str,
    n_inputs: int,
    outputs: list[tuple[int, tuple[int, ...]]],
    function: Callable[..., Any],
    *,
    jvp: Rule | str,
    transpose: Sequence[Rule | None] = (),
    vmap: Rule | None = None,
    sparsity: Rule | str = "everything",
    loops_over: str = "",
) -> Op:
    """Make an op whose kernel is a Python function, under a unique name. `loops_over`: the op that it calls for one example
    after the other.

    It lives as long as the programs that have it. `function` and the rules must not refer to one of them. Without a batch
    rule it is called for one example after the other.
    """
    if vmap is None:
        vmap = functools.partial(run_in_a_loop, name, outputs, function, jvp, tuple(transpose))
    unique = f"{name}#{next(_numbers)}"
    native = _core.add_callback(unique, n_inputs, outputs, function)
    op = Op(
        unique,
        native,
        n_inputs,
        len(outputs),
        (),
        False,
        True,
        False,
        jvp,
        transpose=tuple(transpose),
        expensive=True,
        public=False,
        vmap=vmap,
        sparsity=sparsity,
        callback=True,
        loops_over=loops_over,
    )
    CALLBACKS[unique] = op
    return op


def run_in_a_loop(
    name: str,
    outputs: Sequence[tuple[int, tuple[int, ...]]],
    function: Callable[..., Any],
    jvp: Rule | str,
    transpose: Sequence[Rule | None],
    size: Any,
    mapped: Sequence[bool],
    *operands: Any,
) -> Any:
    """The batch rule of a callback without one: an op that calls its function for each example, with the same rules."""
    n = int(size)

    def run(*tensors: Any) -> list[Any]:
        rows = [function(*(_example(t, i) for t in tensors)) for i in range(n)]
        return [_stacked([row[k] for row in rows], t) for k, t in enumerate(outputs)]

    def tangents(*values: Any) -> Any:
        return _of_all(jvp, n, values, values[: len(operands)])

    def transposed(rule: Rule) -> Rule:
        return lambda y_bar, *xs: _of_all(rule, n, (y_bar, *xs), ())

    op = define_callback(
        f"{name} {_IN_A_LOOP}",
        len(operands),
        [(dtype, (n, *shape)) for dtype, shape in outputs],
        run,
        jvp=tangents if callable(jvp) else jvp,
        transpose=[None if rule is None else transposed(rule) for rule in transpose],
        loops_over=name,
    )
    return op(*all_mapped(size, mapped, operands))


def plain_name(op: str) -> str:
    """The name of an op, without the number of one that was made while tracing."""
    return op.partition("#")[0].removesuffix(f" {_IN_A_LOOP}")


def _example(t: Any, i: int) -> Any:
    part = OPS["slice"](t, (i, *(0 for _ in t.shape[1:])), (1, *t.shape[1:]), (1,) * t.ndim)
    return OPS["reshape"](part, t.shape[1:])


def _stacked(rows: list[Any], output: tuple[int, tuple[int, ...]]) -> Any:
    dtype, shape = output
    if not rows:
        return OPS["full"]((0, *shape), dtype, 0.0)
    return OPS["concat"]([OPS["reshape"](r, (1, *shape)) for r in rows], 0)


def _of_all(rule: Any, size: int, values: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Turn a derivative rule for one example into one for all. A value may be a tuple of values, or a symbolic zero."""
    flat: list[Any] = []
    for v in values:
        flat.extend(v if isinstance(v, tuple) else (v,))
    given = [v for v in flat if v is not ZERO]
    linear = [any(v is t for t in tangents) for v in given]

    def of_one(*parts: Any) -> Any:
        fresh = iter(parts)

        def filled(v: Any) -> Any:
            return v if v is ZERO else next(fresh)

        return rule(*(tuple(map(filled, v)) if isinstance(v, tuple) else filled(v) for v in values))

    return batched_function(of_one, size, [True] * len(given), given, {}, linear)
