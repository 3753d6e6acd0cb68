"""The loader: the same batches with any number of workers, exact resuming, and what happens when workers fail."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import wengert as wg
from wengert.data import DataLoader, RandomSampler, TensorDataset, WorkerInfo, worker_info

MODES: list[dict[str, Any]] = [
    {},
    {"prefetch": 2},
    {"num_workers": 2},
    {"num_workers": 3, "prefetch": 1, "persistent": True},
    {"num_workers": 2, "workers": "thread"},
    {"num_workers": 2, "workers": "thread", "persistent": True},
]


class Squares:
    """A data set as PyTorch's users write them."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return np.full((2, 3), i, np.float32), {"square": i * i, "half": wg.tensor(i / 2)}


class Stream:
    """An iterable whose order depends on the epoch."""

    def __init__(self, n: int) -> None:
        self.n, self.epoch = n, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([(k + self.epoch) % self.n for k in range(self.n)])


class Parts(Stream):
    """One that is iterated over in parts."""

    def shard(self, number: int, count: int) -> list[int]:
        return list(self)[number::count]


def listed(batch: Any) -> Any:
    return wg.tree.map(lambda x: x.tolist() if isinstance(x, wg.Tensor) else x, batch)


def epochs(loader: DataLoader, n: int) -> list[Any]:
    return [[listed(b) for b in loader] for _ in range(n)]


def no_children() -> bool:
    gc.collect()
    return not multiprocessing.active_children()


# ------------------------------------------------------------------------------------------------ same batches


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("options", [{"shuffle": True}, {"drop_last": True}, {"batch_size": None}], ids=str)
def test_batches_are_the_same_however_they_are_made(mode: dict[str, Any], options: dict[str, Any]) -> None:
    common = {"batch_size": 4, "seed": 3, **options}
    expected = epochs(DataLoader(Squares(10), **common), 3)
    loader = DataLoader(Squares(10), **common, **mode)
    assert epochs(loader, 3) == expected
    assert len(loader) == len(expected[0]) and loader.epoch == 3
    del loader
    assert no_children()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_arrays_give_rows_of_a_whole_batch(mode: dict[str, Any]) -> None:
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    data = {"x": x, "t": (wg.arange(10), np.arange(10).astype(ml_dtypes.bfloat16))}
    for shuffle in (False, True):
        seen = []
        for batch in DataLoader(data, batch_size=4, shuffle=shuffle, **mode):
            assert isinstance(batch["x"], wg.Tensor) and batch["t"][1].dtype == wg.bfloat16
            assert batch["x"].tolist() == x[batch["t"][0].tolist()].tolist()
            assert batch["t"][1].astype("float32").tolist() == batch["t"][0].tolist()
            seen += batch["t"][0].tolist()
        assert sorted(seen) == list(range(10)) and (seen == list(range(10))) != shuffle


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("drop_last", [False, True])
def test_streams_are_the_same_with_any_number_of_workers(mode: dict[str, Any], drop_last: bool) -> None:
    loader = DataLoader(Stream(11), batch_size=3, drop_last=drop_last, **mode)
    expected = [
        [[(k + e) % 11 for k in range(11)][i : i + 3] for i in range(0, 9 if drop_last else 11, 3)] for e in (0, 1)
    ]
    assert epochs(loader, 2) == expected
    with pytest.raises(TypeError, match="a Stream has no len"):
        len(loader)


@pytest.mark.parametrize("mode", MODES[2:], ids=str)
@pytest.mark.parametrize("handed_out", [0, 1, 3])
def test_streams_in_parts_are_complete_and_resume(mode: dict[str, Any], handed_out: int) -> None:
    make = lambda: DataLoader(Parts(17), batch_size=2, **mode)
    expected = epochs(make(), 2)
    assert sorted(x for batch in expected[0] for x in batch) == list(range(17))
    loader = make()
    source = iter(loader)
    seen = [next(source).tolist() for _ in range(handed_out)]
    state = loader.state_dict()
    source.close()
    other = make()
    other.load_state_dict(state)
    assert seen + [b.tolist() for b in other] == expected[0]
    assert [b.tolist() for b in other] == expected[1]


def test_samples_one_by_one() -> None:
    samples = list(DataLoader(Squares(3), batch_size=None))
    assert isinstance(samples[2][0], wg.Tensor) and samples[2][0].shape == (2, 3) and samples[2][1]["square"] == 4
    assert list(DataLoader(iter("ab"), batch_size=None)) == ["a", "b"]


