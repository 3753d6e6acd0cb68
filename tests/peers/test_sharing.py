"""Memory shared with PyTorch and JAX by DLPack, on the CPU, without copies and in every dtype."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import wengert as wg

torch = pytest.importorskip("torch")
DTYPES = ["bool", "int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64", "complex64"]


def test_libraries_that_are_imported_after_wengert():
    """PyTorch and scikit-learn each load an OpenMP of their own, whose thread-local variables need room."""
    program = "import wengert, torch, jax, sklearn"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_both_ways(dtype: str) -> None:
    t = torch.tensor([[0, 1, 1], [1, 0, 0]]).to(getattr(torch, dtype))
    for x in (wg.from_dlpack(t.T), wg.asarray(t.T)):
        assert (x.dtype, x.data_ptr) == (dtype, t.data_ptr())
        assert x.astype("complex64").tolist() == t.T.to(torch.complex64).tolist()
    back = torch.from_dlpack(wg.from_dlpack(t)[1:, ::2])
    assert back.dtype == t.dtype
    assert torch.equal(back, t[1:, ::2])
    back[0, 0] = 0
    assert not t[1, 0]
    y = wg.tensor([0, 1, 1], dtype=dtype)
    for capsule in (torch.utils.dlpack.to_dlpack(t), y.__dlpack__(), y.__dlpack__(max_version=(1, 0))):
        assert torch.utils.dlpack.from_dlpack(capsule).dtype == t.dtype


def test_writing_to_one_changes_the_other() -> None:
    t = torch.zeros(4)
    x = wg.from_dlpack(t)
    x += 2.0
    t[1] = 7.0
    assert x.tolist() == t.tolist() == [2.0, 7.0, 2.0, 2.0]
    y = wg.zeros(4)
    u = torch.from_dlpack(y)
    y += 2.0
    u.mul_(3)
    assert y.tolist() == u.tolist() == [6.0] * 4


def test_torch_tensors_with_gradients_are_refused_by_their_library() -> None:
    with pytest.raises(BufferError, match="require gradient"):
        wg.from_dlpack(torch.zeros(2, requires_grad=True))
    with pytest.raises(wg.errors.GradientError, match="detach"):
        torch.from_dlpack(wg.zeros(2, requires_grad=True) * 2.0)


def test_lifetimes_on_many_threads() -> None:
    """Consumers drop memory on threads that Python does not know, while others compute."""
    gc.collect()
    before = wg.memory_stats().live_bytes

    def churn() -> None:
        for k in range(200):
            u = torch.from_dlpack(wg.full((50,), float(k)))
            x = wg.from_dlpack(torch.full((50,), float(k)))
            assert (float(u.sum()), x.sum().item()) == (50.0 * k, 50.0 * k)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads
    gc.collect()
    assert wg.memory_stats().live_bytes <= before + 64


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("int64", "float64")])
def test_jax_both_ways(dtype: str) -> None:
    jax: Any = pytest.importorskip("jax")
    a = jax.numpy.asarray(np.array([[0, 1, 1], [1, 0, 0]])).astype(dtype)
    x = wg.from_dlpack(a)
    assert x.dtype == dtype
    assert x.astype("complex64").tolist() == a.astype("complex64").tolist()
    b = jax.dlpack.from_dlpack(wg.tensor([0, 1, 1], dtype=dtype))
    assert b.dtype == a.dtype
    assert b.astype("complex64").tolist() == [0, 1, 1]
