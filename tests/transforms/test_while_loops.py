"""`while_loop`: values, derivatives of every order and mode, batches, memory, files, bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from wengert import nn

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    return wg.tensor(RNG.normal(size=shape))


X, W = real(3), real(3, 3)
XS = real(5, 3)


def spiral(x: Any, w: Any, checkpoints: int | None = None, most: int = 20) -> Any:
    """A loop whose length depends on the data."""

    def body(carry: Any) -> Any:
        return {"h": wg.sin(carry["h"] @ w) * 1.1 + carry["h"] * 0.9, "count": carry["count"] + 1}

    def goes_on(carry: Any) -> Any:
        return (carry["count"] < most) & ((carry["h"] ** 2).sum() < 20.0)

    made = wg.while_loop(goes_on, body, {"h": x, "count": 0}, checkpoints=checkpoints)
    return (made["h"] * (wg.arange(3) + 1)).sum() * made["count"]


class TestModes:
    def test_values_and_gradients(self) -> None:
        compiled = wg.compile(spiral)
        assert compiled(X, W).item() == spiral(X, W).item()
        expected = fd.gradient(lambda *a: spiral(*map(wg.asarray, a)).item(), [X.numpy(), W.numpy()])
        for g in (wg.grad(spiral, (0, 1)), wg.grad(compiled, (0, 1)), wg.compile(wg.grad(spiral, (0, 1)))):
            for ours, e in zip(g(X, W), expected):
                np.testing.assert_allclose(ours.numpy(), e, rtol=1e-5, atol=1e-6)

    def test_tangents(self) -> None:
        dots = (real(3), real(3, 3))
        expected = wg.jvp(spiral, (X, W), dots)
        for f in (wg.compile(spiral), lambda x, w: wg.compile(spiral)(x, w)):
            for a, b in zip(expected, wg.jvp(f, (X, W), dots)):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
        inside = wg.compile(lambda *a: wg.jvp(spiral, a[:2], a[2:])[1])(X, W, *dots)
        np.testing.assert_allclose(inside.numpy(), expected[1].numpy(), rtol=1e-12)

    def test_second_and_third_order(self) -> None:
        def f(x: Any) -> Any:
            return spiral(x, W)

        compiled, expected = wg.compile(f), wg.hessian(f)(X).numpy()
        for hessian in (
            wg.hessian(compiled),
            wg.jacfwd(wg.grad(compiled)),
            wg.jacrev(wg.grad(compiled)),
            wg.jacrev(wg.jacfwd(compiled)),
            wg.compile(wg.jacrev(wg.grad(f))),
        ):
            np.testing.assert_allclose(hessian(X).numpy(), expected, rtol=1e-9, atol=1e-10)
        third = wg.jacfwd(wg.jacfwd(wg.grad(f)))(X).numpy()
        np.testing.assert_allclose(wg.jacfwd(wg.jacrev(wg.grad(compiled)))(X).numpy(), third, rtol=1e-8, atol=1e-9)

    def test_batches(self) -> None:
        each = [spiral(x, W).item() for x in XS]
        assert len(set(np.round(each, 6))) == len(each)
        np.testing.assert_allclose(wg.vmap(spiral, (0, None))(XS, W).numpy(), each, rtol=1e-13)
        gradients = np.stack([wg.grad(spiral)(x, W).numpy() for x in XS])
        np.testing.assert_allclose(wg.vmap(wg.grad(spiral), (0, None))(XS, W).numpy(), gradients, rtol=1e-11)
        outside = wg.grad(lambda xs: (wg.vmap(spiral, (0, None))(xs, W) * wg.arange(5)).sum())(XS)
        np.testing.assert_allclose(outside.numpy(), gradients * np.arange(5)[:, None], rtol=1e-11)
        hessians = np.stack([wg.hessian(spiral)(x, W).numpy() for x in XS])
        np.testing.assert_allclose(wg.vmap(wg.hessian(spiral), (0, None))(XS, W).numpy(), hessians, rtol=1e-9)

    def test_a_count_of_turns_is_one_for_all_examples(self) -> None:
        def f(x: Any) -> Any:
            table = wg.arange(12).reshape(4, 3) * 0.1

            def body(c: Any) -> Any:
                return wg.sin(c[0]) + table[c[1]], c[1] + 1

            return wg.while_loop(lambda c: c[1] < 4, body, (x, 0))[0]

        mapped = wg.compile(wg.vmap(f))
        np.testing.assert_allclose(mapped(XS).numpy(), np.stack([f(x).numpy() for x in XS]), rtol=1e-12)
        loop = next(i for i in mapped.traces[0].program.instructions if i.op.name.startswith("while"))
        types = [v.type for v in loop.attrs[0][1].inputs[:2]]
        assert [len(t.shape) for t in types] == [2, 0]
        jacobians = wg.vmap(wg.jacrev(f))(XS).numpy()
        np.testing.assert_allclose(jacobians, np.stack([wg.jacfwd(f)(x).numpy() for x in XS]), rtol=1e-10, atol=1e-14)

    def test_no_examples(self) -> None:
        assert wg.vmap(spiral, (0, None))(XS[:0], W).shape == (0,)
        assert wg.vmap(wg.grad(spiral), (0, None))(XS[:0], W).shape == (0, 3)

    def test_no_turns(self) -> None:
        def f(x: Any) -> Any:
            return wg.while_loop(lambda c: (c > 1e9).any(), lambda c: c * 2, x * x).sum()

        for g in (wg.grad(f), wg.grad(wg.compile(f)), wg.compile(wg.grad(f))):
            np.testing.assert_allclose(g(X).numpy(), 2 * X.numpy())


class TestCheckpoints:
    @pytest.mark.parametrize("turns", [0, 1, 4, 5, 9, 17, 40])
    def test_any_number_gives_the_same_gradient(self, turns: int) -> None:
        def f(checkpoints: int | None) -> Any:
            return lambda x, w: spiral(x, 0.3 * w, checkpoints, most=turns)

        expected = wg.grad(f(None), (0, 1))(X, W)
        for checkpoints in (4, 6, 9, 100):
            for g in (wg.compile(wg.grad(f(checkpoints), (0, 1))), wg.grad(f(checkpoints), (0, 1))):
                for ours, e in zip(g(X, W), expected):
                    np.testing.assert_allclose(ours.numpy(), e.numpy(), rtol=1e-10, atol=1e-12)

    def test_second_order(self) -> None:
        expected = wg.hessian(spiral)(X, W).numpy()
        for g in (wg.compile(wg.jacrev(wg.grad(spiral))), wg.jacrev(wg.grad(spiral))):
            np.testing.assert_allclose(g(X, W, 4).numpy(), expected, rtol=1e-9, atol=1e-10)

    def test_long_loops_keep_little(self) -> None:
        def f(x: Any, checkpoints: int | None, n: int) -> Any:
            body = lambda c: (wg.sin(c[0]) * 0.5 + c[0] * 0.6, c[1] + 1)
            return (wg.while_loop(lambda c: c[1] < n, body, (x, 0), checkpoints)[0] ** 2).sum()

        x = wg.tensor(RNG.normal(size=64).astype(np.float32))
        compiled = wg.compile(wg.grad(f), static=("checkpoints", "n"))
        compiled(x, 64, 10)  # what is kept of tracing is not what the loop keeps
        for checkpoints, n, most in ((None, 30_000, 2.5 * 2**20), (64, 9_000, 64 * 300)):
            compiled(x, checkpoints, 10)
            wg.reset_peak()
            before = wg.memory_stats().live_bytes
            compiled(x, checkpoints, n)
            assert wg.memory_stats().peak_bytes - before < most
        x.requires_grad = True
        wg.reset_peak()
        before = wg.memory_stats().live_bytes
        f(x, 32, 2_000).backward()
        assert wg.memory_stats().peak_bytes - before < 200_000

    def test_a_million_turns_in_64_megabytes(self) -> None:
        script = """
