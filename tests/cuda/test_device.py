"""On a GPU: every op against the CPU, in all modes; programs, training, errors. Skipped where there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.ops.sampling import cases, dtypes_of, make, outputs
from wengert import _core
from wengert.cuda.cupy_kernels import KERNELS
from wengert.errors import DeviceError, IndexRangeError
from wengert.registry.record import Op
from wengert.registry.samples import Sample

if not wg.cuda.is_available():
    pytest.skip("there is no GPU on this machine", allow_module_level=True)

# Sums in another order, and NVIDIA's functions instead of the C library's: relative to the largest element.
TOLERANCE = {
    "float64": 1e-11,
    "float32": 2e-5,
    "float16": 5e-3,
    "bfloat16": 4e-2,
    "complex64": 2e-5,
    "complex128": 1e-11,
}


def close(a: wg.Tensor, b: wg.Tensor, what: str = "") -> None:
    """a, on the GPU, is near b, on the CPU; equal where they are no floating numbers."""
    assert a.device == "cuda:0"
    assert (a.dtype, tuple(a.shape)) == (b.dtype, tuple(b.shape))
    if not b.dtype.is_inexact:
        np.testing.assert_array_equal(a.detach().cpu().numpy(), b.detach().numpy())
        return
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    x, y = (np.asarray(t.detach().cpu().numpy()).astype(wide) for t in (a, b))
    finite = np.isfinite(y)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y), err_msg=what)
    scale = max(1.0, np.abs(y[finite]).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        wrong = (x != y) & ~(np.isnan(x) & np.isnan(y)) & ~(np.abs(x - y) <= TOLERANCE[b.dtype.name] * scale)
    assert not wrong.any(), f"{what}: {x[wrong][:3]} instead of {y[wrong][:3]} ({wrong.sum()} of {wrong.size})"


def why_not(op: Op) -> str:
    """Why an op has no kernel here, or nothing."""
    if op.elementwise:
        return ""
    if op.name in KERNELS:
        return "" if importlib.util.find_spec("cupy") else "CuPy is not installed"
    viewed = op.name in ("permute", "broadcast_to", "slice", "stop_gradient", "to_device", "size_scalar")
    return "" if viewed or _core.cuda_has_kernel(op.name) else "it has none"


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, s: op.name != "to_device"))
def test_every_op(op: Op, sample: Sample) -> None:
    """Values in every dtype, first and second derivatives in float64."""
    if why_not(op):
        return refused(op, sample)
    for dtype in dtypes_of(sample):
        arrays = make(sample, dtype, op.name)
        here, there = ([wg.tensor(a, device=d) for a in arrays] for d in (None, "cuda"))
        for a, b in zip(run(op, there, sample), outputs(op, here, sample.attrs), strict=True):
            if arrays and sample.phases:  # vectors are defined up to signs and phases
                close(abs(a), abs(b), f"{op.name} {dtype}")
            elif arrays:
                close(a, b, f"{op.name} {dtype}")
    if op.differentiable and sample.gradients and not sample.phases:
        derivatives(op, sample)
    return None


def run(op: Op, tensors: Any, sample: Sample) -> Any:
    before = _core.set_placement(0 if tensors else wg.cuda.device_number(0))
    try:
        return outputs(op, tensors, sample.attrs)
    finally:
        _core.set_placement(before)


def refused(op: Op, sample: Sample) -> None:
    arrays = make(sample, "float64", op.name)
    if not any(a.size for a in arrays):
        return
    with pytest.raises(DeviceError, match=f"^{op.name}: has no CUDA kernel"):
        run(op, [wg.tensor(a, device="cuda") for a in arrays], sample)


def derivatives(op: Op, sample: Sample) -> None:
    found = []
    for device in (None, "cuda"):
        tensors = [wg.tensor(a, device=device) for a in make(sample, "float64", op.name)]
        sources = [t.requires_grad_() for t in tensors if t.dtype.is_inexact]
        try:
            ys = [y for y in outputs(op, tensors, sample.attrs) if y.requires_grad]
            if not sources or not ys:
                return
            total = sum((wg.real(y) if y.dtype.kind == "c" else y).sum() for y in ys)
            first = wg.grad_of(total, sources, allow_unused=True, create_graph=True)
            linear = [g for g in first if g is not None and g.requires_grad]
            second = []
            if linear and sample.second:
                again = sum((wg.real(g) if g.dtype.kind == "c" else g).sum() for g in linear)
                second = wg.grad_of(again, sources, allow_unused=True)
        except DeviceError as error:
            assert device == "cuda"
            assert "has no CUDA kernel" in str(error)
            return
        except wg.errors.GradientError:
            return
        found.append([*first, *second])
    for b, a in zip(*found, strict=True):
        if b is not None:
            close(a, b, f"derivative of {op.name}")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
def test_draws_are_those_of_the_cpu(dtype: str) -> None:
    for draw in (wg.randn, wg.rand)[: 1 if dtype == "complex64" else 2]:
        a, b = (draw(1001, dtype=dtype, device=d, generator=wg.Generator(seed=3)) for d in ("cuda", None))
        close(a, b)
    ints = [wg.randint(-5, 1000, (999,), device=d, generator=wg.Generator(seed=3)) for d in ("cuda", None)]
    close(*ints)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_draws_with_parameters_are_those_of_the_cpu(dtype: str) -> None:
    """But for the last digits of gamma and von Mises draws, whose logarithms are NVIDIA's."""
    shape = wg.exp(wg.randn(2000, dtype="float64", generator=wg.Generator(seed=1)) * 2.0)
    chance = wg.rand(2000, dtype="float64", generator=wg.Generator(seed=2))
    for draw, operands in (
        (wg.random.gamma, (shape,)),
        (wg.random.poisson, (shape * 10.0,)),
        (wg.random.binomial, (wg.floor(shape * 20.0), chance)),
        (wg.random.beta, (shape + 0.1, shape + 0.5)),
    ):
        made = [
            draw(*(x.astype(dtype).to(d) for x in operands), generator=wg.Generator(seed=3)) for d in ("cuda", "cpu")
        ]
        close(*made, draw.__name__)


