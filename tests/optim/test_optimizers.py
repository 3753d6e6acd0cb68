"""Optimizers against trajectories computed independently with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core, nn, optim

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


def test_gradients_are_not_trained_in_place_of_parameters() -> None:
    p, plain = wg.Parameter.ones((2,)), wg.ones((2,))
    g = wg.ones((2,))
    recorded = wg.ones((2,), requires_grad=True) * 2  # as a gradient made with create_graph=True
    for opt in (optim.SGD([p], lr=0.5), optim.SGD(lr=0.5)):
        for first in (g, recorded, np.ones(2)):
            for given in ([(first, p)], zip([first], [p]), [(p, g), (first, p)]):
                with pytest.raises(wg.ArgumentError, match=r"pairs must be.*write zip\(params, grads\)"):
                    opt.apply_gradients(given)  # type: ignore[arg-type]
        with pytest.raises(wg.ArgumentError, match=r"float32\(2,\), which is not a parameter of this SGD"):
            opt.apply_gradients([(plain, g)])
        with pytest.raises(wg.ArgumentError, match="takes \\(parameter, gradient\\) pairs, got Parameter"):
            opt.apply_gradients([p])  # type: ignore[list-item]
    assert p.tolist() == g.tolist() == plain.tolist() == [1.0, 1.0]
    opt = optim.SGD([plain], lr=0.5)
    opt.apply_gradients([(plain, g)])  # what the optimizer was given is a parameter
    assert plain.tolist() == [0.5, 0.5]


def test_apply_gradients_names_the_parameter_without_a_gradient() -> None:
    net = nn.Linear(3, 2)
    opt = optim.SGD(net.named_parameters(), lr=1.0)
    before = net.weight.tolist()
    with pytest.raises(wg.GradientError, match=r"bias float32\(2,\) has no gradient \(None\).*Leave this pair out"):
        opt.apply_gradients([(net.weight, wg.ones((2, 3))), (net.bias, None)])
    assert net.weight.tolist() == before


def test_a_step_without_any_gradient_names_the_parameters() -> None:
    net = nn.Linear(3, 2)
    opt = optim.Adam(net.named_parameters())
    with pytest.raises(wg.GradientError, match=r"weight float32\(2, 3\), bias float32\(2,\).*backward"):
        opt.step()
    many = optim.SGD([wg.Parameter.ones((1,)) for _ in range(9)])
    with pytest.raises(wg.GradientError, match=r"no gradient reached any of the 9.*parameter 0 .*and 3 more"):
        many.step()


def test_what_cannot_be_trained_is_refused() -> None:
    p = wg.Parameter.ones((2,))
    for bad, message in [
        ([p, p], "given twice"),
        ([3.0], "float; pass net.parameters"),
        (p, "must be a list"),
        (nn.Linear(2, 2), "must be a list"),
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
    with pytest.raises(wg.ArgumentError, match="not the state of an optimizer"):
        opt.load_state_dict({"weight": a})
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
    with pytest.raises(
        wg.ArgumentError, match="the gradients tree has another structure: 1 entries in place of a list of 2"
    ):
        optim.Adam.update([p, p], [p], optim.Adam.init([p, p]))


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


# --------------------------------------------------------------------------------------------- every optimizer

EVERY = [
    (optim.SGD, dict(momentum=0.9)),
    (optim.Adam, dict(amsgrad=True)),
    (optim.AdamW, {}),
    (optim.RMSprop, dict(centered=True, momentum=0.5)),
    (optim.Adagrad, dict(initial_accumulator_value=0.1)),
    (optim.Lion, dict(weight_decay=0.1)),
    (optim.Adafactor, {}),
]


@pytest.mark.parametrize(("kind", "options"), EVERY)
def test_step_and_pure_form_are_one_formula(kind: Any, options: dict[str, Any]) -> None:
    params = [wg.Parameter(p) for p in _start()]
    opt = kind(params, lr=wg.tensor(0.01), **options)
    pure: Any = [wg.tensor(p) for p in _start()]
    state = kind.init(pure, **options)
    for t in range(10):
        for p in params:
            p.set_grad(_gradient(p.numpy(), t))
        grads = [p.grad for p in params]
        opt.step()
        pure, state = kind.update(pure, grads, state, lr=wg.tensor(0.01), **options)
    _close([p.numpy() for p in params], [p.numpy() for p in pure], 1e-12)


@pytest.mark.parametrize(("kind", "options"), [*EVERY, (optim.SGD, dict(momentum=0.9, dampening=0.5)), (optim.SGD, {})])
def test_the_pure_form_compiles(kind: Any, options: dict[str, Any]) -> None:
    def step(p: Any, state: Any, lr: Any) -> Any:
        return kind.update(p, 2.0 * p, state, lr=lr, **options)

    compiled = wg.compile(step)
    p = q = wg.tensor([1.0, -2.0, 3.0])
    state = other = kind.init(p, **options)
    for t in range(5):
        lr = wg.tensor(0.1 / (1 + t))
        p, state = compiled(p, state, lr)
        q, other = step(q, other, lr)
    np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-6)


@pytest.mark.parametrize(("kind", "options"), EVERY)
def test_every_state_resumes_to_the_bit(kind: Any, options: dict[str, Any]) -> None:
    make = lambda params: kind(params, lr=0.01, **options)
    whole = [wg.Parameter(p) for p in _start()]
    opt = make(whole)
    _train(opt, whole)
    halves = [wg.Parameter(p) for p in whole]
    second = make(halves)
    second.load_state_dict(opt.state_dict())
    for a, b in zip(_train(opt, whole), _train(second, halves)):
        assert np.array_equal(a, b)


@pytest.mark.parametrize(("kind", "options"), EVERY)
@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16])
def test_every_optimizer_takes_half_precision(kind: Any, options: dict[str, Any], dtype: Any) -> None:
    p = wg.Parameter(wg.ones((4, 3), dtype=dtype))
    opt = kind([p], lr=0.25, **options)
    p.set_grad(wg.ones((4, 3)))
    opt.step()
    assert p.dtype == dtype and np.all(p.detach().astype("float32").numpy() < 0.99)
    assert all(t.dtype == wg.float32 for t in opt.state_dict()["state"][0].values() if isinstance(t, wg.Tensor))


@pytest.mark.parametrize(("kind", "options"), EVERY)
def test_hyper_gradients_through_two_steps(kind: Any, options: dict[str, Any]) -> None:
    """d loss(after two steps) / d start, against finite differences: the pure form is differentiable."""
    start = np.array([[0.7, -1.3], [0.4, 2.0]])

    def after(p: Any) -> Any:
        state = kind.init(p, **options)
        for _ in range(2):
            p, state = kind.update(p, wg.grad(lambda p: (wg.sin(p) * p * p).sum())(p), state, lr=0.1, **options)
        return (p * p * p).sum()

    exact = wg.grad(after)(wg.tensor(start)).numpy()
    for k in np.ndindex(2, 2):
        h = np.zeros((2, 2))
        h[k] = 1e-5
        slope = (after(wg.tensor(start + h)).item() - after(wg.tensor(start - h)).item()) / 2e-5
        assert np.isclose(exact[k], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [optim.Adam, optim.Adafactor])
def test_a_cast_after_the_optimizer_was_made_is_named(kind: Any) -> None:
    net = nn.Linear(3, 2)
    opt = kind(net.parameters())
    net.to("float64")
    net(wg.ones((1, 3), dtype=wg.float64)).sum().backward()
    with pytest.raises(wg.DTypeError, match=r"float32 when the optimizer was made.*float64.*after net.to"):
        opt.step()


def test_a_step_that_cannot_be_made_changes_nothing() -> None:
    """All gradients are looked at before the first parameter is written."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    opt = optim.Adam(net.parameters())
    grads = net(wg.ones((1, 2))).sum().backward()
    before = {k: t.numpy().tobytes() for k, t in net.state_dict().items()}
    for bad, message in [
        (wg.ones((2,), dtype=wg.float64), r"gradient float64\(2,\) does not fit parameter float32\(2,\)"),
        (wg.ones((3,)), r"gradient float32\(3,\) does not fit parameter float32\(2,\)"),
    ]:
        grads[net[1].bias.id] = bad  # by id, the map cannot tell
        with pytest.raises(wg.WengertError, match=message):
            opt.step(grads)
    assert {k: t.numpy().tobytes() for k, t in net.state_dict().items()} == before
    net[1].to("float64")
    net(wg.ones((1, 2))).sum().backward()
    with pytest.raises(wg.DTypeError, match=r"parameter float64\(2, 2\) is updated together with float32"):
        opt.step()
    assert net[0].weight.numpy().tobytes() == before["0.weight"]


