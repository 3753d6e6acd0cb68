"""The further arguments of users' functions: tensors, which are parameters, and everything else, which stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert import tree
from wengert._core import Tensor
from wengert.dtypes import DType
from wengert.tensors.conversion import asarray


class Arguments:
    """Arguments in nested containers, with their tensors as a list.

    Floating numbers and arrays become tensors, numbers in the dtype of the unknowns: other numbers do not compile anew.
    """

    def __init__(self, args: tuple[Any, ...], real: DType) -> None:
        leaves, self._structure = tree.flatten(args)
        self._leaves = [_parameter(x, real) for x in leaves]
        self.tensors = [x for x in self._leaves if isinstance(x, Tensor)]

    def filled(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with other tensors."""
        fresh = iter(tensors)
        leaves = [next(fresh) if isinstance(x, Tensor) else x for x in self._leaves]
        found: tuple[Any, ...] = tree.unflatten(self._structure, leaves)
        return found


def _parameter(x: Any, real: DType) -> Any:
    if isinstance(x, (float, np.floating)):
        return asarray(float(x), dtype=real)
    return asarray(x) if isinstance(x, np.ndarray) else x


class Floating:
    """Which of a list of tensors have derivatives, and the list with other tensors in their places."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._all = list(tensors)
        self.places = [k for k, x in enumerate(tensors) if x.dtype.is_inexact]
        self.tensors = [self._all[k] for k in self.places]

    def filled(self, floating: Sequence[Any]) -> list[Any]:
        """All of them."""
        filled = list(self._all)
        for k, value in zip(self.places, floating):
            filled[k] = value
        return filled
