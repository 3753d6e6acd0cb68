"""Programs: printing, verification, simplification, sizes as expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.tolerances import assert_same
from wengert import _core
from wengert.ops import OPS
from wengert.passes.evaluate import evaluate
from wengert.program.ir import Const, Instruction, Program, Type, Var, remove_dead
from wengert.program.lower import lower
from wengert.program.simplify import simplify
from wengert.program.trace import Trace

F64 = wg.float64.code


def traced(f: Any, *shapes: tuple[int, ...]) -> Program:
    trace = Trace()
    xs = [trace.input(Type(F64, s)) for s in shapes]
    with trace:
        y = f(*xs)
    ys = y if isinstance(y, tuple) else (y,)
    return trace.program([t._var for t in ys])


def run(program: Program, *arrays: Any) -> list[Any]:
    return [o.numpy() for o in evaluate(program, [wg.asarray(np.asarray(a)) for a in arrays], [], [])]


def names(program: Program) -> list[str]:
    return [i.op.name for i in program.instructions]


def test_printing() -> None:
    text = str(traced(lambda x: wg.exp(x * 2.0).sum(axis=1), (2, 3)))
    lines = text.splitlines()
    assert lines[0].startswith("(v0: float64[2, 3])")
    assert any("mul v0, 2.0" in line or "mul 2.0, v0" in line for line in lines)
    assert any("sum" in line and "axes=(1,)" in line for line in lines)
    assert lines[-1].strip().startswith("return")


def test_verify_accepts_what_tracing_makes() -> None:
    traced(lambda x, y: wg.tanh(x @ y) + wg.ones((2, 4), dtype=wg.float64), (2, 3), (3, 4)).verify()


def test_verify_rejects_broken_programs() -> None:
    a, b = Var(Type(F64, (2,))), Var(Type(F64, (2,)))
    exp, add = OPS["exp"], OPS["add"]
    with pytest.raises(AssertionError, match="exp"):
        Program([], [Instruction(exp, (a,), (), (b,))], [b]).verify()
    with pytest.raises(AssertionError, match="exists already"):
        Program([a], [Instruction(exp, (a,), (), (a,))], [a]).verify()
    with pytest.raises(AssertionError, match="never made"):
        Program([a], [], [b]).verify()
    wrong = Var(Type(wg.float32.code, (2,)))
    with pytest.raises(AssertionError, match="expected"):
        Program([a], [Instruction(exp, (a,), (), (wrong,))], [wrong]).verify()
    flat = Var(Type(F64, (2, 1)))
    with pytest.raises(AssertionError, match="expected"):
        Program([a], [Instruction(exp, (a,), (), (flat,))], [flat]).verify()
    other = Var(Type(F64, (3,)))
    with pytest.raises((AssertionError, wg.ShapeError)):
        Program([a, other], [Instruction(add, (a, other), (), (b,))], [b]).verify()


def test_verify_compares_sizes() -> None:
    a, wrong = Var(Type(F64, (2,))), Var(Type(F64, (5,)))
    with pytest.raises(AssertionError):
        Program([a], [Instruction(OPS["exp"], (a,), (), (wrong,))], [wrong]).verify()


# ------------------------------------------------------------------------------------------------- simplification


def test_common_subexpressions() -> None:
    p = simplify(traced(lambda x: wg.exp(x) * wg.exp(x) + wg.exp(x), (3,)))
    assert names(p).count("exp") == 1
    p.verify()


def test_different_attributes_are_not_common() -> None:
    p = simplify(traced(lambda x: x.sum(axis=0) + x.sum(axis=1), (3, 3)))
    assert names(p).count("sum") == 2


def test_constants_of_different_kinds_are_not_common() -> None:
    p = simplify(traced(lambda x: (x + 1.0) * (x - 1.0) + (x + -0.0) * (x + 0.0), (3,)))
    assert names(p).count("add") >= 3


def test_zeros_of_different_signs_are_not_common() -> None:
    f = wg.compile(lambda x: (wg.full((2,), 0.0) * x, wg.full((2,), -0.0) * x))
    assert [np.signbit(y.numpy()).tolist() for y in f(wg.ones((2,)))] == [[False, False], [True, True]]


def test_random_numbers_are_not_common() -> None:
    p = simplify(traced(lambda x: x * 1.0, (3,)))
    assert names(p) == []
    assert p.outputs == p.inputs


def test_dead_code() -> None:
    def f(x: Any) -> Any:
        wg.exp(x)
        return wg.sin(x)

    assert names(simplify(traced(f, (3,)))) == ["sin"]
    p = traced(f, (3,))
    assert [i.op.name for i in remove_dead(p.instructions, p.outputs)] == ["sin"]
    assert remove_dead(p.instructions, [None]) == []


def test_identities() -> None:
    identities = {
        "times one": lambda x: x * 1.0,
        "one times": lambda x: 1.0 * x,
        "over one": lambda x: x / 1.0,
        "same shape": lambda x: x.reshape((2, 3)),
        "same dtype": lambda x: OPS["cast"](x, F64),
        "transposed back": lambda x: x.T.T,
        "negated back": lambda x: -(-x),
    }
    for name, f in identities.items():
        assert names(simplify(traced(f, (2, 3)))) == [], name


def test_what_is_not_an_identity() -> None:
    """x + 0 turns −0 into 0; x·0 keeps NaN; x/x, x − x are not constants."""
    for f in (lambda x: x + 0.0, lambda x: x * 0.0, lambda x: x - x, lambda x: x / x, lambda x: x**1.0 + x):
        assert names(simplify(traced(f, (3,))))


def test_simplifying_keeps_the_values() -> None:
    rng = np.random.default_rng(0)

    def f(x: Any, w: Any) -> Any:
        y = wg.tanh(x @ w.T.T) * 1.0
        return (y + y) @ w.T, -(-y.sum(axis=0)), (y * wg.exp(y)).reshape((8,)).reshape((2, 4))

    p = traced(f, (2, 3), (3, 4))
    s = simplify(p)
    s.verify()
    assert len(s.instructions) < len(p.instructions)
    arrays = rng.standard_normal((2, 3)), rng.standard_normal((3, 4))
    for a, b in zip(run(p, *arrays), run(s, *arrays)):
        np.testing.assert_array_equal(a, b)


def test_transposes_become_flags() -> None:
    p = simplify(traced(lambda x, w: x.T @ w.T, (3, 2), (4, 3)))
    assert names(p) == ["matmul"] and p.instructions[0].attrs == (1, 1)
    p = simplify(traced(lambda x, w: wg.permute_dims(x, (1, 0, 2)) @ w, (3, 2, 3), (2, 3, 3)))
    assert "permute" in names(p)


def split(x: Any) -> Any:
    a, b, c = x[:, 0], x[:, 1], x[:, 2]
    return (wg.sin(a) * b * wg.exp(c)).sum()


def test_the_gradient_of_a_split_is_joined_and_keeps_its_bits() -> None:
    p = simplify(traced(wg.grad(split), (2, 3, 4)))
    assert "unslice" not in names(p)
    assert names(p).count("concat") == 1
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    x[0] = -0.0  # the zeros around a slice turn -0 into 0
    (joined,), (apart,) = run(p, x), run(traced(wg.grad(split), (2, 3, 4)), x)
    assert_same(joined, apart)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x[:2] ** 2).sum() + (x[3:] ** 3).sum(),  # a row between them
        lambda x: (x[:3] ** 2).sum() + (x[2:] ** 3).sum(),  # a row in both
        lambda x: (x[::2] ** 2).sum() + (x[1::2] ** 3).sum(),
        lambda x: (x[:2, :1] ** 2).sum() + (x[2:, 1:] ** 3).sum(),
        lambda x: (x[:2] ** 2).sum() + (x[2:] ** 3).sum() + wg.sin(x).sum(),
    ],
)
def test_slices_that_do_not_cover_everything_once_are_added(f: Any) -> None:
    p = traced(wg.grad(f), (4, 3))
    assert "concat" not in names(simplify(p))
    x = np.random.default_rng(0).standard_normal((4, 3))
    assert_same(run(simplify(p), x)[0], run(p, x)[0])


def test_simplify_is_idempotent() -> None:
    p = simplify(traced(lambda x: wg.softmax(x * 1.0) + wg.softmax(x), (2, 3)))
    assert names(simplify(p)) == names(p)


# --------------------------------------------------------------------------------------------------- expressions


def test_sizes_are_expressions() -> None:
    _core.open_guards()
    try:
        n = _core.new_symbol(0, 0, 0, 6)
        assert str(n + 1) != str(n)
        assert (n * 2).hint == 12 and (n - 1).hint == 5 and (n // 2).hint == 3
        values = _core.substitute_sizes((n, n * 2 + 1, (n - 1) * 3), [(0, 0, 0)], [10])
        assert tuple(values) == (10, 21, 27)
    finally:
        _core.close_guards()


def test_comparisons_of_sizes_record_guards() -> None:
    _core.open_guards()
    n, m = _core.new_symbol(0, 0, 0, 6), _core.new_symbol(0, 1, 0, 6)
    assert n == m
    assert not n == 7
    assert n < 10
    guards = _core.close_guards()
    described = _core.describe_guards(guards)
    assert len(described) == 3
    assert [outcome for *_, outcome in described] == [True, False, True]


def test_equal_expressions_need_no_guard() -> None:
    _core.open_guards()
    n = _core.new_symbol(0, 0, 0, 6)
    assert n == n and n + 1 == n + 1
    assert _core.close_guards() == []


def test_lowering_runs_what_it_prints() -> None:
    p = traced(lambda x: (wg.exp(x), x.sum(axis=0)), (2, 3))
    assert lower(p) is not None
    Const(1.0, F64)


@pytest.mark.parametrize("number", [np.float64(0.6), np.float32(0.5), np.int64(2)])
def test_numbers_of_numpy_are_literals_like_any_other(number: Any) -> None:
    f = lambda x: (x * x + 0.5) ** number
    same = lambda x: (x * x + 0.5) ** number.item()
    x, v = wg.tensor([1.0, 2.0]), wg.tensor([0.5, -1.0])
    np.testing.assert_array_equal(wg.jvp(f, (x,), (v,))[1].numpy(), wg.jvp(same, (x,), (v,))[1].numpy())
    expected = wg.vjp(same, x)[1](v)[0].numpy()
    np.testing.assert_allclose(wg.vjp(wg.compile(f), x)[1](v)[0].numpy(), expected, rtol=1e-6)
    g = wg.compile(lambda x, k: (x * x + 0.5) ** k)
    np.testing.assert_allclose(wg.vjp(lambda x: g(x, number), x)[1](v)[0].numpy(), expected, rtol=1e-6)
