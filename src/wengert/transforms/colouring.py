"""Colourings: which columns and rows of a sparse matrix are computed together, and where each entry is found.

Columns of one colour have no row in common. So the derivative along the sum of their directions has all their entries, each
in its own row: one forward pass for each colour of columns, one reverse pass for each colour of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wengert import _core
from wengert.errors import ArgumentError
from wengert.ops.index_sets import Array, IndexSets, int32
from wengert.transforms.sparsity import symmetric

KINDS = ("auto", "columns", "rows", "both", "symmetric")
_NONE = -1
REVERSE = 1.25  # cost of a reverse pass, in forward passes


class Sparsity:
    """The pattern of a sparse matrix: which of its entries may differ from zero.

    >>> import numpy as np, wengert as wg
    >>> pattern = wg.jacobian_sparsity(lambda x: x[1:] * x[:-1], wg.ones((4,)))
    >>> pattern.shape, pattern.nnz, pattern.indptr.tolist(), pattern.indices.tolist()
    ((3, 4), 6, [0, 2, 4, 6], [0, 1, 1, 2, 2, 3])
    >>> wg.Sparsity(np.eye(2)).nnz
    2
    """

    def __init__(self, matrix: Any) -> None:
        self._sets = matrix if isinstance(matrix, IndexSets) else _sets_of(matrix)
        self._colourings: dict[str, Colouring] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and columns the matrix has."""
        return (self._sets.n_rows, self._sets.n_columns)

    @property
    def nnz(self) -> int:
        """How many entries may differ from zero."""
        return self._sets.nnz

    @property
    def indptr(self) -> Array:
        """Where each row begins among the indices, as in `scipy.sparse.csr_array`."""
        return self._sets.starts

    @property
    def indices(self) -> Array:
        """The columns of the entries, row by row, ascending."""
        return self._sets.columns

    def matrix(self, data: Any = None) -> Any:
        """A `scipy.sparse.csr_array` with these entries; all True where no data are given.

        >>> import numpy as np, wengert as wg
        >>> wg.Sparsity(np.eye(2)).matrix([5.0, 7.0]).toarray().tolist()
        [[5.0, 0.0], [0.0, 7.0]]
        """
        sparse = scipy_sparse()
        values = np.ones(self.nnz, bool) if data is None else np.asarray(data)
        return sparse.csr_array((values, self.indices.copy(), self.indptr.copy()), shape=self.shape)

    def __contains__(self, entry: tuple[int, int]) -> bool:
        row, column = entry
        return column in self.indices[self.indptr[row] : self.indptr[row + 1]]

    def __repr__(self) -> str:
        return f"<Sparsity {self.shape[0]} × {self.shape[1]}, {self.nnz} entries>"


def scipy_sparse() -> Any:
    """SciPy's sparse matrices."""
    try:
        import scipy.sparse
    except ImportError:
        raise ImportError("sparse derivatives need SciPy: pip install 'wengert[scipy]'") from None
    return scipy.sparse


def _sets_of(matrix: Any) -> IndexSets:
    if isinstance(matrix, Sparsity):
        return matrix._sets
    if hasattr(matrix, "tocoo"):
        entries = matrix.tocoo()
        rows, columns = entries.coords if hasattr(entries, "coords") else (entries.row, entries.col)
        return IndexSets.of_pairs(np.asarray(rows), np.asarray(columns), matrix.shape)
    dense = np.asarray(matrix)
    if dense.ndim != 2 or dense.dtype.kind not in "biufc":
        raise ArgumentError(
            f"sparsity: a pattern must be a Sparsity, a scipy.sparse matrix, or a dense matrix of numbers, got {matrix!r}"
        )
    return IndexSets.of_matrix(dense)


