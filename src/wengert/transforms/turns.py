"""What loops share: what they carry, the program of a turn in the making, and its tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from wengert._core import Tensor
from wengert.dtypes import ALL as DTYPES
from wengert.errors import ArgumentError, DTypeError, ShapeError, TraceError
from wengert.passes.derive import pushing
from wengert.program.ir import Program, Type
from wengert.program.nested import Task
from wengert.program.trace import same_shape
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import full
from wengert.transforms.regions import PartTrace


def as_tensor(name: str, what: str, x: Any) -> Tensor:
    """A leaf of what is given to a loop."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, (bool, int, float, complex)):
        return full((), x)  # in a trace an instruction, not a tensor from outside
    try:
        return asarray(x)
    except (TypeError, ValueError) as e:
        raise ArgumentError(f"{name}: {what} must hold tensors, arrays and numbers ({e})") from None


def require_same_carry(
    name: str,
    before: Sequence[Type],
    after: Sequence[Type],
    structures: tuple[Any, Any],
    what: str = "the carry",
    maker: str = "a turn",
) -> None:
    """Raise unless a turn makes what it was given: the same structure, shapes and dtypes."""
    if structures[0] != structures[1]:
        raise ArgumentError(
            f"{name}: {what} must keep its structure; it was {structures[0]}, {maker} made {structures[1]}"
        )
    for k, (a, b) in enumerate(zip(before, after)):
        if not same_shape(a.shape, b.shape):
            raise ShapeError(f"{name}: {what} must keep its types; entry {k} was {a}, {maker} made {b}")
        if a.dtype != b.dtype:
            raise DTypeError(f"{name}: {what} must keep its types; entry {k} was {a}, {maker} made {b}; use astype")


class BodyTrace(PartTrace):
    """The program of one turn in the making; `remedy_for_draws` says where random numbers come from instead."""

    def __init__(self, what: str, remedy_for_draws: str) -> None:
        super().__init__(what)
        self.remedy_for_draws = remedy_for_draws

    def draw(self, generator: Any, n: Any, wide: bool) -> NoReturn:
        """Not available: all turns would draw the same numbers."""
        raise TraceError(
            f"{self.what} draws random numbers, which would be the same in every turn; {self.remedy_for_draws}"
        )


def pushed_turn(body: Program, n: int, varied: list[bool], forward: bool) -> Task[tuple[Program, list[int], list[int]]]:
    """The task of making the push of a turn that carries n values, the inputs that have a tangent, and the results of turns
    that have one.

    What is carried has a tangent if it begins with one, or if a turn gives it one.
    """
    inexact = [DTYPES[v.type.dtype].is_inexact for v in body.inputs]
    while True:
        wanted = [k for k, v in enumerate(varied) if v and inexact[k]]
        pushed = yield pushing(body, wanted, forward)
        tangents = pushed.outputs[len(body.outputs) :]
        fresh = [k for k in range(n) if tangents[k] is not None and not varied[k]]
        if not fresh:
            return pushed, wanted, [k for k in range(n, len(tangents)) if tangents[k] is not None]
        for k in fresh:
            varied[k] = True


def depending(program: Program, inputs: Sequence[bool]) -> list[bool]:
    """Which outputs depend on one of these inputs."""
    found = {v for v, given in zip(program.inputs, inputs) if given}
    for i in program.instructions:
        if any(v in found for v in i.vars()):
            found.update(i.outputs)
    return [o in found for o in program.outputs]


def mapped_inputs(body: Program, n: int, mapped: Sequence[bool]) -> list[bool]:
    """Which inputs of a turn that carries n values have the axis of the examples in a batch: of what is carried, what begins
    with it, and what a turn gives it. A count of the turns mostly stays one number."""
    flags = list(mapped)
    while True:
        after = [a or b for a, b in zip(flags[:n], depending(body, flags)[:n])]
        if after == flags[:n]:
            return flags
        flags[:n] = after
