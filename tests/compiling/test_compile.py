"""Compiled functions: when they trace, what they capture, what they refuse."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core


def test_another_batch_size_does_not_trace_again() -> None:
    calls = []

    @wg.compile
    def f(x: Any, w: Any) -> Any:
        calls.append(1)
        return wg.softmax(wg.tanh(x @ w))

    w = wg.randn(5, 3)
    for n in (2, 7, 64, 3):
        x = wg.randn(n, 5)
        np.testing.assert_allclose(f(x, w).numpy(), wg.softmax(wg.tanh(x @ w)).numpy(), rtol=1e-6)
    assert len(calls) == len(f.traces) == 1


def test_another_batch_size_does_not_derive_again() -> None:
    @wg.compile
    def f(x: Any, w: Any) -> Any:
        return (wg.softmax(x @ w) * wg.arange(3, dtype=wg.float64)).sum()

    w = wg.tensor(np.random.default_rng(0).standard_normal((5, 3)), requires_grad=True)
    for n in (2, 9, 4):
        x = wg.tensor(np.random.default_rng(n).standard_normal((n, 5)))
        got = f(x, w).backward(inputs=[w])[w].numpy()
        eager = (wg.softmax(x @ w) * wg.arange(3, dtype=wg.float64)).sum().backward(inputs=[w])[w].numpy()
        np.testing.assert_allclose(got, eager, rtol=1e-12, atol=1e-14)
    assert len(f.traces) == 1
    assert len(f.traces[0].derivations) == 1


@pytest.mark.parametrize("first", [(4, 0), (0, 0), (2, 3)])
def test_rules_that_look_at_sizes_are_derived_for_those_of_the_call(first: tuple[int, int]) -> None:
    def f(x: Any) -> Any:
        return wg.cumprod(x, axis=-1)

    def noisy(x: Any) -> Any:
        return f(x) * wg.rand(x.shape[0], generator=generator, dtype="float64")[:, None]

    a = np.random.default_rng(0).uniform(0.5, 1.5, (2, 5))
    g = wg.compile(f)
    g(wg.tensor(np.ones(first)))  # not recorded: the derivative is made for the next call
    expected = wg.grad(lambda x: f(x).sum())(wg.tensor(a)).numpy()
    np.testing.assert_allclose(wg.grad(lambda x: g(x).sum())(wg.tensor(a)).numpy(), expected, rtol=1e-12)
    drawn = []
    for h in (noisy, wg.compile(noisy)):
        generator = wg.Generator(seed=3)
        h(wg.tensor(np.ones(first)))
        drawn.append([wg.grad(lambda x: h(x).sum())(wg.tensor(a)).numpy() for _ in range(2)])
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=1e-12)


def test_sizes_of_one_trace_again() -> None:
    """A size of 1 broadcasts: it is another program."""
    f = wg.compile(lambda x, y: x + y)
    assert f(wg.ones((3, 2)), wg.ones((3, 2))).shape == (3, 2)
    assert f(wg.ones((3, 2)), wg.ones((1, 2))).shape == (3, 2)
    assert f(wg.ones((3, 2)), wg.ones((3, 1))).shape == (3, 2)
    assert f(wg.ones((5, 2)), wg.ones((1, 2))).shape == (5, 2)
    assert len(f.traces) == 3


def test_guards_trace_again_where_they_fail() -> None:
    def f(x: Any) -> Any:
        return x * 2.0 if x.shape[0] > 4 else x * 3.0

    g = wg.compile(f)
    for n in (2, 3, 5, 9, 4, 6):
        assert g(wg.ones((n,))).tolist() == f(wg.ones((n,))).tolist()
    assert len(g.traces) == 2


def test_equal_sizes_by_chance() -> None:
    """Traced with two sizes that happened to be equal; then they differ."""
    f = wg.compile(lambda x, y: (x.sum() * y).reshape((y.shape[0],)))
    assert f(wg.ones((3,)), wg.ones((3,))).tolist() == [3.0] * 3
    assert f(wg.ones((2,)), wg.ones((4,))).tolist() == [2.0] * 4
    g = wg.compile(lambda x, y: x + y)
    assert g(wg.ones((3,)), wg.ones((3,))).tolist() == [2.0] * 3
    with pytest.raises(wg.ShapeError):
        g(wg.ones((3,)), wg.ones((4,)))
    assert g(wg.ones((4,)), wg.ones((4,))).tolist() == [2.0] * 4


def test_dtypes_and_ranks_trace_again() -> None:
    f = wg.compile(lambda x: x * 2.0)
    for x in (wg.ones((3,)), wg.ones((3,), dtype=wg.float64), wg.ones((3, 2)), wg.ones(())):
        y = f(x)
        assert y.dtype == x.dtype and y.shape == x.shape
    assert len(f.traces) == 4


def test_static_arguments() -> None:
    @wg.compile
    def f(x: Any, n: int, *, flag: bool = False) -> Any:
        return x * float(n) if flag else x + float(n)

    x = wg.ones((2,))
    assert f(x, 3).tolist() == [4.0, 4.0]
    assert f(x, 4).tolist() == [5.0, 5.0]
    assert f(x, 3, flag=True).tolist() == [3.0, 3.0]
    assert f(x, 3).tolist() == [4.0, 4.0]
    assert len(f.traces) == 3


def test_one_and_true_are_different_static_values() -> None:
    f = wg.compile(lambda x, n: x * (2.0 if n is True else 5.0))
    assert f(wg.ones((1,)), True).tolist() == [2.0]
    assert f(wg.ones((1,)), 1).tolist() == [5.0]
    assert f(wg.ones((1,)), 1.0).tolist() == [5.0]


def test_containers() -> None:
    f = wg.compile(lambda p, k: {"y": p["w"] * p["b"][0], "k": k})
    p = {"w": wg.ones((2,)), "b": [wg.full((2,), 3.0)]}
    out = f(p, 7)
    assert out["y"].tolist() == [3.0, 3.0]
    assert int(out["k"]) == 7
    assert f({"w": wg.ones((4,)), "b": [wg.full((4,), 2.0)]}, 7)["y"].tolist() == [2.0] * 4


def test_captured_tensors_are_inputs() -> None:
    w = wg.tensor([2.0, 3.0], requires_grad=True)
    f = wg.compile(lambda x: (x * w).sum())
    assert f(wg.ones((2,))).item() == 5.0
    with wg.no_grad():
        w += 1.0
    assert f(wg.ones((2,))).item() == 7.0, "a captured tensor is read at every call"
    assert f(wg.tensor([1.0, 10.0])).backward()[w].tolist() == [1.0, 10.0]


def test_results_are_not_views_of_arguments() -> None:
    x = wg.ones((2, 2))
    for f in (lambda a: a, lambda a: a.T, lambda a: a[0], lambda a: (a, a)):
        out = wg.compile(f)(x)
        first = out[0] if isinstance(out, tuple) else out
        first += 5.0
        assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_the_same_result_twice() -> None:
    a, b = wg.compile(lambda x: (x * 2.0,) * 2)(wg.ones((2,)))
    a += 1.0
    assert b.tolist() == [2.0, 2.0]


def test_constants_as_results() -> None:
    y, n = wg.compile(lambda x: (x, 3.5))(wg.ones((2,)))
    assert float(n) == 3.5
    z = wg.compile(lambda x: wg.zeros(x.shape))
    assert z(wg.ones((3,))).shape == (3,) and z(wg.ones((5,))).shape == (5,)


def test_refusals() -> None:
    x = wg.ones((2,))
    for bad in (
        lambda a: a if a.sum() > 0 else -a,
        lambda a: float(a.sum()) * a,
        lambda a: a.sum().item() * a,
        lambda a: wg.asarray(a.numpy()),
        lambda a: "text",
        lambda a: object(),
        lambda a: a[a > 0],
    ):
        with pytest.raises((wg.TraceError, wg.WengertError)):
            wg.compile(bad)(x)
    with pytest.raises(wg.TraceError, match="hashable"):
        wg.compile(lambda a, s: a)(x, {1, 2})
    assert wg.compile(lambda a: a * 2.0)(x).tolist() == [2.0, 2.0]


def test_tracers_that_escape() -> None:
    kept = []

    def f(x: Any) -> Any:
        kept.append(x * 2.0)
        return x

    wg.compile(f)(wg.ones((2,)))
    with pytest.raises((wg.WengertError, TypeError)):
        kept[0].numpy()
    with pytest.raises(wg.WengertError):
        (kept[0] + 1.0).tolist()


def test_errors_while_tracing_leave_no_trace_open() -> None:
    with pytest.raises(wg.ShapeError):
        wg.compile(lambda x: x @ wg.ones((7, 7)))(wg.ones((2, 3)))
    assert wg.zeros((2,)).tolist() == [0.0, 0.0]
    assert wg.compile(lambda x: x + wg.ones(x.shape))(wg.ones((2,))).tolist() == [2.0, 2.0]


def test_compiled_inside_compiled() -> None:
    inner = wg.compile(lambda x: wg.tanh(x) * 2.0)
    outer = wg.compile(lambda x: inner(x) + inner(x * 2.0))
    x = wg.tensor([0.5], dtype=wg.float64)
    expected = 2 * np.tanh(0.5) + 2 * np.tanh(1.0)
    assert outer(x).item() == pytest.approx(expected)
    assert wg.grad(lambda z: outer(z).sum())(x).item() == pytest.approx(
        2 * (1 - np.tanh(0.5) ** 2) + 4 * (1 - np.tanh(1.0) ** 2)
    )


def test_random_numbers_are_not_frozen_into_a_program() -> None:
    """Drawn anew at every call, or refused; never the same numbers twice."""
    f = wg.compile(lambda x: x + wg.rand(3))
    try:
        a, b = f(wg.zeros((3,))), f(wg.zeros((3,)))
    except wg.TraceError:
        return
    assert a.tolist() != b.tolist()


C = wg.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.mark.filterwarnings("ignore:.*does not depend on the argument")  # that of where
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * C,
        lambda x: wg.tanh(x) * wg.tensor([1.0, 2.0, 3.0, 4.0]),
        lambda x: wg.where(x > 0, C, 0.0),
        lambda x: x * wg.tensor([1, 2, 3, 4]),
        lambda x: x * wg.broadcast_to(C, x.shape),
        lambda x: wg.concat([x, wg.broadcast_to(C, (x.shape[0], 4))]),
        lambda x: x * C[: x.shape[1]],
        lambda x: x + C.reshape((1, x.shape[1])),
        lambda x: x.sum(axis=0) + wg.broadcast_to(C[0], (x.shape[1],)),
    ],
)
def test_captured_tensors_meet_sizes_of_arguments(f: Any) -> None:
    g = wg.compile(f)
    for n in (2, 3, 7):
        x = wg.tensor(np.random.default_rng(n).standard_normal((n, 4)), dtype=wg.float32)
        assert g(x).tolist() == f(x).tolist()
        np.testing.assert_allclose(
            wg.grad(lambda z: g(z).sum())(x).numpy(), wg.grad(lambda z: f(z).sum())(x).numpy(), rtol=1e-6
        )
    assert len(g.traces) == 1


def test_one_instruction_on_the_tape() -> None:
    f = wg.compile(lambda x: (wg.tanh(x * 2.0) + 1.0).sum())
    x = wg.tensor([1.0], requires_grad=True)
    y = f(x)
    node, _ = _core.node_of(y)
    assert [e[0].is_leaf for e in node.edges] == [True]


def test_reports() -> None:
    f = wg.compile(lambda x, w: wg.softmax(x @ w))
    f(wg.ones((4, 5)), wg.ones((5, 6)))
    (report,) = f.report()
    assert report.gemms == 1 and report.passes == 2
    assert "matmul" in report.program and "matrix products" in str(report)


def test_run_counters_count_runs(executor: None) -> None:
    f = wg.compile(lambda x, w: wg.tanh(x @ w) + 1.0)
    x, w = wg.ones((4, 5)), wg.ones((5, 6))
    f(x, w)
    before = _core.run_counters()
    f(x, w)
    after = _core.run_counters()
    assert tuple(b - a for a, b in zip(before, after)) == (2, 1, 1)


def test_second_order_with_residuals() -> None:
    """What a compiled function keeps has a past: reverse over reverse must see it."""
    rng = np.random.default_rng(0)
    w1, w2 = wg.tensor(rng.standard_normal((3, 4))), wg.tensor(rng.standard_normal((4, 2)))

    def f(x: Any) -> Any:
        h = wg.tanh(x @ w1)
        return (wg.softmax(h @ w2) * wg.tensor([1.0, -2.0], dtype=wg.float64)).sum() + wg.prod(h[0])

    x = wg.tensor(rng.standard_normal((2, 3)))
    v = wg.tensor(rng.standard_normal((2, 3)))
    twice = lambda g: wg.grad(lambda z: (wg.grad(g)(z) * v).sum())(x).numpy()
    expected = wg.hvp(f, x, v).numpy()
    np.testing.assert_allclose(twice(f), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(twice(wg.compile(f)), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(wg.hvp(wg.compile(f), x, v).numpy(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(wg.compile(wg.grad(f))(x).numpy(), wg.grad(f)(x).numpy(), rtol=1e-9, atol=1e-12)


def test_second_order_with_another_size() -> None:
    f = wg.compile(lambda x: wg.prod(wg.tanh(x)) + (wg.softmax(x) * x).sum())
    for n in (3, 5, 2):
        x = wg.tensor(np.linspace(0.2, 0.9, n))
        v = wg.ones_like(x)
        got = wg.grad(lambda z: (wg.grad(f)(z) * v).sum())(x).numpy()
        np.testing.assert_allclose(got, wg.hvp(f, x, v).numpy(), rtol=1e-9)


def test_threads_share_a_compiled_function() -> None:
    f = wg.compile(lambda x: (wg.softmax(x) * x).sum())
    failures: list[Any] = []

    def work(k: int) -> None:
        try:
            for n in range(2, 30):
                x = wg.tensor(np.linspace(0, 1, n + k), requires_grad=True)
                got = f(x).backward()[x].numpy()
                expected = (wg.softmax(x) * x).sum().backward(inputs=[x])[x].numpy()
                np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_a_dropped_function_is_freed() -> None:
    gc.collect()
    before = _core.memory_stats()["live_bytes"]
    w = wg.tensor(np.ones(10_000))
    f = wg.compile(lambda x: x * w)  # noqa: F821  (w is deleted below)
    f(wg.tensor(np.ones(10_000)))
    del f, w
    gc.collect()
    assert _core.memory_stats()["live_bytes"] == before


def test_a_function_that_refers_to_itself_is_collected() -> None:
    def make() -> None:
        w = wg.tensor(np.ones(10_000))

        def body(x: Any) -> Any:
            assert f is not None
            return x * w

        f = wg.compile(body)
        f(wg.tensor(np.ones(10_000)))

    gc.collect()
    before = _core.memory_stats()["live_bytes"]
    make()
    gc.collect()
    assert _core.memory_stats()["live_bytes"] == before


@pytest.mark.parametrize("n", [0, 1, 63, 64, 1024, 1025, 4096])
@pytest.mark.parametrize("form", ["packed", "transposed", "scalar operand", "shared"])
def test_one_block_and_many_give_the_same_bits(n: int, form: str) -> None:
    """Small groups of packed operands run in one block; everything else block by block."""

    @wg.compile
    def f(x: Any, y: Any) -> Any:
        z = wg.tanh(x * y) + 0.5
        return z * x, z - y

    rng = np.random.default_rng(n)
    x = wg.tensor(rng.normal(size=(2, n)).astype("float32"))
    y = wg.tensor(rng.normal(size=(2, n)).astype("float32"))
    if form == "transposed":
        x = wg.tensor(np.ascontiguousarray(x.numpy().T)).T
    elif form == "scalar operand":
        y = wg.tensor(np.float32(0.25))
    elif form == "shared":
        y = x
    z = wg.tanh(x * y) + 0.5
    for got, expected in zip(f(x, y), (z * x, z - y)):
        assert got.shape == expected.shape
        assert got.numpy().tobytes() == expected.numpy().tobytes()


def test_gradients_in_one_block_do_not_write_over_what_is_still_needed() -> None:
    """The cotangent's memory serves for a result only where nobody else sees it."""
    x = wg.tensor(np.linspace(-1.0, 1.0, 8), requires_grad=True)
    y = wg.tensor(np.linspace(2.0, 1.0, 8), requires_grad=True)
    seed = wg.tensor(np.arange(1.0, 9.0))
    grads = (x * y).backward(seed)
    np.testing.assert_array_equal(seed.numpy(), np.arange(1.0, 9.0))
    np.testing.assert_array_equal(grads[x].numpy(), seed.numpy() * y.numpy())
    np.testing.assert_array_equal(grads[y].numpy(), seed.numpy() * x.numpy())
    z = x + y  # both cotangents are the seed itself
    grads = (z * z).backward(seed)
    np.testing.assert_array_equal(grads[x].detach().numpy(), 2 * seed.detach().numpy() * z.detach().numpy())
    np.testing.assert_array_equal(grads[y].numpy(), grads[x].numpy())


