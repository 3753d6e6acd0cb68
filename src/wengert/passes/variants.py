"""Variants of ops and derived programs, as the core asks for them: derivatives, pushes, programs with fewer outputs.

Each is derived once per signature: on symbols that have the sizes of the call at hand as examples, under guards.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from wengert import _core
from wengert._core import same_sizes
from wengert.passes.derive import Derivable, Derivation, Leaf, derive, push, with_cotangents
from wengert.program.ir import Const, Instruction, Program, Type, Var, infer, remove_dead, resized
from wengert.program.lower import lower
from wengert.program.nested import innermost_first
from wengert.program.sizes import EqualSizes, own_symbols
from wengert.registry.record import CALLBACKS, OPS

_NOTHING, _FROM_INPUT, _FROM_RESULT = 0, 1, 2  # as core/derived.h: OutputRef::Kind
_OF_INPUT, _OF_ATTRIBUTE, _GIVEN = 0, 1, 3  # as core/dim.h: SizeLeaf::Kind


def symbolic_types(types: Sequence[tuple[int, tuple[int, ...]]]) -> list[Type]:
    """Types with symbolic sizes, except sizes of 1, which decide about broadcasting."""
    return [
        Type(d, tuple(n if n == 1 else _core.new_symbol(0, k, axis, n) for axis, n in enumerate(shape)))
        for k, (d, shape) in enumerate(types)
    ]


def _example(spec: Any, n: int) -> int:
    """The example size of a symbol. Symbols live as long as the process and are shared by programs with the same example. A
    position in a random stream never repeats and decides nothing, so its example is always 0."""
    return 0 if spec.name in ("key", "counter") else n


def _symbolic_attrs(name: str, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        tuple(n if n == 1 else _core.new_symbol(_OF_ATTRIBUTE, k, j, _example(spec, n)) for j, n in enumerate(value))
        if spec.kind == "sizes"
        else value
        for k, (spec, value) in enumerate(zip(OPS[name].attrs, attrs))
    )


def _given_attrs(name: str, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Attributes whose sizes are symbols for the list of sizes given to the program, all of them, in order."""
    position = itertools.count()
    return tuple(
        tuple(n if n == 1 else _core.new_symbol(_GIVEN, 0, k, _example(spec, n)) for n, k in zip(value, position))
        if spec.kind == "sizes"
        else value
        for spec, value in zip(OPS[name].attrs, attrs)
    )


def _unified_types(name: str, types: Sequence[tuple[int, tuple[int, ...]]], sizes: tuple[Any, ...]) -> Any:
    """Symbolic types and attributes in which sizes that the op requires to be equal share a symbol.

    The op's own shape rule says which: it compares them. Those guards hold for every valid call.
    """
    inputs, op = symbolic_types(types), OPS[name]
    _core.open_guards()
    try:
        infer(op, [Var(t) for t in inputs], sizes)
    finally:
        guards = _core.close_guards()
    equal = EqualSizes(guards)
    inputs = [Type(t.dtype, tuple(map(equal.one, t.shape))) for t in inputs]
    sizes = tuple(tuple(map(equal.one, v)) if spec.kind == "sizes" else v for spec, v in zip(op.attrs, sizes))
    return inputs, sizes


@own_symbols()
def derive_op(name: str, types: list[tuple[int, tuple[int, ...]]], attrs: tuple[Any, ...], mask: int) -> Any:
    """The derivative of one op, for the core: (native derivative, guards)."""
    _core.infer(name, types, attrs)  # so that errors show the actual sizes rather than symbols
    inputs, sizes = _unified_types(name, types, _symbolic_attrs(name, attrs))
    _core.open_guards()
    try:
        program = _instruction_alone(name, inputs, sizes)
        derivation = derive(program, mask, name)
        alone = derivation.n_residuals == 0 and name not in CALLBACKS  # whose kernels run in programs only
        native = _hand_over(derivation, name if alone else None)
    finally:
        guards = _core.close_guards()
    return native, guards


