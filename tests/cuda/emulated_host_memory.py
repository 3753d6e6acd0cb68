"""Run by test_host.py, with a GPU played by the CPU that copies as late as it may: page-locked memory of the host."""

from __future__ import annotations

import gc
import threading

import numpy as np

import wengert as wg
from tests.cuda.emulated_gpu import raises
from tests.cuda.other_library import pinned
from tests.tensors.dlpack_capsules import Foreign
from wengert.errors import DeviceError, GradientError


def to_the_gpu_in_the_background() -> None:
    x = wg.tensor([1.0, 2.0, 3.0]).pin_memory()
    assert x.is_pinned()
    assert not wg.ones(3).is_pinned()
    assert x.pin_memory() is x
    y = x.to("cuda", non_blocking=True)
    seen = x.numpy()
    seen += 10.0  # too early, on purpose: the copy is still to come
    assert y.tolist() == [11.0, 12.0, 13.0]
    for move in (lambda t: t.to("cuda"), lambda t: t.cuda(), wg.Tensor.cuda):
        y = move(x)
        seen += 1.0  # it has waited
        assert y.tolist() == (seen - 1.0).tolist()
    y = wg.ones(3).to("cuda", non_blocking=True)  # not page-locked: the driver has its own copy
    assert y.tolist() == [1.0] * 3


def what_is_dropped_is_not_overwritten() -> None:
    """The source is gone before the copy begins, and others ask for memory of its size."""
    moved = [wg.full((100,), float(k)).pin_memory().to("cuda", non_blocking=True) for k in range(8)]
    others = [wg.full((100,), -1.0).pin_memory() for _ in range(8)]
    for k, y in enumerate(moved):
        assert set(y.tolist()) == {float(k)}
    del others, moved
    gc.collect()
    before = wg.cuda.memory_stats()["host_reserved_bytes"]
    for k in range(20):
        wg.full((100,), float(k)).pin_memory().cuda()
    assert wg.cuda.memory_stats()["host_reserved_bytes"] == before
    assert wg.cuda.memory_stats()["host_live_bytes"] == 0
    wg.cuda.empty_cache()
    assert wg.cuda.memory_stats()["host_reserved_bytes"] == 0


def to_the_cpu_in_the_background() -> None:
    y = wg.tensor([1.0, 2.0, 3.0], device="cuda") * 2.0
    for move in (lambda t: t.to("cpu", non_blocking=True), lambda t: t.cpu(non_blocking=True)):
        x = move(y)
        assert x.is_pinned()
        assert x.tolist() != [2.0, 4.0, 6.0]  # too early, on purpose
        done = wg.cuda.current_stream().record_event()
        done.synchronize()
        assert x.tolist() == [2.0, 4.0, 6.0]
    x = y.to("cpu")
    assert not x.is_pinned()
    assert x.tolist() == [2.0, 4.0, 6.0]
    x = y.cpu(non_blocking=True)
    del x  # before it has arrived
    others = [wg.zeros(3).pin_memory() for _ in range(5)]
    wg.cuda.synchronize()
    assert all(t.tolist() == [0.0] * 3 for t in others)


def every_layout() -> None:
    a = np.arange(24.0).reshape(4, 6)
    x = wg.tensor(a).pin_memory()
    for key in (np.s_[:, ::2], np.s_[::-1], np.s_[1:1], np.s_[2, 3], np.s_[None, :, 1]):
        y = x[key].to("cuda", non_blocking=True)
        back = y.to("cpu", non_blocking=True)
        wg.cuda.synchronize()
        assert back.tolist() == a[key].tolist()
    assert x.T.pin_memory().tolist() == a.T.tolist()
    assert wg.zeros(0).pin_memory().cuda().cpu(non_blocking=True).shape == (0,)
    y = wg.arange(6, dtype="int32", device="cuda").reshape(2, 3)
    z = y.T.to("cpu", "float64", non_blocking=True)
    wg.cuda.synchronize()
    assert z.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def page_locked_memory_of_others() -> None:
    a = pinned([1.0, 2.0, 3.0])
    for share in (wg.asarray, lambda t: wg.from_dlpack(Foreign(t, device=(3, 0)))):
        a[:] = [1.0, 2.0, 3.0]
        y = share(a).cuda()
        a[:] = -1.0
        assert y.tolist() == [1.0, 2.0, 3.0]


def gradients() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True).pin_memory()
    assert x.requires_grad
    (x.to("cuda", non_blocking=True) ** 2).sum().backward()
    assert x.grad.device == "cpu"
    assert x.grad.tolist() == [2.0, 4.0]
    raises(GradientError, "detach", lambda: (x * 2.0).pin_memory())


def loaders() -> None:
    data = (np.arange(10.0), np.arange(10))
    for options in ({}, {"prefetch": 2}, {"num_workers": 2, "workers": "thread"}):
        got = []
        for x, t in wg.data.DataLoader(data, batch_size=4, pin_memory=True, **options):
            assert x.is_pinned()
            assert t.is_pinned()
            got += (x.to("cuda", non_blocking=True) * 2.0).tolist()
        assert got == list(range(0, 20, 2))


def from_other_threads() -> None:
    def churn(k: int) -> None:
        for n in range(20):
            y = wg.full((50,), float(k + n)).pin_memory().to("cuda", non_blocking=True)
            assert set(y.tolist()) == {float(k + n)}

    threads = [threading.Thread(target=churn, args=(100 * k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def errors() -> None:
    raises(DeviceError, "only the CPU's memory", lambda: wg.ones(3, device="cuda").pin_memory())
    assert not wg.ones(3, device="cuda").is_pinned()


def main() -> None:
    to_the_gpu_in_the_background()
    what_is_dropped_is_not_overwritten()
    to_the_cpu_in_the_background()
    every_layout()
    page_locked_memory_of_others()
    gradients()
    loaders()
    from_other_threads()
    errors()


if __name__ == "__main__":
    main()
