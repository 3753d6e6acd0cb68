"""Jacobians by the copies that a function makes of its arguments.

Slices, gathers and broadcasts copy elements. A function that begins with them is another function of the copies,
f(x) = h(copies of x), and the Jacobian of f has the entries of that of h in other columns, added up where several copies are
of one element. Rows that share many arguments often share no copies: each residual of a grid or of a set of observations
reads copies of its own. Then one reverse pass through h gives all their entries, however many colours those of f would need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert import tree
from wengert._core import Tensor
from wengert.dtypes import result_type
from wengert.modes import no_grad
from wengert.ops.index_sets import Array, IndexSets
from wengert.ops.sparsity import UNCHANGED
from wengert.passes.evaluate import evaluate
from wengert.program.ir import Instruction, Program, Var, remove_dead
from wengert.program.trace import create, untraced
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.transforms.colouring import REVERSE, Sparsity, colour_rows, seeds_of
from wengert.transforms.functional import differentiate_backwards
from wengert.transforms.passes import flattened, over
from wengert.transforms.sparsity import Detected, propagate, unit_patterns

_MOST_TERMS = 4  # terms added up for one entry
_MOST_COPIES = 16  # copies of an element, on average


@dataclass(slots=True)
class _Copied:
    """A program in two parts: from inputs to copies, and from copies and inputs to results."""

    before: Program
    values: list[Var]  # the copies, and chosen inputs that are used directly
    after: Program  # the rest of the program, whose first inputs are the values
    columns: Array  # the column that each element of the values copies; negative if none


def _split(found: Detected) -> _Copied | None:
    """None if there are no copies."""
    program, dependent = found.traced.program, found.values
    copies = {program.inputs[k] for k in found.traced.chosen}
    varying = set(copies)  # with the arguments, also where the derivative is zero, as of comparisons
    fixed, first, rest = [], [], []
    for i in program.instructions:
        changing = varying.intersection(i.vars())
        if not changing:
            fixed.append(i)
            continue
        varying.update(i.outputs)
        if changing <= copies and _only_copies(i, found):
            first.append(i)
            copies.update(i.outputs)
        else:
            rest.append(i)
    read = [x for i in rest for x in i.vars()] + [o for o in program.outputs if isinstance(o, Var)]
    values = list(dict.fromkeys(x for x in read if x in copies))
    if not first or not values:
        return None
    inputs = [*values, *(v for v in program.inputs if v not in copies)]
    before = Program(program.inputs, remove_dead([*fixed, *first], values), list(values))
    after = Program(inputs, [*fixed, *rest], program.outputs[: found.traced.n_results])
    columns = np.concatenate([_columns(dependent[v]) for v in values])
    return _Copied(before, values, after, columns)


def _only_copies(i: Instruction, found: Detected) -> bool:
    if i.op.sparsity not in UNCHANGED or i.outputs[0] not in found.values:
        return False
    return int(found.values[i.outputs[0]].counts().max(initial=0)) <= 1


def _columns(sets: IndexSets) -> Array:
    """The single index of each row, or -1."""
    columns = np.full(sets.n_rows, -1, np.int64)
    columns[sets.rows()] = sets.columns
    return columns


@dataclass(slots=True)
class _Result:
    """One result of the function in terms of the copies."""

    program: Program
    number: int  # its position among the results
    colours: Array
    used: list[int]  # the values that it depends on

    @property
    def n_colours(self) -> int:
        """How many reverse passes it takes."""
        return int(self.colours.max(initial=-1)) + 1


class CopiedPasses:
    """The function from arguments to all entries of a Jacobian: reverse passes through what follows the copies."""

    def __init__(self, f: Any, found: Detected, copied: _Copied, chunk: int | None) -> None:
        self.f, self.chunk, self._copied, self._captured = f, chunk, copied, found.traced.captured
        self._sizes = [math.prod(v.type.shape) for v in copied.values]
        patterns = self._patterns(found)
        self._results = [r for k, p in enumerate(patterns) if (r := self._result(k, p)) is not None]
        self._place(patterns, sum(found.traced.sizes()))

    def _patterns(self, found: Detected) -> list[IndexSets]:
        """The pattern of each result with respect to the copies."""
        after, traced, n = self._copied.after, found.traced, sum(self._sizes)
        place = {v: k for k, v in enumerate(traced.program.inputs)}
        known = lambda k: None if k < len(self._sizes) else traced.known(place[after.inputs[k]])
        with no_grad(), untraced():
            made = propagate(after, unit_patterns(after, range(len(self._sizes)), self._sizes), known, n)
        sizes = [math.prod(o.type.shape) if isinstance(o, Var) else 1 for o in after.outputs]
        return [IndexSets.nothing(size, n) if p is None else p for p, size in zip(made, sizes)]

    def _result(self, k: int, pattern: IndexSets) -> _Result | None:
        if not pattern.nnz:
            return None
        after = self._copied.after
        program = Program(after.inputs, remove_dead(after.instructions, [after.outputs[k]]), [after.outputs[k]])
        value = np.repeat(np.arange(len(self._sizes)), self._sizes)[pattern.columns]
        used = np.flatnonzero(np.bincount(value, minlength=len(self._sizes)))
        return _Result(program, k, colour_rows(pattern), used.tolist())

    def _place(self, patterns: list[IndexSets], n: int) -> None:
        """The positions of each entry of the Jacobian, or of the terms of its sum, in the flattened results of all
        passes."""
        firsts = np.concatenate([[0], np.cumsum(self._sizes)])
        rows = np.concatenate([[0], np.cumsum([p.n_rows for p in patterns])])
        keys, places, total = [], [], 0
        for r in self._results:
            pattern = patterns[r.number]
            i, c = pattern.rows(), pattern.columns.astype(np.int64)
            value = np.repeat(np.arange(len(self._sizes)), self._sizes)[c]
            begins = np.zeros(len(self._sizes), np.int64)
            for v in r.used:
                begins[v] = total
                total += r.n_colours * self._sizes[v]
            at = begins[value] + r.colours[i] * np.asarray(self._sizes)[value] + c - firsts[value]
            column = self._copied.columns[c]
            keys.append(((rows[r.number] + i) * n + column)[column >= 0])
            places.append(at[column >= 0])
        key, place = (np.concatenate(x) if x else np.zeros(0, np.int64) for x in (keys, places))
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        entries, counts = key[first], np.diff(first, append=len(key))
        self.terms = int(counts.max(initial=0))
        # Missing terms of an entry point to a zero after all results.
        self._places = [
            asarray(np.where(t < counts, place[order][np.minimum(first + t, len(order) - 1)], total))
            for t in range(min(self.terms, _MOST_TERMS))
        ]
        per_row = np.bincount(entries // n, minlength=int(rows[-1])) if n else np.zeros(int(rows[-1]), np.int64)
        self.sparsity = Sparsity(IndexSets.of_counts(per_row, entries % max(n, 1), n))

    @property
    def n_colours(self) -> int:
        """How many reverse passes there are."""
        return sum(r.n_colours for r in self._results)

    @property
    def cost(self) -> float:
        """The cost in forward passes."""
        return REVERSE * self.n_colours

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """All entries, in the order of the pattern."""
        given = [x for x in tree.flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        inputs = dict(zip(self._copied.before.inputs, [*given, *self._captured]))
        values = evaluate(self._copied.before, list(inputs.values()), [], [])
        others = [inputs[v] for v in self._copied.after.inputs[len(values) :]]
        parts = [part for r in self._results for part in self._pulled(r, values, others)]
        code = result_type(*values).code
        if self.terms > 1 or not parts:
            parts.append(create(OPS["full"], ((1,), code, 0.0)))
        flat = OPS["concat"](parts, 0) if len(parts) > 1 else parts[0]
        terms = [OPS["take"](flat, p, 0) for p in self._places]
        if not terms:
            return create(OPS["full"], ((0,), code, 0.0))
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def _pulled(self, result: _Result, values: list[Any], others: list[Any]) -> list[Any]:
        """The pulled-back rows for one result of the function, one tensor for each value that it depends on."""

        def h(*used: Any) -> Any:
            given = list(values)
            for k, x in zip(result.used, used):
                given[k] = x
            return evaluate(result.program, [*given, *others], [], [])[0]

        y, pull_back = differentiate_backwards(h, tuple(values[k] for k in result.used))
        if result.n_colours == 1 and (result.colours == 0).all():
            ones = create(OPS["full"], (y.shape, y.dtype.code, 1.0))  # so that products with it are simplified away
            return [flattened(x) for x in pull_back(ones)]
        seeds = asarray(seeds_of(result.colours, y.dtype.to_numpy()))
        pull = lambda v: list(pull_back(OPS["reshape"](v, y.shape)))
        return [flattened(x) for x in over(pull, seeds, self.chunk)]


def passes_by_copies(f: Any, found: Detected, chunk: int | None) -> CopiedPasses | None:
    """The passes through the copies that the function makes; None if it makes none, or has side effects."""
    if not found.traced.only_computes:
        return None
    copied = _split(found)
    if copied is None or len(copied.columns) > _MOST_COPIES * (found.sets.n_rows + found.sets.n_columns):
        return None
    made = CopiedPasses(f, found, copied, chunk)
    return made if made.terms <= _MOST_TERMS else None


__all__ = ["CopiedPasses", "passes_by_copies"]
