"""Which elements of its operands each element of an op's results depends on: what the records of ops say about it.

Words, in `Op.sparsity`:

    "elementwise"  element i of each operand; the default of elementwise ops
    "same"         element i of the one operand, and it is that element: another shape, a copy
    "none"         nothing: results without derivatives
    "jvp"          what the tangents in its JVP depend on; the default of ops that have a rule
    "moves"        results are elements of the operands: the op is run on their numbers. Where integers say which ones,
                   they have to be known, and else all along `axis` count
    "adds"         each element is added to at most one of the results: the transpose is run on their numbers; as above
    "reduces"      all along `axes`
    "cumulative"   what comes before along `axis`, or after it if `reverse`
    "axis"         all along `axis`
    "along"        what a matrix along `axis` connects: the op is run on the identity
    "row"          all along the last axis
    "matrix"       all in the last two axes
    "everything"   all elements of all operands

`UNCHANGED` are the words of ops whose results are elements of the operands, or zeros.

Else a function of a `Call`, which returns one pattern per result, None for no dependence, or the task that finds them.
`transforms/sparsity.py` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert.dtypes import ALL as DTYPES
from wengert.dtypes import float64
from wengert.ops.index_sets import Array, IndexSets, everything, united
from wengert.passes.evaluate import apply
from wengert.passes.linearize import jvp_rule
from wengert.program.ir import Program, Type
from wengert.program.nested import Task
from wengert.program.trace import Trace
from wengert.registry.record import OPS, Op
from wengert.registry.zero import ZERO
from wengert.tensors.conversion import asarray

Patterns = Sequence[IndexSets | None]
Known = Callable[[int], Array | None]
Inner = Callable[[Program, Patterns, Known], Task[Patterns]]


@dataclass(slots=True)
class Call:
    """An op on operands of which each has a pattern, or None if it does not depend on the inputs."""

    op: Op
    attrs: tuple[Any, ...]
    operands: list[Type]
    made: list[Type]  # the results
    patterns: list[IndexSets | None]
    n_columns: int
    known: Known  # the numbers of an operand, where they do not depend on the inputs
    inner: Inner  # the task of finding patterns of the results of a program that the op consists of

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the operands."""
        return [t.shape for t in self.operands]

    @property
    def results(self) -> list[tuple[int, ...]]:
        """The shapes of the results."""
        return [t.shape for t in self.made]

    @property
    def named(self) -> dict[str, Any]:
        """The attributes by name."""
        return self.op.named_attrs(self.attrs)

    @property
    def dependent(self) -> list[int]:
        """The operands that depend on the inputs."""
        return [k for k, p in enumerate(self.patterns) if p is not None]

    def united(self, parts: Sequence[IndexSets | None]) -> IndexSets:
        """The union of parts; one that is None adds nothing."""
        total = united(parts)
        return IndexSets.nothing(math.prod(self.results[0]), self.n_columns) if total is None else total

    def each(self, rule: Callable[[IndexSets, tuple[int, ...], tuple[int, ...]], IndexSets]) -> list[IndexSets]:
        """For each result, the union of `rule` applied to the patterns and shapes of each operand and the result."""
        return [
            self.united([rule(p, s, result) for p, s in zip(self.patterns, self.shapes) if p is not None])
            for result in self.results
        ]


# ------------------------------------------------------------------------------------------------------------- shapes


ALL, SAME = "all", "same"


def by_axes(pattern: IndexSets, shape: Sequence[int], result: Sequence[int], factors: Sequence[Any]) -> IndexSets:
    """A result with as many axes as the operand, in which each depends on the same one of the operand: by element (SAME),
    on the whole of it (ALL), or by the pattern of a matrix."""
    sizes = list(shape)
    for axis, factor in enumerate(factors):  # first what makes the pattern smaller
        if factor is ALL and sizes[axis] != 1:
            pattern = pattern.along(sizes, axis, _full(1, sizes[axis]))
            sizes[axis] = 1
    for axis, factor in enumerate(factors):
        if factor is not ALL and factor is not SAME:
            pattern = pattern.along(sizes, axis, factor)
            sizes[axis] = factor.n_rows
    rows = np.arange(math.prod(sizes)).reshape(sizes)
    return pattern if tuple(sizes) == tuple(result) else pattern.taken(np.broadcast_to(rows, result).ravel())


def _full(m: int, n: int) -> IndexSets:
    starts = np.arange(m + 1, dtype=np.int32) * np.int32(n)
    return IndexSets(starts, np.tile(np.arange(n, dtype=np.int32), m), n)


