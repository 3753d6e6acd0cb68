"""Pullbacks of instructions like one that a walk has met before: copied, because the rules would make the same again.

A rule sees types, attributes and literals, never numbers. So the instructions that it makes for one `tanh` serve every
`tanh` of these types, with other operands, and a chain of many layers runs the rules of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wengert._core import attr_key
from wengert.program.ir import Const, Instruction, Type, Var
from wengert.program.trace import Trace, derived_origin, open_calls
from wengert.registry.zero import ZERO


@dataclass(slots=True)
class _Known:
    """What the rules made of an instruction."""

    values: Sequence[Var | None]  # its operands, its results and their cotangents
    instructions: Sequence[Instruction]
    cotangents: Sequence[Var | None]  # of its operands; None: zero


class KnownPullbacks:
    """The pullbacks that a walk through a trace has made, by the form of their instructions."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[Any, _Known] = {}
        self._types: dict[int, tuple[Type, Any]] = {}  # held, so that none takes the place of another

    def form(self, i: Instruction, wanted: Sequence[int], values: Sequence[Var | None]) -> Any:
        """Equal for instructions of which the rules make the same; None if their pullbacks are not kept.

        `values`: its operands, its results and their cotangents, or None where one is zero. Which of them are the same value
        is part of the form, as are the operands that have a cotangent themselves.
        """
        if i.op.callback or i.op.infer is not None:  # functions of the user's, and programs inside
            return None
        numbers: dict[Var | None, int] = {}
        same = tuple([numbers.setdefault(v, len(numbers)) for v in values])
        types = tuple([None if v is None else (v.linear, self._type(v.type)) for v in numbers])
        literals = tuple([(repr(x.value), x.dtype) if isinstance(x, Const) else None for x in i.inputs])
        return (i.op, attr_key(i.attrs) if i.attrs else None, literals, tuple(wanted), same, types)

    def _type(self, t: Type) -> Any:
        known = self._types.get(id(t))
        if known is None:
            known = self._types[id(t)] = (t, (t.dtype, attr_key(t.shape)))
        return known[1]

    def keep(
        self, form: Any, values: Sequence[Var | None], instructions: Sequence[Instruction], found: Sequence[Any]
    ) -> None:
        """Remember a pullback: the instructions that were added for it, and the cotangents that were found."""
        if any(x is not ZERO and _is_view(x) for x in found):
            return  # a copy would not follow what is written to the base
        self._known[form] = _Known(values, instructions, [None if x is ZERO else x._var for x in found])

    def copied(
        self, form: Any, values: Sequence[Var | None], bars: Mapping[Var, Any], i: Instruction
    ) -> list[Any] | None:
        """The cotangents of the operands of an instruction, by a copy of the pullback of one like it; None without one.

        `bars`: tensors that are cotangents already, by their values.
        """
        known = self._known.get(form)
        if known is None:
            return None
        trace, origin, calls = self._trace, derived_origin(i), open_calls()
        names: dict[Any, Any] = dict(zip(known.values, values))
        for k in known.instructions:
            operands = tuple([names.get(x, x) if isinstance(x, Var) else x for x in k.inputs])
            outputs = tuple([Var(o.type, o.linear) for o in k.outputs])
            names.update(zip(k.outputs, outputs))
            trace.append(Instruction(k.op, operands, k.attrs, outputs, origin), calls)
        found = [None if v is None else names.get(v, v) for v in known.cotangents]
        return [ZERO if v is None else bars[v] if v in bars else trace.tracer(v) for v in found]


def _is_view(x: Any) -> bool:
    return getattr(x, "_view", None) is not None
