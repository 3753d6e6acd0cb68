"""Einstein's summation: any number of operands, contracted two at a time as matrix products."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.diagonals import diagonal
from wengert.tensors.arguments import Size, as_tensor, describe, is_one, native, product, promoted

_matmul, _reshape, _permute, _sum = native("matmul"), native("reshape"), native("permute"), native("sum")

Labels = tuple[str, ...]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in alphabetical order


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Multiply operands and sum over all labels that the output does not have: "ij,jk->ik" is a matrix product.

    A label that occurs twice in one operand takes its diagonal; "..." stands for leading axes that broadcast. Without
    "->", the output has the labels that occur once, in alphabetical order. Operands may also be followed by lists of
    numbers that label their axes, with the labels of the output last: `einsum(a, [0, 1], b, [1, 2], [0, 2])`. The
    order of contractions depends on the shapes alone, as in `numpy.einsum_path`.

    >>> einsum("ij,j->i", [[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0]).tolist()
    [21.0, 43.0]
    """
    if not isinstance(equation, str):
        equation, operands = _interleaved((equation, *operands))
    given = [as_tensor(x, "einsum") for x in operands]
    equation = equation.replace(" ", "")
    parse(equation, tuple(t.ndim for t in given))
    y: Tensor = _einsum(equation, *promoted(given))
    return y


