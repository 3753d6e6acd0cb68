"""Loss scaling: overflows are noticed, skipped, named and recovered from; small gradients are not lost."""

from __future__ import annotations

import gc
import inspect

import numpy as np
import pytest

import wengert as wg


def half(values):
    return wg.Parameter(wg.tensor(values, dtype=wg.float16))


def net_and_data(dtype=wg.float16):
    wg.manual_seed(0)
    net = wg.nn.Sequential(wg.nn.Linear(4, 8, dtype=dtype), wg.nn.Tanh(), wg.nn.Linear(8, 1, dtype=dtype))
    x = wg.randn(16, 4, dtype=dtype)
    return net, x, x[:, :1] * 0.5


def loss_of(net, x, y):
    return ((net(x) - y) ** 2).astype(wg.float32).mean()


# ------------------------------------------------------------------------------------------------------- the scale


def test_growth_backoff_and_interval():
    s = wg.DynamicLossScaler(init_scale=4.0, growth_factor=2.0, backoff_factor=0.25, growth_interval=3)
    scales = []
    for overflowed in (False, False, False, False, True, False, False, True):
        s.update(overflowed)
        scales.append(s.scale)
    assert scales == [4.0, 4.0, 8.0, 8.0, 2.0, 2.0, 2.0, 0.5]


def test_the_scale_stays_finite():
    s = wg.DynamicLossScaler(init_scale=2.0**127, growth_interval=1)
    assert not s.update(False) and s.scale == 2.0**127


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_scale": 0.0}, "init_scale must be positive and finite, got 0.0"),
        ({"init_scale": float("nan")}, "init_scale must be positive and finite, got nan"),
        ({"init_scale": "large"}, "init_scale must be positive and finite, got 'large'"),
        ({"growth_factor": 1.0}, "growth_factor must be greater than 1, got 1.0"),
        ({"backoff_factor": 1.0}, "backoff_factor must lie between 0 and 1, got 1.0"),
        ({"growth_interval": 0}, "growth_interval must be a positive number of steps, got 0"),
        ({"growth_interval": 1.5}, "growth_interval must be a positive number of steps, got 1.5"),
    ],
)
@pytest.mark.parametrize("cls", [wg.DynamicLossScaler, wg.GradScaler])
def test_options_that_make_no_sense(cls, options, message):
    with pytest.raises(wg.ArgumentError, match=message):
        cls(**options)


# ---------------------------------------------------------------------------------------------------------- steps


def test_gradients_that_underflow_without_a_scale():
    w, x = wg.Parameter([1.0]), wg.tensor([2.0**-13], dtype=wg.float16)

    def loss():
        return (w.astype(wg.float16) * x * x).sum()

    assert loss().backward()[w].item() == 0.0
    opt, scaler = wg.optim.SGD([w], lr=2.0**24), wg.GradScaler(init_scale=1024.0)
    assert scaler.step(opt, scaler.scale(loss()).backward())
    assert w.item() == 0.75


def test_an_overflow_is_skipped_and_recovered_from():
    net, x, y = net_and_data()
    opt = wg.optim.Adam(net.named_parameters(), lr=0.01)
    scaler = wg.GradScaler(init_scale=2.0**30, growth_interval=1000)
    before = [p.tolist() for p in net.parameters()]
    stepped = []
    for _ in range(60):
        stepped.append(scaler.step(opt, scaler.scale(loss_of(net, x, y)).backward()))
        scaler.update()
        if not any(stepped):
            assert [p.tolist() for p in net.parameters()] == before
    skipped = stepped.index(True)
    assert skipped > 5 and all(stepped[skipped:])
    assert scaler.skipped_steps == skipped and scaler.steps == 60
    assert scaler.get_scale() == 2.0 ** (30 - skipped)
    assert loss_of(net, x, y).item() < 0.05


def test_training_is_that_in_float32_where_nothing_overflows():
    results = []
    for scaled in (False, True):
        net, x, y = net_and_data(wg.float32)
        opt, scaler = wg.optim.SGD(net.parameters(), lr=0.1), wg.GradScaler(init_scale=1024.0)
        for _ in range(10):
            loss = loss_of(net, x, y)
            if scaled:
                scaler.step(opt, scaler.scale(loss).backward())
                scaler.update()
            else:
                opt.step(loss.backward())
        results.append([p.tolist() for p in net.parameters()])
    assert results[0] == results[1]  # a power of two changes no bit


OPTIMIZERS = [
    cls
    for _, cls in sorted(inspect.getmembers(wg.optim, inspect.isclass))
    if issubclass(cls, wg.optim.Optimizer)
    and cls is not wg.optim.Optimizer
    and cls
    not in (
        wg.optim.LBFGS,
        wg.optim.NewtonCG,
        wg.optim.LevenbergMarquardt,
        wg.optim.NaturalGradient,
        wg.optim.SAM,
    )  # these take functions
]