def test_step_refuses_what_is_no_map() -> None:
    p = wg.Parameter.ones((2,))
    for bad in (p, lambda: None, {"p": p}):
        with pytest.raises(wg.ArgumentError, match="takes the map that backward"):
            optim.SGD([p]).step(bad)
    with pytest.raises(wg.ArgumentError, match="config must be of type SGDConfig, got AdamConfig"):
        optim.SGD([p], config=optim.AdamConfig())  # type: ignore[arg-type]


def test_step_takes_pairs_and_gradients_in_order() -> None:
    p, q = wg.Parameter.ones((2,)), wg.Parameter.ones((3,))
    opt = optim.SGD([p, q], lr=0.5)
    opt.step([(q, np.ones(3))])
    assert p.tolist() == [1.0, 1.0] and q.tolist() == [0.5, 0.5, 0.5]
    opt.step([wg.ones((2,)), None])
    assert p.tolist() == [0.5, 0.5] and q.tolist() == [0.5, 0.5, 0.5]
    opt.step(g for g in (wg.ones((2,)), np.ones(3)))
    assert p.tolist() == [0.0, 0.0] and q.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(wg.ArgumentError, match=r"SGD.step: 1 gradients for 2 parameters \(parameter 0 float32\(2,\)"):
        opt.step([wg.ones((2,))])
    with pytest.raises(wg.ShapeError, match=r"step: a gradient of shape \(3,\) does not fit parameter 0"):
        opt.step([wg.ones((3,)), None])
    with pytest.raises(wg.ArgumentError, match=r"step: pairs must be"):
        opt.step([(wg.ones((2,)), p)])
    with pytest.raises(wg.GradientError, match="no gradient reached any of the 2"):
        opt.step([None, None])


