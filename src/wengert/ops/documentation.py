"""The documentation that `help` and `inspect` show for ops, made from their records on demand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from wengert.registry.record import OPS, Op
from wengert.registry.samples import Array
from wengert.tensors.conversion import tensor

OPERANDS = {1: ["x"], 2: ["a", "b"], 3: ["condition", "a", "b"]}
# Operands with names of their own.
NAMED = {
    "gammainc": ["a", "x"],
    "gammaincc": ["a", "x"],
    "gammaincinv": ["a", "p"],
    "gammainccinv": ["a", "q"],
    "betainc": ["a", "b", "x"],
    "betaincinv": ["a", "b", "p"],
}


def parameters(op: Op) -> list[str]:
    """The names of an op's parameters: its operands, then its attributes."""
    operands = (
        NAMED.get(op.name)
        or OPERANDS.get(op.n_inputs)
        or (["xs"] if op.n_inputs < 0 else [f"x{k}" for k in range(op.n_inputs)])
    )
    return [*operands, *(a.name for a in op.attrs)]


def signature(op: Op) -> inspect.Signature:
    """`(a, b, /, *, out=None)`."""
    made = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in parameters(op)]
    if op.elementwise:
        made.append(inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None))
    return inspect.Signature(made)


def docstring(op: Op) -> str:
    """The formula, what it applies to, whether it has a derivative, and a call with its result."""
    if not op.elementwise:
        return op.formula
    lines = ["Computed for every element" + (", after broadcasting." if op.n_inputs > 1 else ".")]
    lines.append("`out`: a tensor to write the result into.")
    if op.jvp == "zero":
        lines.append("The derivative is 0 everywhere.")
    elif op.differentiable and op.jvp != "undefined":
        lines.append("Differentiable in every mode and order.")
    return f"{op.formula}\n\n{' '.join(lines)}\n\n{_example(op)}"


def _example(op: Op) -> str:
    values = [_numbers(a, k) for k, a in enumerate(op.samples[0].inputs)]
    result = op.function(*(tensor(v) for v in values))
    call = f"wg.{op.name}({', '.join(f'wg.tensor({v})' for v in values)})"
    return f">>> import wengert as wg\n>>> {call}\n{result!r}"


def _numbers(a: Array, k: int) -> list[Any]:
    """Three numbers of the range of a sample, others for each operand."""
    if a.kind == "bool":
        return [True, False, True]
    places = ([0.2, 0.5, 0.9], [0.8, 0.6, 0.3], [0.1, 0.7, 0.4])[k]
    if a.kind == "int":
        return [int(a.low + (a.high - a.low) * p) for p in places]
    return [round(a.low + (a.high - a.low) * p, 1) for p in places]


class _OfOp:
    """An attribute of an op's function that is made of the op's record when it is read."""

    def __init__(self, make: Callable[[Op], Any], of_type: Any) -> None:
        self.make, self.of_type = make, of_type

    def __get__(self, function: Any, owner: type) -> Any:
        if function is None:
            return self.of_type
        return self.make(OPS[function.__name__])


def install() -> None:
    """Give the functions of ops their documentation; once, when all ops are defined."""
    type_of_functions: Any = type(next(iter(OPS.values())).function)
    type_of_functions.__doc__ = _OfOp(docstring, "The function of an op.")
    type_of_functions.__signature__ = _OfOp(signature, None)
