"""Shampoo."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

from wengert import functional as F
from wengert import linalg
from wengert.errors import ArgumentError
from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.update import Rule
from wengert.tensors.arguments import native
from wengert.tensors.creation import eye

_sqrt, _square, _maximum, _pow = native("sqrt"), native("square"), native("maximum"), native("pow")


@dataclass(frozen=True, slots=True)
class ShampooConfig:
    """Options of Shampoo. Sides of a matrix that are longer than `max_size` are left as they are.

    >>> ShampooConfig().eps
    0.0001
    """

    lr: float = 1e-1
    momentum: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-4
    max_size: int = 2048
    maximize: bool = field(default=False, kw_only=True)


def _sides(shape: tuple[int, ...], max_size: int) -> tuple[int, int]:
    """Rows and columns of a parameter as a matrix; 0 for a side that is not preconditioned."""
    rows, columns = shape[0], math.prod(shape[1:])
    return (rows if rows <= max_size else 0), (columns if columns <= max_size else 0)


def _root(h: Any, exponent: float, eps: float) -> Any:
    """(h + eps)^exponent of a symmetric matrix."""
    values, vectors = linalg.eigh(h + eye(int(h.shape[0]), dtype=h.dtype) * eps)
    return F.matmul(vectors * _pow(_maximum(values, eps), exponent), F.matrix_transpose(vectors))


@functools.cache
def _rule(momentum: bool, eps: float, max_size: int, maximize: bool) -> Rule:
    def preconditioned(g: Any, left: Any, right: Any) -> tuple[Any, Any, Any]:
        if g.ndim < 2:  # Adagrad, which this is for one axis that is diagonal
            left = left + _square(g)
            return g / (_sqrt(left) + eps), left, right
        shape = tuple(int(n) for n in g.shape)
        sides = _sides(shape, max_size)
        m = F.reshape(g, (shape[0], -1))
        exponent = -0.5 / max(1, sum(n > 0 for n in sides))
        made = m
        if sides[0]:
            left = left + F.matmul(m, F.matrix_transpose(m))
            made = F.matmul(_root(left, exponent, eps), made)
        if sides[1]:
            right = right + F.matmul(F.matrix_transpose(m), m)
            made = F.matmul(made, _root(right, exponent, eps))
        return F.reshape(made, g.shape), left, right

    def shampoo(p: Any, g: Any, left: Any, right: Any, *others: Any) -> tuple[Any, ...]:
        *buffer, lr, mu, decay = others
        g = (-g if maximize else g) + p * decay
        step, left, right = preconditioned(g, left, right)
        if momentum:
            step = buffer[0] * mu + step
        return p - step * lr, left, right, *((step,) if momentum else ())

    return shampoo


class Shampoo(Optimizer):
    """A preconditioner for each side of a matrix: L ← L + G Gᵀ, R ← R + Gᵀ G, p ← p − lr L^(−¼) G R^(−¼).

    Reference: Gupta, Koren & Singer (2018). Tensors of more axes are taken as matrices of their first one; vectors are
    updated as by Adagrad. The roots are computed in every step, from eigenvalues: some n³ for a side of n.

    >>> import wengert as wg
    >>> p = wg.Parameter.zeros((2, 2))
    >>> opt = Shampoo([p], lr=0.5)
    >>> p.set_grad([[3.0, 0.0], [0.0, 0.5]])
    >>> opt.step()
    >>> [round(x, 3) for x in (p[0, 0].item(), p[1, 1].item())]
    [-0.5, -0.5]
    """

    Config = ShampooConfig
    elementwise = False

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        if not options["eps"] > 0.0 or options["max_size"] < 1:
            raise ArgumentError("Shampoo: eps must be positive, and max_size at least 1")

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """L, R, and the momentum if there is one."""
        return {"left": 0.0, "right": 0.0, **({"momentum": 0.0} if options["momentum"] else {})}

    @classmethod
    def state_shapes(cls, options: Options, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Square matrices for the sides; for vectors one vector. Sides that are too long have none."""
        if len(shape) < 2:
            sides: tuple[tuple[int, ...], ...] = (shape, (0,))
        else:
            sides = tuple((n, n) for n in _sides(shape, options["max_size"]))
        return (*sides, shape) if options["momentum"] else sides

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Shampoo."""
        return _rule(bool(options["momentum"]), options["eps"], options["max_size"], options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """lr, μ, λ."""
        return options["lr"], options["momentum"], options["weight_decay"]
