"""Dense Jacobians and Hessians in as many passes as colours: the same matrices, from fewer passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.transforms.sparse_programs import CASES, Case, at, broyden_tridiagonal, rosenbrock
from wengert.transforms import compressed, jacobian


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small matrices are searched for colours, too."""
    monkeypatch.setattr(compressed, "LEAST", 1)
    monkeypatch.setattr(jacobian, "LEAST", 1)


def _near(got: Any, expected: Any) -> None:
    for a, b in zip(wg.tree.leaves(got), wg.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-11, atol=1e-11)


def _instructions(f: Any, *args: Any) -> str:
    compiled = wg.compile(f)
    compiled(*args)
    return str(compiled.report()[0])


def _plan(f: Any, *args: Any) -> Any:
    everything = wg.SchedulerConfig(forward_mode_threshold=1e9, reverse_mode_threshold=1e-9)
    return wg.HybridScheduler(everything).plan(f, *args)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_known_programs(case: Case) -> None:
    f = case.function if case.what == "jacobian" else wg.grad(case.function)
    expected = wg.jacrev(f)(case.point)
    made = wg.hessian(case.function) if case.what == "hessian" else wg.jacobian(case.function)
    _near(made(case.point), expected)
    _near(wg.compile(made)(case.point), expected)


def test_as_many_passes_as_colours() -> None:
    x = at(60)
    assert "[3, 60]" in _instructions(wg.hessian(rosenbrock), x)
    assert "[60, 60] = slice" not in _instructions(wg.hessian(rosenbrock), x)
    chosen = _plan(broyden_tridiagonal, at(600))
    assert chosen.passes == 3 and chosen.colouring.n_colours == 3
    assert "3 passes, one for each colour, for 600 outputs by 600 inputs" in str(chosen)
    assert "[3, 600]" in _instructions(wg.jacobian(broyden_tridiagonal), at(600))


def test_dense_patterns_are_left_alone() -> None:
    w = at(40, 40)
    assert _plan(lambda x: wg.tanh(x @ w), at(40)).colouring is None
    assert _plan(lambda x: wg.sin(x) * x.sum(), at(40)).colouring is None
    text = _instructions(wg.hessian(lambda x: wg.exp(x.mean()) * x.sum()), at(40))
    assert "[n0_0, n0_0]" in text  # and its sizes stay open


def test_one_mode_that_is_asked_for_has_all_passes() -> None:
    x = at(600)
    for mode in ("forward", "reverse"):
        assert wg.HybridScheduler(wg.SchedulerConfig(mode)).plan(broyden_tridiagonal, x).passes == 600


def test_other_sizes_find_other_colours() -> None:
    made = wg.compile(wg.hessian(rosenbrock))
    for n in (12, 40, 12, 25):
        x = at(n)
        _near(made(x), wg.jacrev(wg.grad(rosenbrock))(x))
        _near(wg.hessian(rosenbrock)(x), made(x))


