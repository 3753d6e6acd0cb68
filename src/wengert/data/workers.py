"""Workers that make batches ahead: processes, and threads. Each gets its tasks and gives its batches in order."""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import hashlib
import multiprocessing
import os
import pickle
import queue
import random
import signal
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from multiprocessing import reduction, util
from typing import Any, NamedTuple

import numpy as np

from wengert.data.fetching import End, Fetcher, Task, WorkerInfo, become_worker
from wengert.data.shared import Packed, Receiver, Sender
from wengert.errors import ArgumentError, WorkerError
from wengert.tensors.random import manual_seed
from wengert.threads import set_num_threads

Init = Callable[[int], Any] | None
_GRACE_S = 0.5  # that a worker has to end by itself
_MORE_KEPT = 8  # batches that may be kept without being copied, beyond those that are made ahead
_LONGEST_PICKLE = 16384  # bytes of an exception
_HANG_SIGNAL = getattr(signal, "SIGUSR1", None)


class Failed(NamedTuple):
    """An exception of a worker: pickled, or None where that does not work; its name and its traceback as texts."""

    pickled: bytes | None
    name: str
    trace: str


class StackFile(NamedTuple):
    """The next thing to come is the descriptor of a file that the worker writes its stack to when it is asked."""


class _Setup(NamedTuple):
    """The setup of a worker process."""

    fetcher: Fetcher
    info: WorkerInfo
    init: Init
    seed: int
    loader: int  # process
    shows_stack: bool


# --------------------------------------------------------------------------------------- in a worker process


