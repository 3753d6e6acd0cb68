"""Second derivatives in parts and as products: Gauss–Newton and Fisher matrices, blocks, diagonals and traces of Hessians.

No matrix is formed that is larger than what is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wengert import functional as F
from wengert import tree
from wengert._core import Tensor
from wengert.errors import ArgumentError, GradientError
from wengert.program.trace import tracing
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import zeros_like
from wengert.tensors.random import Generator, bernoulli
from wengert.transforms.functional import by_arguments, differentiate_backwards, grad, hvp, jvp, linearize
from wengert.transforms.jacobian import _over_basis, _reject_complex, _require_chunk, _reverse, _tensor_leaves
from wengert.transforms.naming import transformed
from wengert.transforms.passes import drawing_the_same, split
from wengert.transforms.replay import replayed
from wengert.transforms.sparse import sparse_hessian
from wengert.transforms.vmap import vmap


class Estimate(NamedTuple):
    """The mean of random samples, and the standard error of that mean."""

    value: Any
    standard_error: Any


def ggnvp(f: Callable[..., Any], loss: Callable[..., Any], x: Any, v: Any) -> Any:
    """The Gauss–Newton matrix of loss(f(x)) times a vector: Jᵀ H J v, with J = ∂f/∂x and H the Hessian of the loss at f(x).

    It is the Hessian without the curvature of f, and positive semidefinite where the loss is convex (Schraudolph, 2002).
    One push through f, one product with the loss's Hessian, one pull.

    >>> import wengert as wg
    >>> f, loss = (lambda x: x * x), (lambda y: (y * y).sum())
    >>> ggnvp(f, loss, wg.tensor([1.0, 2.0]), wg.tensor([1.0, 1.0])).tolist()  # 2·(2x)²
    [8.0, 32.0]
    """
    y, y_dot, pull_back = _pushed(f, x, v)
    return pull_back(hvp(loss, y, y_dot))[0]


def _pushed(f: Callable[..., Any], x: Any, v: Any) -> tuple[Any, Any, Callable[[Any], Any]]:
    """f(x), its derivative along v, and its pullback, all with the same random draws of f."""
    if tracing() is not None:  # so that the program of f occurs once
        y, push = linearize(f, x)
        _, pull_back = differentiate_backwards(push, (v,))
        return y, push(v), pull_back
    drawn: list[Any] = []
    y, pull_back = drawing_the_same(drawn, lambda: differentiate_backwards(f, (x,)))
    return y, drawing_the_same(drawn, lambda: jvp(f, (x,), (v,))[1]), pull_back


def empirical_fisher_vp(log_density: Callable[..., Any], x: Any, v: Any) -> Any:
    """The empirical Fisher matrix times a vector: (1/n) Σᵢ gᵢ gᵢᵀ v, with gᵢ the gradient of an element of log_density(x).

    >>> import wengert as wg
    >>> data = wg.tensor([1.0, 2.0, 6.0])
    >>> empirical_fisher_vp(lambda x: -0.5 * (data - x) ** 2, wg.tensor(3.0), wg.tensor(1.0)).item()
    4.666...
    """
    y, y_dot, pull_back = _pushed(log_density, x, v)
    if not isinstance(y, Tensor):
        raise GradientError(
            "empirical_fisher_vp: the function must return one tensor, with an element for each example"
        )
    return pull_back(y_dot / max(1, int(y.size)))[0]


def hessian_blocks(
    f: Callable[..., Any], blocks: Sequence[tuple[int, int]], *, chunk: int | None = None
) -> Callable[..., Any]:
    """Chosen blocks of the Hessian of a scalar function of several arguments: a list of ∂²f/∂xᵢ∂xⱼ for the pairs (i, j).

    Each argument is one tensor. A block has as many passes as the smaller one of its arguments has elements.

    >>> import wengert as wg
    >>> f = lambda a, b, c: (a * a).sum() * b.sum() + c.sum()
    >>> corner, side = hessian_blocks(f, [(1, 1), (0, 1)])(wg.tensor([1.0, 2.0]), wg.tensor([3.0]), wg.ones((9,)))
    >>> corner.tolist(), side.tolist()
    ([[0.0]], [[2.0], [4.0]])
    """
    pairs = [tuple(b) for b in blocks]
    if any(len(b) != 2 or not all(isinstance(k, int) for k in b) for b in pairs):
        raise ArgumentError(f"hessian_blocks: blocks must be pairs of argument numbers, got {list(blocks)!r}")
    _require_chunk(chunk, "hessian_blocks")

    def blocks_of(*args: Any, **kwargs: Any) -> list[Any]:
        return [_block(f, i, j, chunk, args, kwargs) for i, j in pairs]

    key = ("hessian_blocks", tuple(pairs), chunk)
    doc = "Blocks of the Hessian of {f}."
    return transformed(replayed(blocks_of, f, key), doc, hessian_blocks, f, blocks=tuple(pairs), chunk=chunk)


def _block(f: Callable[..., Any], i: int, j: int, chunk: int | None, args: Any, kwargs: dict[str, Any]) -> Any:
    _, xs = by_arguments(f, (i, j), args, kwargs, "hessian_blocks")
    for x in xs:
        if not isinstance(x, Tensor):
            raise ArgumentError(
                f"hessian_blocks: each argument in a block must be one tensor, got "
                f"{type(x).__name__}; hessian takes containers"
            )
        _reject_complex(x, "hessian_blocks")
    swapped = int(xs[1].size) < int(xs[0].size)
    rows, columns = (j, i) if swapped else (i, j)
    block = _reverse(grad(f, rows), columns, chunk)(*args, **kwargs)
    if not swapped:
        return block
    n = xs[1].ndim
    return OPS["permute"](block, (*range(n, block.ndim), *range(n)))


def hessian_diagonal(f: Callable[..., Any], x: Any, *, sparse: bool = False, chunk: int | None = None) -> Any:
    """∂²f/∂xᵢ² for every element of x, exactly: a product with the Hessian for each, all of them in one pass.

    `chunk=k` computes k of them at a time, which needs less memory. With `sparse=True` the pattern of the Hessian is found
    from the program of f, and there is one product for each of its colours instead (docs/sparsity.md): three for a
    tridiagonal Hessian of any size.

    >>> import wengert as wg
    >>> hessian_diagonal(lambda x: (x**3).sum() + x.prod(), wg.tensor([1.0, 2.0])).tolist()
    [6.0, 12.0]
    >>> hessian_diagonal(lambda x: (x[1:] * x[:-1] ** 2).sum(), wg.ones((5,)), sparse=True).tolist()
    [2.0, 2.0, 2.0, 2.0, 0.0]
    """
    _require_chunk(chunk, "hessian_diagonal")
    if sparse:
        return _diagonal_by_colours(f, x, chunk)

    def diagonal_of(x: Any) -> Any:
        products, xs, structure = _products(f, x, "hessian_diagonal")

        def element(k: int, e: Any) -> list[Any]:
            found = products([e if j == k else zeros_like(other) for j, other in enumerate(xs)])[k]
            return [OPS["sum"](found * e, tuple(range(e.ndim)), 0)]

        parts = [
            _over_basis(lambda e, k=k: element(k, e), leaf, chunk, [])[0]  # type: ignore[misc]
            for k, leaf in enumerate(xs)
        ]
        return tree.unflatten(structure, parts)

    return replayed(diagonal_of, f, ("hessian_diagonal", chunk))(x)


def _diagonal_by_colours(f: Callable[..., Any], x: Any, chunk: int | None) -> Any:
    diagonal = asarray(sparse_hessian(f, 0, chunk, True, None, False, None)(x).diagonal())
    leaves, structure = _tensor_leaves(x)
    return tree.unflatten(structure, split(diagonal, leaves))


def hessian_trace(f: Callable[..., Any], x: Any, *, sparse: bool = False, chunk: int | None = None) -> Any:
    """Σᵢ ∂²f/∂xᵢ², the Laplacian, exactly; see `hessian_diagonal`.

    >>> import wengert as wg
    >>> hessian_trace(lambda x: (x**3).sum(), wg.tensor([1.0, 2.0])).item()
    18.0
    """
    total: Any = None
    for d in tree.leaves(hessian_diagonal(f, x, sparse=sparse, chunk=chunk)):
        total = F.sum(d) if total is None else total + F.sum(d)
    return total


def estimate_hessian_diagonal(
    f: Callable[..., Any], x: Any, *, samples: int = 100, generator: Generator | None = None
) -> Estimate:
    """The diagonal of the Hessian from products with random vectors: the mean of v ∘ H v, vᵢ = ±1 (Bekas et al., 2007).

    Returns (value, standard_error), each like x. The error of an element falls as 1/√samples, and is zero where the row of
    the Hessian has no other elements.

    >>> import wengert as wg
    >>> value, error = estimate_hessian_diagonal(lambda x: (x**3).sum(), wg.tensor([1.0, 2.0]), samples=10)
    >>> value.tolist(), error.tolist()
    ([6.0, 12.0], [0.0, 0.0])
    """
    vectors, products, structure = _sampled(f, x, samples, generator, "estimate_hessian_diagonal")
    estimates = [_mean_and_error(v * h, samples) for v, h in zip(vectors, products)]
    value, error = (tree.unflatten(structure, [e[k] for e in estimates]) for k in (0, 1))
    return Estimate(value, error)


def estimate_hessian_trace(
    f: Callable[..., Any], x: Any, *, samples: int = 100, generator: Generator | None = None
) -> Estimate:
    """The trace of the Hessian from products with random vectors: the mean of vᵀ H v, vᵢ = ±1 (Hutchinson, 1990).

    Returns (value, standard_error), which are numbers.

    >>> import wengert as wg
    >>> value, error = estimate_hessian_trace(lambda x: (x**3).sum(), wg.tensor([1.0, 2.0]), samples=10)
    >>> value.item(), error.item()
    (18.0, 0.0)
    """
    vectors, products, _ = _sampled(f, x, samples, generator, "estimate_hessian_trace")
    total: Any = None
    for v, h in zip(vectors, products):
        part = F.sum(F.reshape(v * h, (samples, -1)), axis=1)
        total = part if total is None else total + part
    return Estimate(*_mean_and_error(total, samples))


def _products(f: Callable[..., Any], x: Any, what: str) -> tuple[Callable[[list[Any]], list[Any]], list[Any], Any]:
    """v ↦ H v on lists of tensors like the leaves of x, then these leaves and their structure."""
    xs, structure = _tensor_leaves(x)
    for leaf in xs:
        _reject_complex(leaf, what)
    _, pull_back = differentiate_backwards(grad(f), (tree.unflatten(structure, xs),))

    def product(v: list[Any]) -> list[Any]:
        return tree.flatten(pull_back(tree.unflatten(structure, v))[0])[0]

    return product, xs, structure


def _sampled(
    f: Callable[..., Any], x: Any, samples: int, generator: Generator | None, what: str
) -> tuple[list[Any], list[Any], Any]:
    """Random signs like the leaves of x, along a new first axis, and the Hessian's products with them."""
    if type(samples) is not int or samples < 2:
        raise ArgumentError(f"{what}: samples must be an integer of at least 2, got {samples!r}")
    xs, structure = _tensor_leaves(x)
    signs = [_signs((samples, *leaf.shape), leaf.dtype, generator) for leaf in xs]

    def products_of(x: Any, signs: Any) -> Any:
        product, _, _ = _products(f, x, what)
        if tracing() is None:
            rows = [product([s[k] for s in signs]) for k in range(samples)]
            return [F.stack(list(column)) for column in zip(*rows)]
        return vmap(lambda *v: product(list(v)))(*signs)

    found = replayed(products_of, f, (what, samples))(tree.unflatten(structure, xs), signs)
    return signs, list(found), structure


def _signs(shape: tuple[int, ...], dtype: Any, generator: Generator | None) -> Any:
    return 2.0 * bernoulli(0.5, shape, generator=generator).astype(dtype) - 1.0


def _mean_and_error(samples: Any, n: int) -> tuple[Any, Any]:
    return F.mean(samples, axis=0), F.std(samples, axis=0, correction=1) / float(np.sqrt(n))


__all__ = [
    "Estimate", "empirical_fisher_vp", "estimate_hessian_diagonal", "estimate_hessian_trace", "ggnvp",
    "hessian_blocks", "hessian_diagonal", "hessian_trace",
]  # fmt: skip
