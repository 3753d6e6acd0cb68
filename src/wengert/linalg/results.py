"""Named results, as the array API standard has them."""

from __future__ import annotations

from typing import NamedTuple

from wengert._core import Tensor


class QRResult(NamedTuple):
    """A = Q R."""

    Q: Tensor
    R: Tensor


class LUResult(NamedTuple):
    """A = P L U."""

    P: Tensor
    L: Tensor
    U: Tensor


class SVDResult(NamedTuple):
    """A = U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class EighResult(NamedTuple):
    """A V = V diag(w), for symmetric and Hermitian A."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """A V = V diag(w)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SlogdetResult(NamedTuple):
    """det A = sign · exp(logabsdet)."""

    sign: Tensor
    logabsdet: Tensor


class LstsqResult(NamedTuple):
    """The x with the smallest |A x − b|, and of those the smallest."""

    x: Tensor
    residuals: Tensor
    rank: Tensor
    s: Tensor
