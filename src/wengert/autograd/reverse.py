"""Reverse mode for users: `backward`, `grad_of`, hooks."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, overload

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.errors import DTypeError, GradientError, ShapeError
from wengert.modes import enable_grad
from wengert.program.call_trace import Name
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import ones_like, zeros_like
from wengert.transforms.pullback import pull, require_real


def seed_for(y: Tensor, gradient: Any, what: str) -> Tensor:
    """The cotangent to start from: given, or one for a scalar."""
    if not y.dtype.is_inexact:
        raise DTypeError(f"{what}: {y.dtype.name}{tuple(y.shape)} has no gradient; only floating tensors have")
    if gradient is None:
        require_real(y, what)
        if y.size != 1:
            raise GradientError(
                f"{what}: the tensor has shape {tuple(y.shape)}; without a seed only a scalar can be differentiated. "
                "Reduce it (sum, mean), or pass a gradient of that shape"
            )
        return ones_like(y.detach() if y._plain else y)
    gradient = gradient if isinstance(gradient, Tensor) else asarray(gradient)
    if gradient._plain and gradient._pinned:
        gradient = OPS["copy"](gradient)  # gradients must not change with an array outside
    if tuple(gradient.shape) != tuple(y.shape):
        raise ShapeError(
            f"{what}: the seed has shape {tuple(gradient.shape)}, but the tensor has shape {tuple(y.shape)}"
        )
    seed: Tensor = gradient if gradient.dtype == y.dtype else gradient.astype(y.dtype)
    return seed


def as_tensors(given: Any, what: str) -> list[Tensor]:
    """One tensor or a sequence of them, as a list."""
    if isinstance(given, Tensor):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
        raise TypeError(f"{what} must be a tensor or a sequence of tensors, got {type(given).__name__}")
    tensors = list(given)
    for k, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"{what} must be a tensor or a sequence of tensors, got {type(x).__name__} at position {k}")
    return tensors


def require_recorded(y: Tensor, what: str) -> None:
    """Raise if nothing was recorded for y."""
    if y._plain and _core.node_of(y) is None:
        raise GradientError(
            f"{what}: no operation was recorded for this tensor {y.dtype.name}{tuple(y.shape)}: nothing that it was "
            "computed from requires a gradient, or it was computed under no_grad(). If it is a gradient itself, compute "
            "that one with create_graph=True"
        )


def _require_plain(y: Tensor) -> None:
    if y._plain:
        return
    text = f"{y.dtype.name}{tuple(y.shape)}"
    if hasattr(y, "tangent"):
        raise GradientError(
            f"backward: {text} is a forward-mode value (a DualTensor), whose derivative is in .tangent already; call "
            "backward() on .value or .tangent, or use grad(f) for reverse mode inside a function"
        )
    raise GradientError(
        f"backward: {text} is traced: a compiled or transformed function has no data to walk back through; call "
        "backward() on its result outside, or use grad(f) inside"
    )


def backward(
    self: Tensor,
    gradient: Any = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | Tensor | None = None,
) -> GradientMap:
    """Compute the gradients of this tensor with respect to all leaves that it was computed from.

    Returns them as a `GradientMap`, and also adds them to the `.grad` of the leaves, as PyTorch does.

    - `gradient`: how much each element of this tensor counts, in its shape; may be left out for a single number.
    - `retain_graph`: keep the recorded graph, so that `backward` can be called again.
    - `create_graph`: record the gradients' own computation, so that they can be differentiated.
    - `inputs`: compute gradients for these tensors alone, which may be intermediate results.

    >>> import wengert as wg
    >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
    >>> grads = (x * x).sum().backward()
    >>> grads[x].tolist(), x.grad.tolist()
    ([2.0, 4.0], [2.0, 4.0])
    """
    if isinstance(self, Name):
        return _backward_in_trace(self, gradient, bool(retain_graph) or create_graph, inputs)
    if inputs is None and not create_graph:
        simple = _core.backward_to_leaves(self, gradient, bool(retain_graph))
        if simple is not None:
            return GradientMap.of(*simple)
    _require_plain(self)
    require_recorded(self, "backward")
    seed = seed_for(self, gradient, "backward")
    retain = create_graph if retain_graph is None else retain_graph
    chosen = None if inputs is None else as_tensors(inputs, "backward: inputs")
    grads = GradientMap()
    grads._roots = [_core.node_of(self)[0]]
    edges = None if chosen is None else [_core.node_of(x) for x in chosen]
    gradients, reached, leaves, _, _ = _core.backward([(self, seed)], edges, retain, True, chosen is None, create_graph)
    for x, g, r in zip(chosen or (), gradients, reached):
        if r:
            grads[x] = zeros_like(x) if g is None else g
    for key, g in leaves:
        grads[key] = g
    return grads


def _backward_in_trace(y: Name, gradient: Any, retain: bool, inputs: Any) -> GradientMap:
    """backward inside a compiled function: by the leaves that it captured."""
    trace: Any = y._trace
    seed = seed_for(y, gradient, "backward")
    with enable_grad():
        leaves, computed = trace.sources()
        retained = [x for x, _ in trace.retained.values()]
        chosen = [*leaves, *retained] if inputs is None else as_tensors(inputs, "backward: inputs")
        beyond = computed if inputs is None else []
        gradients = pull([y], [seed], [*chosen, *beyond], retain=True, record=True)
        for x, g in zip(beyond, gradients[len(chosen) :]):
            if g is not None:
                raise GradientError(
                    f"backward: inside a compiled function a tensor {x.dtype.name}{tuple(x.shape)} was computed outside, "
                    "where backward would go on; detach() it, or call backward() outside"
                )
        grads = GradientMap()
        for x, g in zip(chosen, gradients):
            if g is not None:
                grads[x] = _hooked(trace, x, g)
                trace.accumulate(x, grads[x].detach())
                for hook in _hooks_in_trace(trace, x, True):
                    hook()
    if not grads._gradients and inputs is None:
        raise GradientError(
            f"backward: inside a compiled function the gradients are those by arguments and captured tensors that require "
            f"one, and this {y.dtype.name}{tuple(y.shape)} depends on none"
        )
    if not retain:
        trace.free(y)
    return grads


def _hooks_in_trace(trace: Any, x: Any, final: bool) -> list[Any]:
    """The hooks of an argument or a captured tensor. They are traced; if they change, the function is traced again."""
    if isinstance(x, Name) and x not in trace._given:
        return []
    hooks = _core.existing_hooks(trace.given(x), final)
    if hooks is None:
        return []
    known = list(hooks)
    trace.checks.append(lambda: len(hooks) == len(known) and all(a is b for a, b in zip(hooks, known)))
    return known


def _hooked(trace: Any, x: Any, g: Tensor) -> Tensor:
    """The gradient of a leaf after its hooks."""
    for hook in _hooks_in_trace(trace, x, False):
        changed = hook(g)
        g = g if changed is None else changed
    return g


@overload
def grad_of(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Any = None,
    create_graph: bool = False,
    allow_unused: Literal[False] = False,
    *,
    retain_graph: bool | None = None,
) -> tuple[Tensor, ...]: ...
@overload
def grad_of(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Any = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    *,
    retain_graph: bool | None = None,
) -> tuple[Tensor | None, ...]: ...
def grad_of(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Any = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    *,
    retain_graph: bool | None = None,
) -> tuple[Tensor | None, ...]:
    """Compute the gradients of `outputs` with respect to `inputs`, without touching `.grad`.

    - `outputs`: a tensor, or a sequence of tensors, whose gradients are added up.
    - `inputs`: a tensor or a sequence of tensors; the result is a tuple with one gradient for each.
    - `grad_outputs`: how much each element of the outputs counts; may be left out for single numbers.
    - `create_graph`: record the gradients' own computation, so that they can be differentiated.
    - `allow_unused`: return None for inputs on which the outputs do not depend, instead of raising.
    - `retain_graph`: keep the recorded graph; by default as `create_graph`.

    >>> import wengert as wg
    >>> x = wg.tensor(3.0, requires_grad=True)
    >>> (g,) = grad_of(x * x, x)
    >>> g.item()
    6.0
    """
    xs = as_tensors(inputs, "grad_of: inputs")
    as_tensors(outputs, "grad_of: outputs")
    retain = create_graph if retain_graph is None else bool(retain_graph)
    gradients = _core.gradients_by(outputs, xs, grad_outputs, retain, create_graph)
    if gradients is None:
        gradients = _pull_all(outputs, xs, grad_outputs, retain, create_graph)
    if not allow_unused:
        for k, g in enumerate(gradients):
            if g is None:
                raise GradientError(
                    f"grad_of: the outputs do not depend on input {k}, of shape {tuple(xs[k].shape)}; "
                    "pass allow_unused=True to get None for it"
                )
    return tuple(gradients)


def _pull_all(outputs: Any, xs: list[Tensor], seeds: Any, retain: bool, create_graph: bool) -> list[Any]:
    ys = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    given = seeds if isinstance(seeds, (list, tuple)) else [seeds] * len(ys)
    if len(given) != len(ys):
        raise GradientError(f"grad_of: {len(ys)} outputs, but {len(given)} grad_outputs")
    for y in ys:
        require_recorded(y, "grad_of")
    bars = [seed_for(y, g, "grad_of") for y, g in zip(ys, given)]
    return pull(ys, bars, xs, retain=retain, record=create_graph)


class HookHandle:
    """What `register_hook` returns; `remove()` removes the hook."""

    def __init__(self, hooks: list[Any], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        self._hook = hook

    def remove(self) -> None:
        """Remove the hook: it is not called any more."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)
        self._hooks = []  # removed again, it must not take the same function's other registration


