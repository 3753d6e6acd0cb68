"""Walks through programs inside of programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import wengert as wg
from wengert.program.ir import Program, Type
from wengert.program.nested import Once, Task, finished, innermost_first, settled
from wengert.program.simplify import simplify
from wengert.program.trace import Trace
from wengert.transforms.branches import taken
from wengert.transforms.loops import Loop

X = Type(wg.float64.code, (2,))
GO = Type(wg.bool_.code, ())


def program(f: Any, *types: Type) -> Program:
    trace = Trace()
    given = [trace.input(t) for t in types]
    with trace:
        y = f(*given)
    return Program(trace.inputs, trace.instructions, [v._var for v in (y if isinstance(y, tuple) else (y,))])


def choice(*branches: Program) -> Program:
    return program(lambda go, x: taken(go, branches, [go, x])[0], GO, X)


SINE = program(lambda go, x: wg.sin(x), GO, X)


def test_inner_programs_come_first_and_once() -> None:
    a = choice(SINE, SINE)
    b = choice(a, SINE)
    c = choice(b, a)
    assert innermost_first(c.instructions) == [SINE, a, b]
    assert innermost_first(c.instructions, {a}) == [SINE, b]
    assert innermost_first(c.instructions, {b}) == [SINE, a]
    assert innermost_first(SINE.instructions) == []


def test_programs_that_share_programs_are_no_tree() -> None:
    p = SINE
    for _ in range(200):  # 2²⁰⁰ paths
        p = choice(p, p)
    assert len(innermost_first(p.instructions)) == 200


def total(n: int, log: list[str]) -> Task[int]:
    log.append(f"{n} begins")
    try:
        below = (yield total(n - 1, log)) if n else 0
        return n + below
    finally:
        log.append(f"{n} ends")


def test_tasks_that_wait_for_tasks() -> None:
    log: list[str] = []
    assert finished(total(2, log)) == 3
    assert log == ["2 begins", "1 begins", "0 begins", "0 ends", "1 ends", "2 ends"]
    assert finished(total(30_000, [])) == 30_000 * 30_001 // 2
    assert settled(7) == 7 and settled(total(3, [])) == 6


def test_errors_pass_through_all_who_wait() -> None:
    log: list[str] = []

    def failing(n: int) -> Task[int]:
        try:
            if not n:
                raise ValueError("at the bottom")
            return (yield failing(n - 1))
        finally:
            log.append(f"{n} ends")

    with pytest.raises(ValueError, match="at the bottom"):
        finished(failing(2))
    assert log == ["0 ends", "1 ends", "2 ends"]


def test_an_error_can_be_caught_by_who_waits() -> None:
    def failing() -> Task[int]:
        raise ValueError("no")
        yield

    def outer() -> Task[Sequence[int]]:
        try:
            yield failing()
        except ValueError:
            return [(yield total(2, [])), (yield total(3, []))]
        return []

    assert finished(outer()) == [3, 6]


def test_the_same_task_runs_once() -> None:
    runs = []

    def slow(n: int) -> Task[int]:
        runs.append(n)
        return n * n
        yield

    def outer() -> Task[list[int]]:
        results = []
        for n in (2, 3, 2, 2):
            results.append((yield Once((slow, n), slow(n))))
        return results

    assert finished(outer()) == [4, 9, 4, 4]
    assert runs == [2, 3]
    assert finished(outer()) == [4, 9, 4, 4] and runs == [2, 3, 2, 3]  # results are not kept beyond


def test_loops_of_one_body_and_other_attributes_are_not_the_same() -> None:
    turn = program(lambda x: x * 2.0, X)

    def both(x: Any) -> Any:
        return Loop(turn, 2, 1, 0, False).apply([x])[0], Loop(turn, 3, 1, 0, False).apply([x])[0]

    made = simplify(program(both, X))
    assert len(made.instructions) == 2 and made.outputs[0] is not made.outputs[1]
    same = simplify(program(lambda x: (both(x)[0], both(x)[0]), X))
    assert len(same.instructions) == 1
