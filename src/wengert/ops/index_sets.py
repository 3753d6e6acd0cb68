"""On which elements of the inputs each element of a value depends: rows of ascending indices, in arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert import _core
from wengert.errors import NumberRangeError, SparsityError

Array = np.ndarray[Any, Any]
MOST = 2**28  # indices in one pattern: a gigabyte
_most = ContextVar("_most", default=MOST)


@contextmanager
def at_most(indices: int) -> Iterator[None]:
    """A scope in which patterns with more indices raise `TooDense`, which ends the search."""
    token = _most.set(indices)
    try:
        yield
    finally:
        _most.reset(token)


class TooDense(SparsityError):
    """The pattern has more entries than a sparse one should."""

    def __init__(self) -> None:
        super().__init__(
            f"sparsity: the pattern has more than {_most.get():,} entries: it is not sparse; use sparse=False"
        )


def int32(x: Any) -> Array:
    """x as a packed array of 32-bit integers, which the core reads."""
    return np.ascontiguousarray(x, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class IndexSets:
    """Row i has columns[starts[i]] to columns[starts[i + 1] - 1], ascending, all below `n_columns`.

    >>> import numpy as np
    >>> bidiagonal = IndexSets.of_pairs(np.array([0, 1, 1]), np.array([0, 0, 1]), (2, 2))
    >>> bidiagonal.starts.tolist(), bidiagonal.columns.tolist()
    ([0, 1, 3], [0, 0, 1])
    """

    starts: Array
    columns: Array
    n_columns: int

    @classmethod
    def identity(cls, n: int, first: int = 0, n_columns: int | None = None) -> IndexSets:
        """Element i depends on the input element `first` + i."""
        indices = np.arange(n + 1, dtype=np.int32)
        return cls(indices, indices[:n] + np.int32(first), n if n_columns is None else n_columns)

    @classmethod
    def nothing(cls, n_rows: int, n_columns: int) -> IndexSets:
        """Empty rows."""
        return cls(np.zeros(n_rows + 1, np.int32), np.zeros(0, np.int32), n_columns)

    @classmethod
    def of_pairs(cls, rows: Array, columns: Array, shape: tuple[int, int]) -> IndexSets:
        """These entries (row, column), each of them once or more often, in any order."""
        order = np.lexsort((columns, rows))
        rows, columns = rows[order], columns[order]
        new = np.ones(len(rows), bool)
        new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        return cls.of_counts(np.bincount(rows[new], minlength=shape[0]), columns[new], shape[1])

    @classmethod
    def of_counts(cls, counts: Array, columns: Array, n_columns: int) -> IndexSets:
        """Rows of so many indices each, which are these, row by row."""
        return cls(_starts(counts), int32(columns), n_columns)

    @classmethod
    def of_matrix(cls, matrix: Array) -> IndexSets:
        """The entries of a dense matrix that are not zero."""
        return cls.of_counts((matrix != 0).sum(1), np.nonzero(matrix)[1], matrix.shape[1])

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.starts) - 1

    @property
    def nnz(self) -> int:
        """How many indices all rows have."""
        return len(self.columns)

    def counts(self) -> Array:
        """How many indices each row has."""
        return np.diff(self.starts)

    def rows(self) -> Array:
        """The row of each index."""
        return np.repeat(np.arange(self.n_rows, dtype=np.int32), self.counts())

    def united(self, other: IndexSets) -> IndexSets:
        """Each row together with that of the other."""
        if other is self:
            return self
        starts, columns = _limited(
            _core.unite_sets, self.starts, self.columns, other.starts, other.columns, self.n_columns, _most.get()
        )
        return IndexSets(starts, columns, self.n_columns)

    def selected(self, which: IndexSets) -> IndexSets:
        """Row i is the union of the rows in row i of `which`: the pattern of a product of matrices."""
        starts, columns = _limited(
            _core.product_of_sets, which.starts, which.columns, self.starts, self.columns, self.n_columns, _most.get()
        )
        return IndexSets(starts, columns, self.n_columns)

    def taken(self, rows: Array) -> IndexSets:
        """Row i is row rows[i], and empty where that is negative."""
        inside = rows >= 0
        if inside.all():
            return self.selected(IndexSets(np.arange(len(rows) + 1, dtype=np.int32), int32(rows), self.n_rows))
        return self.selected(IndexSets(_starts(inside), int32(rows[inside]), self.n_rows))

    def merged(self, groups: Array, n_groups: int) -> IndexSets:
        """Row g is the union of the rows i with groups[i] = g; a negative group is none."""
        order = np.argsort(groups, kind="stable")
        counts = np.bincount(groups[groups >= 0], minlength=n_groups)
        return self.selected(IndexSets(_starts(counts), int32(order[len(order) - counts.sum() :]), self.n_rows))

    def transposed(self) -> IndexSets:
        """The pattern of the transposed matrix."""
        starts, columns = _core.transposed_sets(self.starts, self.columns, self.n_columns)
        return IndexSets(starts, columns, self.n_rows)

    def restricted(self, keep: Array) -> IndexSets:
        """Only the indices where `keep`, one flag for each index."""
        counts = np.zeros(self.n_rows, np.int64)
        np.add.at(counts, self.rows()[keep], 1)
        return IndexSets(_starts(counts), self.columns[keep], self.n_columns)

    def along(self, shape: Sequence[int], axis: int, factor: IndexSets) -> IndexSets:
        """The pattern of a tensor of this shape times a matrix with pattern `factor`, along the axis."""
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        m, n = factor.n_rows, factor.n_columns
        if before * after == 1:
            return self.selected(factor)
        # Row (a, i, b) reads the rows (a, j, b) for j in row i of the factor.
        counts = np.broadcast_to(factor.counts()[None, :, None], (before, m, after)).ravel()
        starts = _starts(counts)
        firsts = np.broadcast_to(factor.starts[None, :-1, None], (before, m, after)).ravel()
        places = np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], counts)
        outer = np.arange(before)[:, None, None] * (n * after) + np.arange(after)
        base = np.broadcast_to(outer, (before, m, after)).ravel()
        which = np.repeat(base, counts) + factor.columns[places].astype(np.int64) * after
        return self.selected(IndexSets(starts, int32(which), self.n_rows))


def _starts(counts: Array) -> Array:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    if starts[-1] > _most.get():
        raise TooDense
    return starts.astype(np.int32)


def _limited(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except NumberRangeError:
        raise TooDense from None


def united(parts: Iterable[IndexSets | None]) -> IndexSets | None:
    """The union of patterns of as many rows; None adds nothing."""
    total: IndexSets | None = None
    for p in parts:
        total = p if total is None else total if p is None else total.united(p)
    return total


def everything(sets: Sequence[IndexSets], n_rows: int) -> IndexSets | None:
    """Each of n rows depends on all that one of these depends on."""
    total = united(s.merged(np.zeros(s.n_rows, np.int64), 1) for s in sets)
    return None if total is None else total.taken(np.zeros(n_rows, np.int64))


def stacked(parts: Sequence[IndexSets]) -> IndexSets:
    """The rows of all of them, one after the other; there is at least one."""
    if len(parts) == 1:
        return parts[0]
    starts = _starts(np.concatenate([p.counts() for p in parts]))
    return IndexSets(starts, np.concatenate([p.columns for p in parts]), parts[0].n_columns)


__all__ = ["IndexSets", "TooDense", "at_most", "everything", "int32", "stacked", "united"]
