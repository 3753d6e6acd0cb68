"""Parameters: tensors that are trained."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError, GradientError, ShapeError
from wengert.modes import no_grad
from wengert.tensors import conversion, creation
from wengert.tensors.random import Generator
from wengert.tensors.random import randn as _randn


def reset_grads(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Forget the gradients of parameters, or make them zeros."""
    for p in parameters:
        p.grad = None if set_to_none or p.grad is None else creation.zeros_like(p.grad)


class Parameter(Tensor):
    """A tensor that requires a gradient and that modules and optimizers find; it owns a copy of its data.

    `data` is anything that `tensor` takes. `requires_grad=False` makes a frozen parameter.

    >>> import wengert as wg
    >>> p = Parameter(wg.tensor([1.0, 2.0]))
    >>> (p * p).sum().backward()[p].tolist()
    [2.0, 4.0]
    """

    __slots__ = ()

    def __init__(self, data: Any, *, requires_grad: bool = True) -> None:
        self._adopt(conversion.tensor(data))
        self.requires_grad = requires_grad

    @classmethod
    def _owning(cls, fresh: Tensor) -> Self:
        """A parameter that takes over a tensor nobody else holds."""
        p = cls.__new__(cls)
        p._adopt(fresh)
        p.requires_grad = True
        return p

    @classmethod
    def randn(
        cls,
        shape: Any,
        *,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: Any = None,
        device: Any = None,
        generator: Generator | None = None,
    ) -> Self:
        """A parameter of normal random numbers.

        >>> Parameter.randn((4, 3), mean=0.0, std=0.02).shape
        (4, 3)
        """
        return cls._owning(_randn(shape, mean=mean, std=std, dtype=dtype, device=device, generator=generator))

    @classmethod
    def zeros(cls, shape: Any, *, dtype: Any = None, device: Any = None) -> Self:
        """A parameter of zeros.

        >>> Parameter.zeros((2,)).tolist()
        [0.0, 0.0]
        """
        return cls._owning(creation.zeros(shape, dtype=dtype, device=device))

    @classmethod
    def ones(cls, shape: Any, *, dtype: Any = None, device: Any = None) -> Self:
        """A parameter of ones.

        >>> Parameter.ones((2,)).tolist()
        [1.0, 1.0]
        """
        return cls._owning(creation.ones(shape, dtype=dtype, device=device))

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]  # a method of other tensors
        """The data as a plain tensor, outside the graph; it shares memory with the parameter."""
        return self.detach()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradient: `.grad` is None again, or zeros if there was one and `set_to_none` is False."""
        reset_grads((self,), set_to_none)

    def set_grad(self, gradient: Any) -> None:
        """Make `gradient` the parameter's gradient.

        >>> p = Parameter.zeros((2,))
        >>> p.set_grad([1.0, 2.0])
        >>> p.grad.tolist()
        [1.0, 2.0]
        """
        self.grad = None if gradient is None else conversion.asarray(gradient, dtype=self.dtype)

    def update(self, lr: float) -> None:
        """One step of gradient descent: p ← p − lr · p.grad.

        >>> p = Parameter.ones((2,))
        >>> p.set_grad([1.0, 2.0])
        >>> p.update(0.5)
        >>> p.tolist()
        [0.5, 0.0]
        """
        if self.grad is None:
            raise GradientError(
                f"Parameter.update: this parameter of shape {self.shape} has no gradient; call backward() first"
            )
        self.apply_update(self.grad * -lr)

    def apply_update(self, update: Any) -> None:
        """p ← p + update, in place and unrecorded.

        >>> p = Parameter.ones((2,))
        >>> p.apply_update([1.0, -1.0])
        >>> p.tolist()
        [2.0, 0.0]
        """
        u = conversion.asarray(update, dtype=self.dtype)
        if tuple(u.shape) != tuple(self.shape):
            raise ShapeError(
                f"Parameter.apply_update: an update of shape {tuple(u.shape)} does not fit a parameter of shape {self.shape}"
            )
        with no_grad():
            self._assign(self + u, "apply_update")


class ParameterDict:
    """Parameters by name.

    >>> d = ParameterDict(weight=Parameter.ones((2, 3)))
    >>> d["bias"] = Parameter.zeros((2,))
    >>> [name for name, p in d.named_parameters()]
    ['weight', 'bias']
    """

    def __init__(self, parameters: Mapping[str, Parameter] | None = None, /, **more: Parameter) -> None:
        self._parameters: dict[str, Parameter] = {}
        for name, p in {**(parameters or {}), **more}.items():
            self[name] = p

    def __setitem__(self, name: str, parameter: Tensor) -> None:
        """Add or replace a parameter; other tensors become one."""
        if not isinstance(parameter, Tensor):
            raise ArgumentError(
                f"ParameterDict: {name!r} must be a Parameter or a tensor, got {type(parameter).__name__}"
            )
        self._parameters[name] = parameter if isinstance(parameter, Parameter) else Parameter(parameter)

    insert = __setitem__

    def __getitem__(self, name: str) -> Parameter:
        try:
            return self._parameters[name]
        except KeyError:
            raise KeyError(f"no parameter {name!r}; there are {', '.join(self._parameters) or 'none'}") from None

    def __delitem__(self, name: str) -> None:
        del self._parameters[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter of this name, or `default`."""
        return self._parameters.get(name, default)

    def parameters(self) -> list[Parameter]:
        """All parameters, in the order in which they were inserted."""
        return list(self._parameters.values())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter) pairs."""
        return iter(self._parameters.items())

    items = named_parameters

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Parameter]:
        """The parameters."""
        return self._parameters.values()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero."""
        for p in self._parameters.values():
            p.zero_grad(set_to_none)

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def __deepcopy__(self, memo: dict[int, Any]) -> ParameterDict:
        return ParameterDict(copy.deepcopy(self._parameters, memo))

    def __repr__(self) -> str:
        entries = ", ".join(f"{k}: {p.dtype.name}{tuple(p.shape)}" for k, p in self._parameters.items())
        return f"ParameterDict({{{entries}}})"


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements in one vector, one parameter after the other; differentiable.

    >>> parameters_to_vector([Parameter.ones((2, 2)), Parameter.zeros((1,))]).tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0]
    """
    listed = list(parameters)
    if not listed:
        raise ArgumentError("parameters_to_vector: there are no parameters")
    return F.concat([F.reshape(p, (-1,)) for p in listed])


def vector_to_parameters(vector: Any, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a vector into parameters, in place and unrecorded.

    >>> p = Parameter.zeros((2, 2))
    >>> vector_to_parameters(creation.ones((4,)), [p])
    >>> p.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    listed, v = list(parameters), conversion.asarray(vector).detach()
    size = sum(p.size for p in listed)
    if tuple(v.shape) != (size,):
        raise ShapeError(
            f"vector_to_parameters: the parameters have {size} elements, the vector has shape {tuple(v.shape)}"
        )
    start = 0
    with no_grad():
        for p in listed:
            p._assign(F.reshape(v[start : start + p.size], tuple(p.shape)).astype(p.dtype), "vector_to_parameters")
            start += p.size
