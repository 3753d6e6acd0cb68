"""The symbolic zero: a tangent or cotangent that is entirely zero and costs nothing."""

from __future__ import annotations

from typing import Any


class Zero:
    """Absorbs products and vanishes in sums, so that rules need not test whether a tangent is present."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return -other if other is not self else self

    def __rsub__(self, other: Any) -> Any:
        return other

    def __mul__(self, other: Any) -> Zero:
        return self

    __rmul__ = __truediv__ = __mul__

    def __neg__(self) -> Zero:
        return self

    def __repr__(self) -> str:
        return "ZERO"


ZERO = Zero()
