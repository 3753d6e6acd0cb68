"""Parts of a function that become separate programs: the branches of `cond`, the body of a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wengert import tree
from wengert._core import Tensor, same_sizes
from wengert.compiling.compile import own_outputs
from wengert.dtypes import ALL as DTYPES
from wengert.errors import ArgumentError, TraceError
from wengert.passes.derive import pulling, pushing
from wengert.passes.evaluate import run_now
from wengert.program.call_trace import call_trace
from wengert.program.inner_trace import InnerTrace
from wengert.program.ir import Instruction, Program, Type, Var
from wengert.program.nested import Task, settled
from wengert.program.simplify import simplify
from wengert.program.trace import Tracer, dispatch
from wengert.registry.record import OPS, REGION_OPS, Attr, Op
from wengert.registry.zero import ZERO
from wengert.tensors.creation import full


def is_traced(x: Any) -> bool:
    """Whether a tensor has no data because a function is being traced."""
    return isinstance(x, Tensor) and (isinstance(x, Tracer) or call_trace() is not None)


def require_callable(name: str, functions: dict[str, Any]) -> None:
    """Raise if one of the functions is not callable."""
    for label, f in functions.items():
        if not callable(f):
            raise ArgumentError(f"{name}: {label} must be a function, got {type(f).__name__}")


class PartTrace(InnerTrace):
    """The program of a part under construction; `what` is its name in messages."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.remedy = f"which a part of a traced function cannot do; return what it computes from {what.split()[-1]}"

    def draw(self, generator: Any, n: Any, wide: bool) -> tuple[tuple[Any, Any], tuple[Any]]:
        """Key and counter of a draw, taken from the enclosing generator whether or not the part runs."""
        if self.outer is not None:
            return self.outer.draw(generator, n, wide)
        low, high, first = generator.reserve(generator.counters(n, wide))
        return (low, high), (first,)


@dataclass(slots=True)
class Part:
    """A traced part."""

    trace: PartTrace
    outputs: list[Var]
    structure: Any  # structure of the results

    def program(self, outside: dict[int, Any]) -> Program:
        """The closed program: its inputs are the arguments, then one for each tensor from outside."""
        trace: Any = self.trace
        known = {k: trace._entry[name] for k, (_, name) in trace.captured.items()}
        inputs = [known.get(k) or Var(Type(x.dtype.code, tuple(x.shape))) for k, x in outside.items()]
        return own_outputs(simplify(Program([*trace.inputs, *inputs], trace.instructions, list(self.outputs))))


def types_of(tensors: Sequence[Any]) -> list[Type]:
    """The types of tensors."""
    return [Type(x.dtype.code, tuple(x.shape)) for x in tensors]


def traced_part(trace: PartTrace, f: Callable[..., Any], types: Sequence[Type]) -> Part:
    """Trace f on tensors of these types; f must not change tensors from outside."""
    given = [trace.argument(t) for t in types]
    with trace:
        results, out_structure = tree.flatten(f(*given))
        outputs = [trace.value(as_result(trace.what, y)) for y in results]
        changed = trace.changed()
    if changed:
        name = changed[0][0]
        raise TraceError(
            f"{trace.what} changes a tensor {name._var.type} from outside in place ({name._op}), {trace.remedy}"
        )
    return Part(trace, outputs, out_structure)


def closed_over(parts: Sequence[Part]) -> dict[int, Any]:
    """The tensors from outside that parts read, by identity."""
    return {k: x for p in parts for k, (x, _) in p.trace.captured.items()}


def as_result(what: str, y: Any) -> Tensor:
    """A result of a part as a tensor."""
    if isinstance(y, Tensor):
        return y
    if isinstance(y, (bool, int, float, complex)):
        return full((), y)
    raise TraceError(f"{what} must return tensors, numbers and containers of them, got {type(y).__name__}")


# Functions that make the op of a family for a number of results, by name.
_FAMILIES: dict[str, Callable[[int], Op]] = {}
_MOST_RESULTS = 10_000


def register_family(name: str, make: Callable[[int], Op]) -> None:
    """Let programs that are read from files find the ops of a family."""
    _FAMILIES[name] = make


