"""Elementwise ops beside PyTorch and JAX, at every sample of the registry at which they are differentiable."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from tests.ops.sampling import Differentiable, cases, differentiable
from tests.peers.side_by_side import PARTS, compare
from wengert.registry.record import Op
from wengert.registry.samples import Sample

pytest.importorskip("torch", reason="PyTorch is not installed: make peers")

# Where a peer finds its function of the same meaning.
TORCH_HOMES = ("torch", "torch.special", "torch.nn.functional")
JAX_HOMES = ("jax.numpy", "jax.scipy.special", "jax.nn", "jax.lax")
OTHER_NAMES = {"sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "lgamma": "gammaln"}

# op: what the peers do otherwise, and who is right. These are not compared.
DISAGREEMENTS = {
    "scale": "ours alone: the product with strong zero",
    "unscale": "ours alone: the quotient with strong zero",
    "strong_product": "ours alone: the product with strong zero in both operands",
    "make_complex": "a complex number of two real ones: compared in test_complex.py",
    "trigamma": "polygamma(1, x) there: compared in test_special.py",
    "copy": "in PyTorch and JAX not an op",
    "hard_swish_slope": "in PyTorch and JAX not an op: the derivative of hard_swish, which is compared",
    "gelu_slope": "in PyTorch and JAX not an op: the derivative of gelu, which is compared",
    "gammainc_density": "in PyTorch and JAX not an op: the derivative of gammainc by x, which is compared",
    "betainc_density": "in PyTorch and JAX not an op: the derivative of betainc by x, which is compared",
    **dict.fromkeys(("gammaincinv", "gammainccinv", "betaincinv"), "in neither: SciPy's, compared in tests/functional"),
    "von_mises_icdf": "in neither: VonMises.icdf is compared with SciPy's in tests/stats",
    "nextafter": "without a derivative there; ours is that of x, from which it differs by one unit in the last place",
}
# op: by peer, what it cannot do, or does wrongly.
_DERIVATIVES = ("vjp", "jvp", "second order")
LACKS = {
    "floor_divide": {"torch": _DERIVATIVES},  # not implemented there; the derivative is zero
    "lgamma": {"torch": ("second order",)},  # its trigamma is right to 1e-9 only; ours is SciPy's
    # The same; and JAX's trigamma is wrong for negative numbers, where ours agrees with finite differences.
    "digamma": {"torch": _DERIVATIVES, "jax": _DERIVATIVES},
    # PyTorch's are right to 1e-9 only for large operands, and JAX has no second ones: ours are compared
    # with mpmath's in tests/functional/test_incomplete.py.
    "gammainc": {"torch": PARTS, "jax": ("second order",)},
    "gammaincc": {"torch": PARTS, "jax": ("second order",)},
    "betainc": {"jax": _DERIVATIVES},
    "gelu": {"jax": PARTS},  # an approximation by tanh, unless told otherwise: compared in test_activations.py
    "betaln": {"jax": PARTS},  # right to 2e-8 only for large operands; ours is SciPy's
}


def _found(name: str, homes: tuple[str, ...]) -> Callable[..., Any] | None:
    if find_spec(homes[0].partition(".")[0]) is None:
        return None
    for home in homes:
        for candidate in (name, OTHER_NAMES.get(name, name)):
            function = getattr(import_module(home), candidate, None)
            if callable(function):
                return function  # type: ignore[no-any-return]
    return None


def _comparable(op: Op, sample: Sample) -> bool:
    return op.elementwise and differentiable(op, sample) and op.name not in DISAGREEMENTS and op.jvp != "undefined"


@pytest.mark.parametrize(("op", "sample"), cases(_comparable))
def test_elementwise(op: Op, sample: Sample) -> None:
    f = Differentiable(op, sample)
    torch, jax = _found(op.name, TORCH_HOMES), _found(op.name, JAX_HOMES)
    if find_spec("torch") and find_spec("jax"):
        assert torch or jax, f"{op.name} is in neither peer: give its name there, or its reason in DISAGREEMENTS"

    def theirs(function: Callable[..., Any] | None, module: str, convert: str) -> Callable[..., Any] | None:
        def call(*xs: Any) -> Any:
            given: list[Any] = [getattr(import_module(module), convert)(a) for a in f.inputs]
            for k, x in zip(f.places, xs):
                given[k] = x
            assert function is not None
            return function(*given)

        return None if function is None else call

    compare(
        f,
        arrays=f.xs,
        torch=theirs(torch, "torch", "tensor"),
        jax=theirs(jax, "jax.numpy", "asarray"),
        lacks=LACKS.get(op.name),
    )