def _over_axis(pattern: IndexSets, shape: tuple[int, ...], result: tuple[int, ...], axis: int) -> IndexSets:
    """All along one axis, which may have become several, or none."""
    axis %= max(len(shape), 1)
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    m = math.prod(result) // (before * after) if before * after else 0
    return by_axes(pattern, (before, shape[axis], after), (before, m, after), (SAME, ALL, SAME))


def _elementwise(call: Call) -> Patterns:
    return [call.united(call.patterns)] * len(call.results)


def _reduces(call: Call) -> Patterns:
    axes = {a % len(call.shapes[0]) for a in call.named["axes"]} if call.shapes[0] else set()
    kept = [1 if a in axes else n for a, n in enumerate(call.shapes[0])]
    factors = [ALL if a in axes else SAME for a in range(len(kept))]
    return call.each(lambda p, shape, result: by_axes(p, shape, kept, factors))


def _cumulative(call: Call) -> Patterns:
    axis = call.named["axis"] % len(call.shapes[0])
    lower = np.tri(call.shapes[0][axis], dtype=bool)
    factor = IndexSets.of_matrix(lower.T if call.named.get("reverse") else lower)
    return call.each(lambda p, shape, result: p.along(shape, axis, factor))


def _axis(call: Call) -> Patterns:
    return call.each(lambda p, shape, result: _over_axis(p, shape, result, call.named["axis"]))


