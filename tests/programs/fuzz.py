"""Random programs in every mode beside the oracle, for as long as one likes.

    python -m tests.programs.fuzz --minutes 60 --seed 1     # prints and shrinks what fails, as scripts that run alone
    python -m tests.programs.fuzz --seed 1 --case 17        # one case again
    python -m tests.programs.fuzz --seed 1 --case 17 --show # print it, run nothing

Cases run in a process of their own, so that one which crashes is a finding like any other.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import wengert as wg  # noqa: F401  # before processes are forked, so that none of them has to import it
from tests.programs import oracle
from tests.programs.generate import INPUTS, Program, generate, smaller, without_dead_code
from tests.programs.modes import HELPERS, LAYOUTS, MODES, WRAPPINGS

SMALL = [(3, 4), (2, 3), (4, 2), (1, 4), (5, 1), (1, 1), (0, 3), (4, 0), (0, 0)]
SIZES = [*SMALL, (7, 9), (3, 300), (130, 70)]
LARGE = [(7, 9), (3, 300), (130, 70), (1, 900), (64, 32)]  # where results are dropped
# The source of a number, as a program's caller would have it.
FLOATS = ["0.3", "0.75", "1.25", "1", "2", "np.float64(0.6)", "np.float32(0.4)", "np.int64(1)"]
INTEGERS = ["0", "1", "2", "-1", "3", "np.int64(2)"]
# By order, relative to the moduli of what is added up; from the second on the oracle has difference quotients.
TOLERANCE = {"float64": (1e-11, 1e-10, 1e-6, 1e-4), "float32": (2e-4, 2e-3, 2e-2, 2e-1)}
LARGEST = 1e4  # what is larger has lost digits that the tolerance counts on


@dataclass(frozen=True)
class Case:
    """A program, its arguments, and how it is asked."""

    program: Program
    mode: str
    wrapping: str
    layout: str
    sizes: tuple[int, int]
    numbers: tuple[str, str]
    earlier: tuple[tuple[tuple[int, int], tuple[str, str]], ...]  # sizes and numbers of calls before
    dtype: str
    seed: int


def draw(seed: int, index: int) -> Case:
    """The case of this number."""
    rng = np.random.default_rng([seed, index])
    pick: Any = lambda options: options[int(rng.integers(len(options)))]
    program = without_dead_code(generate(rng))
    mode = pick(["value", "value under no_grad"] if program.writes_arguments else list(MODES))
    # Leaves cannot be written while recording; examples are copies of the arguments.
    # What is loaded, or evaluated, computes new tensors only.
    apart = ("reverse", "mapped", "loaded", "op by op")
    wrappings = [w for w in WRAPPINGS if not (program.writes_arguments and any(a in w for a in apart))]
    sizes = pick(SMALL if "jac" in mode or "hess" in mode else LARGE if "held" in mode else SIZES)
    draw_numbers = lambda: (pick(FLOATS), pick(INTEGERS))
    return Case(
        program=program,
        mode=mode,
        wrapping=pick(wrappings),
        layout=pick(list(LAYOUTS)),
        sizes=sizes,
        numbers=draw_numbers(),
        earlier=tuple((pick(SIZES), draw_numbers()) for _ in range(int(rng.integers(1, 4)))),
        dtype="float64" if rng.random() < 0.8 else "float32",
        seed=int(rng.integers(1000)),
    )


# Bugs that are known and open, each with the cases that run into it; `--known` runs them all the same.
KNOWN: dict[str, Callable[[Case], bool]] = {}


def shapes_of(sizes: tuple[int, int]) -> list[tuple[int, ...]]:
    """Of the arguments."""
    n, m = sizes
    return [tuple({"n": n, "m": m}[label] for label in shape) for shape in INPUTS.values()]


def arrays(rng: np.random.Generator, shapes: Any, dtype: str) -> list[np.ndarray[Any, Any]]:
    """As the script draws them."""
    return [np.asarray(rng.uniform(-1.5, 1.5, s), dtype) for s in shapes]


class NoAnswer(Exception):
    """The oracle cannot judge this case: there is no such element, or the numbers are too large or too rough."""

    word = "no answer"


class KnownBug(NoAnswer):
    """The case would run into a bug that is known."""

    word = "known"


@dataclass(frozen=True)
class Answer:
    """What the contraction must be, what it may be off by, and the shapes of the results."""

    expected: float
    tolerance: float
    results: list[tuple[int, ...]]


def answer(case: Case) -> Answer:
    """What the oracle says."""
    namespace: dict[str, Any] = {"wg": oracle.Model}
    exec(case.program.text(), namespace)

    def with_numbers(numbers: tuple[str, str]) -> Any:
        k, j = (eval(text, {"np": np}) for text in numbers)
        return lambda *xs: namespace["f"](*xs, k, j)

    rng = np.random.default_rng(case.seed)
    xs, vs, ws = (arrays(rng, shapes_of(case.sizes), case.dtype) for _ in range(3))
    f = with_numbers(case.numbers)
    try:
        ys = oracle.evaluate(f, xs)
        for sizes, numbers in case.earlier if "warm" in case.wrapping else ():
            oracle.evaluate(with_numbers(numbers), arrays(rng, shapes_of(sizes), case.dtype))
    except (
        IndexError,
        ZeroDivisionError,
        ValueError,
        NameError,
    ) as e:  # the last two: of programs that were cut too short
        raise NoAnswer from e
    rng = np.random.default_rng(case.seed + 1)
    cs = arrays(rng, [y.shape for y in ys], case.dtype)
    order, uncertainty = MODES[case.mode].order, 0.0
    expected = oracle.value(f, xs, cs)
    if order == 1:
        expected = oracle.first(f, xs, cs, vs)
    elif order > 1:
        expected, uncertainty = (oracle.second if order == 2 else oracle.third)(f, xs, cs, vs, ws)
    size = 1.0 + sum(float(np.abs(y * c).sum()) for y, c in zip(ys, cs)) + abs(expected)
    tolerance = TOLERANCE[case.dtype][order] * size
    if not np.isfinite(expected) or size > LARGEST * (1 + sum(c.size for c in cs)) or uncertainty > tolerance / 10:
        raise NoAnswer
    return Answer(expected, tolerance, [y.shape for y in ys])


def script(case: Case, judged: Answer) -> str:
    """The case as a program that runs alone, and raises AssertionError where it fails."""
    mode, dtype = MODES[case.mode], case.dtype
    directions = {"C": "cs", "X": ("", "vs", "ws", "ws")[mode.order]}[mode.of]
    leaves = "leaves = [x.requires_grad_() for x in X]\n" if "leaves" in mode.code else ""
    body = f"{WRAPPINGS[case.wrapping].strip()}\n\n\n{leaves}{mode.code.strip()}\n"
    if case.program.writes_arguments:
        body += "got = [*got[:-1], X[0]]  # changed in place\n"
    body += f"""