@own_symbols()
def push_op(name: str, types: list[tuple[int, tuple[int, ...]]], attrs: tuple[Any, ...], mask: int) -> Any:
    """The push of one op, for the core: (native derived program, guards)."""
    _core.infer(name, types, attrs)
    inputs, sizes = _unified_types(name, types, _given_attrs(name, attrs))
    _core.open_guards()
    try:
        program = push(_instruction_alone(name, inputs, sizes), mask)
        n_given = sum(len(value) for spec, value in zip(OPS[name].attrs, attrs) if spec.kind == "sizes")
        source = Derivable(f"push({name})", program, [], [(_GIVEN, 0, k) for k in range(n_given)])
        executable = lower(program)
        executable.name = source.name
        native = _core.make_derived(executable, n_given, source)
    finally:
        guards = _core.close_guards()
    return native, guards


def _instruction_alone(name: str, types: Sequence[Type], attrs: tuple[Any, ...]) -> Program:
    op, variables = OPS[name], [Var(t) for t in types]
    outputs = tuple(Var(t) for t in infer(op, variables, attrs))
    return Program(variables, [Instruction(op, tuple(variables), attrs, outputs)], list(outputs))


def derive_program(program: Program, mask: int, name: str) -> tuple[Derivation, Any]:
    """The derivative of a traced program, and its native form."""
    derivation = derive(program, mask, name)
    return derivation, _hand_over(derivation, None)


@own_symbols()
def derive_again(source: Derivable, types: list[tuple[int, Any]], given: list[int], mask: int) -> Any:
    """The derivative of a derived program, for the core: (native derivative, guards, whether it holds for every rank)."""
    program, past = _retyped(source, types, given)
    results, outputs = _results(program)
    _core.open_guards()
    try:
        derivation = derive(Program(program.inputs, program.instructions, list(results)), mask, source.name, past)
        forward = lower(derivation.forward)
        native = _hand_over(derivation, None, forward, outputs)
    finally:
        guards = _core.close_guards()
    any_rank = not _has_one_shape(source) or not (guards or derivation.leaves or forward.size_leaves)
    return native, guards, any_rank


@own_symbols()
def push_again(source: Derivable, types: list[tuple[int, Any]], given: list[int], mask: int) -> Any:
    """The push of a derived program, for the core: (native derived program, guards, whether it holds for every rank)."""
    program, past = _retyped(source, types, given)
    assert not past, "residuals have no tangents: what the walk applies are plain values"
    _core.open_guards()
    try:
        pushed = push(program, mask)
        executable = lower(pushed)
    finally:
        guards = _core.close_guards()
    leaves = [(_GIVEN, 0, k) for k in range(len(given))]
    executable.name = f"push({source.name})"
    native = _core.make_derived(executable, len(given), Derivable(executable.name, pushed, [], leaves))
    any_rank = not _has_one_shape(source) or not (guards or executable.size_leaves)
    return native, guards, any_rank


def narrow(source: Derivable, mask: int) -> Any:
    """The derived program with only the outputs in the mask, for the core. It takes the same sizes as the whole one."""
    program = narrowed(source.program, mask)
    executable = lower(program, leaves=source.leaves)
    executable.name = source.name.removeprefix("vjp(").removesuffix(")")  # as the whole one
    return _core.make_derived(executable, -1, Derivable(source.name, program, source.past, source.leaves))


def narrowed(program: Program, mask: int) -> Program:
    """The program with only the outputs in the mask; the others are symbolic zeros."""
    outputs = [o if mask >> k & 1 else None for k, o in enumerate(program.outputs)]
    return Program(program.inputs, remove_dead(program.instructions, outputs), outputs)