@pytest.mark.parametrize("cls", OPTIMIZERS)
def test_every_optimizer_that_takes_gradients(cls):
    results = []
    for scaled in (False, True):
        net, x, y = net_and_data(wg.float32)
        trained = [p for p in net.parameters() if p.ndim == 2]  # all that Muon takes
        opt, scaler = cls(trained, lr=0.01), wg.GradScaler(init_scale=256.0)
        for k in range(3):
            loss = loss_of(net, x, y)
            if not scaled:
                opt.step(loss.backward())
            elif k == 1:  # from .grad
                scaler.scale(loss).backward()
                assert scaler.step(opt)
                scaler.update()
            else:
                assert scaler.step(opt, scaler.scale(loss).backward())
                scaler.update()
        opt.zero_grad()
        results.append([p.tolist() for p in net.parameters()])
    assert results[0] == results[1]


def test_wrapped_and_closure_optimizers():
    net, x, y = net_and_data(wg.float32)
    scaler = wg.GradScaler()
    look = wg.optim.Lookahead(wg.optim.SGD(net.parameters(), lr=0.1))
    assert scaler.step(look, scaler.scale(loss_of(net, x, y)).backward())
    scaler.update()
    with pytest.raises(wg.ArgumentError, match="LBFGS computes losses itself"):
        scaler.step(wg.optim.LBFGS(net.parameters()), lambda: loss_of(net, x, y))


def test_with_tapes_and_lists_and_pairs():
    w = wg.Parameter([2.0])
    opt, scaler = wg.optim.SGD([w], lr=0.5), wg.GradScaler(init_scale=8.0)
    with wg.GradientTape() as tape:
        loss = scaler.scale((w * w).sum())
    assert scaler.step(opt, [tape.gradient(loss, w)])
    scaler.update()
    assert w.item() == 0.0
    w = wg.Parameter([2.0])
    opt = wg.optim.SGD([w], lr=0.5)
    g = wg.grad(lambda w: scaler.scale((w * w).sum()))(w)
    assert g.item() == 32.0
    assert scaler.step(opt, [(w, g)])
    assert w.item() == 0.0


def test_clipping_between():
    w = wg.Parameter([3.0, 4.0])
    opt, scaler = wg.optim.SGD([w], lr=1.0), wg.GradScaler(init_scale=1024.0)
    grads = scaler.unscale_(scaler.scale((w * w).sum() / 2).backward())
    assert wg.clip_grad_norm(grads, 1.0) == 5.0
    scaler.step(opt, grads)
    np.testing.assert_allclose(w.numpy(), [2.4, 3.2], rtol=1e-5)
    with pytest.raises(wg.GradientError, match="unscaled already"):
        scaler.unscale_(grads)
    scaler.update()
    scaler.scale((w * w).sum()).backward()
    scaler.unscale_(opt)
    np.testing.assert_allclose(w.grad.numpy(), [4.8, 6.4], rtol=1e-5)
    assert scaler.step(opt)


def test_several_optimizers_before_one_update():
    a, b = half([1.0]), half([1.0])
    opts = [wg.optim.SGD([p], lr=1.0) for p in (a, b)]
    scaler = wg.GradScaler(init_scale=64.0)
    big = wg.tensor([60000.0], dtype=wg.float16)
    grads = scaler.scale((a + b * big).astype(wg.float32).sum()).backward()
    assert [scaler.step(o, grads) for o in opts] == [True, False]
    scaler.update()
    assert scaler.get_scale() == 32.0 and a.item() == 0.0 and b.item() == 1.0


def test_a_static_scale():
    w = half([1.0])
    scaler = wg.GradScaler(loss_scaler=wg.StaticLossScaler(2.0**20))
    opt = wg.optim.SGD([w], lr=1.0)
    assert not scaler.step(opt, scaler.scale((w * w).sum()).backward())
    scaler.update()
    assert scaler.get_scale() == 2.0**20 and scaler.skipped_steps == 1
    with pytest.raises(
        wg.ArgumentError, match="loss_scaler must be a StaticLossScaler or a DynamicLossScaler, got float"
    ):
        wg.GradScaler(loss_scaler=128.0)


def test_compiled_losses_follow_the_scale():
    w = wg.Parameter([2.0])
    scaler = wg.GradScaler(init_scale=4.0, growth_interval=1)
    opt = wg.optim.SGD([w], lr=0.0)
    f = wg.compile(wg.grad(lambda w: scaler.scale((w * w).sum())))
    for expected in (16.0, 32.0, 64.0):
        g = f(w.detach())
        assert g.item() == expected
        scaler.step(opt, [g])
        scaler.update()


def test_containers_of_losses_and_what_is_no_loss():
    w = wg.Parameter([2.0])
    scaler = wg.GradScaler(init_scale=4.0)
    out = scaler.scale({"a": (w * w).sum(), "b": [w.sum()]})
    assert out["a"].item() == 16.0 and out["b"][0].item() == 8.0
    with pytest.raises(wg.ArgumentError, match=r"the loss must be a floating tensor, got int64\(\)"):
        scaler.scale(wg.tensor(3))
    with pytest.raises(wg.ArgumentError, match="the loss must be a floating tensor, got float"):
        scaler.scale(3.0)


