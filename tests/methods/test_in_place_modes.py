"""In-place operations in every mode and nesting: beside the same program without them, and beside finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import directional

X = np.array([0.5, -1.25, 2.0, 0.75])
V = np.array([1.0, 2.0, -0.5, 0.25])
U = np.array([0.5, -1.0, 0.75, 2.0])


def t(a: Any) -> wg.Tensor:
    return wg.tensor(a, dtype=wg.float64)


# --------------------------------------------------------------------------------- programs, in place and out of place


def element(x: Any) -> Any:
    y = x * 2.0
    y[0] = y[1] * y[2]
    y[-1] = 3.0
    return y * x


def element_pure(x: Any) -> Any:
    return wg.stack([4.0 * x[1] * x[2], 2.0 * x[1], 2.0 * x[2], 3.0 * wg.ones_like(x[3])]) * x


def filled(x: Any) -> Any:
    y = wg.zeros((4,), dtype=wg.float64)
    for k in range(4):
        y[k] = x[k] * x[k] * x[3 - k]
    return wg.sin(y)


def filled_pure(x: Any) -> Any:
    return wg.sin(x * x * wg.flip(x))


def methods(x: Any) -> Any:
    y = x * x
    y.add_(x).mul_(x).sub_(1.0).tanh_().neg_()
    y.div_(x * x + 1.0).pow_(3)
    return y


def methods_pure(x: Any) -> Any:
    return (-wg.tanh((x * x + x) * x - 1.0) / (x * x + 1.0)) ** 3


def operators(x: Any) -> Any:
    y = x * 1.0
    z = y
    y += x * x
    y *= x
    y -= 0.5
    y /= x * x + 2.0
    y **= 2
    return z * x


def operators_pure(x: Any) -> Any:
    return (((x + x * x) * x - 0.5) / (x * x + 2.0)) ** 2 * x


def through_a_view(x: Any) -> Any:
    y = x * x
    z = y[1:]
    z += x[0]
    z.mul_(x[1:])
    y[2] = z[0] * y[0]
    return y * wg.concat([x[:1], z])


def through_a_view_pure(x: Any) -> Any:
    a, b, d = x[0] * x[0], (x[1] * x[1] + x[0]) * x[1], (x[3] * x[3] + x[0]) * x[3]
    c = b * a
    y = wg.stack([a, b, c, d])
    return y * wg.stack([x[0], b, c, d])


def view_of_a_view(x: Any) -> Any:
    y = wg.reshape(x * x, (2, 2))
    z = wg.permute_dims(y, (1, 0))
    row = z[1]
    row.mul_(x[:2])
    y[0, 0] = row[0]
    return wg.reshape(y, (4,)) * wg.reshape(z, (4,))


def view_of_a_view_pure(x: Any) -> Any:
    a, b, c, d = (x[k] * x[k] for k in range(4))
    b, d = b * x[0], d * x[1]
    return wg.stack([b, b, c, d]) * wg.stack([b, c, b, d])


def views_of_a_plain_tensor(x: Any) -> Any:
    y = wg.ones((2, 3), dtype=wg.float64)
    row, column = y[1], y[:, 1]
    flat = wg.reshape(y, (6,))
    column.copy_(x[:2] * x[2:])
    row[0] = x[3]
    flat[5] *= x[0]
    return wg.concat([row, column]) * flat[:5]


def views_of_a_plain_tensor_pure(x: Any) -> Any:
    one = wg.ones_like(x[0])
    a, b = x[0] * x[2], x[1] * x[3]
    row = wg.stack([x[3], b, x[0]])
    return wg.concat([row, wg.stack([a, b])]) * wg.stack([one, a, one, x[3], b])


def masks_and_indices(x: Any) -> Any:
    y = x * x
    y[x > 0.6] = 0.25
    y[wg.tensor([0, 1])] = y[wg.tensor([1, 0])] * x[:2]
    y[wg.tensor([True, False, False, True])] += x[1]
    return y * x


def masks_and_indices_pure(x: Any) -> Any:
    a, b = x[0] * x[0], x[1] * x[1]
    quarter = 0.25 * wg.ones_like(x[0])
    return wg.stack([b * x[0] + x[1], a * x[1], quarter, quarter + x[1]]) * x


def argument(x: Any) -> Any:
    x.mul_(x)
    x[1:].add_(x[0])
    return x * x


def argument_pure(x: Any) -> Any:
    y = x * x
    z = wg.concat([y[:1], y[1:] + y[0]])
    return z * z


def overwritten(x: Any) -> Any:
    y = x * x
    z = y * 3.0
    y.zero_()
    y.add_(x)
    z.fill_(2.0)
    z.copy_(x * y)
    y.fill_(x[0])
    return y * z


def overwritten_pure(x: Any) -> Any:
    return x[0] * x * x


def rows(x: Any) -> Any:
    table = wg.zeros((3, 4), dtype=wg.float64)
    table[0] = x
    for k in range(1, 3):
        table[k] = table[k - 1] * x + table[k - 1, 0]
    table[:, 1] = table[:, 0] * 2.0
    return wg.sum(table, axis=0)


def rows_pure(x: Any) -> Any:
    a = x
    b = a * x + a[0]
    c = b * x + b[0]
    s = a + b + c
    return wg.stack([s[0], 2.0 * s[0], s[2], s[3]])


def transposed_views(x: Any) -> Any:
    y = wg.cos(wg.permute_dims(wg.zeros((2, 3), dtype=wg.float64), (1, 0)))  # with the layout of its operand
    row, column = y[2], y[:, 0]
    y[:1].add_(x[:2])
    row.mul_(x[2:])
    column[1] = x[0] * x[1]
    return wg.concat([wg.sum(y, axis=0) * column[:2], row])


def transposed_views_pure(x: Any) -> Any:
    one = wg.ones_like(x[0])
    a, b = x[0] + one, x[1] + one
    first = wg.stack([a + x[0] * x[1] + x[2], b + one + x[3]])
    return wg.concat([first * wg.stack([a, x[0] * x[1]]), x[2:]])


def read_without_recording(x: Any) -> Any:
    y, z = wg.ones((4,), dtype=wg.float64), x * x
    part, other = y[1:], z[:3]
    y[2:].mul_(wg.sin(x[:2]))
    z.mul_(x)
    with wg.no_grad():
        assert [wg.sum(v).ndim for v in (part, y, other, z)] == [0, 0, 0, 0]
    return wg.concat([part * other, y[3:] * z[3:]])


def read_without_recording_pure(x: Any) -> Any:
    one, s, z = wg.ones_like(x[0]), wg.sin(x), x * x * x
    return wg.stack([one, s[0], s[1], s[1]]) * z


PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "element": (element, element_pure),
    "filled": (filled, filled_pure),
    "methods": (methods, methods_pure),
    "operators": (operators, operators_pure),
    "through a view": (through_a_view, through_a_view_pure),
    "view of a view": (view_of_a_view, view_of_a_view_pure),
    "views of a plain tensor": (views_of_a_plain_tensor, views_of_a_plain_tensor_pure),
    "masks and indices": (masks_and_indices, masks_and_indices_pure),
    "argument": (argument, argument_pure),
    "overwritten": (overwritten, overwritten_pure),
    "transposed views": (transposed_views, transposed_views_pure),
    "read without recording": (read_without_recording, read_without_recording_pure),
    "rows": (rows, rows_pure),
}


# ------------------------------------------------------------------------------------------------------------------ modes


def scalar(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Σ cos(k)·f(x)ₖ²: a scalar whose derivatives do not hide anything."""

    def total(x: Any) -> Any:
        y = f(x)
        return (y * y * wg.cos(wg.arange(y.shape[0], dtype=wg.float64))).sum()

    return total


