"""Collectives between the examples of `vmap`: sums and means over a named mapped axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert import tree
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.passes.example_axis import OneForAll, spread
from wengert.program.call_trace import call_trace
from wengert.program.ir import Type
from wengert.registry.record import OPS
from wengert.registry.zero import ZERO
from wengert.tensors.conversion import asarray
from wengert.transforms.regions import region_op
from wengert.transforms.vmap import ExampleTrace


def psum(x: Any, axis_name: str) -> Any:
    """Σᵢ xᵢ over the examples of `vmap(..., axis_name=axis_name)`, the same for each of them; x may be a container.

    >>> import wengert as wg
    >>> normalise = wg.vmap(lambda x: x / wg.psum(x, "batch"), axis_name="batch")
    >>> normalise(wg.tensor([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    trace = _mapped(axis_name, "psum")
    return tree.map(lambda v: _sum(v, trace.anchor), x)


def pmean(x: Any, axis_name: str) -> Any:
    """The mean of x over the examples of `vmap(..., axis_name=axis_name)`, the same for each of them.

    >>> import wengert as wg
    >>> centre = wg.vmap(lambda x: x - wg.pmean(x, "batch"), axis_name="batch")
    >>> centre(wg.tensor([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    trace = _mapped(axis_name, "pmean")
    return tree.map(lambda v: _sum(v, trace.anchor) / trace.size, x)


def _mapped(axis_name: str, what: str) -> ExampleTrace:
    """The innermost vmap around this call whose axis has this name."""
    names = []
    trace: Any = call_trace()
    while trace is not None:
        if isinstance(trace, ExampleTrace) and trace.axis_name is not None:
            if trace.axis_name == axis_name:
                return trace
            names.append(trace.axis_name)
        trace = getattr(trace, "outer", None)
    known = f"the axes mapped here are {', '.join(map(repr, names))}" if names else "no axis with a name is mapped here"
    raise ArgumentError(
        f"{what}: there is no axis {axis_name!r}; {known}. Name one with vmap(f, axis_name={axis_name!r})"
    )


# The operands are x and a number that belongs to the vmap to sum over: x is summed where that number is batched.


def _sum(x: Any, anchor: Any) -> Any:
    x = x if isinstance(x, Tensor) else asarray(x)
    return _over_examples(x, anchor)


def _over_examples(x: Any, anchor: Any) -> Any:
    return _OP([x, anchor], x.dtype.code, tuple(x.shape))


def _jvp(x_dot: Any, anchor_dot: Any, y: Any, x: Any, anchor: Any, dtype: int, shape: Any) -> Any:
    return ZERO if x_dot is ZERO else _over_examples(x_dot, anchor)


def _transpose(y_bar: Any, which: Sequence[int], operands: Sequence[Any], dtype: int, shape: Any) -> list[Any]:
    # Every example receives the sum, so the cotangent of each term is the sum of all cotangents.
    return [_over_examples(y_bar, operands[1])]


def _batched(size: Any, mapped: Sequence[bool], x: Any, anchor: Any, dtype: int, shape: Any) -> Any:
    of_all = x if mapped[0] else spread(x, size)
    return OneForAll(OPS["sum"](of_all, (0,), 0)) if mapped[1] else _over_examples(of_all, anchor)


def _refuse(operands: Sequence[Any], attrs: Sequence[Any], leaves: list[Any], sizes: list[Any]) -> Any:
    raise AssertionError("vmap sums over the examples before anything runs")


_OP = region_op(
    "sum_over_examples",
    1,
    [("dtype", "integer"), ("shape", "sizes")],
    evaluated=_refuse,
    infer=lambda attrs: [Type(attrs[0], tuple(attrs[1]))],
    jvp=_jvp,
    transpose=(_transpose,),
    vmap=_batched,
)


__all__ = ["pmean", "psum"]
