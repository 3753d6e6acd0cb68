"""Loaders of data beside PyTorch's: `python -m benchmarks.data`.

Time per sample of an epoch through `wg.data.DataLoader` and `torch.utils.data.DataLoader`, over the same data set, in this
process and with four workers. Epochs with workers include starting and ending them. Prints a table with goals, and writes
benchmarks/results/data.json and data.md.
"""

from __future__ import annotations

import os

# Before any library starts its threads: two each, as in benchmarks.eager.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Row, interleave, timed_row

PYTORCH = "PyTorch"
GOAL = 1.0
WORKERS = 4


class Images:
    """Small pictures that are flipped at random and normalised, as NumPy arrays."""

    def __init__(self, n: int) -> None:
        self.pixels = np.random.default_rng(0).integers(0, 256, (n, 3, 64, 64), np.uint8)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> Any:
        x = self.pixels[i].astype(np.float32)
        if np.random.rand() < 0.5:
            x = x[:, :, ::-1]
        return np.ascontiguousarray((x - 127.5) / 64.0), i % 10


class Large:
    """Large samples that cost nothing to make: what is measured is moving them."""

    def __init__(self, n: int) -> None:
        self.n, self.x = n, np.ones((3, 224, 224), np.float32)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return self.x


class Records:
    """Dicts of a few numbers: what is measured is putting batches together."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return {"age": i % 90, "weight": 0.5 * i, "features": np.full(8, i, np.float32)}


class Texts:
    """A stream of rows of token numbers."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        for k in range(self.n):
            yield np.arange(k, k + 128)


@dataclass
class Case:
    """A data set in both libraries' form."""

    name: str
    samples: int
    batch_size: int
    ours: Callable[[], Any]
    theirs: Callable[[Any], Any]
    shuffle: bool = True


def _arrays(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 784), np.float32), rng.integers(0, 10, n)


def _torch_arrays(torch: Any, n: int) -> Any:
    return torch.utils.data.TensorDataset(*map(torch.from_numpy, _arrays(n)))


def _torch_stream(torch: Any, n: int) -> Any:
    class Sharded(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        """Without this each worker would give all samples."""

        def __iter__(self) -> Iterator[Any]:
            info = torch.utils.data.get_worker_info()
            first, step = (0, 1) if info is None else (info.id, info.num_workers)
            return (np.arange(k, k + 128) for k in range(first, n, step))

    return Sharded()


class _Parts(Texts):
    def shard(self, number: int, count: int) -> Iterator[Any]:
        """Every count-th row."""
        return (np.arange(k, k + 128) for k in range(number, self.n, count))


CASES = {
    "arrays": Case(
        "arrays of 784 floats and a label, batches of 64", 20_000, 64, lambda: _arrays(20_000),
        lambda torch: _torch_arrays(torch, 20_000),
    ),
    "images": Case("3×64×64 pictures, flipped and normalised, batches of 32", 2_000, 32, lambda: Images(2_000),
                   lambda _: Images(2_000)),
    "large": Case("3×224×224 floats, made for nothing, batches of 32", 1_024, 32, lambda: Large(1_024),
                  lambda _: Large(1_024)),
    "records": Case("dicts of two numbers and eight floats, batches of 64", 10_000, 64, lambda: Records(10_000),
                    lambda _: Records(10_000)),
    "stream": Case("a stream of 128 numbers, batches of 64", 20_000, 64, lambda: _Parts(20_000),
                   lambda torch: _torch_stream(torch, 20_000), shuffle=False),
}  # fmt: skip


def _epochs(loader: Any, samples: int) -> measure.Call:
    """Seconds of n epochs. Every batch is looked at, and all samples must come."""

    def call(n: int) -> float:
        start = time.perf_counter()
        for _ in range(n):
            seen = 0
            for batch in loader:
                first = next(iter(batch.values())) if isinstance(batch, dict) else batch
                seen += len(first[0] if isinstance(first, (tuple, list)) else first)
            assert seen == samples, f"{seen} samples came, not {samples}"
        return time.perf_counter() - start

    return call


def compare(case: Case, workers: int, rounds: int) -> Row:
    """One row: both loaders in turns."""
    shuffle, missing = case.shuffle, []
    ours = wg.data.DataLoader(case.ours(), case.batch_size, shuffle=shuffle, num_workers=workers)
    calls = {"wengert": _epochs(ours, case.samples)}
    if importlib.util.find_spec("torch") is None:
        missing.append(PYTORCH)
    else:
        import torch
        import torch.utils.data

        torch.set_num_threads(2)
        theirs = torch.utils.data.DataLoader(case.theirs(torch), case.batch_size, shuffle=shuffle, num_workers=workers)
        calls[PYTORCH] = _epochs(theirs, case.samples)
    timings, load = interleave(calls, rounds, sample_s=0.2)
    name = f"{case.name}, {workers or 'no'} workers"
    best = timings["wengert"].best
    return timed_row(
        name, timings, load, per=case.samples, goals={PYTORCH: GOAL}, missing=missing,
        note=f"{case.samples / best:,.0f} samples/s",
    )  # fmt: skip


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.data", __doc__, CASES, rounds=7)
    rows = []
    for which in options.rows:
        for workers in (0, WORKERS):
            rows.append(compare(CASES[which], workers, options.rounds))
            print(f"{rows[-1].name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit} a sample", flush=True)
    measure.show(rows)
    if not options.dry:
        title = "Loaders of data beside PyTorch's, per sample"
        measure.write("data", title, rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
