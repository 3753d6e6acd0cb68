"""Optimizers against trajectories computed independently with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim

SHAPES = [(3, 4), (5,), (), (2, 1, 3)]
STEPS = 100


def _start(dtype: Any = np.float64) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(dtype) for s in SHAPES]


def _gradient(p: Any, t: int) -> Any:
    """Of a function with a different landscape at every step."""
    return np.cos(p * (1 + t % 3)) + 0.1 * p


def _train(optimizer: Any, params: list[wg.Parameter], schedule: Any = None) -> list[Any]:
    for t in range(STEPS):
        if schedule is not None:
            optimizer.param_groups[0]["lr"] = schedule(t)
        for p in params:
            p.set_grad(_gradient(p.numpy(), t))
        optimizer.step()
    return [p.numpy() for p in params]


def _numpy_sgd(lr: Any, momentum: float, dampening: float, decay: float, nesterov: bool) -> list[Any]:
    params = _start()
    buffers: list[Any] = [None] * len(params)
    for t in range(STEPS):
        for k, p in enumerate(params):
            g = _gradient(p, t) + decay * p
            if momentum:
                first = buffers[k] is None
                buffers[k] = g if first else momentum * buffers[k] + (1 - dampening) * g
                g = g + momentum * buffers[k] if nesterov else buffers[k]
            params[k] = p - (lr(t) if callable(lr) else lr) * g
    return params


def _numpy_adam(lr: Any, betas: tuple[float, float], eps: float, decay: float, decoupled: bool) -> list[Any]:
    params = _start()
    m, v = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    for t in range(STEPS):
        rate = lr(t) if callable(lr) else lr
        for k, p in enumerate(params):
            g = _gradient(p, t)
            if decoupled:
                p = p * (1 - rate * decay)
            else:
                g = g + decay * p
            m[k] = betas[0] * m[k] + (1 - betas[0]) * g
            v[k] = betas[1] * v[k] + (1 - betas[1]) * g * g
            m_hat, v_hat = m[k] / (1 - betas[0] ** (t + 1)), v[k] / (1 - betas[1] ** (t + 1))
            params[k] = p - rate * m_hat / (np.sqrt(v_hat) + eps)
    return params


def _close(ours: list[Any], theirs: list[Any], tolerance: float = 1e-6) -> None:
    for a, b in zip(ours, theirs):
        assert np.allclose(a, b, rtol=tolerance, atol=tolerance)


def _schedule(t: int) -> float:
    return 0.05 * (1 + math.sin(t))


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov"), [(0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.3, False), (0.9, 0.0, True)]
)
@pytest.mark.parametrize("lr", [0.05, _schedule])
def test_sgd(lr: Any, momentum: float, dampening: float, nesterov: bool, decay: float) -> None:
    params = [wg.Parameter(p) for p in _start()]
    first = lr if isinstance(lr, float) else 1.0
    opt = optim.SGD(params, first, momentum, dampening, decay, nesterov)
    ours = _train(opt, params, None if isinstance(lr, float) else lr)
    _close(ours, _numpy_sgd(lr, momentum, dampening, decay, nesterov), 1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
@pytest.mark.parametrize("lr", [0.01, _schedule])
def test_adam(lr: Any, kind: Any, decay: float) -> None:
    params = [wg.Parameter(p) for p in _start()]
    first = lr if isinstance(lr, float) else 1.0
    opt = kind(params, lr=first, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay)
    ours = _train(opt, params, None if isinstance(lr, float) else lr)
    _close(ours, _numpy_adam(lr, (0.8, 0.95), 1e-6, decay, kind is optim.AdamW), 1e-10)


def test_changing_rate_and_step_do_not_trace_again() -> None:
    from wengert.optim.update import update_program

    params = [wg.Parameter(p) for p in _start()]
    opt = optim.Adam(params)
    _train(opt, params, _schedule)
    before = update_program.cache_info().misses
    _train(opt, params, _schedule)
    assert update_program.cache_info().misses == before


@pytest.mark.parametrize("dtype", [wg.float32, wg.float16, wg.bfloat16])
def test_low_precision_keeps_its_state_in_float32(dtype: Any) -> None:
    params = [wg.Parameter(wg.tensor(p).astype(dtype)) for p in _start()]
    opt = optim.Adam(params, lr=0.01)
    for _ in range(10):
        for p in params:
            p.set_grad(wg.full(p.shape, 1e-4, dtype=dtype))
        opt.step()
    state = opt.state_dict()["state"]
    assert all(entry[k].dtype == wg.float32 for entry in state.values() for k in ("m", "v"))
    tolerance = {wg.float32: 1e-5, wg.float16: 2e-2, wg.bfloat16: 1e-1}[dtype]
    for p, start in zip(params, _start()):
        assert p.dtype == dtype
        assert np.allclose(p.detach().astype(wg.float32).numpy(), start - 0.1, atol=tolerance)


def test_parameters_of_several_dtypes() -> None:
    params = [wg.Parameter.ones((3,)), wg.Parameter.ones((3,), dtype=wg.float64)]
    opt = optim.SGD(params, lr=0.5)
    for p in params:
        p.set_grad(np.ones(3))
    opt.step()
    assert all(np.allclose(p.numpy(), 0.5) for p in params)


def test_step_leaves_gradients_until_zero_grad() -> None:
    p = wg.Parameter.ones((3,))
    opt = optim.SGD([p], lr=0.1)
    (p * p).sum().backward()
    opt.step()
    assert p.grad.tolist() == [2.0, 2.0, 2.0]
    opt.zero_grad()
    assert p.grad is None


def test_step_with_a_map_uses_it_and_clears_those_gradients() -> None:
    p, q = wg.Parameter.ones((3,)), wg.Parameter.ones((3,))
    opt = optim.SGD([p, q], lr=0.1)
    q.set_grad([7.0, 7.0, 7.0])
    grads = (p * p).sum().backward()
    grads.scale_(0.5)
    opt.step(grads)
    assert np.allclose(p.numpy(), 0.9) and q.tolist() == [1.0, 1.0, 1.0]
    assert p.grad is None and q.grad is not None
    assert np.allclose(grads[p].numpy(), 1.0)


def test_a_view_and_a_numpy_array_follow_the_parameter() -> None:
    p = wg.Parameter.ones((3,))
    opt = optim.SGD([p], lr=0.5)
    view, array = p.tensor, p.numpy()
    p.set_grad(np.ones(3))
    opt.step()
    assert view.tolist() == [0.5, 0.5, 0.5] and array.tolist() == [0.5, 0.5, 0.5]


def test_a_graph_that_is_kept_sees_the_old_values() -> None:
    p = wg.Parameter([2.0, 3.0])
    opt = optim.SGD([p], lr=1.0)
    y = (p * p * p).sum()
    y.backward(retain_graph=True)
    opt.step()
    opt.zero_grad()
    assert np.allclose(y.backward()[p].numpy(), [12.0, 27.0])


def test_gradients_that_are_views_or_broadcast() -> None:
    p, q = wg.Parameter.ones((2, 3)), wg.Parameter.ones((2, 3))
    opt = optim.Adam([p, q], lr=0.1)
    (p.sum() + (q.T * wg.ones((3, 2))).sum()).backward()
    opt.step()
    assert np.allclose(p.numpy(), 0.9) and np.allclose(q.numpy(), 0.9)


def test_empty_and_single_element_parameters() -> None:
    params = [wg.Parameter.ones((0, 3)), wg.Parameter.ones(()), wg.Parameter.ones((1, 1))]
    opt = optim.Adam(params, lr=0.1)
    for p in params:
        p.set_grad(np.ones(p.shape))
    opt.step()
    assert [p.shape for p in params] == [(0, 3), (), (1, 1)]
    assert np.allclose(params[1].item(), 0.9) and np.allclose(params[2].item(), 0.9)


def test_each_parameter_counts_its_own_steps() -> None:
    """Bias corrections are those of the steps a parameter has made, not of the optimizer."""
    seldom, often = wg.Parameter.ones((2,)), wg.Parameter.ones((2,))
    opt = optim.Adam([seldom, often], lr=0.1)
    for t in range(6):
        often.set_grad(np.ones(2))
        seldom.grad = wg.ones((2,)) if t % 3 == 2 else None
        opt.step()
    alone = wg.Parameter.ones((2,))
    other = optim.Adam([alone], lr=0.1)
    for _ in range(2):
        alone.set_grad(np.ones(2))
        other.step()
    assert np.array_equal(seldom.numpy(), alone.numpy())
    steps = {k: entry["step"] for k, entry in opt.state_dict()["state"].items()}
    assert steps == {0: 2, 1: 6}


def test_groups_have_options_of_their_own() -> None:
    p, q = wg.Parameter.ones((2,)), wg.Parameter.ones((2,))
    opt = optim.SGD([{"params": [p]}, {"params": [q], "lr": 1.0}], lr=0.1)
    for x in (p, q):
        x.set_grad(np.full(2, 0.5))
    opt.step()
    assert np.allclose(p.numpy(), 0.95) and np.allclose(q.numpy(), 0.5)
    opt.add_param_group({"params": [wg.Parameter.ones((2,))], "lr": 2.0})
    assert [g["lr"] for g in opt.param_groups] == [0.1, 1.0, 2.0]
    with pytest.raises(wg.ArgumentError, match="no option speed; there are lr"):
        opt.add_param_group({"params": [], "speed": 2.0})
    assert repr(opt).splitlines()[1].startswith("SGD(1 parameters, lr=1.0")


def test_apply_gradients_takes_new_parameters() -> None:
    opt = optim.Adam(config=wg.AdamConfig(lr=0.5))
    p = wg.Parameter.ones((2,))
    opt.apply_gradients([(p, np.ones(2))])
    assert np.allclose(p.numpy(), 0.5)
    q = wg.tensor([1.0, 1.0], requires_grad=True)
    opt.apply_gradients([(p, wg.ones((2,))), (q, [1.0, 1.0])])
    assert np.allclose(p.numpy(), 0.0, atol=1e-6) and np.allclose(q.numpy(), 0.5)
    with pytest.raises(wg.ShapeError, match=r"\(3,\).*parameter 0 float32\(2,\)"):
        opt.apply_gradients([(p, np.ones(3))])


def test_a_step_without_any_gradient_names_the_parameters() -> None:
    net = nn.Linear(3, 2)
    opt = optim.Adam(net.named_parameters())
    with pytest.raises(wg.GradientError, match=r"weight float32\(2, 3\), bias float32\(2,\).*backward"):
        opt.step()
    many = optim.SGD([wg.Parameter.ones((1,)) for _ in range(9)])
    with pytest.raises(wg.GradientError, match=r"none of the 9.*parameter 0 .*and 3 more"):
        many.step()


def test_what_cannot_be_trained_is_refused() -> None:
    p = wg.Parameter.ones((2,))
    for bad, message in [
        ([p, p], "given twice"),
        ([3.0], "float; pass net.parameters"),
        (p, "come as a list"),
        (nn.Linear(2, 2), "come as a list"),
        ([], "empty"),
        ([p * 2.0], "recorded op"),
    ]:
        with pytest.raises(wg.ArgumentError, match=message):
            optim.SGD(bad)  # type: ignore[arg-type]
    with pytest.raises(wg.DTypeError, match="int64"):
        optim.SGD([wg.tensor([1, 2])])


def test_options_are_checked() -> None:
    p = [wg.Parameter.ones((2,))]
    for make, message in [
        (lambda: optim.SGD(p, lr=-1.0), "lr"),
        (lambda: optim.SGD(p, lr=math.nan), "lr"),
        (lambda: optim.SGD(p, weight_decay=-1.0), "weight_decay"),
        (lambda: optim.SGD(p, nesterov=True), "nesterov"),
        (lambda: optim.Adam(p, betas=(1.0, 0.9)), "betas"),
        (lambda: optim.Adam(p, eps=-1.0), "eps"),
    ]:
        with pytest.raises(wg.ArgumentError, match=message):
            make()


@pytest.mark.parametrize("make", [lambda p: optim.Adam(p, lr=0.05), lambda p: optim.SGD(p, lr=0.05, momentum=0.9)])
def test_state_round_trip(make: Any) -> None:
    whole = [wg.Parameter(p) for p in _start()]
    opt = make(whole)
    _train(opt, whole)
    expected = _train(opt, whole)
    halves = [wg.Parameter(p) for p in _start()]
    first = make(halves)
    _train(first, halves)
    state = first.state_dict()
    first.param_groups[0]["lr"] = 123.0  # the state is a snapshot
    second = make(halves)
    second.load_state_dict(state)
    assert second.param_groups[0]["lr"] == 0.05
    for a, b in zip(_train(second, halves), expected):
        assert np.array_equal(a, b)


def test_states_that_do_not_fit_are_refused_as_a_whole() -> None:
    a, b = wg.Parameter.ones((2,)), wg.Parameter.ones((3,))
    opt = optim.Adam([("a", a), ("b", b)])
    for p in (a, b):
        p.set_grad(np.ones(p.shape))
    opt.step()
    state = opt.state_dict()
    with pytest.raises(wg.ArgumentError, match=r"groups of \[2\] parameters, this Adam of \[1\]"):
        optim.Adam([wg.Parameter.ones((2,))]).load_state_dict(state)
    other = optim.Adam([("x", wg.Parameter.ones((3,))), ("y", wg.Parameter.ones((2,)))])
    with pytest.raises(wg.ArgumentError) as e:
        other.load_state_dict(state)
    assert "x float32(3,): m has shape (2,)" in str(e.value) and "y float32(2,): v has shape (3,)" in str(e.value)


# ------------------------------------------------------------------------------------------------ pure form


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_pure_form_agrees(kind: Any, decay: float) -> None:
    params: Any = {"a": [wg.tensor(p) for p in _start()[:2]], "b": tuple(wg.tensor(p) for p in _start()[2:])}
    state = kind.init(params)
    for t in range(STEPS):
        grads = {k: type(v)(wg.tensor(_gradient(p.numpy(), t)) for p in v) for k, v in params.items()}
        params, state = kind.update(
            params, grads, state, lr=_schedule(t), betas=(0.8, 0.95), eps=1e-6, weight_decay=decay
        )
    assert state["step"].item() == STEPS and isinstance(params["b"], tuple)
    ours = [p.numpy() for p in (*params["a"], *params["b"])]
    _close(ours, _numpy_adam(_schedule, (0.8, 0.95), 1e-6, decay, kind is optim.AdamW), 1e-10)


def test_the_pure_form_can_be_differentiated_by_the_rate() -> None:
    p, g = wg.tensor([1.0, 2.0], dtype=wg.float64), wg.tensor([3.0, -4.0], dtype=wg.float64)

    def after(lr: Any) -> Any:
        params, _ = optim.Adam.update([p], [g], optim.Adam.init([p]), lr=lr)
        return params[0].sum()

    slope = wg.grad(after)(wg.tensor(0.1, dtype=wg.float64)).item()
    assert np.isclose(slope, -(3.0 / (3.0 + 1e-8)) + 4.0 / (4.0 + 1e-8), atol=1e-7)


def test_the_pure_form_checks_its_containers() -> None:
    p = wg.ones((2,))
    with pytest.raises(wg.ArgumentError, match="2 parameters"):
        optim.Adam.update([p, p], [p], optim.Adam.init([p, p]))


def test_pure_form_in_a_compiled_step() -> None:
    start = wg.tensor([1.0, -2.0, 3.0])

    def step(p: Any, state: Any, lr: Any) -> Any:
        return optim.Adam.update(p, 2.0 * p, state, lr=lr)

    compiled = wg.compile(step)
    p, state = start, optim.Adam.init(start)
    q, other = start, optim.Adam.init(start)
    for t in range(5):
        lr = wg.tensor(0.1 / (1 + t))
        p, state = compiled(p, state, lr)
        q, other = step(q, other, lr)
    assert np.allclose(p.numpy(), q.numpy(), rtol=1e-6)


# -------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, 0.1, 0.9), lambda p: optim.Adam(p, 0.02)])
def test_a_small_network_learns(make: Any) -> None:
    wg.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 2)).astype(np.float32)
    target = wg.tensor((x[:, 0] * x[:, 1] > 0).astype(np.int64))  # exclusive or
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    opt, data = make(net.parameters()), wg.tensor(x)
    for _ in range(300):
        opt.zero_grad()
        wg.cross_entropy(net(data), target).backward()
        opt.step()
    accuracy = (net(data).argmax(axis=1) == target).numpy().mean()
    assert accuracy > 0.95
