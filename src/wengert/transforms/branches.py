"""Branches on data: `cond` and `switch`. When traced, they become instructions that hold a program for each branch.

The derivative of such an instruction is another one, whose branches are the derivatives of its branches; so it has every
mode and every order, and only the branch that is taken runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from wengert import tree
from wengert._core import Tensor
from wengert.compiling.compile import own_outputs
from wengert.dtypes import bool_, int64
from wengert.errors import ArgumentError, DTypeError, ShapeError, TraceError
from wengert.ops.index_sets import united
from wengert.ops.sparsity import Call, Patterns
from wengert.passes.batch import batching
from wengert.passes.evaluate import apply, evaluating
from wengert.program.ir import Instruction, Program, Type, Var
from wengert.program.nested import Task
from wengert.program.trace import same_shape
from wengert.registry.record import OPS, Op
from wengert.transforms.regions import (
    PartTrace,
    closed_over,
    is_traced,
    pull_regions,
    push_regions,
    region_op,
    register_family,
    require_callable,
    same_types,
    traced_part,
    types_of,
    where_examples,
)


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """Run true_fn(*operands) if pred is true, otherwise false_fn(*operands); only one of them runs.

    In eager code this is an `if`. Inside `compile` and `vmap`, where there are no data to branch on, both branches
    are traced, and each call takes one of them; if `vmap` gives each example its own predicate, both run and `where`
    chooses. Both branches must return the same structure, dtypes and shapes. They may use tensors from outside and
    draw random numbers, but must not write to tensors from outside. Derivatives are those of the branch that was
    taken.

    >>> import wengert as wg
    >>> @wg.compile
    ... def f(x):
    ...     return wg.cond(x.sum() > 0, lambda x: x * x, lambda x: -x, x)
    >>> f(wg.tensor([1.0, 2.0])).tolist(), f(wg.tensor([-1.0, -2.0])).tolist()
    ([1.0, 4.0], [1.0, 2.0])
    """
    require_callable("cond", {"true_fn": true_fn, "false_fn": false_fn})
    if not is_traced(pred):
        return (true_fn if _number("cond", "the predicate", pred) else false_fn)(*operands)
    index = _scalar("cond", "the predicate", pred)
    if index.dtype != bool_:
        index = index != 0
    return _choose("cond", index, {"false_fn": false_fn, "true_fn": true_fn}, operands)


def switch(index: Any, fns: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Run fns[index](*operands); only one of the functions runs. An index out of range takes the nearest one.

    Like `cond`, with more than two branches.

    >>> import wengert as wg
    >>> f = wg.compile(lambda k, x: wg.switch(k, [wg.sin, wg.cos, wg.exp], x))
    >>> f(wg.tensor(2), wg.tensor(0.0)).item()
    1.0
    """
    if not isinstance(fns, (list, tuple)) or not fns:
        raise ArgumentError(f"switch: takes a list of functions, at least one, got {fns!r}")
    named = {f"branch {k}": f for k, f in enumerate(fns)}
    require_callable("switch", named)
    if not is_traced(index):
        k = _number("switch", "the index", index)
        if not hasattr(k, "__index__"):
            raise DTypeError(f"switch: the index must be an integer, got {k!r}")
        k = int(k)
        return fns[min(max(k, 0), len(fns) - 1)](*operands)
    chosen = _scalar("switch", "the index", index)
    if not chosen.dtype.is_integer:
        raise DTypeError(f"switch: the index must be an integer, got {chosen.dtype.name}")
    return _choose("switch", OPS["cast"](chosen, int64.code), named, operands)


# ------------------------------------------------------------------------------------------------------------ arguments


def _scalar(name: str, what: str, x: Tensor) -> Any:
    if x.size != 1:
        raise ShapeError(
            f"{name}: {what} must be one number, got shape {tuple(x.shape)}; use where() for one per element"
        )
    return OPS["reshape"](x, ()) if x.ndim else x


def _number(name: str, what: str, x: Any) -> Any:
    return _scalar(name, what, x).item() if isinstance(x, Tensor) else x


# ------------------------------------------------------------------------------------------------------------- tracing


