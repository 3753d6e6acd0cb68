"""Cross entropy of rows of logits and a class each.

With probabilities p = softmax(x), and q, which is 1 at the class: loss = −Σ q ln p and

    loss_dot = Σ (p − q) x_dot

`cross_entropy_tangent` gives it, `cross_entropy_cotangent` is its transpose. So that backward keeps the logits alone, they
compute p again, from the largest logit and ln Σ exp(x − largest) of each row. These two numbers are functions of x: no
derivative goes through them. The derivatives of both ops go through a softmax.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.reduce import sum
from wengert.ops.shape import broadcast_to, cast, reshape
from wengert.ops.softmax import softmax, softmax_push
from wengert.ops.sparsity import through
from wengert.ops.tangents import where
from wengert.ops.transcendental import exp
from wengert.registry.record import Op, define
from wengert.registry.samples import Invalid, Sample, exactly, index, real, whole
from wengert.registry.zero import ZERO


def _along(rows: Any, x: Any) -> Any:
    """One number for each row, in the place of all its elements."""
    return broadcast_to(reshape(rows, (*rows.shape, 1)), x.shape)


def _sums(x: Any) -> Any:
    return sum(x, (x.ndim - 1,), 0)


def _jvp(x_dot: Any, classes_dot: Any, ys: Any, x: Any, classes: Any) -> Any:
    if x_dot is ZERO:
        return ZERO, ZERO, ZERO
    _, largest, log_total = ys
    is_largest = x == _along(largest, x)
    largest_dot = _sums(where(is_largest, x_dot, 0.0)) / _sums(cast(is_largest, x.dtype.code))
    p = exp((x - _along(largest, x)) - _along(log_total, x))
    loss_dot = cross_entropy_tangent(x_dot, x, classes, largest, log_total)
    return loss_dot, largest_dot, _sums(p * x_dot) - largest_dot


def _tangent_jvp(
    t_dot: Any, x_dot: Any, classes_dot: Any, largest_dot: Any, total_dot: Any, y: Any,
    t: Any, x: Any, classes: Any, largest: Any, log_total: Any,
) -> Any:  # fmt: skip
    y_dot: Any = ZERO if t_dot is ZERO else cross_entropy_tangent(t_dot, x, classes, largest, log_total)
    return y_dot if x_dot is ZERO else y_dot + _sums(softmax_push(x_dot, softmax(x)) * t)


def _cotangent_jvp(
    bar_dot: Any, x_dot: Any, classes_dot: Any, largest_dot: Any, total_dot: Any, y: Any,
    bar: Any, x: Any, classes: Any, largest: Any, log_total: Any,
) -> Any:  # fmt: skip
    y_dot: Any = ZERO if bar_dot is ZERO else cross_entropy_cotangent(bar_dot, x, classes, largest, log_total)
    return y_dot if x_dot is ZERO else y_dot + softmax_push(x_dot, softmax(x)) * _along(bar, x)


def _np_losses(x: Any, classes: Any) -> tuple[Any, Any, Any]:
    largest = x.max(-1, initial=-np.inf)
    near = x - largest[..., None]
    log_total = np.log(np.exp(near).sum(-1))
    return log_total - np.take_along_axis(near, classes[..., None], -1)[..., 0], largest, log_total


def _np_slope(x: Any, classes: Any, largest: Any, log_total: Any) -> Any:
    """p − q"""
    p = np.exp(x - largest[..., None] - log_total[..., None])
    return p - (np.arange(x.shape[-1]) == classes[..., None])


_SHAPES = [(3, 5), (7,), (2, 3, 67), (0, 3)]


def _classes(shape: tuple[int, ...]) -> Any:
    return index(*shape[:-1], below=shape[-1])


def _results(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Largest logits and logarithms of sums: any numbers of about this size."""
    return real(*shape[:-1], low=1.0, high=2.0), real(*shape[:-1], low=1.0, high=2.0)


cross_entropy: Op = define(
    "cross_entropy",
    precision="full",
    formula="−ln softmax(x) at the class of each row, the largest number of the row, and ln Σ exp(x − largest)",
    reference=_np_losses,
    jvp=_jvp,
    vmap="leading",
    samples=[
        *(Sample((real(*s), _classes(s))) for s in _SHAPES),
        Sample((real(2, 1100), index(2, below=1100)), gradients=False),  # two are nearly the largest
        Sample((exactly(1e4, -1e4, 1e4), exactly(1, shape=())), gradients=False),
        Sample((exactly(0.0, -np.inf, 1.0), exactly(2, shape=())), gradients=False),
    ],
    invalid=[
        Invalid((whole(2, 3), index(2, below=3)), (), "DTypeError", "real floating"),
        Invalid((real(2, 3), real(2)), (), "DTypeError", "int64"),
        Invalid((real(2, 3), index(3, below=3)), (), "ShapeError", "one number for each row"),
        Invalid((real(3), exactly(7, shape=())), (), "IndexRangeError", "7"),
    ],
    expensive=True,
    public=False,
)
cross_entropy_tangent: Op = define(
    "cross_entropy_tangent",
    formula="Σ (p − q) x_dot along rows, with p = exp(x − largest − log_total)",
    reference=lambda x_dot, *rest: (_np_slope(*rest) * x_dot).sum(-1),
    jvp=_tangent_jvp,
    transpose=(lambda y_bar, t, *rest: cross_entropy_cotangent(y_bar, *rest), *(None,) * 4),
    sparsity=through(lambda t, x, *_: _sums(softmax(x) * t)),
    vmap="leading",
    samples=[Sample((real(*s), real(*s), _classes(s), *_results(s)), gradients=False) for s in _SHAPES],
    invalid=[
        Invalid((real(2, 4), real(2, 3), index(2, below=3), real(2), real(2)), (), "ShapeError", "shape of the logits")
    ],
    expensive=True,
    public=False,
)
cross_entropy_cotangent: Op = define(
    "cross_entropy_cotangent",
    formula="(p − q) loss_bar, the transpose of cross_entropy_tangent",
    reference=lambda loss_bar, *rest: _np_slope(*rest) * loss_bar[..., None],
    jvp=_cotangent_jvp,
    transpose=(lambda y_bar, bar, *rest: cross_entropy_tangent(y_bar, *rest), *(None,) * 4),
    sparsity=through(lambda bar, x, *_: softmax(x) * _along(bar, x)),
    vmap="leading",
    samples=[Sample((real(*s[:-1]), real(*s), _classes(s), *_results(s)), gradients=False) for s in _SHAPES],
    invalid=[Invalid((real(3), real(2, 3), index(2, below=3), real(2), real(2)), (), "ShapeError", "for each row")],
    expensive=True,
    public=False,
)
