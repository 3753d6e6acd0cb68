"""Descriptions of sample inputs, from which the tests make arrays. They are named tuples, which are quick to import."""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Array(NamedTuple):
    """Random numbers of a shape: floating in [low, high) (but not closer than `gap` to an integer multiple of `gap_at`)."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    kind: str = "float"  # float, complex, int, bool, index, pivot
    values: tuple[Any, ...] | None = None
    gap: float = 0.0
    form: str = (
        ""  # of matrices for LAPACK: regular (well conditioned, rows to be swapped), spd, spaced, triangular, given
    )
    wide: bool = False  # float32 where the other floating arrays have 16 bits


class Sample(NamedTuple):
    """One valid call: arrays, attributes by position as the core takes them, and which checks make sense."""

    inputs: tuple[Array, ...]
    attrs: tuple[Any, ...] = ()
    gradients: bool = True  # False at kinks and poles: only values are checked
    second: bool = True
    phases: bool = False  # complex outputs are only defined up to phases, so derivatives are tested through invariants


class Invalid(NamedTuple):
    """One call that must raise `error`, with `match` in its message."""

    inputs: tuple[Array, ...]
    attrs: tuple[Any, ...] = ()
    error: str = "ShapeError"
    match: str = ""


def real(*shape: int, low: float = -2.0, high: float = 2.0, gap: float = 0.0) -> Array:
    """Floating numbers in [low, high); `gap`: none closer to 0 than this."""
    return Array(shape, low, high, gap=gap)


def complex(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    """Complex numbers with both parts in [low, high)."""
    return Array(shape, low, high, kind="complex")


def wide(a: Array) -> Array:
    """The same, but in float32 where the other floating arrays have 16 bits."""
    return a._replace(wide=True)


def regular(*shape: int) -> Array:
    """Well conditioned matrices whose elimination swaps rows."""
    return Array(shape, -1.0, 1.0, form="regular")


def spd(*shape: int) -> Array:
    """Positive definite matrices, symmetric up to rounding."""
    return Array(shape, -1.0, 1.0, form="spd")


def spaced(*shape: int) -> Array:
    """Matrices with real eigenvalues and singular values that are far apart."""
    return Array(shape, -1.0, 1.0, form="spaced")


def triangular(*shape: int) -> Array:
    """Matrices with well conditioned triangles."""
    return Array(shape, -1.0, 1.0, form="triangular")


def matrix(*rows: tuple[float, ...]) -> Array:
    """This matrix."""
    return Array((len(rows), len(rows[0])), values=tuple(x for row in rows for x in row), form="given")


def positive(*shape: int, high: float = 3.0) -> Array:
    """Floating numbers in [0.3, high)."""
    return Array(shape, 0.3, high)


def whole(*shape: int, low: int = -5, high: int = 6) -> Array:
    """Integers in [low, high)."""
    return Array(shape, low, high, kind="int")


def index(*shape: int, below: int) -> Array:
    """int64 positions in [0, below)."""
    return Array(shape, 0, below, kind="index")


def truth(*shape: int) -> Array:
    """Booleans."""
    return Array(shape, kind="bool")


def exactly(*values: Any, shape: tuple[int, ...] | None = None) -> Array:
    """These numbers."""
    return Array(shape if shape is not None else (len(values),), values=values)


EXTREME = (-1e4, -1.0, -0.0, 0.0, 1.0, 1e4, math.inf, -math.inf, math.nan)


def unary(low: float = -2.0, high: float = 2.0, gap: float = 0.0, extreme: tuple[float, ...] = ()) -> list[Sample]:
    """The usual samples of an elementwise op of one operand: matrix, scalar, empty, and extreme values."""
    samples = [
        Sample((real(2, 3, low=low, high=high, gap=gap),)),
        Sample((real(low=low, high=high, gap=gap),)),
        Sample((real(0, 4, low=low, high=high),)),
        Sample((real(67, low=low, high=high, gap=gap),)),
    ]
    if extreme:
        samples.append(Sample((exactly(*extreme),), gradients=False))
    return samples


def binary(
    a: tuple[float, float] = (-2.0, 2.0), b: tuple[float, float] = (-2.0, 2.0), gap: float = 0.0
) -> list[Sample]:
    """The usual samples of an elementwise op of two operands."""

    def pair(*shape: int) -> Sample:
        return Sample((real(*shape, low=a[0], high=a[1]), real(*shape, low=b[0], high=b[1], gap=gap)))

    return [pair(2, 3), pair(), pair(0, 4), pair(67)]
