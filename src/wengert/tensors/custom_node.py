"""Nodes whose derivative is a Python function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wengert import _core
from wengert._core import Tensor


@contextlib.contextmanager
def tapes_paused() -> Iterator[None]:
    """A scope in which tapes record nothing and track no tensors."""
    _core.pause_tapes()
    try:
        yield
    finally:
        _core.resume_tapes()


def record_node(pullback: Callable[..., Any], inputs: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
    """Tensors with these values as the outputs of one node; the values themselves if none of the inputs is tracked.

    `pullback(bars)` gives the cotangents of the inputs; `pullback(bars, node)` gives such that are recorded.
    """
    outputs = [_core.untracked_name(y) for y in values]
    if outputs:
        _core.record_custom(pullback, list(inputs), outputs)
    edges = [_core.node_of(y) if y.dtype.is_inexact else None for y in outputs]
    return [y if e is None else _core.reattach(e[0], e[1], out) for y, e, out in zip(values, edges, outputs)]