def test_an_update_is_what_a_step_adds() -> None:
    start = np.array([1.0, -2.0])
    p, q, other = wg.Parameter(start), wg.Parameter(start), wg.Parameter.ones((1,))
    stepping, computing = optim.Adam([p], lr=0.1), optim.Adam([q, other], lr=0.1)
    for t in range(3):
        g = np.array([0.5, t - 1.0])
        stepping.apply_gradients([(p, g)])
        before = q.tolist()
        update = computing.compute_update(q, g)
        assert q.tolist() == before
        q.apply_update(update)
        assert np.allclose(p.numpy(), q.numpy(), rtol=1e-15)
    assert other.tolist() == [1.0]
    with pytest.raises(wg.ArgumentError, match="compute_update: pairs must be"):
        computing.compute_update(wg.ones((2,)), q)


def test_a_config_may_come_first() -> None:
    p = wg.Parameter.ones((2,))
    opt = optim.Adam(wg.AdamConfig(lr=0.5))
    opt.step([(p, np.ones(2))])
    assert np.allclose(p.numpy(), 0.5)
    with pytest.raises(wg.ArgumentError, match="config must be of type SGDConfig, got AdamConfig"):
        optim.SGD(wg.AdamConfig())  # type: ignore[arg-type]
    with pytest.raises(wg.ArgumentError, match="config is given twice"):
        optim.Adam(wg.AdamConfig(), config=wg.AdamConfig())


