"""Run by test_host.py, with two GPUs played by the CPU: each refuses the other's memory in its kernels."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import wengert as wg
from tests.cuda.emulated_gpu import raises
from tests.cuda.other_library import Array
from wengert.errors import DeviceError


def tensors_on_each() -> None:
    assert wg.cuda.device_count() == 2
    x = wg.ones(3, device="cuda:1")
    assert x.device == "cuda:1"
    assert (x + 1.0).device == "cuda:1"
    assert wg.zeros_like(x).device == "cuda:1"
    assert wg.ones(3, device="cuda").device == "cuda:0"
    assert x.cuda(0).device == "cuda:0"
    assert x.cuda().device == "cuda:0"
    raises(DeviceError, "this machine has 2 GPU(s)", lambda: wg.ones(3, device="cuda:2"))
    raises(DeviceError, "cuda:0 and cuda:1", lambda: wg.ones(3, device="cuda:0") + x)
    raises(DeviceError, "cuda:1", lambda: wg.compile(lambda a, b: a * b)(wg.ones(3, device="cuda:0"), x))


def copies_between_them() -> None:
    """In the order of both streams, whoever is waited for first."""
    a = np.arange(12.0).reshape(3, 4)
    x = wg.tensor(a, device="cuda:0") * 2.0  # is still to be computed
    y = x.to("cuda:1")
    assert (y + 1.0).cpu().tolist() == (2 * a + 1).tolist()
    x = wg.tensor(a, device="cuda:0") * 3.0
    y = x.T.to("cuda:1", "float32")
    x *= 0.0  # after the copy
    assert y.tolist() == (3 * a.T).tolist()
    assert y[::2].to("cuda:0").tolist() == (3 * a.T)[::2].tolist()
    assert wg.zeros(0, device="cuda:1").cuda(0).shape == (0,)
    sides = wg.cuda.Stream("cuda:0"), wg.cuda.Stream("cuda:1")
    with wg.cuda.stream(sides[0]), wg.cuda.stream(sides[1]):
        y = (wg.tensor(a, device="cuda:0") * 4.0).to("cuda:1")
        del x
        others = [wg.full((3, 4), 9.0, device="cuda:0") for _ in range(5)]
    wg.cuda.current_stream("cuda:1").wait_stream(sides[1])
    assert y.tolist() == (4 * a).tolist()
    del others


def gradients_between_them() -> None:
    x = wg.tensor([1.0, 2.0], device="cuda:0", requires_grad=True)
    (wg.tanh(x).to("cuda:1") * wg.tensor([3.0, 4.0], device="cuda:1")).sum().backward()
    assert x.grad.device == "cuda:0"
    np.testing.assert_allclose(x.grad.cpu().numpy(), np.array([3, 4]) * (1 - np.tanh([1.0, 2.0]) ** 2), rtol=1e-5)


def programs_on_each() -> None:
    """One compiled function, prepared on both; graphs, too."""

    @wg.compile
    def f(x: Any, w: Any) -> Any:
        for _ in range(6):
            x = wg.tanh(x @ w)
        return x

    g = wg.Generator(seed=0)
    x, w = wg.randn(3, 3, generator=g), wg.randn(3, 3, generator=g)
    for _ in range(3):
        for device in ("cuda:0", "cuda:1"):
            y = f(x.to(device), w.to(device))
            assert y.device == device
            np.testing.assert_allclose(y.cpu().numpy(), f(x, w).numpy(), rtol=1e-4, atol=1e-6)
    a = wg.randn(128, 256, generator=g)  # a product of the library
    for device in ("cuda:0", "cuda:1"):
        np.testing.assert_allclose(
            (a.to(device) @ a.to(device).T).cpu().numpy(), (a @ a.T).numpy(), rtol=1e-3, atol=1e-3
        )


def the_current_one() -> None:
    assert wg.cuda.current_device() == 0
    with wg.cuda.device(1):
        assert wg.cuda.current_device() == 1
        x = wg.ones(3, device="cuda")
        assert x.device == "cuda:1"
        assert wg.cuda.current_stream().device == "cuda:1"
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(wg.cuda.current_device()))
        thread.start()
        thread.join()
        assert seen == [0]
        with wg.cuda.device("cuda:0"):
            assert wg.ones(3, device="cuda").device == "cuda:0"
    assert wg.cuda.current_device() == 0
    with wg.cuda.stream(wg.cuda.Stream("cuda:1")):
        assert wg.ones(3, device="cuda").device == "cuda:1"
    wg.cuda.set_device(1)
    assert (wg.ones(3) + 0.0).cuda().device == "cuda:1"
    wg.cuda.set_device(0)
    raises(DeviceError, "this machine has 2 GPU(s)", lambda: wg.cuda.set_device(5))
    assert wg.cuda.current_device() == 0
    raises(DeviceError, "different GPUs", lambda: wg.cuda.Stream(0).wait_stream(wg.cuda.Stream(1)))
    event = wg.cuda.Stream(1).record_event()
    wg.cuda.Stream(0).wait_event(event)  # an event can be of another GPU


def memory_of_each() -> None:
    before = [wg.cuda.memory_stats(k)["live_bytes"] for k in (0, 1)]
    x = wg.zeros(1000, device="cuda:1")
    assert [wg.cuda.memory_stats(k)["live_bytes"] for k in (0, 1)] == [before[0], before[1] + 4000]
    taken = x.__dlpack_device__()
    assert taken == (2, 1)
    with wg.cuda.device(1):
        from wengert import _core

        _core.cuda_empty_pool(wg.cuda.device_number(1))
    del x
    wg.cuda.synchronize(1)


def pinned_memory_serves_both() -> None:
    x = wg.arange(5.0).pin_memory()
    moved = [x.to(device, non_blocking=True) for device in ("cuda:0", "cuda:1")]
    assert [y.tolist() for y in moved] == [[0.0, 1.0, 2.0, 3.0, 4.0]] * 2


def sharing_on_the_second() -> None:
    with wg.cuda.device(1):
        wg.ones(1, device="cuda")  # the emulated driver's current GPU
        array = Array([1.0, 2.0], ordinal=1)
    x = wg.from_dlpack(array)
    assert (x.device, x.data_ptr) == ("cuda:1", array.address)
    assert (x + 1.0).tolist() == [2.0, 3.0]


def main() -> None:
    tensors_on_each()
    copies_between_them()
    gradients_between_them()
    programs_on_each()
    the_current_one()
    memory_of_each()
    pinned_memory_serves_both()
    sharing_on_the_second()


if __name__ == "__main__":
    main()