def test_duals_run_a_compiled_pushforward() -> None:
    """Forward mode of a compiled function is a compiled function: Python runs once per signature, at every order."""
    calls = []

    @wg.compile
    def f(x: Any, scale: float, *, pair: Any) -> Any:
        calls.append(x)
        return {"a": wg.tanh(x * pair[0]) * scale, "b": (pair[1] + 1, wg.argmax(x))}

    x, v, w = (wg.asarray(np.linspace(-1.0, 1.5, 5) * k) for k in (1.0, 0.5, -2.0))

    def run(z: Any) -> Any:
        return f(z, 3.0, pair=(w, v))

    expected = 3.0 * (1 - np.tanh(x.numpy() * w.numpy()) ** 2) * w.numpy() * v.numpy()
    for _ in range(3):
        y, y_dot = wg.jvp(run, (x,), (v,))
        np.testing.assert_allclose(y_dot["a"].numpy(), expected, rtol=1e-14)
        np.testing.assert_array_equal(y_dot["b"][0].numpy(), np.zeros(5))
        assert y["b"][1].item() == 4
    assert len(calls) == 1
    for _ in range(2):
        second = wg.jvp(lambda z: wg.jvp(run, (z,), (v,))[1]["a"], (x,), (v,))[1]
        t = np.tanh(x.numpy() * w.numpy())
        np.testing.assert_allclose(second.numpy(), -6.0 * t * (1 - t**2) * (w.numpy() * v.numpy()) ** 2, rtol=1e-13)
    assert len(calls) <= 3
    gradient = wg.grad(lambda z: wg.jvp(run, (z,), (v,))[1]["a"].sum())(x)
    np.testing.assert_allclose(gradient.numpy(), -6.0 * t * (1 - t**2) * w.numpy() ** 2 * v.numpy(), rtol=1e-13)


