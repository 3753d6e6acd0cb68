"""Random tensors of distributions with parameters: functions, for those who need no distribution object.

Parameters are numbers or tensors and broadcast; the shape is theirs, or one that they broadcast to. Results have the
parameters' floating dtype.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import DType, as_dtype
from wengert.errors import DTypeError, ShapeError
from wengert.functional.noise import opened
from wengert.functional.special import _log_ndtr
from wengert.program.trace import broadcast_shapes
from wengert.stats.domains import (
    Domain,
    counts,
    known,
    non_negative,
    positive,
    real,
    require_less,
    unit_interval,
    weights,
)
from wengert.stats.parameters import Shape, common_shape, generator_of, place, read, spread
from wengert.tensors.arguments import as_dtype_of, native, product
from wengert.tensors.creation import as_shape
from wengert.tensors.random import Generator

_uniform, _normal = native("random_uniform"), native("random_normal")
_gamma, _poisson, _binomial = native("random_gamma"), native("random_poisson"), native("random_binomial")
_multinomial = native("random_multinomial")
_log1p, _sigmoid, _where = native("log1p"), native("sigmoid"), native("where")
_ndtr, _ndtri, _minimum, _maximum = (native(n) for n in ("ndtr", "ndtri", "minimum", "maximum"))
_exp, _log, _sqrt, _erfcx = (native(n) for n in ("exp", "log", "sqrt", "erfcx"))


def uniform_numbers(shape: Shape, dtype: DType, generator: Generator | None) -> Tensor:
    """`rand` without checking its arguments."""
    key, counter = generator_of(generator, "sample").place(product(shape), dtype.itemsize == 8)
    return _uniform(shape, dtype.code, key, counter)


def normal_numbers(shape: Shape, dtype: DType, generator: Generator | None) -> Tensor:
    """`randn` without checking its arguments."""
    key, counter = generator_of(generator, "sample").place(product(shape), dtype.itemsize == 8)
    return _normal(shape, dtype.code, key, counter)


def open_uniform(shape: Shape, dtype: DType, generator: Generator | None) -> Tensor:
    """Uniform numbers that are neither 0 nor 1, so that no quantile of them is infinite."""
    return opened(uniform_numbers(shape, dtype, generator))


def standard_gamma(concentration: Tensor, shape: Shape, generator: Generator | None, logarithm: bool = False) -> Tensor:
    """Draws of Gamma(concentration, 1), or their logarithms; gradients flow to the concentration."""
    key, counter = place(generator, "gamma", shape)
    return _gamma(spread(concentration, shape), int(logarithm), key, counter)


def poisson_counts(rate: Tensor, shape: Shape, generator: Generator | None) -> Tensor:
    """Counts with this mean."""
    key, counter = place(generator, "poisson", shape)
    return _poisson(spread(rate.detach(), shape), key, counter)


def binomial_counts(n: Tensor, p: Tensor, shape: Shape, generator: Generator | None) -> Tensor:
    """How many of n trials succeed."""
    key, counter = place(generator, "binomial", shape)
    return _binomial(spread(n.detach(), shape), spread(p.detach(), shape), key, counter)


def multinomial_counts(n: Tensor, p: Tensor, shape: Shape, generator: Generator | None) -> Tensor:
    """How many of n trials fall into each class; the classes are the last axis of p and of the shape."""
    key, counter = place(generator, "multinomial", shape)
    return _multinomial(spread(n.detach(), shape[:-1]), spread(p.detach(), shape), key, counter)


def _read(
    name: str, given: Mapping[str, Any], domains: Mapping[str, Domain], shape: Any, dtype: Any
) -> tuple[list[Tensor], Shape]:
    """Parameters in one dtype, and the shape of the result."""
    found = read(name, given, domains)
    if dtype is not None:
        kind = as_dtype(dtype)
        if not kind.is_floating:
            raise DTypeError(f"{name}: dtype must be a real floating type, got {kind.name}; use astype on the result")
        found = [as_dtype_of(t, kind) for t in found]
    common = common_shape(name, *(tuple(t.shape) for t in found))
    return found, common if shape is None else fitting(name, common, as_shape(shape))


def fitting(name: str, common: Shape, shape: Shape) -> Shape:
    """The shape that was asked for, if the parameters broadcast to it."""
    try:
        fits = broadcast_shapes(name, common, shape) == shape
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"{name}: parameters of shape {common} do not broadcast to the shape {shape}")
    return shape


def gamma(
    concentration: Any, rate: Any = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Draws with the density rateᵃ x^(a−1) e^(−rate x) / Γ(a), a the concentration; gradients flow to both.

    >>> gamma(2.0, 3.0, (5,)).shape
    (5,)
    """
    given = {"concentration": concentration, "rate": rate}
    (a, b), sizes = _read("gamma", given, dict.fromkeys(given, positive), shape, dtype)
    return standard_gamma(a, sizes, generator) / b


@composite(precision="full")
def ratio(log_a: Tensor, log_b: Tensor) -> Tensor:
    """a / (a + b), of logarithms."""
    return _sigmoid(log_a - log_b)


