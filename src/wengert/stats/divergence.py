"""The Kullback–Leibler divergence of two distributions, by a table of pairs that users may extend."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from wengert._core import Tensor
from wengert.stats.distribution import Distribution, require_kind

F = TypeVar("F", bound=Callable[..., Any])

_TABLE: dict[tuple[type, type], Callable[..., Any]] = {}


def register_kl(p: type[Distribution], q: type[Distribution]) -> Callable[[F], F]:
    """A decorator: the function of two distributions that computes their divergence, for these classes and their own.

    >>> from wengert.stats import Normal
    >>> class Shifted(Normal): ...
    >>> @register_kl(Shifted, Shifted)
    ... def _(p, q):
    ...     return p.loc - q.loc
    >>> kl(Shifted(3.0), Shifted(1.0)).item()
    2.0
    """
    for kind in (p, q):
        if not issubclass(kind if isinstance(kind, type) else object, Distribution):  # type: ignore[redundant-expr]
            raise TypeError(f"register_kl: takes two classes of distributions, got {kind!r}")

    def keep(f: F) -> F:
        _TABLE[p, q] = f
        return f

    return keep


def kl(p: Distribution, q: Distribution) -> Tensor:
    """KL(p ‖ q) = E[ln p(X) − ln q(X)] for X drawn of p, in nats, for each distribution of the batch.

    Raises NotImplementedError for a pair without a closed form; `register_kl` adds one, and the mean of
    `p.log_prob(x) - q.log_prob(x)` over samples x of p estimates it.

    >>> from wengert.stats import Normal
    >>> kl(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    require_kind(p, Distribution, "kl: p")
    require_kind(q, Distribution, "kl: q")
    # The classes nearest to those of p and q, counted in steps of inheritance.
    ancestors = itertools.product(enumerate(type(p).__mro__), enumerate(type(q).__mro__))
    for _, a, b in sorted(((i + j, a, b) for (i, a), (j, b) in ancestors), key=lambda found: found[0]):
        if (a, b) in _TABLE:
            found: Tensor = _TABLE[a, b](p, q)
            return found
    pair = f"{type(p).__name__} and {type(q).__name__}"
    raise NotImplementedError(
        f"kl: no closed form is known for {pair}; @wg.stats.register_kl({type(p).__name__}, {type(q).__name__}) adds one, "
        "and (p.log_prob(x) - q.log_prob(x)).mean() for x = p.sample((n,)) estimates it"
    )
