"""Transformations in every order, against derivatives written by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg


def s(x: float) -> wg.Tensor:
    return wg.tensor(x, dtype=wg.float64)


# d/dx of a scalar function of a scalar, by every mechanism there is.
def by_grad(f: Any) -> Any:
    return wg.grad(f)


def by_jvp(f: Any) -> Any:
    return lambda x: wg.jvp(f, (x,), (wg.ones_like(x),))[1]


def by_vjp(f: Any) -> Any:
    def derivative(x: Any) -> Any:
        y, pull = wg.vjp(f, x)
        return pull(wg.ones_like(y))[0]

    return derivative


def by_linearize(f: Any) -> Any:
    return lambda x: wg.linearize(f, x)[1](wg.ones_like(x))


def by_tape(f: Any) -> Any:
    def derivative(x: Any) -> Any:
        with wg.GradientTape() as tape:
            v = tape.watch(x) if not x.requires_grad else x
            y = f(v)
        return tape.gradient(y, v)

    return derivative


def by_jacfwd(f: Any) -> Any:
    return wg.jacfwd(f)


def by_jacrev(f: Any) -> Any:
    return wg.jacrev(f)


def compiled(f: Any) -> Any:
    """Not a derivative: what it wraps must differentiate as before."""
    return wg.compile(f)


FUNCTIONS: list[tuple[str, Callable[[Any], Any], list[Callable[[float], float]]]] = [
    ("x^4", lambda x: x * x * x * x, [lambda x: 4 * x**3, lambda x: 12 * x**2, lambda x: 24 * x]),
    ("sin", wg.sin, [math.cos, lambda x: -math.sin(x), lambda x: -math.cos(x)]),
    (
        "x exp",
        lambda x: x * wg.exp(x),
        [lambda x: (x + 1) * math.exp(x), lambda x: (x + 2) * math.exp(x), lambda x: (x + 3) * math.exp(x)],
    ),
    ("1/x", lambda x: 1.0 / x, [lambda x: -(x**-2), lambda x: 2 * x**-3, lambda x: -6 * x**-4]),
    (
        "pow",
        lambda x: x**2.5,
        [lambda x: 2.5 * x**1.5, lambda x: 3.75 * x**0.5, lambda x: 1.875 * x**-0.5],
    ),
    (
        "tanh",
        wg.tanh,
        [
            lambda x: 1 - math.tanh(x) ** 2,
            lambda x: -2 * math.tanh(x) * (1 - math.tanh(x) ** 2),
            lambda x: (1 - math.tanh(x) ** 2) * (6 * math.tanh(x) ** 2 - 2),
        ],
    ),
    (
        "reduced",
        lambda x: (x * wg.tensor([1.0, 2.0, 3.0], dtype=wg.float64)).prod(),
        [lambda x: 18 * x**2, lambda x: 36 * x, lambda x: 36.0],
    ),
    (
        "indexed",
        lambda x: wg.stack([x, x * x, x * x * x])[1:].sum(),
        [lambda x: 2 * x + 3 * x**2, lambda x: 2 + 6 * x, lambda x: 6.0],
    ),
]
DERIVATIVES = [by_grad, by_jvp, by_vjp, by_linearize]
AT = 0.7


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("name", "f", "exact"), FUNCTIONS, ids=[n for n, _, _ in FUNCTIONS])
def test_every_nesting(name: str, f: Any, exact: Any, order: int) -> None:
    for chain in itertools.product(DERIVATIVES, repeat=order):
        g = f
        for d in chain:
            g = d(g)
        label = " over ".join(d.__name__ for d in reversed(chain))
        assert g(s(AT)).item() == pytest.approx(exact[order - 1](AT), rel=1e-9), label


@pytest.mark.parametrize(("name", "f", "exact"), FUNCTIONS, ids=[n for n, _, _ in FUNCTIONS])
def test_jacobians_and_tapes_nest(name: str, f: Any, exact: Any) -> None:
    for chain in itertools.product([by_tape, by_jacfwd, by_jacrev, by_grad, by_jvp], repeat=2):
        g = chain[1](chain[0](f))
        label = " over ".join(d.__name__ for d in reversed(chain))
        assert g(s(AT)).item() == pytest.approx(exact[1](AT), rel=1e-9), label


@pytest.mark.parametrize(("name", "f", "exact"), FUNCTIONS, ids=[n for n, _, _ in FUNCTIONS])
def test_compile_anywhere(name: str, f: Any, exact: Any) -> None:
    """compile before, between and after derivatives."""
    for first, second in itertools.product([by_grad, by_jvp, by_vjp], repeat=2):
        for places in itertools.product([False, True], repeat=3):
            g = compiled(f) if places[0] else f
            g = first(g)
            g = compiled(g) if places[1] else g
            g = second(g)
            g = compiled(g) if places[2] else g
            label = f"{first.__name__} {second.__name__} compiled at {places}"
            assert g(s(AT)).item() == pytest.approx(exact[1](AT), rel=1e-9), label


# ------------------------------------------------------------------- perturbation confusion (Siskind and Pearlmutter)


@pytest.mark.parametrize("inner", DERIVATIVES)
@pytest.mark.parametrize("outer", DERIVATIVES)
def test_derivative_of_a_derivative_by_another_variable(outer: Any, inner: Any) -> None:
    """d/dx (x · d/dy (x + y)) = 1."""
    f = lambda x: x * inner(lambda y: x + y)(s(1.0))
    assert outer(f)(s(1.0)).item() == 1.0


@pytest.mark.parametrize("inner", DERIVATIVES)
@pytest.mark.parametrize("outer", DERIVATIVES)
def test_product_inside(outer: Any, inner: Any) -> None:
    """d/dx (x · d/dy (x · y)|y=2) = 2x."""
    f = lambda x: x * inner(lambda y: x * y)(s(2.0))
    assert outer(f)(s(3.0)).item() == 6.0


@pytest.mark.parametrize("inner", DERIVATIVES)
@pytest.mark.parametrize("outer", DERIVATIVES)
def test_inner_point_depends_on_the_outer_variable(outer: Any, inner: Any) -> None:
    """d/dx [d/dy (y³ x)|y=x] = d/dx 3x³ = 9x²."""
    f = lambda x: inner(lambda y: y * y * y * x)(x)
    assert outer(f)(s(2.0)).item() == 36.0


@pytest.mark.parametrize("d", DERIVATIVES)
def test_closures_that_escape(d: Any) -> None:
    """The amazing bug (Manzyuk et al., 2019): d of a curried shift, applied twice, is not confused."""
    shift = lambda u: lambda f: lambda x: f(x + u)

    def derivative_of_shift(at: Any) -> Any:
        return lambda f: lambda x: d(lambda u: shift(u)(f)(x))(at)

    dhat = derivative_of_shift(s(0.0))
    assert dhat(dhat(wg.exp))(s(1.0)).item() == pytest.approx(math.e)


def test_three_levels_of_three_kinds() -> None:
    """x³y²z, each by its own variable and mode."""
    f = lambda x, y, z: x * x * x * y * y * z
    g = by_jvp(lambda x: by_grad(lambda y: by_vjp(lambda z: f(x, y, z))(s(5.0)))(s(3.0)))
    assert g(s(2.0)).item() == 3 * 4 * 2 * 3


@pytest.mark.filterwarnings("ignore:.*does not depend on the argument")
def test_inner_gradient_of_an_outer_constant_is_zero() -> None:
    x = s(2.0)
    for d in DERIVATIVES:
        assert d(lambda y: x * 3.0)(s(1.0)).item() == 0.0
        assert d(lambda y: d(lambda z: y * 3.0)(s(1.0)))(s(1.0)).item() == 0.0


def test_leaves_of_an_eager_graph_inside_transformations() -> None:
    w = wg.tensor(3.0, dtype=wg.float64, requires_grad=True)
    inner = wg.grad(lambda x: w * x * x)(s(2.0))
    assert inner.item() == 12.0
    assert inner.backward()[w].item() == 4.0
    y, pull = wg.vjp(lambda x: w * x * x, s(2.0))
    assert (y * pull(s(1.0))[0]).backward()[w].item() == pytest.approx(2 * 3 * 4 * 4.0)


def test_high_order() -> None:
    """The sixth derivative of x^6, in alternating modes."""
    g = lambda x: x * x * x * x * x * x
    for k in range(6):
        g = (by_grad if k % 2 else by_jvp)(g)
    assert g(s(0.3)).item() == pytest.approx(720.0)


def test_tower_of_exponentials() -> None:
    g = lambda x: wg.exp(x * 0.5)
    for _ in range(5):
        g = wg.grad(g)
    assert g(s(1.0)).item() == pytest.approx(0.5**5 * math.exp(0.5))


def test_nested_over_vectors() -> None:
    a = np.random.default_rng(0).standard_normal((3, 3))
    f = lambda x: wg.tanh(wg.asarray(a) @ x).sum()
    x = wg.tensor([0.1, -0.2, 0.3], dtype=wg.float64)
    h = wg.hessian(f)(x).numpy()
    t = np.tanh(a @ x.numpy())
    np.testing.assert_allclose(h, a.T @ np.diag(-2 * t * (1 - t**2)) @ a, atol=1e-12)
    np.testing.assert_allclose(wg.jacfwd(wg.jacrev(f))(x).numpy(), h, atol=1e-12)
    np.testing.assert_allclose(wg.jacrev(wg.jacfwd(f))(x).numpy(), h, atol=1e-12)
    np.testing.assert_allclose(wg.jacfwd(wg.jacfwd(f))(x).numpy(), h, atol=1e-12)
    np.testing.assert_allclose(wg.jacrev(wg.jacrev(f))(x).numpy(), h, atol=1e-12)


POLYNOMIALS: dict[str, tuple[Any, list[float]]] = {  # derivatives at 0, from the first on
    "x·x·x": (lambda x: x * x * x, [0, 0, 6, 0]),
    "x²·x": (lambda x: wg.square(x) * x, [0, 0, 6, 0]),
    "x·x·x·x": (lambda x: x * x * x * x, [0, 0, 0, 24]),
    "x sin x": (lambda x: x * wg.sin(x), [0, 2, 0, -4]),
    "x·x / (1 + x)": (lambda x: x * x / (1.0 + x), [0, 2, -6, 24]),
    "tanh x · x": (lambda x: wg.tanh(x) * x, [0, 2, 0, -8]),
}


@pytest.mark.filterwarnings("ignore:.*does not depend on the argument")  # the last ones are constants
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_high_orders_at_zero(name: str) -> None:
    """Tangents that are 0 there still have derivatives of their own: strong zero must not lose them."""
    f, exact = POLYNOMIALS[name]
    for order, expected in enumerate(exact, 1):
        for chain in itertools.product((by_grad, by_jvp), repeat=order):
            g = f
            for derivative in chain:
                g = derivative(g)
            assert g(s(0.0)).item() == pytest.approx(expected, abs=1e-12), (order, chain)


@pytest.mark.parametrize("inner", [by_grad, by_vjp, by_linearize, by_jvp, by_jacfwd, by_jacrev])
@pytest.mark.parametrize("outer", [by_jvp, by_jacfwd, by_grad, by_vjp, by_jacrev])
def test_no_grad_around_transformations_changes_nothing(inner: Any, outer: Any) -> None:
    """It ends what is recorded around them, not what they differentiate."""
    with wg.no_grad():
        assert outer(inner(lambda x: wg.sin(x) * x))(s(0.7)).item() == pytest.approx(
            2 * math.cos(0.7) - 0.7 * math.sin(0.7), rel=1e-12
        )
        value, slope = wg.jvp(wg.value_and_grad(lambda x: x**3), (s(2.0),), (s(1.0),))[1]
        assert (value.item(), slope.item()) == (12.0, 12.0)
