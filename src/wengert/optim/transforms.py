"""Transformations of gradients, to be chained: `optimizer.step(pipeline(loss.backward()))`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.autograd.gradient_norm import norm
from wengert.errors import ArgumentError, GradientError
from wengert.optim.gradients import find
from wengert.tensors.arguments import as_dtype_of, native
from wengert.tensors.random import Generator, randn_like

_square, _abs, _maximum, _sqrt, _minimum, _isfinite = (
    native(n) for n in ("square", "abs", "maximum", "sqrt", "minimum", "isfinite")
)

__all__ = [
    "Transform",
    "chain",
    "check_finite",
    "clip_adaptive",
    "clip_norm",
    "clip_per_layer",
    "clip_value",
    "each",
    "noise",
    "norm",
    "scale",
]

Gradients = list[Tensor]
Owners = list[Tensor | None]


class Transform:
    """A function of gradients, perhaps with a state. Write `apply`; gradients may come in any form.

    `transform(grads, params=None)` takes a GradientMap, a module or parameters (then their `.grad`s are replaced), or
    containers of gradients (then new ones are returned, and derivatives flow).

    >>> import wengert as wg
    >>> class Signs(Transform):
    ...     def apply(self, gradients, parameters):
    ...         return [wg.sign(g) for g in gradients]
    >>> Signs()([wg.tensor([3.0, -0.5])])[0].tolist()
    [1.0, -1.0]
    """

    def __call__(self, grads: Any, params: Any = None) -> Any:
        found = find(grads, params)
        return found.put(self.apply(found.gradients, found.parameters))

    def apply(self, gradients: Gradients, parameters: Owners) -> Gradients:
        """New gradients; `parameters` are those they belong to, None where that is not known."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    def state_dict(self) -> dict[str, Any]:
        """What changes from call to call; nothing for most."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""


class _Function(Transform):
    def __init__(self, f: Callable[[Gradients, Owners], Gradients]) -> None:
        self._f = f

    def apply(self, gradients: Gradients, parameters: Owners) -> Gradients:
        return self._f(gradients, parameters)


class _Chain(Transform):
    def __init__(self, transforms: tuple[Transform, ...]) -> None:
        self._transforms = transforms

    def apply(self, gradients: Gradients, parameters: Owners) -> Gradients:
        for t in self._transforms:
            gradients = t.apply(gradients, parameters)
        return gradients

    def state_dict(self) -> dict[str, Any]:
        return {str(k): t.state_dict() for k, t in enumerate(self._transforms)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for k, t in enumerate(self._transforms):
            t.load_state_dict(state[str(k)])


def chain(*transforms: Transform) -> Transform:
    """One after the other.

    >>> import wengert as wg
    >>> pipeline = chain(clip_value(1.0), scale(0.5))
    >>> [g.tolist() for g in pipeline([wg.tensor([3.0, -0.5])])]
    [[0.5, -0.25]]
    """
    return _Chain(transforms)


def each(f: Callable[[Tensor], Tensor]) -> Transform:
    """f of every gradient.

    >>> import wengert as wg
    >>> each(lambda g: -g)(wg.tensor([1.0])).tolist()
    [-1.0]
    """
    return _Function(lambda gradients, _: [f(g) for g in gradients])


def scale(factor: float) -> Transform:
    """Every gradient times a number.

    >>> import wengert as wg
    >>> scale(0.5)(wg.tensor([1.0, 2.0])).tolist()
    [0.5, 1.0]
    """
    return each(lambda g: g * factor)


def _scaled(g: Tensor, factor: Tensor) -> Tensor:
    return g * as_dtype_of(factor, g.dtype)


def _require_limit(limit: float, what: str) -> None:
    if not limit >= 0.0:  # a negative one would turn the gradients around
        raise ArgumentError(f"{what}: the limit must not be negative, got {limit}")


def clip_norm(max_norm: float) -> Transform:
    """All gradients together scaled down to this norm, if theirs is larger (Pascanu et al., 2013).

    >>> import wengert as wg
    >>> clip_norm(1.0)([wg.tensor([3.0]), wg.tensor([4.0])])[1].item()
    0.8...
    """
    _require_limit(max_norm, "clip_norm")

    def clip(gradients: Gradients, _: Owners) -> Gradients:
        if not gradients:
            return gradients
        factor = max_norm / _maximum(norm(gradients), max_norm)
        return [_scaled(g, factor) for g in gradients]

    return _Function(clip)


def clip_per_layer(max_norm: float) -> Transform:
    """Every gradient scaled down to this norm by itself.

    >>> import wengert as wg
    >>> [g.tolist() for g in clip_per_layer(5.0)([wg.tensor([6.0, 8.0]), wg.tensor([1.0])])]
    [[3.0, 4.0], [1.0]]
    """
    _require_limit(max_norm, "clip_per_layer")
    return each(lambda g: _scaled(g, max_norm / _maximum(norm([g]), max_norm)))


def clip_value(limit: float) -> Transform:
    """Every element cut off at ±limit.

    >>> import wengert as wg
    >>> clip_value(1.0)(wg.tensor([3.0, -0.5])).tolist()
    [1.0, -0.5]
    """
    _require_limit(limit, "clip_value")
    return each(lambda g: F.clip(g, -limit, limit))


def _unit_norms(x: Tensor) -> Tensor:
    """One norm per unit, along axis 0; of vectors and numbers one per element."""
    axes = tuple(range(1, x.ndim))
    return _sqrt(F.sum(_square(x), axis=axes, keepdims=True)) if axes else _abs(x)


def clip_adaptive(clipping: float = 0.01, eps: float = 1e-3) -> Transform:
    """Unit by unit, ‖g‖ is at most `clipping` · max(‖w‖, eps) (Brock et al., 2021). It needs to know the parameters.

    >>> import wengert as wg
    >>> w, g = wg.tensor([[3.0, 4.0]]), wg.tensor([[30.0, 40.0]])
    >>> clip_adaptive(0.1)([g], [w])[0].tolist()
    [[0.29999..., 0.39999...]]
    """

    def clip(gradients: Gradients, parameters: Owners) -> Gradients:
        if any(p is None for p in parameters):
            raise ArgumentError("clip_adaptive: pass the parameters as well: transform(grads, net)")
        new = []
        for g, p in zip(gradients, parameters):
            most = _maximum(_unit_norms(p.detach()), eps) * clipping  # type: ignore[union-attr]
            new.append(g * _minimum(most / _maximum(_unit_norms(g), 1e-6), 1.0))
        return new

    return _Function(clip)


class _Noise(Transform):
    def __init__(self, eta: float, gamma: float, generator: Generator | None) -> None:
        self.eta, self.gamma, self.steps = eta, gamma, 0
        self.generator = generator or Generator(seed=0)

    def apply(self, gradients: Gradients, parameters: Owners) -> Gradients:
        self.steps += 1
        std = math.sqrt(self.eta / self.steps**self.gamma)
        return [g + randn_like(g, std=std, generator=self.generator) for g in gradients]

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "generator": list(self.generator.get_state())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])
        seed, counter = state["generator"]
        self.generator.set_state((seed, counter))


def noise(eta: float = 0.01, gamma: float = 0.55, *, generator: Generator | None = None) -> Transform:
    """Normal noise of variance η / tᵞ at call t (Neelakantan et al., 2015).

    >>> import wengert as wg
    >>> noise(0.1)(wg.zeros((3,))).shape
    (3,)
    """
    return _Noise(eta, gamma, generator)


def check_finite(net: Any = None) -> Transform:
    """The gradients as they are, or an error that names those with infinities or NaN. `net` gives the names.

    >>> import wengert as wg
    >>> check_finite()([wg.tensor([1.0, float("nan")])])
    Traceback (most recent call last):
    wengert.errors.GradientError: gradient 0 float32(2,) has 1 of 2 elements that are not finite
    """

    def check(gradients: Gradients, parameters: Owners) -> Gradients:
        known = {} if net is None else {p.id: name for name, p in net.named_parameters()}
        problems = []
        for k, (g, p) in enumerate(zip(gradients, parameters)):
            bad = int(g.size) - int(F.count_nonzero(_isfinite(g.detach())).item())
            if bad:
                name = str(k) if p is None else known.get(p.id, str(k))
                label = f"gradient {name} {g.dtype.name}{tuple(g.shape)}"
                problems.append(f"{label} has {bad} of {g.size} elements that are not finite")
        if problems:
            raise GradientError("\n  ".join(problems))
        return gradients

    return _Function(check)


def __dir__() -> list[str]:
    return __all__
