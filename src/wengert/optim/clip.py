"""Clipping of gradients."""

from __future__ import annotations

import math
from typing import Any

from wengert.errors import ArgumentError, GradientError, TraceError
from wengert.functional import isfinite, logical_and, where
from wengert.modes import no_grad
from wengert.optim import transforms
from wengert.optim.gradients import Found, find_in_place, in_containers
from wengert.program.call_trace import call_trace
from wengert.tensors.arguments import as_dtype_of


def clip_grad_norm(
    grads_or_params: Any, max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False
) -> Any:
    """Scale all gradients down, if necessary, so that their joint norm is at most `max_norm`; returns the norm
    before.

    - `grads_or_params`: the map that `backward` returns, or parameters, whose `.grad` is scaled in place.
    - `norm_type`: p of the norm, 2 by default; `inf` for the largest element.
    - `error_if_nonfinite`: raise if the norm is infinite or NaN.

    Inside a compiled function the norm is a float64 tensor without axes.

    >>> import wengert as wg
    >>> p = wg.Parameter([3.0, 4.0])
    >>> grads = (p * p).sum().backward()
    >>> clip_grad_norm(grads, 1.0), round(grads.global_norm(), 4)
    (10.0, 1.0)
    """
    transforms.clip_norm(max_norm)  # refuses a limit that is none
    found = find_in_place(grads_or_params, "clip_grad_norm", "clip_by_global_norm")
    with no_grad():
        if call_trace() is not None:
            return _clip_in_trace(found, max_norm, norm_type, error_if_nonfinite)
        total = float(transforms.norm(found.gradients, norm_type)) if found.gradients else 0.0
        if error_if_nonfinite and not math.isfinite(total):
            raise GradientError(
                f"clip_grad_norm: the norm of the gradients is {total}; optim.transforms.check_finite(net) names the "
                "gradients that are not finite"
            )
        factor = max_norm / (total + 1e-6)  # PyTorch's
        if factor < 1.0 or not math.isfinite(total):
            found.put([g * factor for g in found.gradients])
    return total


def _clip_in_trace(found: Found, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> Any:
    """The same without a look at the norm: gradients that are small enough are multiplied by one."""
    if error_if_nonfinite:
        raise TraceError(
            "clip_grad_norm: error_if_nonfinite looks at data, which a compiled function cannot; leave it out, and look at "
            "the norm that is returned outside of the function"
        )
    total = transforms.norm(found.gradients, norm_type)
    factor = max_norm / (total + 1e-6)
    factor = where(logical_and(factor >= 1.0, isfinite(total)), 1.0, factor)
    found.put([g * as_dtype_of(factor, g.dtype) for g in found.gradients])
    return total


def clip_grad_value(grads_or_params: Any, clip_value: float) -> None:
    """Cut every element of the gradients off at ±clip_value, in a map or in the `.grad` of parameters.

    >>> import wengert as wg
    >>> p = wg.Parameter([3.0, -0.25])
    >>> grads = (p * p).sum().backward()
    >>> clip_grad_value(grads, 1.0)
    >>> grads[p].tolist()
    [1.0, -0.5]
    """
    found = find_in_place(grads_or_params, "clip_grad_value", "clip_by_value")
    with no_grad():
        found.put(transforms.clip_value(clip_value).apply(found.gradients, found.parameters))


def clip_by_global_norm(gradients: Any, max_norm: float) -> Any:
    """New gradients, in the same containers, whose norm together is at most `max_norm`.

    >>> import wengert as wg
    >>> [g.item() for g in clip_by_global_norm([wg.tensor(3.0), wg.tensor(4.0)], 2.5)]
    [1.5, 2.0]
    """
    return _new(transforms.clip_norm(max_norm), gradients)


def clip_by_value(gradients: Any, clip_value: float) -> Any:
    """New gradients, in the same containers, cut off at ±clip_value.

    >>> import wengert as wg
    >>> clip_by_value([wg.tensor([3.0, -0.5])], 1.0)[0].tolist()
    [1.0, -0.5]
    """
    return _new(transforms.clip_value(clip_value), gradients)


def _new(transform: transforms.Transform, gradients: Any) -> Any:
    found = in_containers(gradients)
    return found.put(transform.apply(found.gradients, found.parameters))


class GradientClipper:
    """Clipping in one of four ways: the `norm` of all gradients, by `value`, the norm `per_layer`, or `adaptive`.

    `adaptive` limits each unit's gradient to `limit` times the norm of its weights, and needs the parameters.

    >>> import wengert as wg
    >>> p = wg.Parameter([3.0, 4.0])
    >>> grads = GradientClipper(1.0).clip_grads((p * p).sum().backward())
    >>> round(grads.global_norm(), 4)
    1.0
    """

    def __init__(self, limit: float = 1.0, mode: str = "norm") -> None:
        kinds = {
            "norm": transforms.clip_norm,
            "value": transforms.clip_value,
            "per_layer": transforms.clip_per_layer,
            "adaptive": transforms.clip_adaptive,
        }
        if mode not in kinds:
            raise ArgumentError(f"GradientClipper: mode must be one of {', '.join(kinds)}, got {mode!r}")
        if not limit > 0.0:
            raise ArgumentError(f"GradientClipper: limit must be positive, got {limit}")
        self.limit, self.mode = limit, mode
        self._transform = kinds[mode](limit)

    def clip_grads(self, grads: Any, params: Any = None) -> Any:
        """The gradients, clipped: the same map, `.grad`s that are replaced, or new containers."""
        return self._transform(grads, params)

    __call__ = clip_grads

    def __reduce__(self) -> Any:
        return type(self), (self.limit, self.mode)

    def __repr__(self) -> str:
        return f"GradientClipper({self.limit}, mode={self.mode!r})"
