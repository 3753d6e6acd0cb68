"""Programs with sizes that are data: an instruction that holds a program, and operands that are the numbers of its sizes.

What is made inside may have these sizes; the results have not. The derivative is an instruction of the same kind, which
holds the derivative of the program. For a batch in which each example has other sizes, the largest ones serve all: who uses
this makes programs for which a larger size changes nothing.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert.compiling.compile import own_outputs
from wengert.dtypes import int64
from wengert.functional.joining import concat
from wengert.functional.reductions import max as largest
from wengert.passes.batch import batching
from wengert.passes.evaluate import apply, evaluating
from wengert.program.ir import Program, Type, Var
from wengert.program.nested import Task
from wengert.registry.record import Op
from wengert.tensors.creation import full
from wengert.transforms.regions import pull_regions, push_regions, region_op, register_family, same_types

_GIVEN = 3  # as core/dim.h: SizeLeaf::given
_EXAMPLE = 7
_numbers = itertools.count(1 << 30)  # those of static graphs are smaller


def new_size() -> Any:
    """A size that a program inside of an instruction has for itself."""
    return _core.new_symbol(_GIVEN, next(_numbers), 0, _EXAMPLE)


def sized(sizes: Sequence[Any], numbers: Sequence[Any], program: Program, operands: Sequence[Any]) -> list[Any]:
    """The results of a program whose sizes are these numbers: int64 tensors without axes."""
    made = apply(_op(len(program.outputs)), [*numbers, *operands], (tuple(sizes), (own_outputs(program),)))
    return list(made) if len(program.outputs) > 1 else [made]


def _op(n_outputs: int) -> Op:
    return region_op(
        "sized",
        n_outputs,
        [("sizes", "bound"), ("program", "programs")],
        evaluated=_evaluated,
        jvp=_push,
        transpose=(_pull,),
        formula="the results of a program whose sizes are the first operands, of the other ones",
        vmap=_batched,
        infer=lambda attrs: [o.type for o in attrs[1][0].outputs],
        lower=lambda builder, attrs, programs, inputs, outputs: builder.with_sizes(
            programs[0], _core.leaves_of_sizes(attrs[0]), inputs, outputs
        ),
        check=functools.partial(_check, n_outputs),
    )


register_family("sized", _op)


def _check(n_outputs: int, types: Sequence[Type], attrs: tuple[Any, ...]) -> str:
    """What is wrong with an instruction that was read from a file."""
    sizes, programs = attrs
    n = len(sizes)
    if len(programs) != 1 or not n or any(t.shape or t.dtype != int64.code for t in types[:n]) or len(types) < n:
        return "there must be one program, and an int64 for each of its sizes"
    (program,) = programs
    if not same_types(types[n:], program.inputs):
        return "the operands are not those of the program"
    if len(program.outputs) != n_outputs or not all(isinstance(o, Var) for o in program.outputs):
        return "the program has another number of results"
    outside = [d for v in (*program.inputs, *program.outputs) for d in v.type.shape if not isinstance(d, int)]
    if set(_core.leaves_of_sizes(sizes)) & set(_core.leaves_of_sizes(tuple(outside))):
        return "a size of the program is seen outside"
    return ""


def _evaluated(operands: Sequence[Any], attrs: tuple[Any, ...], leaves: list[Any], sizes: list[Any]) -> Task[list[Any]]:
    own, (program,) = attrs
    numbers = [max(0, int(x.item())) for x in operands[: len(own)]]
    return evaluating(program, operands[len(own) :], [*leaves, *_core.leaves_of_sizes(own)], [*sizes, *numbers])


def _push(*given: Any, sizes: tuple[Any, ...], program: tuple[Program, ...]) -> Task[Any]:
    n, k = len(given) // 2, len(sizes)
    y_dots = yield from push_regions(
        program, given[k:n], given[n + 1 + k :], lambda made, xs: sized(sizes, given[n + 1 : n + 1 + k], made[0], xs)
    )
    return y_dots[0] if len(y_dots) == 1 else tuple(y_dots)


def _pull(
    y_bar: Any, which: Sequence[int], operands: Sequence[Any], sizes: tuple[Any, ...], program: tuple[Program, ...]
) -> Task[list[Any]]:
    k = len(sizes)
    return pull_regions(
        program,
        y_bar,
        [w - k for w in which],
        operands[k:],
        lambda made, xs: sized(sizes, operands[:k], made[0], xs),
    )


def _batched(
    size: Any, mapped: Sequence[bool], *operands: Any, sizes: tuple[Any, ...], program: tuple[Program, ...]
) -> Task[Any]:
    """The largest of the sizes for all examples."""
    k = len(sizes)
    nothing = full((1,), 0, dtype=int64)
    numbers = [largest(concat([nothing, x]), axis=0) if m else x for x, m in zip(operands[:k], mapped)]
    made = sized(sizes, numbers, (yield batching(program[0], mapped[k:], size)), operands[k:])
    return made[0] if len(made) == 1 else tuple(made)
