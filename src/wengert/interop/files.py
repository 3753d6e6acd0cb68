"""Files that are either the old or the new one, whenever a program dies."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp"


@contextlib.contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when all of it is on the disk, and vanishes after an error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "a"
    ...     with written_atomically(target) as f:
    ...         _ = f.write(b"whole")
    ...     target.read_bytes(), len(os.listdir(folder))
    (b'whole', 1)
    """
    path = Path(os.path.realpath(path))  # a link stays a link, and the temporary file is on the target's disk
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder to write to does not exist; make it first", str(path.parent))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with open(temporary, "xb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a loss of power; systems without this have no such promise to give."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove_left_over(folder: Path, prefix: str) -> None:
    """Delete the temporary files of programs that died while writing `prefix…` here."""
    for left in folder.glob(f".{prefix}*{TEMPORARY}"):
        with contextlib.suppress(FileNotFoundError):
            left.unlink()