def _work(connection: Any, setup: _Setup) -> None:
    """Until the loader closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the loader, which ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    set_num_threads(1)
    become_worker(setup.info)
    sender = Sender(connection, setup.loader)
    try:
        if setup.shows_stack:
            _offer_stack(sender, connection, setup.loader)
        failed = _started(setup)
        while True:
            task, free = pickle.loads(connection.recv_bytes())
            sender.free(free)
            answer = failed or _answer(sender, setup, task)
            if isinstance(answer, tuple) and not isinstance(answer, Failed):
                sender.send(*answer)
            else:
                sender.message(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the loader is gone


def _started(setup: _Setup) -> Failed | None:
    try:
        if setup.init is not None:
            setup.init(setup.info.number)
    except (Exception, SystemExit) as e:
        return _failure(e)
    return None


def _answer(sender: Sender, setup: _Setup, task: Task) -> Any:
    """A packed batch, None, End or what went wrong."""
    try:
        _seed_all(setup.seed, task)
        segment = sender.open()
        batch = setup.fetcher.make(task, segment.allocate)
        return batch if batch is None or batch is End else sender.pack(batch, segment, setup.fetcher.makes_tensors)
    except (Exception, SystemExit) as e:
        return _failure(e)


def _failure(e: BaseException) -> Failed:
    trace = "".join(traceback.format_exception(e))
    try:
        pickled = pickle.dumps(e)
        pickle.loads(pickled)
    except Exception:  # whatever its class does
        pickled = b""
    fits = 0 < len(pickled) <= _LONGEST_PICKLE
    return Failed(pickled if fits else None, f"{type(e).__name__}: {e}"[:1000], trace[-_LONGEST_PICKLE:])


def _seed_all(seed: int, task: Task) -> None:
    """Random numbers of a batch depend on the seed and the place of the batch, not on the worker that makes it."""
    place = f"{seed} {task.epoch} {task.number}".encode()
    drawn = int.from_bytes(hashlib.blake2b(place, digest_size=8).digest(), "little")
    manual_seed(drawn)
    random.seed(drawn)
    np.random.seed(drawn & 0xFFFFFFFF)


def _offer_stack(sender: Sender, connection: Any, loader: int) -> None:
    assert _HANG_SIGNAL is not None
    file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the worker lives)
    faulthandler.register(_HANG_SIGNAL, file=file)
    sender.message(StackFile())
    reduction.send_handle(connection, file.fileno(), loader)


# --------------------------------------------------------------------------------------------- in the loader


class Processes:
    """Worker processes. They end with this object, with the program, or when the loader's process dies."""

    def __init__(
        self, fetcher: Fetcher, count: int, ahead: int, *, init: Init, seed: int, timeout: float | None, context: Any
    ) -> None:
        chosen = multiprocessing.get_context(context)
        shows_stack = timeout is not None and _HANG_SIGNAL is not None and hasattr(faulthandler, "register")
        self.count, self._timeout = count, timeout
        self._receivers: list[Receiver] = []
        self._processes: list[Any] = []
        self._stacks: dict[int, int] = {}  # descriptors
        self.close = weakref.finalize(self, _end, os.getpid(), self._processes, self._receivers, self._stacks)
        # A forked worker inherits the loader's ends of all connections; while it has them, none of them looks closed.
        util.register_after_fork(self, Processes._close_inherited)
        try:
            for k in range(count):
                setup = _Setup(fetcher, WorkerInfo(k, count), init, seed, os.getpid(), shows_stack)
                self._start(chosen, setup, ahead)
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, setup: _Setup, ahead: int) -> None:
        ours, theirs = context.Pipe()
        k = setup.info.number
        self._receivers.append(Receiver(ours, ahead + _MORE_KEPT))
        process = context.Process(target=_work, args=(theirs, setup), name=f"wengert-data-{k}", daemon=True)
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as e:
            raise ArgumentError(
                f"DataLoader: with processes that are started by {context.get_start_method()!r}, the data set, collate and "
                f'worker_init must be picklable ({e}); define them in a module, or use workers="thread"'
            ) from e
        finally:
            theirs.close()
        self._processes.append(process)

    def _close_inherited(self) -> None:
        for receiver in self._receivers:
            receiver.connection.close()

    def submit(self, k: int, task: Task) -> None:
        """Give worker k its next task."""
        receiver = self._receivers[k]
        message = pickle.dumps((task, receiver.returned()), 5)
        # If it died, `result` says so when its turn comes.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            receiver.connection.send_bytes(message)

    def result(self, k: int, task: Task) -> Any:
        """The result of worker k's earliest task, which is this one."""
        receiver = self._receivers[k]
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            while True:
                if deadline is not None and not receiver.connection.poll(max(0.0, deadline - time.monotonic())):
                    raise WorkerError(self._hanging(k, task))
                message = receiver.receive()
                if not isinstance(message, StackFile):
                    break
                self._stacks[k] = reduction.recv_handle(receiver.connection)
        except (EOFError, OSError) as e:
            raise WorkerError(self._dead(k, task)) from e
        if isinstance(message, Failed):
            _raise(message, f"worker {k}", task)
        return receiver.unpack(message) if isinstance(message, Packed) else message

    def _dead(self, k: int, task: Task) -> str:
        process = self._processes[k]
        process.join(_GRACE_S)
        code = process.exitcode
        how = "closed its connection" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            if -code == getattr(signal, "SIGKILL", None):
                how += ", which is what the system does when memory runs out"
        return (
            f"DataLoader: worker {k} (process {process.pid}) {how} while it made {_named(task)}; num_workers=0 runs the "
            "same code in this process"
        )

    def _hanging(self, k: int, task: Task) -> str:
        process = self._processes[k]
        message = (
            f"DataLoader: worker {k} (process {process.pid}) has not given {_named(task)} in {self._timeout:g} s; it is "
            "running, and the loader ends it now"
        )
        stack = self._stack(k)
        return f"{message}. It is at:\n{stack}" if stack else message

    def _stack(self, k: int) -> str:
        """The stack of a worker, as reported by itself."""
        descriptor, process = self._stacks.get(k), self._processes[k]
        if descriptor is None or not process.is_alive():
            return ""
        assert _HANG_SIGNAL is not None
        os.kill(process.pid, _HANG_SIGNAL)
        written, deadline = b"", time.monotonic() + 1.0
        while time.monotonic() < deadline:
            time.sleep(0.02)
            now = os.pread(descriptor, 1 << 16, 0)
            if now and now == written:
                break
            written = now
        return written.decode(errors="replace").rstrip()


