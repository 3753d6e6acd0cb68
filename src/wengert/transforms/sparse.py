"""Sparse Jacobians and Hessians: as many passes as colours, in one batch, and the entries gathered from their results.

What is found out once is a plan: the pattern, its colouring, and the compiled function from the arguments to the entries.
Plans are kept with the code of the function, and hold for arguments of the same shapes. A plan is made anew where
something has changed that it depends on: a constant that the function closes over, or integers that its pattern was read
from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import _core, tree
from wengert._core import Tensor
from wengert.dtypes import finfo, float32, result_type
from wengert.errors import ArgumentError, DTypeError, GradientError, ShapeError, SparsityError
from wengert.modes import no_grad
from wengert.ops.index_sets import TooDense
from wengert.program.trace import create
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.tensors.numpy import data
from wengert.transforms.colouring import Colouring, Sparsity, colour, least_cost, scipy_sparse
from wengert.transforms.copies import CopiedPasses, passes_by_copies
from wengert.transforms.functional import by_arguments, differentiate_backwards, grad, jvp, result_leaves
from wengert.transforms.passes import concatenated, over, split
from wengert.transforms.replay import Dependence, Effect, compiled_purely, dependence
from wengert.transforms.sparsity import Read, detect, detect_hessian, require_numbers

_MOST = 64  # plans that are remembered for functions that close over no tensors
_plans: OrderedDict[Any, _Plan] = OrderedDict()


def jacobian_sparsity(f: Callable[..., Any], *args: Any, argnums: int | Sequence[int] = 0, **kwargs: Any) -> Sparsity:
    """Which entries of the Jacobian of f may differ from zero, for arguments like these: found from the program of f.

    Rows are the results of f, columns the arguments `argnums`, both flattened and one after the other. f is traced, as by
    `compile`. The pattern covers all values of the arguments; only integers beside them, such as indices, are read.

    >>> import wengert as wg
    >>> jacobian_sparsity(lambda x: wg.cumsum(x), wg.ones((3,))).matrix().toarray().astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return Sparsity(detect(f, _with_tensors(args), kwargs, argnums, "jacobian_sparsity").sets)


def hessian_sparsity(f: Callable[..., Any], *args: Any, argnums: int | Sequence[int] = 0, **kwargs: Any) -> Sparsity:
    """Which entries of the Hessian of a scalar function may differ from zero: as `jacobian_sparsity`, of its gradient.

    >>> import wengert as wg
    >>> hessian_sparsity(lambda x: (x[1:] * x[:-1]).sum(), wg.ones((3,))).matrix().toarray().astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    return Sparsity(detect_hessian(f, _with_tensors(args), kwargs, argnums, "hessian_sparsity").sets)


def _with_tensors(args: tuple[Any, ...]) -> tuple[Any, ...]:
    leaves, structure = tree.flatten(args)
    made = tree.unflatten(structure, [asarray(x) if isinstance(x, np.ndarray) else x for x in leaves])
    return made  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------------------- plans


class _Passes:
    """The function from arguments to all entries of a matrix, in the order of its pattern."""

    def __init__(self, f: Any, argnums: Any, is_hessian: bool, chunk: int | None, colouring: Colouring) -> None:
        self.f, self.argnums, self.is_hessian, self.chunk, self.colouring = f, argnums, is_hessian, chunk, colouring
        self.places = asarray(colouring.places)
        self._seeds: dict[int, tuple[Any, Any]] = {}

    @property
    def sparsity(self) -> Sparsity:
        """The pattern."""
        return self.colouring.sparsity

    @property
    def n_colours(self) -> int:
        """How many passes there are."""
        return self.colouring.n_colours

    def seeds(self, dtype: Any) -> tuple[Any, Any]:
        """The directions of all forward and reverse passes, as tensors."""
        known = self._seeds.get(dtype.code)
        if known is None:
            forward, reverse = (asarray(s) for s in self.colouring.seeds(dtype.to_numpy()))
            known = self._seeds[dtype.code] = (forward, reverse)
        return known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results of all passes, flattened, of which each entry is one element."""
        g, xs = _flat(self.f, self.argnums, self.is_hessian, args, kwargs)
        dtype = result_type(*xs)
        forward, reverse = self.seeds(dtype)
        parts = []
        self._require_size(1, "elements of the arguments", xs)
        if self.colouring.n_columns:
            parts += over(lambda v: self._push(g, xs, v), forward, self.chunk)
        if self.colouring.n_rows:
            y, pull_back = differentiate_backwards(g, tuple(xs))
            ys, structure = result_leaves(y, "jacobian")
            self._require_size(0, "results", ys)
            _require_real(ys)
            parts += over(lambda v: [_pulled(pull_back, v, ys, structure)], reverse, self.chunk)
        if not parts:
            return create(OPS["full"], ((0,), dtype.code, 0.0))
        entries = OPS["take"](concatenated(parts), self.places, 0)
        return entries if entries.dtype.is_inexact else OPS["cast"](entries, dtype.code)

    def _push(self, g: Any, xs: list[Any], v: Any) -> list[Any]:
        y_dots = tree.leaves(jvp(g, tuple(xs), tuple(split(v, xs)))[1])
        self._require_size(0, "results", y_dots)
        return [concatenated(y_dots)]

    def _require_size(self, axis: int, what: str, tensors: Sequence[Any]) -> None:
        """Raise where a pattern that was handed in does not fit."""
        shape, n = self.colouring.sparsity.shape, sum(int(x.size) for x in tensors)
        if shape[axis] != n:
            raise ShapeError(f"sparsity: the pattern is {shape[0]} × {shape[1]}, but there are {n} {what}")