def op_of_family(name: str) -> Op | None:
    """The op of this name, such as scan_3; None if there is no such family."""

    family, _, number = name.rpartition("_") if "_" in name else (name, "", "1")
    if family not in _FAMILIES or not number.isdecimal() or not 1 <= int(number[:9]) <= _MOST_RESULTS:
        return None
    made = _FAMILIES[family](int(number[:9]))
    return made if made.name == name else None


def same_type(a: Type, b: Type) -> bool:
    """Whether two types are known to be the same."""
    return a.dtype == b.dtype and same_sizes(a.shape, b.shape)


def same_types(a: Sequence[Type], b: Sequence[Any]) -> bool:
    """Whether values, or operands of a program, are of these types."""
    return len(a) == len(b) and all(isinstance(v, Var) and same_type(t, v.type) for t, v in zip(a, b))


def region_op(family: str, n_outputs: int, attrs: Sequence[tuple[str, str]], **rules: Any) -> Op:
    """The op of a family of instructions that hold programs, for this many results; made when first needed."""
    name = family if n_outputs == 1 else f"{family}_{n_outputs}"
    if name not in REGION_OPS:

        def run(operands: Sequence[Any], *values: Any) -> Any:
            if not run_now(operands):
                return dispatch(name, tuple(operands), values)
            results = settled(rules["evaluated"](operands, values, [], []))
            return results[0] if len(results) == 1 else tuple(results)

        rules.setdefault("sparsity", "everything")
        REGION_OPS[name] = Op(
            name,
            run,
            -1,
            n_outputs,
            tuple(Attr(*a) for a in attrs),
            elementwise=False,
            differentiable=True,
            view=False,
            expensive=True,
            public=False,
            **rules,
        )
    return REGION_OPS[name]


def push_regions(
    programs: Sequence[Program], dots: Sequence[Any], xs: Sequence[Any], run: Callable[..., list[Any]]
) -> Task[list[Any]]:
    """Tangents of one of the programs, which recomputes its values on the way. `run(programs, operands)` makes the
    instruction that holds the tangent programs."""
    wanted = [k for k, d in enumerate(dots) if d is not ZERO]
    m = len(programs[0].outputs)
    pushes = []
    for p in programs:
        pushes.append((yield pushing(p, wanted)))
    moving = [k for k in range(m) if any(p.outputs[m + k] is not None for p in pushes)]
    y_dots: list[Any] = [ZERO] * m
    if moving:
        tangents = [own_outputs(simplify(tangents_of(p, programs[0], moving))) for p in pushes]
        for k, y_dot in zip(moving, run(tangents, [*xs, *(dots[k] for k in wanted)])):
            y_dots[k] = y_dot
    return y_dots


def pull_regions(
    programs: Sequence[Program], y_bar: Any, linear: Sequence[int], xs: Sequence[Any], run: Callable[..., list[Any]]
) -> Task[list[Any]]:
    """Cotangents of these operands, in which the programs are linear, by the transpose of one program."""
    results = programs[0].outputs
    bars = [
        full(o.type.shape, 0.0, dtype=DTYPES[o.type.dtype]) if b is ZERO else b  # type: ignore[union-attr]
        for b, o in zip(y_bar if len(results) > 1 else (y_bar,), results)
    ]
    pulls = []
    for p in programs:
        pulls.append(own_outputs((yield pulling(p, linear))))
    return run(pulls, [*(x for k, x in enumerate(xs) if k not in linear), *bars])


def where_examples(condition: Any, x: Any, y: Any) -> Any:
    """x or y by one condition per example, along the first axis."""
    ones = OPS["reshape"](condition, (condition.shape[0], *(1,) * (x.ndim - 1)))
    return OPS["where"](OPS["broadcast_to"](ones, x.shape), x, y)


def tangents_of(pushed: Program, primal: Program, which: Sequence[int]) -> Program:
    """A push with only the tangents of these results; zeros for those it does not have."""
    body, outputs, m = list(pushed.instructions), [], len(primal.outputs)
    for k in which:
        tangent = pushed.outputs[m + k]
        if tangent is None:
            type_ = primal.outputs[k].type  # type: ignore[union-attr]
            tangent = Var(type_, linear=True)
            body.append(Instruction(OPS["full"], (), (type_.shape, type_.dtype, 0.0), (tangent,)))
        outputs.append(tangent)
    return Program(pushed.inputs, body, list(outputs))