def _interleaved(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The equation of operands that stand before their labels, and the operands."""
    operands, labels = given[: len(given) // 2 * 2 : 2], given[1::2]
    if len(given) < 2 or not all(isinstance(x, (list, tuple)) for x in labels):
        raise TypeError(
            "einsum: the equation comes first, as a string, or each operand stands before a list of its labels; got "
            + ", ".join(type(x).__name__ for x in given)
        )
    terms = [_letters(x) for x in labels]
    output = f"->{_letters(given[-1])}" if len(given) % 2 else ""
    return ",".join(terms) + output, operands


def _letters(labels: Sequence[Any]) -> str:
    for x in labels:
        if x is not Ellipsis and not (isinstance(x, (int, np.integer)) and 0 <= x < len(_LETTERS)):
            raise ArgumentError(f"einsum: labels must be integers from 0 to {len(_LETTERS) - 1} and ..., got {x!r}")
    return "".join("..." if x is Ellipsis else _LETTERS[x] for x in labels)


@functools.lru_cache(maxsize=512)
def parse(equation: str, ranks: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of each operand and of the output; the axes of an ellipsis have labels of their own."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks) or not ranks:
        raise ArgumentError(f"einsum: {equation!r} has {len(terms)} operand(s), got {len(ranks)}")
    named = [_named(term, equation) for term in (*terms, right)]
    most = 0
    for (before, after, dots), rank, term in zip(named, ranks, terms):
        spare = rank - len(before) - len(after)
        if spare < 0 or (spare > 0 and not dots):
            raise ShapeError(f"einsum: {term!r} of {equation!r} names {len(before) + len(after)} axes, got {rank}")
        most = max(most, spare)
    dotted = tuple(f".{i}" for i in range(most))
    inputs = tuple(
        (*before, *dotted[most - (rank - len(before) - len(after)) :], *after)
        for (before, after, _), rank in zip(named, ranks)
    )
    letters = [x for labels in inputs for x in labels if not x.startswith(".")]
    if not arrow:
        return inputs, (*dotted, *sorted(x for x in set(letters) if letters.count(x) == 1))
    before, after, dots = named[-1]
    if len(set(before + after)) != len(before + after):
        raise ArgumentError(f"einsum: the output of {equation!r} repeats a label")
    unknown = sorted(set(before + after) - set(letters))
    if unknown:
        raise ArgumentError(f"einsum: the output of {equation!r} names {', '.join(unknown)}, which no operand has")
    return inputs, (*before, *(dotted if dots else ()), *after)


def _named(term: str, equation: str) -> tuple[str, str, bool]:
    before, dots, after = term.partition("...")
    if any(not x.isalpha() for x in before + after):
        raise ArgumentError(f"einsum: the equation must consist of letters, '...', ',' and '->', got {equation!r}")
    return before, after, bool(dots)


@composite(precision="low", functions=("einsum",))
def _einsum(equation: str, *operands: Tensor) -> Any:
    terms, output = parse(equation, tuple(t.ndim for t in operands))
    sizes = _sizes(equation, terms, operands)
    values = [_prepared(t, labels, sizes) for t, labels in zip(operands, terms)]
    for pair in _path(equation, terms, tuple(tuple(_example(sizes[x]) for x in labels) for labels in terms)):
        chosen = [values[k] for k in pair]
        values = [v for k, v in enumerate(values) if k not in pair]
        kept = {x for _, labels in values for x in labels} | set(output)
        values.append(_contracted(chosen[0], chosen[1], kept, sizes) if len(chosen) == 2 else chosen[0])
    ((t, labels),) = values
    t, labels = _summed(t, labels, set(output))
    y = _permute(t, tuple(labels.index(x) for x in output if x in labels))
    # Labels of size 1 may be gone.
    return _reshape(y, tuple(sizes[x] for x in output))


def _example(size: Size) -> int:
    return size if isinstance(size, int) else int(size.hint)


def _sizes(equation: str, terms: Sequence[Labels], operands: Sequence[Tensor]) -> dict[str, Size]:
    sizes: dict[str, Size] = {}
    for labels, t in zip(terms, operands):
        for x, n in zip(labels, t.shape):
            known = sizes.get(x)
            if known is None or is_one(known):
                sizes[x] = n
            elif not is_one(n) and known != n:
                given = " and ".join(describe(o) for o in operands)
                raise ShapeError(f"einsum: label {x!r} of {equation!r} has sizes {known} and {n} in {given}")
    return sizes


def _prepared(t: Tensor, labels: Labels, sizes: dict[str, Size]) -> tuple[Tensor, Labels]:
    """Remove axes of size 1, which broadcast, and take diagonals."""
    kept = [k for k, x in enumerate(labels) if not is_one(t.shape[k])]
    if len(kept) < len(labels):
        t, labels = _reshape(t, tuple(t.shape[k] for k in kept)), tuple(labels[k] for k in kept)
    for x in dict.fromkeys(labels):
        while labels.count(x) > 1:
            first = labels.index(x)
            second = labels.index(x, first + 1)
            t = diagonal(t, axis1=first, axis2=second)
            labels = (*(y for k, y in enumerate(labels) if k not in (first, second)), x)
    return t, labels


def _summed(t: Tensor, labels: Labels, kept: set[str]) -> tuple[Tensor, Labels]:
    axes = tuple(k for k, x in enumerate(labels) if x not in kept)
    return (_sum(t, axes, 0), tuple(x for x in labels if x in kept)) if axes else (t, labels)


def _contracted(
    a: tuple[Tensor, Labels], b: tuple[Tensor, Labels], kept: set[str], sizes: dict[str, Size]
) -> tuple[Tensor, Labels]:
    """Two operands as one batched matrix product."""
    (x, of_x), (y, of_y) = _summed(*a, kept | set(b[1])), _summed(*b, kept | set(a[1]))
    batch = [s for s in of_x if s in of_y and s in kept]
    inner = [s for s in of_x if s in of_y and s not in kept]
    rows, columns = [s for s in of_x if s not in of_y], [s for s in of_y if s not in of_x]
    lead = tuple(sizes[s] for s in batch)
    labels = (*batch, *rows, *columns)
    if not inner:  # nothing to sum: an elementwise product
        left = _reshape(_ordered(x, of_x, (*batch, *rows)), (*lead, *(sizes[s] for s in rows), *(1 for _ in columns)))
        right = _reshape(
            _ordered(y, of_y, (*batch, *columns)), (*lead, *(1 for _ in rows), *(sizes[s] for s in columns))
        )
        return left * right, labels
    m, n, k = (product([sizes[s] for s in group]) for group in (rows, columns, inner))
    left = _reshape(_ordered(x, of_x, (*batch, *rows, *inner)), (*lead, m, k))
    right = _reshape(_ordered(y, of_y, (*batch, *inner, *columns)), (*lead, k, n))
    return _reshape(_matmul(left, right, 0, 0), tuple(sizes[s] for s in labels)), labels


def _ordered(t: Tensor, labels: Labels, wanted: Labels) -> Tensor:
    order = tuple(labels.index(x) for x in wanted)
    return t if order == tuple(range(len(order))) else _permute(t, order)


@functools.lru_cache(maxsize=512)
def _path(equation: str, terms: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Which operands to contract, in turn; what is made goes to the end of the list."""
    if len(terms) <= 2:
        return (tuple(range(len(terms))),) if len(terms) == 2 else ()
    labels = dict.fromkeys(x for term in terms for x in term)
    if len(labels) > len(_LETTERS):  # more than einsum_path can name
        return tuple((0, len(terms) - 1 - k) for k in range(len(terms) - 1))
    letters = dict(zip(labels, _LETTERS))
    inputs = ",".join("".join(letters[x] for x in term) for term in terms)
    output = "".join(letters[x] for x in parse(equation, tuple(map(len, terms)))[1])
    arrays = [np.broadcast_to(np.float64(0), shape) for shape in shapes]
    steps = np.einsum_path(f"{inputs}->{output}", *arrays, optimize="greedy")[0][1:]
    return tuple(_two_at_a_time(steps, len(terms)))


def _two_at_a_time(steps: Sequence[Sequence[int]], count: int) -> Iterator[tuple[int, ...]]:
    """Steps of more than two operands as several; `count` operands are in the list."""
    for step in steps:
        rest = sorted(step)
        if len(rest) == 1:
            yield (rest[0],)
        while len(rest) > 1:
            i, j = rest[:2]
            yield i, j
            count -= 1
            rest = [*(r - 2 for r in rest[2:]), count - 1]
