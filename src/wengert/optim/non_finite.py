"""A loss that is not a number: where it comes from."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert import functional as F
from wengert._core import Tensor
from wengert.autograd.modes import no_grad
from wengert.errors import GradientError
from wengert.functional.arguments import native
from wengert.program.ir import Program
from wengert.transforms.evaluate import evaluate
from wengert.transforms.pullback import reachable

_isfinite = native("isfinite")
_INPUT = 0  # what a derivation saves: operands, results, residuals
_OF_INPUT = 0  # what sizes are of: operands, attributes, contents, or given


def check_loss(loss: Tensor, net: Any = None) -> Tensor:
    """The loss itself if it is finite; else an error that says where the first infinity or NaN is. For before backward.

    It looks at the parameters of `net`, then at what the recorded operations keep, in the order in which they ran.

    >>> import wengert as wg
    >>> x = wg.tensor([0.0, 1.0], requires_grad=True)
    >>> check_loss(wg.log(x).sum())
    Traceback (most recent call last):
    wengert.errors.GradientError: the loss is -inf...
    """
    if bool(_isfinite(loss.detach()).all()):
        return loss
    value = loss.item() if loss.size == 1 else "not finite"
    lines = [f"the loss is {value}."]
    for name, p in net.named_parameters() if net is not None else ():
        n = not_finite(p)
        if n:
            lines.append(f"  parameter {name} {p.dtype.name}{tuple(p.shape)}: {n} of {p.size} elements are not finite")
    lines.append(f"  {first_operation(_core.node_of(loss))}")
    raise GradientError("\n".join(lines))


def not_finite(x: Any) -> int:
    """How many elements are infinite or NaN."""
    if not isinstance(x, Tensor) or not x.dtype.is_inexact:
        return 0
    with no_grad():
        return int(x.size) - int(F.count_nonzero(_isfinite(x.detach())).item())


def first_operation(edge: Any) -> str:
    """The first operation that read or made something infinite or NaN, of those that led to an edge."""
    if edge is None or edge[0].is_leaf:
        return "nothing was recorded for it"
    nodes = sorted(reachable([edge]).values(), key=lambda n: n.seq)
    last = None
    for node in nodes:
        if node.is_leaf:
            continue
        if node.freed:
            return "its graph was freed by backward(); call check_loss before it"
        if any(not_finite(v) for v in (*node.saved, *_outputs(node))):
            return f"the first operation that read or made such a value: {node.name} at {node.line}"
        last = node
    return (
        f"all values that operations keep are finite: it arises in or before {last.name} at {last.line}" if last else ""
    )


def _outputs(node: Any) -> list[Tensor]:
    """What the operation computed, once more, if it keeps all that it was computed from."""
    derivation = node.derivation if node.custom is None else None
    if derivation is None:
        return []
    kept = {k: v for (where, k), v in zip(derivation.saves, node.saved) if where == _INPUT}
    n = len(derivation.forward.inputs)
    if len(kept) < n:
        return []
    inputs = [kept[k] for k in range(n)]
    known = {(_OF_INPUT, k, axis): size for k, x in enumerate(inputs) for axis, size in enumerate(x.shape)}
    known.update(zip(derivation.leaves, node.sizes))
    if not all(leaf in known for leaf in _sizes_read(derivation.forward)):
        return []  # sizes that were attributes of the operation, and that its derivative does not need
    with no_grad():
        made = evaluate(derivation.forward, inputs, list(known), list(known.values()))
    return made[: derivation.n_outputs]


def _sizes_read(program: Program) -> list[Any]:
    attrs = [v for i in program.instructions for spec, v in zip(i.op.attrs, i.attrs) if spec.kind == "sizes"]
    return _core.leaves_of_sizes(tuple(n for v in attrs for n in v if isinstance(n, _core.Dim)))
