"""Jacobians and Hessians, exact: all columns or rows in one pass.

Arguments and results may be nested containers: the Jacobian then has the structure of the result, and in each place of it
the structure of the argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from wengert import _core, tree
from wengert._core import Tensor
from wengert.compiling.compile import _wrap
from wengert.errors import ArgumentError, DTypeError
from wengert.modes import no_grad
from wengert.ops.tangents import conj, make_complex
from wengert.program.trace import create, tracing
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import zeros_like
from wengert.tensors.random import draws_logged, draws_repeated
from wengert.transforms.compressed import LEAST, few_colours, total_size
from wengert.transforms.functional import (
    argument_numbers,
    by_arguments,
    differentiate_backwards,
    grad,
    jvp,
    result_leaves,
)
from wengert.transforms.hybrid import Differentiate, TracedFunction, run_plan
from wengert.transforms.naming import transformed
from wengert.transforms.passes import drawing_the_same
from wengert.transforms.replay import replayed
from wengert.transforms.schedule import STRATEGIES, Plan, SchedulerConfig, count, plan_program
from wengert.transforms.vmap import run_on_units


def _reject_complex(x: Any, what: str) -> None:
    if x.dtype.kind == "c":
        raise DTypeError(
            f"{what}: the argument is {x.dtype.name}{_shape(x)}; a second derivative in a complex variable has four parts. "
            "Write the function of real and imaginary parts, or use hvp"
        )


def _over_basis(f: Callable[[Tensor], list[Any]], x: Any, chunk: int | None, once: list[Any]) -> list[Any]:
    """f of every unit vector of x's space; results have leading axes of x's shape.

    While a function is traced that is one pass over what f does with the vectors, or one per `chunk` of them; otherwise f
    runs for one after the other. `once`: what f has drawn at random when it was traced before.
    """
    if tracing() is None:
        passes = [f(e) for e in _basis(x)]
        stacked = [_stacked(list(parts)) for parts in zip(*passes)]
    else:
        stacked = run_on_units(f, functools.partial(_unit_vectors, x), x.size, chunk, once)
    return [OPS["reshape"](s, (*x.shape, *s.shape[1:])) for s in stacked]


def _basis(x: Any) -> list[Tensor]:
    """The unit vectors of x's space."""
    n = int(x.size)
    units = []
    for k in range(n):
        e = np.zeros(n, x.dtype.to_numpy())
        e[k] = 1
        units.append(asarray(e.reshape(_shape(x))))
    return units


def _unit_vectors(x: Any, first: int, count: Any) -> Any:
    """`count` unit vectors of x's space, starting with the one of element `first`, along a new first axis."""
    ones = create(OPS["full"], ((count,), x.dtype.code, 1.0))
    units = OPS["as_strided_add"](ones, (count, x.size), (x.size + 1,), (first,))  # on a diagonal
    return OPS["reshape"](units, (count, *x.shape))


def _stacked(parts: list[Any]) -> Any:
    return OPS["concat"]([OPS["reshape"](p, (1, *p.shape)) for p in parts], 0)


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(int(s) for s in x.shape)


def _zero_block(y: Any, x: Any) -> Any:
    return create(OPS["full"], ((*_shape(y), *_shape(x)), _core.promote(y.dtype.code, x.dtype.code), 0.0))


def _tensor_leaves(x: Any) -> tuple[list[Any], Any]:
    leaves, structure = tree.flatten(x)
    return [v if isinstance(v, Tensor) else asarray(v) for v in leaves], structure


def _nest(blocks: list[list[Any]], y_structure: Any, x_structure: Any) -> Any:
    """Blocks [output][input] as a tree of results that holds trees of arguments."""
    return tree.unflatten(y_structure, [tree.unflatten(x_structure, row) for row in blocks])