def along(f: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
    return lambda x: wg.jvp(f, (x,), (t(v),))[1]


def pulled(f: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
    return lambda x: (wg.grad(f)(x) * t(v)).sum()


def tape(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def gradient(x: Any) -> Any:
        with wg.GradientTape() as record:
            watched = record.watch(x)
            y = f(watched.clone())
        return record.gradient(y, watched)

    return gradient


MODES: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "value": lambda f: f,
    "grad": lambda f: wg.grad(scalar(f)),
    "tape": lambda f: tape(scalar(f)),
    "jvp": lambda f: along(f, V),
    "vjp": lambda f: lambda x: wg.vjp(f, x)[1](f(x.clone()))[0],
    "linearize": lambda f: lambda x: wg.linearize(f, x)[1](t(V)),
    "jacfwd": wg.jacfwd,
    "jacrev": wg.jacrev,
    "jacobian": wg.jacobian,
    "hessian": lambda f: wg.hessian(scalar(f)),
    "hvp": lambda f: lambda x: wg.hvp(scalar(f), x, t(V)),
    "grad of grad": lambda f: wg.grad(pulled(scalar(f), V)),
    "jvp of jvp": lambda f: along(along(f, V), U),
    "grad of jvp": lambda f: wg.grad(along(scalar(f), V)),
    "jvp of linearize": lambda f: along(lambda x: wg.linearize(f, x)[1](t(V)), U),
    "jvp of jvp of grad": lambda f: along(along(wg.grad(scalar(f)), V), U),
    "grad of jvp of jvp": lambda f: wg.grad(along(along(scalar(f), V), U)),
    "jvp of grad of jvp": lambda f: along(wg.grad(along(scalar(f), V)), U),
    "grad of hvp": lambda f: wg.grad(lambda x: (wg.hvp(scalar(f), x, t(V)) * t(U)).sum()),
    "compiled": lambda f: wg.compile(lambda x: f(x.clone())),
    "grad of compiled": lambda f: wg.grad(wg.compile(scalar(f))),
    "jvp of compiled": lambda f: along(wg.compile(f), V),
    "hvp of compiled": lambda f: lambda x: wg.hvp(wg.compile(scalar(f)), x, t(V)),
    "compiled grad": lambda f: wg.compile(wg.grad(scalar(f))),
    "compiled jvp": lambda f: wg.compile(along(f, V)),
    "compiled hvp": lambda f: wg.compile(lambda x: wg.hvp(scalar(f), x, t(V))),
    "compiled jvp of jvp": lambda f: wg.compile(along(along(f, V), U)),
}


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("program", list(PROGRAMS))
def test_in_place_is_as_out_of_place(program: str, mode: str) -> None:
    in_place, pure = PROGRAMS[program]
    if "masks" in program and "compiled" in mode:
        pytest.skip("a mask that depends on the data selects a number of elements that a compiled function cannot know")
    x = t(X)
    got = MODES[mode](in_place)(x.clone() if mode == "value" else x)
    np.testing.assert_allclose(got.numpy(), MODES[mode](pure)(t(X)).numpy(), rtol=1e-11, atol=1e-12)
    assert x.tolist() == X.tolist(), "the argument is as it was"
    assert not got.requires_grad and type(got) is wg.Tensor


@pytest.mark.parametrize("program", list(PROGRAMS))
def test_in_place_beside_finite_differences(program: str) -> None:
    f = PROGRAMS[program][0]
    for g in (f, along(f, V), wg.grad(scalar(f))):
        expected = directional(lambda a, g=g: g(t(a)).numpy(), [X], [U])
        np.testing.assert_allclose(wg.jvp(g, (t(X),), (t(U),))[1].numpy(), expected, rtol=1e-6, atol=1e-7)


# ------------------------------------------------------------------------------------------------------- names and values


def test_a_write_to_a_dual_leaves_what_was_computed_from_it() -> None:
    x = wg.dual(t(X), t(V))
    y = x * 1.0
    z = y * x
    before = z.value.tolist(), z.tangent.tolist()
    y.mul_(5.0)
    assert (z.value.tolist(), z.tangent.tolist()) == before


def test_values_and_tangents_of_a_dual_do_not_change() -> None:
    value, tangent = t(X), t(V)
    x = wg.dual(value, tangent)
    x.value.add_(1.0)
    x.tangent.zero_()
    value.zero_()
    tangent.zero_()
    x.detach().fill_(9.0)
    assert x.value.tolist() == X.tolist() and x.tangent.tolist() == V.tolist()
    x.mul_(2.0)
    assert x.value.tolist() == (2 * X).tolist() and x.tangent.tolist() == (2 * V).tolist()
    assert value.tolist() == [0.0] * 4


def test_a_tensor_from_outside_keeps_the_value_and_loses_the_tangent() -> None:
    state = wg.zeros((4,), dtype=wg.float64)
    half = state[2:]

    def f(x: Any) -> Any:
        state.copy_(x * x)
        return (half * x[:2]).sum()

    y, y_dot = wg.jvp(f, (t(X),), (t(V),))
    assert y_dot.item() == pytest.approx(float((2 * X * V)[2:] @ X[:2] + (X * X)[2:] @ V[:2]))
    assert type(state) is type(half) is wg.Tensor
    assert state.tolist() == (X * X).tolist() and half.tolist() == (X * X)[2:].tolist()
    half.zero_()
    assert state.tolist()[2:] == [0.0, 0.0], "still a view"
    state.fill_(1.0)
    assert half.tolist() == [1.0, 1.0]


def test_a_tensor_of_an_outer_transformation_keeps_its_own_tangent() -> None:
    def outer(x: Any) -> Any:
        y = x * x
        wg.jvp(lambda z: y.mul_(z).sum(), (t(U),), (t(V),))
        return y

    y, y_dot = wg.jvp(outer, (t(X),), (t(V),))
    np.testing.assert_allclose(y.numpy(), X * X * U)
    np.testing.assert_allclose(y_dot.numpy(), 2 * X * V * U)


def test_a_failing_function_gives_tensors_back() -> None:
    state = wg.zeros((4,), dtype=wg.float64)

    def f(x: Any) -> Any:
        state.copy_(x)
        raise RuntimeError("no value")

    with pytest.raises(RuntimeError, match="no value"):
        wg.jvp(f, (t(X),), (t(V),))
    assert type(state) is wg.Tensor and state.tolist() == X.tolist()


def test_a_compiled_function_changes_the_duals_that_it_is_given() -> None:
    double = wg.compile(lambda y, z: (y.mul_(2.0), z.copy_(y * y), y.sum())[2])

    def f(x: Any) -> Any:
        y, z = x * x, wg.zeros((4,), dtype=wg.float64)
        total = double(y, z)
        return total + (y * z).sum()

    _, y_dot = wg.jvp(f, (t(X),), (t(V),))
    np.testing.assert_allclose(y_dot.item(), float(((4 * X + 8 * 6 * X**5) * V).sum()), rtol=1e-12)


def test_what_cannot_hold_a_tangent_says_so() -> None:
    leaf = wg.zeros((4,), dtype=wg.float64, requires_grad=True)
    parameter = wg.nn.Parameter(wg.zeros((4,), dtype=wg.float64))
    captured = wg.zeros((4,), dtype=wg.float64)
    for target, error in ((leaf, wg.InPlaceError), (parameter, wg.InPlaceError)):
        with wg.no_grad(), pytest.raises(error, match=r"copy_: .*tangent"):
            wg.jvp(lambda x, target=target: target.copy_(x), (t(X),), (t(V),))
        assert target.tolist() == [0.0] * 4
    with pytest.raises(wg.TraceError, match=r"copy_: .*tangent"):
        wg.jvp(wg.compile(lambda x: captured.copy_(x).sum()), (t(X),), (t(V),))
    with pytest.raises(wg.TraceError, match=r"copy_: .*tangent"):
        wg.jvp(lambda x: wg.compile(lambda: x.copy_(x * 2.0).sum())(), (t(X),), (t(V),))
    with pytest.raises(wg.InPlaceError, match="broadcast_to"):
        wg.jvp(lambda x: wg.broadcast_to(x, (2, 4)).add_(1.0), (t(X),), (t(V),))


def test_writes_in_forward_mode_keep_no_memory() -> None:
    import gc

    from wengert import _core

    x, v = t(X), t(V)
    f = PROGRAMS["views of a plain tensor"][0]
    wg.jvp(f, (x,), (v,))
    gc.collect()
    before, objects = _core.memory_stats()["live_bytes"], len(gc.get_objects())
    for _ in range(50):
        wg.jvp(f, (x,), (v,))
    assert _core.memory_stats()["live_bytes"] <= before, "without the collector"
    gc.collect()
    assert len(gc.get_objects()) <= objects + 20


def test_a_view_of_a_tensor_that_moved_and_then_became_a_dual() -> None:
    # The write to `a` gives it memory of its own; the view's place in it counts, not how far apart the two are.
    def f(s: Any) -> Any:
        a = wg.tensor([[0.7, 0.2, 0.3], [0.1, 0.5, 0.9]], dtype=wg.float64) * 2.0
        row = a[-1]
        a[...] = wg.sin(row)
        a[1, 1].sub_(s * s)
        return row.sum()

    s = wg.tensor(0.3, dtype=wg.float64)
    assert wg.jvp(f, (s,), (s,))[1].item() == -2 * 0.3 * 0.3


def test_out_of_another_type_is_refused_in_forward_mode() -> None:
    for out in (wg.zeros((3,), dtype=wg.float64), wg.zeros((4,), dtype=wg.float32)):
        with pytest.raises(wg.ShapeError, match=r"sin: the result float64\(4,\) does not fit in place of float"):
            wg.jvp(lambda x, out=out: wg.sin(x, out=out), (t(X),), (t(V),))
