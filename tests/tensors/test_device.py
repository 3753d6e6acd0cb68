"""Devices: the test device is the CPU behind another number, in memory that nobody else can touch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.ops.sampling import OPS, cases, make, outputs
from wengert import _core
from wengert.errors import DeviceError
from wengert.registry.record import Op
from wengert.registry.samples import Sample


@pytest.fixture(autouse=True)
def test_device() -> Iterator[None]:
    _core.test_device_calls()
    yield
    _core.test_device_refuse(set())
    _core.test_device_limit(1 << 30)
    assert _core.placement() == 0


def there(x: Any) -> Any:
    return wg.asarray(np.asarray(x)).to("test")


def x23(**options: Any) -> wg.Tensor:
    return wg.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], **options)


def same(a: wg.Tensor, b: wg.Tensor) -> None:
    """a, on the device, has the bits of b, on the CPU."""
    assert a.device == "test:0"
    assert b.device == "cpu"
    np.testing.assert_array_equal(a.detach().cpu().numpy(), b.detach().numpy())


# ------------------------------------------------------------------------------------------------ tensors and devices


def test_a_tensor_goes_there_and_back() -> None:
    x = x23()
    y = x.to("test")
    assert (y.device, y.device.type, y.device.ordinal, y.shape, y.dtype) == ("test:0", "test", 0, x.shape, x.dtype)
    assert y.to("test") is y
    assert x.cpu() is x
    assert y.cpu().tolist() == y.tolist() == x.tolist()
    assert y.to("cpu", wg.float64).dtype == wg.float64
    assert x.to(y).device == "test:0"
    assert y.T.to("cpu").tolist() == x.T.tolist()


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(DeviceError, match="'tpu' is not known"):
        x23().to(device="tpu")
    with pytest.raises(DeviceError, match="cuda"):
        wg.zeros(2, device="cuda:77")


@pytest.mark.parametrize(
    "make_tensor",
    [
        lambda **d: wg.zeros(2, 3, **d),
        lambda **d: wg.ones((2, 3), dtype=int, **d),
        lambda **d: wg.full((2,), 7, **d),
        lambda **d: wg.arange(5, **d),
        lambda **d: wg.linspace(0.0, 1.0, 5, **d),
        lambda **d: wg.eye(3, **d),
        lambda **d: wg.tensor([1.0, 2.0], **d),
        lambda **d: wg.asarray(np.arange(3.0), **d),
        lambda **d: wg.randn(3, 4, generator=wg.Generator(seed=1), std=2.0, **d),
        lambda **d: wg.rand(7, generator=wg.Generator(seed=1), dtype="float64", **d),
        lambda **d: wg.randint(0, 9, (5,), generator=wg.Generator(seed=1), **d),
    ],
)
def test_creation_with_a_device(make_tensor: Callable[..., wg.Tensor]) -> None:
    same(make_tensor(device="test"), make_tensor())
    if make_tensor().dtype.is_floating:
        leaf = make_tensor(device="test", requires_grad=True)
        assert leaf.is_leaf
        assert leaf.requires_grad


def test_what_is_like_a_tensor_is_where_it_is() -> None:
    x = x23().to("test")
    for y in (wg.zeros_like(x), wg.ones_like(x), wg.full_like(x, 3.0), wg.randn_like(x), wg.rand_like(x), x.clone()):
        assert y.device == "test:0"
    assert wg.zeros_like(x, device="cpu").device == "cpu"


def test_reading_printing_copying() -> None:
    x = there([1.5, 2.5])
    assert repr(x) == "tensor([1.5, 2.5], dtype=float64, device='test:0')"
    assert f"{x[0]:.2f}" == "1.50"
    assert (x[1].item(), float(x[0]), int(there(3)), bool(there(0)), complex(there(2.0))) == (
        2.5,
        1.5,
        3,
        False,
        2 + 0j,
    )
    assert there(2**63 - 1).item() == 2**63 - 1
    assert there(1 + 2j).item() == 1 + 2j
    assert 2.5 in x
    for y in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x))):
        assert y.device == "test:0"
        assert y.tolist() == x.tolist()
        assert y.data_ptr != x.data_ptr


def test_numpy_is_refused() -> None:
    for leave in (lambda x: x.numpy(), np.asarray, memoryview, np.from_dlpack):
        with pytest.raises(DeviceError, match=r"is on test:0.*cpu\(\)"):
            leave(x23().to("test"))


def test_mixed_devices_are_refused() -> None:
    x, y = x23(), x23().to("test")
    with pytest.raises(DeviceError, match=r"^add: .*test:0 and cpu"):
        y + x
    with pytest.raises(DeviceError, match=r"^matmul: .*test:0 and cpu"):
        x @ y.T
    with pytest.raises(DeviceError, match=r"^concat: .*test:0 and cpu"):
        wg.concat([x, y])
    with pytest.raises(DeviceError, match=r"^compile: .*test:0 and cpu"):
        wg.compile(lambda a, b: a + b)(x, y)
    with pytest.raises(DeviceError, match=r"^compile: .*test:0 and cpu"):
        wg.compile(lambda a: a + x)(y)
    with pytest.raises(DeviceError, match="setitem: .*test:0"):
        y[0] = x[0]
    leaf = y.detach().requires_grad_()
    with pytest.raises(DeviceError, match="gradient on cpu"):
        leaf.grad = x
    with pytest.raises(DeviceError, match="mul: .*cpu"):
        y * wg.tensor(2.0, requires_grad=True)  # its gradient would be on the wrong device


def test_numbers_go_with_every_device() -> None:
    x = x23()
    y = x.to("test")
    same(2.0 * y + 1, 2.0 * x + 1)
    same(y * wg.tensor(3.0), x * wg.tensor(3.0))
    same(wg.where(y > 0, y, 0.0), wg.where(x > 0, x, 0.0))
    same(wg.clip(y, -0.5, 0.5), wg.clip(x, -0.5, 0.5))


def test_ops_that_a_device_has_not() -> None:
    _core.test_device_refuse({"exp", "matmul"})
    y = x23().to("test")
    with pytest.raises(DeviceError, match="^exp: has no kernel on test:0"):
        wg.exp(y)
    with pytest.raises(DeviceError, match="^matmul: has no kernel on test:0"):
        y @ y.T


def test_out_of_memory_is_an_exception_and_leaves_everything_working() -> None:
    x = x23().to("test")
    live = _core.device_memory(_core.test_device())[0]
    _core.test_device_limit(live + 4096)
    with pytest.raises(MemoryError):
        wg.zeros(1 << 12, device="test")
    assert _core.device_memory(_core.test_device())[0] == live
    same(x + 1, x23() + 1)


# ------------------------------------------------------------------------------------------------------ derivatives


def mlp(x: Any, w: Any, b: Any) -> Any:
    return wg.log_softmax(wg.tanh(x @ w + b) * 2.0, axis=-1)[:, 1:].mean()


def test_backward() -> None:
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(3, 4)), rng.normal(size=4)
    here = [wg.tensor(w, requires_grad=True), wg.tensor(b, requires_grad=True)]
    away = [wg.tensor(w, requires_grad=True, device="test"), wg.tensor(b, requires_grad=True, device="test")]
    x = x23(dtype="float64")
    mlp(x, *here).backward()
    mlp(x.to("test"), *away).backward()
    mlp(x.to("test"), *away).backward()
    for a, h in zip(away, here):
        same(a.grad, h.grad + h.grad)


def test_a_leaf_that_moves_gets_its_gradient_where_it_is() -> None:
    x = x23(requires_grad=True)
    (x.to("test") ** 2).sum().backward()
    assert x.grad.device == "cpu"
    assert x.grad.tolist() == (2 * x).tolist()


def test_zero_gradients_are_on_the_device() -> None:
    x = x23().to("test").requires_grad_()
    (wg.stop_gradient(x) * 2 + 0 * x).sum().backward()
    same(x.grad, wg.zeros(2, 3))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: wg.grad(f),
        lambda f: lambda x: wg.value_and_grad(f)(x)[1],
        lambda f: lambda x: wg.jvp(f, (x,), (x + 1,))[1],
        lambda f: lambda x: wg.jvp(lambda z: wg.jvp(f, (z,), (z,))[1], (x,), (x,))[1],
        lambda f: lambda x: wg.hvp(f, x, x),
        lambda f: wg.hessian(f),
        lambda f: wg.grad(lambda x: (wg.grad(f)(x) ** 2).sum()),
        lambda f: lambda x: wg.vmap(wg.grad(f))(wg.stack([x, 2 * x])),
        lambda f: lambda x: wg.linearize(f, x)[1](x),
        lambda f: wg.compile(wg.grad(f)),
        lambda f: wg.grad(wg.compile(f)),
    ],
)
def test_every_mode(transform: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        return (wg.exp(0.3 * x) * wg.sin(x) / (1 + x * x)).sum()

    x = x23(dtype="float64")
    same(transform(f)(x.to("test")), transform(f)(x))


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, s: op.name != "to_device"))
def test_every_op(op: Op, sample: Sample) -> None:
    """Values, and reverse mode where there is one, are those of the CPU to the bit."""
    arrays = make(sample, "float64", op.name)
    here, away = ([wg.tensor(a, device=d) for a in arrays] for d in (None, "test"))
    before = _core.set_placement(_core.test_device() if not arrays else 0)
    try:
        made = outputs(op, away, sample.attrs)
    finally:
        _core.set_placement(before)
    expected = outputs(op, here, sample.attrs)
    for a, b in zip(made, expected, strict=True):
        if arrays:
            assert a.device == "test:0"
        np.testing.assert_array_equal(a.cpu().numpy(), b.numpy())
    if not (op.differentiable and sample.gradients and any(t.dtype.is_inexact for t in here)):
        return
    for tensors in (here, away):
        for t in tensors:
            if t.dtype.is_inexact:
                t.requires_grad = True
    pulled = []
    for tensors in (here, away):
        ys = [y for y in outputs(op, tensors, sample.attrs) if y.requires_grad]
        if not ys:
            return
        total = sum((wg.real(y) if y.dtype.kind == "c" else y).sum() for y in ys)
        try:
            pulled.append(wg.grad_of(total, [t for t in tensors if t.requires_grad], allow_unused=True))
        except wg.errors.GradientError:  # it has none on either
            pulled.append([])
    for a, b in zip(*reversed(pulled), strict=True):
        if b is not None:
            assert a.device == "test:0"
            np.testing.assert_array_equal(a.cpu().numpy(), b.numpy())


# ---------------------------------------------------------------------------------------------- programs and training


def test_compiled_functions_have_a_trace_for_each_device() -> None:
    traced = []

    @wg.compile
    def f(x: Any) -> Any:
        traced.append(x.device)
        return wg.softmax(x * 2 + wg.ones(3), axis=-1) @ wg.arange(3.0)

    x = x23()
    for _ in range(2):
        same(f(x.to("test")), f(x))
    assert traced == ["test:0", "cpu"]
    calls = _core.test_device_calls()
    assert calls["group"] >= 2
    assert "copy to the host" not in {k for k, v in calls.items() if v > 2}


def test_control_flow() -> None:
    @wg.compile
    def f(x: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            carry = wg.cond((carry * row).sum() > 0, lambda c: c + row, lambda c: c - row, carry)
            return carry, carry * 2

        return wg.scan(body, wg.zeros_like(x[0]), x)[1]

    x = x23()
    same(f(x.to("test")), f(x))


def test_writing_in_place() -> None:
    x = x23()
    y = x.to("test")
    view = y[0]
    for t in (x, y):
        t[0, 1] = 7.0
        t += 1
        t[:, 2] *= 3
        t[t < 0] = 0.5
        t[[0, 1], [1, 0]] = 9
        t[1] = [1.0, 2.0, 3.0]
    same(y, x)
    same(view, x[0])
    _core.test_device_calls()
    y.zero_()
    assert y.tolist() == [[0.0] * 3] * 2


def test_indexing() -> None:
    x = wg.arange(24.0).reshape(2, 3, 4)
    y = x.to("test")
    mask = x > 11
    keys: list[Any] = [
        0,
        (slice(None), 1),
        (..., -1),
        None,
        [1, 0],
        (slice(None), [2, 0]),
        ([0, 1], slice(None), [3, 0]),
    ]
    keys += [np.array([1, 1]), wg.tensor([0, 1])]
    for key in keys:
        same(y[key], x[key])
    same(y[mask.to("test")], x[mask])
    same(y[mask.numpy()], x[mask])
    same(wg.take(y, wg.tensor([0, 2]).to("test"), axis=1), wg.take(x, wg.tensor([0, 2]), axis=1))


@pytest.mark.parametrize("optimizer", [wg.optim.SGD, wg.optim.Adam, wg.optim.AdamW, wg.optim.RMSprop])
def test_training(optimizer: Any) -> None:
    results = []
    rng = np.random.default_rng(3)
    x, labels = rng.normal(size=(8, 5)).astype("float32"), rng.integers(0, 3, 8)
    for device in ("cpu", "test"):
        wg.manual_seed(0)
        net = wg.nn.Sequential(wg.nn.Linear(5, 7), wg.nn.ReLU(), wg.nn.LayerNorm(7), wg.nn.Linear(7, 3)).to(device)
        step = optimizer(net.parameters(), lr=0.1)
        xs, ts = wg.tensor(x, device=device), wg.tensor(labels, device=device)
        for _ in range(5):
            step.zero_grad()
            loss = wg.cross_entropy(net(xs), ts)
            loss.backward()
            step.step()
        results.append((loss.item(), [p.detach().cpu().tolist() for p in net.parameters()]))
        assert {str(p.device) for p in net.parameters()} == {str(xs.device)}
    assert results[0] == results[1]


@pytest.mark.parametrize("optimizer", [wg.optim.SGD, wg.optim.Adam, wg.optim.Adagrad, wg.optim.NAdam])
def test_an_eager_step_copies_nothing_to_or_from_the_host(optimizer: Any) -> None:
    net = wg.nn.Linear(4, 2).to("test")
    step = optimizer(net.parameters(), lr=0.1)
    x = there(np.ones((3, 4), np.float32))
    for k in range(4):
        if k == 3:
            _core.test_device_calls()
        step.zero_grad()
        (net(x) ** 2).mean().backward()
        step.step()
    assert not {name for name in _core.test_device_calls() if "host" in name}


def test_the_state_of_an_optimizer_is_where_its_parameters_are() -> None:
    w = wg.nn.Linear(2, 1).to("test").weight
    adam = wg.optim.Adam([w], lr=0.1)
    (w * w).sum().backward()
    adam.step()
    saved = adam.state_dict()
    assert saved["state"][0]["m"].device == "test:0"
    here = wg.nn.Linear(2, 1).weight
    for p in (here, w):
        other = wg.optim.Adam([p], lr=0.1)
        other.load_state_dict(saved)
        assert other.state_dict()["state"][0]["m"].device == p.device
    assert wg.optim.Adam.init([w])["m"][0].device == "test:0"
    net = wg.nn.Linear(2, 1)
    late = wg.optim.Adam(net.parameters(), lr=0.1)
    net(wg.ones(1, 2)).sum().backward()
    late.step()
    net.to("test")
    late.zero_grad()
    net(wg.ones(1, 2, device="test")).sum().backward()
    with pytest.raises(DeviceError, match=r"step: a parameter is on test:0, .* on cpu; make the optimizer after"):
        late.step()


def test_a_compiled_step_keeps_its_state_on_the_device() -> None:
    results = []
    for device in ("cpu", "test"):
        wg.manual_seed(0)
        net = wg.nn.Linear(4, 2).to(device)
        adam = wg.optim.Adam(net.parameters(), lr=0.1)

        @wg.compile
        def step(x: Any, net: Any = net, adam: Any = adam) -> Any:
            adam.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            adam.step()
            return loss

        x = wg.ones(3, 4, device=device)
        losses = [step(x).item() for _ in range(4)]
        results.append((losses, net.weight.detach().cpu().tolist()))
        assert net.weight.device == x.device
    assert results[0] == results[1]


def test_memory_is_given_back() -> None:
    device = _core.test_device()
    x = x23().to("test").requires_grad_()
    before = _core.device_memory(device)[0]
    for _ in range(3):
        wg.tanh(x @ x.T).sum().backward()
        x.grad = None
    assert _core.device_memory(device)[0] == before
    del x
    assert _core.device_memory(device)[0] == before - 24


def test_the_cpu_is_left_alone() -> None:
    x = x23()
    wg.exp(x).sum()
    assert _core.test_device_calls() == {}
    assert OPS["to_device"](x, 0, 0).tolist() == x.tolist()
