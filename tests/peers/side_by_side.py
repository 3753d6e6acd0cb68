"""The same computation here, in PyTorch and in JAX: value, both modes and second order, in float64 or complex128.

`compare(ours, torch=..., jax=..., arrays=[...])` calls each function on the arrays that may be differentiated and asserts
that all four results agree to 1e-10, relative to the largest element. What a peer cannot do (PyTorch has no forward mode
for some ops), or does wrongly, is named in `lacks`, so that nothing is left out silently. JAX is left out where it is not
installed; files of tests begin with `pytest.importorskip("torch", reason=...)`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import wengert as wg

TOLERANCE = 1e-10
PARTS = ("value", "vjp", "jvp", "second order")


class Results(NamedTuple):
    """What is compared: f(x), Jᵀ y_bar, J x_dot, and the gradient of ⟨x_dot, Jᵀ y_bar⟩."""

    value: list[Any]
    vjp: list[Any]
    jvp: list[Any]
    second: list[Any]


def compare(
    ours: Callable[..., Any],
    *,
    arrays: Sequence[Any],
    torch: Callable[..., Any] | None = None,
    jax: Callable[..., Any] | None = None,
    lacks: Mapping[str, Sequence[str]] | None = None,
    tolerance: float = TOLERANCE,
) -> None:
    """Assert that wengert agrees with every peer that is given and installed.

    `lacks` names, by peer, what it cannot do, out of PARTS.
    """
    given = [np.asarray(a, np.complex128 if np.iscomplexobj(a) else np.float64) for a in arrays]
    y_bars = _seeds([np.asarray(y) for y in _listed(ours(*(wg.asarray(a) for a in given)))], 1)
    x_dots = _seeds(given, 2)
    mine = _in_wengert(ours, given, y_bars, x_dots)
    peers = [
        (name, run, f)
        for name, run, f in (("torch", _in_torch, torch), ("jax", _in_jax, jax))
        if f is not None and find_spec(name) is not None
    ]
    assert peers, "no function of a peer that is installed"
    for name, run, f in peers:
        missing = (lacks or {}).get(name, ())
        theirs = run(f, given, y_bars, x_dots, missing)
        for part, a, b in zip(PARTS, mine, theirs):
            if part not in missing:
                _assert_near(a, b, tolerance, f"{part} against {name}")


def _listed(y: Any) -> list[Any]:
    return list(y) if isinstance(y, (tuple, list)) else [y]


def _seeds(arrays: Sequence[Any], number: int) -> list[Any]:
    rng = np.random.default_rng([11, number])

    def like(a: Any) -> Any:
        real = rng.uniform(0.3, 1.7, a.shape) * rng.choice([-1.0, 1.0], a.shape)
        return real + 1j * rng.uniform(0.3, 1.7, a.shape) if np.iscomplexobj(a) else real

    return [like(a) for a in arrays]


def _assert_near(got: list[Any], expected: list[Any], tolerance: float, what: str) -> None:
    assert len(got) == len(expected), f"{what}: {len(got)} results, expected {len(expected)}"
    for k, (a, b) in enumerate(zip(got, expected)):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, f"{what}, number {k}: shape {a.shape}, expected {b.shape}"
        size = float(np.max(np.abs(b), initial=1.0, where=np.isfinite(b)))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * size, err_msg=f"{what}, number {k}")


def _in_wengert(f: Callable[..., Any], arrays: list[Any], y_bars: list[Any], x_dots: list[Any]) -> Results:
    xs, dots, bars = (tuple(wg.asarray(a) for a in group) for group in (arrays, x_dots, y_bars))

    def outputs(*zs: Any) -> tuple[Any, ...]:
        return tuple(_listed(f(*zs)))

    def gradient(*zs: Any) -> tuple[Any, ...]:
        return wg.vjp(outputs, *zs)[1](bars)

    value, y_dots = wg.jvp(outputs, xs, dots)
    with warnings.catch_warnings():
        # The gradient of what is linear in pieces does not depend on the argument, and wengert says so.
        warnings.filterwarnings("ignore", "vjp: the result does not depend on the argument")
        second = wg.vjp(gradient, *xs)[1](dots)
    return Results(*([t.numpy() for t in group] for group in (value, gradient(*xs), y_dots, second)))


def _in_torch(
    f: Callable[..., Any], arrays: list[Any], y_bars: list[Any], x_dots: list[Any], lacks: Sequence[str]
) -> Results:
    import torch

    def tensors(group: Sequence[Any], tracked: bool = False) -> tuple[Any, ...]:
        return tuple(torch.tensor(a, requires_grad=tracked) for a in group)

    def arrays_of(group: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        return [np.zeros(a.shape, a.dtype) if t is None else t.numpy(force=True) for t, a in zip(group, like)]

    xs, bars, dots = tensors(arrays, True), tensors(y_bars), tensors(x_dots)
    ys = _listed(f(*xs))
    grads: Sequence[Any] = [None] * len(xs)
    if "vjp" not in lacks:
        grads = torch.autograd.grad(ys, xs, bars, create_graph=True, allow_unused=True)
    linked = [(g, d) for g, d in zip(grads, dots) if g is not None and g.requires_grad]
    second: Sequence[Any] = [None] * len(xs)
    if linked and "second order" not in lacks:
        second = torch.autograd.grad([g for g, _ in linked], xs, [d for _, d in linked], allow_unused=True)
    y_dots = [] if "jvp" in lacks else _listed(torch.func.jvp(f, tensors(arrays), dots)[1])
    return Results(
        arrays_of(ys, y_bars), arrays_of(grads, arrays), arrays_of(y_dots, y_bars), arrays_of(second, arrays)
    )


def _in_jax(
    f: Callable[..., Any], arrays: list[Any], y_bars: list[Any], x_dots: list[Any], lacks: Sequence[str]
) -> Results:
    import jax

    # JAX's cotangents pair without conjugation; ours (and PyTorch's) are their conjugates.
    jax.config.update("jax_enable_x64", True)

    def outputs(*zs: Any) -> tuple[Any, ...]:
        return tuple(_listed(f(*zs)))

    def gradient(*zs: Any) -> tuple[Any, ...]:
        conjugate = jax.vjp(outputs, *zs)[1](tuple(np.conj(b) for b in y_bars))
        return tuple(jax.numpy.conj(g) for g in conjugate)

    xs = tuple(jax.numpy.asarray(a) for a in arrays)
    second: Sequence[Any] = ()
    if "second order" not in lacks:
        second = jax.vjp(gradient, *xs)[1](tuple(jax.numpy.asarray(np.conj(d)) for d in x_dots))
        second = [np.conj(g) for g in second]
    y_dots = () if "jvp" in lacks else jax.jvp(outputs, xs, tuple(x_dots))[1]
    pulled = () if "vjp" in lacks else gradient(*xs)
    return Results(list(outputs(*xs)), list(pulled), list(y_dots), list(second))