@dataclass(frozen=True, slots=True, eq=False)
class Colouring:
    """The colours of the columns and rows of a sparse matrix that are computed together; -1 for those not computed.

    `columns[j]` is the colour of column j, `rows[i]` that of row i; there are `n_columns` and `n_rows` of them. Entry k of
    the pattern is `places[k]` among the results of all passes, those of the columns first: each has one number per row of
    the matrix, or per column for those of rows.

    >>> import wengert as wg
    >>> pattern = wg.jacobian_sparsity(lambda x: x[1:] - x[:-1], wg.ones(6))
    >>> wg.colour(pattern).n_columns  # passes, for 6 columns
    2
    """

    sparsity: Sparsity
    kind: str
    columns: Array
    rows: Array
    places: Array = field(repr=False)

    @property
    def n_columns(self) -> int:
        """How many forward passes there are."""
        return _count(self.columns)

    @property
    def n_rows(self) -> int:
        """How many reverse passes there are."""
        return _count(self.rows)

    @property
    def n_colours(self) -> int:
        """How many passes there are."""
        return self.n_columns + self.n_rows

    @property
    def cost(self) -> float:
        """The cost of all passes, in forward passes."""
        return self.n_columns + REVERSE * self.n_rows

    def seeds(self, dtype: Any) -> tuple[Array, Array]:
        """The directions of the forward and reverse passes: rows of zeros and ones."""
        return seeds_of(self.columns, dtype), seeds_of(self.rows, dtype)

    def __repr__(self) -> str:
        return f"<Colouring of {self.sparsity!r}: {self.n_columns} colours of columns, {self.n_rows} of rows>"


def _count(colours: Array) -> int:
    return int(colours.max(initial=_NONE)) + 1


def seeds_of(colours: Array, dtype: Any) -> Array:
    """One row of zeros and ones for each colour."""
    seeds = np.zeros((_count(colours), len(colours)), dtype)
    (given,) = np.nonzero(colours >= 0)
    seeds[colours[given], given] = 1
    return seeds


