"""Sets of numbers: where parameters must lie, and where a distribution has its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.dtypes import finfo
from wengert.errors import ArgumentError
from wengert.functional.diagonals import diagonal, triu
from wengert.program.trace import tracing
from wengert.tensors.arguments import as_tensor, native
from wengert.tensors.numpy import data

_all, _and = native("all"), native("logical_and")
_floor, _abs, _sum, _isfinite = (native(n) for n in ("floor", "abs", "sum", "isfinite"))


def known(*tensors: Tensor) -> bool:
    """Whether the numbers may be looked at: those of duals, and all inside of compiled functions, may not."""
    return tracing() is None and all(t._plain for t in tensors)


def require_less(low: Tensor, high: Tensor, owner: str) -> None:
    """Raise unless low < high everywhere, as far as that is known."""
    if known(low, high) and not (low < high).all():
        raise ArgumentError(f"{owner}: low must be less than high, got {low.tolist()} and {high.tolist()}")


class Domain:
    """A set of numbers, or of vectors and matrices along the last `event_ndim` axes.

    >>> positive.contains([1.0, -1.0]).tolist()
    [True, False]
    """

    def __init__(self, name: str, test: Callable[[Tensor], Any], event_ndim: int = 0, discrete: bool = False) -> None:
        self.name, self._test, self.event_ndim, self.discrete = name, test, event_ndim, discrete

    def contains(self, x: Any) -> Tensor:
        """Whether each number (vector, matrix) of x lies in the set."""
        inside: Tensor = self._test(as_tensor(x, "contains"))
        return inside

    def require(self, x: Tensor, owner: str, parameter: str) -> None:
        """Raise if some numbers of a parameter lie outside. Inside of compiled functions nothing is checked."""
        if not known(x):
            return
        inside = self._test(x)
        if not _all(inside, tuple(range(inside.ndim)), 0):
            self._refuse(x, inside, owner, parameter)

    def _refuse(self, x: Tensor, inside: Tensor, owner: str, parameter: str) -> None:
        numbers, flags = data(x), data(inside)
        at = tuple(int(i) for i in np.argwhere(~flags)[0]) if flags.ndim else ()
        place = f" at {at}" if at else ""
        raise ArgumentError(f"{owner}: {parameter} must be {self.name}, got {np.array2string(numbers[at])}{place}")

    def __repr__(self) -> str:
        return f"<domain: {self.name}>"


def named(**domains: Domain) -> Mapping[str, Domain]:
    """The domains of parameters, by name.

    >>> list(named(loc=real, scale=positive))
    ['loc', 'scale']
    """
    return domains


def interval(low: Any, high: Any) -> Domain:
    """The numbers from low to high, both included.

    >>> interval(0.0, 2.0).contains([1.0, 3.0]).tolist()
    [True, False]
    """
    return Domain(f"between {_text(low)} and {_text(high)}", lambda x: _and(x >= low, x <= high))


def integers(low: Any, high: Any) -> Domain:
    """The whole numbers from low to high, both included.

    >>> integers(0, 2).contains([1.0, 0.5, 3.0]).tolist()
    [True, False, False]
    """
    name = f"a whole number between {_text(low)} and {_text(high)}"
    return Domain(name, lambda x: _and(_and(x >= low, x <= high), _whole(x)), discrete=True)


def _text(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, (int, float)) else "a tensor of bounds"


def _whole(x: Tensor) -> Any:
    return _floor(x) == x if x.dtype.is_floating else x == x


def _on_simplex(p: Tensor) -> Any:
    """Non-negative vectors of sum 1, up to rounding."""
    slack = max(1e-6, 16.0 * finfo(p.dtype).eps)
    last = (p.ndim - 1,)
    return _and(_all(p >= 0.0, last, 0), _abs(_sum(p, last, 0) - 1.0) <= slack)


def _is_weights(p: Tensor) -> Any:
    last = (p.ndim - 1,)
    return _and(_all(_and(p >= 0.0, _isfinite(p)), last, 0), _sum(p, last, 0) > 0.0)


def _is_lower_with_positive_diagonal(x: Tensor) -> Any:
    above = _all(triu(x, 1) == 0.0, (x.ndim - 2, x.ndim - 1), 0)
    of_diagonal = diagonal(x, axis1=-2, axis2=-1)
    return _and(above, _all(of_diagonal > 0.0, (of_diagonal.ndim - 1,), 0))


real = Domain("a number", lambda x: x == x)
finite = Domain("finite", _isfinite)
positive = Domain("positive", lambda x: x > 0.0)
non_negative = Domain("0 or positive", lambda x: x >= 0.0)
unit_interval = Domain("between 0 and 1", lambda x: _and(x >= 0.0, x <= 1.0))
half_open_unit = Domain("greater than 0 and at most 1", lambda x: _and(x > 0.0, x <= 1.0))
below_one = Domain("at least 0 and less than 1", lambda x: _and(x >= 0.0, x < 1.0))
binary = Domain("0 or 1", lambda x: (x == 0) | (x == 1), discrete=True)
counts = Domain("a whole number, 0 or positive", lambda x: _and(x >= 0, _whole(x)), discrete=True)
real_vector = Domain("a vector of numbers", lambda x: _all(x == x, (x.ndim - 1,), 0), 1)
simplex = Domain("a vector of non-negative numbers whose sum is 1", _on_simplex, 1)
weights = Domain("a vector of finite non-negative numbers, not all 0", _is_weights, 1)
count_vector = Domain(
    "a vector of whole numbers, 0 or positive", lambda x: _all(counts.contains(x), (x.ndim - 1,), 0), 1, True
)
lower_cholesky = Domain("a lower triangular matrix with a positive diagonal", _is_lower_with_positive_diagonal, 2)
