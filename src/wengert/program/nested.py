"""Programs inside of programs: passes over them need no stack, so only memory limits how deep they are.

A pass in which an inner program is like any other goes through the programs `innermost_first`. Where the rules of ops decide
what is made of the inner programs, and how often, a pass is a task: a generator that yields what it waits for, tasks of the
same kind over inner programs, and is sent their results. `finished` runs it, with a list in place of the stack.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from wengert.program.ir import Instruction, Program

T = TypeVar("T")
Task = Generator[Any, Any, T]


class Once(NamedTuple):
    """A task that is run once for all who wait for the same. Equal keys mean equal results; they hold programs themselves,
    which are equal if they are the same, not their numbers."""

    key: tuple[Any, ...]
    task: Task[Any]


def innermost_first(instructions: Iterable[Instruction], known: Container[Program] = ()) -> list[Program]:
    """The programs inside of instructions, each once, after those inside of it; without the known ones and what only they
    hold."""
    done: dict[Program, None] = {}
    entered: set[Program] = set()
    waiting = [p for i in instructions for p in i.regions() if p not in known][::-1]
    while waiting:
        program = waiting[-1]
        if program in entered:
            done[program] = None
            waiting.pop()
            continue
        entered.add(program)
        inner = (p for i in program.instructions for p in i.regions())
        waiting += [p for p in inner if p not in entered and p not in known][::-1]
    return list(done)


def finished(task: Task[T]) -> T:
    """The result of a task."""
    known: dict[tuple[Any, ...], Any] = {}
    running: list[tuple[Task[Any], tuple[Any, ...] | None]] = [(task, None)]
    result: Any = None
    error: BaseException | None = None
    while running:
        current, key = running[-1]
        try:
            wanted = current.send(result) if error is None else current.throw(error)
        except StopIteration as end:
            running.pop()
            result, error = end.value, None
            if key is not None:
                known[key] = result
            continue
        except BaseException as e:
            running.pop()
            error = e
            continue
        error = None
        if isinstance(wanted, Once):
            if wanted.key in known:
                wanted.task.close()
                result = known[wanted.key]
                continue
            running.append((wanted.task, wanted.key))
        else:
            running.append((wanted, None))
        result = None
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def settled(made: Any) -> Any:
    """What a rule has made: its result, or that of the task that it returned."""
    return finished(made) if isinstance(made, GeneratorType) else made
