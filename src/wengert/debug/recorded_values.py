"""Where a loss stops being a number, by what the recorded operations keep for backward."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.debug.anomaly_record import Record, culprit, tell_instruction
from wengert.debug.elements import at, described, first_bad, not_finite, numbers, summary, written
from wengert.errors import GradientError
from wengert.modes import no_grad
from wengert.passes.evaluate import evaluate
from wengert.program.ir import Program
from wengert.registry.record import find_op
from wengert.transforms.pullback import reachable

_INPUT, _OUTPUT = 0, 1  # what a derivation saves: operands, results, residuals
_OF_INPUT = 0  # what sizes are of: operands, attributes, contents, or given


def check_loss(loss: Tensor, net: Any = None) -> Tensor:
    """The loss itself if it is finite; else an error that says where the first infinity or NaN is. For before backward.

    It looks at the parameters of `net`, then at what the recorded operations keep, in the order in which they ran. To have
    every backward looked at, see `detect_anomaly`.

    >>> import wengert as wg
    >>> x = wg.tensor([0.0, 1.0], requires_grad=True)
    >>> check_loss(wg.log(x).sum())
    Traceback (most recent call last):
    wengert.errors.GradientError: the loss is -inf...
    """
    if _core.all_finite(loss):
        return loss
    value = written(numbers(loss).item()) if loss.size == 1 else "not finite"
    lines = [f"the loss is {value}."]
    for name, p in net.named_parameters() if net is not None else ():
        n = not_finite(p)
        if n:
            lines.append(f"  parameter {name} {p.dtype.name}{tuple(p.shape)}: {n} of {p.size} elements are not finite")
    lines.append(f"  {first_operation(_core.node_of(loss))}")
    raise GradientError("\n".join(lines))


def first_operation(edge: Any) -> str:
    """The first operation that read or made something infinite or NaN, of those that led to an edge, in words."""
    if edge is None or edge[0].is_leaf:
        return "nothing was recorded for it"
    if any(n.freed for n in reachable([edge]).values() if not n.is_leaf):
        return "its graph was freed by backward(); call check_loss before it"
    record = first_bad_node(edge[0])
    if record.unsure:
        return f"all values that operations keep are finite: it arises in or before {record.name()} at {record.line}"
    verb = "read" if record.outside else "made"
    return f"the first operation that {verb} such a value: {record.name()} at {record.line}"


def first_bad_node(node: Any) -> Record:
    """The first recorded operation that is known to have made something infinite or NaN, or to have read it from a tensor
    that no recorded operation made."""
    last = None
    for n in sorted(reachable([(node, 0)]).values(), key=lambda n: n.seq):
        if n.is_leaf or n.freed:
            continue
        found = _evidence(n)
        if found is not None:
            return found
        last = n
    last = node if last is None else last
    record = Record(last.name, last.line, False, (), float("nan"), "its result")
    record.unsure = True
    return record


def _evidence(n: Any) -> Record | None:
    derivation = n.derivation if n.custom is None else None
    if derivation is None:
        return None
    operands = {k: v for (where, k), v in zip(derivation.saves, n.saved) if where == _INPUT}
    for k, x in operands.items():
        array = numbers(x)
        index = first_bad(array)
        if index is None:
            continue
        edge = dict(zip(derivation.edges, n.edges)).get(k)
        if edge is not None and not edge[0].is_leaf:  # that one made it; it keeps too little to show it
            return Record(edge[0].name, edge[0].line, False, index, array[index].item(), described(x))
        record = Record(n.name, n.line, False, index, array[index].item(), described(x))
        record.outside = [f"operand {k} {described(x)}"]
        record.operands = [f"operand {k} {described(x)}: {summary(array)}"]
        reader = next((i for i in derivation.forward.instructions if derivation.forward.inputs[k] in i.inputs), None)
        if find_op(n.name) is None and reader is not None and reader.origin is not None:
            record.op, record.line, record.within = reader.op.name, str(reader.origin.line), n.name
        return record
    known = _known_sizes(n, derivation, operands)
    made = [v for (where, _), v in zip(derivation.saves, n.saved) if where == _OUTPUT]
    if known is not None:
        with no_grad():
            made = evaluate(derivation.forward, [operands[k] for k in range(len(operands))], *known)
        made = made[: derivation.n_outputs]
    for y in made:
        index = first_bad(array := numbers(y))
        if index is not None:
            record = Record(n.name, n.line, False, index, array[index].item(), described(y))
            _describe(record, n, derivation, operands, known, array)
            return record
    return None


def _describe(record: Record, n: Any, derivation: Any, operands: dict[int, Tensor], known: Any, result: Any) -> None:
    """Which instruction it was, where the operation is a compiled function; else what stood in the operands."""
    if known is not None and find_op(n.name) is None:
        found = culprit(derivation.forward, [operands[k] for k in range(len(operands))], *known)
        if found is not None:
            return tell_instruction(record, found, n.name)
    for k, x in operands.items():
        array = numbers(x)
        here = at(array, record.index, result.shape) if array.shape == result.shape else None
        shown = summary(array) if here is None else f"{written(here)} there"
        record.operands.append(f"operand {k} {described(x)}: {shown}")
    return None


def _known_sizes(n: Any, derivation: Any, operands: dict[int, Tensor]) -> tuple[list[Any], list[Any]] | None:
    """What the forward program reads of sizes, if it can be run again: if all operands are kept."""
    if len(operands) < len(derivation.forward.inputs):
        return None
    known = {(_OF_INPUT, k, axis): size for k, x in operands.items() for axis, size in enumerate(x.shape)}
    known.update(zip(derivation.leaves, n.sizes))
    if not all(leaf in known for leaf in _sizes_read(derivation.forward)):
        return None  # sizes that were attributes of the operation, and that its derivative does not need
    return list(known), list(known.values())


def _sizes_read(program: Program) -> list[Any]:
    attrs = [v for i in program.instructions for spec, v in zip(i.op.attrs, i.attrs) if spec.kind == "sizes"]
    return _core.leaves_of_sizes(tuple(n for v in attrs for n in v if isinstance(n, _core.Dim)))


__all__ = ["check_loss", "first_bad_node", "first_operation"]
