"""Loss scaling in compiled steps: the same bits as op by op, steps that are skipped included."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import wengert as wg
from wengert.program.call_trace import call_trace


def training(opt, of_map, clipped, steps=12, compiled=True, **options):
    """Losses, scales, parameters and counts of some steps that begin with overflows."""
    wg.manual_seed(3)
    net = wg.nn.Sequential(wg.nn.Linear(4, 8), wg.nn.ReLU(), wg.nn.Linear(8, 3))
    optimizer, scaler = opt(net.parameters(), **options), wg.GradScaler(2.0**26, growth_interval=3)
    x, t = wg.randn(steps, 16, 4), wg.randint(0, 3, (steps, 16))

    def step(x, t):
        with wg.autocast(wg.float16):
            loss = wg.cross_entropy(net(x), t)
        grads = scaler.scale(loss).backward()
        if clipped:
            scaler.unscale_(grads if of_map else optimizer)
            wg.clip_grad_norm(grads if of_map else net.parameters(), 0.5)
        made = scaler.step(optimizer, grads if of_map else None)
        scaler.update()
        optimizer.zero_grad()
        return loss, made

    f = wg.compile(step) if compiled else step
    log = []
    for k in range(steps):
        loss, made = f(x[k], t[k])
        log.append((loss.item(), bool(made), scaler.get_scale(), scaler.steps, scaler.skipped_steps))
    entries = optimizer.state_dict()["state"].values()
    state = [v.numpy() if isinstance(v, wg.Tensor) else v for entry in entries for v in entry.values()]
    return log, [p.numpy().copy() for p in net.parameters()], state, (f, scaler)


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("of_map", [False, True])
@pytest.mark.parametrize(
    ("opt", "options"),
    [(wg.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (wg.optim.Adam, {"lr": 0.01}), (wg.optim.Adafactor, {"lr": 0.01})],
)
def test_the_same_bits_as_op_by_op(opt, options, of_map, clipped):
    plain = training(opt, of_map, clipped, compiled=False, **options)
    log, parameters, state, (f, scaler) = training(opt, of_map, clipped, **options)
    assert log == plain[0]
    assert [made for _, made, *_ in log].count(False) == scaler.skipped_steps > 3
    for a, b in zip((*parameters, *state), (*plain[1], *plain[2]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(f.traces) == 1  # another scale is not another program


def doubled(values, init_scale=8.0, dtype=wg.float32):
    """A parameter with an optimizer that subtracts the gradient, and a scaler."""
    w = wg.Parameter(wg.tensor(values, dtype=dtype))
    return w, wg.optim.SGD([w], lr=1.0), wg.GradScaler(init_scale)


def test_update_may_be_called_outside():
    w, opt, scaler = doubled([2.0])
    f = wg.compile(lambda x: scaler.step(opt, scaler.scale((w * x).sum()).backward()))
    assert bool(f(wg.ones(1)))
    with pytest.raises(wg.GradientError, match="this optimizer has stepped already; call update"):
        f(wg.ones(1))
    assert w.tolist() == [1.0]
    scaler.update()
    assert not bool(f(wg.tensor([np.inf])))
    scaler.update()
    assert w.tolist() == [1.0] and (scaler.get_scale(), scaler.skipped_steps) == (4.0, 1)
    assert "1 of 1 gradients are not finite: parameter 0 float32(1,)" in scaler.report()


def test_gradients_that_were_unscaled_before_the_call():
    w, opt, scaler = doubled([2.0])

    @wg.compile
    def finish():
        scaler.step(opt)
        scaler.update()

    for unscaled, after in ((False, 1.5), (True, 1.0), (False, 0.5)):
        scaler.scale((w * 0.5).sum()).backward()
        if unscaled:
            scaler.unscale_(opt)
        finish()
        assert w.tolist() == [after] and w.grad is None


def test_gradients_that_are_unscaled_in_the_call_and_stepped_outside():
    w, opt, scaler = doubled([2.0])

    @wg.compile
    def gradients():
        scaler.scale((w * 0.5).sum()).backward()
        scaler.unscale_(opt)

    gradients()
    assert w.grad.tolist() == [0.5] and scaler.step(opt) and w.tolist() == [1.5]


def test_one_of_two_optimizers_overflows():
    a, b = wg.Parameter(wg.ones(2)), wg.Parameter(wg.ones(3))
    first, second, scaler = wg.optim.Adam([a], lr=0.5), wg.optim.Adam([b], lr=0.5), wg.GradScaler(8.0)

    @wg.compile
    def step(x, y):
        grads = scaler.scale((a * x).sum() + (b * y).sum()).backward()
        made = scaler.step(first, grads), scaler.step(second, grads)
        scaler.update()
        return made

    made = step(wg.ones(2), wg.tensor([1.0, np.nan, 1.0]))
    assert [bool(m) for m in made] == [True, False]
    assert a.tolist() == [0.5, 0.5] and b.tolist() == [1.0, 1.0, 1.0]
    assert scaler.skipped_steps == 1 and scaler.get_scale() == 4.0
    assert first.state_dict()["state"][0]["step"] == 1 and second.state_dict()["state"] == {}


def test_master_weights():
    for compiled in (False, True):
        w, inner, scaler = doubled([1.0], dtype=wg.float16)
        inner.param_groups[0]["lr"] = 2.0**-13
        opt = wg.optim.MasterWeights(inner)

        def step(x):
            scaler.step(opt, scaler.scale((w.astype(wg.float32) * x).sum()).backward())
            scaler.update()

        run = wg.compile(step) if compiled else step
        for x in (1.0, np.inf, 1.0, 1.0, 1.0):
            run(wg.tensor([x]))
        assert w.item() == 1 - 2.0**-11 and scaler.skipped_steps == 1


def test_losses_of_float64_and_a_static_scale():
    w = wg.Parameter(wg.tensor([2.0], dtype=wg.float64))
    opt, scaler = wg.optim.SGD([w], lr=1.0), wg.GradScaler(loss_scaler=wg.StaticLossScaler(0.1))
    seen = wg.compile(lambda: scaler.scale(w.sum()))()
    assert seen.item() == 2.0 * 0.1 and seen.dtype == wg.float64

    @wg.compile
    def step():
        scaler.step(opt, scaler.scale(w.sum()).backward())
        scaler.update()

    step()
    assert w.item() == 2.0 - 0.1 * (1.0 / 0.1)


def test_misuse_is_named():
    w, opt, scaler = doubled([2.0])

    def twice():
        grads = scaler.scale(w.sum()).backward()
        scaler.step(opt, grads)
        scaler.update()
        scaler.scale(w.sum())

    with pytest.raises(wg.TraceError, match=r"GradScaler.scale: called after update in the same compiled function"):
        wg.compile(twice)()

    def again():
        grads = scaler.scale(w.sum()).backward()
        scaler.step(opt, grads)
        scaler.step(opt, grads)

    with pytest.raises(wg.GradientError, match="this optimizer has stepped already"):
        wg.compile(again)()
    with pytest.raises(wg.TraceError, match="a compiled function cannot skip steps of Lookahead"):
        wg.compile(lambda: scaler.step(wg.optim.Lookahead(opt), scaler.scale(w.sum()).backward()))()
    assert w.tolist() == [2.0] and scaler.steps == 0
    assert scaler.step(opt, scaler.scale(w.sum()).backward()) and w.tolist() == [1.0]


def test_the_trace_is_not_kept():
    w, opt, scaler = doubled([2.0])

    def step():
        scaler.scale(w.sum()).backward()
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        traces.append(weakref.ref(call_trace()))

    traces = []
    f = wg.compile(step)
    f()
    gc.collect()
    assert w.tolist() == [1.0] and traces[0]() is None