_hooks: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()  # all registered hooks


def _add_hook(hooks: list[Any], hook: Callable[..., Any]) -> HookHandle:
    hooks.append(hook)
    _hooks.add(hook)
    if _free_unreachable_hooks not in gc.callbacks:
        gc.callbacks.append(_free_unreachable_hooks)
    return HookHandle(hooks, hook)


def _free_unreachable_hooks(
    phase: str, info: Mapping[str, Any], hooks: Any = _hooks, free: Any = _core.free_unreachable_hooks
) -> None:
    """Run with each full collection, because the collector cannot see cycles through a hook and its tensor's results.

    (The defaults are there even where a collection at the end of the process finds the module empty.)
    """
    if phase == "start" and info["generation"] == 2 and hooks:
        free(list(hooks))


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call `hook(gradient)` in every backward pass, once the gradient of this tensor is known.

    If the hook returns a tensor, that replaces the gradient. Returns a handle, whose `remove()` removes the hook.

    >>> import wengert as wg
    >>> x = wg.tensor(3.0, requires_grad=True)
    >>> h = x.register_hook(lambda g: g * 2)
    >>> (x * x).backward()[x].item()
    12.0
    """
    if not callable(hook):
        raise TypeError(f"register_hook: the hook must be a function of the gradient, got {type(hook).__name__}")
    if isinstance(self, Name) and self not in self._trace._given:
        hooks = self._trace.hooks.setdefault(self._trace.value(self), [])
        return _add_hook(hooks, functools.partial(_run_hook, hook))
    if _core.node_of(self) is None:
        raise GradientError("register_hook: this tensor does not require a gradient; set requires_grad first")
    hooks = _core.hooks_of(self)
    return _add_hook(hooks, functools.partial(_run_hook, hook))


def _run_hook(hook: Callable[[Tensor], Tensor | None], g: Tensor) -> Tensor | None:
    changed: Any = hook(g)
    if changed is None:
        return None
    if not isinstance(changed, Tensor) or tuple(changed.shape) != tuple(g.shape):
        given = f"shape {tuple(changed.shape)}" if isinstance(changed, Tensor) else repr(type(changed).__name__)
        raise GradientError(f"a hook returned {given} for a gradient of shape {tuple(g.shape)}")
    return changed if changed.dtype == g.dtype else changed.astype(g.dtype)


def register_post_accumulate_hook(self: Tensor, hook: Callable[[Tensor], object]) -> HookHandle:
    """Call `hook(self)` when `backward` has added the last contribution to this leaf's `.grad`.

    That is before the backward pass ends, in the order in which leaves were last used: to exchange gradients, or to
    update a parameter and drop its gradient, while others are still being computed.

    >>> import wengert as wg
    >>> w = wg.tensor([1.0, 2.0], requires_grad=True)
    >>> def update(w):
    ...     with wg.no_grad():
    ...         w -= 0.1 * w.grad
    ...     w.grad = None
    >>> h = w.register_post_accumulate_hook(update)
    >>> grads = (w * w).sum().backward()
    >>> [round(x, 3) for x in w.tolist()], w.grad
    ([0.8, 1.6], None)
    """
    if not callable(hook):
        raise TypeError(
            f"register_post_accumulate_hook: the hook must be a function of the tensor, got {type(hook).__name__}"
        )
    hooks = _core.final_hooks_of(self) if self._plain and self.is_leaf and self.requires_grad else None
    if hooks is None:
        raise GradientError(
            f"register_post_accumulate_hook: this tensor {self.dtype.name}{tuple(self.shape)} is not a leaf that requires a "
            "gradient; intermediates have register_hook"
        )
    return _add_hook(hooks, functools.partial(_announce, weakref.ref(self), hook))


def _announce(leaf: weakref.ref[Tensor], hook: Callable[[Tensor], object]) -> None:
    tensor = leaf()
    if tensor is not None:  # otherwise nobody can see the gradient
        hook(tensor)


def retain_grad(self: Tensor) -> None:
    """Keep the gradient of this intermediate result: in its `.grad`, and in the map that `backward` returns."""
    if isinstance(self, Name):
        return self._trace.retain_grad(self)
    if _core.node_of(self) is None:
        raise GradientError("retain_grad: this tensor does not require a gradient")
    _core.retain_grad(self)


def stop_gradient(x: Any) -> Tensor:
    """The same value, treated as a constant: no derivative flows through it, in any mode.

    >>> import wengert as wg
    >>> x = wg.tensor(3.0, requires_grad=True)
    >>> (x * stop_gradient(x)).backward()[x].item()
    3.0
    """
    t = x if isinstance(x, Tensor) else asarray(x)
    return t.detach()


def attach() -> None:
    """Make these methods of Tensor; once, at import."""
    for f in (backward, register_hook, register_post_accumulate_hook, retain_grad):
        setattr(Tensor, f.__name__, f)
