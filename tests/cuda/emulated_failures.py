"""Run by test_host.py, with a GPU played by the CPU that lacks something: what is said, and that the rest works."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

import wengert as wg
from tests.cuda.emulated_gpu import raises
from wengert.errors import DeviceError


def old_driver() -> None:
    assert not wg.cuda.is_available()
    assert wg.cuda.device_count() == 0
    for f in (wg.cuda.require, lambda: wg.ones(3, device="cuda"), lambda: wg.ones(3).cuda(), wg.cuda.current_stream):
        raises(DeviceError, "the driver is for CUDA 11.8, which is too old; CUDA 12.0 or later is needed", f)
    raises(DeviceError, "update the driver", lambda: wg.ones(3).pin_memory())
    assert wg.ones(3).sum().item() == 3.0


def no_gpu() -> None:
    assert not wg.cuda.is_available()
    raises(DeviceError, "finds no GPU", lambda: wg.ones(3, device="cuda"))


def no_compiler() -> None:
    assert wg.cuda.is_available()
    message = 'there is no libnvrtc (NVIDIA\'s run-time compiler); install it with pip install "wengert[cuda]"'
    raises(DeviceError, message, lambda: wg.ones(3, device="cuda") + 1.0)
    assert wg.tensor([1.0, 2.0]).cuda().cpu().tolist() == [1.0, 2.0]  # copies need none


def no_products() -> None:
    a = wg.ones(128, 256, device="cuda")
    message = 'there is no libcublasLt (NVIDIA\'s matrix products); install it with pip install "wengert[cuda]"'
    raises(DeviceError, message, lambda: a @ a.T)
    assert (a + 1.0).sum().item() == 2.0 * 128 * 256


def out_of_memory() -> None:
    """The emulated GPU has 64 MB. The message says who has it, and everything works afterwards."""
    kept = wg.empty(1 << 22, device="cuda")  # 16 MB
    w = wg.ones(1000, device="cuda", requires_grad=True)
    y = wg.tanh(w) * 2.0
    for ask in (lambda: wg.empty(1 << 24, device="cuda"), lambda: wg.zeros(1 << 20, 1 << 20, device="cuda")):
        try:
            ask()
        except MemoryError as error:
            text = str(error)
        else:
            raise AssertionError("there was room")
        for part in (
            "out of memory",
            "cuda:0",
            "free",
            "live tensors are unharmed",
            "saved for backward",
            "emulated_failures.py",
        ):
            assert part in text, text
    y.sum().backward()
    assert w.grad.shape == w.shape
    for k in range(10):  # what is cached in other sizes is given back
        several = [wg.empty((1 << 21) + (k << 17) + n, device="cuda") for n in range(2)]
        del several
    assert kept.shape == (1 << 22,)
    assert (w.detach() + 1.0).sum().item() == 2000.0


def after_a_fork() -> None:
    x = wg.ones(3, device="cuda")
    side, event = wg.cuda.Stream(), wg.cuda.current_stream().record_event()
    pinned = wg.ones(3).pin_memory()
    child = os.fork()
    if child == 0:
        told = 0
        for f in (
            lambda: x + 1.0,
            wg.cuda.synchronize,
            lambda: wg.ones(3).cuda(),
            side.synchronize,
            lambda: wg.ones(3).pin_memory(),
            lambda: x.__dlpack__(),
        ):
            try:
                f()
            except DeviceError as error:
                told += "spawn" in str(error)
        del pinned, event, side
        os._exit(0 if told == 6 else 10 + told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (x + 1.0).tolist() == [2.0] * 3


def kernel_fails() -> None:
    """The kernel of tanh fails. Whoever waits next says so; where ops are waited for, it is named, with its line."""
    x = wg.ones(3, device="cuda") + 1.0
    assert x.tolist() == [2.0] * 3
    if sys.argv[2:] == ["waited for"]:
        with wg.detect_anomaly():
            try:
                wg.tanh(x)
            except DeviceError as error:
                told = traceback.extract_tb(error.__traceback__)[0].line
                assert "tanh: its kernel failed on cuda:0" in str(error), error
                assert told == "wg.tanh(x)", told
            else:
                raise AssertionError("nothing was said")
        return
    y = wg.tanh(x)
    raises(DeviceError, "with wg.cuda.set_blocking(True)", y.tolist)
    raises(DeviceError, "EMULATED_ERROR", lambda: x + 1.0)
    assert (wg.ones(3) + 1.0).tolist() == [2.0] * 3  # the CPU is not concerned


CASES: dict[str, Callable[[], None]] = {
    f.__name__: f for f in (old_driver, no_gpu, no_compiler, no_products, out_of_memory, after_a_fork, kernel_fails)
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
