"""Invertible functions with the logarithm of their volume change, for `Transformed` distributions."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.functional.elementwise import softplus
from wengert.functional.padding import pad
from wengert.functional.scanning import cumulative_sum
from wengert.stats.domains import Domain, known, non_negative, positive, real, real_vector, simplex, unit_interval
from wengert.stats.independent import sum_last
from wengert.tensors.arguments import as_floating, as_tensor, native
from wengert.tensors.numpy import data

__all__ = ["Affine", "Compose", "Exp", "Power", "Sigmoid", "Softplus", "StickBreaking", "Tanh", "Transform"]

_exp, _log, _log1p, _expm1, _abs = (native(n) for n in ("exp", "log", "log1p", "expm1", "abs"))
_sigmoid, _tanh, _atanh, _pow, _sum = (native(n) for n in ("sigmoid", "tanh", "atanh", "pow", "sum"))


class Transform:
    """An invertible function y = f(x), of numbers or of vectors along the last `event_ndim` axes.

    Call it for y; `inverse(y)` gives x, and `log_abs_det(x, y)` is ln |det dy/dx|. Subclass it for one of your own.

    >>> import wengert as wg
    >>> class Cube(Transform):
    ...     increasing = True
    ...     def __call__(self, x):
    ...         return x**3
    ...     def inverse(self, y):
    ...         return wg.sign(y) * wg.abs(y) ** (1 / 3)
    ...     def log_abs_det(self, x, y):
    ...         return wg.log(3 * x**2)
    >>> cubed = wg.stats.Transformed(wg.stats.Uniform(0.0, 1.0), Cube())
    >>> round(cubed.log_prob(0.125).item(), 4)  # 1 / (3 · 0.5²)
    0.2877
    """

    domain: Domain = real
    codomain: Domain = real
    event_ndim: int = 0
    increasing: bool | None = None  # None: it is not monotone in one number

    def __call__(self, x: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(x)")

    def inverse(self, y: Any) -> Tensor:
        """The x with f(x) = y."""
        raise NotImplementedError(f"{type(self).__name__} must define inverse(y)")

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """ln |det dy/dx|."""
        raise NotImplementedError(f"{type(self).__name__} must define log_abs_det(x, y)")

    def shape_after(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """The shape of y for one of x."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Affine(Transform):
    """loc + scale · x.

    >>> Affine(1.0, 2.0)([0.0, 3.0]).tolist()
    [1.0, 7.0]
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = (x if isinstance(x, (int, float)) else as_tensor(x, "Affine") for x in (loc, scale))
        if isinstance(self.scale, Tensor) and not known(self.scale):
            return  # its sign is not known
        signs = np.sign(data(self.scale)) if isinstance(self.scale, Tensor) else np.sign(self.scale)
        if not np.all(signs):
            raise ArgumentError("Affine: scale must not be 0")
        self.increasing = None if np.any(signs > 0) == np.any(signs < 0) else bool(np.all(signs > 0))

    def __call__(self, x: Any) -> Tensor:
        return self.loc + self.scale * as_floating(as_tensor(x, "Affine"))

    def inverse(self, y: Any) -> Tensor:
        """(y − loc) / scale."""
        return (as_floating(as_tensor(y, "Affine")) - self.loc) / self.scale

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """ln |scale|."""
        size = _log(_abs(self.scale)) if isinstance(self.scale, Tensor) else math.log(abs(self.scale))
        return size + 0.0 * x

    def __repr__(self) -> str:
        return f"Affine({self.loc}, {self.scale})"


class Exp(Transform):
    """eˣ.

    >>> Exp()([0.0]).tolist()
    [1.0]
    """

    codomain, increasing = positive, True

    def __call__(self, x: Any) -> Tensor:
        return _exp(as_floating(as_tensor(x, "Exp")))

    def inverse(self, y: Any) -> Tensor:
        """ln y."""
        return _log(as_floating(as_tensor(y, "Exp")))

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """x."""
        return x


class Power(Transform):
    """x^exponent, of positive numbers.

    >>> Power(2.0)([3.0]).tolist()
    [9.0]
    """

    domain = codomain = non_negative

    def __init__(self, exponent: float) -> None:
        if not exponent:
            raise ArgumentError("Power: the exponent must not be 0")
        self.exponent, self.increasing = float(exponent), exponent > 0

    def __call__(self, x: Any) -> Tensor:
        return _pow(as_floating(as_tensor(x, "Power")), self.exponent)

    def inverse(self, y: Any) -> Tensor:
        """y^(1/exponent)."""
        return _pow(as_floating(as_tensor(y, "Power")), 1.0 / self.exponent)

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """ln |exponent| + (exponent − 1) ln x."""
        return math.log(abs(self.exponent)) + (self.exponent - 1.0) * _log(x)

    def __repr__(self) -> str:
        return f"Power({self.exponent:g})"


class Sigmoid(Transform):
    """1 / (1 + e⁻ˣ).

    >>> Sigmoid()([0.0]).tolist()
    [0.5]
    """

    codomain, increasing = unit_interval, True

    def __call__(self, x: Any) -> Tensor:
        return _sigmoid(as_floating(as_tensor(x, "Sigmoid")))

    def inverse(self, y: Any) -> Tensor:
        """ln(y / (1 − y))."""
        t = as_floating(as_tensor(y, "Sigmoid"))
        return _log(t) - _log1p(-t)

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """−softplus(x) − softplus(−x)."""
        return -softplus(x) - softplus(-x)


class Softplus(Transform):
    """ln(1 + eˣ).

    >>> Softplus()([0.0]).tolist()
    [0.693147...]
    """

    codomain, increasing = positive, True

    def __call__(self, x: Any) -> Tensor:
        return softplus(as_floating(as_tensor(x, "Softplus")))

    def inverse(self, y: Any) -> Tensor:
        """ln(eʸ − 1), without overflow."""
        t = as_floating(as_tensor(y, "Softplus"))
        return t + _log(-_expm1(-t))

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """−softplus(−x)."""
        return -softplus(-x)


class Tanh(Transform):
    """tanh x.

    >>> Tanh()([0.0]).tolist()
    [0.0]
    """

    codomain, increasing = Domain("between -1 and 1", lambda y: _abs(y) <= 1.0), True

    def __call__(self, x: Any) -> Tensor:
        return _tanh(as_floating(as_tensor(x, "Tanh")))

    def inverse(self, y: Any) -> Tensor:
        """atanh y."""
        return _atanh(as_floating(as_tensor(y, "Tanh")))

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """ln(1 − tanh² x) = 2 (ln 2 − x − softplus(−2x))."""
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class StickBreaking(Transform):
    """Vectors of k − 1 numbers to k probabilities: each breaks its share, sigmoid(xᵢ − ln(k − i)), off what is left.

    >>> StickBreaking()([0.0, 0.0]).tolist()
    [0.333333..., 0.333333..., 0.333333...]
    """

    domain, codomain, event_ndim = real_vector, simplex, 1

    def _offset(self, x: Tensor) -> Tensor:
        """ln of how many parts are left, 1 for the last."""
        counted = cumulative_sum(x * 0.0 + 1.0, axis=-1)
        n = _sum(x * 0.0 + 1.0, (x.ndim - 1,), 1)
        return _log(n - counted + 1.0)

    def __call__(self, x: Any) -> Tensor:
        t = as_floating(as_tensor(x, "StickBreaking"))
        z = t - self._offset(t)
        left = cumulative_sum(-softplus(z), axis=-1)  # ln of what is left after each break
        before = [(0, 0)] * (t.ndim - 1) + [(1, 0)]
        last = [(0, 0)] * (t.ndim - 1) + [(0, 1)]
        broken = pad(-softplus(-z), last)
        return _exp(broken + pad(left, before))

    def inverse(self, y: Any) -> Tensor:
        """The logits of each share."""
        t = as_floating(as_tensor(y, "StickBreaking"))
        parts = t[..., :-1]
        left = 1.0 - cumulative_sum(parts, axis=-1)
        return _log(parts) - _log(left) + self._offset(parts)

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """Σ ln yᵢ + ln(1 − shareᵢ) over the breaks."""
        z = x - self._offset(x)
        terms = _log(y[..., :-1]) - softplus(z)
        return _sum(terms, (terms.ndim - 1,), 0)

    def shape_after(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """One more along the last axis."""
        return (*shape[:-1], shape[-1] + 1)


class Compose(Transform):
    """Several transforms, the first one applied first.

    >>> Compose([Affine(0.0, 2.0), Exp()])([0.0]).tolist()
    [1.0]
    """

    def __init__(self, parts: Sequence[Transform]) -> None:
        self.parts = tuple(parts)
        if not self.parts or any(not isinstance(t, Transform) for t in self.parts):
            kinds = ", ".join(type(t).__name__ for t in self.parts) or "none"
            raise TypeError(f"Compose: takes at least one transform, got {kinds}")
        self.event_ndim = max(t.event_ndim for t in self.parts)
        self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain
        ways = [t.increasing for t in self.parts]
        self.increasing = None if None in ways else ways.count(False) % 2 == 0

    def __call__(self, x: Any) -> Tensor:
        y: Tensor = x
        for t in self.parts:
            y = t(y)
        return y

    def inverse(self, y: Any) -> Tensor:
        """The inverses, the last one first."""
        x: Tensor = y
        for t in reversed(self.parts):
            x = t.inverse(x)
        return x

    def log_abs_det(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of those of the parts."""
        changes = []
        for t in self.parts:
            after = t(x)
            changes.append(sum_last(t.log_abs_det(x, after), self.event_ndim - t.event_ndim))
            x = after
        return functools.reduce(operator.add, changes)

    def shape_after(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Through all of them."""
        for t in self.parts:
            shape = t.shape_after(shape)
        return shape

    def __repr__(self) -> str:
        return f"Compose([{', '.join(map(repr, self.parts))}])"


def __dir__() -> list[str]:
    return __all__