def doubled(samples: list[Any]) -> Any:
    return {"sum": sum(s[1]["square"] for s in samples), "x": np.stack([s[0] for s in samples]), "text": "a" * 10_000}


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_collate_function_gives_anything(mode: dict[str, Any]) -> None:
    first, second = DataLoader(Squares(4), 2, collate=doubled, **mode)
    assert (first["sum"], second["sum"]) == (1, 13) and isinstance(second["x"], np.ndarray)
    assert second["x"][:, 0, 0].tolist() == [2.0, 3.0] and first["text"] == "a" * 10_000


@dataclasses.dataclass
class Sample:
    x: Any
    t: int


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_samples_may_be_dataclasses(mode: dict[str, Any]) -> None:
    (batch,) = DataLoader([Sample(np.ones(2), k) for k in range(3)], **mode)
    assert isinstance(batch, Sample) and batch.x.shape == (3, 2) and batch.t.tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", MODES[2:4], ids=str)
def test_batches_of_many_sizes_go_through_shared_memory(mode: dict[str, Any]) -> None:
    ragged = [np.full((k * 1000,), k, np.float64) for k in (1, 50, 3, 0, 200, 7)]
    assert [
        (b.shape, set(b.tolist())) for (b,) in DataLoader(ragged, None, collate=lambda x: [wg.asarray(x)], **mode)
    ] == [((len(a),), set(a.tolist())) for a in ragged]


def test_batches_that_are_kept_stay_as_they_are() -> None:
    loader = DataLoader(Squares(60), 2, num_workers=2, prefetch=1)
    kept = list(loader)
    views = [x[1:] for x, _ in loader]
    for k, ((x, more), view) in enumerate(zip(kept, views)):
        assert x[:, 0, 0].tolist() == [2 * k, 2 * k + 1] and view[0, 0].tolist() == [2 * k + 1] * 3
        assert more["square"].tolist() == [4 * k * k, (2 * k + 1) ** 2]
    kept[0][0].add_(100.0)
    assert kept[0][0][0, 0, 0].item() == 100.0 and kept[1][0][0, 0, 0].item() == 2.0


def test_a_data_set_may_give_many_samples_at_once() -> None:
    class Many(Squares):
        def __getitems__(self, numbers: list[int]) -> list[Any]:
            return [i * 10 for i in numbers]

    assert [b.tolist() for b in DataLoader(Many(4), 3)] == [[0, 10, 20], [30]]


# ------------------------------------------------------------------------------------------------ order


def test_orders_come_from_the_generator() -> None:
    make = lambda g: epochs(DataLoader(np.arange(50), 50, shuffle=True, generator=g), 2)
    assert make(wg.Generator(seed=1)) == make(wg.Generator(seed=1)) != make(wg.Generator(seed=2))
    wg.manual_seed(3)
    first = make(None)
    wg.manual_seed(3)
    assert make(None) == first


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_samplers_choose_the_samples(mode: dict[str, Any]) -> None:
    assert [b.tolist() for b in DataLoader(np.arange(10), 2, sampler=[7, 7, 1], **mode)] == [[7, 7], [1]]
    loader = DataLoader(np.arange(10), batch_sampler=[[1], [2, 3]], **mode)
    assert epochs(loader, 2) == [[[1], [2, 3]]] * 2 and len(loader) == 2


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("handed_out", [0, 1, 4, 5, 6, 13])
def test_resume_in_the_middle_of_an_epoch(handed_out: int, mode: dict[str, Any]) -> None:
    def make() -> DataLoader:
        return DataLoader(np.arange(23), 5, sampler=RandomSampler(23, generator=wg.Generator()), **mode)

    def stream(loader: DataLoader, until: int) -> Iterator[Any]:
        while loader.epoch < until:
            for batch in loader:
                yield batch.tolist()

    loader = make()
    start, seen = loader.state_dict(), []
    source = stream(loader, 3)
    for _ in range(handed_out):
        seen.append(next(source))
    state = loader.state_dict()
    source.close()
    whole, rest = make(), make()
    whole.load_state_dict(start)
    rest.load_state_dict(state)
    assert seen + list(stream(rest, 3)) == list(stream(whole, 3))