def beta(
    concentration1: Any,
    concentration0: Any,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draws with the density x^(a−1) (1 − x)^(b−1) / B(a, b); gradients flow to both concentrations.

    >>> beta(2.0, 3.0, (5,)).shape
    (5,)
    """
    given = {"concentration1": concentration1, "concentration0": concentration0}
    (a, b), sizes = _read("beta", given, dict.fromkeys(given, positive), shape, dtype)
    log_a, log_b = (standard_gamma(c, sizes, generator, True) for c in (a, b))
    return ratio(log_a, log_b)


@composite(precision="full")
def standard_exponential(u: Tensor, rate: Tensor) -> Tensor:
    """−ln(1 − u) / rate."""
    return -_log1p(-u) / rate


def exponential(rate: Any = 1.0, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Draws with the density rate e^(−rate x); gradients flow to the rate.

    >>> exponential(2.0, (5,)).shape
    (5,)
    """
    (t,), sizes = _read("exponential", {"rate": rate}, {"rate": positive}, shape, dtype)
    return standard_exponential(uniform_numbers(sizes, t.dtype, generator), t)


def poisson(rate: Any, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Counts with the probabilities rateᵏ e^−rate / k!, in the rate's floating dtype.

    >>> poisson([1.0, 100.0]).shape
    (2,)
    """
    (t,), sizes = _read("poisson", {"rate": rate}, {"rate": non_negative}, shape, dtype)
    return poisson_counts(t, sizes, generator)


def binomial(n: Any, p: Any, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """How many of n trials succeed, each with the probability p, in p's floating dtype.

    >>> binomial(10, [0.0, 1.0]).tolist()
    [0.0, 10.0]
    """
    (count, t), sizes = _read("binomial", {"n": n, "p": p}, {"n": counts, "p": unit_interval}, shape, dtype)
    return binomial_counts(count, t, sizes, generator)


def multinomial(n: Any, p: Any, shape: Any = None, *, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """How many of n trials fall into each class, as NumPy; the last axis of p holds their probabilities (or weights).

    n is a number, or one for each row of p; `shape` is that of the rows. Classes themselves are drawn by
    `wg.stats.Categorical(probs=p).sample((n,))`.

    >>> multinomial(5, [0.0, 1.0, 0.0]).tolist()
    [0.0, 5.0, 0.0]
    """
    found = read("multinomial", {"n": n, "p": p}, {"n": counts, "p": weights})
    count, t = (as_dtype_of(x, as_dtype(dtype)) for x in found) if dtype is not None else found
    rows = common_shape("multinomial", tuple(count.shape), tuple(t.shape)[:-1])
    sizes = rows if shape is None else fitting("multinomial", rows, as_shape(shape))
    return multinomial_counts(count, t, (*sizes, t.shape[-1]), generator)


_FAR = -4.0  # from where on probabilities are taken as logarithms
_ROOT_HALF = math.sqrt(0.5)


def _between(u: Any, left: Any, right: Any) -> Any:
    """The normal quantile of the probability that u parts from left to right."""
    below = _ndtr(left)
    return _ndtri(below + u * (_ndtr(right) - below))


def _between_far(u: Any, left: Any, right: Any) -> Any:
    """The same in the lower tail: Newton's iteration for ln Φ(z) from the z of a pure e^(−z²/2)."""
    right = _minimum(right, _FAR)
    left = _minimum(left, right)
    top = _log_ndtr(right)
    part = _log(u + (1.0 - u) * _exp(_log_ndtr(left) - top))
    z = -_sqrt(right * right - 2.0 * part)
    for _ in range(4):
        z = z - (_log_ndtr(z) - top - part) * math.sqrt(0.5 * math.pi) * _erfcx(-_ROOT_HALF * z)
    return z


@composite(precision="full")
def _truncated(u: Tensor, mean: Tensor, std: Tensor, low: Tensor, high: Tensor, far: bool) -> Tensor:
    a, b = (low - mean) / std, (high - mean) / std
    # In the upper half the mirror image, whose probabilities are not close to 1.
    upper = a > 0.0
    left, right = _where(upper, -b, a), _where(upper, -a, b)
    z = _between(u, left, right)
    if far:
        z = _where(right < _FAR, _between_far(u, left, right), z)
    return _minimum(_maximum(mean + std * _where(upper, -z, z), low), high)


def truncated_normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    low: Any = -2.0,
    high: Any = 2.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers between low and high, by the inverse of the distribution; gradients flow to all parameters.

    >>> x = truncated_normal(0.0, 1.0, 1.0, 3.0, (100,))
    >>> bool((x >= 1.0).all() and (x <= 3.0).all())
    True
    """
    given = {"mean": mean, "std": std, "low": low, "high": high}
    domains = {"mean": real, "std": positive, "low": real, "high": real}
    (m, s, a, b), sizes = _read("truncated_normal", given, domains, shape, dtype)
    require_less(a, b, "truncated_normal")
    far = not known(m, s, a, b) or bool((((b - m) < _FAR * s) | ((a - m) > -_FAR * s)).any())
    u = open_uniform(sizes, m.dtype, generator)
    return _truncated(u, m, s, a, b, far)
