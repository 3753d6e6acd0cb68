"""Run by test_host.py, with a GPU played by the CPU: memory shared with another library, in order with its streams."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np

import wengert as wg
from tests.cuda.emulated_gpu import raises
from tests.cuda.other_library import Array, OlderArray, make_stream, read_later, wait
from tests.tensors.dlpack_capsules import Foreign, Taken
from wengert import _core
from wengert.errors import ArgumentError, DeviceError

NUMBER = wg.cuda.device_number(0)
OURS = wg.cuda.current_stream().cuda_stream
LIKE = np.zeros(3, np.float32)


def the_consumer_waits_for_us() -> None:
    """What it reads on its stream is what was computed on ours, although nobody waited for that."""
    for version, stream, reading in ((None, 1, 1), ((1, 0), None, 1), ((1, 0), make_stream(), 0)):
        y = wg.tensor([1.0, 2.0, 3.0], device="cuda") * 2.0
        assert y.__dlpack_device__() == (2, 0)
        taken = Taken(y.__dlpack__(stream=stream, max_version=version))
        array = taken.managed.array
        assert (array.data, array.device_type, array.device_number) == (y.data_ptr, 2, 0)
        got = read_later(array.data, LIKE, reading or stream)
        wait(reading or stream)
        assert got.tolist() == [2.0, 4.0, 6.0], got
        taken.drop()
    y = wg.tensor([1.0, 2.0, 3.0], device="cuda") * 3.0
    unordered = make_stream()
    taken = Taken(y.__dlpack__(stream=-1))
    got = read_later(taken.managed.array.data, LIKE, unordered)
    wait(unordered)
    assert got.tolist() != [3.0, 6.0, 9.0]  # it said that it would take care
    taken.drop()


def we_wait_for_the_producer() -> None:
    for dtype in ("float32", "int64", "bfloat16", "bool"):
        values = np.array([[0, 1, 1], [1, 0, 1]])
        array = Array(values, dtype)
        x = wg.from_dlpack(array)
        assert (x.device, x.dtype, x.data_ptr) == ("cuda:0", dtype, array.address)
        assert array.seen_streams == [OURS]
        assert x.astype("int64").cpu().tolist() == values.tolist()
    array = Array([1.0, 2.0])
    assert (wg.asarray(array) * 2.0).cpu().tolist() == [2.0, 4.0]
    assert wg.from_dlpack(array, device="cpu").tolist() == [1.0, 2.0]
    x = wg.from_dlpack(array, copy=True)
    x += 1.0
    assert wg.from_dlpack(array).tolist() == [1.0, 2.0]
    side = wg.cuda.Stream()
    with wg.cuda.stream(side):
        wg.from_dlpack(array)
    assert array.seen_streams[-1] == side.cuda_stream


def foreign_memory_is_kept_while_we_work_on_it() -> None:
    """Its library would reuse it at once: it is told when our work has been done, on every stream."""
    for side in (None, wg.cuda.Stream()):
        array = Array([1.0, 2.0, 3.0])
        with wg.cuda.stream(side):
            y = wg.from_dlpack(array) + 1.0
        gc.collect()
        assert array.drops == 0
        wg.cuda.synchronize()
        assert array.drops == 1
        assert y.cpu().tolist() == [2.0, 3.0, 4.0]
    arrays = [Array([float(k)] * 3) for k in range(5)]
    for array in arrays:  # item() waits as well
        assert wg.from_dlpack(array).sum().item() == 3 * array.source[0]
    assert sum(a.drops for a in arrays) >= 4


def exported_memory_is_kept_while_others_work_on_it() -> None:
    """A consumer that has dropped the memory may still have work under way that reads it."""
    for on_thread in (False, True):
        wg.cuda.synchronize()
        y = wg.tensor([1.0, 2.0, 3.0], device="cuda") * 2.0
        theirs = make_stream()
        taken = Taken(y.__dlpack__(stream=theirs, max_version=(1, 0)))
        got = read_later(taken.managed.array.data, LIKE, theirs)
        del y
        before = wg.cuda.memory_stats()["live_bytes"]
        if on_thread:
            thread = threading.Thread(target=taken.drop)
            thread.start()
            thread.join()
        else:
            taken.drop()
        assert wg.cuda.memory_stats()["live_bytes"] == before - 12
        others = [wg.full((3,), 7.0, device="cuda") for _ in range(20)]
        wg.cuda.current_stream().synchronize()
        wait(theirs)
        assert got.tolist() == [2.0, 4.0, 6.0], got
        del others


def blocks_come_back_after_a_wait() -> None:
    """Memory that was exported is used again, without a call of the user's, when the pool would grow otherwise."""
    wg.cuda.synchronize()
    big = (3 << 20,)
    for _ in range(3):
        Taken(wg.zeros(big, device="cuda").__dlpack__()).drop()
    requests = wg.cuda.memory_stats()["system_requests"]
    for _ in range(5):
        Taken(wg.zeros(big, device="cuda").__dlpack__()).drop()
    assert wg.cuda.memory_stats()["system_requests"] == requests


