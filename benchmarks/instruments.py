"""What the instruments cost while they are on: `python -m benchmarks.instruments`.

The same work with an instrument and without, in turns in one process, in processor time of one thread. Ops of 10 µs and
more, and training steps, have a bound; for smaller ones the nanoseconds for each op are stated. Prints a table, and
writes benchmarks/results/instruments.json and instruments.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WENGERT_NUM_THREADS", "1")  # processor time, not that of waiting for another core

import contextlib
import functools
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import wengert as wg
from benchmarks import command_line, measure, training
from benchmarks.measure import Call, Row, interleave
from benchmarks.workloads import Workload, data, in_wengert


@dataclass
class Work:
    """Something to run: a statement and its names; `ops` in it where they are small, so that the cost of each is stated."""

    code: str
    names: dict[str, Any]
    ops: int = 0


def _lasting(seconds: float, make: Callable[[int], Work]) -> Work:
    """Work that takes at least so long, of the smallest size that does."""
    n = 16
    while True:
        work = make(n)
        timer = timeit.Timer(work.code, globals=work.names, timer=time.process_time)
        timer.timeit(50)
        if min(timer.repeat(5, 50)) / 50 >= seconds:
            return work
        n = n * 5 // 4 + 1


def _multiply(n: int) -> Work:
    return Work("x * y", {"x": wg.ones((n, n)), "y": wg.ones((n, n))})


def _backward(n: int) -> Work:
    return Work("(x * y).sum().backward()", {"x": wg.ones((n, n), requires_grad=True), "y": wg.ones((n, n))})


def _product(n: int) -> Work:
    return Work("x @ y", {"x": wg.ones((n, n)), "y": wg.ones((n, n))})


def _step() -> Work:
    return _training(in_wengert.mlp(data.LARGE, 32))


def _small_step() -> Work:
    return _training(in_wengert.mlp(data.SMALL, 32), ops=18)


def _training(workload: Workload, ops: int = 0) -> Work:
    return Work(workload.statement, workload.names, ops)


WORK: dict[str, Callable[[], Work]] = {
    "multiply of 8×8": lambda: Work("x * y", _multiply(8).names, ops=1),
    "multiply of 8×8, recorded": lambda: Work("x * y", {**_backward(8).names}, ops=1),
    "multiply of 10 µs": lambda: _lasting(10e-6, _multiply),
    "multiply of 100 µs": lambda: _lasting(100e-6, _multiply),
    "product of 10 µs": lambda: _lasting(10e-6, _product),
    "multiply, sum and backward of 60 µs": lambda: _lasting(60e-6, _backward),
    "training step of an MLP of 64 units": _small_step,
    "training step of an MLP of 1024 units": _step,
}


def _row_of_training(which: str) -> Callable[[], Work]:
    def make() -> Work:
        w = training.workload("wengert", which)
        return Work(w.statement, dict(w.names))

    return make


def _compiled_step() -> Work:
    """Forward, backward and the optimizer as one compiled function."""
    net = wg.nn.Sequential(wg.nn.Linear(64, 64), wg.nn.ReLU(), wg.nn.Linear(64, 64), wg.nn.ReLU(), wg.nn.Linear(64, 10))
    optimizer = wg.optim.Adam(net.parameters(), lr=1e-3)

    @wg.compile
    def step(x: Any, t: Any) -> Any:
        optimizer.zero_grad()
        loss = wg.cross_entropy(net(x), t)
        loss.backward()
        optimizer.step()
        return loss

    return Work("step(x, t)", {"step": step, "x": wg.randn(32, 64), "t": wg.randint(0, 10, (32,))})


TRAINING: dict[str, Callable[[], Work]] = {
    **{f"training step, {name}": _row_of_training(which) for name, (which, _) in training.STEPS.items()},
    "training step of an MLP, compiled as a whole": _compiled_step,
}


@dataclass
class Instrument:
    """How it is switched on, the most that it may add in percent (None: it is only stated), and to what."""

    switch: Callable[[], contextlib.AbstractContextManager[Any]]
    most: float | None
    work: dict[str, Callable[[], Work]]


INSTRUMENTS = {
    # Without gradients: that the first two steps are looked at would count many times in samples this short.
    "profile": Instrument(functools.partial(wg.profile, gradients=False), 5.0, WORK),
    "detect_anomaly, light": Instrument(lambda: wg.detect_anomaly("light"), 3.0, TRAINING),
    "detect_anomaly, full": Instrument(wg.detect_anomaly, None, {"training step of an MLP of 64 units": _small_step}),
}


def _call(work: Work, instrument: Callable[[], contextlib.AbstractContextManager[Any]]) -> Call:
    timer = timeit.Timer(work.code, globals=work.names, timer=time.process_time)

    def call(n: int) -> float:
        with instrument():
            return timer.timeit(n)

    return call


def _row(instrument: str, name: str, rounds: int) -> Row:
    used = INSTRUMENTS[instrument]
    work = used.work[name]()
    timings, load = interleave({"off": _call(work, contextlib.nullcontext), "on": _call(work, used.switch)}, rounds)
    off, on = timings["off"].best, timings["on"].best
    note = f"{off * 1e6:.3g} µs without, {on * 1e6:.3g} µs with"
    title = f"{instrument}: {name}"
    if work.ops:
        return Row(
            title, "ns", {"wengert": (on - off) / work.ops * 1e9}, foreign_load=load, note=f"for each op; {note}"
        )
    if used.most is None:
        return Row(title, "%", {"wengert": 100 * (on / off - 1)}, foreign_load=load, note=note)
    return measure.bounded_row(title, "%", 100 * (on / off - 1), used.most, foreign_load=load, note=note)


def main() -> None:
    """Run the rows that were asked for; all by default."""
    names = {f"{name}: {work}": (name, work) for name, used in INSTRUMENTS.items() for work in used.work}
    options = command_line.parse("benchmarks.instruments", __doc__, names, rounds=15)
    rows = [_row(*names[name], options.rounds) for name in options.rows]
    measure.show(rows)
    if not options.dry:
        described = measure.machine({**measure.versions(), "threads": "1"})
        how = (
            "Each row is the same work with the instrument and without, in turns, in processor time: the best samples."
        )
        measure.write("instruments", "What instruments cost", rows, described, how)


if __name__ == "__main__":
    main()