def test_errors_of_a_compiled_function_on_captured_tensors_are_raised() -> None:
    broken = False

    @wg.compile
    def inner(x: Any) -> Any:
        if broken:
            raise ArithmeticError("broken")
        return x * 2.0

    captured = wg.ones((2,))
    inner(captured)
    broken = True  # traced already: only the trace of another function calls it again
    with pytest.raises(ArithmeticError, match="broken"):
        wg.compile(lambda x: x + inner(captured))(wg.ones((2,)))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize(
    "f",
    [
        lambda z: wg.var(z),
        lambda z: wg.var(z, axis=0, correction=1),
        lambda z: wg.std(z, axis=1, keepdims=True),
        lambda z: wg.mean(z, axis=0),
        lambda z: wg.cov(z),
        lambda z: wg.corrcoef(z),
    ],
    ids=["var", "corrected var", "std", "mean", "cov", "corrcoef"],
)
def test_moments_of_complex_numbers(f: Any, dtype: Any) -> None:
    """Counts are real, compiled too."""
    rng = np.random.default_rng(1)
    z = wg.asarray((rng.standard_normal((3, 5)) + 1j * rng.standard_normal((3, 5))).astype(dtype))
    compiled = wg.compile(f)
    got, expected = compiled(z), f(z)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.numpy(), expected.numpy())
    if dtype == np.complex128:
        by_compiled, by_eager = (wg.grad(lambda z, g=g: (wg.abs(g(z)) ** 2).sum())(z) for g in (compiled, f))
        np.testing.assert_allclose(by_compiled.numpy(), by_eager.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, r"branches on .* Use where\(\) or cond\(\) instead of if"),
        (lambda x: x * x.sum().item(), r"reads with item\(\) .* Compute with the tensor itself"),
        (lambda x: x * float(x.sum()), "converts to a Python number .* Compute with the tensor itself"),
        (lambda x: x * int(x.sum()), "converts to a Python number .* Compute with the tensor itself"),
        (lambda x: x * np.sum(x.numpy()), "reads with NumPy .* return the tensor and read it outside"),
        (
            lambda x: [1, 2][x.astype(wg.int64)[0]],
            "takes for a size, an axis or a Python index .* Index with the tensor",
        ),
    ],
    ids=["if", "item", "float", "int", "numpy", "index"],
)
def test_what_reads_data_is_told_its_own_remedy(f: Any, message: str) -> None:
    with pytest.raises(wg.TraceError, match=message) as e:
        wg.compile(f)(wg.ones((3,)))
    assert ("where()" in str(e.value)) == ("branches" in message)