def f(x: Any) -> Any:
    return (wg.exp(0.3 * x) * wg.sin(x) / (1 + x * x)).sum()


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: wg.grad(f),
        lambda f: lambda x: wg.jvp(f, (x,), (x + 1,))[1],
        lambda f: lambda x: wg.jvp(lambda z: wg.jvp(f, (z,), (z,))[1], (x,), (x,))[1],
        lambda f: lambda x: wg.hvp(f, x, x),
        lambda f: wg.hessian(f),
        lambda f: lambda x: wg.vmap(wg.grad(f))(wg.stack([x, 2 * x])),
        lambda f: wg.compile(wg.grad(f)),
    ],
)
def test_every_mode(transform: Callable[..., Any]) -> None:
    x = wg.randn(3, 4, dtype="float64", generator=wg.Generator(seed=0))
    close(transform(f)(x.to("cuda")), transform(f)(x))


@pytest.mark.parametrize("shape", [(5, 7, 3), (64, 64, 64), (128, 784, 256), (300, 500, 200), (1, 1000, 1), (4, 0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int64"])
def test_products(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    g = wg.Generator(seed=1)
    a, b = wg.randn(m, k, dtype="float32", generator=g), wg.randn(n, k, dtype="float32", generator=g)
    a, b = ((10 * t).astype(dtype) if dtype == "int64" else t.astype(dtype) for t in (a, b))
    close(a.to("cuda") @ b.to("cuda").T, a @ b.T)
    if m > 1:
        close((a.to("cuda")[::2] @ b.to("cuda").T[:, 1:]), a[::2] @ b.T[:, 1:])
    batched = wg.stack([a, 2 * a]).to("cuda") @ b.T.to("cuda")
    close(batched, wg.stack([a @ b.T, 2 * a @ b.T]))


@pytest.mark.parametrize("cols", [1, 3, 10, 33, 500, 1024, 5000, 20000])
def test_rows(cols: int) -> None:
    x = wg.randn(6, cols, generator=wg.Generator(seed=2))
    for op in (
        lambda t: wg.softmax(t, axis=-1),
        lambda t: wg.log_softmax(t, axis=-1),
        lambda t: (
            wg.nn.functional.layer_norm(t, (cols,)) if hasattr(wg.nn, "functional") else wg.layer_norm(t, (cols,))
        ),
        lambda t: wg.logsumexp(t, axis=-1),
        lambda t: wg.cross_entropy(t, wg.arange(6, device=t.device) % cols, label_smoothing=0.1),
        lambda t: wg.grad(lambda z: wg.cross_entropy(z, wg.arange(6, device=t.device) % cols))(t),
        lambda t: wg.jvp(lambda z: wg.cross_entropy(z, wg.arange(6, device=t.device) % cols), (t,), (t * t,))[1],
        lambda t: wg.grad(lambda z: (wg.softmax(z, axis=-1) ** 2).sum())(t),
        lambda t: wg.compile(lambda z: (z - z.mean(axis=-1, keepdims=True)) / z.std(axis=-1, keepdims=True))(t),
    ):
        if cols == 1 and op(x).isnan().any():
            continue
        close(op(x.to("cuda")), op(x))


def test_sums_repeat_to_the_bit() -> None:
    x = wg.randn(1 << 20, device="cuda")
    i = wg.randint(0, 50, (5000,), device="cuda")
    v = wg.randn(5000, device="cuda")
    sums = {x.sum().item() for _ in range(5)}
    scattered = {tuple(wg.zeros(50, device="cuda").at[i].add(v).tolist()) for _ in range(5)}
    assert len(sums) == len(scattered) == 1


def test_indexing_and_writing() -> None:
    x = wg.arange(24.0).reshape(2, 3, 4)
    y = x.to("cuda")
    for key in (0, (slice(None), 1), [1, 0], (slice(None), [2, 0]), ([0, 1], slice(None), [3, 0]), x.numpy() > 5):
        close(y[key], x[key])
    for t in (x, y):
        t[0, 1] = 7.0
        t += 1
        t[:, 2] *= 3
        t[t < 4] = 0.5
        t[[0, 1], [1, 0]] = 9
    close(y, x)


def test_a_bad_index_is_raised_when_the_host_waits() -> None:
    y = wg.arange(5.0, device="cuda")[wg.tensor([1, 7], device="cuda")]
    with pytest.raises(IndexRangeError, match="take: the index 7 is out of range"):
        y.tolist()
    assert wg.arange(3.0, device="cuda").tolist() == [0.0, 1.0, 2.0]


def train(device: str, compiled: bool, steps: int = 20) -> tuple[list[float], Any]:
    wg.manual_seed(0)
    net = wg.nn.Sequential(wg.nn.Linear(64, 64), wg.nn.ReLU(), wg.nn.Linear(64, 64), wg.nn.ReLU(), wg.nn.Linear(64, 10))
    net.to(device)
    g = wg.Generator(seed=5)
    x, t = wg.randn(32, 64, generator=g).to(device), wg.randint(0, 10, (32,), generator=g).to(device)
    adam = wg.optim.Adam(net.parameters(), lr=1e-3)

    def step(x: Any, t: Any) -> Any:
        adam.zero_grad()
        loss = wg.cross_entropy(net(x), t)
        loss.backward()
        adam.step()
        return loss

    run_step = wg.compile(step) if compiled else step
    losses = [run_step(x, t).item() for _ in range(steps)]
    return losses, net[0].weight.detach().cpu().numpy()


@pytest.mark.parametrize("compiled", [False, True])
def test_training(compiled: bool) -> None:
    losses, weight = train("cuda", compiled)
    expected, weight_here = train("cpu", False)
    np.testing.assert_allclose(losses, expected, rtol=2e-4)
    np.testing.assert_allclose(weight, weight_here, atol=2e-5)


def test_memory_is_given_back() -> None:
    x = wg.randn(100, 100, device="cuda", requires_grad=True)
    before = wg.cuda.memory_stats()["live_bytes"]
    for _ in range(3):
        wg.tanh(x @ x).sum().backward()
        x.grad = None
    assert wg.cuda.memory_stats()["live_bytes"] == before


def deep_step(width: int = 256, layers: int = 16) -> tuple[list[Any], Callable[[], list[bytes]]]:
    """Weights, and a step that gives the bits of their gradients."""
    g = wg.Generator(seed=0)
    weights = [wg.Parameter((wg.randn(width, width, generator=g) / width**0.5).to("cuda")) for _ in range(layers)]
    x = wg.randn(1024, width, generator=g).to("cuda")

    def step() -> list[bytes]:
        for w in weights:
            w.grad = None
        wg.cuda.reset_peak_memory_stats()
        h = x
        for w in weights:
            h = wg.tanh(h @ w)
        (h * h).mean().backward()
        return [w.grad.cpu().numpy().tobytes() for w in weights]

    return weights, step


def test_budgets_keep_peaks_and_bits() -> None:
    _, step = deep_step()
    step()  # products have found their algorithms
    plain = step()
    live, peak = wg.cuda.memory_allocated(), wg.cuda.max_memory_allocated()
    budget = live + (peak - live) // 2
    with wg.memory_budget(mb=budget / 2**20, device="cuda"):
        assert step() == plain
    assert wg.cuda.max_memory_allocated() <= budget
    for offload in (None, "host", "disk"):
        for strategy in ("block", "full", "selective"):
            with wg.checkpointing(wg.CheckpointConfig(strategy=strategy, offload=offload)):
                assert step() == plain
            # Here the products that "selective" keeps are as large as what backward reads.
            assert wg.cuda.max_memory_allocated() <= peak - (strategy != "selective")


def test_what_is_parked_does_not_make_the_host_wait() -> None:
    _, step = deep_step()
    plain = step()
    number = wg.cuda.device_number(0)
    with wg.checkpointing(wg.CheckpointConfig(strategy="block", checkpoint_every_n=4, offload="host")):
        before = _core.replay_stats()
        assert step() == plain
        after = _core.replay_stats()
    assert after["loaded"] - before["loaded"] == after["stored"] - before["stored"] > 0
    wg.cuda.synchronize()
    assert wg.cuda.memory_stats()["host_live_bytes"] == 0
    assert _core.device_memory_limit(number) == 0


def test_memory_is_counted() -> None:
    free, total = wg.cuda.mem_get_info()
    assert 0 < free <= total == wg.cuda.get_device_properties().total_memory
    before = wg.cuda.memory_allocated()
    x = wg.zeros(1 << 20, device="cuda")
    assert wg.cuda.memory_allocated() == before + x.nbytes
    assert wg.cuda.memory_reserved() >= wg.cuda.memory_allocated()
    assert "in all" in wg.cuda.memory_summary()


def test_what_made_an_infinity_is_named() -> None:
    x = wg.tensor([4.0, 0.0], device="cuda", requires_grad=True)
    for mode in ("full", "light"):
        with pytest.raises(wg.errors.AnomalyError, match="the derivative of sqrt made"), wg.detect_anomaly(mode=mode):
            wg.sqrt(x).sum().backward()


def test_derivatives_that_do_not_exist_are_refused() -> None:
    pytest.importorskip("cupy")
    a = wg.randn(4, 2, dtype="float64", device="cuda", requires_grad=True)
    u, s, vh = wg.linalg.svd(a)
    (gradient,) = wg.grad_of((s**2).sum() + (u[:, :2] ** 2).sum() + (vh**2).sum(), [a])
    np.testing.assert_allclose(gradient.cpu().numpy(), 2.0 * a.detach().cpu().numpy(), atol=1e-10)
    wg.linalg.svd(a)[0][:, 3].sum().backward()
    with pytest.raises(wg.errors.GradientError, match="have no derivative"):
        wg.cuda.synchronize()


def test_regions_run_again() -> None:
    x = wg.randn(300, 200, device="cuda", requires_grad=True)
    (plain,) = wg.grad_of((wg.exp(wg.sin(x)) ** 2).sum(), [x])
    (again,) = wg.grad_of(wg.checkpoint(lambda t: (wg.exp(wg.sin(t)) ** 2).sum(), x), [x])
    assert plain.cpu().numpy().tobytes() == again.cpu().numpy().tobytes()


def test_out_of_memory_is_an_exception() -> None:
    with pytest.raises(MemoryError):
        wg.zeros(1 << 20, 1 << 20, device="cuda")
    assert wg.ones(3, device="cuda").tolist() == [1.0, 1.0, 1.0]


def test_a_compiled_step_is_one_graph() -> None:
    number = wg.cuda.device_number(0)
    net = wg.nn.Sequential(wg.nn.Linear(16, 32), wg.nn.ReLU(), wg.nn.Linear(32, 4)).to("cuda")
    adam = wg.optim.Adam(net.parameters(), lr=1e-2)

    @wg.compile
    def step(x: Any, t: Any) -> Any:
        adam.zero_grad()
        loss = wg.cross_entropy(net(x), t)
        loss.backward()
        adam.step()
        return loss

    xs = [wg.randn(8, 16, device="cuda") for _ in range(4)]  # at different addresses
    t = wg.randint(0, 4, (8,), device="cuda")
    for x in xs:
        step(x, t)
    before = _core.cuda_counters(number)
    kept = [step(x, t) for x in xs]
    after = _core.cuda_counters(number)
    assert after["graphs"] - before["graphs"] == len(xs)
    assert after["kernels"] == before["kernels"]
    assert after["copies"] == before["copies"]
    assert after["waits"] == before["waits"]
    assert len({loss.item() for loss in kept}) == len(xs)


def test_graphs_follow_their_operands() -> None:
    w = 0.05 * wg.randn(300, 300, device="cuda")

    @wg.compile
    def f(x: Any, scale: Any) -> Any:
        y = wg.tanh(x @ w) * scale
        return wg.softmax(y @ w.T, axis=-1), y.sum(axis=0), y

    g = wg.Generator(seed=0)
    for k in range(6):
        x = wg.randn(256, 300, generator=g)
        made = f(x.to("cuda"), 0.5 + k)
        y = wg.tanh(x @ w.cpu()) * (0.5 + k)
        for a, b in zip(made, (wg.softmax(y @ w.cpu().T, axis=-1), y.sum(axis=0), y)):
            close(a, b)


def test_gradients_of_compiled_functions_in_a_loop() -> None:
    f = wg.compile(lambda x, w: (wg.tanh(x @ w) ** 2).sum())
    w = wg.randn(5, 5, device="cuda", requires_grad=True)
    for k in range(5):
        x = wg.randn(4, 5, generator=wg.Generator(seed=k))
        w.grad = None
        f(x.to("cuda"), w).backward()
        v = w.detach().cpu().requires_grad_()
        (wg.tanh(x @ v) ** 2).sum().backward()
        close(w.grad, v.grad)
