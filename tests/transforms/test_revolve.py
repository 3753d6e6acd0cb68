"""Loops that keep few carried values: Revolve's schedule, its cost, and derivatives of loops that follow it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.transforms import revolve


@functools.cache
def _fewest(n: int, places: int) -> int:
    """By trying all first parts."""
    if n <= 1:
        return 0
    if places == 1:
        return n * (n - 1) // 2
    return min(m + _fewest(n - m, places - 1) + _fewest(m, places) for m in range(1, n))


@functools.cache
def _steps(n: int, places: int) -> int:
    """That the parts take."""
    *first, (last, _) = revolve.parts(n, places)
    return sum(m + _steps(m, free) for m, free in first) + last - 1


@pytest.mark.parametrize("places", range(1, 9))
def test_no_schedule_takes_fewer_steps(places: int) -> None:
    for n in range(1, 60):
        assert sum(m for m, _ in revolve.parts(n, places)) == n
        assert _steps(n, places) == _fewest(n, places) == revolve.advances(n, places)


def _loss(n: int, checkpoints: int | None, reverse: bool = False, calls: list[int] | None = None) -> Any:
    def f(w: Any, c: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            if calls is not None:
                calls.append(1)
            return wg.tanh(c @ w + x), (c * x).sum()

        c, ys = wg.scan(body, c, xs, reverse=reverse, checkpoints=checkpoints)
        return (c * c).sum() + (ys * wg.arange(n)).sum() / n

    return f


def _arguments(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return tuple(wg.tensor(0.3 * rng.standard_normal(shape)) for shape in ((6, 6), (3, 6), (n, 3, 6)))


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize(("n", "checkpoints", "reverse"), [(7, 3, True), (25, 4, False), (6, 1, False), (5, 9, True)])
def test_gradients(n: int, checkpoints: int, reverse: bool, mode: str) -> None:
    arguments = _arguments(n)
    expected = wg.grad(_loss(n, None, reverse), argnums=(0, 1, 2))(*arguments)
    g = wg.grad(_loss(n, checkpoints, reverse), argnums=(0, 1, 2))
    found = (wg.compile(g) if mode == "compiled" else g)(*arguments)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    # What is carried passes through the same operations; sums over turns are added part by part.
    assert wg.fingerprint(found[1]) == wg.fingerprint(expected[1])


def test_second_derivatives_and_forward_mode() -> None:
    n, arguments = 9, _arguments(9)

    def penalty(checkpoints: int | None) -> Any:
        g = wg.grad(_loss(n, checkpoints))
        return wg.compile(wg.grad(lambda w, c, xs: (g(w, c, xs) ** 2).sum()))(*arguments)

    np.testing.assert_allclose(penalty(3), penalty(None), rtol=1e-10)
    dots = tuple(wg.ones(a.shape, dtype=a.dtype) for a in arguments)
    pushed = [wg.compile(lambda *a, c=c: wg.jvp(_loss(n, c), a, dots))(*arguments) for c in (3, None)]
    np.testing.assert_allclose(pushed[0][1], pushed[1][1], rtol=1e-12)


def test_a_batch_of_loops() -> None:
    w, c, xs = _arguments(8)
    many = wg.stack([c, 2 * c])
    found, expected = (
        wg.compile(wg.vmap(wg.grad(_loss(8, k), argnums=1), in_axes=(None, 0, None)))(w, many, xs) for k in (3, None)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_compiled_loop_keeps_few_values() -> None:
    n, arguments = 400, _arguments(400)
    w, c, xs = arguments[0], wg.zeros((256, 6), dtype=wg.float64), arguments[2][:, :1]
    peaks = {}
    for checkpoints in (None, 10):
        g = wg.compile(wg.grad(_loss(n, checkpoints)))
        g(w, c, xs)
        before = wg.memory_stats().live_bytes
        wg.reset_peak()
        g(w, c, xs)
        peaks[checkpoints] = (wg.memory_stats().peak_bytes - before) / c.nbytes
    assert peaks[None] > n and peaks[10] < 50


def test_python_loops_run_no_more_turns_than_revolve() -> None:
    n, (w, c, xs) = 200, _arguments(200)
    w = wg.Parameter(w)
    for checkpoints in (4, 10, 40):
        calls: list[int] = []
        _loss(n, checkpoints, calls=calls)(w, c, xs).backward()
        assert n < len(calls) <= revolve.advances(n, checkpoints) + n
        w.grad = None


def test_fori_loops() -> None:
    def power(checkpoints: int | None) -> Any:
        return wg.grad(lambda x: wg.fori_loop(0, 12, lambda i, c: c * x + i, wg.tensor(1.0), checkpoints))

    x = wg.tensor(1.1)
    assert power(3)(x).item() == pytest.approx(power(None)(x).item(), rel=1e-6)
    assert wg.compile(power(3))(x).item() == pytest.approx(power(None)(x).item(), rel=1e-6)


@pytest.mark.parametrize("checkpoints", [0, -1, 2.0, True, "4"])
def test_checkpoints_must_be_a_positive_integer(checkpoints: Any) -> None:
    with pytest.raises(wg.ArgumentError, match="scan: checkpoints must be a positive integer or None"):
        wg.scan(lambda c, x: (c, None), wg.ones(3), wg.ones(4), checkpoints=checkpoints)
    with pytest.raises(wg.ArgumentError, match="fori_loop: checkpoints must be"):
        wg.fori_loop(0, 3, lambda i, c: c, wg.ones(3), checkpoints=checkpoints)