@own_symbols()
def partial(source: Derivable, types: list[tuple[int, Any]], given: list[int], n_bars: int, mask: int) -> Any:
    """A vjp, whose first `n_bars` operands are cotangents, taking only those in the mask while the others are zero. For the
    core: (native derived program, guards, whether it holds for every rank), or None if the program needs the others."""
    missing = {k for k in range(n_bars) if not mask >> k & 1}
    program, past = _retyped(source, types, given, missing)
    _core.open_guards()
    try:
        made, past = with_cotangents(program, past, n_bars, missing)
        executable: Any = None if made is None else lower(made)
    finally:
        guards = _core.close_guards()
    if made is None or _read_missing(executable.size_leaves) or _read_missing(_leaves_of_guards(guards)):
        return None
    leaves = [(_GIVEN, 0, k) for k in range(len(given))]
    executable.name = source.name.removeprefix("vjp(").removesuffix(")")
    native = _core.make_derived(executable, len(given), Derivable(source.name, made, past, leaves))
    any_rank = not _has_one_shape(source) or not (guards or executable.size_leaves)
    return native, guards, any_rank


_MISSING = 1 << 24  # marks sizes that come from missing operands


def _read_missing(leaves: Sequence[Leaf]) -> bool:
    return any(kind == _OF_INPUT and source >= _MISSING for kind, source, _ in leaves)


def _leaves_of_guards(guards: list[Any]) -> list[Leaf]:
    sizes = [n for a, _, b, _ in _core.describe_guards(guards) for n in (a, b)]
    return _leaves(tuple(sizes))


def _hand_over(d: Derivation, op_name: str | None, forward: Any = None, outputs: Sequence[Any] = ()) -> Any:
    executable = lower(d.vjp, keep=_sizes_to_keep(d.vjp, d.past))
    d.leaves = executable.size_leaves
    if forward is None and op_name is None:
        forward = lower(d.forward)
    vjp = _core.make_derived(executable, -1, Derivable(f"vjp({d.name})", d.vjp, d.past, d.leaves))
    return _core.make_derivative(op_name, d.name, forward, vjp, d.saves, d.edges, d.n_outputs, outputs, d)


# ------------------------------------------------------------------------------------------ programs as instructions


def _results(program: Program) -> tuple[list[Var], list[tuple[int, int]]]:
    """The distinct computed outputs, and for each output whether it is None, an input, or one of these."""
    results: list[Var] = []
    places: dict[Var, tuple[int, int]] = {v: (_FROM_INPUT, k) for k, v in enumerate(program.inputs)}
    outputs = []
    for o in program.outputs:
        if isinstance(o, Const):
            made = Var(Type(o.dtype, ()))
            program.instructions.append(Instruction(OPS["full"], (), ((), o.dtype, o.value), (made,)))
            o = made
        if o is not None and o not in places:
            places[o] = (_FROM_RESULT, len(results))
            results.append(o)
        outputs.append((_NOTHING, 0) if o is None else places[o])
    return results, outputs


def _sizes_to_keep(program: Program, past: list[Instruction]) -> list[Any]:
    """Sizes that a later derivative of the program needs but cannot read from its operands."""
    shown = {leaf for v in program.inputs for n in v.type.shape if _is_leaf(n) for leaf in _core.leaves_of_sizes((n,))}
    sizes = [n for v in program.inputs for n in v.type.shape]
    sizes += _attr_sizes([*program.instructions, *past])
    hidden = set(_core.leaves_of_sizes(tuple(n for n in sizes if not isinstance(n, int)))) - shown
    return [n for n in sizes if not isinstance(n, int) and any(leaf in hidden for leaf in _core.leaves_of_sizes((n,)))]


def _attr_sizes(instructions: Sequence[Instruction]) -> list[Any]:
    """The sizes among the attributes of instructions, and in the programs inside of them, but for the sizes that these have
    for themselves."""
    programs = innermost_first(instructions)
    attrs = [
        (spec.kind, value)
        for i in (*instructions, *(inner for p in programs for inner in p.instructions))
        for spec, value in zip(i.op.attrs, i.attrs)
    ]
    sizes = [n for p in programs for v in p.inputs for n in v.type.shape]
    sizes += [n for kind, value in attrs if kind == "sizes" for n in value]
    own = {leaf for kind, value in attrs if kind == "bound" for leaf in _leaves(value)}
    return [n for n in sizes if own.isdisjoint(_leaves((n,)))] if own else sizes


