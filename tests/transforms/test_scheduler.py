"""The hybrid scheduler: its choice holds against the work that each mode is seen to do."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.transforms.costs import Work, total, work_of
from wengert.transforms.hybrid import TracedFunction

ANY = wg.SchedulerConfig(forward_mode_threshold=1e9, reverse_mode_threshold=1e-9)  # everything is estimated


def network(*sizes: int, dtype: Any = wg.float32) -> Callable[[Any], Any]:
    rng = np.random.default_rng(0)
    weights = [wg.asarray(rng.normal(size=(a, b)) / np.sqrt(a)).astype(dtype) for a, b in itertools.pairwise(sizes)]

    def f(x: Any) -> Any:
        for w in weights[:-1]:
            x = wg.tanh(x @ w)
        return x @ weights[-1]

    return f


def work(f: Callable[[Any], Any], mode: str, x: Any) -> Work:
    """What the Jacobian does in this mode: counted in its own program, with all rows or columns in it."""
    program = TracedFunction(wg.jacobian(f, mode), [x], "the Jacobian").program
    return total(map(work_of, program.instructions))


def plan(f: Callable[[Any], Any], x: Any, config: wg.SchedulerConfig = ANY) -> Any:
    return wg.HybridScheduler(config).plan(f, x)


GRID = [
    *((n, 40, m) for n in (5, 20, 80, 200) for m in (5, 20, 80, 200)),  # wide → narrow and narrow → wide
    *((150, waist, 150) for waist in (1, 3, 10, 30, 60, 74, 100, 140)),  # inputs = outputs, the waist varied
    *((100, 60, waist, 60, 100) for waist in (2, 8, 25, 50)),
]


def test_choices_hold_against_counted_work() -> None:
    right = 0
    for sizes in GRID:
        f, x = network(*sizes), wg.ones((sizes[0],))
        chosen = plan(f, x)
        counted = {mode: work(f, mode, x).seconds() for mode in ("forward", "reverse", "mixed")}
        best = min(counted.values())
        right += counted[chosen.mode] <= 1.02 * best
        assert counted[chosen.mode] <= 1.3 * min(counted["forward"], counted["reverse"]), (sizes, chosen.mode, counted)
        for mode, predicted in chosen.costs.items():
            assert 0.5 < predicted / counted[mode] < 2.0, (sizes, mode, predicted, counted[mode])
    assert right >= 0.95 * len(GRID), f"{right} of {len(GRID)}"


def test_all_modes_agree() -> None:
    for sizes in ((7, 2, 9), (9, 4, 2, 5, 6)):
        f, x = network(*sizes, dtype=wg.float64), wg.asarray(np.linspace(-1.0, 1.0, sizes[0]))
        expected = wg.jacrev(f)(x).numpy()
        for mode in ("auto", "forward", "reverse", "mixed"):
            for jacobian in (wg.jacobian(f, mode), wg.compile(wg.jacobian(f, mode)), wg.jacobian(f, mode, chunk=2)):
                np.testing.assert_allclose(jacobian(x).numpy(), expected, rtol=1e-12, atol=1e-14)


def test_mixed_mode_of_containers_and_of_a_cut_through_several_values() -> None:
    rng = np.random.default_rng(1)
    a, b = (wg.asarray(rng.normal(size=s)) for s in ((2, 12), (12, 3)))

    def f(p: Any) -> Any:
        s, t = p["u"].sum(), wg.tanh(p["v"] @ b)
        return {"y": wg.sin(s * a[0]) * t.prod(), "z": (wg.exp(s) * t).sum() * a}

    p = {"u": wg.asarray(rng.normal(size=(3, 4))), "v": wg.asarray(rng.normal(size=12))}
    chosen = plan(f, p)
    assert (chosen.mode, chosen.waist) == ("mixed", 3)  # s, t.prod() and the number before `* a`
    assert chosen.passes < min(chosen.inputs, chosen.outputs)
    found, expected = wg.jacobian(f, "mixed")(p), wg.jacfwd(f)(p)
    for name in ("y", "z"):
        for by in ("u", "v"):
            np.testing.assert_allclose(found[name][by].numpy(), expected[name][by].numpy(), rtol=1e-12)


def test_differentiates_again_and_nests() -> None:
    f, x = network(6, 2, 6, dtype=wg.float64), wg.asarray(np.linspace(-1.0, 1.0, 6))
    for mode in ("mixed", "auto"):
        second = wg.grad(lambda x, mode=mode: (wg.jacobian(f, mode)(x) ** 2).sum())(x)
        np.testing.assert_allclose(
            second.numpy(), wg.grad(lambda x: (wg.jacrev(f)(x) ** 2).sum())(x).numpy(), rtol=1e-10
        )
        xs = wg.stack([x, 2.0 * x])
        np.testing.assert_allclose(
            wg.vmap(wg.jacobian(f, mode))(xs)[1].numpy(), wg.jacrev(f)(2.0 * x).numpy(), rtol=1e-12
        )


def test_thresholds_decide_without_an_estimate() -> None:
    assert plan(network(3, 5, 30), wg.ones((3,)), wg.SchedulerConfig()).mode == "forward"
    assert plan(network(30, 5, 3), wg.ones((30,)), wg.SchedulerConfig()).mode == "reverse"
    early = wg.SchedulerConfig(forward_mode_threshold=1.0)
    chosen = plan(network(30, 1, 30), wg.ones((30,)), early)
    assert chosen.mode == "forward" and chosen.costs == {}
    assert plan(network(30, 1, 30), wg.ones((30,)), wg.SchedulerConfig(enable_mixed_mode=False)).mode != "mixed"
    for strategy in ("forward", "reverse", "mixed"):
        assert plan(network(30, 1, 30), wg.ones((30,)), wg.SchedulerConfig(strategy)).mode == strategy


def test_a_plan_prints_itself(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = plan(network(200, 2, 200), wg.ones((200,)))
    printed = capsys.readouterr().out
    assert printed == f"{chosen}\n"
    assert "mixed: 4 passes for 200 outputs by 200 inputs" in printed
    assert "reverse before it, forward after it" in printed
    assert set(chosen.costs) == {"forward", "reverse", "mixed"}
    assert chosen.cut[0].example_size() == 2


def test_functions_that_draw_random_numbers() -> None:
    """They once read streams of numbers that nobody had given them, and ended the process."""
    x = wg.asarray(np.linspace(0.5, 1.5, 7))

    def f(x: Any) -> Any:
        return x**2 * wg.rand(7, dtype=wg.float64)

    wg.manual_seed(3)
    expected = [np.diag(np.asarray(2.0 * x * wg.rand(7, dtype=wg.float64))) for _ in range(2)]
    for jacobian in (wg.jacobian(f), wg.compile(wg.jacobian(f)), wg.compile(wg.jacobian(f, "mixed"))):
        wg.manual_seed(3)
        for once in expected:
            np.testing.assert_allclose(np.asarray(jacobian(x)), once, rtol=1e-12)
    assert plan(f, x).mode in ("forward", "reverse", "mixed")
    wg.manual_seed(3)
    y, (y_dot,) = wg.taylor(f, x, [wg.ones_like(x)])
    np.testing.assert_allclose(np.asarray(y_dot), np.diagonal(expected[0]), rtol=1e-12)


def test_loops_and_branches_have_plans() -> None:
    def f(x: Any) -> Any:
        y = wg.fori_loop(0, 3, lambda _, c: wg.tanh(c) * 2.0, x)
        return wg.cond(y.sum() > 0, lambda y: y[:2], lambda y: y[2:4], y)

    x = wg.asarray(np.linspace(-1.0, 2.0, 5))
    assert plan(f, x).mode in ("forward", "reverse")
    np.testing.assert_allclose(wg.compile(wg.jacobian(f))(x).numpy(), wg.jacfwd(f)(x).numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "fast"}, "strategy must be one of auto, forward, reverse, mixed, got 'fast'"),
        (
            {"forward_mode_threshold": 0.0},
            "forward_mode_threshold .outputs / inputs. must be a positive number, got 0.0",
        ),
        ({"reverse_mode_threshold": float("nan")}, "reverse_mode_threshold .outputs / inputs. must be"),
        ({"forward_mode_threshold": True}, "positive number, got True"),
        ({"forward_mode_threshold": 0.05}, "must be below forward_mode_threshold"),
        ({"enable_mixed_mode": 1}, "enable_mixed_mode must be True or False, got 1"),
    ],
)
def test_configurations_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(wg.ArgumentError, match=message):
        wg.SchedulerConfig(**options)


def test_what_is_no_configuration() -> None:
    with pytest.raises(wg.ArgumentError, match="takes a SchedulerConfig, got str"):
        wg.HybridScheduler("auto")  # type: ignore[arg-type]
    with pytest.raises(
        wg.ArgumentError, match="mode must be 'auto', 'forward', 'reverse', 'mixed' or a SchedulerConfig"
    ):
        wg.jacobian(wg.sin, "sideways")