class _Plan:
    """How the entries are computed for arguments of one signature."""

    def __init__(self, passes: _Passes | CopiedPasses, reads: list[Read], depends: Dependence | None) -> None:
        self.passes, self.reads, self.depends = passes, reads, depends
        self.compiled = None if depends is None else compiled_purely(passes, passes.f)

    def holds(self, depends: Dependence | None, tensors: Sequence[Any], given: bool) -> bool:
        """Whether nothing has changed that it depends on. A pattern that was `given` holds for whatever the function is."""
        if self.depends is None or depends is None:
            return given and self.depends is depends
        return self.depends.is_same(depends) and all(r.is_same(tensors) for r in self.reads)

    def entries(self, args: Any, kwargs: Any) -> Any:
        """A tensor of all entries, in the order of the pattern."""
        if self.compiled is not None:
            try:
                return self.compiled(*args, **kwargs)
            except (Effect, Exception):
                self.compiled = None  # written as it is, it says what is wrong; or there is nothing wrong with it
        return self.passes(*args, **kwargs)

    @property
    def is_sparse(self) -> bool:
        """Whether it takes few passes for few entries; else a dense matrix is less work and not larger."""
        (m, n), nnz = self.passes.sparsity.shape, self.passes.sparsity.nnz
        return 4 * self.passes.n_colours <= min(m, n) and 2 * nnz <= m * n