class Random:
    """Draws from every library's random numbers."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        return random.random(), np.random.rand(), wg.rand(()).item()


def test_random_numbers_of_workers_depend_on_seed_epoch_and_batch_alone() -> None:
    make = lambda n, seed=1: DataLoader(Random(), 2, num_workers=n, seed=seed)
    found = epochs(make(1), 2)
    assert epochs(make(3), 2) == found != epochs(make(3, 2), 2)
    numbers = [x for epoch in found for batch in epoch for column in batch for x in column]
    assert len(set(numbers)) == len(numbers) == 48

    for options in ({}, {"shuffle": True}, {"sampler": RandomSampler(8, seed=5)}):
        first, resumed = (DataLoader(Random(), 2, num_workers=2, **options) for _ in range(2))
        whole, state = [], first.state_dict()
        for k, batch in enumerate(first):
            whole.append(listed(batch))
            state = first.state_dict() if k == 1 else state
        resumed.load_state_dict(state)
        assert [listed(b) for b in resumed] == whole[2:]


class Who:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        info = worker_info()
        assert isinstance(info, WorkerInfo)
        return info.number, info.num_workers, os.environ.get("WORKER_OF_TEST", "-1") == str(info.number)


def remember(number: int) -> None:
    os.environ["WORKER_OF_TEST"] = str(number)


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_know_who_they_are(context: str) -> None:
    loader = DataLoader(Who(), 1, num_workers=2, worker_init=remember, context=context)
    found = [[c.item() for c in batch] for batch in loader]
    assert found == [[0, 2, True], [1, 2, True], [0, 2, True], [1, 2, True]]
    assert worker_info() is None and "WORKER_OF_TEST" not in os.environ


# ------------------------------------------------------------------------------------------------ what goes wrong


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class Faulty(Squares):
    def __init__(self, what: str) -> None:
        super().__init__(12)
        self.what = what

    def __getitem__(self, i: int) -> Any:
        if i == 5:
            if self.what == "raise":
                raise KeyError("sample five")
            if self.what == "unpicklable":
                raise Unpicklable(1, 2)
            if self.what == "eof":
                raise EOFError("file ends")
            if self.what == "stop":
                raise StopIteration
            if self.what == "exit":
                sys.exit(3)
            if self.what == "die":
                os._exit(7)
            if self.what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what == "hang":
                time.sleep(1000)
        return float(i)


@pytest.mark.parametrize("mode", MODES[1:], ids=str)
@pytest.mark.parametrize(("what", "error"), [("raise", KeyError), ("eof", EOFError), ("unpicklable", Exception)])
def test_exceptions_of_workers_are_raised_with_their_traceback(mode: dict[str, Any], what: str, error: Any) -> None:
    loader = DataLoader(Faulty(what), 2, **mode)
    seen = []
    with pytest.raises(error) as e:
        for batch in loader:
            seen.append(batch.tolist())
    assert seen == [[0.0, 1.0], [2.0, 3.0]] and loader.state_dict()["position"] == 2
    assert any("batch 2 (samples 4, 5)" in note for note in e.value.__notes__)
    if mode.get("workers") != "thread" and "num_workers" in mode:
        assert "in __getitem__" in e.value.__notes__[0] and "worker" in e.value.__notes__[0]
        assert (type(e.value) is wg.WorkerError) == (what == "unpicklable")
    assert no_children()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("die", r"worker 0 \(process \d+\) ended with exit code 7 while it made batch 2 \(samples 4, 5\)"),
        ("kill", r"worker 0 .* was killed by SIGKILL, .* memory"),
        ("stop", "worker 0 failed with StopIteration"),
    ],
)
def test_workers_that_die_are_named(what: str, message: str) -> None:
    with pytest.raises(wg.WorkerError, match=message):
        list(DataLoader(Faulty(what), 2, num_workers=2))
    assert no_children()


def test_an_exit_in_a_worker_is_no_way_out_without_a_word() -> None:
    with pytest.raises(SystemExit) as e:
        list(DataLoader(Faulty("exit"), 2, num_workers=2))
    assert "sys.exit(3)" in e.value.__notes__[0] and no_children()


def test_workers_that_hang_say_where() -> None:
    with pytest.raises(wg.WorkerError, match=r"(?s)has not given batch 2 .* in 1 s.*line \d+ in __getitem__"):
        list(DataLoader(Faulty("hang"), 2, num_workers=2, timeout=1.0))
    assert no_children()
    with pytest.raises(wg.WorkerError, match="thread 0 has not given batch 1"):
        list(DataLoader([0.0, Slow()], 1, num_workers=1, workers="thread", timeout=0.2))


class Slow:
    """A sample that takes its time to become an array."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        time.sleep(2.0)
        return np.zeros(())


