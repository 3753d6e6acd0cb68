"""Run by test_host.py, with a GPU played by the CPU that does nothing before somebody waits: streams and events."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import wengert as wg
from tests.cuda.emulated_gpu import raises
from tests.cuda.other_library import make_stream, read_later, wait
from wengert import _core
from wengert.errors import ArgumentError, DeviceError

NUMBER = wg.cuda.device_number(0)
LIKE = np.zeros(3, np.float32)


def peek(x: wg.Tensor) -> list[float]:
    """What is in its memory now; the emulated GPU's is the host's."""
    stream = make_stream()
    got = read_later(x.data_ptr, LIKE, stream)
    wait(stream)
    return [float(v) for v in got]


def chain(x: Any, w: Any) -> Any:
    """Enough launches for a graph."""
    for _ in range(6):
        x = wg.tanh(x @ w)
    return x


def streams_run_beside_each_other() -> None:
    side = wg.cuda.Stream()
    x = wg.tensor([1.0, 2.0, 3.0], device="cuda")
    side.wait_stream(wg.cuda.current_stream())
    with wg.cuda.stream(side):
        assert wg.cuda.current_stream() == side
        y = x + 1.0
    assert wg.cuda.current_stream() == wg.cuda.default_stream() != side
    assert not side.query()
    wg.cuda.current_stream().synchronize()
    assert peek(y) != [2.0, 3.0, 4.0]  # nobody has waited for the side
    wg.cuda.current_stream().wait_stream(side)
    assert (y * 2.0).tolist() == [4.0, 6.0, 8.0]
    side.synchronize()
    assert side.query()


def events_order_and_take_times() -> None:
    start, end, untimed = wg.cuda.Event(enable_timing=True), wg.cuda.Event(enable_timing=True), wg.cuda.Event()
    assert start.query()
    raises(ArgumentError, "recorded", lambda: start.elapsed_time(end))
    side = wg.cuda.Stream()
    with wg.cuda.stream(side):
        start.record()
        x = wg.full((3,), 4.0, device="cuda")
        end.record()
        untimed.record()
    raises(ValueError, "done", lambda: start.elapsed_time(end))
    side.wait_event(wg.cuda.Event())  # never recorded: nothing to wait for
    wg.cuda.current_stream().wait_event(end)
    assert (x + 1.0).tolist() == [5.0] * 3
    untimed.synchronize()
    assert end.query()
    assert start.elapsed_time(end) > 0
    raises(ValueError, "enable_timing", lambda: start.elapsed_time(untimed))
    assert wg.cuda.current_stream().record_event().cuda_event != 0


def memory_used_elsewhere_is_not_overwritten() -> None:
    """A tensor that was dropped while another stream still reads it: its block is not written before."""
    one = wg.eye(3, device="cuda")
    for kind in ("op", "group", "copy", "graph"):
        side = wg.cuda.Stream()
        f = wg.compile({"graph": lambda t: chain(t[None, :], one)[0]}.get(kind, lambda t: wg.tanh(t) + t))
        for _ in range(3):
            with wg.cuda.stream(side):
                f(wg.full((3,), 0.5, device="cuda"))
        graphs = _core.cuda_counters(NUMBER)["graphs"]
        wg.cuda.synchronize()
        x = wg.full((3,), 0.25, device="cuda") * 2.0
        side.wait_stream(wg.cuda.current_stream())
        with wg.cuda.stream(side):
            y = {"op": lambda t: t + 1.0, "copy": wg.Tensor.clone}.get(kind, f)(x)
        del x
        others = [wg.full((3,), 7.0 + k, device="cuda") for k in range(20)]
        wg.cuda.current_stream().synchronize()
        wg.cuda.current_stream().wait_stream(side)
        assert _core.cuda_counters(NUMBER)["graphs"] == graphs + (kind == "graph")
        t = repeated = 0.5
        for _ in range(6):
            repeated = np.tanh(repeated)
        expected = {"op": 1.5, "copy": 0.5, "group": np.tanh(t) + t, "graph": repeated}[kind]
        np.testing.assert_allclose(y.cpu().numpy(), expected, rtol=1e-6, err_msg=kind)
        del others


def blocks_return_to_their_stream() -> None:
    side = wg.cuda.Stream()
    with wg.cuda.stream(side):
        first = wg.full((1000,), 1.0, device="cuda")
        address = first.data_ptr
        del first
        again = wg.full((1000,), 2.0, device="cuda")
        assert again.data_ptr == address  # one stream alone: used again at once
        del again
    other = wg.full((1000,), 3.0, device="cuda")
    assert other.data_ptr != address
    with wg.cuda.stream(side):
        assert wg.full((1000,), 2.0, device="cuda").data_ptr == address


def memory_does_not_grow() -> None:
    """A prefetching loop: batches are made on one stream and used on another."""
    side = wg.cuda.Stream()
    w = wg.ones(256, 256, device="cuda")
    reserved = []
    for _ in range(30):
        with wg.cuda.stream(side):
            batch = wg.full((256, 256), 2.0, device="cuda")
        wg.cuda.current_stream().wait_stream(side)
        w = w * 0.5 + batch
        wg.cuda.current_stream().synchronize()
        reserved.append(wg.cuda.memory_stats()["reserved_bytes"])
    assert reserved[-1] == reserved[5]
    np.testing.assert_allclose(w[0, 0].item(), 4.0, rtol=1e-5)


def every_thread_has_its_own() -> None:
    side, seen = wg.cuda.Stream(), []
    with wg.cuda.stream(side):
        thread = threading.Thread(target=lambda: seen.append(wg.cuda.current_stream()))
        thread.start()
        thread.join()
        assert wg.cuda.current_stream() == side
    assert seen == [wg.cuda.default_stream()]


def graphs_go_to_the_current_stream() -> None:
    """Each stream has its own, so that two of them can run at once; the results are the same."""
    w = wg.randn(3, 3, device="cuda", generator=wg.Generator(seed=0))

    @wg.compile
    def step(x: Any) -> Any:
        return chain(x, w), (x * 2.0).sum(axis=0)

    x = wg.ones(3, 3, device="cuda")
    expected = [t.tolist() for t in step(x)]
    sides = [wg.cuda.Stream(), wg.cuda.Stream()]
    for _ in range(4):
        made = []
        for side in sides:
            side.wait_stream(wg.cuda.current_stream())
            with wg.cuda.stream(side):
                made.append(step(x))
        for side, results in zip(reversed(sides), reversed(made), strict=True):
            with wg.cuda.stream(side):
                assert [t.tolist() for t in results] == expected
    before = _core.cuda_counters(NUMBER)["graphs"]
    with wg.cuda.stream(sides[0]):
        step(x)
    assert _core.cuda_counters(NUMBER)["graphs"] == before + 1


def large_products_do_not_share_a_workspace() -> None:
    a = wg.randn(128, 256, device="cuda", generator=wg.Generator(seed=1))
    expected = (a @ a.T).tolist()
    side = wg.cuda.Stream()
    side.wait_stream(wg.cuda.current_stream())
    with wg.cuda.stream(side):
        assert (a @ a.T).tolist() == expected


def backward_on_another_stream() -> None:
    side = wg.cuda.Stream()
    w = wg.ones(3, device="cuda", requires_grad=True)
    side.wait_stream(wg.cuda.current_stream())
    with wg.cuda.stream(side):
        loss = (wg.tanh(w) * 2.0).sum()
        loss.backward()
    wg.cuda.current_stream().wait_stream(side)
    np.testing.assert_allclose(w.grad.cpu().numpy(), 2 * (1 - np.tanh(1.0) ** 2), rtol=1e-5)


def streams_of_others_and_errors() -> None:
    handle = make_stream()
    external = wg.cuda.ExternalStream(handle)

    class Theirs:
        cuda_stream = handle

    with wg.cuda.stream(Theirs()):
        assert wg.cuda.current_stream() == external
        x = wg.full((3,), 2.0, device="cuda")
    wait(handle)
    assert x.tolist() == [2.0] * 3
    with wg.cuda.stream(None):
        assert wg.cuda.current_stream() == wg.cuda.default_stream()
    raises(ArgumentError, "expected a stream", lambda: wg.cuda.stream(3).__enter__())
    raises(DeviceError, "expected a GPU", lambda: wg.cuda.Stream("cpu"))
    try:
        with wg.cuda.stream(external):
            raise KeyError
    except KeyError:
        assert wg.cuda.current_stream() == wg.cuda.default_stream()
    assert "cuda:0" in repr(external)
    assert len({external, wg.cuda.ExternalStream(handle), wg.cuda.default_stream()}) == 2
    kept = wg.cuda.Stream().cuda_stream
    assert wg.cuda.Stream().cuda_stream == kept  # handed out again


def waiting_lets_other_threads_run() -> None:
    wg.cuda.synchronize()
    wg.cuda.Event().synchronize()
    with wg.cuda.stream(wg.cuda.Stream()):
        wg.full((3,), 2.0, device="cuda")
        wg.cuda.current_stream().record_event().synchronize()


def main() -> None:
    streams_run_beside_each_other()
    events_order_and_take_times()
    memory_used_elsewhere_is_not_overwritten()
    blocks_return_to_their_stream()
    memory_does_not_grow()
    every_thread_has_its_own()
    graphs_go_to_the_current_stream()
    large_products_do_not_share_a_workspace()
    backward_on_another_stream()
    streams_of_others_and_errors()
    waiting_lets_other_threads_run()


if __name__ == "__main__":
    main()