got = [np.zeros(v.shape) if t is None else array(t) for t, v in zip(got, {directions})]
assert [t.shape for t in got] == [v.shape for v in {directions}], [t.shape for t in got]
total = sum(float((t * v).sum()) for t, v in zip(got, {directions}))
assert abs(total - {judged.expected!r}) <= {judged.tolerance:.2g}, total
"""
    helpers = ""
    for name in (
        "coloured",
        "like_arguments",
        "flat",
        "applied",
        "contracted",
        "recorded",
        "tracked",
        "loss",
        "inner",
        "held",
        "array",
    ):
        if re.search(rf"\b{name}\b", body + helpers):
            helpers = HELPERS[name].strip() + "\n\n\n" + helpers
    shapes = lambda sizes: ", ".join(map(str, shapes_of(sizes)))
    calls = [f"    ([make(a) for a in draw({shapes(z)})], {', '.join(numbers)}),\n" for z, numbers in case.earlier]
    earlier = f"earlier = [\n{''.join(calls)}]\n" if "earlier" in body else ""
    return f"""# {case.wrapping}; {case.mode}; {case.layout}
import gc
import os
import tempfile

import numpy as np
import wengert as wg
from wengert.program.simplify import simplify
from wengert.passes.evaluate import evaluate


{case.program.text()}

{LAYOUTS[case.layout].strip()}


def draw(*shapes):
    return [np.asarray(rng.uniform(-1.5, 1.5, shape), "{dtype}") for shape in shapes]


{helpers}rng = np.random.default_rng({case.seed})
xs, vs, ws = (draw({shapes(case.sizes)}) for _ in range(3))
{earlier}rng = np.random.default_rng({case.seed + 1})
cs = draw({", ".join(map(str, judged.results))})
X, V, W, C = ([make(np.array(a)) for a in drawn] for drawn in (xs, vs, ws, cs))
k, j = {", ".join(case.numbers)}