def test_steps_and_updates_out_of_order():
    w = wg.Parameter([2.0])
    opt, scaler = wg.optim.SGD([w], lr=0.1), wg.GradScaler()
    with pytest.raises(wg.GradientError, match="no step was made since the last update"):
        scaler.update()
    with pytest.raises(wg.GradientError, match="no parameter of the optimizer has a gradient"):
        scaler.step(opt)
    grads = scaler.scale((w * w).sum()).backward()
    scaler.step(opt, grads)
    with pytest.raises(wg.GradientError, match="stepped already; call update"):
        scaler.step(opt, grads)
    with pytest.raises(wg.ArgumentError, match="takes an optimizer, got Parameter"):
        scaler.step(w, grads)


def test_state():
    scaler = wg.GradScaler(init_scale=64.0, growth_interval=3)
    w = wg.Parameter([2.0])
    opt = wg.optim.SGD([w], lr=0.0)

    def step(s):
        s.step(opt, s.scale((w * w).sum()).backward())
        s.update()

    step(scaler)
    step(scaler)
    other = wg.GradScaler(growth_interval=3)
    other.load_state_dict(scaler.state_dict())
    step(scaler)
    step(other)
    assert other.state_dict() == scaler.state_dict() and other.get_scale() == 128.0
    with pytest.raises(wg.ArgumentError, match="missing: loss_scaler"):
        other.load_state_dict({"steps": 1, "skipped_steps": 0})


# --------------------------------------------------------------------------------------------------------- reports


def test_no_overflow():
    assert wg.GradScaler().report() == "no overflow in 0 steps; the scale is 65536"


def overflowing(x, first, second):
    h = x @ first
    small = h * wg.tensor(2.0**-10, dtype=wg.float16)
    return (small @ second).astype(wg.float32).sum()


def test_the_first_operation_of_backward_and_its_layer():
    first, second = half(np.full((2, 2), 0.5)), half(np.full((2, 2), 20000.0))
    opt = wg.optim.SGD([("encoder.weight", first), ("decoder.weight", second)], lr=0.1)
    scaler = wg.GradScaler(init_scale=16.0)
    x = wg.tensor(np.ones((1, 2)), dtype=wg.float16)
    grads = scaler.scale(overflowing(x, first, second)).backward()
    assert not scaler.step(opt, grads)
    text = scaler.report()
    assert "step 1 overflowed at a scale of 16 and was skipped" in text
    line = overflowing.__code__.co_firstlineno + 3
    assert "first: the derivative of matmul at " in text and f"test_scaler.py:{line}" in text
    assert "the nearest parameter is decoder.weight float16(2, 2)" in text
    assert "1 of 2 gradients are not finite: encoder.weight float16(2, 2)" in text


def test_an_overflow_in_the_gradient_of_a_weight_alone():
    w = half([1.0])
    scaler = wg.GradScaler(init_scale=64.0)
    x = wg.tensor([30000.0], dtype=wg.float16)
    assert not scaler.step(wg.optim.SGD([w], lr=1.0), scaler.scale((w * x).astype(wg.float32).sum()).backward())
    assert "the derivative of mul at" in scaler.report()


def test_an_overflow_in_forward():
    w = half([12.0])
    scaler = wg.GradScaler(init_scale=1.0)
    net = wg.ParameterDict(w=w)
    loss = wg.exp(w).astype(wg.float32).sum()
    assert not scaler.step(wg.optim.SGD([w], lr=1.0), scaler.scale(loss).backward())
    text = scaler.report(net)
    assert "the loss is not finite; the first operation that made such a value: exp at" in text
    assert "the nearest parameter is w" in text


def test_what_is_never_finite_is_an_error_at_last():
    w = half([12.0])
    scaler = wg.GradScaler(init_scale=2.0**-23)
    opt = wg.optim.SGD([w], lr=1.0)
    scaler.step(opt, scaler.scale(wg.exp(w).sum()).backward())
    scaler.update()
    scaler.step(opt, scaler.scale(wg.exp(w).sum()).backward())
    with pytest.raises(wg.GradientError, match=r"(?s)overflow at every scale down to.*exp at"):
        scaler.update()


def test_watching_leaves_nothing_behind():
    w = wg.Parameter(wg.ones((1000,)))
    opt = wg.optim.SGD([w], lr=0.0)
    calls = []
    w.register_hook(lambda g: calls.append(1))

    def run():
        scaler = wg.GradScaler()
        grads = scaler.scale((w * w).sum()).backward(retain_graph=True)
        scaler.step(opt, grads)
        scaler.update()

    run()
    gc.collect()
    before = wg.memory_stats().live_bytes
    for _ in range(3):
        run()
    gc.collect()
    assert wg.memory_stats().live_bytes == before and len(calls) == 4
