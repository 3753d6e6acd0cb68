"""Complex functions beside PyTorch and JAX: values, both modes and second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch = pytest.importorskip("torch", reason="compares with PyTorch")
jnp = pytest.importorskip("jax.numpy", reason="compares with JAX")

RNG = np.random.default_rng(5)
Z, W = ((RNG.uniform(-2, 2, 12) + 1j * RNG.uniform(-2, 2, 12)).reshape(3, 4) for _ in range(2))
X = RNG.uniform(0.3, 2.0, (3, 4))

UNARY = [
    *((n, n, n) for n in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")),
    *((n, n, f"arc{n[1:]}") for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh")),
    *((n, n, n) for n in ("abs", "angle", "real", "imag", "reciprocal", "square", "log2", "log10")),
    ("conj", "conj", "conj"),
    ("sign", "sgn", "sign"),
]
_DERIVATIVES = {"jax": ("vjp", "jvp", "second order")}
JAX_IS_WRONG = {
    "sign": _DERIVATIVES,  # zero, but x / |x| turns with x
    "acosh": _DERIVATIVES,  # of the wrong sign where Re x < 0: √(x² − 1) is not √(x − 1) √(x + 1) there
}


@pytest.mark.parametrize(("ours", "theirs", "jaxs"), UNARY, ids=[u[0] for u in UNARY])
def test_functions_of_one_operand(ours: str, theirs: str, jaxs: str) -> None:
    compare(
        getattr(wg, ours),
        arrays=[Z],
        torch=getattr(torch, theirs),
        jax=getattr(jnp, jaxs),
        lacks=JAX_IS_WRONG.get(ours),
        tolerance=1e-9,
    )


BINARY: list[tuple[str, Any]] = [
    ("product", lambda a, b: a * b),
    ("quotient", lambda a, b: a / b),
    ("difference", lambda a, b: a - b),
    ("power", lambda a, b: a**b),
    ("matrix product", lambda a, b: a @ b.T),
]


@pytest.mark.parametrize(("name", "f"), BINARY, ids=[b[0] for b in BINARY])
def test_functions_of_two_operands(name: str, f: Any) -> None:
    def promoting(a: Any, b: Any) -> Any:  # PyTorch multiplies no real matrix by a complex one
        return f(a.to(torch.complex128), b.to(torch.complex128))

    compare(f, arrays=[Z, W], torch=f, jax=f)
    compare(f, arrays=[X, W], torch=promoting, jax=f)  # a real operand is promoted; its cotangent is real
    compare(f, arrays=[Z, X], torch=promoting, jax=f)


def test_reductions() -> None:
    compare(lambda z: wg.prod(z, 1), arrays=[Z], torch=lambda z: z.prod(1), jax=lambda z: jnp.prod(z, 1))
    compare(lambda z: wg.cumsum(z, 1), arrays=[Z], torch=lambda z: z.cumsum(1), jax=lambda z: jnp.cumsum(z, 1))
    compare(lambda z: wg.cumprod(z, 1), arrays=[Z], torch=lambda z: z.cumprod(1), jax=lambda z: jnp.cumprod(z, 1))
    compare(lambda z: wg.mean(z, 0), arrays=[Z], torch=lambda z: z.mean(0), jax=lambda z: jnp.mean(z, 0))
    compare(lambda z: wg.var(z, 0), arrays=[Z], torch=lambda z: z.var(0, correction=0), jax=lambda z: jnp.var(z, 0))
    compare(lambda z: wg.norm(z), arrays=[Z], torch=torch.linalg.norm, jax=jnp.linalg.norm)


def test_a_network_of_complex_numbers() -> None:
    def network(module: Any) -> Any:
        def f(z: Any, w: Any, x: Any) -> Any:
            hidden = module.tanh(z @ w.T)
            return (module.abs(hidden @ z) * x).sum() + module.real(hidden).sum()

        return f

    compare(network(wg), arrays=[Z, W, X], torch=network(torch), jax=network(jnp))


def test_parts() -> None:
    compare(wg.make_complex, arrays=[X, X + 1], torch=torch.complex, jax=lambda a, b: a + 1j * b)
