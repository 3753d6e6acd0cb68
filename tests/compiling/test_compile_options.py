"""What `compile` takes and tells: static arguments, running op by op instead, reports and signatures."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import pytest

import wengert as wg
from wengert import nn


def test_static_arguments_are_known_to_the_function() -> None:
    seen = []

    @wg.compile(static=("n", "name"))
    def f(x: Any, n: int, *, name: str = "a") -> Any:
        seen.append((type(n), n, name))
        return x * n

    assert [f(wg.ones(2), n).tolist() for n in (2, 3, 2, 4)] == [[2.0, 2.0], [3.0, 3.0], [2.0, 2.0], [4.0, 4.0]]
    assert f(wg.ones(2), n=3, name="b").tolist() == [3.0, 3.0]
    assert seen == [(int, 2, "a"), (int, 3, "a"), (int, 4, "a"), (int, 3, "b")], (
        "each is traced once, as a plain number"
    )


def test_static_containers_and_objects() -> None:
    @dataclass(frozen=True)
    class Options:
        scale: float
        powers: tuple[int, ...]

    traced = []

    def f(x: Any, options: Any) -> Any:
        traced.append(options)
        return sum((x**k for k in options.powers), x * 0.0) * options.scale

    compiled = wg.compile(f, static="options")
    for scale in (1.0, 2.0, 1.0, 3.0):
        options = Options(scale, (1, 2))
        assert compiled(wg.ones(2) * 2.0, options).tolist() == [6.0 * scale] * 2
    assert [o.scale for o in traced] == [1.0, 2.0, 3.0]
    by_position = wg.compile(f, static=1)
    assert by_position(wg.ones(2), Options(2.0, (3,))).tolist() == [2.0, 2.0]


def test_static_arguments_that_are_wrong() -> None:
    with pytest.raises(wg.ArgumentError, match=r"static names 'm', .* parameters are x, n"):
        wg.compile(lambda x, n: x * n, static="m")
    with pytest.raises(wg.ArgumentError, match="static is position 2"):
        wg.compile(lambda x, n: x * n, static=2)
    with pytest.raises(wg.ArgumentError, match=r"f: the static argument 'n' holds a tensor"):

        @wg.compile(static="n")
        def f(x: Any, n: Any) -> Any:
            return x * n

        f(wg.ones(2), wg.ones(2))
    with pytest.raises(TypeError, match=r"static argument 'n' .* hashable"):
        f(wg.ones(2), {"a"})


def test_fallback_runs_op_by_op_and_says_so_once() -> None:
    calls = []

    @wg.compile(fallback=True)
    def f(x: Any) -> Any:
        calls.append(1)
        return x * 2 if x.sum() > 0 else -x

    with pytest.warns(UserWarning, match=r"f: .*op by op.*test_compile_options.py:\d+.*cond") as caught:
        assert f(wg.ones(2)).tolist() == [2.0, 2.0]
    assert len(caught) == 1 and len(calls) == 2, "one to trace and one to run"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(-wg.ones(2)).tolist() == [1.0, 1.0] and f(wg.ones((2, 2))).shape == (2, 2)
    assert len(calls) == 4 and "op by op" in repr(f)
    x = wg.ones(2, requires_grad=True)
    assert f(x).sum().backward()[x].tolist() == [2.0, 2.0]
    assert wg.grad(lambda x: f(x).sum())(wg.ones(2)).tolist() == [2.0, 2.0]


def test_fallback_compiles_what_it_can_and_passes_other_errors_on() -> None:
    f = wg.compile(lambda x: x * 2, fallback=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(wg.ones(2)).tolist() == [2.0, 2.0]
    assert len(f.traces) == 1
    g = wg.compile(lambda x: x @ wg.ones((5, 5)), fallback=True)
    with pytest.raises(wg.ShapeError):
        g(wg.ones((2, 2)))
    with pytest.raises(wg.TraceError):
        wg.compile(lambda x: float(x.sum()))(wg.ones(2))


def test_fallback_with_containers() -> None:
    f = wg.compile(lambda d: {"y": d["x"] * 2} if d["x"].sum() > 0 else d, fallback=True)
    with pytest.warns(UserWarning, match="op by op"):
        assert f({"x": wg.ones(2)})["y"].tolist() == [2.0, 2.0]
    assert f({"x": wg.ones(2)})["y"].tolist() == [2.0, 2.0]


def test_a_branch_on_data_names_its_line_and_the_remedy() -> None:
    def f(x: Any) -> Any:
        y = x.sum()
        if y > 0:
            return x
        return -x

    with pytest.raises(wg.TraceError, match=r"branches on .*test_compile_options.py:\d+.*cond\(\)"):
        wg.compile(f)(wg.ones(2))

    def g(x: Any) -> Any:
        while (x**2).sum() > 1e-3:
            x = x * 0.5
        return x

    with pytest.raises(wg.TraceError, match="while_loop"):
        wg.compile(g)(wg.ones(2))


def test_the_report_says_what_a_call_does(executor: None) -> None:
    f = wg.compile(lambda x, w: wg.tanh(x @ w + 1.0))
    f(wg.ones((2, 3)), wg.ones((3, 4)))
    (report,) = f.report()
    assert (report.gemms, report.groups, report.passes, report.tier) == (1, 1, 2, "executor")
    assert report.bytes > 0 and "executor" in str(report)


def test_the_signature_says_what_is_assumed() -> None:
    wg.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    optimizer = wg.optim.Adam(net.parameters())

    @wg.compile
    def step(x: Any, scale: float, mode: str) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = (net(x) * scale).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(wg.ones((2, 3)), 1.0, "a")
    (first,) = step.signature()
    assert first.arguments == ("x: float32[n0_0, 3]", "scale = 1.0", "mode = 'a'")
    assert len(first.captured) == 6 and "float32[4, 3], a leaf" in first.captured
    text = str(first)
    for assumed in ("n0_1 == 3", "Dropout._training is True", ".grad of float32[4, 3] is None", "Adam"):
        assert assumed in text, text
    step(wg.ones((5, 3)), 2.0, "a")
    assert len(step.signature()) == 2
    assert "scale: float64[]" in step.signature()[0].arguments
