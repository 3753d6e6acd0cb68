"""Patterns of sparse derivatives, from the program of a function: which results depend on which inputs.

Index sets are carried through the instructions by what the records of the ops say (`ops/sparsity.py`). The pattern covers
every entry that can differ from zero: where data decide, it has all of them. Integers that do not depend on the inputs,
such as those of a gather, are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any

import numpy as np

from wengert import tree
from wengert._core import Tensor
from wengert.dtypes import ALL as DTYPES
from wengert.errors import ArgumentError, TraceError
from wengert.modes import enable_grad, no_grad
from wengert.ops.index_sets import Array, IndexSets, stacked
from wengert.ops.sparsity import WORDS, Call, Known, Patterns
from wengert.passes.evaluate import apply
from wengert.program.call_trace import CallTrace
from wengert.program.ir import Const, Instruction, Program, Type, Var
from wengert.program.nested import Task, finished
from wengert.program.simplify import simplify
from wengert.program.trace import untraced
from wengert.tensors.conversion import asarray
from wengert.tensors.numpy import data
from wengert.transforms.functional import argument_numbers, by_arguments, grad, result_leaves

# ----------------------------------------------------------------------------------------------------------- patterns


def propagate(program: Program, patterns: Patterns, known: Known, n_columns: int) -> list[IndexSets | None]:
    """The patterns of the outputs of a program from those of its inputs; None is no dependence."""
    return finished(_propagating(program, patterns, known, n_columns))


def _propagating(program: Program, patterns: Patterns, known: Known, n_columns: int) -> Task[list[IndexSets | None]]:
    found = yield from _finding(program, patterns, known, n_columns)
    return [found.get(o) if isinstance(o, Var) else None for o in program.outputs]


def patterns_of_values(program: Program, patterns: Patterns, known: Known, n_columns: int) -> dict[Var, IndexSets]:
    """The patterns of all values of a program that depend on its inputs."""
    return finished(_finding(program, patterns, known, n_columns))


def _finding(program: Program, patterns: Patterns, known: Known, n_columns: int) -> Task[dict[Var, IndexSets]]:
    found = {v: p for v, p in zip(program.inputs, patterns) if p is not None}
    constants = _Constants(program, known)
    for i in program.instructions:
        given = [found.get(x) if isinstance(x, Var) else None for x in i.inputs]
        if any(p is not None for p in given):
            made = _of_instruction(i, given, constants, n_columns)
            if isinstance(made, GeneratorType):
                made = yield made
            found.update((v, p) for v, p in zip(i.outputs, made) if p is not None and DTYPES[v.type.dtype].is_inexact)
    return found


def _of_instruction(
    i: Instruction, given: list[IndexSets | None], constants: _Constants, n_columns: int
) -> Patterns | Task[Patterns]:
    rule: Any = i.op.sparsity
    types = [x.type if isinstance(x, Var) else Type(x.dtype, ()) for x in i.inputs]
    call = Call(
        i.op,
        i.attrs,
        types,
        [v.type for v in i.outputs],
        given,
        n_columns,
        lambda k: constants.value(i.inputs[k]),
        lambda program, patterns, known: _propagating(program, patterns, known, n_columns),
    )
    if not callable(rule) and rule not in WORDS:
        raise ArgumentError(f"sparsity: the record of {i.op.name} does not say which elements depend on which")
    return (rule if callable(rule) else WORDS[rule])(call)


class _Constants:
    """The numbers of a program's values that its inputs' numbers are known for, computed when they are asked for."""

    def __init__(self, program: Program, known: Known) -> None:
        self._known = known
        self._places = {v: k for k, v in enumerate(program.inputs)}
        self._producers = {v: i for i in program.instructions for v in i.outputs}
        self._tensors: dict[Var, Any] = {}

    def value(self, x: Any) -> Array | None:
        """An array, or None if it is not known."""
        if isinstance(x, Const):
            return np.asarray(x.value)
        tensor = self._tensor(x)
        return None if tensor is None else data(tensor)

    def _tensor(self, wanted: Var) -> Any:
        stack = [wanted]
        while stack:
            x = stack[-1]
            if x in self._tensors:
                stack.pop()
                continue
            producer = self._producers.get(x)
            if producer is None:
                numbers = self._known(self._places[x]) if x in self._places else None
                self._tensors[x] = None if numbers is None else asarray(numbers)
                continue
            missing = [v for v in producer.vars() if v not in self._tensors]
            unknown = any(self._tensors.get(v, 0) is None for v in producer.vars())
            if missing and not unknown:
                stack += missing
                continue
            self._run(producer, unknown or "key" in producer.op.named_attrs(producer.attrs))
        return self._tensors[wanted]

    def _run(self, i: Instruction, unknown: bool) -> None:
        if unknown:
            self._tensors.update(dict.fromkeys(i.outputs))
            return
        operands = [x.value if isinstance(x, Const) else self._tensors[x] for x in i.inputs]
        with no_grad(), untraced():
            made = apply(i.op, operands, i.attrs)
        self._tensors.update(zip(i.outputs, (made,) if i.op.n_outputs == 1 else made))


# ------------------------------------------------------------------------------------------------------------ functions


@dataclass(slots=True)
class Read:
    """Numbers that a pattern depends on: of an argument (by its place among the tensors), or of a tensor from outside."""

    place: int | None
    tensor: Any  # None for an argument
    numbers: Array

    def is_same(self, tensors: Sequence[Any]) -> bool:
        """Whether they are what they were."""
        now = data(self.tensor if self.place is None else tensors[self.place])
        return now.shape == self.numbers.shape and bool(np.array_equal(now, self.numbers))


@dataclass(slots=True)
class Traced:
    """A function as a program of the tensors among its arguments."""

    program: Program
    tensors: list[Any]  # the arguments that it was traced with
    captured: list[Any]  # tensors from outside: the last inputs of the program
    chosen: list[int]  # the inputs that it is differentiated by
    n_results: int  # the first outputs
    only_computes: bool  # nothing is drawn at random, nothing is changed in place
    reads: dict[int, Read] = field(default_factory=dict)

    def known(self, k: int) -> Array | None:
        """The numbers of an input that a pattern may depend on; they are read then."""
        first_captured = len(self.program.inputs) - len(self.captured)
        if k in self.chosen or len(self.tensors) <= k < first_captured:
            return None
        is_argument = k < first_captured
        x = self.tensors[k] if is_argument else self.captured[k - first_captured]
        if is_argument and DTYPES[x.dtype.code].is_inexact:
            return None  # other numbers come with every call
        if k not in self.reads:
            self.reads[k] = Read(k if is_argument else None, None if is_argument else x, data(x.detach()).copy())
        return self.reads[k].numbers

    @property
    def is_real(self) -> bool:
        """Whether no result is complex."""
        results = [o for o in self.program.outputs[: self.n_results] if o is not None]
        return all(DTYPES[o.type.dtype if isinstance(o, Var) else o.dtype].kind != "c" for o in results)

    def sizes(self) -> list[int]:
        """How many elements each of the chosen inputs has."""
        return [math.prod(self.program.inputs[k].type.shape) for k in self.chosen]


@dataclass(slots=True)
class Detected:
    """The pattern of a derivative, and what it was found from."""

    sets: IndexSets
    traced: Traced
    values: dict[Var, IndexSets]  # the patterns of all values of the program

    @property
    def reads(self) -> list[Read]:
        """The numbers that the pattern depends on."""
        return list(self.traced.reads.values())


def detect(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Any, what: str) -> Detected:
    """The pattern of the Jacobian of all results of f, flattened, by the arguments `argnums`, flattened."""
    leaves, structure = tree.flatten((args, kwargs))
    places = [k for k, x in enumerate(leaves) if isinstance(x, Tensor)]
    trace = CallTrace()
    names: list[Any] = list(leaves)
    for k in places:
        require_numbers(leaves[k], what)
        names[k] = trace.argument(Type(leaves[k].dtype.code, tuple(int(n) for n in leaves[k].shape)))
    chosen = _chosen(tree.unflatten(structure, list(range(len(leaves))))[0], argnums, what)
    given, named = tree.unflatten(structure, names)
    with enable_grad(), trace:
        try:
            results = result_leaves(f(*given, **named), what)[0]
        except TraceError as e:
            raise TraceError(f"{what}: {e}; or hand in the pattern, with sparsity=") from None
        outputs = [trace.operand(y, 0) for y in results]
    only_computes = not trace.has_effects()
    traced = Traced(
        simplify(trace.program(outputs)),
        [leaves[k] for k in places],
        [x for x, _ in trace.captured.values()],
        [places.index(k) for k in chosen],
        len(outputs),
        only_computes,
    )
    return _detect(traced)


def require_numbers(x: Any, what: str) -> None:
    """Raise where a tensor has no numbers, as a function around is being traced or differentiated."""
    if not x._plain:
        raise TraceError(
            f"{what}: sparse derivatives are matrices of scipy.sparse, outside of what is traced or differentiated; call it "
            "there, on tensors that have numbers"
        )


def _chosen(args: tuple[Any, ...], argnums: Any, what: str) -> list[int]:
    """The places of the leaves of the arguments `argnums`."""
    _, selected = by_arguments(lambda *xs: None, argument_numbers(argnums, what), args, {}, what)
    return [k for x in selected for k in tree.flatten(x)[0]]


def _detect(traced: Traced) -> Detected:
    program, n = traced.program, sum(traced.sizes())
    patterns = unit_patterns(program, traced.chosen, traced.sizes())
    with no_grad(), untraced():
        found = patterns_of_values(program, patterns, traced.known, n)
    parts = []
    for o in program.outputs[: traced.n_results]:
        size = math.prod(o.type.shape) if isinstance(o, Var) else 1
        parts.append(found[o] if isinstance(o, Var) and o in found else IndexSets.nothing(size, n))
    return Detected(stacked(parts) if parts else IndexSets.nothing(0, n), traced, found)


def unit_patterns(program: Program, chosen: Sequence[int], sizes: Sequence[int]) -> list[IndexSets | None]:
    """Patterns of a program's inputs, of which the chosen ones depend on themselves, one after the other."""
    patterns: list[IndexSets | None] = [None] * len(program.inputs)
    first, n = 0, sum(sizes)
    for k, size in zip(chosen, sizes):
        patterns[k] = IndexSets.identity(size, first, n)
        first += size
    return patterns


def detect_hessian(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Any, what: str
) -> Detected:
    """The pattern of the Hessian: that of the Jacobian of the gradient, where both triangles have an entry."""
    found = detect(grad(f, argnums), args, kwargs, argnums, what)
    return Detected(symmetric(found.sets), found.traced, found.values)


def symmetric(sets: IndexSets) -> IndexSets:
    """The entries (i, j) for which there is (j, i), too: a symmetric matrix with this pattern has no others."""
    if sets.n_rows != sets.n_columns:
        raise ArgumentError(f"sparsity: a symmetric pattern must be square, got {sets.n_rows} × {sets.n_columns}")
    n = sets.n_columns
    forth = sets.rows().astype(np.int64) * n + sets.columns
    other = sets.transposed()
    back = other.rows().astype(np.int64) * n + other.columns
    if np.array_equal(forth, back):
        return sets
    return sets.restricted(np.isin(forth, back, assume_unique=True))


__all__ = [
    "Detected",
    "Traced",
    "detect",
    "detect_hessian",
    "patterns_of_values",
    "propagate",
    "symmetric",
    "unit_patterns",
]
