"""The exceptions of the library. Each is also the built-in that fits, so that old `except` clauses keep working."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class WengertError(Exception):
    """Base of all errors that wengert raises on purpose.

    Each of them is also the built-in that fits: `except ValueError` catches a `ShapeError`. A message names the operation,
    the shapes and dtypes it was given, and the remedy.

    >>> issubclass(ShapeError, (WengertError, ValueError))
    True
    """


class ShapeError(WengertError, ValueError):
    """Shapes, ranks or axes that an operation cannot take.

    >>> import wengert as wg
    >>> wg.ones((2, 3)) + wg.ones((2, 4))
    Traceback (most recent call last):
        ...
    wengert.errors.ShapeError: add: shapes (2, 3) and (2, 4) do not broadcast: ...
    """


class AxisError(ShapeError, IndexError):
    """An axis that a tensor does not have.

    >>> import wengert as wg
    >>> wg.ones((2, 3)).sum(axis=2)
    Traceback (most recent call last):
        ...
    wengert.errors.AxisError: sum: axis 2 is out of range for a tensor with 2 axes
    """


class DTypeError(WengertError, TypeError):
    """Element types that an operation cannot take.

    >>> import wengert as wg
    >>> wg.lgamma(wg.ones(2, dtype=wg.complex64))
    Traceback (most recent call last):
        ...
    wengert.errors.DTypeError: lgamma: got complex64, but it is defined for real floating numbers; ...
    """


class DeviceError(WengertError, RuntimeError):
    """A device that is not there, or operands on different devices."""


class IndexRangeError(WengertError, IndexError):
    """An index outside the range of its axis.

    >>> import wengert as wg
    >>> wg.ones(3)[5]
    Traceback (most recent call last):
        ...
    wengert.errors.IndexRangeError: getitem: index 5 is out of range for axis 0 with size 3 of float32(3,)
    """


class ArgumentError(WengertError, ValueError):
    """An argument whose value makes no sense for the operation.

    >>> import wengert as wg
    >>> wg.dropout(wg.ones(3), 1.5)
    Traceback (most recent call last):
        ...
    wengert.errors.ArgumentError: dropout: the probability must be between 0 and 1, got 1.5
    """


class NumberRangeError(ArgumentError, OverflowError):
    """A number that an element type cannot hold.

    >>> import wengert as wg
    >>> wg.ones(3, dtype=wg.uint8) * 1000
    Traceback (most recent call last):
        ...
    wengert.errors.NumberRangeError: mul: the integer 1000 does not fit uint8; ...
    """


class LoadError(WengertError, ValueError):
    """A file that is damaged, hostile, or not what it should be."""


class GradientError(WengertError, RuntimeError):
    """A derivative that cannot be computed as asked.

    >>> import wengert as wg
    >>> wg.ones(3).sum().backward()
    Traceback (most recent call last):
        ...
    wengert.errors.GradientError: backward: no operation was recorded for this tensor float32(): ...
    """


class SparsityError(GradientError):
    """A pattern that lacks an entry of the derivative, or has too many to be sparse."""


class TapeConsumedError(GradientError):
    """A tape that is not persistent was used twice.

    >>> import wengert as wg
    >>> x = wg.tensor(3.0)
    >>> with wg.GradientTape() as tape:
    ...     y = x * x
    >>> _ = tape.gradient(y, x)
    >>> tape.gradient(y, x)
    Traceback (most recent call last):
        ...
    wengert.errors.TapeConsumedError: this tape was consumed by an earlier gradient() or backward(); ...
    """


class InPlaceError(GradientError):
    """A value that a derivative needs was overwritten."""


class AnomalyError(WengertError, FloatingPointError):
    """An infinity or a NaN that reached a loss, a gradient or a result, with the operation that made the first of them.

    `op`; `line`, the user's; `index` of the element; `backward`, whether it is the derivative of the op that made it;
    `operands`, what stood in them there; `chain`, the calls from there on.
    """

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        line: str = "",
        index: tuple[int, ...] | None = None,
        backward: bool = False,
        operands: Sequence[str] = (),
        chain: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.op, self.line, self.index, self.backward = op, line, index, backward
        self.operands, self.chain = list(operands), list(chain)


class LinAlgError(WengertError, np.linalg.LinAlgError):
    """A matrix for which a computation has no result: singular, not positive definite, or without convergence.

    >>> import wengert as wg
    >>> wg.linalg.inv(wg.zeros((2, 2)))
    Traceback (most recent call last):
        ...
    wengert.errors.LinAlgError: inv: the matrix of float32(2, 2) is singular
    """


class BudgetError(WengertError, MemoryError):
    """A memory budget that cannot be met."""


class CustomOpError(GradientError):
    """A custom operation that broke its contract, or lacks the rule that was asked for.

    >>> import wengert as wg
    >>> @wg.custom_op
    ... def double(x):
    ...     return x + x
    >>> wg.grad(double)(1.0)
    Traceback (most recent call last):
        ...
    wengert.errors.CustomOpError: ...
    """


class TraceError(WengertError, RuntimeError):
    """A function that cannot be traced: it branches on data, or changes Python objects.

    >>> import wengert as wg
    >>> wg.compile(lambda x: x if x > 0 else -x)(wg.tensor(1.0))
    Traceback (most recent call last):
        ...
    wengert.errors.TraceError: the traced function branches on the data of a tensor bool[], ...
    """


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
    "budget": BudgetError,
}
