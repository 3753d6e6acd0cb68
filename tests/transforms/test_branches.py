"""Branches on data: `cond` and `switch`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from wengert import _core

POSITIVE, NEGATIVE = [0.3, 1.2, -0.4], [0.2, -1.3, -0.7]


def real(*values: Any) -> Any:
    return wg.tensor(list(values), dtype=wg.float64)


def branching(x: Any, w: Any) -> Any:
    return wg.cond(x.sum() > 0, lambda x: (x * x * w).sum(), lambda x: (wg.exp(x) * wg.sin(w)).sum() * 3.0, x)


@pytest.mark.parametrize("values", [POSITIVE, NEGATIVE])
class TestModes:
    w = real(1.5, -0.5, 0.8)

    def test_values(self, values: Any) -> None:
        x = real(*values)
        assert wg.compile(branching)(x, self.w).item() == branching(x, self.w).item()

    def test_reverse(self, values: Any) -> None:
        x = real(*values)
        expected = fd.gradient(lambda a, b: branching(wg.asarray(a), wg.asarray(b)).item(), [x.numpy(), self.w.numpy()])
        for f in (branching, wg.compile(branching)):
            for g, e in zip(wg.grad(f, (0, 1))(x, self.w), expected):
                np.testing.assert_allclose(g.numpy(), e, rtol=1e-6, atol=1e-8)
        leaf = wg.tensor(x, requires_grad=True)
        wg.compile(branching)(leaf, self.w).backward()
        np.testing.assert_allclose(leaf.grad.numpy(), expected[0], rtol=1e-6, atol=1e-8)

    def test_forward(self, values: Any) -> None:
        x, dots = real(*values), (real(0.2, -0.7, 1.1), real(0.5, 0.1, -0.3))
        eager, compiled = (wg.jvp(f, (x, self.w), dots) for f in (branching, wg.compile(branching)))
        for a, b in zip(eager, compiled):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-14)

    def test_higher_orders(self, values: Any) -> None:
        x = real(*values)

        def third(f: Any) -> Any:
            return wg.grad(lambda a: (wg.hessian(f)(a, self.w) * wg.outer(a, a)).sum())(x)

        for order in (lambda f: wg.hessian(f)(x, self.w), lambda f: wg.jacfwd(wg.grad(f))(x, self.w), third):
            eager, compiled = order(branching), order(wg.compile(branching))
            np.testing.assert_allclose(compiled.numpy(), eager.numpy(), rtol=1e-12, atol=1e-14)
        whole = wg.compile(lambda a: wg.hessian(branching)(a, self.w))(x)
        np.testing.assert_allclose(whole.numpy(), wg.hessian(branching)(x, self.w).numpy(), rtol=1e-12)

    def test_a_recorded_program_takes_the_branch_anew(self, values: Any) -> None:
        compiled, x = wg.compile(branching), real(*values)
        with wg.GradientTape() as tape:
            y = compiled(x, self.w)
        program = tape.program(y)
        program.verify()
        for other in (POSITIVE, NEGATIVE):
            assert program(real(*other), self.w).item() == branching(real(*other), self.w).item()
            np.testing.assert_allclose(
                wg.grad(program)(real(*other), self.w).numpy(), wg.grad(branching)(real(*other), self.w).numpy()
            )


def test_only_the_branch_that_is_taken_runs() -> None:
    w = wg.ones((4, 4))
    f = wg.compile(lambda p, x: wg.cond(p, lambda x: x @ w @ w @ w, lambda x: x, x))
    x = wg.ones((4, 4), requires_grad=True)
    for taken, gemms in ((True, 3), (False, 0)):
        f(wg.tensor(taken), x)
        before = _core.run_counters()[2]
        f(wg.tensor(taken), x)
        assert _core.run_counters()[2] - before == gemms


def test_one_trace_serves_other_sizes() -> None:
    f = wg.compile(branching)
    for n in (3, 5, 4):
        x = wg.linspace(-0.4, 1.0, n, dtype=wg.float64)
        w = wg.linspace(0.1, 1.0, n, dtype=wg.float64)
        assert f(x, w).item() == branching(x, w).item()
        np.testing.assert_allclose(wg.grad(f)(x, w).numpy(), wg.grad(branching)(x, w).numpy(), rtol=1e-14)
    assert len(f.traces) == 1


def test_nested_branches() -> None:
    def f(x: Any) -> Any:
        def inner(x: Any) -> Any:
            return wg.cond(x[0] > 1.0, lambda x: x**3, lambda x: wg.tanh(x), x)

        return wg.cond(
            x.sum() > 0, inner, lambda x: wg.switch((x[0] < -1).astype(wg.int64), [wg.sin, wg.cos], x), x
        ).sum()

    compiled = wg.compile(f)
    for values in ([2.0, 1.0], [0.5, 1.0], [-0.5, -1.0], [-2.0, 0.5]):
        x = real(*values)
        assert compiled(x).item() == f(x).item()
        np.testing.assert_allclose(wg.grad(compiled)(x).numpy(), wg.grad(f)(x).numpy(), rtol=1e-14)
        np.testing.assert_allclose(wg.hessian(compiled)(x).numpy(), wg.hessian(f)(x).numpy(), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(wg.compile(wg.grad(f))(x).numpy(), wg.grad(f)(x).numpy(), rtol=1e-14)


def test_switch_takes_the_nearest_branch() -> None:
    branches = [lambda x: x + 1.0, lambda x: x * 10.0, lambda x: -x]
    compiled = wg.compile(lambda k, x: wg.switch(k, branches, x))
    for k, expected in ((-5, 3.0), (0, 3.0), (1, 20.0), (2, -2.0), (9, -2.0)):
        assert wg.switch(k, branches, wg.tensor(2.0)).item() == expected
        assert wg.switch(wg.tensor(k), branches, wg.tensor(2.0)).item() == expected
        assert compiled(wg.tensor(k), wg.tensor(2.0)).item() == expected
        assert compiled(wg.tensor(k, dtype=wg.int32), wg.tensor(2.0)).item() == expected


def test_structures_constants_and_operands_that_are_handed_on() -> None:
    def f(p: Any, x: Any, n: Any) -> Any:
        return wg.cond(
            p, lambda d: {"a": d["x"], "b": (d["x"] * 2.0, 1)}, lambda d: {"a": d["x"] * 0.0, "b": (d["x"], d["n"])},
            {"x": x, "n": n},
        )  # fmt: skip

    compiled = wg.compile(f)
    for p in (True, False):
        x, n = wg.tensor([1.0, 2.0]), wg.tensor(7)
        ours, eager = compiled(wg.tensor(p), x, n), f(p, x, n)
        assert ours["a"].tolist() == eager["a"].tolist() and ours["b"][0].tolist() == eager["b"][0].tolist()
        assert int(ours["b"][1]) == int(eager["b"][1])
        ours["a"].add_(5.0)  # a result is the caller's own
        assert x.tolist() == [1.0, 2.0]


def test_captured_tensors_are_read_in_every_call() -> None:
    scale = wg.tensor([2.0], requires_grad=True)
    f = wg.compile(lambda x: wg.cond(x.sum() > 0, lambda: x * scale, lambda: x - scale).sum())
    x = wg.tensor([1.0, 3.0])
    assert f(x).item() == 8.0
    with wg.no_grad():
        scale.mul_(10.0)
    assert f(x).item() == 80.0
    f(x).backward()
    assert scale.grad.tolist() == [4.0]
    f(-x).backward()
    assert scale.grad.tolist() == [2.0]  # accumulated: 4 - 2


def test_modules_in_branches() -> None:
    small, large = wg.nn.Linear(3, 2), wg.nn.Sequential(wg.nn.Linear(3, 8), wg.nn.Tanh(), wg.nn.Linear(8, 2))

    def loss(x: Any) -> Any:
        return (wg.cond(x.mean() > 0, small, large, x) ** 2).sum()

    for sign in (1.0, -1.0):
        x = sign * wg.ones((4, 3))
        gradients = []
        for f in (loss, wg.compile(loss)):
            for p in (*small.parameters(), *large.parameters()):
                p.grad = None
            f(x).backward()
            taken = small if sign > 0 else large
            gradients.append([p.grad.numpy().copy() for p in taken.parameters()])
        for a, b in zip(*gradients):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_random_numbers_are_drawn_anew_in_every_call() -> None:
    f = wg.compile(lambda p, x: wg.cond(p, lambda x: wg.dropout(x, 0.5, training=True), lambda x: x + wg.randn(64), x))
    x = wg.ones((64,))
    for p in (wg.tensor(True), wg.tensor(False)):
        assert f(p, x).tolist() != f(p, x).tolist()
        wg.manual_seed(3)
        first = f(p, x).tolist()
        wg.manual_seed(3)
        assert f(p, x).tolist() == first


def test_writes_inside_a_branch() -> None:
    def f(x: Any) -> Any:
        def bumped(x: Any) -> Any:
            y = x * 1.0
            y[0] = 5.0
            y[1:].mul_(x[0])
            return y

        return wg.cond(x.sum() > 0, bumped, lambda x: x, x).sum()

    x = real(1.5, 2.0)
    assert wg.compile(f)(x).item() == f(x).item() == 8.0
    assert wg.grad(wg.compile(f))(x).tolist() == wg.grad(f)(x).tolist() == [2.0, 1.5]


def test_no_grad_and_detach_inside_a_branch() -> None:
    def f(x: Any) -> Any:
        def cut(x: Any) -> Any:
            with wg.no_grad():
                scale = x * 3.0
            return (x * scale + x.detach()).sum()

        return wg.cond(x.sum() > 0, cut, lambda x: x.sum(), x)

    x = real(1.0, 2.0)
    assert wg.grad(wg.compile(f))(x).tolist() == wg.grad(f)(x).tolist() == [3.0, 6.0]


def test_complex_numbers() -> None:
    def f(z: Any) -> Any:
        return wg.abs(wg.cond(wg.real(z).sum() > 0, lambda z: z * z, lambda z: wg.exp(z), z)).sum()

    for sign in (1.0, -1.0):
        z = sign * wg.tensor([1.0 + 2.0j, 0.5 - 1.0j], dtype=wg.complex128)
        np.testing.assert_allclose(wg.grad(wg.compile(f))(z).numpy(), wg.grad(f)(z).numpy(), rtol=1e-12)


# --------------------------------------------------------------------------------------------------------------- vmap


def test_batches_of_predicates_and_shared_ones() -> None:
    w = real(1.5, -0.5, 0.8)
    rows = wg.stack([real(*POSITIVE), real(*NEGATIVE), real(1.0, -3.0, 0.5)])

    def loop(f: Any) -> Any:
        return np.stack([f(r, w).numpy() for r in rows])

    for f in (branching, wg.grad(branching), wg.hessian(branching)):
        np.testing.assert_allclose(wg.vmap(f, in_axes=(0, None))(rows, w).numpy(), loop(f), rtol=1e-12, atol=1e-14)
    shared = wg.vmap(lambda x, p: wg.cond(p, lambda: wg.sin(x), lambda: x * x), in_axes=(0, None))
    for p in (True, False):
        expected = np.sin(rows.numpy()) if p else rows.numpy() ** 2
        np.testing.assert_allclose(shared(rows, wg.tensor(p)).numpy(), expected, rtol=1e-15)


# ----------------------------------------------------------------------------------------------------------- bad input


def compiled_cond(true_fn: Any, false_fn: Any) -> Any:
    return wg.compile(lambda x: wg.cond(x.sum() > 0, true_fn, false_fn, x))(wg.ones((3,)))


def test_branches_of_different_types_are_refused() -> None:
    with pytest.raises(
        wg.TraceError, match=r"result 0 is float64\[.*\] of false_fn, float32\[.*\] of true_fn; convert"
    ):
        compiled_cond(lambda x: x, lambda x: x.astype(wg.float64))
    with pytest.raises(wg.TraceError, match=r"branches must return the same types; result 0"):
        compiled_cond(lambda x: x, lambda x: x.sum())
    with pytest.raises(wg.TraceError, match="branches must return the same structure"):
        compiled_cond(lambda x: (x, x), lambda x: x)
    with pytest.raises(wg.TraceError, match="true_fn must return tensors, numbers and containers of them, got str"):
        compiled_cond(lambda x: "yes", lambda x: x)


def test_effects_of_branches_are_refused() -> None:
    state = wg.zeros((3,))
    with pytest.raises(wg.TraceError, match=r"cond: true_fn changes a tensor .* from outside in place \(add_\)"):
        compiled_cond(lambda x: state.add_(x), lambda x: x)
    with pytest.raises(wg.TraceError, match=r"cond: false_fn changes a tensor .* from outside in place \(mul_\)"):
        compiled_cond(lambda x: x, lambda x: x.mul_(2.0))
    w = wg.ones((3,), requires_grad=True)

    def trains(x: Any) -> Any:
        (x * w).sum().backward()
        return x

    with pytest.raises(
        wg.TraceError, match=r"cond: true_fn calls backward\(\), at .*, which a part of a traced function cannot do"
    ):
        compiled_cond(trains, lambda x: x)
    assert state.tolist() == [0.0, 0.0, 0.0] and w.grad is None


def test_arguments_that_make_no_sense() -> None:
    x = wg.ones((3,))
    with pytest.raises(wg.ArgumentError, match="cond: false_fn must be a function, got Tensor"):
        wg.cond(True, lambda: x, x)
    with pytest.raises(wg.ShapeError, match=r"cond: the predicate must be one number, got shape \(3,\); use where"):
        wg.cond(x > 0, lambda: x, lambda: x)
    with pytest.raises(wg.ShapeError, match=r"cond: the predicate must be one number"):
        wg.compile(lambda x: wg.cond(x > 0, lambda: x, lambda: x))(x)
    with pytest.raises(wg.ArgumentError, match="switch: takes a list of functions, at least one"):
        wg.switch(0, [])
    with pytest.raises(wg.ArgumentError, match="switch: branch 1 must be a function, got int"):
        wg.switch(0, [wg.sin, 3], x)
    for index in (0.5, wg.tensor(1.0)):
        with pytest.raises(wg.DTypeError, match="switch: the index must be an integer, got (0.5|1.0)"):
            wg.switch(index, [wg.sin, wg.cos], x)
    with pytest.raises(wg.DTypeError, match="switch: the index must be an integer, got float32"):
        wg.compile(lambda k, x: wg.switch(k, [wg.sin, wg.cos], x))(wg.tensor(1.0), x)


def test_the_remedy_for_an_if_is_named() -> None:
    with pytest.raises(wg.TraceError, match=r"where\(\) or cond\(\)"):
        wg.compile(lambda x: x if x.sum() > 0 else -x)(wg.ones((3,)))