def _choose(name: str, index: Any, branches: dict[str, Callable[..., Any]], operands: Sequence[Any]) -> Any:
    """The instruction of these branches on these operands."""
    leaves, structure = tree.flatten(list(operands))
    tensors = [x for x in leaves if isinstance(x, Tensor)]

    def on_tensors(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            fresh = iter(given)
            return f(*tree.unflatten(structure, [next(fresh) if isinstance(x, Tensor) else x for x in leaves]))

        return run

    types = types_of(tensors)
    parts = [traced_part(PartTrace(f"{name}: {label}"), on_tensors(f), types) for label, f in branches.items()]
    outside = closed_over(parts)
    programs = [p.program(outside) for p in parts]
    _require_alike(name, list(branches), programs, [p.structure for p in parts])
    return tree.unflatten(parts[0].structure, taken(index, programs, [*tensors, *outside.values()]))


def _require_alike(name: str, labels: list[str], programs: list[Program], structures: list[Any]) -> None:
    for label, program, structure in zip(labels[1:], programs[1:], structures[1:]):
        if structure != structures[0]:
            raise TraceError(
                f"{name}: branches must return the same structure; {labels[0]} returns {structures[0]}, {label} {structure}"
            )
        for k, (a, b) in enumerate(zip(programs[0].outputs, program.outputs)):
            assert isinstance(a, Var) and isinstance(b, Var)
            if a.type.dtype != b.type.dtype or not same_shape(a.type.shape, b.type.shape):
                raise TraceError(
                    f"{name}: branches must return the same types; result {k} is {a.type} of {labels[0]}, {b.type} of "
                    f"{label}; convert one with astype, or broadcast_to"
                )


# ----------------------------------------------------------------------------------------------------- the instruction


def taken(index: Any, branches: Sequence[Program], operands: Sequence[Any]) -> list[Any]:
    """The results of the branch selected by a bool or an int64, on these operands."""
    op = _op(len(branches[0].outputs))
    made = apply(op, [index, *operands], (tuple(branches),))
    return list(made) if op.n_outputs > 1 else [made]


def _op(n_outputs: int) -> Op:
    return region_op(
        "switch",
        n_outputs,
        [("branches", "programs")],
        evaluated=_evaluated,
        jvp=_push,
        transpose=(_pull,),
        formula="the results of one of the branches; the first operand says which, the others are its operands",
        vmap=_batched,
        sparsity=_sparsity,
        infer=lambda attrs: [o.type for o in attrs[0][0].outputs],
        lower=lambda builder, attrs, programs, inputs, outputs: builder.choose(programs, inputs, outputs),
        check=functools.partial(_check, n_outputs),
    )


register_family("switch", _op)


def _check(n_outputs: int, types: Sequence[Type], attrs: tuple[Any, ...]) -> str:
    """Check an instruction read from a file; returns an error text."""
    (branches,) = attrs
    if not types or types[0].shape or types[0].dtype not in (bool_.code, int64.code):
        return "the first operand must be one bool or int64"
    if not branches or not all(same_types(types[1:], b.inputs) for b in branches):
        return "the operands are not those of the branches"
    results = [o.type for o in branches[0].outputs if isinstance(o, Var)]
    if len(results) != n_outputs or not all(same_types(results, b.outputs) for b in branches):
        return "the branches have other results"
    return ""


def _evaluated(operands: Sequence[Any], attrs: tuple[Any, ...], leaves: list[Any], sizes: list[Any]) -> Task[list[Any]]:
    (branches,) = attrs
    chosen = min(max(int(operands[0].item()), 0), len(branches) - 1)
    return evaluating(branches[chosen], operands[1:], leaves, sizes)


def _push(*given: Any, branches: tuple[Program, ...]) -> Task[Any]:
    """The tangents of the branch that is taken."""
    n = len(given) // 2
    y_dots = yield from push_regions(
        branches, given[1:n], given[n + 2 :], lambda made, xs: taken(given[n + 1], made, xs)
    )
    return y_dots[0] if len(y_dots) == 1 else tuple(y_dots)


def _pull(y_bar: Any, which: Sequence[int], operands: Sequence[Any], branches: tuple[Program, ...]) -> Task[list[Any]]:
    """Cotangents of the operands in which it is linear, by the transpose of the branch that is taken."""
    index, *xs = operands
    return pull_regions(branches, y_bar, [k - 1 for k in which], xs, lambda made, rest: taken(index, made, rest))


def _batched(size: Any, mapped: Sequence[bool], index: Any, *xs: Any, branches: tuple[Program, ...]) -> Task[Any]:
    """For many examples: the same branch for all, or every branch for all and then the right one for each."""
    programs = []
    for b in branches:
        programs.append((yield batching(b, mapped[1:], size)))
    if not mapped[0]:
        made = taken(index, [own_outputs(_packed(p)) for p in programs], xs)
        return made[0] if len(made) == 1 else tuple(made)
    results = []
    for p in programs:
        results.append((yield evaluating(p, xs, [], [])))
    chosen = results[0]
    number = OPS["cast"](index, int64.code)
    for k, others in enumerate(results[1:], start=1):
        chosen = [where_examples(number >= k, y, x) for x, y in zip(chosen, others)]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def _packed(program: Program) -> Program:
    """Copies results that are views, as of zeros that are the same for all examples: branches have results of one layout."""
    made_by = {o: i.op for i in program.instructions for o in i.outputs}
    copy = OPS["contiguous"]
    body, outputs = list(program.instructions), list(program.outputs)
    for k, o in enumerate(outputs):
        if isinstance(o, Var) and o in made_by and made_by[o].view:
            body.append(Instruction(copy, (o,), (), (Var(o.type),)))
            outputs[k] = body[-1].outputs[0]
    return Program(program.inputs, body, outputs)


def _sparsity(call: Call) -> Task[Patterns]:
    """The union over the branches, as any of them may be taken."""
    made = []
    for b in call.attrs[0]:
        made.append((yield call.inner(b, call.patterns[1:], lambda k: call.known(k + 1))))
    return [united(parts) for parts in zip(*made)]


__all__ = ["cond", "switch"]