def shared_memory_is_written_in_place() -> None:
    array = Array([1.0, 2.0, 3.0])
    x = wg.from_dlpack(array)

    @wg.compile
    def double(t: Any) -> Any:
        t *= 2.0
        return wg.tanh(t) + t

    for _ in range(4):
        double(x)
    wg.cuda.synchronize()
    assert x.data_ptr == array.address
    assert x.tolist() == [16.0, 32.0, 48.0]
    y = wg.ones(3, device="cuda")
    taken = Taken(y.__dlpack__())
    y += 1.0
    y[1] = 5.0
    got = read_later(taken.managed.array.data, LIKE, OURS)
    wait(OURS)
    assert got.tolist() == [2.0, 5.0, 2.0]
    taken.drop()


def imported_memory_is_never_given_away() -> None:
    array = Array(np.arange(12).reshape(3, 4))
    f = wg.compile(lambda t: wg.tanh(t) * t + 1.0)
    for _ in range(4):
        f(wg.from_dlpack(array))
    x = wg.from_dlpack(array).requires_grad_()
    (x * x).sum().backward()
    wg.cuda.synchronize()
    assert wg.from_dlpack(array).tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert x.grad.cpu().tolist() == (2 * np.arange(12.0).reshape(3, 4)).tolist()


def a_budget_checks_imported_memory() -> None:
    """What is recomputed from foreign memory is compared with what was read: on the GPU, too."""
    x = wg.from_dlpack(Array(np.ones((64, 64)))).requires_grad_()
    with wg.memory_budget(mb=1):
        y = x
        for _ in range(3):
            y = wg.tanh(y * 1.01)
        y.sum().backward()
    assert x.grad.shape == (64, 64)


def by_the_cuda_array_interface() -> None:
    y = (wg.arange(6.0, device="cuda") + 1.0).reshape(2, 3)
    described = y.T.__cuda_array_interface__
    assert described == {
        "shape": (3, 2),
        "typestr": "<f4",
        "data": (y.data_ptr, False),
        "strides": (4, 12),
        "version": 3,
        "stream": OURS,
    }
    assert y.__cuda_array_interface__["strides"] is None
    assert not hasattr(wg.ones(3), "__cuda_array_interface__")
    raises(AttributeError, "DLPack", lambda: wg.ones(3, dtype="bfloat16", device="cuda").__cuda_array_interface__)
    array = Array([[1.0, 2.0], [3.0, 4.0]])
    x = wg.asarray(OlderArray(array))
    assert (x.device, x.data_ptr) == ("cuda:0", array.address)
    assert (x * 2.0).cpu().tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert wg.asarray(OlderArray(array, read_only=True)).data_ptr != array.address
    raises(ArgumentError, "read-only", lambda: wg.asarray(OlderArray(array, read_only=True), copy=False))
    raises(ArgumentError, "masked", lambda: wg.asarray(OlderArray(array, mask=array)))


def what_is_refused() -> None:
    x = wg.ones(3, device="cuda")
    for stream in (0, -2, "1"):
        raises(BufferError, "handle of a stream", lambda stream=stream: x.__dlpack__(stream=stream))
    raises(DeviceError, "this machine has 1 GPU", lambda: wg.from_dlpack(Foreign(LIKE, device=(2, 3))))
    raises(DeviceError, "cpu()", lambda: np.asarray(x))
    raises(BufferError, "move it", lambda: x.__dlpack__(dl_device=(1, 0), copy=False))
    host = Taken(x.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
    assert host.numpy("float32").tolist() == [1.0] * 3
    host.drop()
    grown = wg.broadcast_to(x, (2, 3)).__dlpack__()
    assert Taken(grown).managed.array.strides[:2] == [3, 1]
    assert wg.from_dlpack(Foreign(LIKE, device=(3, 0))).device == "cpu"  # page-locked memory


def main() -> None:
    the_consumer_waits_for_us()
    we_wait_for_the_producer()
    foreign_memory_is_kept_while_we_work_on_it()
    exported_memory_is_kept_while_others_work_on_it()
    blocks_come_back_after_a_wait()
    shared_memory_is_written_in_place()
    imported_memory_is_never_given_away()
    a_budget_checks_imported_memory()
    by_the_cuda_array_interface()
    what_is_refused()
    assert _core.cuda_counters(NUMBER)["kernels"] > 0


if __name__ == "__main__":
    main()
