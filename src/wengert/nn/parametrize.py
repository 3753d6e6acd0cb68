"""Parametrisations: a parameter of a module that is computed from others, in every call anew.

`weight_norm` and `spectral_norm` are two; `register_parametrization` takes any module that computes one tensor of another.
States have PyTorch's names, such as `parametrizations.weight.original0`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.nn.containers import ModuleDict
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tensors.random import Generator, randn


class Parametrization(Module):
    """The source of a parametrised tensor: `original` (or `original0`, `original1`, …), and a function of it."""

    def __init__(self, function: Module, value: Tensor) -> None:
        self._function = function
        invert = getattr(function, "right_inverse", lambda x: x)
        with no_grad():
            originals = invert(value.detach())
        self._several = len(originals) if isinstance(originals, tuple) else 0
        listed = originals if isinstance(originals, tuple) else (originals,)
        for name, x in zip(self._names(), listed):
            setattr(self, name, Parameter(x.detach().clone(), requires_grad=value.requires_grad))

    def _names(self) -> list[str]:
        return [f"original{k}" for k in range(self._several)] if self._several else ["original"]

    def _held(self) -> Iterator[tuple[Any, Any]]:
        yield from ((k, v) for k, v in vars(self).items() if k != "_function")
        yield 0, self._function

    def _exchange(self, key: Any, value: Any) -> None:
        super()._exchange("_function" if key == 0 else key, value)

    def forward(self) -> Any:
        """The tensor."""
        return self._function(*(getattr(self, name) for name in self._names()))

    def assign(self, value: Tensor) -> None:
        """Make the originals such that the tensor is this one."""
        made = getattr(self._function, "right_inverse", lambda x: x)(value)
        with no_grad():
            for name, x in zip(self._names(), made if isinstance(made, tuple) else (made,)):
                getattr(self, name)._assign(x, "assign")


def _computed(name: str) -> property:
    def read(module: Any) -> Any:
        return module.parametrizations[name]()

    def write(module: Any, value: Any) -> None:
        module.parametrizations[name].assign(value)

    return property(read, write, doc=f"`{name}`, computed from what `parametrizations` holds.")


def register_parametrization(module: Module, name: str, parametrization: Module) -> Module:
    """Let a module compute its parameter `name` as `parametrization(original)`; returns the module.

    The module's `parametrizations` holds the original, which is trained in its place. A method `right_inverse(value)` of the
    parametrisation says which original, or tuple of them, gives a value; by default it is the value itself.

    >>> import wengert as wg
    >>> class Symmetric(wg.nn.Module):
    ...     def forward(self, x):
    ...         return wg.triu(x) + wg.triu(x, k=1).T
    >>> layer = register_parametrization(wg.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all()), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    value = vars(module).get(name)
    if not isinstance(value, Parameter):
        raise ArgumentError(f"register_parametrization: {type(module).__name__} has no parameter {name!r} of its own")
    made = Parametrization(parametrization, value)
    if "parametrizations" not in vars(module):
        module.parametrizations = ModuleDict()  # type: ignore[attr-defined]
    held: Any = module.parametrizations  # type: ignore[attr-defined]
    held[name] = made
    delattr(module, name)
    # The class is this one module's: another one of the same kind keeps its plain parameter.
    own = type(module)
    module.__class__ = type(own.__name__, (own,), {name: _computed(name), "__module__": own.__module__})
    return module


def remove_parametrization(module: Module, name: str = "weight") -> Module:
    """Make a plain parameter again, with the value that it has now; returns the module.

    >>> import wengert as wg
    >>> layer = remove_parametrization(weight_norm(wg.nn.Linear(3, 2)))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight']
    """
    held: Any = vars(module).get("parametrizations", {})
    if name not in held:
        raise ArgumentError(f"remove_parametrization: {name!r} of {type(module).__name__} is not parametrised")
    value: Any = getattr(module, name).detach()
    trained = any(p.requires_grad for p in held[name].parameters())
    del held[name]
    if not len(held):
        del module.parametrizations  # type: ignore[attr-defined]
    hidden = [c for c in type(module).__mro__ if name in vars(c) and isinstance(vars(c)[name], property)]
    delattr(hidden[0], name)
    setattr(module, name, Parameter(value.clone(), requires_grad=trained))
    return module


