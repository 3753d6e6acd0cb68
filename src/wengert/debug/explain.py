"""Why a gradient is None or zero: where the path from the differentiated tensor ends."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap

_MOST_PLACES = 8


def explain(grads: GradientMap, x: Tensor) -> str:
    """A text that says why `grads` has no gradient for x, or one of zeros.

    >>> import wengert as wg
    >>> x, w = wg.tensor(2.0, requires_grad=True), wg.tensor(3.0, requires_grad=True)
    >>> grads = (x.detach() * w).backward()
    >>> print(explain(grads, x).splitlines()[0])
    no path: the recorded operations do not lead to this tensor float32().
    """
    what = f"{x.dtype.name}{tuple(x.shape)}"
    if not x.dtype.is_inexact:
        return f"no gradient: {what} is not a floating tensor. Convert it with astype before it is used."
    known = grads.get(x)
    if known is not None:
        if bool((known != 0).any()):
            return f"there is a gradient, and it is not zero: {what}."
        return "\n".join([f"the gradient of {what} is zero everywhere.", *_zero_rules(grads)])
    if _core.node_of(x) is None:
        return (
            f"not tracked: {what} requires no gradient, and no tape recorded its use. Set requires_grad=True before it is "
            "used, or use it inside a GradientTape. (An explicit requires_grad=False also keeps tapes from tracking it.)"
        )
    return "\n".join([f"no path: the recorded operations do not lead to this tensor {what}.", *_loose_ends(grads)])


def _nodes(grads: GradientMap) -> list[Any]:
    from wengert.transforms.pullback import reachable

    nodes = reachable([(root, 0) for root in grads._roots])
    return sorted(nodes.values(), key=lambda n: -n.seq)


def _zero_rules(grads: GradientMap) -> list[str]:
    """Operations on the way whose derivative is zero as a whole."""
    found = []
    for n in _nodes(grads):
        if not n.is_leaf and n.custom is None and any(o is None for o in n.derivation.vjp.outputs):
            found.append(f"  {n.name} at {n.line}: its derivative is zero everywhere")
    return found[:_MOST_PLACES] or [
        "  every factor on the way may be zero there (a dead unit, a mask, a saturated function)"
    ]


def _loose_ends(grads: GradientMap) -> list[str]:
    """Operations with an operand through which nothing was tracked: the path may end at one of them."""
    nodes = [n for n in _nodes(grads) if not n.is_leaf]
    found = [
        f"  {n.name} at {n.line}: operand {k} was not tracked (detached, computed under no_grad, or of an integer dtype)"
        for n in nodes
        if n.custom is None
        for k in range(len(n.derivation.forward.inputs))
        if k not in n.derivation.edges
    ]
    if not found:
        return [
            f"  all operands of the {len(nodes)} recorded operations are tracked: the result does not use this tensor"
        ]
    more = [f"  … and {len(found) - _MOST_PLACES} more"] if len(found) > _MOST_PLACES else []
    return ["  it may end here:", *found[:_MOST_PLACES], *more]