def test_what_was_traced_for_few_does_not_serve_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small matrix has no colours looked for, and one that is dense at its size may be a band at another."""
    monkeypatch.setattr(compressed, "LEAST", 64)
    monkeypatch.setattr(jacobian, "LEAST", 64)

    def band(x: Any) -> Any:
        padded = wg.pad(x, ((20, 20),))
        return sum(wg.sin(padded[k : k + x.shape[0]]) * (k + 1) for k in range(0, 41, 2))

    for f, sizes in ((wg.hessian(rosenbrock), (10, 400)), (wg.jacobian(band), (10, 70, 400))):
        made = wg.compile(f)
        for n in sizes:
            made(at(n))
        texts = [str(report) for report in made.report()]
        assert len(texts) == len(sizes)
        assert ["index_put" in text for text in texts].count(True) == 1  # the entries of the largest are spread


def test_indices_from_outside_are_not_read() -> None:
    """A compiled function sees other indices later, so an element may be any."""
    x, order = at(12), wg.asarray(np.arange(12))
    gathered = wg.compile(lambda x, i: wg.hessian(lambda x: (x[i] ** 3 * x).sum())(x))
    outside = wg.compile(wg.hessian(lambda x: (x[order] ** 3 * x).sum()))
    for moved in (np.arange(12), np.arange(12)[::-1].copy(), np.zeros(12, np.int64)):
        order[:] = wg.asarray(moved)
        expected = wg.jacfwd(wg.grad(lambda x: (x[order] ** 3 * x).sum()))(x)
        _near(gathered(x, order), expected)
        _near(outside(x), expected)


def test_containers() -> None:
    def f(p: Any) -> Any:
        return (p["a"] ** 3).sum() + (p["a"].flatten()[:9] * p["b"] ** 2).sum()

    p = {"a": at(3, 4), "b": at(9)}
    _near(wg.hessian(f)(p), wg.jacfwd(wg.grad(f))(p))
    both = lambda p: (wg.sin(p["a"]), {"x": p["b"] * p["a"].flatten()[:9]})
    _near(wg.jacobian(both)(p), wg.jacrev(both)(p))
    two, a, b = (lambda a, b: a * b[:, None]), at(4, 5), at(4)
    _near(wg.jacobian(two, argnums=(0, 1))(a, b), wg.jacrev(two, argnums=(0, 1))(a, b))


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_in_chunks(chunk: int) -> None:
    x = at(20)
    _near(wg.hessian(rosenbrock, chunk=chunk)(x), wg.jacrev(wg.grad(rosenbrock))(x))
    _near(wg.jacobian(broyden_tridiagonal, chunk=chunk)(x), wg.jacrev(broyden_tridiagonal)(x))


@pytest.mark.parametrize(
    "matrix", [wg.hessian(rosenbrock), wg.jacobian(wg.grad(rosenbrock))], ids=["hessian", "jacobian"]
)
def test_differentiates_again_and_nests(matrix: Any) -> None:
    x, v = at(9), at(9)
    plain = wg.jacrev(wg.grad(rosenbrock))
    pairs = [
        (lambda m: wg.jvp(m, (x,), (v,))[1]),
        (lambda m: wg.grad(lambda x: (m(x) ** 2).sum())(x)),
        (lambda m: wg.jacfwd(m)(x)),
        (lambda m: wg.jacrev(m)(x)),
        (lambda m: wg.vmap(m)(wg.stack([x, v]))),
        (lambda m: wg.vmap(wg.grad(lambda x: m(x)[0].sum()))(wg.stack([x, v]))),
        (lambda m: wg.linalg.solve(m(x), v)),
    ]
    for of in pairs:
        expected = of(plain)
        _near(of(matrix), expected)
        _near(wg.compile(lambda of=of: of(matrix))(), expected)


def test_derivatives_outside_the_pattern_are_zero_where_others_are_no_numbers() -> None:
    x = at(12).numpy().copy()
    x[5] = np.nan
    h = wg.hessian(rosenbrock)(wg.asarray(x)).numpy()
    assert np.isnan(h[5, 5]) and h[0, 5] == 0 and np.isfinite(h[7:, 7:]).all()


@pytest.mark.parametrize("dtype", [wg.float32, wg.float16, wg.bfloat16])
def test_dtypes(dtype: Any) -> None:
    x = wg.astype(wg.linspace(0.1, 0.9, 16), dtype)
    made = wg.compile(wg.hessian(lambda x: (x[1:] * x[:-1] ** 2).sum()))(x)
    expected = wg.jacrev(wg.grad(lambda x: (x[1:] * x[:-1] ** 2).sum()))(x)
    assert made.dtype == dtype
    np.testing.assert_allclose(made.astype(wg.float32).numpy(), expected.astype(wg.float32).numpy(), rtol=0.02)


def test_random_numbers_and_writes_are_those_of_one_run() -> None:
    x = at(20)

    def noisy(x: Any) -> Any:
        return (x**3 * wg.rand(20, dtype=wg.float64)).sum()

    def written(x: Any) -> Any:
        y = x * x
        y[3:] = y[3:] * x[:-3]
        return y.sum()

    wg.manual_seed(7)
    expected = wg.jacrev(wg.grad(noisy))(x)
    wg.manual_seed(7)
    _near(wg.hessian(noisy)(x), expected)
    _near(wg.hessian(written)(x), wg.jacrev(wg.grad(written))(x))