class SparseDerivative:
    """The function that `jacobian` and `hessian` return for `sparse=True`."""

    def __init__(
        self,
        f: Any,
        argnums: Any = 0,
        *,
        what: str,
        kind: str,
        given: Any = None,
        check: bool = False,
        chunk: int | None = None,
        dense: Any = None,
        source: Any = None,
    ) -> None:
        self.f, self.argnums, self.kind, self.check, self.chunk, self.what = f, argnums, kind, check, chunk, what
        self.dense = dense  # for sparse="auto"
        self.source = f if source is None else source  # what f only adapts: it depends on nothing else
        self.given = given if given is None or isinstance(given, (Sparsity, Colouring)) else Sparsity(given)
        self._own: dict[Any, _Plan] = {}
        scipy_sparse()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The matrix at these arguments."""
        args = _with_tensors(args)
        self._require_outside(args, kwargs)
        try:
            plan = self._plan(args, kwargs)
        except TooDense:
            if self.dense is None:
                raise
            return self.dense(*args, **kwargs)
        if self.dense is not None and not plan.is_sparse:
            return self.dense(*args, **kwargs)
        with no_grad():
            entries = plan.entries(args, kwargs)
        matrix = plan.passes.sparsity.matrix(data(_at_least_single(entries)))
        if self.check:
            self._probe(matrix, plan.passes.sparsity, args, kwargs)
        return matrix

    def _require_outside(self, args: Any, kwargs: Any) -> None:
        """Raise where the matrix would be part of what is traced or differentiated."""
        for x in tree.leaves((args, kwargs)):
            if isinstance(x, Tensor):
                require_numbers(x, self.what)
                if _core.inside_transformation(x):
                    raise GradientError(
                        f"{self.what}: with sparse=True the result is a matrix of scipy.sparse, through which there are no "
                        "derivatives; use sparse=False, or x.detach() first where none is wanted"
                    )

    def _plan(self, args: Any, kwargs: Any) -> _Plan:
        leaves, structure = tree.flatten((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        signature = (structure, *(_kind_of(x) for x in leaves))
        depends = dependence(self.source)
        plans, key = self._place(depends, signature)
        plan = plans.get(key)
        if plan is None or not plan.holds(depends, tensors, self.given is not None):
            plan = plans[key] = self._made(args, kwargs, depends)
            if len(plans) > _MOST:
                plans.pop(next(iter(plans)))
        return plan

    def _place(self, depends: Dependence | None, signature: Any) -> tuple[dict[Any, _Plan], Any]:
        """Plans of functions that close over tensors are kept with them; so are those of patterns that were given."""
        if depends is None or depends.on_tensors or self.given is not None or self.source is not self.f:
            return self._own, signature
        return _plans, (self.what, self.argnums, self.kind, self.chunk, depends.key, signature)

    def _made(self, args: Any, kwargs: Any, depends: Dependence | None) -> _Plan:
        if self.given is not None:
            return _Plan(self._passes(self.given), [], depends)
        _flat(self.f, self.argnums, self.what == "hessian", args, kwargs)  # raises where the arguments are not real
        found = (detect_hessian if self.what == "hessian" else detect)(self.f, args, kwargs, self.argnums, self.what)
        pattern = Sparsity(found.sets)
        if self.kind == "auto" and not found.traced.is_real:
            return _Plan(self._passes(colour(pattern, "columns")), found.reads, depends)
        by_copies = None
        if self.kind == "auto" and depends is not None and least_cost(pattern) > 1:
            by_copies = passes_by_copies(self.f, found, self.chunk)
            if by_copies is not None and by_copies.cost <= least_cost(pattern):
                return _Plan(by_copies, found.reads, depends)
        passes = self._passes(pattern)
        if by_copies is not None and by_copies.cost < passes.colouring.cost:
            return _Plan(by_copies, found.reads, depends)
        return _Plan(passes, found.reads, depends)

    def _passes(self, pattern: Sparsity | Colouring) -> _Passes:
        colouring = pattern if isinstance(pattern, Colouring) else colour(pattern, self.kind)
        return _Passes(self.f, self.argnums, self.what == "hessian", self.chunk, colouring)

    # ------------------------------------------------------------------------------------------------------ checking

    def _probe(self, matrix: Any, sparsity: Sparsity, args: Any, kwargs: Any) -> None:
        """Compare the matrix with the derivative along a random direction; where they differ, look for the entry."""
        g, xs = _flat(self.f, self.argnums, self.what == "hessian", args, kwargs)
        n = sparsity.shape[1]
        along = asarray(np.random.default_rng(0).uniform(0.5, 1.5, n)).astype(xs[0].dtype)
        pushed = concatenated(tree.leaves(jvp(g, tuple(xs), tuple(split(along, xs)))[1]))
        if not pushed.dtype.is_inexact:
            return  # results without derivatives
        direction, y_dot = data(_at_least_single(along)), data(_at_least_single(pushed))
        off = np.abs(y_dot - matrix @ direction)
        scale = np.abs(matrix) @ direction + np.abs(y_dot)
        wrong = np.flatnonzero(off > min(1e4 * finfo(pushed).eps, 0.05) * scale)
        if len(wrong):
            self._look_into(wrong, off, y_dot, direction, sparsity, (g, xs))

    def _look_into(
        self, rows: Any, off: Any, y_dot: Any, direction: Any, sparsity: Sparsity, function: tuple[Any, list[Any]]
    ) -> None:
        """Raise if one of these rows lacks an entry, or is another one than the derivative says.

        Where terms cancel, as in the sum of a softmax, nothing but rounding errors is left. They differ between the modes by
        as much as the matrix differs from them, so such rows prove nothing.
        """
        g, xs = function
        _, pull_back = differentiate_backwards(lambda *xs: concatenated(result_leaves(g(*xs), self.what)[0]), tuple(xs))
        pulled: Callable[[Any], Any] = lambda y_bar: data(_at_least_single(concatenated(pull_back(asarray(y_bar)))))
        different = None
        for i in rows:
            unit = np.zeros(sparsity.shape[0], y_dot.dtype)
            unit[i] = 1
            row = pulled(unit) if unit.dtype.kind != "c" else pulled(unit) + 1j * pulled(1j * unit)
            if off[i] <= 10.0 * abs(row @ direction - y_dot[i]):
                continue
            known = sparsity.indices[sparsity.indptr[i] : sparsity.indptr[i + 1]]
            missed = np.setdiff1d(np.flatnonzero(row), known)
            if len(missed):
                j = int(missed[0])
                raise SparsityError(
                    f"{self.what}: the pattern lacks the entry ({i}, {j}), which is {row[j]:.6g} at these arguments; leave "
                    "`sparsity` out to have the pattern found from the function, or add the entry"
                )
            different = i if different is None else different
        if different is not None:
            raise SparsityError(
                f"{self.what}: the matrix does not agree with the derivative in row {different}; the function may not be "
                "the same in every call"
            )


def _kind_of(x: Any) -> Any:
    return (x.dtype.code, *x.shape) if isinstance(x, Tensor) else (type(x), x)


# ------------------------------------------------------------------------------------------------------------- entries


def _pulled(pull_back: Any, v: Any, ys: Sequence[Any], structure: Any) -> Any:
    return concatenated(tree.leaves(pull_back(tree.unflatten(structure, split(v, ys)))))


def _at_least_single(x: Any) -> Any:
    """SciPy has no matrices of half precision."""
    return x.astype(float32) if x.dtype.itemsize < float32.itemsize else x


def _require_real(ys: Sequence[Any]) -> None:
    """Raise where reverse passes would give the derivatives of real parts alone."""
    for y in ys:
        if y.dtype.kind == "c":
            raise DTypeError(
                f"jacobian: a result is {y.dtype.name}{tuple(y.shape)}, and the reverse passes of sparse derivatives take "
                'real ones; use mode="forward"'
            )


def _flat(f: Any, argnums: Any, is_hessian: bool, args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
    """The function to differentiate, of the tensors among the chosen arguments, and these."""
    what = "hessian" if is_hessian else "jacobian"
    restricted, chosen = by_arguments(f, argnums, args, kwargs, what)
    leaves, structure = tree.flatten(chosen)
    xs = [x if isinstance(x, Tensor) else asarray(x) for x in leaves]
    if not xs:
        raise ArgumentError(f"{what}: there is no tensor among the arguments to differentiate with respect to")
    for x in xs:
        if not x.dtype.is_floating:
            raise DTypeError(
                f"{what}: the arguments of sparse derivatives must be real floating tensors, got "
                f"{x.dtype.name}{tuple(x.shape)}; use "
                "sparse=False"
            )

    def g(*given: Any) -> Any:
        return restricted(*tree.unflatten(structure, list(given)))

    return (grad(g, tuple(range(len(xs)))) if is_hessian else g), xs


# ------------------------------------------------------------------------------------------------------------ functions


_KINDS = {"auto": "auto", "forward": "columns", "reverse": "rows"}


def sparse_jacobian(
    f: Any, mode: Any, argnums: Any, chunk: int | None, sparse: Any, sparsity: Any, check: bool, dense: Any
) -> SparseDerivative:
    """What `jacobian` makes for `sparse=True` and "auto"."""
    if mode not in _KINDS:
        raise ArgumentError(
            f"jacobian: the mode of a sparse Jacobian must be 'auto', 'forward' or 'reverse', got {mode!r}"
        )
    return SparseDerivative(
        f,
        argnums,
        kind=_KINDS[mode],
        given=sparsity,
        check=check,
        chunk=chunk,
        what="jacobian",
        dense=dense if require_choice(sparse, "jacobian") == "auto" else None,
    )


def sparse_hessian(
    f: Any, argnums: Any, chunk: int | None, sparse: Any, sparsity: Any, check: bool, dense: Any
) -> SparseDerivative:
    """What `hessian` makes for `sparse=True` and "auto"."""
    return SparseDerivative(
        f,
        argnums,
        kind="symmetric",
        given=sparsity,
        check=check,
        chunk=chunk,
        what="hessian",
        dense=dense if require_choice(sparse, "hessian") == "auto" else None,
    )


def require_choice(sparse: Any, what: str) -> Any:
    """`sparse`, if it is one of its values."""
    if not (isinstance(sparse, bool) or sparse == "auto"):
        raise ArgumentError(f"{what}: sparse must be True, False or 'auto', got {sparse!r}")
    return sparse


__all__ = ["hessian_sparsity", "jacobian_sparsity", "sparse_hessian", "sparse_jacobian"]
