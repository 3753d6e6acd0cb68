"""Run by test_host.py, with a GPU played by the CPU: ops that CuPy computes, played by NumPy, against the CPU."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import wengert as wg
from tests.cuda.emulated_gpu import raises
from tests.ops.sampling import cases, dtypes_of, make, outputs
from wengert import _core
from wengert.cuda.cupy_kernels import KERNELS
from wengert.errors import DeviceError, LinAlgError

TOLERANCE = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-9, "complex128": 1e-9}


def close(a: Any, b: Any, what: str) -> None:
    """a, on the GPU, is near b, on the CPU."""
    assert (a.device, a.dtype, tuple(a.shape)) == ("cuda:0", b.dtype, tuple(b.shape)), what
    x, y = a.detach().cpu().numpy(), b.detach().numpy()
    np.testing.assert_allclose(
        x, y, rtol=TOLERANCE.get(b.dtype.name, 0), atol=TOLERANCE.get(b.dtype.name, 0), err_msg=what
    )


def every_sample() -> None:
    """Values in every dtype, also of operands that do not lie packed."""
    seen = set()
    for parameter in cases(lambda op, s: op.name in KERNELS):
        op, sample = parameter.values
        for dtype in dtypes_of(sample):
            arrays = make(sample, dtype, op.name)
            here, there = ([wg.tensor(a, device=d) for a in arrays] for d in (None, "cuda"))
            if op.name in ("eig", "svd", "eigh"):  # vectors are unique but for their phase
                here_y, there_y = outputs(op, here, sample.attrs), outputs(op, there, sample.attrs)
                k = 1 if op.name == "svd" else 0
                order = np.sort if op.name == "eig" else np.asarray
                got, wanted = (order(t[k].cpu().numpy()) for t in (there_y, here_y))
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=op.name)
            elif op.name == "eigvals":
                got, wanted = (np.sort_complex(outputs(op, t, sample.attrs)[0].cpu().numpy()) for t in (there, here))
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
            else:
                for a, b in zip(outputs(op, there, sample.attrs), outputs(op, here, sample.attrs), strict=True):
                    close(a, b, f"{op.name} {sample.attrs} {dtype}")
        seen.add(op.name)
    assert seen == set(KERNELS)
    a = np.random.default_rng(0).normal(size=(2, 4, 4)) + 4 * np.eye(4)
    x, y = wg.tensor(a), wg.tensor(a, device="cuda")
    for view in (lambda t: t.mT, lambda t: t[:, ::-1], lambda t: t[1, 1:, :3]):
        close(wg.linalg.inv(view(y)), wg.linalg.inv(view(x)), "a view")


def errors_are_those_of_the_cpu() -> None:
    bad = np.zeros((2, 3, 3))
    bad[0] = np.eye(3)
    for f, a in (
        (wg.linalg.inv, np.zeros((3, 3))),
        (wg.linalg.inv, bad),
        (lambda t: wg.linalg.solve(t, t), bad),
        (wg.linalg.svdvals, np.full((3, 3), np.nan)),
        (wg.linalg.cholesky, -np.eye(3)),
        (lambda t: wg.linalg.eigh(t), np.full((2, 3, 3), np.inf)),
    ):
        messages = []
        for device in ("cpu", "cuda"):
            try:
                f(wg.tensor(a, device=device))
            except LinAlgError as error:
                messages.append(str(error))
        assert len(messages) == 2, (f, a)
        assert messages[0] == messages[1], messages


def derivatives() -> None:
    a = np.random.default_rng(1).normal(size=(3, 3)) + 3 * np.eye(3)
    b = np.random.default_rng(2).normal(size=(3, 2))
    for f in (
        lambda t: (wg.linalg.solve(t, wg.tensor(b, device=t.device)) ** 2).sum(),
        lambda t: wg.linalg.slogdet(t)[1],
        lambda t: (wg.fft.rfft(t).real ** 2).sum(),
        lambda t: (wg.linalg.svdvals(t) ** 3).sum(),
    ):
        here, there = wg.tensor(a), wg.tensor(a, device="cuda")
        close(wg.grad(f)(there), wg.grad(f)(here), "a gradient")


def in_compiled_programs() -> None:
    """Such a program runs step by step; the others stay graphs."""

    @wg.compile
    def f(x: Any, one: Any) -> Any:
        for _ in range(4):
            x = wg.tanh(x @ x)
        return wg.linalg.inv(x + 3.0 * one) @ x

    a = np.random.default_rng(3).normal(size=(3, 3)).astype("float32")
    expected = f(wg.tensor(a), wg.eye(3))
    for side in (None, None, None, wg.cuda.Stream()):
        with wg.cuda.stream(side):
            close(f(wg.tensor(a, device="cuda"), wg.eye(3, device="cuda")), expected, "a program")


def without_cupy() -> None:
    """What to install is said."""
    sys.modules["cupy"] = None  # type: ignore[assignment]
    from wengert.cuda import cupy_kernels

    cupy_kernels._module.cache_clear()
    raises(DeviceError, 'pip install "wengert[cupy]"', lambda: wg.linalg.inv(wg.eye(3, device="cuda")))
    raises(DeviceError, "inv: has no CUDA kernel of its own", lambda: wg.linalg.inv(wg.eye(3, device="cuda")))
    assert (wg.eye(3, device="cuda") + 1.0).sum().item() == 12.0


def main() -> None:
    assert not any(_core.cuda_has_kernel(name) for name in KERNELS)
    every_sample()
    errors_are_those_of_the_cpu()
    derivatives()
    in_compiled_programs()
    without_cupy()


if __name__ == "__main__":
    main()
