"""Dense Jacobians and Hessians in as many passes as their patterns have colours, if these are few.

The pattern is found from the traced program, at the sizes of the example, which then become fixed. Numbers are not read: an
element that is gathered by indices from outside depends on all that may be there. So the pattern holds for as long as the
program does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wengert.dtypes import ALL as DTYPES
from wengert.modes import no_grad
from wengert.ops.index_sets import IndexSets, TooDense, at_most, stacked
from wengert.passes.example_axis import count
from wengert.program.ir import Program, Shape, Var, resized
from wengert.program.trace import create, untraced
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.transforms.colouring import Colouring, Sparsity, colour
from wengert.transforms.functional import differentiate_backwards, jvp
from wengert.transforms.passes import concatenated, over, split
from wengert.transforms.sparsity import patterns_of_values, symmetric, unit_patterns

LEAST = 64  # smallest number of rows and columns that is worth the search
_GROWTH = 4  # a matrix with too many colours is searched again when it is this many times larger
_SHARE = 4  # colouring must reduce the passes, and the entries, by this factor


def few_colours(program: Program, sources: Sequence[Var], *, is_hessian: bool) -> Colouring | None:
    """A colouring of the Jacobian of a program with respect to these inputs; None if it would not save much.

    The sizes of the program are fixed if there is one; otherwise it holds for sizes about as large (comparing them is a
    guard). `is_hessian`: the program is a gradient.
    """
    outputs = [o for o in program.outputs if isinstance(o, Var)]
    if len(outputs) != len(program.outputs) or not _is_one_real_dtype([*sources, *outputs]):
        return None
    if any(i.regions() or "key" in i.op.named_attrs(i.attrs) for i in program.instructions):
        return None
    if total_size(v.type.shape for v in sources) < LEAST or total_size(v.type.shape for v in outputs) < LEAST:
        return None
    found = _search(program, sources, outputs, is_hessian)
    if found is None:
        bool(
            total_size(v.type.shape for v in sources) < _GROWTH * sum(v.type.example_size() for v in sources)
        )  # a guard
    return found


def total_size(shapes: Iterable[Shape]) -> Any:
    """The number of elements of tensors of these shapes; an expression if sizes are symbolic."""
    total: Any = 0
    for shape in shapes:
        total = total + count(shape)
    return total


def _search(program: Program, sources: Sequence[Var], outputs: Sequence[Var], is_hessian: bool) -> Colouring | None:
    n, m = (sum(v.type.example_size() for v in values) for values in (sources, outputs))
    sizes: dict[int, Any] = {}
    try:
        with at_most(max(n * m // _SHARE, n, m)):
            pattern = Sparsity(_pattern(program, [program.inputs.index(v) for v in sources], n, sizes))
    except TooDense:
        return None
    in_row = int(pattern._sets.counts().max(initial=0))
    if not pattern.nnz or (is_hessian and _SHARE * in_row > n):
        return None
    found = colour(Sparsity(symmetric(pattern._sets)), "symmetric") if is_hessian else _columns_or_rows(pattern)
    if _SHARE * found.n_colours > (m if found.n_rows else n):
        return None
    for size in sizes.values():
        int(size)  # a guard: the pattern holds for this size alone
    return found


def _is_one_real_dtype(values: Sequence[Var]) -> bool:
    codes = {v.type.dtype for v in values}
    return len(codes) == 1 and all(DTYPES[c].is_floating for c in codes)


def _pattern(program: Program, chosen: list[int], n: int, sizes: dict[int, Any]) -> IndexSets:
    """The pattern at the example sizes; notes which sizes are symbolic."""

    def example(shape: Shape) -> tuple[int, ...]:
        sizes.update((id(s), s) for s in shape if not isinstance(s, int))
        return tuple(s if isinstance(s, int) else s.hint for s in shape)

    fixed = resized(program, example)
    patterns = unit_patterns(fixed, chosen, [fixed.inputs[k].type.example_size() for k in chosen])
    with no_grad(), untraced():
        found = patterns_of_values(fixed, patterns, lambda _: None, n)
    rows = [(found.get(o), o.type.example_size()) for o in fixed.outputs if isinstance(o, Var)]
    return stacked([IndexSets.nothing(size, n) if p is None else p for p, size in rows])


def _columns_or_rows(pattern: Sparsity) -> Colouring:
    return min((colour(pattern, kind) for kind in ("columns", "rows")), key=lambda c: c.cost)


def dense_blocks(
    f: Callable[..., Any], xs: Sequence[Any], ys: Sequence[Var], colouring: Colouring, chunk: int | None
) -> list[list[Any]]:
    """The Jacobian of f, of a tuple of tensors, whose results are like `ys`: blocks [output][input]."""
    dtype = xs[0].dtype
    forward, reverse = (asarray(s) for s in colouring.seeds(dtype.to_numpy()))
    parts: list[Any] = []
    if colouring.n_columns:
        push = lambda v: list(jvp(f, (tuple(xs),), (tuple(split(v, xs)),))[1])
        parts.append(_side_by_side(over(push, forward, chunk)))
    if colouring.n_rows:
        y, pull_back = differentiate_backwards(f, (tuple(xs),))
        pull = lambda v: list(pull_back(tuple(split(v, y)))[0])
        parts.append(_side_by_side(over(pull, reverse, chunk)))
    entries = OPS["take"](concatenated(parts), asarray(colouring.places), 0)
    return _spread(entries, colouring.sparsity, xs, ys)


def _side_by_side(results: Sequence[Any]) -> Any:
    """The results of all passes, one vector per pass."""
    flat = [OPS["reshape"](r, (r.shape[0], r.size // r.shape[0])) for r in results]
    return flat[0] if len(flat) == 1 else OPS["concat"](flat, 1)


def _spread(entries: Any, pattern: Sparsity, xs: Sequence[Any], ys: Sequence[Var]) -> list[list[Any]]:
    """Place the entries in a matrix of zeros."""
    m, n = pattern.shape
    where = pattern._sets.rows().astype("int64") * n + pattern.indices
    zeros = create(OPS["full"], ((m * n,), entries.dtype.code, 0.0))
    matrix = OPS["reshape"](OPS["index_put"](zeros, asarray(where), entries, 0), (m, n))
    if len(xs) == len(ys) == 1:
        return [[OPS["reshape"](matrix, (*ys[0].type.shape, *xs[0].shape))]]
    blocks, top = [], 0
    for y in ys:
        row, left, height = [], 0, y.type.example_size()
        for x in xs:
            width = int(x.size)
            part = OPS["slice"](matrix, (top, left), (height, width), (1, 1))
            row.append(OPS["reshape"](part, (*y.type.shape, *x.shape)))
            left += width
        blocks.append(row)
        top += height
    return blocks


__all__ = ["LEAST", "dense_blocks", "few_colours", "total_size"]
