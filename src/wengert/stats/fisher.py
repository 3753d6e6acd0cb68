"""The Fisher matrix of a distribution, as products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert.errors import GradientError
from wengert.stats.distribution import Distribution
from wengert.stats.divergence import kl
from wengert.transforms.functional import hvp


def fisher_vp(f: Callable[..., Any], x: Any, v: Any) -> Any:
    """The Fisher matrix times a vector, of a distribution of `wengert.stats` that depends on x: E[∇ln p ∇ln pᵀ] v.

    f(x) is the distribution; a batch of them is independent, and their matrices add up. The expectation is exact: the matrix
    is the Hessian of KL(f(x) ‖ f(z)) in z at z = x, which must have a closed form.

    >>> import wengert as wg
    >>> normal = lambda p: wg.stats.Normal(p[0], wg.exp(p[1]))
    >>> fisher_vp(normal, wg.tensor([3.0, 0.0]), wg.tensor([1.0, 1.0])).tolist()  # the matrix is diag(1/σ², 2)
    [1.0, 2.0]
    """
    at = f(x)
    if not isinstance(at, Distribution):
        raise GradientError(
            f"fisher_vp: the function must return a distribution of wengert.stats, got {type(at).__name__}; for a "
            "function that returns log-densities of examples use empirical_fisher_vp"
        )
    return hvp(lambda z: kl(at, f(z)).sum(), x, v)
