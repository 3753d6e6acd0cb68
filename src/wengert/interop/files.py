"""Files that are either the old or the new one, whenever a program dies."""

from __future__ import annotations

import contextlib
import errno
import glob
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
    remove_left_over(path.parent, f"{path.name}.")
    f = _temporary(path)
    try:
        with f:
            yield f
            f.flush()
            os.fsync(f.fileno())
            os.replace(f.name, path)  # still locked: until now it could be taken for a left-over file
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f.name)
        raise
    _sync_folder(path.parent)


def _temporary(path: Path) -> BinaryIO:
    """A new file beside `path`, locked, so that nobody takes it for one that was left over."""
    while True:
        name = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
        f = open(name, "xb")  # noqa: SIM115  # closed by who writes to it
        _lock(f.fileno(), wait=True)
        if os.path.exists(f.name):  # else it was removed before it was locked
            return f
        f.close()


def _lock(fd: int, wait: bool) -> bool:
    """Lock a file for as long as it is open here; False if another one has it locked. Without locks, always True."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return wait
    return True


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a loss of power; systems without this have no such promise to give."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove_left_over(folder: Path, prefix: str) -> None:
    """Delete the temporary files of programs that died while writing `prefix…` here; one that is being written is locked."""
    for left in folder.glob(f".{glob.escape(prefix)}*{TEMPORARY}"):
        with contextlib.suppress(OSError), open(left, "rb") as f:  # gone, or open on a system that then refuses
            if _lock(f.fileno(), wait=False):
                left.unlink()