{body}"""


def run(case: Case) -> str | None:
    """How the case fails, or None. Raises NoAnswer."""
    text = script(case, answer(case))
    with warnings.catch_warnings(action="ignore"):
        try:
            exec(compile(text, "program", "exec"), {"__name__": "program"})
        except Exception as e:
            return f"{type(e).__name__}: {str(e)[:200]}"
    return None


def run_apart(case: Case) -> str | None:
    """How it fails in a process of its own, where it may crash or hang. Raises NoAnswer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(60)
        try:
            failure = run(case)
        except NoAnswer:
            failure = "no answer"
        os.write(writer, (failure or "").encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as said:
        failure = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if failure == "no answer":
        raise NoAnswer
    return failure or (f"exit status {status}" if status else None)


def simpler(case: Case) -> Iterator[Case]:
    """Cases with less in them, the most welcome first."""
    for program in smaller(case.program):
        yield replace(case, program=program)
    yield from (
        replace(case, wrapping=w) for w in ("plain", "compiled") if w != case.wrapping and case.wrapping != "plain"
    )
    if case.layout != "copied":
        yield replace(case, layout="copied")
    if case.dtype != "float64":
        yield replace(case, dtype="float64")
    yield from (replace(case, sizes=s) for s in ((2, 3), (1, 1)) if s[0] * s[1] < case.sizes[0] * case.sizes[1])
    if len(case.earlier) > 1:
        yield from (replace(case, earlier=case.earlier[:k] + case.earlier[k + 1 :]) for k in range(len(case.earlier)))
    if case.numbers != ("0.3", "1"):
        yield replace(case, numbers=("0.3", "1"))


def shrink(case: Case, failure: str, seconds: float = 60.0) -> tuple[Case, str]:
    """A simpler case that fails in the same way: a wrong number, a crash, or the same error."""
    kind, until = failure.split(":")[0], time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for candidate in simpler(case):
            if any(bug(candidate) and not bug(case) for bug in KNOWN.values()):
                continue
            if time.monotonic() > until:
                return case, failure
            try:
                found = run_apart(candidate)
            except NoAnswer:
                continue
            if found is not None and found.split(":")[0] == kind:
                case, failure, progress = candidate, found, True
                break
    return case, failure


def report(seed: int, index: int, case: Case, failure: str) -> None:
    """Print a finding, shrunk, as a script."""
    alone = run_apart(case)
    case, failure = shrink(case, alone or failure)
    where = "" if alone else "  (alone in a process it passes: it needs the cases before it)"
    print(f"\n{'=' * 100}\n--seed {seed} --case {index}: {failure}{where}\n{'=' * 100}")
    print(script(case, answer(case)), flush=True)


def work(seed: int, first: int, end: int, known: bool, until: float) -> None:
    """Run cases one after the other; say which one begins, so that whoever listens knows which one crashed."""
    for index in range(first, end):
        if time.time() > until:
            break
        print(f"case {index}", flush=True)
        case = draw(seed, index)
        try:
            if not known and any(bug(case) for bug in KNOWN.values()):
                raise KnownBug
            failure = run(case)
            print("passed" if failure is None else f"failed {failure!r}", flush=True)
        except NoAnswer as e:
            print(e.word, flush=True)


def fuzz(seed: int, first: int, end: int, known: bool, minutes: float, most: int) -> int:
    """Run cases until the time is over or enough of them failed; how many failed."""
    until = time.time() + 60 * minutes
    counts = {"passed": 0, "failed": 0, "known": 0, "no answer": 0}
    index = first - 1
    while index + 1 < end and time.time() < until and counts["failed"] < most:
        command = [sys.executable, "-m", "tests.programs.fuzz", "--worker", "--until", str(until)]
        options = ["--seed", str(seed), "--first", str(index + 1), "--end", str(end), *(["--known"] if known else [])]
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                word, _, rest = line.strip().partition(" ")
                if word == "case":
                    index = int(rest)
                elif word == "failed":
                    counts["failed"] += 1
                    report(seed, index, draw(seed, index), eval(rest))
                    if counts["failed"] >= most:
                        worker.terminate()
                        break
                else:
                    counts[line.strip()] += 1
        if worker.returncode and worker.returncode != -15:
            counts["failed"] += 1
            report(seed, index, draw(seed, index), f"exit status {worker.returncode}")
    print(f"seed {seed}, cases {first} to {index}: {counts}")
    return counts["failed"]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0, help="the first case")
    parser.add_argument("--end", type=int, default=sys.maxsize, help="the one after the last")
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--show", action="store_true", help="print the case, run nothing")
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    parser.add_argument("--known", action="store_true", help="run into bugs that are known, too")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.seed, given.first, given.end, given.known, given.until)
        return 0
    if given.case is None:
        return min(fuzz(given.seed, given.first, given.end, given.known, given.minutes, given.failures), 1)
    case = draw(given.seed, given.case)
    if given.show:
        print(script(case, answer(case)))
        return 0
    failure = run_apart(case)
    if failure is not None:
        report(given.seed, given.case, case, failure)
    return failure is not None


if __name__ == "__main__":
    sys.exit(main())
