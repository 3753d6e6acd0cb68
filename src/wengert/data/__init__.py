"""Data: loaders of batches, data sets, samplers, and a progress bar for the loop, which stays your own."""

from typing import Any

from wengert.data.collate import collate
from wengert.data.datasets import ConcatDataset, Subset, TensorDataset, random_split, split
from wengert.data.fetching import WorkerInfo, worker_info
from wengert.data.loader import DataLoader, batches
from wengert.data.progress import progress
from wengert.data.samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler, WeightedRandomSampler
from wengert.foreign_names import MissingName

__all__ = [
    "BatchSampler", "ConcatDataset", "DataLoader", "RandomSampler", "Sampler", "SequentialSampler", "Subset",
    "TensorDataset", "WeightedRandomSampler", "WorkerInfo", "batches", "collate", "progress", "random_split", "split",
    "worker_info",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
