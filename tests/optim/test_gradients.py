"""Clipping, noise, pipelines, accumulation, statistics, and losses that are not numbers."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim
from wengert.optim import transforms as tr


def _pair() -> tuple[Any, Any, wg.GradientMap]:
    p, q = wg.Parameter([3.0, 0.0]), wg.Parameter([[4.0]])
    return p, q, ((p * p).sum() + (q * q).sum()).backward()  # gradients (6, 0) and 8: norm 10


def test_clip_grad_norm_of_maps_and_parameters() -> None:
    p, q, grads = _pair()
    assert wg.clip_grad_norm(grads, 5.0) == pytest.approx(10.0)
    assert np.allclose(grads[p].numpy(), [3.0, 0.0], rtol=1e-6) and p.grad.tolist() == [6.0, 0.0]
    assert wg.clip_grad_norm([p, q], 20.0) == pytest.approx(10.0) and p.grad.tolist() == [6.0, 0.0]
    assert wg.clip_grad_norm(iter([p, q]), 1.0) == pytest.approx(10.0)
    assert np.allclose(q.grad.numpy(), 0.8, rtol=1e-5)
    net = nn.Linear(2, 1)
    net(wg.ones((1, 2))).sum().backward()
    assert wg.clip_grad_norm(net, 0.5) == pytest.approx(math.sqrt(3.0))
    assert wg.clip_grad_norm(net.parameters(), 9.0) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(("kind", "expected"), [(1.0, 14.0), (2.0, 10.0), (3.0, 728 ** (1 / 3)), (math.inf, 8.0)])
def test_other_norms(kind: float, expected: float) -> None:
    _, _, grads = _pair()
    assert wg.clip_grad_norm(grads, 1.0, kind) == pytest.approx(expected)


def test_large_gradients_do_not_overflow() -> None:
    p = wg.Parameter([0.0])
    p.set_grad([1e30])  # its square is no float32
    assert wg.clip_grad_norm([p], 1.0) == pytest.approx(1e30) and p.grad.item() == pytest.approx(1.0)


def test_gradients_that_are_not_finite() -> None:
    p = wg.Parameter([1.0, 1.0])
    p.set_grad([math.nan, 1.0])
    with pytest.raises(wg.GradientError, match="norm of the gradients is nan.*check_finite"):
        wg.clip_grad_norm([p], 1.0, error_if_nonfinite=True)
    assert p.grad.numpy()[1] == 1.0  # nothing was changed
    assert math.isnan(wg.clip_grad_norm([p], 1.0))
    net = nn.Linear(2, 1)
    net.weight.set_grad([[math.inf, 1.0]])
    with pytest.raises(wg.GradientError, match=r"gradient weight float32\(1, 2\) has 1 of 2"):
        tr.check_finite(net)(net)


def test_no_gradients_at_all() -> None:
    assert wg.clip_grad_norm([wg.Parameter([1.0])], 1.0) == 0.0
    assert wg.clip_grad_norm(wg.GradientMap(), 1.0) == 0.0
    assert wg.clip_by_global_norm([], 1.0) == []


def test_gradients_themselves_cannot_be_changed_in_place() -> None:
    for f, instead in ((wg.clip_grad_norm, "clip_by_global_norm"), (wg.clip_grad_value, "clip_by_value")):
        with pytest.raises(wg.ArgumentError, match=f"{f.__name__}.*there is {instead}"):
            f([wg.tensor([3.0])], 1.0)


def test_values_and_pure_forms() -> None:
    p, q, grads = _pair()
    wg.clip_grad_value(grads, 7.0)
    assert grads[q].item() == 7.0 and grads[p].tolist() == [6.0, 0.0]
    tree = {"a": wg.tensor([3.0]), "b": (wg.tensor([[4.0]]),)}
    clipped = wg.clip_by_global_norm(tree, 1.0)
    assert clipped["b"][0].item() == pytest.approx(0.8) and tree["a"].item() == 3.0
    assert wg.clip_by_value([wg.tensor([-3.0, 0.5])], 1.0)[0].tolist() == [-1.0, 0.5]
    small = wg.clip_by_global_norm([wg.tensor([0.25])], 1.0)
    assert small[0].item() == 0.25


def test_pure_clipping_is_differentiable() -> None:
    x = wg.tensor([3.0, 4.0], dtype=wg.float64)
    f = lambda x: wg.clip_by_global_norm([x], 1.0)[0][0]
    g = wg.grad(f)(x).numpy()
    assert np.allclose(g, [16 / 125, -12 / 125], rtol=1e-12)  # d(x/‖x‖)₀


def test_clippers() -> None:
    for mode, expected in [("norm", [0.6, 0.0, 0.8]), ("value", [1.0, 0.0, 1.0]), ("per_layer", [1.0, 0.0, 1.0])]:
        p, q, grads = _pair()
        assert wg.GradientClipper(1.0, mode).clip_grads(grads) is grads
        assert np.allclose([*grads[p].tolist(), grads[q].item()], expected)
    p, q, grads = _pair()
    clipper = wg.GradientClipper(0.1, "adaptive")
    clipper(grads, [p, q])
    assert np.allclose(grads[p].numpy(), [0.3, 0.0], rtol=1e-5) and grads[q].item() == pytest.approx(0.4)
    with pytest.raises(wg.ArgumentError, match="pass the parameters"):
        clipper.clip_grads(_pair()[2])
    clipper.clip_grads([p, q])  # parameters know themselves
    assert q.grad.item() == pytest.approx(0.4)
    for bad in (dict(mode="hard"), dict(limit=0.0)):
        with pytest.raises(wg.ArgumentError):
            wg.GradientClipper(**bad)  # type: ignore[arg-type]
    with pytest.raises(wg.ArgumentError, match="got int"):
        wg.clip_grad_norm([3], 1.0)


def test_pipelines_work_with_every_optimizer() -> None:
    for kind in (optim.SGD, optim.Adam, optim.Adafactor):
        p = wg.Parameter(np.ones((2, 2)))
        pipeline = tr.chain(tr.check_finite(), tr.clip_norm(1.0), tr.each(lambda g: g * 2.0), tr.scale(0.5))
        grads = (p * p).sum().backward()
        before = p.numpy().copy()
        kind([p], lr=0.1).step(pipeline(grads))
        assert np.all(p.numpy() < before)


def test_noise_follows_its_schedule_and_resumes() -> None:
    noisy = tr.chain(tr.scale(1.0), tr.noise(0.5, gamma=0.55, generator=wg.Generator(seed=3)))
    draws = [noisy(wg.zeros((20_000,))).numpy().std() for _ in range(4)]
    assert np.allclose(draws, [math.sqrt(0.5 / t**0.55) for t in range(1, 5)], rtol=0.03)
    state = noisy.state_dict()
    again = tr.chain(tr.scale(1.0), tr.noise(0.5))
    again.load_state_dict(state)
    assert np.array_equal(noisy(wg.zeros((5,))).numpy(), again(wg.zeros((5,))).numpy())


def test_accumulation_equals_a_large_batch() -> None:
    rng = np.random.default_rng(0)
    x, y = (wg.tensor(rng.normal(size=s)) for s in ((12, 3), (12, 2)))
    net = nn.Linear(3, 2, dtype=wg.float64)
    whole = wg.mse_loss(net(x), y).backward()
    accumulator, total = optim.GradientAccumulator(3), None
    for k in range(0, 12, 4):
        assert total is None
        total = accumulator.add(wg.mse_loss(net(x[k : k + 4]), y[k : k + 4]).backward())
    assert total is not None
    for p in net.parameters():
        assert np.allclose(total[p].numpy(), whole[p].numpy(), rtol=1e-12)
    assert accumulator.flush() is None
    accumulator.add(whole)
    assert np.allclose(accumulator.flush()[net.weight].numpy(), whole[net.weight].numpy())  # type: ignore[index]
    with pytest.raises(wg.ArgumentError, match="every"):
        optim.GradientAccumulator(0)


def test_statistics(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    nn.init.constant(net[0].weight, 1.0)
    nn.init.zeros(net[0].bias)
    with wg.no_grad():
        net[0].weight[1] = wg.tensor([-1.0, -1.0])  # this unit is dead on positive data
    frozen = wg.Parameter.ones((2,))
    net.unused = frozen  # type: ignore[attr-defined]
    opt, statistics = optim.SGD(net.parameters(), lr=0.5), optim.GradientStatistics(net)
    grads = net(wg.ones((3, 2))).sum().backward()
    with statistics.watch_step():
        opt.step(grads)
    rows = {row.name: row for row in statistics.collect(grads)}
    first = rows["0.weight"]
    assert first.dead == 0.25 and first.not_finite == 0 and rows["0.bias"].dead == 0.25
    assert first.update_ratio == pytest.approx(0.5 * first.gradient_norm / first.weight_norm, rel=1e-4)
    assert math.isnan(rows["unused"].gradient_norm) and rows["unused"].update_ratio == 0.0
    statistics.print(grads)
    assert "0.weight" in capsys.readouterr().out
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    statistics.print(grads)
    plain = capsys.readouterr().out
    assert plain.splitlines()[0].startswith("parameter") and "25%" in plain and "none" in plain


def test_a_loss_that_is_not_a_number_says_where() -> None:
    net = nn.Linear(2, 1)
    x = wg.ones((3, 2))
    fine = net(x).sum()
    assert optim.check_loss(fine, net) is fine
    hidden = net(x)
    bad = wg.log(hidden - hidden).sum() * 0.0
    with pytest.raises(
        wg.GradientError, match=r"the loss is nan.\n  the first operation .*log at .*test_gradients.py"
    ) as e:
        optim.check_loss(bad, net)
    assert "parameter" not in str(e.value)
    nn.init.constant(net.weight, math.inf)
    with pytest.raises(wg.GradientError, match=r"parameter weight float32\(1, 2\): 2 of 2 elements are not finite"):
        optim.check_loss(net(x).sum(), net)
    loss = net(x).sum()
    loss.backward()
    with pytest.raises(wg.GradientError, match="freed by backward"):
        optim.check_loss(loss)
    with pytest.raises(wg.GradientError, match="nothing was recorded"):
        optim.check_loss(wg.tensor(math.nan))


@pytest.mark.parametrize("n", [2, 3])
def test_operations_are_computed_again_whose_sizes_the_derivative_does_not_need(n: int) -> None:
    f = wg.compile(lambda x: wg.exp(x) + wg.arange(x.shape[0]))
    x = wg.full((n,), 1e3, requires_grad=True)
    with pytest.raises(wg.GradientError, match=r"the first operation that made such a value: exp \(in <lambda>\) at"):
        optim.check_loss(f(x * 1.0).sum())


def test_a_negative_limit_is_refused() -> None:
    """It would turn the gradients around."""
    p = wg.Parameter([3.0, 4.0])
    grads = (p * p).sum().backward()
    for clip in (wg.clip_grad_norm, wg.clip_grad_value, wg.clip_by_global_norm, wg.clip_by_value):
        with pytest.raises(wg.ArgumentError, match="the limit must not be negative, got -1.0"):
            clip([p.grad] if "by" in clip.__name__ else grads, -1.0)
    assert grads[p].tolist() == [6.0, 8.0]
    with pytest.raises(wg.ArgumentError, match="containers of tensors, got int"):
        wg.clip_grad_norm(3, 1.0)
