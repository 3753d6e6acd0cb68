"""Jacobians of what tapes recorded: scheduled, counted, compiled when they come again, and recorded where a tape records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.autograd import recorded_jacobian

RNG = np.random.default_rng(0)
W = wg.asarray(RNG.normal(size=(4, 3)))
X = wg.asarray(RNG.normal(size=4))


def f(x: Any) -> Any:
    return wg.tanh(x @ W) * x[0]


EXPECTED = wg.jacrev(f)(X).numpy()


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_jacobian, "_known", type(recorded_jacobian._known)())


def recorded(**options: Any) -> tuple[wg.GradientTape, Any]:
    with wg.GradientTape(**options) as tape:
        y = f(X)
    return tape, y


@pytest.mark.parametrize("strategy", ["auto", "forward", "reverse", "mixed"])
def test_equals_the_transformation_walked_and_compiled(strategy: str) -> None:
    for _ in range(3):  # the first time by native walks, then as a program
        tape, y = recorded(scheduler=wg.SchedulerConfig(strategy))
        np.testing.assert_allclose(tape.jacobian(y, X).numpy(), EXPECTED, rtol=1e-12)
        with pytest.raises(wg.TapeConsumedError):
            tape.jacobian(y, X)


def test_the_plan_says_what_ran() -> None:
    tape, y = recorded(scheduler=wg.SchedulerConfig("forward"))
    assert tape.plan is None
    tape.jacobian(y, X)
    assert tape.plan is not None and (tape.plan.mode, tape.plan.passes) == ("forward", 4)
    tape, y = recorded(scheduler=wg.HybridScheduler(wg.SchedulerConfig("reverse")))
    tape.jacobian(y, X)
    assert tape.plan is not None and (tape.plan.mode, tape.plan.passes) == ("reverse", 3)


def test_mixed_mode_counts_its_passes() -> None:
    down, up = wg.asarray(RNG.normal(size=(200, 2))), wg.asarray(RNG.normal(size=(2, 200)))
    x = wg.asarray(RNG.normal(size=200))
    with wg.GradientTape() as tape:
        y = wg.tanh(x @ down) @ up
    found = tape.jacobian(y, x)
    assert tape.plan is not None and (tape.plan.mode, tape.plan.passes) == ("mixed", 4)
    np.testing.assert_allclose(found.numpy(), wg.jacrev(lambda x: wg.tanh(x @ down) @ up)(x).numpy(), rtol=1e-10)


def test_recordings_that_read_the_same_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[int] = []
    monkeypatch.setattr(recorded_jacobian, "_jacobian_of", _counting(traces, recorded_jacobian._jacobian_of))
    for _ in range(4):
        x = wg.asarray(RNG.normal(size=4))
        with wg.GradientTape() as tape:
            y = f(x)
        np.testing.assert_allclose(tape.jacobian(y, x).numpy(), wg.jacrev(f)(x).numpy(), rtol=1e-12)
    assert len(traces) == 1


def _counting(traces: list[int], made: Any) -> Any:
    def jacobian_of(*args: Any) -> Any:
        traces.append(1)
        return made(*args)

    return jacobian_of


def test_several_sources_intermediates_and_what_is_unconnected() -> None:
    for _ in range(2):
        with wg.GradientTape(persistent=True) as tape:
            h = wg.sin(X)
            y = h * h[0]
        other = wg.ones((2,))
        by_x, by_h, nothing = tape.jacobian(y, [X, h, other])
        assert nothing is None
        np.testing.assert_allclose(by_h.numpy(), wg.jacrev(lambda h: h * h[0])(wg.sin(X)).numpy(), rtol=1e-12)
        np.testing.assert_allclose(by_x.numpy(), wg.jacrev(lambda x: wg.sin(x) * wg.sin(x)[0])(X).numpy(), rtol=1e-12)
        assert tape.jacobian(X, X).tolist() == np.eye(4).tolist()
        assert tape.jacobian(wg.ones((2,)), X) is None


def test_watched_handles_and_leaves() -> None:
    for _ in range(2):
        tape = wg.GradientTape(persistent=True)
        v = tape.watch(X)
        y = f(v)
        np.testing.assert_allclose(tape.jacobian(y, v).numpy(), EXPECTED, rtol=1e-12)
        np.testing.assert_allclose(tape.jacobian(y, X).numpy(), EXPECTED, rtol=1e-12)
        leaf = wg.asarray(X.numpy().copy()).requires_grad_()
        with wg.GradientTape() as tape:
            y = f(leaf)
        np.testing.assert_allclose(tape.jacobian(y, leaf).numpy(), EXPECTED, rtol=1e-12)
        assert leaf.grad is None


def test_what_was_overwritten_since() -> None:
    for _ in range(2):
        x = wg.asarray(X.numpy().copy())
        with wg.GradientTape() as tape:
            y = f(x)
        x += 1.0
        with pytest.raises(wg.InPlaceError, match="was changed in place"):
            tape.jacobian(y, x)


def test_detached_branches_and_custom_ops() -> None:
    cube = wg.custom_op(lambda x: wg.asarray(x.numpy() ** 3))
    cube.defvjp(lambda y_bar, y, x: 3 * x**2 * y_bar)
    for _ in range(2):
        with wg.GradientTape(persistent=True) as tape:
            y = X * X.detach()
            z = cube(X)
        np.testing.assert_allclose(tape.jacobian(y, X).numpy(), np.diag(X.numpy()))
        np.testing.assert_allclose(tape.jacobian(z, X).numpy(), np.diag(3 * X.numpy() ** 2))


def test_second_order() -> None:
    for _ in range(2):
        with wg.GradientTape() as outer:
            with wg.GradientTape() as inner:
                y = f(X)
            j = inner.jacobian(y, X)
            s = (j * j).sum()
        expected = wg.grad(lambda x: (wg.jacrev(f)(x) ** 2).sum())(X)
        np.testing.assert_allclose(outer.gradient(s, X).numpy(), expected.numpy(), rtol=1e-10)

    def inside(x: Any) -> Any:
        with wg.GradientTape() as tape:
            y = f(x)
        return (tape.jacobian(y, x) ** 2).sum()

    np.testing.assert_allclose(wg.grad(inside)(X).numpy(), expected.numpy(), rtol=1e-10)


def test_jacobians_of_examples() -> None:
    xs = wg.asarray(RNG.normal(size=(5, 4)))
    expected = wg.vmap(wg.jacrev(lambda x: wg.tanh(x @ W)))(xs).numpy()
    for strategy in ("auto", "forward", "reverse"):
        for _ in range(2):
            with wg.GradientTape(scheduler=wg.SchedulerConfig(strategy)) as tape:
                y = wg.tanh(xs @ W)
            found = tape.batch_jacobian(y, xs)
            assert found is not None
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    with wg.GradientTape() as tape:
        y = xs.sum(axis=0)
    with pytest.raises(wg.ShapeError, match=r"batch_jacobian: the first axes of the target, \(4,\), and of the source"):
        tape.batch_jacobian(y, xs)


def test_complex_numbers() -> None:
    z = wg.asarray(RNG.normal(size=3) + 1j * RNG.normal(size=3))
    for g in (lambda z: z * z * z[0], lambda z: wg.abs(z) ** 2):
        for strategy in ("forward", "reverse"):
            for _ in range(2):
                with wg.GradientTape(scheduler=wg.SchedulerConfig(strategy)) as tape:
                    y = g(z)
                np.testing.assert_allclose(tape.jacobian(y, z).numpy(), wg.jacrev(g)(z).numpy(), rtol=1e-12, atol=1e-14)


def test_what_is_no_scheduler() -> None:
    with pytest.raises(wg.ArgumentError, match="GradientTape: takes a SchedulerConfig, got str"):
        wg.GradientTape(scheduler="forward")  # type: ignore[arg-type]


def test_targets_are_single_tensors() -> None:
    x = wg.ones((3,))
    with wg.GradientTape() as tape:
        y = x * x
    with pytest.raises(wg.ArgumentError, match="jacobian: the target must be one tensor, got list"):
        tape.jacobian([y, y], x)  # type: ignore[arg-type]
    with pytest.raises(wg.ArgumentError, match="batch_jacobian: the source must be one tensor, got list"):
        tape.batch_jacobian(y, [x])  # type: ignore[arg-type]
    with pytest.raises(wg.ArgumentError, match="forward_gradient: the target must be one tensor, got tuple"):
        tape.forward_gradient(x, (y,))  # type: ignore[arg-type]
    assert tape.jacobian(y, x).diagonal().tolist() == [2.0, 2.0, 2.0]  # nothing of it was used up