def test_gradients_are_forgotten_or_zero() -> None:
    net = nn.Linear(2, 2)
    opt = optim.SGD(net.parameters(), lr=0.1)
    for owner in (net, opt, net.weight, nn.ParameterDict(weight=net.weight)):
        net.bias.grad = None
        net.weight.set_grad(np.ones((2, 2)))
        owner.zero_grad(set_to_none=False)
        assert net.weight.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]] and net.bias.grad is None
        owner.zero_grad(set_to_none=True)
        assert net.weight.grad is None


def test_options_that_change_the_state_cannot_change_later() -> None:
    p = wg.Parameter.ones((2,))
    opt = optim.SGD([p], lr=0.1)
    p.set_grad(np.ones(2))
    opt.step()
    opt.param_groups[0]["momentum"] = 0.9
    with pytest.raises(wg.ArgumentError, match="now need momentum"):
        opt.step()


def test_pure_options_are_checked() -> None:
    p = [wg.ones((2,))]
    with pytest.raises(wg.ArgumentError, match="no option speed; there are lr"):
        optim.SGD.init(p, speed=3)
    with pytest.raises(wg.ArgumentError, match="same options"):
        optim.SGD.update(p, p, optim.SGD.init(p), momentum=0.9)
    with pytest.raises(wg.ArgumentError, match="lr"):
        optim.SGD.init(p, lr=-1.0)


def test_adam_moves_the_least_bytes() -> None:
    """Reads p, g, m, v and writes p, m, v: seven passes over a parameter, in one fused group, in place."""
    options = optim.Adam._options({})
    rule = optim.Adam.rule(options)
    n, numbers = 1000, [wg.tensor(float(x)) for x in optim.Adam.scalars(options, 1)]
    update = wg.compile(lambda rows, *numbers: rule(*(rows[k] for k in range(4)), *numbers))  # rows are views: free
    update(wg.ones((4, n)), *numbers)
    (report,) = update.report()  # type: ignore[attr-defined]
    numbers_used = 5  # one element each; the report counts their broadcast views at full size
    assert report.passes == 1 and report.bytes == 4 * n * (7 + numbers_used)
    p = wg.Parameter.ones((n,))
    p.set_grad(np.ones(n))
    opt = optim.Adam([p])
    opt.step()
    # Generated code of small parameters computes results beside them, and exchanges the memory of both.
    tier = _core.set_tier("executor")
    try:
        before = wg.memory_stats().live_bytes
        wg.reset_peak()
        opt.step()
        assert wg.memory_stats().peak_bytes - before < 4 * n  # nothing as large as the parameter is allocated
    finally:
        _core.set_tier(tier)


# ------------------------------------------------------------------------------------------------------ LBFGS


def _rosenbrock(p: Any) -> Any:
    return 100.0 * (p[1] - p[0] ** 2) ** 2 + (1.0 - p[0]) ** 2


def test_lbfgs_solves_rosenbrock() -> None:
    p = wg.Parameter(wg.tensor([-1.2, 1.0], dtype=wg.float64))
    opt = optim.LBFGS([p], max_iter=100, tolerance_change=1e-14, line_search_fn="strong_wolfe")

    def closure() -> Any:
        opt.zero_grad()
        loss = _rosenbrock(p)
        loss.backward()
        return loss

    assert opt.step(closure).item() == pytest.approx(24.2)
    assert np.allclose(p.numpy(), 1.0, atol=1e-6)


def test_lbfgs_resumes_to_the_bit() -> None:
    def closure_of(p: Any, opt: Any) -> Any:
        def closure() -> Any:
            opt.zero_grad()
            loss = _rosenbrock(p)
            loss.backward()
            return loss

        return closure

    p = wg.Parameter(wg.tensor([-1.2, 1.0], dtype=wg.float64))
    opt = optim.LBFGS([p], max_iter=3, line_search_fn="strong_wolfe")
    opt.step(closure_of(p, opt))
    q = wg.Parameter(p)
    other = optim.LBFGS([q], max_iter=3)
    other.load_state_dict(opt.state_dict())
    for a, b in ((p, opt), (q, other)):
        b.step(closure_of(a, b))
    assert np.array_equal(p.numpy(), q.numpy())
    with pytest.raises(wg.ArgumentError, match="have 3"):
        optim.LBFGS([wg.Parameter.ones((3,))]).load_state_dict(opt.state_dict())


