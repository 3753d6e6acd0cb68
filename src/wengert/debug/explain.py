"""Why a gradient is None or zero: where the path from the differentiated tensor ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.debug.custom_rules import call_of, place_of_rule
from wengert.debug.elements import described
from wengert.debug.instructions import values_of
from wengert.dtypes import ALL as DTYPES
from wengert.errors import ArgumentError, GradientError
from wengert.program.ir import Instruction, Program, Var
from wengert.registry.record import find_op
from wengert.tensors.creation import ones, ones_like, zeros_like
from wengert.transforms.pullback import reachable

_MOST_PLACES = 8
_MOST_EDGES = 8  # of a node that are told apart, as core/tape.h: Node::zero_edges


def explain(grads: GradientMap | Tensor, x: Tensor) -> str:
    """Say why there is no gradient for x, or why it is zero.

    `grads` is the map that `backward` returned, or a loss. The answer is a text that names the source line where the
    path ends. Nothing has to be switched on beforehand, and the graph may have been freed by `backward()`.

    >>> import wengert as wg
    >>> x, w = wg.tensor(2.0, requires_grad=True), wg.tensor(3.0, requires_grad=True)
    >>> grads = (x.detach() * w).backward()
    >>> print(explain(grads, x))
    no path to this tensor float32(): it was detached.
      detach() at ..., read by mul at ...
    """
    if not isinstance(x, Tensor):
        raise ArgumentError(f"explain: takes the gradients, or a loss, and a tensor; got {type(x).__name__}")
    if not isinstance(grads, (Tensor, GradientMap)):
        raise ArgumentError(
            "explain: the first argument must be the gradients or a loss: what backward() gave, or the tensor that it was "
            f"called on; got {type(grads).__name__}"
        )
    what = described(x)
    if not x.dtype.is_inexact:
        return f"no gradient: {what} is not a floating tensor. Convert it with astype before it is used."
    if isinstance(grads, Tensor):
        if _core.node_of(grads) is None:
            return _no_graph(grads, _core.path_end(_core.number_of_result(grads)))
        grads = _gradients_of(grads, x)
    known = grads.get(x)
    if known is not None:
        if bool((known != 0).any()):
            return f"there is a gradient, and it is not zero: {what}."
        return "\n".join([f"the gradient of {what} is zero everywhere.", *_zeros(grads, x)])
    if _core.node_of(x) is None:
        return (
            f"not tracked: {what} requires no gradient, and no tape recorded its use. Set requires_grad=True before it is "
            "used, or use it inside a GradientTape. (An explicit requires_grad=False also keeps tapes from tracking it.)"
        )
    node = _core.node_of(x)[0]
    if not node.is_leaf and node.key in {n.key for n in _nodes(grads)}:
        return (
            f"there is a path to {what}, but it is the result of {_name(node)} at {node.line}, and only gradients of leaves "
            "are kept. Call retain_grad() on it before backward(), or pass it to backward(inputs=[...])."
        )
    return "\n".join(_no_path(grads, x))


def _no_graph(loss: Tensor, end: Any) -> str:
    if end is None:
        return (
            f"nothing was recorded for this loss {described(loss)}: nothing that it was computed from requires a gradient, "
            "or only through numbers that left wengert (item(), float(), numpy()), or it is the derivative of something "
            "linear, which does not depend on them."
        )
    return f"nothing was recorded for this loss {described(loss)}: {_reason(end)}.\n  {place_of_end(end)}"


def _gradients_of(loss: Tensor, x: Tensor) -> GradientMap:
    """The gradients of a loss; its graph is still there afterwards. If it was freed, its backward pass has left marks where
    gradients became zero, from which only that of x is told: as ones, or zeros."""
    grads = GradientMap()
    grads._roots = [_core.node_of(loss)[0]]
    try:
        *_, leaves, _, _ = _core.backward([(loss, ones_like(loss.detach()))], None, True, False, True)
    except GradientError:
        nodes = _nodes(grads)
        reached = (
            _reached_from(grads._roots, _leads_to(nodes, x.id)) if x.id in {n.id for n in nodes if n.is_leaf} else None
        )
        leaves = [] if reached is None else [(x.id, ones_like(x.detach()) if reached else zeros_like(x.detach()))]
    for key, g in leaves:
        grads[key] = g
    return grads


def _nodes(grads: GradientMap) -> list[Any]:
    """What was recorded, the latest first."""
    return sorted(reachable([(root, 0) for root in grads._roots]).values(), key=lambda n: -n.seq)


# --------------------------------------------------------------------------------------------- no path


_REASONS = {"detach": "it was detached", "no_grad": "its path ends under no_grad()"}


def _reason(end: Any) -> str:
    reason, op, _, _ = end
    return _REASONS.get(reason) or (
        "it was converted to integers"
        if op == "cast"
        else f"{op} has no derivative, and its result carries no gradient"
    )


def place_of_end(end: Any, reader: Any = None) -> str:
    reason, op, _, line = end
    name = "detach()" if reason == "detach" else f"{op}, under no_grad()," if reason == "no_grad" else op
    return f"{name} at {line}" + ("" if reader is None else f", read by {_name(reader)} at {reader.line}")


def _name(node: Any) -> str:
    return "a custom operation" if node.name == "custom" else str(node.name).lstrip("_")


def _no_path(grads: GradientMap, x: Tensor) -> Iterator[str]:
    what = described(x)
    nodes = [n for n in _nodes(grads) if not n.is_leaf]
    ends = {n.end: (end, n) for n in reversed(nodes) if (end := _core.path_end(n.end)) is not None}
    own = [found for found in ends.values() if found[0][2] == x.id]
    if own:
        reasons = dict.fromkeys(_reason(end) for end, _ in own)
        yield f"no path to this tensor {what}: {', and '.join(reasons)}."
        yield from _shown([place_of_end(*found) for found in own])
        return
    others = [found for found in ends.values() if not found[0][2]]
    if others:
        yield f"no path to this tensor {what}. Paths that may have come from it end here:"
        yield from _shown([f"{_reason(found[0])}: {place_of_end(*found)}" for found in others])
        return
    yield (
        f"no path to this tensor {what}: it is not used. None of the {len(nodes)} recorded operations leads to it, and none "
        "has read something detached that may have come from it. (Numbers that left wengert, by item(), float() or "
        "numpy(), carry no gradient; nor does a copy that was made before it was used. Under a "
        "GradientTape, where paths end is not noted: what was detached is an input of tape.program().)"
    )


def _shown(places: list[str]) -> Iterator[str]:
    yield from (f"  {p}" for p in places[:_MOST_PLACES])
    if len(places) > _MOST_PLACES:
        yield f"  … and {len(places) - _MOST_PLACES} more"


# ----------------------------------------------------------------------------------------------- zeros


def _zeros(grads: GradientMap, x: Tensor) -> Iterator[str]:
    """Where gradients on their way to x became zero."""
    places = [_zero_place(n, k) for n, k, zero in _steps(grads._roots, _leads_to(_nodes(grads), x.id)) if zero]
    if not places:
        yield "  nothing on the way is zero: contributions cancel each other, or it was given a gradient of zeros"
    yield from _shown(list(dict.fromkeys(places)))


def _steps(roots: list[Any], leads: set[int]) -> Iterator[tuple[Any, int, bool]]:
    """Nodes and edges on the way from the loss to a leaf, as far as gradients are not zero, and whether they become so."""
    seen, todo = set(), list(roots)
    while todo:
        n = todo.pop(0)
        if n.key in seen or n.is_leaf:
            continue
        seen.add(n.key)
        for k, edge in enumerate(n.edges):
            if edge is None or edge[0].key not in leads:
                continue
            zero = _is_zero(n, k)
            yield n, k, zero
            if not zero:
                todo.append(edge[0])


def _reached_from(roots: list[Any], leads: set[int]) -> bool:
    """Whether a leaf has got a gradient that is not zero, as far as the marks of a backward pass tell."""
    if any(root.is_leaf and root.key in leads for root in roots):
        return True
    return any(not zero and n.edges[k][0].is_leaf for n, k, zero in _steps(roots, leads))


def _leads_to(nodes: list[Any], leaf: int) -> set[int]:
    """The nodes from which a leaf, by its id, can be reached."""
    leads = {n.key for n in nodes if n.is_leaf and n.id == leaf}
    for n in reversed(nodes):  # the earliest first
        if any(e is not None and e[0].key in leads for e in n.edges):
            leads.add(n.key)
    return leads


def _is_zero(n: Any, k: int) -> bool:
    return bool(n.zero_edges >> min(k, _MOST_EDGES - 1) & 1) or _is_symbolic(n, k)


def _is_symbolic(n: Any, k: int) -> bool:
    """Whether the derivative is known to be zero without being computed."""
    outputs = n.derivation.vjp.outputs if n.custom is None and n.derivation is not None else ()
    return k < len(outputs) and outputs[k] is None


def _zero_place(n: Any, k: int) -> str:
    if (call := call_of(n)) is not None:
        rule = place_of_rule(call)
        return f"{call.name} at {n.line}: its rule gives no gradient, or zeros" + (f"; it is at {rule}" if rule else "")
    inside = [] if n.derivation is None or find_op(n.name) is not None else _inside(n, k)
    if inside:
        return f"inside {_name(n)}, called at {n.line}: " + "; ".join(dict.fromkeys(inside))
    why = _why_zero(n.name)
    if n.derivation is not None and find_op(n.name) is None and n.freed:
        why += "; explain(loss, x) before backward() looks inside of it"
    if n.hooks:
        why += ", or a hook on its result makes the gradient zero"
    dtype = _dtype_of(n, k)
    if dtype in ("float16", "bfloat16"):
        why += f", or the gradient is too small for {dtype} (a GradScaler helps)"
    which = f", by operand {n.derivation.edges[k]}" if n.derivation is not None and len(n.edges) > 1 else ""
    return f"{_name(n)} at {n.line}{which}: {why}"


def _why_zero(name: str) -> str:
    """What it means that the derivative of an op, or of a custom operation, is zero everywhere."""
    if name == "custom":
        return "its rule gives no gradient, or zeros"
    op = find_op(name)
    return (op.where_zero if op is not None else "") or "its derivative is zero everywhere there"


def _dtype_of(n: Any, k: int) -> str:
    """Of the gradient that goes along an edge; empty if it is not known."""
    outputs = n.derivation.vjp.outputs if n.derivation is not None else ()
    return DTYPES[outputs[k].type.dtype].name if k < len(outputs) and isinstance(outputs[k], Var) else ""


def _inside(n: Any, k: int) -> list[str]:
    """Which instructions of a compiled function let nothing through. Where it is a matter of numbers, they are computed
    again; if backward has freed them, that cannot be done."""
    cuts = list(_cuts(n.derivation.forward, n.derivation.edges[k]))
    if cuts or n.freed or n.derivation.vjp.outputs[k] is None:
        return cuts
    return list(_zero_instructions(n, k))


def _zero_instructions(n: Any, k: int) -> Iterator[str]:
    """Instructions of the derivative whose results are zero, though they are given something that is not."""
    vjp = n.derivation.vjp
    leaves, sizes = _known_sizes(n)
    bars = vjp.inputs[: n.n_outputs]
    shapes = [tuple(_core.substitute_sizes(v.type.shape, leaves, sizes)) for v in bars]
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        return  # nothing that is kept tells how large they are
    given = [ones(shape, dtype=DTYPES[v.type.dtype]) for shape, v in zip(shapes, bars)]
    env = values_of(vjp, [*given, *n.saved], leaves, sizes)
    varying = set(bars)  # with the gradient that arrives
    made_by: dict[Var, Instruction] = {}
    for i in vjp.instructions:
        made_by.update((o, i) for o in i.outputs)
        if not varying.isdisjoint(i.vars()):
            varying.update(i.outputs)
    todo, seen = [vjp.outputs[k]], set()
    while todo:
        i = made_by.get(v := todo.pop())
        if i is None or v in seen or bool((env[v] != 0).any()):
            continue
        seen.add(v)
        before = [x for x in i.vars() if x in varying]
        zeros = [x for x in before if not bool((env[x] != 0).any())]
        if len(zeros) < len(before) and i.origin is not None:
            op = i.origin.op or i.op.name
            yield f"{op} at {i.origin.line}: {_why_zero(op)}"
        todo += zeros


def _known_sizes(n: Any) -> tuple[list[Any], list[int]]:
    """Sizes that a derivative reads, and those of operands that are kept or are leaves."""
    d = n.derivation
    known: dict[Any, int] = {}
    operands = [(k, tuple(x.shape)) for (where, k), x in zip(d.saves, n.saved) if where == 0]
    operands += [(k, tuple(e[0].types[0][1])) for k, e in zip(d.edges, n.edges) if e is not None and e[0].is_leaf]
    for k, shape in operands:
        known.update({(0, k, axis): size for axis, size in enumerate(shape)})
    known.update(zip(d.leaves, n.sizes))
    return list(known), list(known.values())


def _cuts(program: Program, which: int) -> Iterator[str]:
    """Instructions at which all paths from an input of a compiled function end; none if one leads to an output."""
    reached, ends = _paths(program, which)
    if reached.isdisjoint(o for o in program.outputs if isinstance(o, Var)):
        yield from ends


def _paths(program: Program, which: int) -> tuple[set[Var], list[str]]:
    """What a derivative by an input of a compiled function reaches, and where it goes no further."""
    reached: set[Var] = {program.inputs[which]}
    ends = []
    for i in program.instructions:
        if reached.isdisjoint(i.vars()):
            continue
        if i.op.differentiable and i.op.rule(False) != "zero":
            reached.update(o for o in i.outputs if DTYPES[o.type.dtype].is_inexact)
            cut = not any(DTYPES[o.type.dtype].is_inexact for o in i.outputs)
        else:
            cut = True
        if cut and i.origin is not None:
            ends.append(_end_inside(i))
    return reached, ends


def _end_inside(i: Instruction) -> str:
    if i.op.detaches:
        return f"it was detached, by detach() or no_grad(), at {i.origin.line}"  # type: ignore[union-attr]
    name = i.op.label
    why = i.op.where_zero or _reason(("no_derivative", name, 0, ""))
    return f"{name} at {i.origin.line}: {why}"  # type: ignore[union-attr]


__all__ = ["explain"]