def test_a_worker_init_that_fails_is_told() -> None:
    for workers in ("process", "thread"):
        with pytest.raises(ZeroDivisionError):
            list(DataLoader(Squares(4), 2, num_workers=2, workers=workers, worker_init=lambda k: 1 // k))
    assert no_children()


def test_loops_left_early_leave_nothing_behind() -> None:
    before, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for mode in MODES:
        for _ in DataLoader(Squares(1000), 1, **mode):
            break
        assert no_children(), mode
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    gc.collect()
    assert threading.active_count() == before and len(os.listdir("/proc/self/fd")) <= descriptors


def test_persistent_workers_stay_until_the_loader_goes() -> None:
    loader = DataLoader(Who(), 1, num_workers=2, persistent=True)
    list(loader)
    first = {p.pid for p in multiprocessing.active_children()}
    list(loader)
    assert {p.pid for p in multiprocessing.active_children()} == first and len(first) == 2
    del loader
    assert no_children()


INTERRUPTED = """
import os, signal, sys, time
import numpy as np
from wengert.data import DataLoader

class Slow:
    def __len__(self): return 1000
    def __getitem__(self, i):
        if i == 3:
            print(os.getpid(), flush=True)
        time.sleep(0.05 if i < 3 else 1000)
        return np.float32(i)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    for x in DataLoader(Slow(), 1, num_workers=3, context=sys.argv[1]):
        assert x.item() < 3
"""


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_no_workers_stay_after_an_interrupt(tmp_path: Any, context: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    program = subprocess.Popen(
        [sys.executable, str(script), context],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    worker = int(program.stdout.readline())
    os.killpg(program.pid, signal.SIGINT)  # as Ctrl-C does: to the workers, too
    _, errors = program.communicate(timeout=60)
    assert program.returncode != 0 and "KeyboardInterrupt" in errors and "Process wengert-data" not in errors, errors
    deadline = time.monotonic() + 20
    while _runs(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(worker)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_idle_workers_end_when_the_loader_is_killed(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, os, signal
            from wengert.data import DataLoader
            if __name__ == "__main__":
                loader = DataLoader(list(range(8)), 1, num_workers=3, persistent=True)
                list(loader)
                print(*(p.pid for p in multiprocessing.active_children()), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    workers = [int(x) for x in done.stdout.split()]
    assert len(workers) == 3, done.stderr
    deadline = time.monotonic() + 20
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_runs, workers))


def test_what_cannot_be_pickled_is_said_with_the_remedy() -> None:
    with pytest.raises(wg.ArgumentError, match=r'(?s)"?spawn.*must be picklable.*workers="thread"'):
        list(DataLoader([1.0], 1, num_workers=1, collate=lambda x: x, context="spawn"))
    local = type("Local", (tuple,), {})
    with pytest.raises(Exception, match="Local"):
        list(DataLoader([1.0], 1, num_workers=1, collate=lambda x: local(x)))
    assert no_children()


def test_data_sets_that_change_their_length_are_refused() -> None:
    data = [1.0, 2.0, 3.0]
    loader = DataLoader(data, 2)
    assert len(list(loader)) == 2
    data.append(4.0)
    with pytest.raises(wg.ArgumentError, match="had 3 samples when the loader was made, and has 4 now"):
        list(loader)

    class Lying(Stream):
        def __len__(self) -> int:
            return 10

    with pytest.warns(UserWarning, match="says that it has 10 samples, which make 4 batches, but it gave 2"):
        assert len(list(DataLoader(Lying(6), 3))) == 2


def test_bad_arguments_are_named() -> None:
    for call, message in [
        (lambda: DataLoader([1], 0), "batch_size must be at least 1, got 0"),
        (lambda: DataLoader([1], num_workers=-1), "num_workers must be at least 0, got -1"),
        (lambda: DataLoader([1], num_workers=1, prefetch=0), "prefetch must be at least 1, got 0"),
        (lambda: DataLoader([1], timeout=0), "timeout must be positive"),
        (lambda: DataLoader([1], workers="fibre"), "workers must be"),  # type: ignore[arg-type]
        (lambda: DataLoader([]), "dataset is empty"),
        (lambda: DataLoader("text"), "got str"),
        (lambda: DataLoader(3), "got int"),
        (lambda: DataLoader([1, 2], 3, drop_last=True), "2 samples make no batch of 3"),
        (lambda: DataLoader(Stream(3), shuffle=True), "its own order"),
        (lambda: DataLoader([1, 2], shuffle=True, sampler=[0]), "not from two"),
        (lambda: DataLoader((np.ones(2), np.ones(3))), "2, 3 samples"),
        (lambda: list(DataLoader(np.arange(3), 2, sampler=[0, 7])), "out of range"),
    ]:
        with pytest.raises((wg.WengertError, IndexError), match=message):
            call()
    loader = DataLoader([1, 2])
    with pytest.raises(wg.ArgumentError, match="samples 9, here it is 2"):
        loader.load_state_dict({**loader.state_dict(), "samples": 9})


def test_a_number_out_of_range_is_refused_in_workers_too() -> None:
    data = TensorDataset(np.arange(3))
    with pytest.raises(IndexError, match="out of range"):
        list(DataLoader(data, 2, sampler=[0, 7], num_workers=1))
    for workers in (0, 1):
        assert [b.tolist() for (b,) in DataLoader(data, 2, sampler=[0, -1], num_workers=workers)] == [[0, 2]]
