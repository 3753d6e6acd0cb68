"""Loops: `scan` and `fori_loop`. When traced, a loop becomes one instruction that holds the program of a turn.

Its derivative is a loop again. In the forward pass the values that were carried into each turn are kept, stacked; the
tangent is a loop over them that is linear in what it carries, and the cotangent is that loop transposed, which runs the
other way round.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wengert import tree
from wengert._core import Tensor, is_grad_enabled, same_sizes
from wengert.compiling.compile import compile, own_outputs
from wengert.dtypes import ALL as DTYPES
from wengert.dtypes import int64
from wengert.errors import ArgumentError, ShapeError
from wengert.memory.checkpoint import checkpoint, computed_cells, with_cells
from wengert.ops.index_sets import IndexSets, stacked, united
from wengert.ops.sparsity import Call, Known, Patterns
from wengert.passes.batch import batching
from wengert.passes.derive import pulling
from wengert.passes.evaluate import apply, at_sizes, evaluate, evaluating
from wengert.passes.example_axis import spread
from wengert.passes.linearize import zeros_like
from wengert.program.call_trace import call_trace
from wengert.program.ir import Operand, Program, Type, Var
from wengert.program.nested import Task
from wengert.program.simplify import simplify
from wengert.program.trace import Trace, Tracer
from wengert.registry.record import OPS, Op
from wengert.registry.zero import ZERO
from wengert.tensors.creation import arange, full
from wengert.transforms.regions import (
    closed_over,
    is_traced,
    region_op,
    register_family,
    require_callable,
    same_types,
    tangents_of,
    traced_part,
    types_of,
)
from wengert.transforms.revolve import parts
from wengert.transforms.sized import new_size, sized
from wengert.transforms.turns import BodyTrace, as_tensor, mapped_inputs, pushed_turn, require_same_carry


def scan(
    body_fn: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    checkpoints: int | None = None,
) -> tuple[Any, Any]:
    """Loop over `xs` with a carried state, and stack one result per iteration: (carry, y) = body_fn(carry, x).

        cₜ₊₁, yₜ = body(cₜ, xₜ)  for t = 0 … n − 1,  c₀ = init

    Returns the last carry, and the y of all iterations along a new first axis.

    - `init`: the first carry: a tensor or a container of tensors. It keeps its structure, dtypes and shapes.
    - `xs`: a tensor or a container of tensors, whose first axis is that of the iterations. Without it, x is None, and
      `length` says how many iterations there are.
    - `reverse`: go from the last slice to the first.
    - `checkpoints`: for reverse mode, keep this many carries at a time instead of all, and compute the others again
      by Revolve's schedule, in the fewest iterations possible: fewer than 3n for n = 1,000 with 20 checkpoints.

    In eager code this is a Python loop. Inside `compile` and `vmap` the body is traced once, however many iterations
    there are, and derivatives of any order are loops again.

    >>> import wengert as wg
    >>> @wg.compile
    ... def sums(x):
    ...     return wg.scan(lambda total, x: (total + x, total + x), wg.tensor(0.0), x)
    >>> total, partial = sums(wg.tensor([1.0, 2.0, 3.0]))
    >>> total.item(), partial.tolist()
    (6.0, [1.0, 3.0, 6.0])

    Reference: Griewank, Walther, "Algorithm 799: Revolve", 2000.
    """
    require_callable("scan", {"body_fn": body_fn})
    return _scan("scan", body_fn, init, xs, length, reverse, checkpoints)


def fori_loop(
    lower: Any, upper: Any, body_fn: Callable[[Any, Any], Any], init: Any, checkpoints: int | None = None
) -> Any:
    """Run carry = body_fn(i, carry) for i = lower … upper − 1, starting with `init`, and return the last carry.

    The bounds are integers that are known when the function is traced. Otherwise like `scan` without results per
    iteration; `checkpoints` has the same meaning there.

    >>> import wengert as wg
    >>> wg.compile(lambda x: wg.fori_loop(0, 3, lambda i, c: c * x, wg.tensor(1.0)))(wg.tensor(2.0)).item()
    8.0
    """
    require_callable("fori_loop", {"body_fn": body_fn})
    for what, bound in (("lower", lower), ("upper", upper)):
        if isinstance(bound, Tensor):
            raise ArgumentError(
                f"fori_loop: {what} must be an integer, got a tensor; use while_loop for a number of turns that is computed"
            )
        if not hasattr(bound, "__index__"):
            raise ArgumentError(f"fori_loop: {what} must be an integer, got {type(bound).__name__}")
    turns = arange(lower, upper) if upper - lower > 0 else arange(0)
    body = lambda carry, i: (body_fn(i, carry), None)
    return _scan("fori_loop", body, init, turns, None, False, checkpoints)[0]


def _scan(
    name: str, body_fn: Any, init: Any, xs: Any, length: Any, reverse: bool, checkpoints: int | None
) -> tuple[Any, Any]:
    _check_checkpoints(name, checkpoints)
    carried, structure = tree.flatten(init)
    carried = [as_tensor(name, "init", c) for c in carried]
    sliced, sliced_structure = tree.flatten(xs)
    sliced = [as_tensor(name, "xs", x) for x in sliced]
    n = _length(name, sliced, length)
    if any(is_traced(x) for x in (*carried, *sliced)) or call_trace() is not None:
        return _traced_scan(name, body_fn, carried, structure, sliced, sliced_structure, n, reverse, checkpoints)
    if n == 0:  # finds the types of the results without running a turn
        return compile(lambda init, xs: _scan(name, body_fn, init, xs, length, reverse, None))(init, xs)
    loop = _PythonLoop(name, body_fn, structure, sliced_structure, reverse)
    if checkpoints is None or not is_grad_enabled():
        return loop.results(*loop.run(carried, sliced, n))
    return loop.results(*loop.in_regions(carried, sliced, n, checkpoints, loop.cells()))


# ------------------------------------------------------------------------------------------------------------ arguments


def _check_checkpoints(name: str, checkpoints: Any) -> None:
    if checkpoints is not None and (
        isinstance(checkpoints, bool) or not isinstance(checkpoints, int) or checkpoints < 1
    ):
        raise ArgumentError(f"{name}: checkpoints must be a positive integer or None, got {checkpoints!r}")


def _length(name: str, sliced: Sequence[Tensor], length: Any) -> Any:
    for x in sliced:
        if x.ndim == 0:
            raise ShapeError(f"{name}: each turn takes a slice of xs, but one has no axes")
        if x.shape[0] != sliced[0].shape[0]:
            sizes = ", ".join(str(x.shape[0]) for x in sliced)
            raise ShapeError(f"{name}: the first axes of xs must have the same size, got {sizes}")
    if not sliced and length is None:
        raise ArgumentError(f"{name}: takes xs, or the length of the loop")
    if length is not None and not (hasattr(length, "__index__") and not isinstance(length, Tensor) and length >= 0):
        raise ArgumentError(f"{name}: length must be an integer that is not negative, got {length!r}")
    if sliced and length is not None and not sliced[0].shape[0] == length:
        raise ShapeError(f"{name}: length is {length}, but xs has {sliced[0].shape[0]} slices")
    return sliced[0].shape[0] if sliced else length


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(f"scan: body_fn must return a pair, the carry and the result of the turn, got {result!r}")
    return result


@dataclass(slots=True)
class _PythonLoop:
    """A loop that runs immediately."""

    name: str  # in messages
    body_fn: Any
    structure: Any
    sliced_structure: Any
    reverse: bool

    def run(self, carried: list[Any], sliced: list[Any], n: int) -> tuple[list[Any], list[Any], Any]:
        """The carry after n turns over these slices, and the stacked results with their structure."""
        made: list[list[Any]] = []
        out_structure: Any = None  # there is a turn
        for t in reversed(range(n)) if self.reverse else range(n):
            x = tree.unflatten(self.sliced_structure, [s[t] for s in sliced])
            carry, y = _pair(self.body_fn(tree.unflatten(self.structure, carried), x))
            leaves, after = tree.flatten(carry)
            leaves = [as_tensor(self.name, "the carry", c) for c in leaves]
            require_same_carry(self.name, types_of(carried), types_of(leaves), (self.structure, after))
            carried = leaves
            results, out_structure = tree.flatten(y)
            made.append([as_tensor(self.name, "the results", r) for r in results])
        turns = made[::-1] if self.reverse else made
        stacked = [OPS["concat"]([OPS["reshape"](r, (1, *r.shape)) for r in row], 0) for row in zip(*turns)]
        return carried, stacked, out_structure

    def cells(self) -> Any:
        """Computed tensors that the body closes over, which become arguments of the regions."""
        return computed_cells(self.body_fn)

    def in_regions(
        self, carried: list[Any], sliced: list[Any], n: int, places: int, cells: Any
    ) -> tuple[list[Any], list[Any], Any]:
        """The same, in regions that are recomputed in backward."""
        inside = replace(self, body_fn=with_cells(self.body_fn, cells) if cells else self.body_fn)
        made, structure = [], None
        schedule = parts(n, places)
        for k, (length, free) in enumerate(schedule):
            slices = _taken(sliced, [m for m, _ in schedule[:k]], length, n, self.reverse)
            if k == len(schedule) - 1:
                carried, stacked, structure = inside.run(carried, slices, length)
            else:
                carried, stacked, structure = checkpoint(self.in_regions, carried, slices, length, free, cells)
            made.append(stacked)
        return carried, _joined(made, self.reverse), structure

    def results(self, carried: list[Any], stacked: list[Any], structure: Any) -> tuple[Any, Any]:
        """The results in the form that body_fn returns."""
        return tree.unflatten(self.structure, carried), tree.unflatten(structure, stacked)


def _taken(sliced: Sequence[Any], before: Sequence[int], length: int, n: int, reverse: bool) -> list[Any]:
    """The slices for a part of the loop."""
    start = n - sum(before) - length if reverse else sum(before)
    return [x[start : start + length] for x in sliced]


def _joined(made: list[list[Any]], reverse: bool) -> list[Any]:
    """Join the results of the parts to those of the whole loop."""
    ordered = made[::-1] if reverse else made
    return [row[0] if len(row) == 1 else OPS["concat"](list(row), 0) for row in zip(*ordered)]


# ------------------------------------------------------------------------------------------------------------- tracing


_DRAWS = "draw them before the loop, along a first axis, and pass them as xs"


def _traced_scan(
    name: str,
    body_fn: Any,
    carried: list[Any],
    structure: Any,
    sliced: list[Any],
    sliced_structure: Any,
    n: Any,
    reverse: bool,
    checkpoints: int | None,
) -> tuple[Any, Any]:
    structures: list[Any] = []

    def body(*given: Any) -> Any:
        carry = tree.unflatten(structure, given[: len(carried)])
        pair = _pair(body_fn(carry, tree.unflatten(sliced_structure, given[len(carried) :])))
        structures[:] = [tree.flatten(part)[1] for part in pair]
        return pair

    slices = [Type(t.dtype, t.shape[1:]) for t in types_of(sliced)]
    part = traced_part(BodyTrace(f"{name}: body_fn", _DRAWS), body, [*types_of(carried), *slices])
    after = [v.type for v in part.outputs[: structures[0].num_leaves]]
    require_same_carry(name, types_of(carried), after, (structure, structures[0]))
    outside = closed_over([part])
    program = _ordered(part.program(outside), len(carried), len(sliced))
    loop = Loop(program, n, len(carried), len(sliced), reverse)
    operands = [*carried, *outside.values(), *sliced]
    made = loop.apply(operands) if checkpoints is None else loop.apply_in_regions(operands, checkpoints, {})
    return tree.unflatten(structure, made[: len(carried)]), tree.unflatten(structures[1], made[len(carried) :])


def _ordered(program: Program, n_carried: int, n_sliced: int) -> Program:
    """The program with constant inputs before the slices."""
    carried, rest = program.inputs[:n_carried], program.inputs[n_carried:]
    return Program([*carried, *rest[n_sliced:], *rest[:n_sliced]], program.instructions, program.outputs)


# ----------------------------------------------------------------------------------------------------- the instruction


@dataclass(slots=True)
class Loop:
    """The attributes of a loop instruction. Its operands, like the inputs of a turn, are: carried, constant, sliced."""

    body: Program
    length: Any
    n_carried: int
    n_sliced: int
    reverse: bool
    linear: bool = False  # linear in everything it carries: a loop for tangents

    @classmethod
    def of(cls, attrs: tuple[Any, ...]) -> Loop:
        """From the attributes of an instruction."""
        (body,), (length,), n_carried, n_sliced, reverse, linear = attrs
        return cls(body, length, n_carried, n_sliced, bool(reverse), bool(linear))

    @property
    def n_fixed(self) -> int:
        """The number of operands that are constant across turns."""
        return len(self.body.inputs) - self.n_carried - self.n_sliced

    @property
    def stacked(self) -> list[Type]:
        """The types of the stacked results, including the leading axis."""
        turn = (o.type for o in self.body.outputs[self.n_carried :])  # type: ignore[union-attr]
        return [Type(t.dtype, (self.length, *t.shape)) for t in turn]

    @property
    def results(self) -> list[Type]:
        """The types of the results."""
        return [o.type for o in self.body.outputs[: self.n_carried]] + self.stacked  # type: ignore[union-attr]

    def apply(self, operands: Sequence[Any]) -> list[Any]:
        """The results, on tensors of any level."""
        attrs = ((self.body,), (self.length,), self.n_carried, self.n_sliced, int(self.reverse), int(self.linear))
        op = _op(len(self.body.outputs))
        if op.n_outputs == 0:
            return []
        made = apply(op, list(operands), attrs)
        return list(made) if op.n_outputs > 1 else [made]

    def apply_in_regions(
        self, operands: Sequence[Any], places: int, known: dict[tuple[int, int], tuple[Any, Program]]
    ) -> list[Any]:
        """The same in parts; all but the last are instructions that are recomputed for their derivatives. `known` are their
        programs, by length and number of kept values."""
        n, end = int(self.length), len(self.body.inputs) - self.n_sliced
        carried, rest, sliced = list(operands[: self.n_carried]), operands[self.n_carried : end], operands[end:]
        made, schedule = [], parts(n, places)
        for k, (length, free) in enumerate(schedule):
            given = [*carried, *rest, *_taken(sliced, [m for m, _ in schedule[:k]], length, n, self.reverse)]
            part = replace(self, length=length)
            if k == len(schedule) - 1:
                results = part.apply(given)
            else:
                results = part._as_region(given, min(length, free), known)
            carried = results[: self.n_carried]
            made.append(results[self.n_carried :])
        return [*carried, *_joined(made, self.reverse)]

    def _as_region(
        self, operands: list[Any], places: int, known: dict[tuple[int, int], tuple[Any, Program]]
    ) -> list[Any]:
        if not self.body.outputs:
            return []
        key = (int(self.length), places)
        if key not in known:
            trace = Trace()
            inputs = [trace.input(t) for t in types_of(operands)]
            with trace:
                results = self.apply_in_regions(inputs, places, known)
            outputs: list[Operand | None] = [x._var for x in results]
            known[key] = new_size(), own_outputs(Program(trace.inputs, trace.instructions, outputs))
        size, program = known[key]
        return sized([size], [full((), int(self.length), dtype=int64)], program, operands)


def _op(n_outputs: int) -> Op:
    return region_op(
        "scan",
        n_outputs,
        [
            ("body", "programs"),
            ("length", "sizes"),
            *((a, "integer") for a in ("n_carried", "n_sliced", "reverse", "linear")),
        ],
        evaluated=_evaluated,
        jvp=_push,
        transpose=(_pull,),
        formula="the last carried values, and the results of all turns, stacked",
        vmap=_batched,
        sparsity=_sparsity,
        infer=lambda attrs: Loop.of(attrs).results,
        lower=_lower,
        linearize=_linearize,
        check=functools.partial(_check, n_outputs),
    )


register_family("scan", _op)


def _check(n_outputs: int, types: Sequence[Type], attrs: tuple[Any, ...]) -> str:
    """Check an instruction read from a file; returns an error text."""
    bodies, length, n_carried, n_sliced, reverse, linear = attrs
    if len(bodies) != 1 or len(length) != 1 or not {reverse, linear} <= {0, 1}:
        return "a loop has one body, and one length"
    body, end = bodies[0], len(types) - n_sliced
    if n_carried < 0 or n_sliced < 0 or n_carried > end or len(body.outputs) != n_outputs or n_carried > n_outputs:
        return "the numbers of what is carried and sliced do not fit"
    if isinstance(length[0], int) and length[0] < 0:
        return "the length is negative"
    if not all(t.shape and same_sizes(t.shape[:1], length) for t in types[end:]):
        return "what is sliced has another length"
    turn = [*types[:end], *(Type(t.dtype, t.shape[1:]) for t in types[end:])]
    if not same_types(turn, body.inputs) or not same_types(types[:n_carried], body.outputs[:n_carried]):
        return "the operands are not those of the body"
    return "" if all(isinstance(o, Var) for o in body.outputs) else "a result of the body is missing"


def _lower(builder: Any, attrs: tuple[Any, ...], programs: list[Any], inputs: list[int], outputs: list[int]) -> None:
    loop = Loop.of(attrs)
    stacked = [(t.dtype, t.shape) for t in loop.stacked]
    builder.repeat(programs[0], (loop.length,), loop.n_carried, loop.n_sliced, loop.reverse, stacked, inputs, outputs)


def _evaluated(operands: Sequence[Any], attrs: tuple[Any, ...], leaves: list[Any], sizes: list[Any]) -> Task[list[Any]]:
    loop = Loop.of(attrs)
    (length,) = at_sizes((loop.length,), leaves, sizes)
    n, m = loop.n_carried, loop.n_carried + loop.n_fixed
    carried, fixed, sliced = list(operands[:n]), operands[n:m], operands[m:]
    made = []
    for t in reversed(range(length)) if loop.reverse else range(length):
        results = yield evaluating(loop.body, [*carried, *fixed, *(x[t] for x in sliced)], leaves, sizes)
        carried = results[:n]
        made.append([OPS["reshape"](y, (1, *y.shape)) for y in results[n:]])
    turns = made[::-1] if loop.reverse else made
    stacked = [OPS["concat"](list(row), 0) for row in zip(*turns)]
    if not turns:
        stacked = [full(at_sizes(t.shape, leaves, sizes), 0, dtype=DTYPES[t.dtype]) for t in loop.stacked]
    return [*carried, *stacked]


# ------------------------------------------------------------------------------------------------------------ derivatives


def _linearize(
    inputs: Sequence[Any], dots: Sequence[Any], attrs: tuple[Any, ...], forward: bool
) -> Task[tuple[list[Any], list[Any]]]:
    """The loop, keeping what it carries into each turn, and a second loop over that for the tangents. If nothing will be
    transposed, a single loop for both, which keeps nothing."""
    loop = Loop.of(attrs)
    n, m = loop.n_carried, len(loop.body.outputs)
    pushed, wanted, moving = yield from pushed_turn(loop.body, n, [d is not ZERO for d in dots], forward)
    if forward:
        return _joint(loop, pushed, wanted, moving, inputs, dots)
    keeping = Program(loop.body.inputs, loop.body.instructions, [*loop.body.outputs, *loop.body.inputs[:n]])
    kept = Loop(own_outputs(keeping), loop.length, n, loop.n_sliced, loop.reverse).apply(inputs)
    turn = _tangent_turn(loop, pushed, wanted, moving)
    rest, slices = inputs[n : n + loop.n_fixed], inputs[n + loop.n_fixed :]
    varied = [zeros_like(inputs[k]) if dots[k] is ZERO else dots[k] for k in wanted]
    carried_dots = [d for k, d in zip(wanted, varied) if k < n]
    fixed_dots = [d for k, d in zip(wanted, varied) if n <= k < n + loop.n_fixed]
    sliced_dots = [d for k, d in zip(wanted, varied) if k >= n + loop.n_fixed]
    sliced = [*kept[m:], *slices, *sliced_dots]
    tangent = Loop(turn, loop.length, len(carried_dots), len(sliced), loop.reverse, linear=True)
    y_dots: list[Any] = [ZERO] * m
    made = tangent.apply([*carried_dots, *rest, *fixed_dots, *sliced])
    for k, y_dot in zip([*(k for k in wanted if k < n), *moving], made):
        y_dots[k] = y_dot
    return kept[:m], y_dots


def _joint(
    loop: Loop, pushed: Program, wanted: list[int], moving: list[int], inputs: Sequence[Any], dots: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Values and tangents in one loop."""
    n, m, end = loop.n_carried, len(loop.body.outputs), loop.n_carried + loop.n_fixed
    carried = [k for k in wanted if k < n]
    varied = [zeros_like(inputs[k]) if dots[k] is ZERO else dots[k] for k in wanted]

    def in_order(values: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        ordered: list[Any] = []
        for first, last in ((0, n), (n, end), (end, len(values))):
            ordered += [*values[first:last], *(d for k, d in zip(wanted, tangents) if first <= k < last)]
        return ordered

    tangents = tangents_of(pushed, loop.body, [*carried, *moving])
    body = Program(
        in_order(pushed.inputs[: len(inputs)], pushed.inputs[len(inputs) :]),
        tangents.instructions,
        [
            *pushed.outputs[:n],
            *tangents.outputs[: len(carried)],
            *pushed.outputs[n:m],
            *tangents.outputs[len(carried) :],
        ],
    )
    n_sliced = loop.n_sliced + sum(k >= end for k in wanted)
    both = Loop(own_outputs(simplify(body)), loop.length, n + len(carried), n_sliced, loop.reverse)
    made = both.apply(in_order(inputs, varied))
    first = n + len(carried)
    ys = [*made[:n], *made[first : first + m - n]]
    for y in ys:
        if isinstance(y, Tracer):
            y._var.linear = False  # values, as opposed to tangents
    y_dots: list[Any] = [ZERO] * m
    for k, y_dot in zip([*carried, *moving], [*made[n:first], *made[first + m - n :]]):
        y_dots[k] = y_dot
    return ys, y_dots


def _tangent_turn(loop: Loop, pushed: Program, wanted: list[int], moving: list[int]) -> Program:
    """One turn of the tangent loop. Inputs: carried tangents; constants and their tangents; the values carried into the
    turn, slices, and their tangents."""
    n = loop.n_carried
    values, dots = pushed.inputs[: len(loop.body.inputs)], pushed.inputs[len(loop.body.inputs) :]
    end = n + loop.n_fixed
    carried_dots = [d for k, d in zip(wanted, dots) if k < n]
    fixed_dots = [d for k, d in zip(wanted, dots) if n <= k < end]
    sliced_dots = [d for k, d in zip(wanted, dots) if k >= end]
    inputs = [*carried_dots, *values[n:end], *fixed_dots, *values[:n], *values[end:], *sliced_dots]
    made = tangents_of(pushed, loop.body, [*(k for k in wanted if k < n), *moving])
    return own_outputs(simplify(Program(inputs, made.instructions, made.outputs)))


def _push(*given: Any, **attrs: Any) -> Task[Any]:
    """Only the tangents, when the results are already known."""
    n = len(given) // 2
    dots, inputs = given[:n], given[n + 1 :]
    _, y_dots = yield from _linearize(inputs, dots, tuple(attrs.values()), False)
    return y_dots[0] if len(y_dots) == 1 else tuple(y_dots)


def _pull(y_bar: Any, which: Sequence[int], operands: Sequence[Any], **attrs: Any) -> Task[list[Any]]:
    """The transposed loop: it runs backwards, carries cotangents, and adds up those of the constants."""
    loop = Loop.of(tuple(attrs.values()))
    n, end = loop.n_carried, loop.n_carried + loop.n_fixed
    linear = sorted(
        {*range(n), *which}
    )  # a tangent loop is linear in everything it carries, including values that start as zeros
    y_bars = list(y_bar) if len(loop.body.outputs) > 1 else [y_bar]
    bars = [full(t.shape, 0.0, dtype=DTYPES[t.dtype]) if b is ZERO else b for b, t in zip(y_bars, loop.results)]
    fixed = [k for k in linear if n <= k < end]
    sums = [zeros_like(operands[k]) for k in fixed]
    others = [operands[k] for k in range(n, end) if k not in linear]
    slices = [operands[k] for k in range(end, len(operands)) if k not in linear]
    turn = _transposed_turn(loop, linear, (yield pulling(loop.body, linear)))
    back = Loop(turn, loop.length, n + len(fixed), len(slices) + len(bars) - n, not loop.reverse)
    made = back.apply([*bars[:n], *sums, *others, *slices, *bars[n:]])
    found = dict(zip([*range(n), *fixed, *(k for k in linear if k >= end)], made))
    return [found[k] for k in which]


def _transposed_turn(loop: Loop, linear: list[int], pull: Program) -> Program:
    """One turn of the transposed loop, by the transpose of the body. Inputs: cotangents of the values carried out, sums;
    constants; slices and cotangents of the turn's results. Outputs: cotangents of the values carried in, sums; cotangents of
    the slices."""
    n, end = loop.n_carried, loop.n_carried + loop.n_fixed
    types = [v.type for v in loop.body.inputs]
    fixed = [k for k in linear if n <= k < end]
    trace = Trace()
    bars = [trace.input(types[k]) for k in range(n)]
    sums = [trace.input(types[k]) for k in fixed]
    others = [trace.input(types[k]) for k in range(n, end) if k not in linear]
    slices = [trace.input(types[k]) for k in range(end, len(types)) if k not in linear]
    made_bars = [trace.input(o.type) for o in loop.body.outputs[n:]]  # type: ignore[union-attr]
    with trace:
        cotangents = dict(zip(linear, evaluate(pull, [*others, *slices, *bars, *made_bars], [], [])))
        added = [s + cotangents[k] for s, k in zip(sums, fixed)]
    results = [*(cotangents[k] for k in range(n)), *added, *(cotangents[k] for k in linear if k >= end)]
    outputs: list[Operand | None] = [x._var for x in results]
    return own_outputs(simplify(Program(trace.inputs, trace.instructions, outputs)))


def _batched(size: Any, mapped: Sequence[bool], *operands: Any, **attrs: Any) -> Task[Any]:
    """Every turn processes many examples at once."""
    loop = Loop.of(tuple(attrs.values()))
    n, end = loop.n_carried, loop.n_carried + loop.n_fixed
    flags = mapped_inputs(loop.body, n, mapped)
    body = yield batching(loop.body, flags, size, [*flags[:n], *(True for _ in loop.stacked)])
    carried = [spread(x, size) if f and not m else x for x, m, f in zip(operands[:n], mapped, flags)]
    slices = [_swapped(x) if m else x for x, m in zip(operands[end:], mapped[end:])]
    made = Loop(own_outputs(body), loop.length, n, loop.n_sliced, loop.reverse, loop.linear).apply(
        [*carried, *operands[n:end], *slices]
    )
    results = [*(y if f else spread(y, size) for y, f in zip(made, flags[:n])), *map(_swapped, made[n:])]
    return results[0] if len(results) == 1 else tuple(results)


_MOST_TURNS = 64  # turns whose patterns are found one by one


def _sparsity(call: Call) -> Task[Patterns]:
    """The pattern turn by turn; if there are many, every turn is assumed to depend on whatever any turn does."""
    loop = Loop.of(call.attrs)
    if loop.length <= _MOST_TURNS:
        return (yield from _turn_by_turn(loop, call))
    n, end = loop.n_carried, loop.n_carried + loop.n_fixed
    carried, fixed = list(call.patterns[:n]), call.patterns[n:end]
    slices = [
        None if p is None else p.merged(_of_slices(p, loop), p.n_rows // loop.length) for p in call.patterns[end:]
    ]
    while True:
        known: Known = lambda k: call.known(k) if n <= k < end else None
        made = yield call.inner(loop.body, [*carried, *fixed, *slices], known)
        more = [united(pair) for pair in zip(carried, made[:n])]
        if [p and p.nnz for p in more] == [p and p.nnz for p in carried]:
            break
        carried = more
    return [*carried, *(None if p is None else stacked([p] * loop.length) for p in made[n:])]


def _of_slices(p: IndexSets, loop: Loop) -> Any:
    """The pattern of each sliced element, by its position in the slice."""
    return np.tile(np.arange(p.n_rows // loop.length), loop.length)


def _turn_by_turn(loop: Loop, call: Call) -> Task[Patterns]:
    n, end = loop.n_carried, loop.n_carried + loop.n_fixed
    carried, turns = list(call.patterns[:n]), []
    for t in reversed(range(loop.length)) if loop.reverse else range(loop.length):
        slices = [
            None
            if p is None
            else p.taken(np.flatnonzero(np.repeat(np.arange(loop.length), p.n_rows // loop.length) == t))
            for p in call.patterns[end:]
        ]
        made = yield call.inner(loop.body, [*carried, *call.patterns[n:end], *slices], _known_in_turn(call, n, end, t))
        carried = made[:n]
        turns.append(made[n:])
    sizes = [math.prod(o.type.shape) for o in loop.body.outputs[n:]]  # type: ignore[union-attr]
    ordered = turns[::-1] if loop.reverse else turns
    nothing = [IndexSets.nothing(size, call.n_columns) for size in sizes]
    results = [[nothing[k] if turn[k] is None else turn[k] for turn in ordered] for k in range(len(sizes))]
    return [*carried, *(stacked(parts) if parts else None for parts in results)]


def _known_in_turn(call: Call, n: int, end: int, t: int) -> Known:
    def known(k: int) -> Any:
        numbers = call.known(k) if k >= n else None  # carried values change
        return numbers if numbers is None or k < end else numbers[t]

    return known


def _swapped(x: Any) -> Any:
    """x with its first two axes in the other order."""
    return OPS["permute"](x, (1, 0, *range(2, x.ndim)))


__all__ = ["fori_loop", "scan"]
