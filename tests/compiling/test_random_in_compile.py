"""Random numbers inside compiled functions: the numbers that the function would draw without compile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.tensors.random import default_generator

DRAWS: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda x: wg.dropout(x, 0.4),
    "randn": lambda x: x + wg.randn(x.shape),
    "randn float64": lambda x: x + wg.randn(x.shape, dtype=wg.float64),
    "randn complex": lambda x: x + wg.randn(x.shape, dtype=wg.complex64),
    "randn mean": lambda x: wg.randn(x.shape, mean=x, std=2.0),
    "rand": lambda x: x * wg.rand(x.shape),
    "normal": lambda x: x + wg.normal(1.0, 0.5, x.shape),
    "uniform": lambda x: x + wg.uniform(-1.0, 3.0, x.shape),
    "randint": lambda x: x + wg.randint(-3, 9, x.shape),
    "bernoulli": lambda x: x * wg.bernoulli(0.3, x.shape),
    "bernoulli of a tensor": lambda x: wg.bernoulli(wg.sigmoid(x)),
    "permutation": lambda x: x[wg.permutation(x.shape[0])],
    "normal_": lambda x: (x * 1.0).normal_(2.0),
    "several": lambda x: wg.dropout(wg.dropout(x, 0.1) + wg.rand(x.shape[0])[:, None], 0.2) * wg.randn(3)[1],
}


def array(*shape: int) -> Any:
    return wg.asarray(np.random.default_rng(5).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_numbers_as_without_compile(name: str) -> None:
    f = DRAWS[name]
    compiled = wg.compile(f)
    for n in (5, 5, 9, 2, 1):  # one trace for all but the last
        x = array(n, 7)
        wg.manual_seed(11)
        expected = [f(x).numpy() for _ in range(3)]
        state = default_generator.get_state()
        wg.manual_seed(11)
        for y in expected:
            np.testing.assert_array_equal(compiled(x).numpy(), y, strict=True)
        assert default_generator.get_state() == state
    assert len(compiled.traces) <= 3


def test_calls_differ() -> None:
    f = wg.compile(lambda x: wg.dropout(x, 0.5))
    x = wg.ones((100,))
    assert f(x).tolist() != f(x).tolist()


def test_a_function_without_arguments() -> None:
    f = wg.compile(lambda: wg.randn(4))
    wg.manual_seed(2)
    expected = [wg.randn(4).tolist() for _ in range(2)]
    wg.manual_seed(2)
    assert [f().tolist() for _ in range(2)] == expected


def test_generators_from_outside_are_streams_of_their_own() -> None:
    a, b = wg.Generator(seed=1), wg.Generator(seed=2**63 + 5)

    def f(x: Any) -> Any:
        return wg.dropout(x, 0.5, generator=a) + wg.randn(3, generator=b)[0] + wg.rand((), generator=a) + wg.rand(())

    compiled, x, results = wg.compile(f), wg.ones((10,)), []
    for g in (f, compiled):
        a.manual_seed(1), b.manual_seed(2**63 + 5), wg.manual_seed(0)
        results.append(([g(x).tolist() for _ in range(3)], a.get_state(), b.get_state(), default_generator.get_state()))
    assert results[0] == results[1]
    a.set_state((7, 1000))
    assert a.seed == 7 and f(x).tolist() != compiled(x).tolist()  # the next place in the stream, in both


def test_a_generator_as_an_argument() -> None:
    f = wg.compile(lambda x, g: x + wg.randn(3, generator=g))
    for seed in (1, 2):
        first, second = wg.Generator(seed), wg.Generator(seed)
        assert [f(wg.ones(3), first).tolist() for _ in range(2)] == [
            (1 + wg.randn(3, generator=second)).tolist() for _ in range(2)
        ]


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": wg.grad,
    "grad of grad": lambda f: wg.grad(lambda x: (wg.grad(f)(x) ** 2).sum()),
    "jvp": lambda f: lambda x: wg.jvp(f, (x,), (x,))[1],
    "hvp": lambda f: lambda x: wg.hvp(f, x, x * 0.5),
    "value": lambda f: f,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_derivatives_see_the_mask_of_the_forward_pass(transform: str) -> None:
    def f(x: Any) -> Any:
        return (wg.dropout(x * x * x, 0.3) ** 2 * wg.rand(x.shape, dtype=wg.float64)).sum()

    t, x = TRANSFORMS[transform], array(6, 3).astype(wg.float64)
    wg.manual_seed(5)
    expected = [t(f)(x).numpy() for _ in range(2)]
    for g in (t(wg.compile(f)), wg.compile(t(f)), wg.compile(t(wg.compile(f)))):
        wg.manual_seed(5)
        for y in expected:
            np.testing.assert_allclose(g(x).numpy(), y, rtol=1e-12)  # sums may be in another order


def test_backward_after_other_draws() -> None:
    f = wg.compile(lambda x: wg.dropout(x * x, 0.5))
    x = wg.ones((50,), requires_grad=True)
    first, second = f(x), f(x)
    wg.manual_seed(1)  # what was drawn is drawn
    np.testing.assert_array_equal(first.sum().backward()[x].detach().numpy(), 2 * first.detach().numpy() * 0.5 * 2)
    np.testing.assert_array_equal(second.sum().backward()[x].detach().numpy(), 2 * second.detach().numpy())


def test_gradients_against_differences() -> None:
    f = wg.compile(lambda x: (wg.dropout(wg.tanh(x), 0.5) * wg.randn(5, dtype=wg.float64)).sum())
    x, h = np.linspace(-1, 1, 5), 1e-6

    def at(v: Any) -> float:
        wg.manual_seed(9)
        return float(f(wg.asarray(v)))

    wg.manual_seed(9)
    g = wg.grad(f)(wg.asarray(x)).numpy()
    for k in range(5):
        e = np.eye(5)[k] * h
        assert abs(g[k] - (at(x + e) - at(x - e)) / (2 * h)) < 1e-8


def test_threads_share_one_stream() -> None:
    f = wg.compile(lambda x: x + wg.randn(1000))
    x = wg.zeros((1000,))
    f(x)
    wg.manual_seed(4)
    expected = {tuple(wg.randn(1000).tolist()[:4]) for _ in range(40)}
    state = default_generator.get_state()
    wg.manual_seed(4)
    found: list[Any] = []
    workers = [threading.Thread(target=lambda: found.extend(f(x).tolist()[:4] for _ in range(10))) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert {tuple(t) for t in found} == expected and len(found) == 40
    assert default_generator.get_state() == state


def test_seeding_inside_is_refused() -> None:
    g = wg.Generator(seed=0)
    for f in (lambda x: wg.manual_seed(3) and x, lambda x: g.manual_seed(1) and x, lambda x: g.set_state((1, 2)) or x):
        with pytest.raises(wg.TraceError, match="before the call"):
            wg.compile(f)(wg.ones(2))
    with pytest.raises(wg.TraceError, match="cannot be a leaf"):
        wg.compile(lambda x: x + wg.randn(2, requires_grad=True))(wg.ones(2))
    assert wg.compile(lambda x: x * wg.rand(2, requires_grad=False))(wg.ones(2)).shape == (2,)


def test_a_trace_that_fails_draws_nothing() -> None:
    wg.manual_seed(6)
    before = default_generator.get_state()
    with pytest.raises(wg.ShapeError):
        wg.compile(lambda x: wg.randn(3) + x)(wg.ones(4))
    assert default_generator.get_state() == before
