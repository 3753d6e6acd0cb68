"""Checkpoints of a run, of which the newest whole one is always there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from wengert.errors import ArgumentError, LoadError
from wengert.interop import safetensors
from wengert.interop.files import remove_left_over
from wengert.user_line import warn_user


class Checkpoint(NamedTuple):
    """A step, and the state that was saved at it."""

    step: int
    state: Any


class Checkpointer:
    """Save numbered states of a run in a folder, and keep the last `keep` of them (all if None).

    `save(step, state)` takes what `wengert.save` takes. `load()` returns the newest complete one, with `.step` and
    `.state`, even if the run died while it was writing. One run at a time may write to a folder.

    >>> import tempfile, wengert as wg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints = Checkpointer(folder, keep=2)
    ...     for step in range(5):
    ...         _ = checkpoints.save(step, {"weight": wg.full((1,), float(step))})
    ...     checkpoints.steps(), Checkpointer(folder).load().state["weight"].tolist()
    ([3, 4], [4.0])
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: int | None = 3, prefix: str = "checkpoint") -> None:
        if keep is not None and keep < 1:
            raise ArgumentError(f"Checkpointer: keep must be at least 1, or None for all, got {keep}")
        if not re.fullmatch(r"[\w-]+", prefix):
            raise ArgumentError(f"Checkpointer: prefix {prefix!r} cannot be part of a file name")
        self.directory, self.keep, self.prefix = Path(directory), keep, prefix
        self.directory.mkdir(parents=True, exist_ok=True)

    def path(self, step: int) -> Path:
        """The file of a step."""
        return self.directory / f"{self.prefix}-{step:010d}.safetensors"

    def steps(self) -> list[int]:
        """The steps that have files, in order."""
        pattern = re.compile(rf"{re.escape(self.prefix)}-(\d+)\.safetensors")
        found = (pattern.fullmatch(name) for name in os.listdir(self.directory))
        return sorted(int(m[1]) for m in found if m)

    def save(self, step: int, state: Any) -> Path:
        """Write the state of a step, then delete what is older than the last `keep`."""
        if step < 0:
            raise ArgumentError(f"Checkpointer.save: step must not be negative, got {step}")
        remove_left_over(self.directory, f"{self.prefix}-")
        safetensors.save(self.path(step), state)
        for old in self.steps()[: -self.keep] if self.keep else ():
            self.path(old).unlink(missing_ok=True)
        return self.path(step)

    def latest(self) -> Path | None:
        """The newest file that is whole; None if there is none. Damaged ones are named in a warning, and stay."""
        for step in reversed(self.steps()):
            try:
                safetensors.check(self.path(step))
            except (LoadError, OSError) as e:
                warn_user(f"Checkpointer: skipped a damaged checkpoint: {e}")
                continue
            return self.path(step)
        return None

    def load(self) -> Checkpoint | None:
        """The newest whole checkpoint; None if there is none, and a run starts from the beginning."""
        found = self.latest()
        if found is None:
            return None
        return Checkpoint(int(found.stem.rpartition("-")[2]), safetensors.load(found))
