"""Every pass over programs goes as deep as they are: no level of nesting takes a level of the stack."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wengert as wg
from wengert.graph.sized_program import SizedProgram
from wengert.passes.derive import derive, push
from wengert.passes.evaluate import evaluate
from wengert.program.ir import Program, Type, resized
from wengert.program.lower import lower
from wengert.program.nested import innermost_first
from wengert.program.simplify import read_by_derivatives, simplify
from wengert.program.trace import Trace, create
from wengert.registry.record import OPS
from wengert.transforms.branches import taken
from wengert.transforms.costs import derivatives, work_of
from wengert.transforms.loops import Loop
from wengert.transforms.sized import new_size, sized
from wengert.transforms.sparsity import propagate, unit_patterns
from wengert.transforms.while_loops import _While

DEPTH, FRAMES = 400, 200  # a level that takes a call would not fit into so many
REAL, COUNT, FLAG = Type(wg.float64.code, (3,)), Type(wg.int64.code, ()), Type(wg.bool_.code, ())
X = wg.tensor([0.5, -1.25, 2.0], dtype=wg.float64)
GO = wg.tensor(True)
Y = (wg.sin(X) * X).tolist()
SLOPE = (wg.cos(X) * X + wg.sin(X)).tolist()
CURVATURE = (2.0 * wg.cos(X) - wg.sin(X) * X).tolist()


def program(f: Callable[..., Any], *types: Type) -> Program:
    trace = Trace()
    given = [trace.input(t) for t in types]
    with trace:
        y = f(*given)
    return Program(trace.inputs, trace.instructions, [v._var for v in (y if isinstance(y, tuple) else (y,))])


# Each makes a program of two operands, x and whether to go on, that runs `inner`, of the same operands, once.


def choice(inner: Program) -> Program:
    other = program(lambda x, go: x * 2.0, REAL, FLAG)
    return program(lambda x, go: taken(go, [other, inner], [x, go])[0], REAL, FLAG)


def loop(inner: Program) -> Program:
    return program(lambda x, go: Loop(inner, 1, 1, 0, False).apply([x, go])[0], REAL, FLAG)


def while_loop(inner: Program) -> Program:
    condition = program(lambda x, k, go: k < 1, REAL, COUNT, FLAG)

    def turn(x: Any, k: Any, go: Any) -> Any:
        return evaluate(inner, [x, go], [], [])[0], k + 1

    body = program(turn, REAL, COUNT, FLAG)
    none = lambda: create(OPS["full"], ((), wg.int64.code, 0.0))
    return program(lambda x, go: _While(condition, body, 2, 0).apply([x, none(), go])[0], REAL, FLAG)


def of_own_size(inner: Program) -> Program:
    n = new_size()
    many = lambda x: wg.broadcast_to(wg.reshape(x, (1, 3)), (n, 3)).max(axis=0)
    body = program(lambda x, go: many(evaluate(inner, [x, go], [], [])[0]), REAL, FLAG)
    two = lambda: create(OPS["full"], ((), wg.int64.code, 2.0))
    return program(lambda x, go: sized([n], [two()], body, [x, go])[0], REAL, FLAG)


@pytest.fixture(autouse=True)
def _little_stack() -> Iterator[None]:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + FRAMES)
    yield
    sys.setrecursionlimit(before)


LEVELS = {"choice": choice, "loop": loop, "while_loop": while_loop, "of_own_size": of_own_size}


@pytest.fixture(scope="module", params=LEVELS)
def deep(request: pytest.FixtureRequest) -> Program:
    p = program(lambda x, go: wg.sin(x) * x, REAL, FLAG)
    for _ in range(DEPTH):
        p = LEVELS[request.param](p)
    return p


@pytest.fixture(scope="module")
def function(deep: Program) -> Callable[[Any], Any]:
    """The program as a compiled function of x."""
    sized_program = SizedProgram("deep", deep)
    return lambda x: sized_program([x, GO])[0]


def test_looking_at_it(deep: Program) -> None:
    deep.verify()
    assert str(deep).count("return") == len(innermost_first(deep.instructions)) + 1
    assert not read_by_derivatives(deep)
    assert work_of(deep.instructions[-1]).flops > 0
    assert len(derivatives(deep, deep.inputs[:1])) == 1


def test_running_it(deep: Program) -> None:
    assert lower(simplify(deep)).run([X, GO])[0].tolist() == Y
    assert lower(resized(deep, lambda shape: shape)).run([X, GO])[0].tolist() == Y
    assert evaluate(deep, [X, GO], [], [])[0].tolist() == Y


def test_its_derivatives(deep: Program) -> None:
    assert lower(push(deep, 1)).run([X, GO, X])[1].tolist() == pytest.approx((wg.tensor(SLOPE) * X).tolist())
    d = derive(deep, 1, "deep")
    forward = lower(d.forward).run([X, GO])
    given = [[X, GO], forward, forward[d.n_outputs :]]
    saved = [given[kind][k] for kind, k in d.saves]
    assert lower(d.vjp).run([wg.ones_like(X), *saved])[0].tolist() == pytest.approx(SLOPE)


def test_its_pattern(deep: Program) -> None:
    (pattern,) = propagate(deep, unit_patterns(deep, [0], [3]), lambda _: None, 3)
    assert pattern is not None
    assert pattern.nnz == (9 if deep.instructions[-1].op.sparsity == "everything" else 3)


def test_gradients_of_the_function(function: Callable[[Any], Any]) -> None:
    x = wg.tensor(X, requires_grad=True)
    function(x).sum().backward()
    assert x.grad.tolist() == pytest.approx(SLOPE)
    assert wg.jvp(function, (X,), (wg.ones_like(X),))[1].tolist() == pytest.approx(SLOPE)


def test_many_examples_of_the_function(function: Callable[[Any], Any]) -> None:
    assert wg.vmap(function)(wg.stack([X, X])).tolist() == [Y, Y]


def test_an_error_in_the_depth() -> None:
    """A rule that fails leaves every pass that waits for it."""
    p = program(lambda x, go: OPS["cholesky"](wg.broadcast_to(x, (3, 3))).sum(axis=0), REAL, FLAG)
    for _ in range(100):
        p = choice(p)
    with pytest.raises(wg.WengertError, match="cholesky"):
        evaluate(p, [-X, GO], [], [])
    assert wg.sin(X).tolist() == [wg.sin(v).item() for v in X]


def test_files(tmp_path: Path) -> None:
    for make in LEVELS.values():
        p = program(lambda x, go: wg.sin(x) * x, REAL, FLAG)
        for _ in range(DEPTH):
            p = make(p)
        run = SizedProgram("deep", p)
        wg.export(lambda x, go: run([x, go])[0], X, GO, path=tmp_path / "deep.wg")
        loaded = wg.load_program(tmp_path / "deep.wg")
        assert loaded(X, GO).tolist() == Y


def test_second_derivatives() -> None:
    p = program(lambda x, go: wg.sin(x) * x, REAL, FLAG)
    for _ in range(DEPTH):
        p = choice(p)
    f = SizedProgram("deep", p)
    gradient = wg.grad(lambda x: f([x, GO])[0].sum())
    assert wg.grad(lambda x: gradient(x).sum())(X).tolist() == pytest.approx(CURVATURE)


@pytest.mark.parametrize("depth", [8, 64])
def test_loops_inside_of_each_other_are_derived_once_each(depth: int) -> None:
    """A turn whose tangents are asked for in several places is differentiated once: their number grows with the depth."""
    p = program(lambda x, go: wg.sin(x) * x, REAL, FLAG)
    for _ in range(depth):
        p = while_loop(p)
    assert len(innermost_first(derive(p, 1, "deep").vjp.instructions)) < 20 * depth
