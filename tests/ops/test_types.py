"""The shape rule of every op: on numbers and on symbols, and the programs that stand on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ops.sampling import OPS, all_dtypes_of, array, call, cases, differentiable, dtypes_of, make, outputs, tensor
from tests.tolerances import assert_same
from wengert import _core
from wengert.compiling.compile import compile
from wengert.dtypes import ALL, as_dtype
from wengert.passes.derive import derive
from wengert.passes.variants import _symbolic_attrs, _unified_types, narrowed, symbolic_types
from wengert.program.ir import Instruction, Program, Var, infer
from wengert.registry.record import Op
from wengert.registry.samples import Sample


def _hint(n: Any) -> int:
    return n if isinstance(n, int) else n.hint


def _types(arrays: list[Any]) -> list[tuple[int, tuple[int, ...]]]:
    return [(as_dtype(a.dtype).code, a.shape) for a in arrays]


@pytest.mark.parametrize(("op", "sample"), cases())
def test_shape_rule_agrees_with_the_result(op: Op, sample: Sample) -> None:
    for dtype in dtypes_of(sample):
        arrays = make(sample, dtype, op.name)
        made = outputs(op, [tensor(a) for a in arrays], sample.attrs)
        if op.elementwise:  # operands are cast to what it computes in before the rule is asked
            computed = ALL[_core.elementwise_dtypes(op.name, as_dtype(arrays[-1].dtype).code)[0]]
            arrays = [a if a.dtype == bool else a.astype(computed.to_numpy()) for a in arrays]
        inferred = _core.infer(op.name, _types(arrays), sample.attrs)
        assert [(y.dtype.code, tuple(y.shape)) for y in made] == [(code, tuple(shape)) for code, shape in inferred]


@pytest.mark.parametrize(("op", "sample"), cases())
def test_symbolic_shape_rule(op: Op, sample: Sample) -> None:
    arrays = make(sample, dtypes_of(sample)[0], op.name)
    expected = _core.infer(op.name, _types(arrays), sample.attrs)
    _core.open_guards()
    try:
        inputs = [Var(t) for t in symbolic_types(_types(arrays))]
        attrs = _symbolic_attrs(op.name, sample.attrs)
        outputs = tuple(Var(t) for t in infer(op, inputs, attrs))
        program = Program(inputs, [Instruction(op, tuple(inputs), attrs, outputs)], list(outputs))
        program.verify()
        assert op.name in str(program)
    finally:
        _core.close_guards()
    for v, (code, shape) in zip(outputs, expected):
        assert v.type.dtype == code
        assert tuple(_hint(n) for n in v.type.shape) == tuple(shape)


@pytest.mark.parametrize(("op", "sample"), cases(differentiable))
def test_derived_programs_verify(op: Op, sample: Sample) -> None:
    arrays = make(sample, "float64", op.name)
    inputs, sizes = _unified_types(op.name, _types(arrays), _symbolic_attrs(op.name, sample.attrs))
    mask = sum(1 << k for k, a in enumerate(arrays) if as_dtype(a.dtype).is_floating)
    _core.open_guards()
    try:
        variables = [Var(t) for t in inputs]
        outputs = tuple(Var(t) for t in infer(op, variables, sizes))
        program = Program(variables, [Instruction(op, tuple(variables), sizes, outputs)], list(outputs))
        derivation = derive(program, mask, op.name)
        derivation.forward.verify()
        derivation.vjp.verify()
        for narrow in range(1, 1 << len(derivation.edges)):
            narrowed(derivation.vjp, narrow).verify()
    finally:
        _core.close_guards()
    for edge, bar in zip(derivation.edges, derivation.vjp.outputs):
        if bar is not None:
            assert isinstance(bar, Var)
            assert bar.type.dtype == inputs[edge].dtype
            assert tuple(map(_hint, bar.type.shape)) == tuple(map(_hint, inputs[edge].shape))


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, s: bool(s.inputs)))
def test_compiled_call_has_the_same_bits(op: Op, sample: Sample) -> None:
    for dtype in all_dtypes_of(op, sample):
        arrays = make(sample, dtype, op.name)
        compiled = compile(lambda *xs: call(op, xs, sample.attrs))
        eager = array(call(op, [tensor(a) for a in arrays], sample.attrs))
        got = array(compiled(*(tensor(a) for a in arrays)))
        assert_same(got, eager)


def test_registry_and_core_hold_the_same_ops() -> None:
    assert {native.name for native in _core.op_table()} == set(OPS)
