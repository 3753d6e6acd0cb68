"""Linear systems whose matrix is only known by its products: conjugate gradients, GMRES, BiCGSTAB.

They work on numbers. `product` takes and returns arrays of one axis; none of them forms the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray[Any, Any]
Product = Callable[[Vector], Vector]
_RESTART = 50  # vectors that GMRES keeps


class Solution(NamedTuple):
    """What was found, the norm of its residual relative to that of the right side, and how many products it took."""

    x: Vector
    residual: float
    products: int


def conjugate_gradients(product: Product, b: Vector, tolerance: float, most: int) -> Solution:
    """Of a symmetric positive definite matrix (Hestenes & Stiefel, 1952)."""
    x, r = np.zeros_like(b), b.copy()
    d, square = r.copy(), float(r @ r)
    whole = float(np.sqrt(square))
    products = 0
    while products < most and np.sqrt(square) > tolerance * whole:
        q = product(d)
        products += 1
        curvature = float(d @ q)
        if not curvature > 0.0:
            break
        step = square / curvature
        x += step * d
        r -= step * q
        new = float(r @ r)
        d, square = r + (new / square) * d, new
    return _checked(product, b, x, products)


def gmres(product: Product, b: Vector, tolerance: float, most: int) -> Solution:
    """Of any matrix: the smallest residual in a Krylov space, started again after 50 products (Saad & Schultz, 1986)."""
    x, whole = np.zeros_like(b), float(np.linalg.norm(b))
    products, r, beta = 0, b.copy(), whole
    while products < most and beta > tolerance * whole:
        m = min(_RESTART, most - products, b.size)
        basis, h = np.zeros((m + 1, b.size), b.dtype), np.zeros((m + 1, m))
        basis[0] = r / beta
        y: Vector = np.zeros(0)
        for k in range(m):
            w = product(basis[k])
            products += 1
            for _ in range(2):  # orthogonal to machine precision
                along = basis[: k + 1] @ w
                w = w - along @ basis[: k + 1]
                h[: k + 1, k] += along
            h[k + 1, k] = np.linalg.norm(w)
            target = np.zeros(k + 2)
            target[0] = beta
            y = np.linalg.lstsq(h[: k + 2, : k + 1], target, rcond=None)[0]
            left = float(np.linalg.norm(h[: k + 2, : k + 1] @ y - target))
            if left <= 0.5 * tolerance * whole or h[k + 1, k] <= 1e-14 * abs(h[: k + 1, k]).max():
                break
            basis[k + 1] = w / h[k + 1, k]
        step = y @ basis[: len(y)]
        x = x + step.astype(b.dtype)
        r = b - product(x)
        products += 1
        before, beta = beta, float(np.linalg.norm(r))
        if not beta < 0.99 * before:  # a singular matrix, or as close as the numbers allow
            break
    return _checked(product, b, x, products)


def bicgstab(product: Product, b: Vector, tolerance: float, most: int) -> Solution:
    """Of any matrix, with a few vectors of memory (van der Vorst, 1992)."""
    x, r = np.zeros_like(b), b.copy()
    shadow, p = r.copy(), r.copy()
    rho, whole, products = float(shadow @ r), float(np.linalg.norm(b)), 0
    while products < most and np.linalg.norm(r) > tolerance * whole:
        v = product(p)
        along = float(shadow @ v)
        if along == 0.0 or rho == 0.0:
            break
        alpha = rho / along
        s = r - alpha * v
        t = product(s)
        products += 2
        square = float(t @ t)
        omega = float(t @ s) / square if square > 0.0 else 0.0
        x = x + alpha * p + omega * s
        r = s - omega * t
        if omega == 0.0 or not np.isfinite(x).all():
            break
        new = float(shadow @ r)
        p = r + (new / rho) * (alpha / omega) * (p - omega * v)
        rho = new
    return _checked(product, b, x, products)


def _checked(product: Product, b: Vector, x: Vector, products: int) -> Solution:
    """With the residual that x really has."""
    whole = float(np.linalg.norm(b))
    residual = float(np.linalg.norm(b - product(x))) / whole if whole > 0.0 else 0.0
    return Solution(x, residual if np.isfinite(residual) else float("inf"), products + 1)


METHODS: dict[str, Callable[[Product, Vector, float, int], Solution]] = {
    "cg": conjugate_gradients,
    "gmres": gmres,
    "bicgstab": bicgstab,
}
