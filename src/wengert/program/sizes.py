"""Symbols for sizes, and unification of sizes that guards require to be equal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from wengert import _core
from wengert.program.ir import Instruction, Program, Shape, Size, Type, Var, resized_attrs, verified

F = TypeVar("F", bound=Callable[..., Any])


class own_symbols:
    """A scope that makes a program: its symbols differ from those outside, and are reused afterwards. Profiles count the
    time inside as preparation. As a context manager or a decorator."""

    def __enter__(self) -> None:
        self._preparing = _core.profile_preparing(True)
        _core.open_symbols()

    def __exit__(self, *exc: object) -> None:
        _core.close_symbols()
        _core.profile_preparing(self._preparing)

    def __call__(self, f: F) -> F:
        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:  # our own frame: one of contextlib would count as the user's
            with own_symbols():
                return f(*args, **kwargs)

        return cast(F, wrapped)


class EqualSizes:
    """Classes of sizes that guards found equal, each with a representative: a number if the class contains one."""

    def __init__(self, guards: Sequence[Any]) -> None:
        self._same: dict[Any, Size] = {}
        for a, comparison, b, outcome in _core.describe_guards(guards):
            if comparison == "==" and outcome:
                a, b = self.one(a), self.one(b)
                if isinstance(b, int):
                    a, b = b, a
                if _raw(a) != _raw(b):
                    self._same[_raw(b)] = a

    def __bool__(self) -> bool:
        return bool(self._same)

    def one(self, size: Size) -> Size:
        """The representative of this size."""
        passed = []
        while (known := _raw(size)) in self._same:
            passed.append(known)
            size = self._same[known]
        for known in passed:  # path compression
            self._same[known] = size
        return size


def _raw(size: Size) -> Any:
    return size if isinstance(size, int) else ("symbol", size.raw)


def unify_sizes(program: Program, guards: Sequence[Any]) -> Program:
    """The program with input sizes that guards found equal unified, so that values of equal size can share a pass.

    It is valid where the guards hold. Only sizes of inputs are replaced, in all expressions that they are part of.
    """
    equal = EqualSizes(guards)
    if not equal:
        return program
    symbols = {_raw(s): s for v in program.inputs for s in v.type.shape}
    leaves, values = [], []
    for k, v in enumerate(program.inputs):
        for axis, size in enumerate(v.type.shape):
            one = equal.one(size)
            if _raw(one) != _raw(size) and (isinstance(one, int) or _raw(one) in symbols):
                leaves.append((0, k, axis))
                values.append(one)
    if not leaves:
        return program

    substitute = _core.SizeSubstitution(leaves, values)
    substituted: dict[Any, Shape] = {}
    types: dict[Any, Type] = {}
    made: dict[Var, Var] = {}

    def sizes(shape: Shape, key: Any) -> Shape:
        if key not in substituted:
            substituted[key] = substitute(shape)
        return substituted[key]

    def remade(v: Var) -> Var:
        shape = _core.attr_key(v.type.shape)
        key = (v.type.dtype, shape)
        if key not in types:
            types[key] = Type(v.type.dtype, sizes(v.type.shape, shape))
        made[v] = Var(types[key], v.linear)
        return made[v]

    inputs, body = [remade(v) for v in program.inputs], []
    for i in program.instructions:
        attrs = resized_attrs(i, lambda shape: sizes(shape, _core.attr_key(shape)))
        operands = tuple([made[x] if isinstance(x, Var) else x for x in i.inputs])
        body.append(Instruction(i.op, operands, attrs, tuple([remade(v) for v in i.outputs]), i.origin))
    return verified(Program(inputs, body, [made[o] if isinstance(o, Var) else o for o in program.outputs]))
