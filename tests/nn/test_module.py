"""Modules: what they hold, their state, and calls with other parameters."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


class Net(nn.Module):
    """One of everything a module may hold."""

    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.blocks = [nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4))]
        self.heads = {"a": nn.Linear(4, 2), "b": nn.Linear(4, 2, bias=False)}
        self.scale = wg.Parameter.ones(())
        self.extra = wg.ParameterDict(shift=wg.Parameter.zeros((2,)))
        self.register_buffer("mean", wg.zeros((2,)))
        self.data = wg.ones((7,))  # neither a parameter nor a buffer

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = wg.tanh(block(x))
        y = self.heads["a"](x) - self.heads["b"](x)
        return (y - self.mean) * self.scale + self.extra["shift"]


NAMES = [
    "first.weight", "first.bias",
    "blocks.0.weight", "blocks.0.bias", "blocks.1.1.weight", "blocks.1.1.bias",
    "heads.a.weight", "heads.a.bias", "heads.b.weight",
    "scale", "extra.shift",
]  # fmt: skip


def test_parameters_are_found_wherever_they_are() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_buffers()] == ["mean"]
    assert [name for name, m in net.named_modules() if isinstance(m, nn.Sequential)] == ["blocks.1"]
    grads = net(wg.randn(5, 3)).sum().backward()
    assert all(p in grads for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_shared_parameters_and_modules_count_once() -> None:
    layer = nn.Linear(3, 3)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert len(net.parameters()) == 2
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert len(tied.parameters()) == 3
    assert list(tied.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_cycles_end() -> None:
    a, b = nn.Linear(2, 2), nn.Module()
    b.inner, a.outer = a, b  # type: ignore[attr-defined]
    assert len(a.parameters()) == len(b.parameters()) == 2


def test_train_and_eval_reach_everything() -> None:
    net = Net()
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    seen: list[str] = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Net" and seen.count("Linear") == 5


def test_frozen_parameters_get_no_gradient() -> None:
    net = Net()
    net.first.requires_grad_(False)
    grads = net(wg.randn(5, 3)).sum().backward()
    assert net.first.weight not in grads and net.scale in grads


def test_state_round_trip() -> None:
    a, b = Net(), Net()
    a.mean = wg.tensor([3.0, 4.0])
    x = wg.randn(5, 3)
    state = a.state_dict()
    assert set(state) == {*NAMES, "mean"}
    b.load_state_dict(state)
    assert np.array_equal(a(x).detach().numpy(), b(x).detach().numpy())
    before = state["first.weight"].tolist()
    a.first.weight.apply_update(np.ones((4, 3)))
    assert state["first.weight"].tolist() == before  # a state is a snapshot
    b.load_state_dict({name: t.numpy().astype(np.float64) for name, t in state.items()})
    assert b.first.weight.dtype == wg.float32 and b.first.weight.requires_grad


def test_all_problems_of_a_state_are_named_at_once() -> None:
    net, before = Net(), Net().state_dict()
    state = dict(before)
    del state["first.bias"], state["scale"]
    state["new"] = state["newer"] = wg.ones(())
    state["heads.a.weight"] = wg.ones((9, 9))
    own = net.state_dict()
    with pytest.raises(wg.ArgumentError) as e:
        net.load_state_dict(state)
    for line in ("missing: first.bias", "missing: scale", "unexpected: new", "unexpected: newer"):
        assert line in str(e.value)
    assert "mismatched: heads.a.weight has shape (2, 4), the state (9, 9)" in str(e.value)
    assert all(np.array_equal(own[k].numpy(), t.numpy()) for k, t in net.state_dict().items())
    with pytest.raises(wg.ArgumentError, match="heads.a.weight"):
        net.load_state_dict(state, strict=False)
    del state["heads.a.weight"]
    net.load_state_dict(state, strict=False)
    assert np.array_equal(net.first.weight.numpy(), before["first.weight"].numpy())


def test_deepcopy_is_independent() -> None:
    net = Net()
    twin = copy.deepcopy(net)
    x = wg.randn(2, 3)
    assert np.array_equal(net(x).detach().numpy(), twin(x).detach().numpy())
    twin.scale.apply_update(1.0)
    assert net.scale.item() == 1.0 and twin.scale.item() == 2.0
    assert not {id(p) for p in net.parameters()} & {id(p) for p in twin.parameters()}


def test_to_casts_in_place() -> None:
    net = Net()
    weight = net.first.weight
    net.to(wg.float64)
    assert net.first.weight is weight and weight.dtype == wg.float64 and weight.requires_grad
    assert net.mean.dtype == wg.float64
    assert net(wg.randn(2, 3, dtype=wg.float64)).dtype == wg.float64
    assert net.to("cpu") is net
    with pytest.raises(wg.DeviceError):
        net.to("cuda:7")


def test_repr_counts_parameters() -> None:
    text = repr(Net())
    assert text.startswith("Net(  # 77 parameters\n")
    assert "  first: Linear(3, 4)  # 16 parameters\n" in text
    assert "  blocks.1: Sequential(  # 20 parameters\n    0: ReLU()\n    1: Linear(4, 4)" in text
    assert "heads.b: Linear(4, 2, bias=False)" in text


def test_forward_must_be_written() -> None:
    with pytest.raises(NotImplementedError, match="Module"):
        nn.Module()(1)


def test_names_of_buffers_are_checked() -> None:
    m = nn.Module()
    for name in ("forward", "a b", ""):
        with pytest.raises(wg.ArgumentError, match="register_buffer"):
            m.register_buffer(name, wg.ones(()))


def test_functional_call_uses_other_parameters_and_restores() -> None:
    net = Net()
    params = dict(net.named_parameters())
    x = wg.randn(5, 3)
    y = net(x)
    doubled = {k: p.detach() * 2.0 for k, p in params.items()}
    other = nn.functional_call(net, doubled, x)
    assert not np.allclose(other.detach().numpy(), y.detach().numpy())
    assert np.array_equal(net(x).detach().numpy(), y.detach().numpy())
    assert dict(net.named_parameters()).keys() == params.keys()
    shifted = nn.functional_call(net, {"mean": wg.ones((2,))}, x)
    assert np.allclose(shifted.detach().numpy(), y.detach().numpy() - 1.0, atol=1e-5)
    with pytest.raises(wg.ArgumentError, match="no wrong, worse; it has first.weight"):
        nn.functional_call(net, {"wrong": x, "worse": x}, x)
    with pytest.raises(wg.ShapeError):
        nn.functional_call(net, {"scale": wg.ones((17,))}, x)
    assert net.scale.shape == ()


def test_functional_call_differentiates() -> None:
    net = Net()
    x = wg.randn(5, 3)
    params = {name: p.detach() for name, p in net.named_parameters()}
    by_transform = wg.grad(lambda params: (nn.functional_call(net, params, x) ** 2).sum())(params)
    by_backward = (net(x) ** 2).sum().backward()
    for name, p in net.named_parameters():
        assert np.allclose(by_transform[name].numpy(), by_backward[p].numpy(), rtol=1e-5, atol=1e-6)


def test_functional_call_exchanges_shared_parameters_everywhere() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    y = nn.functional_call(net, {"0.weight": 2.0 * wg.eye(2)}, wg.ones((1, 2)))
    assert y.tolist() == [[4.0, 4.0]]


def test_functional_call_reaches_into_containers_and_cycles() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            self.pair = (wg.Parameter.ones((2,)), wg.Parameter.ones((2,)))
            self.table = {"rows": [wg.Parameter.ones((2,))]}
            self.inner = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2, bias=False))})
            self.inner.outer = self  # type: ignore[attr-defined]

        def forward(self) -> Any:
            return self.inner["a"](self.pair[0] * self.pair[1] * self.table["rows"][0])

    net = Deep()
    assert len(net.parameters()) == 4
    other = {"pair.0": wg.full((2,), 2.0), "table.rows.0": wg.full((2,), 3.0), "inner.a.0.weight": wg.eye(2)}
    assert nn.functional_call(net, other).tolist() == [6.0, 6.0]
    assert net.pair[0].tolist() == [1.0, 1.0] and net.inner.outer is net  # type: ignore[attr-defined]


def test_threads_may_call_one_module_with_their_own_parameters() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    names = [name for name, _ in net.named_parameters()]
    x, wrong = wg.ones((3, 4)), []

    def work(k: int) -> None:
        g = wg.Generator(seed=k)
        params = {name: wg.randn(p.shape, generator=g) for name, p in zip(names, net.parameters())}
        expected = nn.functional_call(net, params, x).numpy()
        for _ in range(200):
            if not np.array_equal(nn.functional_call(net, params, x).numpy(), expected):
                wrong.append(k)

    before = net(x).detach().numpy().copy()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and np.array_equal(net(x).detach().numpy(), before)


def test_functional_call_in_every_mode() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(wg.float64)
    params = {name: p.detach() for name, p in net.named_parameters()}
    x = wg.randn(5, 3, dtype=wg.float64)
    f = lambda params: (nn.functional_call(net, params, x) ** 2).sum()
    g = wg.Generator(seed=1)
    v = {name: wg.randn(p.shape, dtype=wg.float64, generator=g) for name, p in params.items()}
    gradient = wg.grad(f)(params)
    along = sum(float((gradient[k] * v[k]).sum()) for k in params)
    assert wg.jvp(f, (params,), (v,))[1].item() == pytest.approx(along, rel=1e-12)
    y, pull = wg.vjp(f, params)
    assert all(np.allclose(pull(wg.ones_like(y))[0][k].numpy(), gradient[k].numpy()) for k in params)
    h = 1e-5
    shifted = [wg.grad(f)({k: params[k] + s * h * v[k] for k in params}) for s in (1.0, -1.0)]
    curvature = wg.hvp(f, params, v)
    for k in params:
        expected = (shifted[0][k] - shifted[1][k]).numpy() / (2 * h)
        assert np.allclose(curvature[k].numpy(), expected, rtol=1e-5, atol=1e-7)


def test_hooks() -> None:
    net, seen = nn.Sequential(nn.Linear(3, 2, bias=False)), []
    nn.init.ones(net[0].weight)
    first = net.register_forward_pre_hook(lambda m, args: (args[0] * 2.0,))
    second = net[0].register_forward_hook(lambda m, args, y: seen.append((type(m).__name__, args[0].shape, y.shape)))
    third = net.register_forward_hook(lambda m, args, y: y + 1.0)
    assert net(wg.ones((1, 3))).tolist() == [[7.0, 7.0]] and seen == [("Linear", (1, 3), (1, 2))]
    assert nn.functional_call(net, {}, wg.ones((1, 3))).tolist() == [[7.0, 7.0]]
    assert len(net.parameters()) == 1 and list(net.state_dict()) == ["0.weight"]
    for handle in (first, second, third):
        handle.remove()
    assert net(wg.ones((1, 3))).tolist() == [[3.0, 3.0]] and len(seen) == 2


def test_a_module_as_a_hook_is_not_a_part() -> None:
    net = nn.Linear(2, 2)
    net.register_forward_hook(lambda m, args, y: y)
    net.register_forward_pre_hook(nn.Linear(2, 2).forward)  # type: ignore[arg-type]
    assert len(net.parameters()) == 2


def test_children_buffers_and_lookups() -> None:
    net = Net()
    assert [name for name, _ in net.named_children()] == ["first", "blocks.0", "blocks.1", "heads.a", "heads.b"]
    assert net.children()[0] is net.first and net.buffers()[0] is net.mean
    assert net.get_submodule("blocks.1.1").weight.shape == (4, 4) and net.get_submodule("") is net
    with pytest.raises(wg.ArgumentError, match="no module 'blocks.2'; it has first, blocks.0"):
        net.get_submodule("blocks.2")


def test_buffers_that_are_not_saved() -> None:
    m = nn.Linear(2, 2)
    m.register_buffer("cache", wg.zeros((2,)), persistent=False)
    m.register_buffer("mean", wg.zeros((2,)))
    assert list(m.state_dict()) == ["weight", "bias", "mean"] and len(m.buffers()) == 2
    m.load_state_dict(m.state_dict())
    m.to("float64")
    assert m.cache.dtype == m.mean.dtype == wg.float64
    m.register_buffer("cache", wg.zeros((2,)))
    assert "cache" in m.state_dict()


def test_to_takes_dtypes_and_devices() -> None:
    net = Net().to("cpu", dtype=wg.float64)
    assert all(t.dtype == wg.float64 for t in net.state_dict().values()) and net.data.dtype == wg.float32
    assert net.to(wg.ones((), dtype=wg.float16)).scale.dtype == wg.float16
    with pytest.raises(wg.ArgumentError, match="int64"):
        net.to(wg.int64)
    with pytest.raises(wg.DeviceError):
        net.to("cuda")


def test_repr_says_what_is_frozen() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
    net[0].requires_grad_(False)
    assert repr(net).splitlines()[0] == "Sequential(  # 15 parameters, 9 of them trained"


def test_containers() -> None:
    net = nn.Sequential(nn.Linear(2, 3)).append(nn.ReLU()).extend([nn.Linear(3, 4), nn.Linear(4, 5)])
    assert len(net) == 4 and net[-1].weight.shape == (5, 4) and isinstance(net[1:], nn.Sequential)
    assert net[:1][0] is net[0]
    net[1] = nn.Tanh()
    net.insert(0, nn.Linear(2, 2))
    del net[-1]
    assert [type(m).__name__ for m in net] == ["Linear", "Linear", "Tanh", "Linear"]
    assert [name for name, _ in net.named_parameters()][::2] == ["0.weight", "1.weight", "3.weight"]
    blocks = nn.ModuleList([nn.Linear(1, 1)])
    blocks.append(nn.Linear(1, 1))
    assert isinstance(blocks[:1], nn.ModuleList) and len(blocks.parameters()) == 4
    with pytest.raises(wg.ArgumentError, match="layer 1 is of type int"):
        nn.Sequential(nn.ReLU(), 3)  # type: ignore[arg-type]
    heads = nn.ModuleDict({"a": nn.Linear(1, 1)})
    del heads["a"]
    assert "a" not in heads and len(heads) == 0 and list(heads.keys()) == []


def test_functional_is_the_library_itself() -> None:
    assert nn.functional is wg


def test_vectors_of_parameters() -> None:
    net = Net()
    before = net.state_dict()
    v = nn.parameters_to_vector(net.parameters())
    assert v.shape == (sum(p.size for p in net.parameters()),) and v.requires_grad
    nn.vector_to_parameters(v * 2.0, net.parameters())
    assert all(np.array_equal(p.numpy(), 2.0 * before[name].numpy()) for name, p in net.named_parameters())
    with pytest.raises(wg.ShapeError, match=r"elements, the vector has shape \(3,\)"):
        nn.vector_to_parameters(wg.ones((3,)), net.parameters())
    with pytest.raises(wg.ArgumentError, match="no parameters"):
        nn.parameters_to_vector([])


def test_meta_learning_through_an_inner_optimizer() -> None:
    """The gradient of a loss after two inner steps by the weights before them, against finite differences."""
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).to(wg.float64)
    g = wg.Generator(seed=0)
    x, y = wg.randn(6, 2, dtype=wg.float64, generator=g), wg.randn(6, 1, dtype=wg.float64, generator=g)
    task = lambda params: wg.mse_loss(nn.functional_call(net, params, x), y)

    def after(params: Any) -> Any:
        state = wg.optim.SGD.init(params, momentum=0.9)
        for _ in range(2):
            params, state = wg.optim.SGD.update(params, wg.grad(task)(params), state, lr=0.1, momentum=0.9)
        return task(params)

    start = {name: p.detach() for name, p in net.named_parameters()}
    v = {name: wg.randn(p.shape, dtype=wg.float64, generator=g) for name, p in start.items()}
    gradient = wg.grad(after)(start)
    along = sum(float((gradient[k] * v[k]).sum()) for k in start)
    h = 1e-5
    ends = [after({k: p + s * h * v[k] for k, p in start.items()}).item() for s in (1.0, -1.0)]
    assert along == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6)
    assert wg.jvp(after, (start,), (v,))[1].item() == pytest.approx(along, rel=1e-10)


def test_parameters_by_name() -> None:
    net = Net()
    for name, p in net.named_parameters():
        assert net.get_parameter(name) is p
    with pytest.raises(wg.ArgumentError, match="Net has no parameter 'first'; it has first.weight"):
        net.get_parameter("first")
    net.register_parameter("gain", wg.Parameter.ones((2,)))
    net.register_parameter("offset", None)
    assert net.get_parameter("gain") is net.gain and net.offset is None
    for name, value, message in [
        ("forward", None, "cannot be the name"),
        ("a.b", None, "cannot be the name"),
        ("plain", wg.ones(2), "Parameter\\(tensor\\) makes one"),
    ]:
        with pytest.raises(wg.ArgumentError, match=message):
            net.register_parameter(name, value)


def test_dtypes_by_name() -> None:
    net = Net()
    for method, dtype in [("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"), ("float", "float32")]:
        assert getattr(net, method)() is net
        assert {p.dtype.name for p in net.parameters()} == {dtype} and net.mean.dtype.name == dtype
    assert net.cpu() is net
