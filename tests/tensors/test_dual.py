"""Forward mode: duals and their levels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg


def scalar(x: float) -> wg.Tensor:
    return wg.tensor(x, dtype=wg.float64)


def test_dual() -> None:
    x = wg.dual(scalar(2.0), scalar(1.0))
    z = wg.sin(x) * x
    assert isinstance(z, wg.DualTensor)
    assert z.value.item() == pytest.approx(2 * math.sin(2.0))
    assert z.tangent.item() == pytest.approx(math.sin(2.0) + 2 * math.cos(2.0))
    assert z.shape == () and z.dtype == wg.float64


def test_duals_of_one_direction_mix() -> None:
    x, y = wg.dual(scalar(2.0), scalar(1.0)), wg.dual(scalar(3.0), scalar(10.0))
    assert (x * y).tangent.item() == 2.0 * 10 + 3.0
    assert (x * 5.0).tangent.item() == 5.0
    assert (5.0 - x).tangent.item() == -1.0
    assert (x * scalar(4.0)).tangent.item() == 4.0
    assert (2.0**x).tangent.item() == pytest.approx(4 * math.log(2))


def test_scalars_and_broadcasting() -> None:
    x = wg.dual(wg.tensor([1.0, 2.0]), wg.tensor([1.0, 10.0]))
    y = x + wg.ones((3, 2))
    assert y.tangent.tolist() == [[1.0, 10.0]] * 3
    assert (x.sum() * x).tangent.tolist() == [14.0, 52.0]


def test_zero_tangent_of_constants() -> None:
    x = wg.dual(scalar(2.0), scalar(1.0))
    y = wg.floor(x)
    if isinstance(y, wg.DualTensor):
        assert y.tangent.item() == 0.0
    z = x > 1.0
    assert z.dtype == wg.bool_ and bool(z)
    assert wg.stop_gradient(x).item() == 2.0


def test_indexing_and_methods_of_duals() -> None:
    x = wg.dual(wg.tensor([1.0, 2.0, 3.0]), wg.tensor([1.0, 10.0, 100.0]))
    assert x[1:].tangent.tolist() == [10.0, 100.0]
    assert x[wg.tensor([2, 0])].tangent.tolist() == [100.0, 1.0]
    assert x.reshape((3, 1)).tangent.shape == (3, 1)
    assert wg.concat([x, x]).tangent.tolist() == [1.0, 10.0, 100.0] * 2
    assert wg.softmax(x).tangent.sum().item() == pytest.approx(0.0, abs=1e-4)
    assert (x @ wg.tensor([1.0, 1.0, 1.0])).tangent.item() == 111.0


def test_errors() -> None:
    with pytest.raises(wg.ShapeError, match="tangent"):
        wg.dual(wg.ones(2), wg.ones(3))
    with pytest.raises(wg.WengertError, match="int64"):
        wg.dual(wg.tensor([1]), wg.tensor([1]))
    with pytest.raises(wg.WengertError):
        wg.jvp(lambda x: x, (wg.ones(2),), (wg.ones(2), wg.ones(2)))
    with pytest.raises(wg.ShapeError):
        wg.jvp(lambda x: x, (wg.ones(2),), (wg.ones(3),))


def test_context() -> None:
    with wg.ForwardADContext() as ctx:
        x = ctx.dual(scalar(2.0), scalar(1.0))
        z = ctx.mul(ctx.sin(x), x)
    assert z.tangent.item() == pytest.approx(math.sin(2.0) + 2 * math.cos(2.0))
    with pytest.raises(AttributeError, match="no_such_function"):
        ctx.no_such_function(x)


def test_contexts_nest_without_confusion() -> None:
    """d/dx [x · d/dy (x + y)] = 1, not 2 (Siskind and Pearlmutter, 2005)."""
    with wg.ForwardADContext() as outer:
        x = outer.dual(scalar(1.0), scalar(1.0))
        with wg.ForwardADContext() as inner:
            y = inner.dual(scalar(1.0), scalar(1.0))
            inside = x + y
        z = x * inside.tangent
    assert z.tangent.item() == 1.0 if isinstance(z, wg.DualTensor) else False


def test_second_derivatives_by_nested_duals() -> None:
    with wg.ForwardADContext() as outer:
        x = outer.dual(scalar(3.0), scalar(1.0))
        with wg.ForwardADContext() as inner:
            y = inner.dual(x, wg.ones_like(x))
            cube = y * y * y
        first = cube.tangent
    assert first.value.item() == 27.0 and first.tangent.item() == 18.0


def test_control_flow_sees_values() -> None:
    def f(x: Any) -> Any:
        return x * 2.0 if x > 1.0 else x * 5.0

    assert wg.jvp(f, (scalar(2.0),), (scalar(1.0),))[1].item() == 2.0
    assert wg.jvp(f, (scalar(0.0),), (scalar(1.0),))[1].item() == 5.0


def test_jvp_of_tracked_tensors_is_differentiable() -> None:
    w = wg.tensor([2.0, 3.0], dtype=wg.float64, requires_grad=True)
    x, v = wg.tensor([1.0, 1.0], dtype=wg.float64), wg.tensor([1.0, 5.0], dtype=wg.float64)
    _, y_dot = wg.jvp(lambda z: (z * z * w).sum(), (x,), (v,))
    assert y_dot.backward()[w].tolist() == [2.0, 10.0]


def test_duals_of_tracked_values() -> None:
    x = wg.tensor(2.0, dtype=wg.float64, requires_grad=True)
    z = wg.dual(x, scalar(1.0)) ** 3
    assert z.tangent.item() == 12.0
    assert z.tangent.backward()[x].item() == 12.0


def test_jvp_of_several_arguments_and_outputs() -> None:
    def f(a: Any, b: Any) -> Any:
        return {"sum": a + b, "product": (a * b, 3.0)}

    y, y_dot = wg.jvp(f, (scalar(2.0), scalar(3.0)), (scalar(1.0), scalar(10.0)))
    assert y["product"][0].item() == 6.0
    assert y_dot["sum"].item() == 11.0 and y_dot["product"][0].item() == 23.0
    assert float(y_dot["product"][1]) == 0.0


def test_constant_functions() -> None:
    y, y_dot = wg.jvp(lambda x: wg.ones(3), (scalar(1.0),), (scalar(1.0),))
    assert y_dot.tolist() == [0.0, 0.0, 0.0]


def test_in_place_on_duals() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        y += x
        y *= x
        return y

    y, y_dot = wg.jvp(f, (wg.tensor([3.0]),), (wg.tensor([1.0]),))
    assert y.tolist() == [27.0] and y_dot.tolist() == [18.0]


def test_indexed_assignment_on_duals() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        y[0] = x[1] * 10.0
        return y

    x = wg.tensor([1.0, 2.0])
    assert wg.jacrev(f)(x).tolist() == [[0.0, 10.0], [0.0, 2.0]]
    assert wg.jvp(f, (x,), (wg.tensor([1.0, 100.0]),))[1].tolist() == [1000.0, 200.0]


def test_no_grad_has_no_effect_on_duals() -> None:
    with wg.no_grad():
        assert wg.jvp(lambda x: x * x, (scalar(3.0),), (scalar(1.0),))[1].item() == 6.0


@pytest.mark.parametrize("value", [2.0, [2.0, 3.0]])
def test_backward_on_a_dual_says_what_it_is(value: Any) -> None:
    x = wg.tensor(value, requires_grad=True)
    y = wg.dual(x, wg.ones_like(x)) ** 3
    for options in ({}, {"create_graph": True}, {"inputs": [x]}):
        with pytest.raises(wg.GradientError, match=r"forward-mode value \(a DualTensor\).*\.tangent already; call"):
            y.backward(**options)
    assert y.tangent.sum().backward()[x].tolist() == (6.0 * x).tolist()  # the remedy
    with pytest.raises(wg.GradientError, match="inside a compiled function"):
        wg.compile(lambda z: (z * z).sum().backward()[z])(x.detach())


def test_operands_of_more_parts_than_a_mask_has_bits() -> None:
    """Values and tangents of all levels together: 40 duals of duals, of which some have no tangent, have more than 63."""
    n = 40
    weights = wg.arange(1.0, n + 1.0, dtype=wg.float64)
    constant = wg.ones((1,), dtype=wg.float64)

    def f(x: Any) -> Any:
        parts = [x[k : k + 1] ** 3 if k % 3 else constant for k in range(n)]
        return (wg.concat(parts) * weights).sum()

    x, v = wg.linspace(0.1, 1.0, n, dtype=wg.float64), wg.ones((n,), dtype=wg.float64)
    second = wg.jvp(lambda z: wg.jvp(f, (z,), (v,))[1], (x,), (v,))[1]
    expected = sum(6 * x[k].item() * (k + 1) for k in range(n) if k % 3)
    np.testing.assert_allclose(second.item(), expected, rtol=1e-12)


def test_elementwise_ops_at_many_levels() -> None:
    f = lambda x: x * wg.exp(x)
    for _ in range(6):
        f = (lambda g: lambda x: wg.jvp(g, (x,), (wg.ones_like(x),))[1])(f)
    x = wg.tensor(0.25, dtype=wg.float64)
    np.testing.assert_allclose(f(x).item(), (0.25 + 6) * np.exp(0.25), rtol=1e-12)
