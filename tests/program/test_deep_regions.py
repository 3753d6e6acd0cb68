"""Branches and loops inside of each other: only memory limits how deep, because the executor needs no stack for them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wengert as wg
from wengert import _core

DEPTH = 20_000  # if every level were a call, the stack of the main thread would not be enough either
SMALL, LARGE = 256 * 2**10, 512 * 2**20  # bytes of stack
X = wg.tensor([0.5, -1.25, 2.0], dtype=wg.float64)
GO = wg.tensor(True)


def in_thread(f: Callable[[], Any], stack: int) -> Any:
    """What the function returns, or raises, in a thread with a stack of so many bytes."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(f())
        except Exception as e:
            errors.append(e)

    before = threading.stack_size(stack)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


# Each makes a program of two operands, x and whether to go on, that runs `inner`, of the same operands, once. It returns x.


def choice(inner: Any) -> Any:
    b = _core.ProgramBuilder()
    b.choose([inner, inner], [1, 0, 1], [2])
    return b.finish(2, 3, [], [2])


def loop(inner: Any) -> Any:
    b = _core.ProgramBuilder()
    b.repeat(inner, (1,), 1, 0, False, [], [0, 1], [2])
    return b.finish(2, 3, [], [2])


def while_loop(inner: Any) -> Any:
    condition = _core.ProgramBuilder().finish(2, 2, [], [1])
    body = _core.ProgramBuilder()
    body.choose([inner], [1, 0, 1], [2])
    body.call("logical_not", (), [1], [3])
    b = _core.ProgramBuilder()
    b.repeat_while(condition, body.finish(2, 4, [], [2, 3]), 2, [0, 1], [2, 3, 4])
    return b.finish(2, 5, [], [2])


def in_the_condition(inner: Any) -> Any:
    """The loop runs no turn, because `inner` returns a zero."""
    b = _core.ProgramBuilder()
    b.repeat_while(inner, _core.ProgramBuilder().finish(2, 2, [], [0]), 1, [0, 1], [2, 3])
    return b.finish(2, 4, [], [2])


def nested(level: Callable[[Any], Any], depth: int, innermost: str = "sin") -> Any:
    b = _core.ProgramBuilder()
    b.call(innermost, (), [0], [2])
    program = b.finish(2, 3, [], [2])
    for _ in range(depth):
        program = level(program)
    return program


@pytest.mark.parametrize("level", [choice, loop, while_loop])
def test_any_depth_runs_on_a_small_stack(level: Any) -> None:
    def run_and_free() -> Any:
        program = nested(level, DEPTH)
        return [program.run([X, GO])[0].tolist() for _ in range(2)]

    assert in_thread(run_and_free, SMALL) == [wg.sin(X).tolist()] * 2


def test_conditions_of_conditions() -> None:
    zero = wg.tensor(0.0, dtype=wg.float64)
    assert in_thread(lambda: nested(in_the_condition, DEPTH).run([zero, GO])[0].item(), SMALL) == 0.0


@pytest.mark.parametrize("level", [choice, loop, while_loop])
def test_an_error_in_the_depth_leaves_nothing_behind(level: Any) -> None:
    program = nested(level, 1000, "cholesky")
    matrix = wg.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=wg.float64)
    positive = wg.tensor([[4.0, 0.0], [0.0, 9.0]], dtype=wg.float64)
    before = wg.memory_stats().live_bytes

    def fail() -> None:
        with pytest.raises(wg.WengertError, match="cholesky"):
            program.run([matrix, GO])

    in_thread(lambda: [fail() for _ in range(3)], SMALL)
    assert wg.memory_stats().live_bytes == before
    assert program.run([positive, GO])[0].tolist() == [[2.0, 0.0], [0.0, 3.0]]


def test_turns_of_nested_regions() -> None:
    """Frames are used again from turn to turn: loops of branches of loops, on values that change."""

    def collatz(n: Any) -> Any:
        def turn(c: Any) -> Any:
            n, count = c
            odd = lambda n: wg.fori_loop(0, 3, lambda i, m: m + n, wg.ones((), dtype=n.dtype))
            return wg.cond(n % 2 == 1, odd, lambda n: n // 2, n), count + 1

        return wg.while_loop(lambda c: c[0] != 1, turn, (n, 0))[1]

    f = wg.compile(lambda xs: wg.scan(lambda c, n: (c + collatz(n), collatz(n)), 0, xs))
    total, counts = f(wg.arange(1, 20))
    assert counts.tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 14, 9, 9, 17, 17, 4, 12, 20, 20]
    assert total.item() == sum(counts.tolist())


@pytest.fixture
def any_recursion() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    yield
    sys.setrecursionlimit(limit)


def branches(x: Any, depth: int) -> Any:
    if depth == 0:
        return wg.sin(x) * x
    return wg.cond(x.sum() > 1e9, lambda x: x, lambda x: branches(x, depth - 1), x)


@pytest.mark.usefixtures("any_recursion")
def test_deep_branches_of_python_functions() -> None:
    """Tracing nests calls of Python, and needs stack; what it has made needs none."""
    f = wg.compile(lambda x: branches(x, 2000))
    expected = (wg.sin(X) * X).tolist()
    assert in_thread(lambda: f(X).tolist(), LARGE) == expected
    assert in_thread(lambda: f(X).tolist(), SMALL) == expected


@pytest.mark.usefixtures("any_recursion")
def test_derivatives_of_deep_branches() -> None:
    f = wg.compile(wg.grad(lambda x: branches(x, 300).sum()))
    expected = (wg.cos(X) * X + wg.sin(X)).tolist()
    assert in_thread(lambda: f(X).tolist(), LARGE) == pytest.approx(expected)
    assert in_thread(lambda: f(X).tolist(), SMALL) == pytest.approx(expected)


def test_branches_deeper_than_python_recurses() -> None:
    f = wg.compile(lambda x: branches(x, 10_000))
    with pytest.raises(RecursionError, match=r"<lambda>: its Python functions call each other too deeply.*fori_loop"):
        f(X)
    assert wg.compile(lambda x: branches(x, 5))(X).tolist() == (wg.sin(X) * X).tolist()


def test_deep_programs_are_left_to_the_executor() -> None:
    """Compilers limit how deeply blocks are nested."""
    before = _core.set_tier("generated")
    try:
        program = nested(choice, 100)
        assert program.run([X, GO])[0].tolist() == wg.sin(X).tolist()
        assert _core.tier_of(program) == "executor (branches and loops are nested too deeply)"
    finally:
        _core.set_tier(before)
