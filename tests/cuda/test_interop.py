"""Memory shared on a GPU with PyTorch, CuPy and JAX, and work in order with theirs. Skipped where one of them is missing."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest

import wengert as wg

if not wg.cuda.is_available():
    pytest.skip("there is no GPU on this machine", allow_module_level=True)

BIG = 1 << 24  # long enough that a missing wait shows
DTYPES = ["bool", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64", "complex64"]


@pytest.fixture(scope="module")
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return found


@pytest.fixture(scope="module")
def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture(scope="module")
def jax() -> Any:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it would take most of the GPU's memory
    found = pytest.importorskip("jax")
    if found.default_backend() != "gpu":
        pytest.skip("this JAX has no CUDA")
    return found


def cuda_memory_is_the_same(x: wg.Tensor, address: int) -> None:
    assert (x.device, x.data_ptr) == ("cuda:0", address)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_every_dtype(torch: Any, dtype: str) -> None:
    t = torch.tensor([[0, 1, 1], [1, 0, 0]], device="cuda").to(getattr(torch, dtype))
    x = wg.from_dlpack(t.T)
    cuda_memory_is_the_same(x, t.data_ptr())
    assert x.dtype == dtype
    assert x.astype("complex64").cpu().tolist() == t.T.to(torch.complex64).tolist()
    y = wg.tensor([0, 1, 1], dtype=dtype, device="cuda")
    u = torch.from_dlpack(y)
    assert (u.data_ptr(), u.dtype, str(u.device)) == (y.data_ptr, t.dtype, "cuda:0")
    assert u.to(torch.complex64).tolist() == [0, 1, 1]


def test_torch_is_in_order(torch: Any) -> None:
    """Each side reads what the other has queued, and not before it is there, also on streams beside the default one."""
    for theirs in (torch.cuda.default_stream(), torch.cuda.Stream()):
        for ours in (None, wg.cuda.Stream()):
            for k in range(5):
                with torch.cuda.stream(theirs), wg.cuda.stream(ours):
                    t = torch.zeros(BIG, device="cuda")
                    for _ in range(10):
                        t += 1
                    x = wg.from_dlpack(t)
                    for _ in range(10):
                        x = x + 1.0
                    u = torch.from_dlpack(x)
                    u = u * 2 + k
                    assert (u.min().item(), u.max().item()) == (40 + k, 40 + k)


def test_torch_memory_is_kept_while_in_use(torch: Any) -> None:
    """Freed on one side while the other still reads it; both allocators hand blocks out at once."""
    side = wg.cuda.Stream()
    for k in range(20):
        t = torch.full((BIG,), float(k), device="cuda")
        with wg.cuda.stream(side):
            x = wg.from_dlpack(t)
            y = x
            for _ in range(8):
                y = y + 1.0
        del t, x
        u = torch.full((BIG,), -1.0, device="cuda")
        side.synchronize()
        assert (y.min().item(), y.max().item()) == (k + 8, k + 8)
        del u
        theirs = torch.cuda.Stream()
        z = wg.full((BIG,), float(k), device="cuda")
        with torch.cuda.stream(theirs):
            v = torch.from_dlpack(z)
            w = v
            for _ in range(8):
                w = w + 1
        del z, v
        gc.collect()
        others = [wg.full((BIG,), -1.0, device="cuda") for _ in range(3)]
        theirs.synchronize()
        assert (w.min().item(), w.max().item()) == (k + 8, k + 8)
        del others


def test_the_stream_of_torch(torch: Any) -> None:
    theirs = torch.cuda.Stream()
    with torch.cuda.stream(theirs), wg.cuda.stream(theirs):
        assert wg.cuda.current_stream().cuda_stream == theirs.cuda_stream
        t = torch.zeros(BIG, device="cuda")
        x = wg.from_dlpack(t)
        for _ in range(5):
            t += 1
            x += 1.0
        assert t.sum().item() == 10 * BIG
    start, end = wg.cuda.Event(enable_timing=True), wg.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(10):
        x = x + 1.0
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0.01


def test_training_on_torch_memory(torch: Any) -> None:
    t = torch.randn(64, 64, device="cuda")
    w = torch.randn(64, 8, device="cuda", requires_grad=True)
    (torch.tanh(t @ w) ** 2).sum().backward()
    v = wg.from_dlpack(w.detach()).requires_grad_()
    (wg.tanh(wg.from_dlpack(t) @ v) ** 2).sum().backward()
    np.testing.assert_allclose(v.grad.cpu().numpy(), w.grad.cpu().numpy(), rtol=1e-3, atol=1e-4)


def test_pinned_memory_of_torch(torch: Any) -> None:
    """A copy from page-locked memory is read later: ours waits, unless it is told not to."""
    t = torch.empty(BIG, pin_memory=True)
    for k in range(5):
        t.fill_(float(k))
        x = wg.from_dlpack(t).cuda()
        t.fill_(-1.0)
        assert (x.min().item(), x.max().item()) == (k, k)
        y = wg.asarray(t.numpy()).cuda()
        t.fill_(-2.0)
        assert y.max().item() == -1.0


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_cupy_both_ways(cupy: Any, dtype: str) -> None:
    a = cupy.asarray(np.array([[0, 1, 1], [1, 0, 0]])).astype(dtype)
    for x in (wg.from_dlpack(a.T), wg.asarray(a.T)):
        cuda_memory_is_the_same(x, a.data.ptr)
        assert x.cpu().tolist() == a.T.get().tolist()
    y = wg.tensor([[0, 1, 1], [1, 0, 0]], dtype=dtype, device="cuda")
    for b in (cupy.from_dlpack(y), cupy.asarray(y), cupy.asarray(y.T).T):
        assert (b.data.ptr, b.dtype, b.get().tolist()) == (y.data_ptr, dtype, y.cpu().tolist())


def test_cupy_is_in_order(cupy: Any) -> None:
    for theirs in (cupy.cuda.Stream.null, cupy.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)):
        for k in range(5):
            with theirs:
                a = cupy.zeros(BIG, "float32")
                for _ in range(10):
                    a += 1
                x = wg.asarray(a)
                for _ in range(10):
                    x = x + 1.0
                b = cupy.asarray(x) * 2 + k
                assert (float(b.min()), float(b.max())) == (40 + k, 40 + k)

    class Older:
        """Without DLPack."""

        def __init__(self, array: Any) -> None:
            self.__cuda_array_interface__ = array.__cuda_array_interface__
            self.array = array

    a = cupy.arange(6, dtype="float32").reshape(2, 3)
    x = wg.asarray(Older(a.T))
    cuda_memory_is_the_same(x, a.data.ptr)
    assert x.cpu().tolist() == a.T.get().tolist()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("int64", "float64")])
def test_jax_both_ways(jax: Any, dtype: str) -> None:
    a = jax.numpy.asarray(np.array([[0, 1, 1], [1, 0, 0]])).astype(dtype)
    x = wg.from_dlpack(a)
    assert (x.device, x.dtype) == ("cuda:0", dtype)
    assert x.astype("complex64").cpu().tolist() == a.astype("complex64").tolist()
    b = jax.dlpack.from_dlpack(wg.tensor([0, 1, 1], dtype=dtype, device="cuda"))
    assert b.dtype == a.dtype
    assert b.astype("complex64").tolist() == [0, 1, 1]


def test_jax_is_in_order(jax: Any) -> None:
    for k in range(5):
        a = jax.numpy.zeros(BIG, "float32")
        for _ in range(10):
            a = a + 1
        x = wg.from_dlpack(a)
        for _ in range(10):
            x = x + 1.0
        b = jax.dlpack.from_dlpack(x) * 2 + k
        assert (float(b.min()), float(b.max())) == (40 + k, 40 + k)
