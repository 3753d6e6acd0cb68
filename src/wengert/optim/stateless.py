"""Optimizers as pure functions of nested containers: the rule of the step, without its side effects."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import float64
from wengert.errors import ArgumentError
from wengert.optim.update import state_dtype
from wengert.optim.update_batch import wide_rule
from wengert.tensors.arguments import as_dtype_of
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import full, zeros
from wengert.tensors.device import like
from wengert.tree import flatten, leaves_like, unflatten

_compiled = functools.cache(composite)


def init(cls: Any, params: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The state before the first step."""
    cls.check(options)
    leaves, structure = flatten(params)
    state: dict[str, Any] = {"step": zeros((), dtype=float64)}
    for k, (name, value) in enumerate(cls.slots(options).items()):
        shapes = [cls.state_shapes(options, tuple(p.shape))[k] for p in leaves]
        made = [full(shape, value, dtype=state_dtype(p.dtype), device=like(p)) for shape, p in zip(shapes, leaves)]
        state[name] = unflatten(structure, made)
    return state


def update(
    cls: Any, params: Any, grads: Any, state: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """New parameters and the state after one more step."""
    slots = list(cls.slots(options))
    if sorted(("step", *slots)) != sorted(state):
        raise ArgumentError(
            f"{cls.__name__}.update: with these options the state has {', '.join(('step', *slots))}; given is "
            f"{', '.join(state)}. Call init and update with the same options"
        )
    # Tensors, in double precision: then neither the rate nor the step count is a constant of a trace.
    lr, step = options["lr"], state["step"] + 1.0
    rate = as_dtype_of(lr, float64) if isinstance(lr, Tensor) else asarray(lr, dtype=float64)
    scalars = cls.scalars({**options, "lr": rate}, step)
    rule = _compiled(cls.rule(options))
    leaves, structure = flatten(params)
    others = [leaves_like(grads, structure, f"{cls.__name__}.update: the gradients tree")]
    others += [leaves_like(state[name], structure, f"{cls.__name__}.update: state {name!r}") for name in slots]
    new = []
    for p, *rest in zip(leaves, *others):
        wide = state_dtype(p.dtype)
        given = [as_dtype_of(x, wide) if isinstance(x, Tensor) else x for x in scalars]
        new.append(wide_rule(rule, p, *rest, *given))
    trees = [unflatten(structure, [r[k] for r in new]) for k in range(1 + len(slots))]
    return trees[0], {"step": step, **dict(zip(slots, trees[1:]))}