def test_lbfgs_says_what_it_needs() -> None:
    p = wg.Parameter.ones((2,))
    opt = optim.LBFGS([("weight", p)])
    with pytest.raises(wg.ArgumentError, match="LBFGS.step: takes a function"):
        opt.step()
    with pytest.raises(wg.GradientError, match=r"weight float32\(2,\)"):
        opt.step(lambda: wg.tensor(1.0))
    with pytest.raises(wg.ArgumentError, match="one group"):
        optim.LBFGS([{"params": [p]}, {"params": [wg.Parameter.ones((1,))]}])
    with pytest.raises(wg.ArgumentError, match="strong_wolfe"):
        optim.LBFGS([p], line_search_fn="armijo")


def test_pure_lbfgs_follows_the_step() -> None:
    start = np.array([[0.3, -0.2], [0.5, 0.1]])
    f = lambda p: (wg.cos(p) * p).sum() + (p * p * p * p).sum()
    p = wg.Parameter(wg.tensor(start))
    opt = optim.LBFGS([p], lr=0.2, max_iter=1)

    def closure() -> Any:
        opt.zero_grad()
        loss = f(p)
        loss.backward()
        return loss

    pure: Any = {"p": wg.tensor(start)}
    state = optim.LBFGS.init(pure)
    for _ in range(8):
        opt.step(closure)
        pure, state = optim.LBFGS.update(pure, wg.grad(lambda t: f(t["p"]))(pure), state, lr=0.2)
    assert np.allclose(p.numpy(), pure["p"].numpy(), rtol=1e-12) and len(state["steps"]) > 1


@pytest.mark.parametrize("change", [{"lr": 0.5}, {"weight_decay": 0.3}, {"betas": (0.5, 0.6)}, {"maximize": True}])
def test_an_option_that_changes_takes_effect_at_the_next_step(change: dict[str, Any]) -> None:
    """Against the pure form, which keeps nothing from one step to the next."""
    p, g = wg.Parameter.ones((3,)), wg.tensor([1.0, -2.0, 3.0])
    opt = wg.optim.Adam([p], lr=0.1)
    value, state = p.detach() * 1.0, wg.optim.Adam.init(p.detach())
    for step in range(6):
        options = change if step in (2, 3) else {"lr": 0.1}  # there, and back again
        opt.param_groups[0].update({**opt.defaults, **options})
        p.grad = g
        opt.step()
        value, state = wg.optim.Adam.update(value, g, state, **{"lr": 0.1, **options})
        np.testing.assert_allclose(p.numpy(), value.numpy(), rtol=1e-6)


def test_an_option_that_is_changed_from_within_takes_effect() -> None:
    class Scaled(wg.optim.SGD):
        @classmethod
        def rule(cls, options: Any) -> Any:
            return super().rule({**options, "maximize": options["maximize"][0]})

    up = [False]
    p = wg.Parameter.ones((2,))
    opt = Scaled([p], lr=1.0)
    opt.param_groups[0]["maximize"] = up
    for up[0], expected in ((False, 0.0), (False, -1.0), (True, 0.0), (False, -1.0)):
        p.grad = wg.ones((2,))
        opt.step()
        assert p.tolist() == [expected] * 2


def test_pure_updates_match_containers_by_key() -> None:
    """Gradients in another order of keys belong to the parameters of their names; other names are refused."""
    params = {"w": wg.ones((2,)), "b": wg.zeros((2,))}
    state = wg.optim.SGD.init(params)
    new, _ = wg.optim.SGD.update(params, {"b": wg.full((2,), 1.0), "w": wg.zeros((2,))}, state, lr=0.5)
    assert new["w"].tolist() == [1.0, 1.0] and new["b"].tolist() == [-0.5, -0.5]
    with pytest.raises(
        wg.ArgumentError, match=r"SGD.update: the gradients tree .* keys \['v', 'b'\] in place of a dict"
    ):
        wg.optim.SGD.update(params, {"v": wg.ones((2,)), "b": wg.ones((2,))}, state, lr=0.5)
