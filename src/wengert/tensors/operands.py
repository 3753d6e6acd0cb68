"""Foreign operands: what may stand beside a tensor in an expression."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.tensors.conversion import asarray


def convert_operand(x: Any) -> Any:
    """A Python scalar or a Tensor for a NumPy scalar, array or nested list; NotImplemented for anything else.

    NumPy scalars are weak, like Python's: they never change the dtype of a tensor.
    """
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, (np.ndarray, list, tuple)):
        return asarray(x)
    return NotImplemented