class _WeightNorm(Module):
    def __init__(self, axis: int | None) -> None:
        self.axis = axis

    def _norm(self, v: Any) -> Any:
        axes = tuple(range(v.ndim)) if self.axis is None else tuple(k for k in range(v.ndim) if k != self.axis % v.ndim)
        return F.sqrt(F.sum(v * v, axes, keepdims=True))

    def forward(self, g: Tensor, v: Tensor) -> Any:
        """g v / |v|."""
        return v * (g / self._norm(v))

    def right_inverse(self, weight: Tensor) -> tuple[Any, Any]:
        """Lengths and directions."""
        return self._norm(weight), weight


def weight_norm(module: Module, name: str = "weight", axis: int | None = 0) -> Module:
    """Train the length and the direction of a weight apart: w = g v / |v| (Salimans and Kingma, 2016); returns the module.

    Lengths are those of the slices along `axis` (rows of a linear layer); None takes the whole weight as one vector.

    >>> import wengert as wg
    >>> layer = weight_norm(wg.nn.Linear(3, 2))
    >>> layer.parametrizations["weight"].original0.shape, layer(wg.ones((5, 3))).shape
    ((2, 1), (5, 2))
    """
    return register_parametrization(module, name, _WeightNorm(axis))


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, eps: float, axis: int, generator: Any) -> None:
        self.axis, self.eps, self.n_power_iterations = axis, eps, n_power_iterations
        with no_grad():
            w = self._matrix(weight.detach())
            for name, n in (("_u", w.shape[0]), ("_v", w.shape[1])):
                self.register_buffer(name, self._unit(randn(n, dtype=w.dtype, generator=generator)))
            self._iterate(w, 15)

    def _matrix(self, weight: Any) -> Any:
        w = weight if self.axis == 0 else F.moveaxis(weight, self.axis, 0)
        return F.reshape(w, (w.shape[0], -1))

    def _unit(self, x: Any) -> Any:
        return x / F.maximum(F.sqrt(F.sum(x * x)), self.eps)

    def _iterate(self, w: Any, times: int) -> None:
        """Power iterations on copies, which are then written in place."""
        u, v = self._u, self._v
        for _ in range(times):
            u = self._unit(F.matmul(w, v))
            v = self._unit(F.matmul(F.matrix_transpose(w), u))
        self._u._assign(u, "spectral_norm")
        self._v._assign(v, "spectral_norm")

    def forward(self, weight: Tensor) -> Any:
        """The weight divided by its largest singular value, as far as it is known."""
        w = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(w.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next call writes to the buffers
        return weight / F.sum(u * F.matmul(w, v))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    axis: int | None = None,
    *,
    generator: Generator | None = None,
) -> Module:
    """Divide a weight by its largest singular value, so that the layer's Lipschitz constant is 1 (Miyato et al., 2018).

    Returns the module. The singular vectors are buffers, which `n_power_iterations` improve in every call while training.
    The weight is a matrix of its rows along `axis`: 1 for transposed convolutions, and 0 else.

    >>> import wengert as wg
    >>> layer = spectral_norm(wg.nn.Linear(3, 2))
    >>> bool(abs(wg.linalg.svdvals(layer.weight.detach())[0] - 1.0) < 1e-2)
    True
    """
    if n_power_iterations < 1:
        raise ArgumentError(f"spectral_norm: n_power_iterations must be positive, got {n_power_iterations}")
    value = vars(module).get(name)
    if not isinstance(value, Parameter) or value.ndim < 2:
        raise ArgumentError(f"spectral_norm: {type(module).__name__} has no parameter {name!r} of two or more axes")
    chosen = (1 if "ConvTranspose" in type(module).__name__ else 0) if axis is None else axis
    return register_parametrization(module, name, _SpectralNorm(value, n_power_iterations, eps, chosen, generator))