def _end(owner: int, processes: list[Any], receivers: list[Receiver], stacks: dict[int, int]) -> None:
    """End the workers, and wait for them: idle ones notice the closed connection, others are killed."""
    if os.getpid() != owner:
        return  # a forked copy of the loader, whose children these are not
    for receiver in receivers:
        receiver.connection.close()
    for descriptor in stacks.values():
        os.close(descriptor)
    deadline = time.monotonic() + _GRACE_S
    for stop in ("terminate", "kill", None):
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        for process in processes:
            if stop and process.is_alive():
                getattr(process, stop)()
        deadline = time.monotonic() + 4 * _GRACE_S
    for process in processes:
        process.join()
        process.close()


class Threads:
    """Worker threads: for data sets that wait for files or the network, or compute in native code."""

    def __init__(self, fetcher: Fetcher, count: int, *, init: Init, timeout: float | None) -> None:
        self.count, self._timeout = count, timeout
        self._tasks: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(count)]
        self._results: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(count)]
        stopped = threading.Event()
        threads = [
            threading.Thread(
                target=_work_in_thread,
                args=(copy.copy(fetcher), WorkerInfo(k, count), init, self._tasks[k], self._results[k], stopped),
                name=f"wengert-data-{k}",
                daemon=True,
            )
            for k in range(count)
        ]
        self.close = weakref.finalize(self, _end_threads, stopped, self._tasks, threads)
        for thread in threads:
            thread.start()

    def submit(self, k: int, task: Task) -> None:
        """Give thread k its next task."""
        self._tasks[k].put(task)

    def result(self, k: int, task: Task) -> Any:
        """The result of thread k's earliest task, which is this one."""
        try:
            batch, error = self._results[k].get(timeout=self._timeout)
        except queue.Empty:
            raise WorkerError(
                f"DataLoader: thread {k} has not given {_named(task)} in {self._timeout:g} s; threads cannot be ended, so "
                'it goes on: use workers="process" for data sets that may hang'
            ) from None
        if error is not None:
            error.add_note(f"in thread {k} of a DataLoader, which made {_named(task)}")
            raise error
        return batch


def _work_in_thread(fetcher: Fetcher, info: WorkerInfo, init: Init, tasks: Any, results: Any, stopped: Any) -> None:
    become_worker(info)
    failed = None
    try:
        if init is not None:
            init(info.number)
    except BaseException as e:  # it belongs to the loop, not to this thread
        failed = e
    while (task := tasks.get()) is not None and not stopped.is_set():
        try:
            results.put((None, failed) if failed else (fetcher.make(task), None))
        except BaseException as e:
            results.put((None, e))


def _end_threads(stopped: threading.Event, tasks: list[Any], threads: list[threading.Thread]) -> None:
    stopped.set()
    for inbox in tasks:
        inbox.put(None)
    deadline = time.monotonic() + 4 * _GRACE_S
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


Crew = Processes | Threads


def _named(task: Task) -> str:
    chosen = task.chosen
    if isinstance(chosen, (bool, int, np.integer)):
        return f"batch {task.number}"
    numbers = range(chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen
    shown = ", ".join(str(i) for i in numbers[:8])
    return f"batch {task.number} (samples {shown}{', …' if len(numbers) > 8 else ''})"


def _raise(failed: Failed, who: str, task: Task) -> None:
    """The exception of a worker, with its traceback."""
    note = f"in {who} of a DataLoader, which made {_named(task)}:\n\n{failed.trace}"
    error: Any = None
    if failed.pickled is not None:
        error = pickle.loads(failed.pickled)
    if not isinstance(error, BaseException) or isinstance(error, StopIteration):
        error = WorkerError(f"DataLoader: {who} failed with {failed.name}")
    error.add_note(note)
    raise error
