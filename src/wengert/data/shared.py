"""Batches through shared memory: the worker writes arrays to a segment, the loader makes tensors of them in place.

Segments are files without a name (`memfd_create` where there is one), handed over as descriptors: nothing is left behind,
whichever process dies. A segment goes back to its worker when the last tensor in it is gone.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
import weakref
from collections import deque
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from wengert._core import Tensor
from wengert.data.collate import as_array
from wengert.tensors.conversion import asarray
from wengert.tree import Structure, flatten, unflatten

_ALIGNMENT = 64
_LONG = 2048  # bytes; what is longer goes through the segment, so that a worker never waits until the loader reads


class ArrayLocation(NamedTuple):
    """The position of a leaf of the batch in a segment."""

    leaf: int
    offset: int
    shape: tuple[int, ...]
    dtype: Any
    is_tensor: bool


class Layout(NamedTuple):
    """All about a batch but its numbers; None if it is that of the batch before."""

    structure: Structure
    leaves: int
    locations: list[ArrayLocation]


class Packed(NamedTuple):
    """The message for a batch whose arrays are in a segment."""

    segment: int
    layout: Layout | None
    others: (
        Any  # leaves that are no arrays, as (leaf, object); or where in the segment these are pickled, as (start, stop)
    )
    dropped: list[int]  # segments that were too small


class NewSegment(NamedTuple):
    """The next thing to come is the descriptor of this segment."""

    number: int
    size: int


# -------------------------------------------------------------------------------------------- in the worker


class _Segment:
    """Memory that the worker writes one batch to."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size, self.used = number, max(size, mmap.PAGESIZE), 0
        self.descriptor: int | None = _nameless_file()
        os.ftruncate(self.descriptor, self.size)
        self.bytes = np.frombuffer(mmap.mmap(self.descriptor, self.size), np.uint8)
        self.start = self.bytes.ctypes.data

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array in the segment, or outside if there is no room."""
        empty = np.empty(shape, dtype)  # untouched, so nearly free
        offset, self.used = self.used, self.used + _padded(empty.nbytes)
        if self.used > self.size:
            return empty
        return self.bytes[offset : offset + empty.nbytes].view(empty.dtype).reshape(empty.shape)

    def offset_of(self, a: Any) -> int | None:
        """The offset of an array in the segment; None if it is elsewhere."""
        offset = a.__array_interface__["data"][0] - self.start if a.nbytes else 0
        inside = offset >= 0 and offset + a.nbytes <= self.size and a.flags.c_contiguous
        return int(offset) if inside else None


def _padded(n: int) -> int:
    return -(-n // _ALIGNMENT) * _ALIGNMENT


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("wengert-batch", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Sender:
    """The worker's end."""

    def __init__(self, connection: Any, loader: int) -> None:
        self._connection, self._loader = connection, loader
        self._segments: dict[int, _Segment] = {}
        self._free: list[_Segment] = []
        self._dropped: list[int] = []
        self._made = self._size = 0  # segments so far; bytes of the last one
        self._layout: Layout | None = None

    def free(self, numbers: list[int]) -> None:
        """The loader needs these segments no more."""
        self._free += [self._segments[n] for n in numbers]

    def open(self) -> _Segment:
        """A segment for the next batch."""
        segment = self._free[-1] if self._free else self._new(self._size)
        segment.used = 0
        return segment

    def _new(self, size: int) -> _Segment:
        self._made, self._size = self._made + 1, size
        segment = self._segments[self._made] = _Segment(self._made, size)
        self._free.append(segment)
        return segment

    def message(self, content: Any) -> None:
        """Anything that is short."""
        self._connection.send_bytes(pickle.dumps(content, 5))

    def pack(self, batch: Any, segment: _Segment, makes_tensors: bool) -> tuple[_Segment, bytes]:
        """A batch for `send`; parts may lie in the segment already. Its arrays become tensors if `makes_tensors`."""
        leaves, structure = flatten(batch)
        arrays = {k: as_array(x) for k, x in enumerate(leaves) if _is_numeric(x)}
        others = [(k, x) for k, x in enumerate(leaves) if k not in arrays]
        pickled = pickle.dumps(others, 5) if others else b""
        long = [np.frombuffer(pickled, np.uint8)] if len(pickled) > _LONG else []
        segment, offsets = self._placed([*arrays.values(), *long], segment)
        locations = [
            ArrayLocation(k, offset, a.shape, a.dtype, makes_tensors or isinstance(leaves[k], Tensor))
            for (k, a), offset in zip(arrays.items(), offsets)
        ]
        layout = Layout(structure, len(leaves), locations)
        where: Any = (offsets[-1], offsets[-1] + len(pickled)) if long else others
        packed = Packed(segment.number, None if layout == self._layout else layout, where, self._dropped)
        message = pickle.dumps(packed, 5)
        self._layout, self._dropped = layout, []
        return segment, message

    def send(self, segment: _Segment, message: bytes) -> None:
        """Send the result of `pack`. The segment becomes free when the loader says so."""
        if segment.descriptor is not None:
            self.message(NewSegment(segment.number, segment.size))
            reduction.send_handle(self._connection, segment.descriptor, self._loader)
            os.close(segment.descriptor)
            segment.descriptor = None
        self._free.remove(segment)
        self._connection.send_bytes(message)

    def _placed(self, arrays: list[Any], segment: _Segment) -> tuple[_Segment, list[int]]:
        """Offsets of arrays in the segment, where they are copied to if they are not there; or in a larger one."""
        offsets = []
        for a in arrays:
            offset = segment.offset_of(a)
            if offset is None:
                room = segment.allocate(a.shape, a.dtype)
                offset = segment.offset_of(room)
                if offset is None:
                    return self._placed(arrays, self._larger(segment, sum(_padded(x.nbytes) for x in arrays)))
                room[...] = a
            offsets.append(offset)
        return segment, offsets

    def _larger(self, segment: _Segment, size: int) -> _Segment:
        self._free.remove(segment)
        del self._segments[segment.number]
        if segment.descriptor is None:
            self._dropped.append(segment.number)
        else:
            os.close(segment.descriptor)
        return self._new(size + size // 4)


def _is_numeric(x: Any) -> bool:
    return isinstance(x, Tensor) or (isinstance(x, np.ndarray) and not x.dtype.hasobject)


# -------------------------------------------------------------------------------------------- in the loader


class _Returned:
    """Segments whose batches are gone, and how many are still in use."""

    def __init__(self) -> None:
        self.numbers: deque[int] = deque()
        self.in_use = 0

    def give_back(self, number: int) -> None:
        self.in_use -= 1
        self.numbers.append(number)


class Receiver:
    """The loader's end for one worker. Beyond `most` batches that are kept, others are copied: each one in place holds a
    descriptor of its own."""

    def __init__(self, connection: Any, most: int) -> None:
        self.connection, self._most = connection, most
        self._memory: dict[int, Any] = {}
        self._returned = _Returned()
        self._layout: Layout | None = None

    def returned(self) -> list[int]:
        """Segments that the worker may write to again; each is named once."""
        numbers = self._returned.numbers
        return [numbers.popleft() for _ in range(len(numbers))]

    def receive(self) -> Any:
        """The next message: a batch if it was `Packed`."""
        message = pickle.loads(self.connection.recv_bytes())
        if isinstance(message, NewSegment):
            descriptor = reduction.recv_handle(self.connection)
            try:
                self._memory[message.number] = mmap.mmap(descriptor, message.size)
            finally:
                os.close(descriptor)
            return self.receive()
        return message

    def unpack(self, message: Packed) -> Any:
        """The batch."""
        for number in message.dropped:
            del self._memory[number]
        self._layout = layout = message.layout or self._layout
        assert layout is not None  # the first batch says it
        memory = np.frombuffer(self._memory[message.segment], np.uint8)
        others = message.others
        if isinstance(others, tuple):
            others = pickle.loads(memory[slice(*others)].tobytes())
        leaves: list[Any] = [None] * layout.leaves
        for k, x in others:
            leaves[k] = x
        copied = self._returned.in_use >= self._most
        for k, offset, shape, dtype, is_tensor in layout.locations:
            n = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            a = memory[offset : offset + n].view(dtype).reshape(shape)
            a = a.copy() if copied else a
            leaves[k] = asarray(a) if is_tensor else a
        self._returned.in_use += 1
        if copied:
            self._returned.give_back(message.segment)
        else:  # every array above is a view of `memory`
            weakref.finalize(memory, self._returned.give_back, message.segment).atexit = False
        return unflatten(layout.structure, leaves)
