"""The normal distribution of vectors."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, LinAlgError, ShapeError
from wengert.functional.diagonals import diagonal
from wengert.functional.joining import flip
from wengert.functional.linear import matmul
from wengert.functional.shapes import matrix_transpose
from wengert.linalg.factorizations import cholesky
from wengert.linalg.solving import solve_triangular
from wengert.stats.distribution import Distribution
from wengert.stats.domains import known, lower_cholesky, named, real, real_vector
from wengert.stats.draws import normal_numbers
from wengert.stats.normal import HALF_LOG_TWO_PI
from wengert.stats.parameters import Shape, common_shape, read, spread
from wengert.tensors.arguments import describe, native, product
from wengert.tensors.creation import eye
from wengert.tensors.numpy import data
from wengert.tensors.random import Generator

_log, _sum, _square, _reshape = (native(n) for n in ("log", "sum", "square", "reshape"))


@composite(precision="full")
def _log_density(z: Tensor, diagonal: Tensor) -> Tensor:
    """The log-density at z = L⁻¹ (x − loc), given the diagonal of L."""
    size = _sum(_square(z), (z.ndim - 1,), 0)
    volume = _sum(_log(diagonal) + HALF_LOG_TWO_PI, (diagonal.ndim - 1,), 0)
    return -0.5 * size - volume


@composite(precision="full")
def _entropy(diagonal: Tensor) -> Tensor:
    return _sum(_log(diagonal) + (HALF_LOG_TWO_PI + 0.5), (diagonal.ndim - 1,), 0)


def _factor(matrix: Tensor, name: str) -> Tensor:
    """The lower triangular L of a matrix L Lᵀ, which must be symmetric and positive definite."""
    if known(matrix):
        numbers = data(matrix)
        gap = abs(numbers - numbers.swapaxes(-1, -2)).max(initial=0.0)
        if gap > 1e-4 * abs(numbers).max(initial=0.0):
            raise ArgumentError(
                f"MultivariateNormal: {name} must be symmetric, but differs from its transpose by {gap:g}"
            )
    try:
        return cholesky(matrix)
    except LinAlgError as e:
        raise LinAlgError(
            f"MultivariateNormal: {name} {describe(matrix)} must be positive definite ({e}); add a small multiple of the "
            "identity if it is so but for rounding"
        ) from None


def _inverse_factor(precision: Tensor) -> Tensor:
    """The lower triangular L of the inverse: of the matrix with both axes reversed, P = (F Fᵀ)ᴿ and L = (Fᴿ)⁻ᵀ."""
    reversed_factor = _factor(flip(precision, axis=(-2, -1)), "precision_matrix")
    upper = flip(reversed_factor, axis=(-2, -1))
    n = precision.shape[-1]
    identity = eye(n, dtype=precision.dtype)
    return solve_triangular(matrix_transpose(upper), spread(identity, tuple(precision.shape)), upper=False)


def solved(factor: Tensor, x: Tensor) -> Tensor:
    """L⁻¹ x for the vectors along the last axis of x."""
    if factor.ndim == 2 and x.ndim > 1:  # one matrix for all: they are the columns of one right side
        rows = _reshape(x, (product(x.shape[:-1]), x.shape[-1]))
        z = solve_triangular(factor, matrix_transpose(rows), upper=False)
        return _reshape(matrix_transpose(z), tuple(x.shape))
    z = solve_triangular(factor, _reshape(x, (*x.shape, 1)), upper=False)
    return _reshape(z, z.shape[:-1])


def times_vector(factor: Tensor, z: Tensor) -> Tensor:
    """L z for the vectors along the last axis of z."""
    if factor.ndim == 2:
        return matmul(z, matrix_transpose(factor))
    y = matmul(factor, _reshape(z, (*z.shape, 1)))
    return _reshape(y, y.shape[:-1])


class MultivariateNormal(Distribution):
    """Normal vectors with this mean, and one of: covariance_matrix, precision_matrix (its inverse) or scale_tril, the
    lower triangular L with L Lᵀ the covariance.

    >>> d = MultivariateNormal([0.0, 0.0], [[4.0, 0.0], [0.0, 1.0]])
    >>> d.log_prob([0.0, 0.0]).item()
    -2.531024...
    """

    domains = named(loc=real_vector, scale_tril=lower_cholesky)
    support = real_vector
    reparametrised = True

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, *, precision_matrix: Any = None, scale_tril: Any = None
    ) -> None:
        forms = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {k: v for k, v in forms.items() if v is not None}
        if len(given) != 1:
            raise ArgumentError(f"MultivariateNormal: give one of {', '.join(forms)}, got {', '.join(given) or 'none'}")
        ((form, matrix),) = given.items()
        domains = {"loc": real, form: lower_cholesky if form == "scale_tril" else real}
        self.loc, matrix = read("MultivariateNormal", {"loc": loc, form: matrix}, domains)
        self._check_shapes(form, matrix)
        if form != "scale_tril":
            matrix = _factor(matrix, form) if form == "covariance_matrix" else _inverse_factor(matrix)
        self.scale_tril = matrix
        self.batch_shape = common_shape("MultivariateNormal", tuple(self.loc.shape[:-1]), tuple(matrix.shape[:-2]))
        self.event_shape, self.dtype = tuple(self.loc.shape[-1:]), self.loc.dtype

    def _check_shapes(self, form: str, matrix: Tensor) -> None:
        if self.loc.ndim == 0:
            raise ShapeError(
                "MultivariateNormal: loc must be a vector or a batch of vectors, got a number; use Normal for numbers"
            )
        n = self.loc.shape[-1]
        if matrix.ndim < 2 or matrix.shape[-1] != n or matrix.shape[-2] != n:
            raise ShapeError(
                f"MultivariateNormal: {form} must end with ({n}, {n}) for loc {describe(self.loc)}, got {describe(matrix)}"
            )

    @property
    def _diagonal(self) -> Tensor:
        return diagonal(self.scale_tril, axis1=-2, axis2=-1)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _log_density(solved(self.scale_tril, x - self.loc), self._diagonal)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        z = normal_numbers(shape, self.dtype, generator)
        return self.loc + times_vector(self.scale_tril, z)

    @property
    def mean(self) -> Tensor:
        """loc."""
        return spread(self.loc, (*self.batch_shape, *self.event_shape))

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.mean

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance."""
        return spread(_sum(_square(self.scale_tril), (self.scale_tril.ndim - 1,), 0), tuple(self.mean.shape))

    @property
    def covariance_matrix(self) -> Tensor:
        """L Lᵀ."""
        return matmul(self.scale_tril, matrix_transpose(self.scale_tril))

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        n = self.event_shape[0]
        identity = spread(eye(n, dtype=self.dtype), tuple(self.scale_tril.shape))
        inverse = solve_triangular(self.scale_tril, identity, upper=False)
        return matmul(matrix_transpose(inverse), inverse)

    def entropy(self) -> Tensor:
        """½ ln det(2πe Σ)."""
        return self._batch(_entropy(self._diagonal))
