"""Named results of functions that give several tensors."""

from __future__ import annotations

from typing import NamedTuple

from wengert._core import Tensor


class ValuesAndIndices(NamedTuple):
    """Elements, and where along the axis they were found."""

    values: Tensor
    indices: Tensor