import resource, wengert as wg
x = wg.linspace(0.1, 1.0, 64)
def f(x, n):
    return wg.while_loop(lambda c: c[1] < n, lambda c: (c[0] - 1e-6 * c[0], c[1] + 1), (x, 0))[0].sum()
gradient = wg.compile(wg.grad(f), static="n")
gradient(x, 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
g = gradient(x, 1_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, g[0].item(), g[63].item())
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        kilobytes, *slopes = map(float, done.stdout.split())
        assert kilobytes < 64 * 1024
        np.testing.assert_allclose(slopes, np.exp(-1.0), rtol=0.1)  # float32, a million times


class TestNesting:
    def test_a_loop_inside_a_gradient_inside_a_loop(self) -> None:
        """Gradient descent on a function that has a loop itself."""

        def energy(x: Any, a: Any) -> Any:
            y = wg.while_loop(lambda y: (y**2).sum() < 10.0, lambda y: 1.5 * y + 0.1 * wg.sin(a * y), x)
            return ((y - 1.0) ** 2).sum()

        def descend(a: Any) -> Any:
            def body(c: Any) -> Any:
                return c[0] - 0.01 * wg.grad(energy)(c[0], a), c[1] + 1

            return (wg.while_loop(lambda c: c[1] < 4, body, (X, 0))[0] * wg.arange(3)).sum()

        a = wg.tensor(0.7, dtype=wg.float64)
        compiled = wg.compile(descend)
        assert compiled(a).item() == pytest.approx(descend(a).item(), rel=1e-13)
        (expected,) = fd.gradient(lambda a: descend(wg.asarray(a)).item(), [a.numpy()])
        for g in (wg.grad(descend), wg.grad(compiled), wg.compile(wg.grad(descend))):
            np.testing.assert_allclose(g(a).numpy(), expected, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            wg.compile(wg.grad(wg.grad(descend)))(a).numpy(), wg.grad(wg.grad(descend))(a).numpy(), rtol=1e-8
        )

    def test_branches_and_loops_inside(self) -> None:
        def f(x: Any) -> Any:
            def body(c: Any) -> Any:
                y = wg.cond(c[0].sum() > 0, lambda y: wg.sin(y), lambda y: y * y - 0.5, c[0])
                return wg.fori_loop(0, 3, lambda i, y: y + 0.1 * i * x, y), c[1] + 1

            return (wg.while_loop(lambda c: c[1] < 5, body, (x, 0))[0] ** 2).sum()

        for g in (wg.grad, wg.hessian):
            np.testing.assert_allclose(wg.compile(g(f))(X).numpy(), g(f)(X).numpy(), rtol=1e-10)

    def test_on_modules(self) -> None:
        net = nn.Linear(3, 3)
        x = wg.randn(2, 3)

        def run(x: Any) -> Any:
            return wg.while_loop(lambda c: c[1] < 4, lambda c: (wg.tanh(net(c[0])), c[1] + 1), (x, 0))[0].sum()

        @wg.compile
        def step(x: Any) -> Any:
            loss = run(x)
            loss.backward()
            return loss

        expected = run(x).backward()
        expected = [expected[p].numpy().copy() for p in net.parameters()]
        net.zero_grad()
        step(x)
        for p, e in zip(net.parameters(), expected):
            np.testing.assert_allclose(p.grad.numpy(), e, rtol=1e-5, atol=1e-6)
        net.zero_grad()
        wg.while_loop(lambda c: c[1] < 4, lambda c: (wg.tanh(net(c[0])), c[1] + 1), (x, 0), 4)[0].sum().backward()
        for p, e in zip(net.parameters(), expected):
            np.testing.assert_allclose(p.grad.numpy(), e, rtol=1e-5, atol=1e-6)

    def test_many_levels(self) -> None:
        def nested(x: Any, depth: int) -> Any:
            if depth == 0:
                return wg.sin(x)
            return wg.while_loop(lambda c: c[1] < 1, lambda c: (nested(c[0], depth - 1), c[1] + 1), (x, 0))[0]

        f = wg.compile(lambda x: nested(x, 40))
        assert f(X).tolist() == wg.sin(X).tolist()


def test_saved_and_loaded(tmp_path: Path) -> None:
    for k, f in enumerate((spiral, wg.grad(spiral, (0, 1)), wg.jacrev(wg.grad(spiral)))):
        path = tmp_path / f"{k}.wg"
        wg.export(f, X, W, path=path)
        loaded = wg.load_program(path)
        for a, b in zip(wg.tree.leaves(f(X, W)), wg.tree.leaves(loaded(X, W))):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


def test_graphs_have_loops() -> None:
    g = wg.Graph()
    x = g.placeholder("x", (None,), dtype=wg.float64)
    y = wg.while_loop(lambda y: (y**2).sum() < 10.0, lambda y: 1.5 * y, x).sum()
    (dx,) = g.gradients(y, [x])
    for n in (3, 5):
        value, gradient = g.run([y, dx], x=np.full(n, 0.5))
        turns = 0
        while n * (0.5 * 1.5**turns) ** 2 < 10:
            turns += 1
        np.testing.assert_allclose(value, n * 0.5 * 1.5**turns)
        np.testing.assert_allclose(gradient, np.full(n, 1.5**turns))


def test_patterns_of_sparse_derivatives() -> None:
    f = wg.compile(lambda x: wg.while_loop(lambda c: c[1] < 3, lambda c: (c[0] ** 2 * 0.5, c[1] + 1), (x, 0))[0])
    assert wg.jacobian_sparsity(f, X).nnz == 3


class TestBadInput:
    @pytest.mark.parametrize("compiled", [False, True])
    def test_types_that_change(self, compiled: bool) -> None:
        wrap = wg.compile if compiled else lambda f: f
        with pytest.raises(wg.ShapeError, match=r"while_loop.*float64\[(3|n0_0)\].*float64\[(6|2\*n0_0)\]"):
            wrap(lambda x: wg.while_loop(lambda c: c.sum() < 1e9, lambda c: wg.concat([c, c]), x))(
                wg.tensor([1.0, 2, 3], dtype=wg.float64)
            )
        with pytest.raises(wg.DTypeError, match=r"while_loop.*float64\[\].*float32\[\].*astype"):
            wrap(lambda x: wg.while_loop(lambda c: c < 3, lambda c: (c + 1).astype(wg.float32), x))(
                wg.tensor(0.0, dtype=wg.float64)
            )
        with pytest.raises(wg.ArgumentError, match="structure"):
            wrap(lambda x: wg.while_loop(lambda c: c[0] < 3, lambda c: c[0] + 1, (x,)))(wg.tensor(0.0))

    @pytest.mark.parametrize("compiled", [False, True])
    def test_conditions(self, compiled: bool) -> None:
        wrap = wg.compile if compiled else lambda f: f
        with pytest.raises(wg.ShapeError, match=r"cond_fn.*any\(\)"):
            wrap(lambda x: wg.while_loop(lambda c: c < 3, lambda c: c + 1, x))(X)
        with pytest.raises(wg.ArgumentError, match="must return a bool, got str"):
            wrap(lambda x: wg.while_loop(lambda c: "yes", lambda c: c + 1, x))(X)

    def test_arguments(self) -> None:
        with pytest.raises(wg.ArgumentError, match="body_fn must be a function"):
            wg.while_loop(lambda c: False, 3, X)  # type: ignore[arg-type]
        with pytest.raises(wg.ArgumentError, match="init must hold"):
            wg.while_loop(lambda c: False, lambda c: c, ())
        for bad in (3, -1, True, 2.5):
            with pytest.raises(wg.ArgumentError, match="checkpoints must be"):
                wg.while_loop(lambda c: False, lambda c: c, X, checkpoints=bad)  # type: ignore[arg-type]

    def test_draws(self) -> None:
        with pytest.raises(wg.TraceError, match="the same in every turn"):
            wg.compile(lambda x: wg.while_loop(lambda c: c.sum() < 3, lambda c: c + wg.rand(3), x))(X)

    def test_writing_outside(self) -> None:
        total = wg.zeros((3,))

        def body(c: Any) -> Any:
            total.add_(c)
            return c + 1

        with pytest.raises(wg.TraceError, match="from outside in place"):
            wg.compile(lambda x: wg.while_loop(lambda c: c.sum() < 3, body, x))(wg.zeros((3,)))
        assert total.tolist() == [0.0, 0.0, 0.0]

    def test_a_failure_in_a_turn_leaves_nothing_behind(self) -> None:
        @wg.custom_op
        def checked(x: Any) -> Any:
            if x.numpy()[0] > 3:
                raise RuntimeError("in a turn")
            return x + 1

        f = wg.compile(lambda x: wg.while_loop(lambda c: c.sum() < 100, checked, x))
        live = []
        for _ in range(3):
            with pytest.raises(Exception, match="in a turn"):
                f(wg.zeros(3))
            live.append(wg.memory_stats().live_bytes)
        assert live[0] == live[2]


def test_results_are_new_tensors() -> None:
    x = wg.ones(3)
    for y in (
        wg.while_loop(lambda c: c.sum() > 10, lambda c: c * 2, x),
        wg.associative_scan(lambda a, b: a + b, x[:1]),
        wg.scan(lambda c, u: (c, u), x, wg.ones((0, 2)))[0],
    ):
        y += 1
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert wg.scan(lambda c, u: (c, u * c.sum()), x, wg.ones((0, 2)))[1].shape == (0, 2)


def test_loops_of_no_turns_are_recorded_like_others() -> None:
    """Their results are values of their own, not the operands, of which a recorded node would be confused."""
    while_loop = wg.compile(lambda x: (lambda y: (y * y * 0.5, y))(wg.while_loop(lambda c: c.sum() > 99, wg.sin, x)))
    scan = wg.compile(lambda x: (lambda y: (y * y * 0.5, y))(wg.scan(lambda c, u: (c + u, c), x, wg.zeros((0, 3)))[0]))
    seeds = [real(3), real(3)]
    for f in (while_loop, scan):
        x = X.clone().requires_grad_()
        (ours,) = wg.grad_of(f(x), [x], seeds)
        np.testing.assert_allclose(ours.numpy(), seeds[0].numpy() * X.numpy() + seeds[1].numpy(), rtol=1e-12)