def _of_one(f: Callable[..., Any], argnums: int | Sequence[int], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """f as a function of the differentiated argument (or of a tuple of several), and its value."""
    restricted, chosen = by_arguments(f, argnums, args, kwargs, "jacobian")
    return (restricted, chosen[0]) if isinstance(argnums, int) else (lambda xs: restricted(*xs), chosen)


def _columns(g: Callable[[Any], Any], x: Any, e: Tensor, once: list[Any]) -> list[Any]:
    """The derivative of each output along one element; for a real output and a complex element d/dRe + i d/dIm, as in
    `grad`."""

    def push(v: Tensor) -> list[Any]:
        call: Callable[[], list[Any]] = lambda: tree.flatten(jvp(g, (x,), (v,))[1])[0]
        return call() if tracing() is not None else drawing_the_same(once, call)

    columns = push(e)
    if x.dtype.kind != "c" or all(c.dtype.kind == "c" for c in columns):
        return columns
    return [c if c.dtype.kind == "c" else make_complex(c, i) for c, i in zip(columns, push(e * 1j))]


def _column_blocks(g: Callable[[Any], Any], x: Any, chunk: int | None, once: list[Any]) -> list[Any]:
    """The derivative of every output with respect to one tensor."""
    if not x.size:
        return [_zero_block(y, x) for y in _tensor_leaves(g(x))[0]]
    blocks = []
    for columns in _over_basis(lambda e: _columns(g, x, e, once), x, chunk, once):
        n, m = x.ndim, columns.ndim
        blocks.append(OPS["permute"](columns, (*range(n, m), *range(n))))
    return blocks


def jacfwd(f: Callable[..., Any], argnums: int | Sequence[int] = 0, *, chunk: int | None = None) -> Callable[..., Any]:
    """Return a function that computes the Jacobian ∂yᵢ/∂xⱼ in forward mode: shape y.shape + x.shape.

    Costs one pass per element of the input, all in one batch, so it suits functions of few inputs. f itself runs
    once.

    - `argnums`: the argument, or a sequence of arguments, to differentiate with respect to.
    - `chunk`: how many columns to compute at a time; fewer need less memory.

    >>> import wengert as wg
    >>> jacfwd(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    argnums = argument_numbers(argnums, "jacfwd")
    _require_chunk(chunk, "jacfwd")
    made = replayed(_forward(f, argnums, chunk), f, ("jacfwd", argnums, chunk))
    return transformed(made, "The Jacobian of {f}.", jacfwd, f, argnums=argnums, chunk=chunk)


def _forward(f: Callable[..., Any], argnums: int | Sequence[int], chunk: int | None) -> Callable[..., Any]:
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        g, point = _of_one(f, argnums, args, kwargs)
        xs, x_structure = _tensor_leaves(point)
        y_structure: Any = None

        def at(k: int) -> Callable[[Any], Any]:
            def of_leaf(leaf: Any) -> Any:
                nonlocal y_structure
                y = g(tree.unflatten(x_structure, [*xs[:k], leaf, *xs[k + 1 :]]))
                _, y_structure = tree.flatten(y)
                return y

            return of_leaf

        once: list[Any] = []
        by_input = [_column_blocks(at(k), x, chunk, once) for k, x in enumerate(xs)]
        return _nest([list(row) for row in zip(*by_input)], y_structure, x_structure)

    return jacobian_of


def _require_chunk(chunk: Any, what: str) -> None:
    if chunk is not None and not (isinstance(chunk, int) and not isinstance(chunk, bool) and chunk > 0):
        raise ArgumentError(
            f"{what}: chunk, the number of derivatives computed at a time, must be at least 1, got {chunk!r}"
        )


def _row(pull_back: Callable[[Any], list[Any]], y: Any, e: Tensor) -> list[Any]:
    """The row of one element, by input. Pulling back conjugates: ȳ ↦ conj(f') ȳ."""
    rows = pull_back(e)
    if y.dtype.kind != "c":
        return rows
    if all(r.dtype.kind == "c" for r in rows):
        return [conj(r) for r in rows]
    return [conj(r) if r.dtype.kind == "c" else make_complex(r, i) for r, i in zip(rows, pull_back(e * 1j))]


def _row_blocks(pull_back: Callable[[Any], list[Any]], y: Any, xs: list[Any], chunk: int | None) -> list[Any]:
    """The derivative of one output with respect to every tensor."""
    if not y.size:
        return [_zero_block(y, x) for x in xs]
    return _over_basis(lambda e: _row(pull_back, y, e), y, chunk, [])


def jacrev(f: Callable[..., Any], argnums: int | Sequence[int] = 0, *, chunk: int | None = None) -> Callable[..., Any]:
    """Return a function that computes the Jacobian ∂yᵢ/∂xⱼ in reverse mode: shape y.shape + x.shape.

    Costs one pass per element of the output, all in one batch, so it suits functions of few outputs. f itself runs
    once.

    - `argnums`: the argument, or a sequence of arguments, to differentiate with respect to.
    - `chunk`: how many rows to compute at a time; fewer need less memory.

    >>> import wengert as wg
    >>> jacrev(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    argnums = argument_numbers(argnums, "jacrev")
    _require_chunk(chunk, "jacrev")
    made = replayed(_reverse(f, argnums, chunk), f, ("jacrev", argnums, chunk))
    return transformed(made, "The Jacobian of {f}.", jacrev, f, argnums=argnums, chunk=chunk)


def _reverse(f: Callable[..., Any], argnums: int | Sequence[int], chunk: int | None) -> Callable[..., Any]:
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        g, point = _of_one(f, argnums, args, kwargs)
        xs, x_structure = _tensor_leaves(point)
        y, pull_back = differentiate_backwards(g, (tree.unflatten(x_structure, xs),))
        ys, y_structure = tree.flatten(y)

        def from_output(k: int) -> Callable[[Any], list[Any]]:
            def pull(e: Any) -> list[Any]:
                bars = [e if j == k else zeros_like(other) for j, other in enumerate(ys)]
                return tree.flatten(pull_back(tree.unflatten(y_structure, bars))[0])[0]

            return pull

        return _nest([_row_blocks(from_output(k), v, xs, chunk) for k, v in enumerate(ys)], y_structure, x_structure)

    return jacobian_of


def jacobian(
    f: Callable[..., Any],
    mode: str | SchedulerConfig = "auto",
    *,
    argnums: int | Sequence[int] = 0,
    chunk: int | None = None,
    sparse: bool | str = False,
    sparsity: Any = None,
    check: bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian ∂yᵢ/∂xⱼ of f: shape y.shape + x.shape.

    - `mode`: "forward" (one pass per input element), "reverse" (one per output element), "mixed" (cuts f where few
      numbers pass through, and multiplies the Jacobians of both parts), or "auto", which predicts the cost of each
      and takes the cheapest. A `SchedulerConfig` sets its thresholds; `HybridScheduler.plan` says what it chooses.
    - `argnums`: the argument, or a sequence of arguments, to differentiate with respect to.
    - `chunk`: how many passes to run in one batch; fewer need less memory. By default all of them.
    - `sparse`: True computes only the entries that can differ from zero, and returns one `scipy.sparse.csr_array` of
      all results by all arguments, flattened. "auto" does so only if it is less work than a dense Jacobian.
    - `sparsity`: a pattern or a colouring that is known already, instead of the one found in the program of f.
    - `check`: compare the sparse result with the derivative along a random direction. `docs/sparsity.md` has the
      details.

    Arguments and results may be containers: the Jacobian then has the structure of the result, with the structure of
    the argument in each place. A complex function of complex numbers must be holomorphic; a real one gives ∂y/∂Re x +
    i ∂y/∂Im x, as in `grad`.

    >>> import wengert as wg
    >>> jacobian(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    >>> jacobian(lambda p: p["a"] * p["b"])({"a": wg.tensor(2.0), "b": wg.tensor(3.0)})
    {'a': tensor(3.), 'b': tensor(2.)}
    >>> jacobian(lambda x: x[1:] * x[:-1], sparse=True)(wg.tensor([1.0, 2.0, 3.0])).toarray().tolist()
    [[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]]
    """
    argnums = argument_numbers(argnums, "jacobian")
    _require_chunk(chunk, "jacobian")
    if sparse or sparsity is not None:
        from wengert.transforms.sparse import sparse_jacobian

        dense = jacobian(f, mode, argnums=argnums, chunk=chunk)
        entries = sparse_jacobian(f, mode, argnums, chunk, sparse, sparsity, check, dense)
        options: dict[str, Any] = {"sparse": sparse, "sparsity": sparsity, "check": check}
        options |= {"mode": mode, "argnums": argnums, "chunk": chunk}
        return transformed(entries, "The Jacobian of {f}.", jacobian, f, **options)
    if not isinstance(mode, SchedulerConfig) and mode not in STRATEGIES:
        raise ArgumentError(
            f"jacobian: mode must be 'auto', 'forward', 'reverse', 'mixed' or a SchedulerConfig, got {mode!r}"
        )
    config = mode if isinstance(mode, SchedulerConfig) else SchedulerConfig(strategy=mode)

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        if config.strategy == "forward":
            return _forward(f, argnums, chunk)(*args, **kwargs)
        if config.strategy == "reverse":
            return _reverse(f, argnums, chunk)(*args, **kwargs)
        if tracing() is None:
            if config.strategy == "mixed":  # a cut needs the program
                return _wrap(jacobian_of, "jacobian")(*args, **kwargs)
            return _of_fewer(f, argnums, chunk, args, kwargs)
        g, point = _of_one(f, argnums, args, kwargs)
        return _scheduled(g, point, config, chunk)

    made = replayed(jacobian_of, f, ("jacobian", mode, argnums, chunk))
    return transformed(made, "The Jacobian of {f}.", jacobian, f, mode=mode, argnums=argnums, chunk=chunk)


def _of_fewer(
    f: Callable[..., Any], argnums: int | Sequence[int], chunk: int | None, args: Any, kwargs: dict[str, Any]
) -> Any:
    """Row by row, or column by column if there are at least as many outputs as inputs."""
    g, point = _of_one(f, argnums, args, kwargs)
    xs, structure = _tensor_leaves(point)
    with no_grad(), draws_logged() as drawn:
        y = g(tree.unflatten(structure, [OPS["copy"](x) for x in xs]))  # copies, because g may change its arguments
    forward = _count(result_leaves(y, "jacobian")[0]) >= _count(point)
    with draws_repeated(drawn) if drawn else nullcontext():
        return (_forward if forward else _reverse)(f, argnums, chunk)(*args, **kwargs)


def _scheduled(g: Callable[[Any], Any], point: Any, config: SchedulerConfig, chunk: int | None) -> Any:
    """The Jacobian of a function being traced, as planned by the scheduler."""
    xs, x_structure = _tensor_leaves(point)
    traced = TracedFunction(lambda *leaves: g(tree.unflatten(x_structure, leaves)), xs, "jacobian")
    plan = plan_program(traced.program, traced.sources, config, may_colour=True)
    return _nest(_planned(traced, plan, xs, chunk), traced.structure, x_structure)


def _planned(traced: TracedFunction, plan: Plan, xs: list[Any], chunk: int | None) -> Any:
    """The blocks of the Jacobian of a traced function."""
    values = dict(zip(traced.program.inputs, [*xs, *traced.captured]))
    return run_plan(traced.program, plan, traced.sources, values, in_mode(chunk), chunk)


def _hessian_by_colours(g: Callable[[Any], Any], point: Any, chunk: int | None) -> Any:
    """The Hessian of a function being traced, in as many passes as colours if these are few."""
    xs, structure = _tensor_leaves(point)
    gradient = grad(g)
    traced = TracedFunction(lambda *leaves: gradient(tree.unflatten(structure, leaves)), xs, "hessian")
    n = count(traced.sources)
    plan = Plan("reverse", n, n, colouring=few_colours(traced.program, traced.sources, is_hessian=True))
    return _nest(_planned(traced, plan, xs, chunk), structure, structure)


def in_mode(chunk: int | None) -> Differentiate:
    """The Jacobian of a function of one argument in forward or reverse mode, in chunks."""

    def differentiate(mode: str, f: Callable[[Any], Any], x: Any) -> Any:
        return (_forward if mode == "forward" else _reverse)(f, 0, chunk)(x)

    return differentiate


def _count(x: Any) -> int:
    return sum(int(v.size) for v in _tensor_leaves(x)[0])


def hessian(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    chunk: int | None = None,
    sparse: bool | str = False,
    sparsity: Any = None,
    check: bool = False,
) -> Callable[..., Any]:
    """Return a function that computes the matrix of second derivatives of f: shape x.shape + x.shape.

    - `f`: returns a single number. With containers as arguments, the Hessian is a container of containers.
    - `argnums`: the argument, or a sequence of arguments, to differentiate with respect to.
    - `chunk`: how many rows to compute at a time; fewer need less memory. The gradient itself is computed once.
    - `sparse`, `sparsity`, `check`: as in `jacobian`.

    If only products with the Hessian are needed, `hvp` is much cheaper.

    >>> import wengert as wg
    >>> hessian(lambda x: (x * x * x).sum())(wg.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    >>> hessian(lambda x: (x * x * x).sum(), sparse=True)(wg.tensor([1.0, 2.0])).nnz
    2
    """
    argnums = argument_numbers(argnums, "hessian")
    _require_chunk(chunk, "hessian")
    if sparse or sparsity is not None:
        from wengert.transforms.sparse import sparse_hessian

        entries = sparse_hessian(f, argnums, chunk, sparse, sparsity, check, hessian(f, argnums, chunk=chunk))
        options: dict[str, Any] = {"argnums": argnums, "chunk": chunk}
        options |= {"sparse": sparse, "sparsity": sparsity, "check": check}
        return transformed(entries, "The Hessian of {f}.", hessian, f, **options)

    def hessian_of(*args: Any, **kwargs: Any) -> Any:
        g, point = _of_one(f, argnums, args, kwargs)
        for x in _tensor_leaves(point)[0]:
            _reject_complex(x, "hessian")
        if tracing() is not None and total_size(x.shape for x in _tensor_leaves(point)[0]) >= LEAST:
            return _hessian_by_colours(g, point, chunk)
        return _reverse(grad(g), 0, chunk)(point)

    made = replayed(hessian_of, f, ("hessian", argnums, chunk))
    return transformed(made, "The Hessian of {f}.", hessian, f, argnums=argnums, chunk=chunk)
