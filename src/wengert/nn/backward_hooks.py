"""The basis of `Module.register_full_backward_hook`: identities before and after the module that see its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wengert import tree
from wengert._core import Tensor
from wengert.autograd.custom import CustomOp
from wengert.errors import ArgumentError


def _tracked(x: Any) -> bool:
    return isinstance(x, Tensor) and bool(x.requires_grad)


class _Identity(CustomOp):
    """Its inputs, as they are; `seen` gets their gradients, and may return others."""

    def __init__(self, seen: Callable[[tuple[Any, ...]], Sequence[Any]]) -> None:
        self._seen = seen

    def forward(self, *xs: Any) -> Any:
        return xs

    def backward(self, *bars_and_inputs: Any) -> Any:
        return tuple(self._seen(bars_and_inputs[: len(bars_and_inputs) // 2]))


class GradientWatch:
    """One call of a module with backward hooks."""

    def __init__(self, module: Any, hooks: Iterable[Callable[..., Any]]) -> None:
        self._module, self._hooks = module, hooks
        self._by_outputs: tuple[Any, ...] = ()
        self._which: list[bool] = []  # arguments that are tracked

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with tensors that are tracked behind an identity."""
        self._which = [_tracked(x) for x in args]
        if not any(self._which):
            return args
        behind = iter(_Identity(self._by_inputs)(*(x for x in args if _tracked(x))))
        return tuple(next(behind) if w else x for x, w in zip(args, self._which))

    def outputs(self, result: Any) -> Any:
        """The module's results, with each tracked tensor behind an identity."""
        leaves, structure = tree.flatten(result)
        which = [_tracked(y) for y in leaves]
        if not any(which):
            return result
        behind = iter(_Identity(self._seen_outputs)(*(y for y in leaves if _tracked(y))))
        return tree.unflatten(structure, [next(behind) if w else y for y, w in zip(leaves, which)])

    def _seen_outputs(self, bars: tuple[Any, ...]) -> Sequence[Any]:
        self._by_outputs = bars
        if not any(self._which):
            self._called((None,) * len(self._which))
        return bars

    def _by_inputs(self, bars: tuple[Any, ...]) -> Sequence[Any]:
        given = iter(bars)
        gradients = self._called(tuple(next(given) if w else None for w in self._which))
        return [g for g, w in zip(gradients, self._which) if w]

    def _called(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in tuple(self._hooks):
            changed = hook(self._module, gradients, self._by_outputs)
            if changed is None:
                continue
            new = changed if isinstance(changed, tuple) else (changed,)
            if len(new) != len(gradients):
                raise ArgumentError(
                    f"a backward hook of {type(self._module).__name__} returned {len(new)} gradients for {len(gradients)} "
                    "arguments"
                )
            gradients = new
        return gradients