def _last(count: int) -> Callable[[Call], Patterns]:
    """All in the last axes, of tensors whose leading ones are the same."""

    def rule(call: Call) -> Patterns:
        def mixed(p: IndexSets, shape: tuple[int, ...], result: tuple[int, ...]) -> IndexSets:
            batch = math.prod(shape[:-count])
            sizes = [(batch, math.prod(s) // batch if batch else 0) for s in (shape, result)]
            return by_axes(p, sizes[0], sizes[1], (SAME, ALL))

        return call.each(mixed)

    return rule


def _everything(call: Call) -> Patterns:
    dependent = [p for p in call.patterns if p is not None]
    return [everything(dependent, math.prod(result)) for result in call.results]


# ------------------------------------------------------------------------------------------------- moving and adding


def _numbers(shape: tuple[int, ...], first: int) -> Any:
    """The numbers of the elements of a tensor, from `first` on, as a tensor; floating, as not all ops take integers."""
    n = math.prod(shape)
    return OPS["reshape"](OPS["iota"]((n,), float64.code, float(first), 1.0), shape)


def _integers(x: Any) -> Array:
    return np.asarray(x).ravel().astype(np.int64)


def _operands(call: Call, values: dict[int, Any]) -> list[Any] | None:
    """Tensors for the operands: these, and the numbers of the others; None if one of them is not known."""
    operands: list[Any] = []
    for k in range(len(call.shapes)):
        if k in values:
            operands.append(values[k])
            continue
        known = call.known(k)
        if known is None:
            return None
        operands.append(asarray(known))
    return operands


def _floating(call: Call) -> list[int]:
    return [k for k, t in enumerate(call.operands) if DTYPES[t.dtype].is_inexact]


def _moves(call: Call) -> Patterns:
    """Elements are numbered through all operands from 1 on; 0 is none of them."""
    moved, first, ends = {}, 1, []
    for k in _floating(call):
        moved[k] = _numbers(call.shapes[k], first)
        ends.append((k, first))
        first += math.prod(call.shapes[k])
    operands = _operands(call, moved)
    if operands is None:
        return _axis(call)
    made = apply(call.op, operands, call.attrs)
    numbers = _integers(made)
    parts: list[IndexSets | None] = []
    for k, start in ends:
        pattern = call.patterns[k]
        if pattern is not None:
            mine = (numbers >= start) & (numbers < start + pattern.n_rows)
            parts.append(pattern.taken(np.where(mine, numbers - start, -1)))
    return [call.united(parts)]


def _adds(call: Call) -> Patterns:
    """The transpose moves the number of a result to the elements that are added to it."""
    n = math.prod(call.results[0])
    y_bar = _numbers(call.results[0], 1)
    floating = {k: _numbers(call.shapes[k], 0) for k in _floating(call)}
    operands = _operands(call, floating)
    if operands is None:
        return _axis(call)
    parts = []
    for k in call.dependent:
        rule, pattern = call.op.transpose[k], call.patterns[k]
        assert rule is not None and pattern is not None
        target = _integers(rule(y_bar, *operands, **call.named)) - 1
        parts.append(pattern.merged(target, n))
    return [call.united(parts)]


# --------------------------------------------------------------------------------------------------- through programs


def _by_jvp(call: Call) -> Task[Patterns]:
    """Results depend on what their tangents are made of."""
    n, m = len(call.operands), len(call.made)

    def tangents(*given: Any) -> Any:
        inputs, outputs = given[:n], given[n : n + m]
        dots = [ZERO if p is None else d for p, d in zip(call.patterns, given[n + m :])]
        return jvp_rule(call.op, dots, outputs[0] if m == 1 else outputs, inputs, call.attrs)

    program = _traced(tangents, [*call.operands, *call.made, *call.operands], first_tangent=n + m)
    return call.inner(program, [*(None for _ in range(n + m)), *call.patterns], _first(call, n))


def through(meaning: Callable[..., Any]) -> Callable[[Call], Task[Patterns]]:
    """The rule of an op that is composed of others: `meaning` is the composition, a function of operands and attributes."""

    def rule(call: Call) -> Task[Patterns]:
        program = _traced(lambda *xs: meaning(*xs, **call.named), call.operands)
        return call.inner(program, call.patterns, call.known)

    return rule


def _first(call: Call, n: int) -> Known:
    return lambda k: call.known(k) if k < n else None


def _traced(f: Callable[..., Any], types: Sequence[Type], first_tangent: int | None = None) -> Program:
    """The program of a function that is composed of ops; its results may be symbolic zeros."""
    trace = Trace()
    given = [trace.input(t, first_tangent is not None and k >= first_tangent) for k, t in enumerate(types)]
    with trace:
        made = f(*given)
    results = made if isinstance(made, tuple) else (made,)
    return trace.program([None if y is ZERO else trace.value(y) for y in results])


# ------------------------------------------------------------------------------------------------- products and windows


def _rearranged(pattern: IndexSets, shape: Sequence[int], axes: Sequence[int]) -> IndexSets:
    return pattern.taken(np.arange(math.prod(shape)).reshape(shape).transpose(axes).ravel())


def matrix_product(call: Call) -> Patterns:
    """Rows by columns; of a matrix that is known, only where it is not zero."""
    swapped = [bool(t) for t in call.attrs]
    result, parts = call.results[0], []
    for k in call.dependent:
        pattern, shape = call.patterns[k], call.shapes[k]
        assert pattern is not None
        if swapped[k]:
            axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            pattern, shape = _rearranged(pattern, shape, axes), tuple(shape[a] for a in axes)
        other = call.known(1 - k)
        factor: Any = ALL
        if other is not None and other.ndim == 2:
            factor = IndexSets.of_matrix(other if swapped[1 - k] == (k == 0) else other.T)
        last = [SAME, factor] if k == 0 else [factor, SAME]
        parts.append(by_axes(pattern, shape, result, [*(SAME for _ in shape[2:]), *last]))
    return [call.united(parts)]


def selection(call: Call) -> Patterns:
    """`where`: of a condition that is known, the elements that it chooses."""
    condition = call.known(0)
    if condition is None:
        return _elementwise(call)
    flat = np.broadcast_to(condition, call.results[0]).ravel()
    every = np.arange(len(flat))
    chosen = [(call.patterns[1], flat), (call.patterns[2], ~flat)]
    return [call.united([None if p is None else p.taken(np.where(where, every, -1)) for p, where in chosen])]


def solution(a: int, b: int) -> Callable[[Call], Patterns]:
    """Linear systems with the matrix a: columns depend on the same ones of b; rows do, if it is on the `right`."""

    def rule(call: Call) -> Patterns:
        def of_operand(k: int) -> IndexSets | None:
            pattern, shape, result = call.patterns[k], call.shapes[k], call.results[0]
            if pattern is None or k not in (a, b):
                return None
            mixed = [ALL, ALL] if k == a else [SAME, ALL] if call.named.get("right") else [ALL, SAME]
            return by_axes(pattern, shape, result, [*(SAME for _ in shape[2:]), *mixed])

        return [call.united([of_operand(k) for k in range(len(call.operands))])]

    return rule


class Window:
    """How positions i of x, j of windows and k of the kernel meet along one axis: i = j·stride + k·dilation − padding."""

    def __init__(self, i: int, j: int, k: int, stride: int, padding: int, dilation: int) -> None:
        windows, taps = (a.ravel() for a in np.indices((j, k)))
        at = windows * stride + taps * dilation - padding
        inside = (at >= 0) & (at < i)
        self.sizes = {"i": i, "j": j, "k": k}
        self.at = {"i": at[inside], "j": windows[inside], "k": taps[inside]}

    def pattern(self, rows: str, columns: str) -> IndexSets:
        """Which positions of the one meet which of the other."""
        return IndexSets.of_pairs(self.at[rows], self.at[columns], (self.sizes[rows], self.sizes[columns]))


def windows(rows: str, columns: str) -> Callable[[Call], Patterns]:
    """Pooling from positions in `columns` to those in `rows`. Where integers say which element of a window it is and they
    are known, only that one."""

    def rule(call: Call) -> Patterns:
        if len(call.operands) > 1 and call.known(1) is not None:
            return (_moves if rows == "j" else _adds)(call)
        named, pattern, shape, result = call.named, call.patterns[0], call.shapes[0], call.results[0]
        assert pattern is not None
        inner, outer = (shape, result) if rows == "j" else (result, shape)
        sizes = zip(inner[2:], outer[2:], named["kernel"], named["stride"], named["padding"], named["dilation"])
        factors = [Window(*s).pattern(rows, columns) for s in sizes]
        return [by_axes(pattern, shape, result, [SAME, SAME, *factors])]

    return rule


def convolution(y: str, operands: str) -> Callable[[Call], Patterns]:
    """The pattern of the trilinear form in x, w and y: `y` from the other two operands, as in ops/conv.py.

    Channels are split into (group, channel of the group), so that operand and result can be given the same axes.
    """

    def rule(call: Call) -> Patterns:
        g, named, made = call.named["groups"], call.named, dict(zip(operands + y, [*call.shapes[:2], *call.results]))
        spatial = zip(made["x"][2:], made["y"][2:], made["w"][2:], named["stride"], named["padding"], named["dilation"])
        meet = [Window(*s) for s in spatial]
        parts = []
        for k, name in enumerate(operands):
            if (pattern := call.patterns[k]) is not None:
                axes = _CHANNELS[name], _CHANNELS[y]
                factors = [w.pattern(_POSITIONS[y], _POSITIONS[name]) for w in meet]
                parts.append(_by_channels(pattern, made[name], made[y], g, axes, factors))
        return [call.united(parts)]

    return rule


_POSITIONS = {"x": "i", "y": "j", "w": "k"}
_CHANNELS = {"x": "ngc", "y": "ngo", "w": "goc"}  # axes before the spatial ones: batch, group, channel in, channel out


def _by_channels(
    pattern: IndexSets, shape: Any, result: Any, groups: int, axes: tuple[str, str], factors: list[IndexSets]
) -> IndexSets:
    """From the axes of the operand to those of the result: an axis of both is kept, the others are summed and repeated."""
    source, target = (_split_channels(s, a, groups) for s, a in zip((shape, result), axes))
    common = [a for a in axes[1] if a in axes[0]]
    (gone,) = set(axes[0]) - set(common)
    (new,) = set(axes[1]) - set(common)
    order = axes[1].replace(new, gone)
    places = [axes[0].index(a) for a in order]
    pattern = _rearranged(pattern, source, [*places, *range(3, len(source))])
    arranged = [*(source[p] for p in places), *source[3:]]
    kinds = [ALL if a == gone else SAME for a in order]
    return by_axes(pattern, arranged, target, [*kinds, *factors])


def _split_channels(shape: Sequence[int], axes: str, groups: int) -> list[int]:
    n, c = shape[:2]
    return [groups, n // groups, c, *shape[2:]] if axes == "goc" else [n, groups, c // groups, *shape[2:]]


def _along(call: Call) -> Patterns:
    """The op on the identity, along its first axis."""
    axis = call.named["axis"] % len(call.shapes[0])
    attrs = tuple(0 if a.name == "axis" else value for a, value in zip(call.op.attrs, call.attrs))
    n = call.shapes[0][axis]
    ones = OPS["full"]((n,), float64.code, 1.0)
    identity = OPS["as_strided_add"](ones, (n, n), (n + 1,), (0,))
    factor = IndexSets.of_matrix(np.asarray(apply(call.op, [identity], attrs)))
    return call.each(lambda p, shape, result: p.along(shape, axis, factor))


UNCHANGED = ("same", "moves")
WORDS: dict[str, Callable[[Call], Patterns | Task[Patterns]]] = {
    "elementwise": _elementwise,
    "same": _elementwise,
    "none": lambda call: [None] * len(call.results),
    "jvp": _by_jvp,
    "moves": _moves,
    "adds": _adds,
    "reduces": _reduces,
    "cumulative": _cumulative,
    "axis": _axis,
    "along": _along,
    "row": _last(1),
    "matrix": _last(2),
    "everything": _everything,
}
