"""Loops of unknown length: `while_loop`. Traced, one is an instruction that holds a condition and the program of a turn.

It also counts its turns. In forward mode values and tangents go through one loop. In reverse mode the number of turns is
known, so that the derivative is that of loops of known length inside of each other (`sized`): a loop keeps what is carried
into each of its turns, and a turn computes what is inside of it again. With p turns of q turns each, p + q carried values
are kept at a time instead of p·q; a third loop inside makes it their cube root.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wengert import tree
from wengert._core import Tensor, is_grad_enabled
from wengert.compiling.compile import own_outputs
from wengert.dtypes import bool_, float64, int64
from wengert.errors import ArgumentError, ShapeError
from wengert.memory.checkpoint import checkpoint, computed_cells, with_cells
from wengert.ops.index_sets import united
from wengert.ops.sparsity import Call, Patterns
from wengert.passes.batch import batching
from wengert.passes.derive import pushing
from wengert.passes.evaluate import apply, evaluate, evaluating
from wengert.passes.example_axis import spread
from wengert.passes.linearize import zeros_like
from wengert.program.call_trace import call_trace
from wengert.program.ir import Program, Type, Var
from wengert.program.nested import Task
from wengert.program.simplify import simplify
from wengert.program.trace import Trace, Tracer, create
from wengert.registry.record import OPS, Op
from wengert.registry.zero import ZERO
from wengert.tensors.creation import full
from wengert.transforms.branches import taken
from wengert.transforms.loops import Loop
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
    where_examples,
)
from wengert.transforms.sized import new_size, sized
from wengert.transforms.turns import BodyTrace, as_tensor, depending, mapped_inputs, pushed_turn, require_same_carry

_KEPT_BYTES = 1 << 20  # of carried values that are kept before anything is computed again
_FEWEST_CHECKPOINTS = 4
_DRAWS = "draw them before the loop, and index them by a count of the turns that is carried"


def while_loop(
    cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any], init: Any, checkpoints: int | None = None
) -> Any:
    """Run carry = body_fn(carry) while cond_fn(carry) is true, starting with `init`, and return the last carry.

    The carry is a tensor or a container of tensors that keeps its structure, dtypes and shapes. Both functions may
    use tensors from outside. Derivatives of every order exist in both modes; the number of iterations counts as a
    constant.

    In eager code this is a Python loop, recorded as it runs. Inside `compile` and `vmap`, both functions are traced
    once. Reverse mode through n iterations then keeps the carries of about √n of them (of all, if they take less than
    a megabyte), and computes the others again. `checkpoints=c` keeps at most c carries instead, also in eager code:
    enough for c iterations without recomputation, for (c/2)² if each is computed once more, for (c/3)³ if each is
    computed twice more. In eager code, body_fn is then called again in the backward pass.

    With a batch of conditions under `vmap`, the loop runs until all examples are done; those that are done keep their
    values.

    >>> import wengert as wg
    >>> def newton(a):  # the square root, by Newton's method
    ...     return wg.while_loop(lambda x: abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a)
    >>> a = wg.tensor(2.0, dtype=wg.float64)
    >>> round(newton(a).item(), 12), round(wg.compile(wg.grad(newton))(a).item(), 12)
    (1.414213562373, 0.353553390593)

    References: Griewank, Walther, "Algorithm 799: Revolve", 2000; Chen et al., "Training deep nets with sublinear memory
    cost", 2016.
    """
    require_callable("while_loop", {"cond_fn": cond_fn, "body_fn": body_fn})
    if checkpoints is not None and (isinstance(checkpoints, bool) or not isinstance(checkpoints, int)):
        raise ArgumentError(f"while_loop: checkpoints must be an integer or None, got {checkpoints!r}")
    if checkpoints is not None and checkpoints < _FEWEST_CHECKPOINTS:
        raise ArgumentError(f"while_loop: checkpoints must be at least {_FEWEST_CHECKPOINTS}, got {checkpoints}")
    leaves, structure = tree.flatten(init)
    carried = [as_tensor("while_loop", "init", c) for c in leaves]
    if not carried:
        raise ArgumentError("while_loop: init must hold a tensor or a number, as otherwise the condition never changes")
    if any(map(is_traced, carried)) or call_trace() is not None:
        return _traced(cond_fn, body_fn, carried, structure, checkpoints)
    loop = _PythonLoop(cond_fn, body_fn, structure)
    whole = checkpoints is None or not is_grad_enabled()
    made = loop.run(carried, None)[0] if whole else loop.in_regions(carried, checkpoints or 0)
    # A result is never what was given, which somebody may write to.
    return tree.unflatten(structure, [y.clone() if any(y is x for x in carried) else y for y in made])


def _condition(result: Any) -> Any:
    """What cond_fn returned as one bool, a number or a tensor."""
    if not isinstance(result, Tensor):
        if not isinstance(result, (bool, int, float)):
            raise ArgumentError(f"while_loop: cond_fn must return a bool, got {type(result).__name__}")
        return bool(result)
    if result.size != 1:
        raise ShapeError(
            f"while_loop: cond_fn must return one bool, got shape {tuple(result.shape)}; use any() or all()"
        )
    result = OPS["reshape"](result, ()) if result.ndim else result
    return result if result.dtype == bool_ else result != 0


# ------------------------------------------------------------------------------------------------------- Python loops


@dataclass(slots=True)
class _PythonLoop:
    """A loop that runs at once."""

    cond_fn: Callable[[Any], Any]
    body_fn: Callable[[Any], Any]
    structure: Any

    def run(self, carried: list[Any], most: int | None) -> tuple[list[Any], bool]:
        """What is carried after these turns, or after all; and whether the loop goes on."""
        count = 0
        while bool(_condition(self.cond_fn(tree.unflatten(self.structure, carried)))):
            if count == most:
                return carried, True
            leaves, after = tree.flatten(self.body_fn(tree.unflatten(self.structure, carried)))
            leaves = [as_tensor("while_loop", "the carry", c) for c in leaves]
            require_same_carry("while_loop", types_of(carried), types_of(leaves), (self.structure, after))
            carried = leaves
            count += 1
        return carried, False

    def in_regions(self, carried: list[Any], checkpoints: int) -> list[Any]:
        """All turns, in regions that run again in backward: ever larger ones, as nobody knows how many there will be."""
        width, level, goes_on = max(2, checkpoints // 4), 0, True
        cells = (computed_cells(self.cond_fn), computed_cells(self.body_fn))
        while goes_on:
            carried, goes_on = self._segments(carried, width, level, cells)
            level += 1
        return carried

    def _segments(self, carried: list[Any], width: int, level: int, cells: Any) -> tuple[list[Any], bool]:
        """`width` regions in a row, each of `width` ** `level` turns. `cells` are computed tensors that the functions close
        over: arguments of the regions."""
        if level == 0:
            cond_fn, body_fn = (with_cells(f, c) if c else f for f, c in zip((self.cond_fn, self.body_fn), cells))
            return _PythonLoop(cond_fn, body_fn, self.structure).run(carried, width)
        goes_on = True
        for _ in range(width):
            carried, goes_on = checkpoint(self._segments, carried, width, level - 1, cells)
            if not goes_on:
                break
        return carried, goes_on


# ------------------------------------------------------------------------------------------------------------- tracing


def _traced(cond_fn: Any, body_fn: Any, carried: list[Any], structure: Any, checkpoints: int | None) -> Any:
    after: list[Any] = []

    def condition(*given: Any) -> Any:
        return _condition(cond_fn(tree.unflatten(structure, given)))

    def body(*given: Any) -> Any:
        made, found = tree.flatten(body_fn(tree.unflatten(structure, given)))
        after[:] = [found]
        return list(made)

    types = types_of(carried)
    parts = [
        traced_part(BodyTrace(f"while_loop: {name}", _DRAWS), f, types)
        for name, f in (("cond_fn", condition), ("body_fn", body))
    ]
    require_same_carry("while_loop", types, [v.type for v in parts[1].outputs], (structure, after[0]))
    outside = closed_over(parts)
    programs = [p.program(outside) for p in parts]
    loop = _While(programs[0], programs[1], len(carried), checkpoints or 0)
    return tree.unflatten(structure, loop.apply([*carried, *outside.values()])[:-1])


# ----------------------------------------------------------------------------------------------------- the instruction


@dataclass(slots=True)
class _While:
    """What an instruction holds. Its operands, and the inputs of both programs: carried, the same in all turns."""

    condition: Program
    body: Program
    n_carried: int
    checkpoints: int  # 0: a megabyte of them, or √n

    @classmethod
    def of(cls, attrs: tuple[Any, ...]) -> _While:
        """Of the attributes of an instruction."""
        (condition, body), n_carried, checkpoints = attrs
        return cls(condition, body, n_carried, checkpoints)

    def apply(self, operands: Sequence[Any]) -> list[Any]:
        """The results, and the number of turns, on tensors of any level."""
        return list(
            apply(_op(self.n_carried + 1), operands, ((self.condition, self.body), self.n_carried, self.checkpoints))
        )


def _op(n_outputs: int) -> Op:
    return region_op(
        "while",
        n_outputs,
        [("programs", "programs"), ("n_carried", "integer"), ("checkpoints", "integer")],
        evaluated=_evaluated,
        jvp=_push,
        formula="what is carried after the last turn of a loop, and the number of turns; the first program is its condition",
        vmap=_batched,
        sparsity=_sparsity,
        infer=lambda attrs: [*(o.type for o in attrs[0][1].outputs), Type(int64.code, ())],
        lower=lambda builder, attrs, programs, inputs, outputs: builder.repeat_while(
            *programs, attrs[1], inputs, outputs
        ),
        linearize=_linearize,
        check=functools.partial(_check, n_outputs),
    )


register_family("while", _op)


def _check(n_outputs: int, types: Sequence[Type], attrs: tuple[Any, ...]) -> str:
    """What is wrong with an instruction that was read from a file."""
    programs, n_carried, checkpoints = attrs
    if len(programs) != 2 or n_carried != n_outputs - 1 or not 1 <= n_carried <= len(types):
        return "a loop has a condition, a body, and as many results as it carries values, and one"
    if checkpoints and checkpoints < _FEWEST_CHECKPOINTS:
        return "the number of checkpoints is too small"
    condition, body = programs
    if not same_types(types, condition.inputs) or not same_types(types, body.inputs):
        return "the operands are not those of the programs"
    if not same_types([Type(bool_.code, ())], condition.outputs):
        return "the condition must be one bool"
    return "" if same_types(types[:n_carried], body.outputs) else "the body does not make what is carried"


def _evaluated(operands: Sequence[Any], attrs: tuple[Any, ...], leaves: list[Any], sizes: list[Any]) -> Task[list[Any]]:
    loop = _While.of(attrs)
    carried, fixed, count = list(operands[: loop.n_carried]), operands[loop.n_carried :], 0
    while (yield evaluating(loop.condition, [*carried, *fixed], leaves, sizes))[0].item():
        carried = yield evaluating(loop.body, [*carried, *fixed], leaves, sizes)
        count += 1
    return [*carried, full((), count, dtype=int64)]


# ------------------------------------------------------------------------------------------------------------ derivatives


def _linearize(
    inputs: Sequence[Any], dots: Sequence[Any], attrs: tuple[Any, ...], forward: bool
) -> Task[tuple[list[Any], list[Any]]]:
    loop = _While.of(attrs)
    pushed, wanted, _ = yield from pushed_turn(loop.body, loop.n_carried, [d is not ZERO for d in dots], forward)
    varied = [zeros_like(inputs[k]) if dots[k] is ZERO else dots[k] for k in wanted]
    if forward:
        return _joint(loop, pushed, wanted, inputs, varied)
    made = loop.apply(inputs)
    return made, (yield from _tangents(loop, made[-1], wanted, inputs, varied))


def _joint(
    loop: _While, pushed: Program, wanted: list[int], inputs: Sequence[Any], dots: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Values and tangents in one loop."""
    n, m = loop.n_carried, len(inputs)
    carried = [k for k in wanted if k < n]

    def in_order(values: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        of_fixed = [d for k, d in zip(wanted, tangents) if k >= n]
        return [*values[:n], *tangents[: len(carried)], *values[n:], *of_fixed]

    turn = tangents_of(pushed, loop.body, carried)
    body = Program(
        in_order(pushed.inputs[:m], pushed.inputs[m:]), turn.instructions, [*pushed.outputs[:n], *turn.outputs]
    )
    unread = [Var(loop.body.inputs[k].type) for k in wanted]
    condition = Program(in_order(loop.condition.inputs, unread), loop.condition.instructions, loop.condition.outputs)
    both = _While(condition, own_outputs(simplify(body)), n + len(carried), loop.checkpoints)
    made = both.apply(in_order(inputs, dots))
    ys = [*made[:n], made[-1]]
    for y in ys:
        if isinstance(y, Tracer):
            y._var.linear = False  # values, beside tangents
    y_dots: list[Any] = [ZERO] * (n + 1)
    for k, y_dot in zip(carried, made[n:-1]):
        y_dots[k] = y_dot
    return ys, y_dots


def _push(*given: Any, **attrs: Any) -> Task[Any]:
    """Tangents alone, where the results are known already."""
    n = len(given) // 2
    dots, outputs, inputs = given[:n], given[n], given[n + 1 :]
    loop = _While.of(tuple(attrs.values()))
    _, wanted, _ = yield from pushed_turn(loop.body, loop.n_carried, [d is not ZERO for d in dots], False)
    varied = [zeros_like(inputs[k]) if dots[k] is ZERO else dots[k] for k in wanted]
    return tuple((yield from _tangents(loop, outputs[-1], wanted, inputs, varied)))


def _tangents(
    loop: _While, count: Any, wanted: list[int], inputs: Sequence[Any], dots: Sequence[Any]
) -> Task[list[Any]]:
    """Tangents of the results of a loop of so many turns: linear, and to be transposed."""
    numbers = _lengths(loop, count)
    lengths = [new_size() for _ in numbers]
    again = _turns_again(loop, lengths)
    pushed = yield pushing(again, [k + 1 for k in wanted])
    y_dots: list[Any] = [ZERO] * (loop.n_carried + 1)
    moving = [k for k in range(loop.n_carried) if pushed.outputs[loop.n_carried + k] is not None]
    if moving:
        tangents = simplify(tangents_of(pushed, again, moving))
        for k, y_dot in zip(moving, sized(lengths, numbers, tangents, [count, *inputs, *dots])):
            y_dots[k] = y_dot
    return y_dots


def _lengths(loop: _While, n: Any) -> list[Any]:
    """How long the loops inside of each other are that have n turns together, from the outermost on. Those of length 1 are
    left out."""

    def divided(a: Any, b: Any) -> Any:  # rounded up
        return (a + b - 1) // b

    one = create(OPS["full"], ((), int64.code, 1.0))
    c = loop.checkpoints
    if not c:
        bytes_carried = sum(v.type.example_bytes() for v in loop.body.inputs[: loop.n_carried])
        root = OPS["cast"](OPS["ceil"](OPS["sqrt"](OPS["cast"](n, float64.code))), int64.code)
        outer = OPS["maximum"](root, max(1, _KEPT_BYTES // max(1, bytes_carried)))
        inner = OPS["maximum"](divided(n, outer), one)
        return [divided(n, inner), inner]
    two, three = n > c, n > (c // 2) ** 2
    second = OPS["where"](three, one * max(2, c // 3), OPS["where"](two, one * (c // 2), one))
    third = OPS["where"](three, one * max(2, c // 3), one)
    return [divided(n, second * third), second, third]


def _turns_again(loop: _While, lengths: Sequence[Any]) -> Program:
    """The loop for a known number of turns: that number, then the operands → what is carried at the end."""
    turn = _guarded_turn(loop)
    nests = [_nest(turn, loop.n_carried + 1, lengths[: k + 1]) for k in range(len(lengths))]
    trace = Trace()
    n = trace.input(Type(int64.code, ()))
    given = [trace.input(v.type) for v in loop.body.inputs]
    with trace:
        first = create(OPS["full"], ((), int64.code, 0.0))
        depth = first
        for length in lengths[1:]:
            number = create(OPS["size_scalar"], ((length,), int64.code))
            depth = depth + OPS["cast"](number > 1, int64.code)
        made = taken(depth, nests, [first, *given[: loop.n_carried], n, *given[loop.n_carried :]])
    return simplify(Program(trace.inputs, trace.instructions, [x._var for x in made[1:]]))


def _guarded_turn(loop: _While) -> Program:
    """One turn, if it is one of the first n: t, carried; n, the same in all turns → t + 1, carried."""
    trace = Trace()
    k = loop.n_carried
    t = trace.input(Type(int64.code, ()))
    carried = [trace.input(v.type) for v in loop.body.inputs[:k]]
    n = trace.input(Type(int64.code, ()))
    fixed = [trace.input(v.type) for v in loop.body.inputs[k:]]
    stay = [Var(v.type) for v in loop.body.inputs]
    with trace:
        ended = own_outputs(Program(list(stay), [], list(stay[:k])))
        made = taken(t < n, [ended, loop.body], [*carried, *fixed])
        after: Any = t + 1
    return Program(trace.inputs, trace.instructions, [after._var, *(x._var for x in made)])


def _nest(turn: Program, n_carried: int, lengths: Sequence[Any]) -> Program:
    """Loops of these lengths inside of each other, from the outermost on, around a turn."""
    for length in reversed(lengths):
        trace = Trace()
        given = [trace.input(v.type) for v in turn.inputs]
        with trace:
            made = Loop(turn, length, n_carried, 0, False).apply(given)
        turn = own_outputs(Program(trace.inputs, trace.instructions, [x._var for x in made]))
    return turn


def _batched(size: Any, mapped: Sequence[bool], *operands: Any, **attrs: Any) -> Task[Any]:
    """Turns of all examples at once, for as long as one of them goes on; the others stay as they are. All that is carried
    has the axis of the examples; beside it each example's turns are counted."""
    loop = _While.of(tuple(attrs.values()))
    n = loop.n_carried
    flags = mapped_inputs(loop.body, n, mapped)
    if not depending(loop.condition, flags)[0]:
        return (yield from _in_step(loop, size, mapped, flags, operands))
    flags[:n] = [True] * n
    condition = yield batching(loop.condition, flags, size)
    body = yield batching(loop.body, flags, size)

    def traced(f: Callable[..., list[Any]]) -> Program:
        trace = Trace()
        carried = [trace.input(v.type) for v in body.inputs[:n]]
        counts = trace.input(Type(int64.code, (size,)))
        fixed = [trace.input(v.type) for v in body.inputs[n:]]
        with trace:
            going = evaluate(condition, [*carried, *fixed], [], [])[0]
            made = f(going, carried, counts, fixed)
        return own_outputs(simplify(Program(trace.inputs, trace.instructions, [x._var for x in made])))

    def one_goes_on(going: Any, carried: list[Any], counts: Any, fixed: list[Any]) -> list[Any]:
        return [OPS["any"](going, (0,), 0)]

    def turn(going: Any, carried: list[Any], counts: Any, fixed: list[Any]) -> list[Any]:
        made = evaluate(body, [*carried, *fixed], [], [])
        after = [where_examples(going, y, x) for x, y in zip(carried, made)]
        return [*after, counts + OPS["cast"](going, int64.code)]

    carried = [x if m else spread(x, size) for x, m in zip(operands[:n], mapped)]
    counts = create(OPS["full"], ((size,), int64.code, 0.0))
    many = _While(traced(one_goes_on), traced(turn), n + 1, loop.checkpoints)
    return tuple(many.apply([*carried, counts, *operands[n:]])[:-1])


def _in_step(
    loop: _While, size: Any, mapped: Sequence[bool], flags: list[bool], operands: Sequence[Any]
) -> Task[tuple[Any, ...]]:
    """Examples that all have the same number of turns."""
    n = loop.n_carried
    condition = own_outputs((yield batching(loop.condition, flags, size, [False])))
    body = own_outputs((yield batching(loop.body, flags, size, flags[:n])))
    carried = [spread(x, size) if f and not m else x for x, m, f in zip(operands[:n], mapped, flags)]
    *made, count = _While(condition, body, n, loop.checkpoints).apply([*carried, *operands[n:]])
    return (*(y if f else spread(y, size) for y, f in zip(made, flags)), spread(count, size))


def _sparsity(call: Call) -> Task[Patterns]:
    """What any number of turns may depend on."""
    loop = _While.of(call.attrs)
    n = loop.n_carried
    carried, fixed = list(call.patterns[:n]), call.patterns[n:]
    while True:
        made = yield call.inner(loop.body, [*carried, *fixed], lambda k: call.known(k) if k >= n else None)
        more = [united(pair) for pair in zip(carried, made)]
        if [p and p.nnz for p in more] == [p and p.nnz for p in carried]:
            return [*more, None]
        carried = more


__all__ = ["while_loop"]