def colour(sparsity: Any, kind: str = "auto") -> Colouring:
    """A colouring of a pattern with few colours.

    "columns" and "rows" colour one of them; "both" computes rows that have many entries by rows and the others by columns,
    or the other way round; "auto" is what takes the least of these. "symmetric" is a star colouring, of a symmetric matrix
    of which each entry is found in its column or in its row. Colours are given greedily, in two orders of the columns.

    Gebremedhin, Manne, Pothen: What color is your Jacobian? SIAM Review 47 (2005).

    >>> import numpy as np, wengert as wg
    >>> tridiagonal = wg.Sparsity(np.tri(6, k=1) * np.tri(6, k=1).T)
    >>> wg.colour(tridiagonal, "columns").columns.tolist()
    [0, 1, 2, 0, 1, 2]
    >>> wg.colour(tridiagonal, "symmetric").n_colours
    3
    """
    if kind not in KINDS:
        raise ArgumentError(f"colour: kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    pattern = sparsity if isinstance(sparsity, Sparsity) else Sparsity(sparsity)
    known = pattern._colourings.get(kind)
    if known is None:
        known = pattern._colourings[kind] = _MAKERS[kind](pattern)
    return known


def least_cost(sparsity: Sparsity) -> float:
    """A lower bound on the cost of a colouring of columns or rows: the most entries in one row or column."""
    longest = int(sparsity._sets.counts().max(initial=0))
    in_column = int(np.bincount(sparsity.indices, minlength=1).max())
    return min(longest, REVERSE * in_column)


def _greedy(sets: IndexSets) -> Array:
    """Colour the columns greedily, in order and, if that may be better, largest first."""
    n = sets.n_columns
    least = int(sets.counts().max(initial=0))
    if least == n:  # a full row
        return np.arange(n, dtype=np.int32)
    first: Array = _core.colours_of_columns(sets.starts, sets.columns, n, np.arange(n, dtype=np.int32))
    if _count(first) == least:
        return first
    by_size = int32(np.argsort(-np.bincount(sets.columns, minlength=n), kind="stable"))
    return min(first, _core.colours_of_columns(sets.starts, sets.columns, n, by_size), key=_count)


def colour_rows(sets: IndexSets) -> Array:
    """Colours of the rows, -1 for empty ones. No column has entries in two rows of the same colour."""
    return np.where(sets.counts() > 0, _greedy(sets.transposed()), _NONE)


def _none(n: int) -> Array:
    return np.full(n, _NONE, np.int32)


def _with_places(sparsity: Sparsity, kind: str, columns: Array, rows: Array, by_row: Any = False) -> Colouring:
    """Add where to find each entry. `by_row` says whether by the colour of its row, for all entries or each."""
    sets, (m, n) = sparsity._sets, sparsity.shape
    i, j = sets.rows().astype(np.int64), sets.columns.astype(np.int64)
    places = np.where(by_row, _count(columns) * m + rows[i] * n + j, columns[j] * np.int64(m) + i)
    return Colouring(sparsity, kind, columns, rows, places)


def _by_columns(sparsity: Sparsity) -> Colouring:
    m, _ = sparsity.shape
    return _with_places(sparsity, "columns", _greedy(sparsity._sets), _none(m))


def _by_rows(sparsity: Sparsity) -> Colouring:
    _, n = sparsity.shape
    return _with_places(sparsity, "rows", _none(n), _greedy(sparsity._sets.transposed()), True)


def _by_both(sparsity: Sparsity) -> Colouring:
    """Colour long rows by row and the rest by column, or long columns by column and the rest by row: whichever is
    cheaper."""
    sets = sparsity._sets
    rows, columns = _split(sets)
    other_columns, other_rows = _split(sets.transposed())
    if _count(rows) + _count(columns) > _count(other_rows) + _count(other_columns):
        return _with_places(sparsity, "both", other_columns, other_rows, other_columns[sets.columns] == _NONE)
    return _with_places(sparsity, "both", columns, rows, rows[sets.rows()] != _NONE)


def _split(sets: IndexSets) -> tuple[Array, Array]:
    """Colours of the long rows, and of the columns without those rows.

    Rows longer than v take as many colours as there are of them, at most; then the columns take v, at least.
    """
    counts = sets.counts()
    of_length = np.bincount(counts) if len(counts) else np.ones(1, np.int64)
    longer = len(counts) - np.cumsum(of_length)
    limit = np.argmin(longer + np.arange(len(of_length)))
    long = counts > limit
    rows = _none(sets.n_rows)
    if long.any():
        some = sets.taken(np.flatnonzero(long))
        rows[long] = _greedy(some.transposed())
    columns = _greedy(sets.restricted(~long[sets.rows()]))
    if _count(columns) and not (~long).any():
        columns = _none(sets.n_columns)
    return rows, columns


def _symmetric(sparsity: Sparsity) -> Colouring:
    sets, n = sparsity._sets, sparsity.shape[1]
    if symmetric(sets) is not sets:
        raise ArgumentError("colour: the pattern is not symmetric; a Hessian's is")
    if sets.nnz == n * n:
        colours: Array = np.arange(n, dtype=np.int32)
    else:
        orders = (np.arange(n, dtype=np.int32), int32(np.argsort(-sets.counts(), kind="stable")))
        colours = min((_core.star_colours(sets.starts, sets.columns, order) for order in orders), key=_count)
    # B[c, i] = Σ Hᵢₖ over the k of colour c: entry (i, j) is there if j is the only one, else (j, i) is.
    i, j, count = sets.rows().astype(np.int64), sets.columns.astype(np.int64), _count(colours)
    here = i * count + colours[j]
    alone = np.bincount(here, minlength=n * count)[here] == 1
    places = np.where(alone, colours[j] * np.int64(n) + i, colours[i] * np.int64(n) + j)
    return Colouring(sparsity, "symmetric", _none(n), colours, places)


def _auto(sparsity: Sparsity) -> Colouring:
    candidates = [_by_columns(sparsity), _by_rows(sparsity)]
    if min(c.n_colours for c in candidates) > 2:
        candidates.append(_by_both(sparsity))
    return min(candidates, key=lambda c: c.cost)


_MAKERS = {"auto": _auto, "columns": _by_columns, "rows": _by_rows, "both": _by_both, "symmetric": _symmetric}


__all__ = ["Colouring", "Sparsity", "colour"]
