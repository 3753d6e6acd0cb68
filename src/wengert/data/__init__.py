"""Data: batches of arrays, splits, and a progress bar for the loop, which stays your own."""

from wengert._hooks import hide_frames
from wengert.data.batches import Batches, batches, split
from wengert.data.progress import progress
from wengert.data.samples import Subset

__all__ = ["Batches", "Subset", "batches", "progress", "split"]

hide_frames()