def _leaves(sizes: tuple[Any, ...]) -> list[Leaf]:
    return list(_core.leaves_of_sizes(tuple(n for n in sizes if not isinstance(n, int))))


def _is_leaf(n: Any) -> bool:
    return not isinstance(n, int) and n.is_leaf


def _has_one_shape(source: Derivable) -> bool:
    """Whether all values have the same shape, whatever it is, so that the program is valid for every rank."""
    shape = source.program.inputs[0].type.shape
    return not source.leaves and all(
        i.op.fuses == "map" and all(same_sizes(v.type.shape, shape) for v in (*i.outputs, *i.vars()))
        for i in (*source.program.instructions, *source.past)
    )


def _retyped(
    source: Derivable, types: list[tuple[int, Any]], given: list[int], missing: Collection[int] = ()
) -> tuple[Program, list[Instruction]]:
    """The program and the past of its residuals in terms of fresh sizes: those of these operands, and the given ones.

    A variant is derived later than the program itself and at other sizes, which decide what guards say. `missing`: operands
    that the variant does not have; the others are counted without them, and show their sizes where they can.
    """
    if _has_one_shape(source):
        sizes = tuple(_core.new_symbol(_OF_INPUT, 0, axis, n) for axis, n in enumerate(types[0][1]))
        return _remade(source, lambda shape: sizes)
    leaves: list[Leaf] = []
    symbols: list[Any] = []

    def show(operands: Iterable[int], first: int) -> None:
        for position, k in enumerate(operands, first):
            for axis, (size, n) in enumerate(zip(source.program.inputs[k].type.shape, types[k][1])):
                if _is_leaf(size):
                    (leaf,) = _core.leaves_of_sizes((size,))
                    if leaf not in leaves:
                        leaves.append(leaf)
                        symbols.append(_core.new_symbol(_OF_INPUT, position, axis, n))

    show((k for k in range(len(types)) if k not in missing), 0)
    for i, (leaf, n) in enumerate(zip(source.leaves, given)):
        if leaf not in leaves:
            leaves.append(leaf)
            symbols.append(_core.new_symbol(_GIVEN, 0, i, n))
    show(sorted(missing), _MISSING)
    return _remade(source, lambda shape: tuple(_core.substitute_sizes(shape, leaves, symbols)))


def at_sizes(source: Derivable, types: list[tuple[int, Any]], given: list[int], first: int) -> Program:
    """The program with the sizes of these operands and the given sizes as numbers.

    Those that say where a stream of random numbers begins, which are others each time, are symbols: of given sizes, counted
    from `first` on.
    """
    if _has_one_shape(source):
        return _remade(source, lambda shape: types[0][1])[0]
    known: dict[Leaf, Any] = {}
    for v, (_, shape) in zip(source.program.inputs, types):
        for size, n in zip(v.type.shape, shape):
            if _is_leaf(size):
                known.setdefault(_leaves((size,))[0], n)
    streams = {leaf for i in source.program.instructions for leaf in _leaves(_streams(i))}
    for k, (leaf, n) in enumerate(zip(source.leaves, given)):
        known.setdefault(leaf, _core.new_symbol(_GIVEN, 0, first + k, n) if leaf in streams else n)
    leaves, sizes = list(known), list(known.values())
    return _remade(source, lambda shape: tuple(_core.substitute_sizes(shape, leaves, sizes)))[0]


def _streams(i: Instruction) -> tuple[Any, ...]:
    return tuple(n for spec, value in zip(i.op.attrs, i.attrs) if spec.name in ("key", "counter") for n in value)


def _remade(source: Derivable, sizes: Callable[[Any], Any]) -> tuple[Program, list[Instruction]]:
    made = resized(source.program, sizes, source.past)
    n = len(source.past)
    return Program(made.inputs, made.instructions[n:], made.outputs), made.instructions[:n]
