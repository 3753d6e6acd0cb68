"""Random numbers that functions add to their arguments."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.tensors.arguments import as_dtype_of, native, wide
from wengert.tensors.random import Generator, rand_like

_minimum, _log, _log1p = native("minimum"), native("log"), native("log1p")


@composite(precision="full")
def _opened(u: Tensor, half: float) -> Tensor:
    return _minimum(u + half, 1.0 - 2.0 * half)


def opened(u: Tensor) -> Tensor:
    """Uniform numbers of [0, 1), moved so that none is 0 or 1 and no quantile of them is infinite."""
    # Half of the step of the grid on which numbers of this dtype are drawn.
    half = {8: 2.0**-54, 4: 2.0**-25}.get(u.dtype.itemsize, 2.0**-12 if u.dtype.name == "float16" else 2.0**-9)
    return _opened(u, half)


def uniform_like(x: Any, generator: Generator | None) -> Tensor:
    """Uniform numbers in [0, 1) for the elements of x, as constants."""
    return rand_like(x, generator=generator, requires_grad=None if not x._plain else False)


@composite(precision="full")
def _gumbel(u: Tensor) -> Any:
    return -_log(-_log1p(-u))


def gumbel_like(x: Tensor, generator: Generator | None) -> Tensor:
    """Draws of the standard Gumbel distribution of largest values for the elements of x."""
    return as_dtype_of(_gumbel(opened(uniform_like(wide(x).detach(), generator))), x.dtype)
