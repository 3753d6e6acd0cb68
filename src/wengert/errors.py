"""The exceptions of the library. Each is also the built-in that fits, so that old `except` clauses keep working."""

from __future__ import annotations

import numpy as np


class WengertError(Exception):
    """Base of all errors that wengert raises on purpose."""


class ShapeError(WengertError, ValueError):
    """Shapes, ranks or axes that an operation cannot take."""


class AxisError(ShapeError, IndexError):
    """An axis that a tensor does not have."""


class DTypeError(WengertError, TypeError):
    """Element types that an operation cannot take."""


class DeviceError(WengertError, RuntimeError):
    """A device that is not there, or operands on different devices."""


class IndexRangeError(WengertError, IndexError):
    """An index outside the range of its axis."""


class ArgumentError(WengertError, ValueError):
    """An argument whose value makes no sense for the operation."""


class NumberRangeError(ArgumentError, OverflowError):
    """A number that an element type cannot hold."""


class LoadError(WengertError, ValueError):
    """A file that is damaged, hostile, or not what it should be."""


class GradientError(WengertError, RuntimeError):
    """A derivative that cannot be computed as asked."""


class SparsityError(GradientError):
    """A pattern that lacks an entry of the derivative, or has too many to be sparse."""


class TapeConsumedError(GradientError):
    """A tape that is not persistent was used twice."""


class InPlaceError(GradientError):
    """A value that a derivative needs was overwritten."""


class LinAlgError(WengertError, np.linalg.LinAlgError):
    """A matrix for which a computation has no result: singular, not positive definite, or without convergence."""


class BudgetError(WengertError, MemoryError):
    """A memory budget that cannot be met."""


class CustomOpError(GradientError):
    """A custom operation that broke its contract, or lacks the rule that was asked for."""


class TraceError(WengertError, RuntimeError):
    """A function that cannot be traced: it branches on data, or changes Python objects."""


class DeterminismError(WengertError, RuntimeError):
    """Something that cannot promise its bits, where that was asked for."""


class SolverError(WengertError, RuntimeError):
    """A solver that could not go on: no steps left, or steps that have become too small."""


class WorkerError(WengertError, RuntimeError):
    """A worker of a data loader that died, hangs, or failed with an exception that cannot be handed on."""


BY_KIND: dict[str, type[Exception]] = {
    "shape": ShapeError,
    "dtype": DTypeError,
    "index": IndexRangeError,
    "value": ArgumentError,
    "range": NumberRangeError,
    "gradient": GradientError,
    "consumed": TapeConsumedError,
    "in_place": InPlaceError,
    "linalg": LinAlgError,
    "trace": TraceError,
    "device": DeviceError,
}
