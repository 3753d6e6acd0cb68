"""Streams and events: work on a GPU that runs at the same time, and who waits for whom."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from wengert import _core
from wengert.errors import ArgumentError, DeviceError
from wengert.tensors.device import number_of
from wengert.tensors.gpus import current_gpu, device_number


def gpu_number(device: Any) -> int:
    """The number in the core of a GPU; None is the current one."""
    if device is None:
        device = "cuda"
    number = device_number(device) if isinstance(device, int) else number_of(device)
    if not _core.device_name(number).startswith("cuda"):
        raise DeviceError(f"cuda: expected a GPU, got the device {str(device)!r}")
    return number


class Stream:
    """An order of work on a GPU: what one stream is given runs in that order, and beside the work of other streams.

    Work goes to the stream that the thread has chosen (`wg.cuda.stream`), at first to that of the GPU. Whoever reads on one
    stream what was computed on another has to make it wait (`wait_stream`, `wait_event`). Memory takes care of itself: a
    tensor that was used on several streams is not overwritten before all of them are done with it.

    - `device`: the GPU; by default the current one.
    - `priority`: streams with lower numbers go first.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     side = wg.cuda.Stream()
    ...     x = wg.ones(3, device="cuda")
    ...     side.wait_stream(wg.cuda.current_stream())  # for x
    ...     with wg.cuda.stream(side):
    ...         y = x + 1
    ...     wg.cuda.current_stream().wait_stream(side)  # for y
    ...     print((x + y).tolist())
    """

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self._gpu = gpu_number(device)
        self._own: _core.GpuStream | None = _core.GpuStream(self._gpu, int(priority))
        self._handle = int(self._own.handle)

    @classmethod
    def _at(cls, gpu: int, handle: int) -> Stream:
        made = cls.__new__(cls)
        made._gpu, made._own, made._handle = gpu, None, int(handle)
        return made

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, to share with other libraries."""
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which other libraries take streams: its version, and the handle."""
        return 0, self._handle

    @property
    def device(self) -> str:
        """The name of its GPU."""
        return str(_core.device_name(self._gpu))

    def wait_stream(self, other: Stream) -> None:
        """Let what this stream is given from here on wait for what the other one has been given so far."""
        _core.cuda_order_streams(_same_gpu(self, other), other._handle, self._handle)

    def wait_event(self, event: Event) -> None:
        """Let what this stream is given from here on wait for the event."""
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, by default a new one, after what the stream has been given so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all that it was given has been done."""
        return bool(_core.cuda_stream_done(self._gpu, self._handle))

    def synchronize(self) -> None:
        """Wait until all that it was given has been done. Raises what went wrong meanwhile."""
        _core.cuda_wait_for_stream(self._gpu, self._handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._gpu, self._handle) == (other._gpu, other._handle)

    def __hash__(self) -> int:
        return hash((self._gpu, self._handle))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device!r}, cuda_stream={self._handle:#x})"


class ExternalStream(Stream):
    """A stream of another library, by its handle. That library has to keep it as long as it is used here.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     same = wg.cuda.ExternalStream(wg.cuda.current_stream().cuda_stream)
    ...     assert same.query() in (True, False)
    """

    def __init__(self, cuda_stream: int, device: Any = None) -> None:
        self._gpu, self._own, self._handle = gpu_number(device), None, int(cuda_stream)


class Event:
    """A point in the work of a stream.

    - `enable_timing`: whether it takes the time, for `elapsed_time`.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     start, end = (wg.cuda.Event(enable_timing=True) for _ in range(2))
    ...     start.record()
    ...     y = wg.ones(1000, device="cuda").sum()
    ...     end.record()
    ...     end.synchronize()
    ...     assert start.elapsed_time(end) > 0  # milliseconds
    """

    def __init__(self, enable_timing: bool = False) -> None:
        self._timed = bool(enable_timing)
        self._event: Any = None  # belongs to a GPU, which is known when it is first recorded
        self._gpu = -1

    def record(self, stream: Stream | None = None) -> None:
        """Mark what the stream, by default the current one, has been given so far."""
        stream = current_stream() if stream is None else stream
        if self._event is None or self._gpu != stream._gpu:
            self._event, self._gpu = _core.GpuEvent(stream._gpu, self._timed), stream._gpu
        self._event.record(stream._handle)

    def wait(self, stream: Stream | None = None) -> None:
        """Let what the stream, by default the current one, is given from here on wait for the event."""
        stream = current_stream() if stream is None else stream
        if self._event is not None:
            self._event.make_wait(stream._handle)

    def query(self) -> bool:
        """Whether what it marks has been done; True as long as nothing was recorded."""
        return self._event is None or bool(self._event.done())

    def synchronize(self) -> None:
        """Wait until what it marks has been done."""
        if self._event is not None:
            self._event.wait()

    def elapsed_time(self, end: Event) -> float:
        """The time from this event to another one in milliseconds; both must be done."""
        if self._event is None or end._event is None:
            raise ArgumentError("elapsed_time: both events must have been recorded")
        return float(self._event.elapsed(end._event))

    @property
    def cuda_event(self) -> int:
        """The driver's handle, to share with other libraries; 0 as long as nothing was recorded."""
        return 0 if self._event is None else int(self._event.handle)

    def __repr__(self) -> str:
        state = "not recorded" if self._event is None else "done" if self.query() else "not done"
        return f"Event(enable_timing={self._timed}, {state})"


def _same_gpu(a: Stream, b: Stream) -> int:
    if a._gpu != b._gpu:
        raise DeviceError(
            f"wait_stream: the streams are of different GPUs, {a.device} and {b.device}; record an event on one and let "
            "the other wait for it"
        )
    return a._gpu


def current_stream(device: Any = None) -> Stream:
    """The stream that this thread's work on the GPU goes to.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     wg.cuda.current_stream().synchronize()
    """
    number = gpu_number(device)
    return Stream._at(number, _core.cuda_stream(number))


def default_stream(device: Any = None) -> Stream:
    """The stream of the GPU itself, which work goes to where no other was chosen.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     assert wg.cuda.current_stream() == wg.cuda.default_stream()
    """
    number = gpu_number(device)
    return Stream._at(number, _core.cuda_own_stream(number))


def _ours(s: Any) -> Stream:
    if isinstance(s, Stream):
        return s
    if not hasattr(s, "cuda_stream"):
        raise ArgumentError(f"stream: expected a stream, got {type(s).__name__}")
    return ExternalStream(s.cuda_stream, getattr(getattr(s, "device", None), "index", None))


@contextlib.contextmanager
def stream(s: Any) -> Iterator[None]:
    """A scope in which this thread's work goes to the stream, and its GPU is the current one.

    Streams of other libraries that have a `cuda_stream`, such as PyTorch's, are taken, too. None changes nothing.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     with wg.cuda.stream(wg.cuda.Stream()):
    ...         x = wg.ones(3, device="cuda")
    """
    if s is None:
        yield
        return
    s = _ours(s)
    with current_gpu(int(s.device.partition(":")[2])):
        before = _core.cuda_choose_stream(s._gpu, s._handle)
        try:
            yield
        finally:
            _core.cuda_choose_stream(s._gpu, before)


def set_stream(s: Any) -> None:
    """Let this thread's work on the stream's GPU go to it from here on; `stream` does so for a block.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     wg.cuda.set_stream(wg.cuda.default_stream())
    """
    s = _ours(s)
    _core.cuda_choose_stream(s._gpu, s._handle)
