"""Where gradients are: in a map, in the `.grad` of parameters, or in containers of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.errors import ArgumentError
from wengert.nn.parameter import Parameter
from wengert.program.call_trace import call_trace
from wengert.tree import flatten, is_container, unflatten


class Found(NamedTuple):
    """Gradients, the parameters they belong to (None where unknown), and how new ones are put back."""

    gradients: list[Tensor]
    parameters: list[Tensor | None]
    put: Callable[[list[Tensor]], Any]


def find(source: Any, params: Any = None) -> Found:
    """The gradients in a GradientMap, a module, parameters, or a nested container of gradients.

    Putting back writes into the map or the `.grad`s and returns the source; of a container it returns a new one.
    `params` says which parameters gradients of a map or of a container belong to.
    """
    held = _held(source, params)
    if held is not None:
        return held
    leaves, _ = _leaves(source)
    # Inside `grad`, gradients are leaves themselves: only what is a Parameter, or has a gradient, is no gradient.
    if leaves and (
        all(isinstance(x, Parameter) for x in leaves) or any(x._plain and x.grad is not None for x in leaves)
    ):
        return _of_parameters(leaves, source)
    return in_containers(source, params)


def find_in_place(source: Any, who: str, instead: str) -> Found:
    """The gradients in a GradientMap, a module or parameters: where they can be exchanged."""
    held = _held(source, None)
    if held is not None:
        return held
    leaves, _ = _leaves(source)
    if not all(_is_trained(x) for x in leaves):
        raise ArgumentError(
            f"{who}: changes the gradients in a map or in the .grad of parameters; for tensors that are gradients "
            f"themselves there is {instead}, which returns new ones"
        )
    return _of_parameters(leaves, source)


def _is_trained(x: Any) -> bool:
    """Whether x is a leaf that requires a gradient; of a function that is traced, one that is given to it."""
    trace = call_trace()
    given = trace.given(x) if trace is not None else x
    return isinstance(given, Tensor) and given._plain and given.is_leaf and given.requires_grad


def in_containers(source: Any, params: Any = None) -> Found:
    """Gradients as leaves of nested containers."""
    leaves, structure = _leaves(source)
    owners = _parameters(params) or [None] * len(leaves)
    return Found(leaves, owners, lambda new: unflatten(structure, new))


def _held(source: Any, params: Any) -> Found | None:
    if isinstance(source, GradientMap):
        keys = list(source.keys())
        known = {p.id: p for p in _parameters(params)}
        return Found([source[k] for k in keys], [known.get(k) for k in keys], lambda new: _into_map(source, keys, new))
    if hasattr(source, "named_parameters"):
        return _of_parameters(_parameters(source), source)
    return None


def _of_parameters(parameters: list[Tensor], source: Any) -> Found:
    chosen = [p for p in parameters if p.grad is not None]
    gradients: list[Any] = [p.grad for p in chosen]
    return Found(gradients, list(chosen), lambda new: _into_parameters(chosen, new, source))


def _leaves(source: Any) -> tuple[list[Any], Any]:
    if not (isinstance(source, (Iterable, Tensor)) or is_container(source)) or source is None:
        raise ArgumentError(f"gradients must be a map, a module, or containers of tensors, got {type(source).__name__}")
    leaves, structure = flatten(source if isinstance(source, Tensor) or is_container(source) else list(source))
    wrong = next((x for x in leaves if not isinstance(x, Tensor)), None)
    if wrong is not None:
        raise ArgumentError(f"gradients must be a map, a module, or containers of tensors, got {type(wrong).__name__}")
    return leaves, structure


def _parameters(params: Any) -> list[Any]:
    if params is None:
        return []
    if hasattr(params, "named_parameters"):
        return [p for _, p in params.named_parameters()]
    return flatten(params if isinstance(params, Tensor) or is_container(params) else list(params))[0]


def _into_map(source: GradientMap, keys: Iterable[int], new: list[Tensor]) -> GradientMap:
    for key, g in zip(keys, new):
        source[key] = g
    return source


def _into_parameters(parameters: Iterable[Tensor], new: list[Tensor], source: Any) -> Any:
    for p, g in zip(parameters, new):
        p.grad = g
    return source
