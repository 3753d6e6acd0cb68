"""grad, vjp, jvp, linearize, Jacobians: arguments, results, refusals."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import wengert as wg

Pair = namedtuple("Pair", "a b")


def t(*x: float) -> wg.Tensor:
    return wg.tensor(list(x), dtype=wg.float64)


def test_argnums() -> None:
    f = lambda x, y, z: (x * y * y * z).sum()
    x, y, z = t(1.0, 2.0), t(3.0, 4.0), t(5.0, 6.0)
    assert wg.grad(f)(x, y, z).tolist() == [45.0, 96.0]
    assert wg.grad(f, argnums=1)(x, y, z).tolist() == [30.0, 96.0]
    assert wg.grad(f, argnums=-1)(x, y, z).tolist() == [9.0, 32.0]
    gy, gx = wg.grad(f, argnums=(1, 0))(x, y, z)
    assert gy.tolist() == [30.0, 96.0] and gx.tolist() == [45.0, 96.0]
    assert isinstance(wg.grad(f, argnums=(0,))(x, y, z), tuple)
    with pytest.raises(wg.ArgumentError, match="argnums"):
        wg.grad(f, argnums=3)(x, y, z)


def test_keyword_arguments_and_static_ones() -> None:
    def f(x: Any, power: int, *, scale: float = 1.0, shift: Any = None) -> Any:
        return (scale * x**power).sum() + (0.0 if shift is None else shift.sum())

    assert wg.grad(f)(t(2.0), 3, scale=2.0).tolist() == [24.0]
    assert wg.grad(f)(t(2.0), 3, shift=t(1.0)).tolist() == [12.0]


def test_containers() -> None:
    def f(p: Any) -> Any:
        return (p["w"][0] * p["w"][1]).sum() + (p["n"].a * p["n"].b).sum() + p["o"]["k"].sum() * 3.0

    p = {"w": [t(1.0), t(2.0)], "n": Pair(t(3.0), t(4.0)), "o": OrderedDict(k=t(5.0))}
    g = wg.grad(f)(p)
    assert g["w"][0].tolist() == [2.0] and g["w"][1].tolist() == [1.0]
    assert isinstance(g["n"], Pair) and g["n"].a.tolist() == [4.0]
    assert isinstance(g["o"], OrderedDict) and g["o"]["k"].tolist() == [3.0]
    _, y_dot = wg.jvp(f, (p,), (p,))
    assert y_dot.item() == 2 * 2 + 2 * 12 + 15
    value, pulled = wg.vjp(f, p)
    assert pulled(wg.tensor(2.0, dtype=wg.float64))[0]["w"][0].tolist() == [4.0]
    assert wg.hvp(f, p, p)["w"][0].tolist() == [2.0]


def test_empty_containers_and_none() -> None:
    f = lambda p: p["w"].sum()
    g = wg.grad(f)({"w": t(1.0), "rest": [], "more": ()})
    assert g["w"].tolist() == [1.0] and g["rest"] == [] and g["more"] == ()


def test_unused_arguments_have_zero_gradients() -> None:
    g = wg.grad(lambda x, y: x.sum(), argnums=(0, 1))(t(1.0), t(2.0, 3.0))
    assert g[1].tolist() == [0.0, 0.0]
    with pytest.warns(UserWarning, match="does not depend"):
        assert wg.grad(lambda x: wg.ones(()))(t(1.0)).tolist() == [0.0]


def test_the_same_tensor_twice() -> None:
    x = t(3.0)
    a, b = wg.grad(lambda p, q: (p * q * q).sum(), argnums=(0, 1))(x, x)
    assert a.tolist() == [9.0] and b.tolist() == [18.0]
    assert wg.grad(lambda p: (p[0] * p[1] * p[1]).sum())([x, x])[1].tolist() == [18.0]


def test_value_and_grad_and_aux() -> None:
    f = lambda x: ((x * x).sum(), {"twice": x * 2.0, "name": "aux"})
    (value, aux), g = wg.value_and_grad(f, has_aux=True)(t(3.0))
    assert value.item() == 9.0 and g.tolist() == [6.0]
    assert aux["twice"].tolist() == [6.0] and aux["name"] == "aux"
    value, g = wg.value_and_grad(lambda x: (x * x).sum())(t(3.0))
    assert value.item() == 9.0 and not value.requires_grad and not g.requires_grad
    with pytest.raises(wg.ArgumentError, match="has_aux"):
        wg.value_and_grad(lambda x: (x * x).sum(), has_aux=True)(t(3.0))
    g, aux = wg.grad(f, has_aux=True)(t(3.0))
    assert g.tolist() == [6.0]


def test_gradients_are_free_of_the_graph() -> None:
    g = wg.grad(lambda x: (x * x).sum())(t(3.0))
    assert not g.requires_grad and g.is_leaf


def test_grad_does_not_touch_grad() -> None:
    x = wg.tensor([3.0], requires_grad=True)
    g = wg.grad(lambda z: (z * z).sum())(x)
    assert g.tolist() == [6.0] and x.grad is None


def test_numbers_and_arrays_as_arguments() -> None:
    assert wg.grad(lambda x: x * x)(3.0).item() == 6.0
    assert wg.grad(lambda x: (x * x).sum())(np.array([3.0])).tolist() == [6.0]
    assert wg.grad(lambda x: x[0] * x[1])([2.0, 3.0])[0].item() == 3.0


def test_refusals() -> None:
    with pytest.raises(wg.GradientError, match=r"\(2,\)"):
        wg.grad(lambda x: x)(t(1.0, 2.0))
    with pytest.raises(wg.DTypeError, match="int64"):
        wg.grad(lambda x: x.sum())(wg.tensor([1, 2]))
    with pytest.raises(wg.DTypeError, match="bool"):
        wg.grad(lambda x: x.sum())(wg.tensor([True]))
    with pytest.raises(wg.GradientError):
        wg.grad(lambda x: (x.sum(), x.sum()))(t(1.0))
    with pytest.raises((wg.GradientError, wg.DTypeError)):
        wg.grad(lambda x: wg.argmax(x))(t(1.0, 2.0))
    with pytest.raises((wg.WengertError, TypeError)):
        wg.grad(lambda x: "text")(t(1.0))
    with pytest.raises((wg.WengertError, TypeError)):
        wg.grad(lambda x: None)(t(1.0))
    with pytest.raises((wg.WengertError, TypeError)):
        wg.grad(lambda x: x.sum())("text")
    y, pull = wg.vjp(lambda x: x * x, t(1.0, 2.0))
    with pytest.raises(wg.ShapeError):
        pull(t(1.0))
    with pytest.raises(wg.WengertError):
        pull((t(1.0, 2.0),))


def test_exceptions_leave_modes_as_they_were() -> None:
    def bad(x: Any) -> Any:
        raise KeyError

    for run in (
        lambda: wg.grad(bad)(t(1.0)),
        lambda: wg.jvp(bad, (t(1.0),), (t(1.0),)),
        lambda: wg.vjp(bad, t(1.0)),
        lambda: wg.compile(bad)(t(1.0)),
        lambda: wg.hessian(bad)(t(1.0)),
    ):
        with pytest.raises(KeyError):
            run()
    assert wg.is_grad_enabled()
    assert wg.grad(lambda x: (x * x).sum())(t(3.0)).tolist() == [6.0]
    assert wg.compile(lambda x: x * 2.0)(t(3.0)).tolist() == [6.0]


def test_vjp_may_be_called_often() -> None:
    y, pull = wg.vjp(lambda x: wg.sin(x) * x, t(1.0, 2.0))
    first, second = (pull(t(1.0, 0.0))[0].numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_vjp_of_several_outputs() -> None:
    y, pull = wg.vjp(lambda x, z: {"p": x * z, "q": [x + z]}, t(2.0), t(3.0))
    gx, gz = pull({"p": t(1.0), "q": [t(10.0)]})
    assert gx.tolist() == [13.0] and gz.tolist() == [12.0]


def test_vjp_is_linear_in_the_seed() -> None:
    _, pull = wg.vjp(lambda x: wg.tanh(x) * x, t(0.3, -0.7))
    a, b = t(1.0, 2.0), t(-3.0, 0.5)
    np.testing.assert_allclose(pull(a * 2.0 + b)[0].numpy(), 2 * pull(a)[0].numpy() + pull(b)[0].numpy(), rtol=1e-12)


def test_linearize_evaluates_once() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return wg.sin(x) * x

    x = t(0.5, 1.5)
    y, push = wg.linearize(f, x)
    for v in (t(1.0, 0.0), t(2.0, -1.0)):
        np.testing.assert_allclose(push(v).numpy(), wg.jvp(lambda z: wg.sin(z) * z, (x,), (v,))[1].numpy())
    assert len(calls) == 1
    with pytest.raises(wg.ArgumentError):
        push(t(1.0, 1.0), t(1.0, 1.0))


def test_linearize_where_the_result_does_not_depend() -> None:
    y, push = wg.linearize(lambda x: wg.ones(2), t(1.0))
    assert push(t(1.0)).tolist() == [0.0, 0.0]
    y, push = wg.linearize(lambda x, z: (x * 2.0, z), t(1.0), t(5.0))
    assert [p.tolist() for p in push(t(1.0), t(7.0))] == [[2.0], [7.0]]


def test_jacobians_agree() -> None:
    def f(x: Any) -> Any:
        return wg.stack([x[0] * x[1], wg.sin(x[1]), x.sum(), x[0] ** 3])

    x = t(0.4, -1.2)
    a, b = x.numpy()
    exact = np.array([[b, a], [0, np.cos(b)], [1, 1], [3 * a**2, 0]])
    for j in (
        wg.jacfwd(f),
        wg.jacrev(f),
        wg.jacobian(f),
        wg.jacobian(f, mode="forward"),
        wg.jacobian(f, mode="reverse"),
    ):
        np.testing.assert_allclose(j(x).numpy(), exact, atol=1e-12)
    with pytest.raises(wg.ArgumentError, match="mode"):
        wg.jacobian(f, mode="sideways")


def test_jacobian_shapes() -> None:
    a = wg.tensor(np.random.default_rng(0).standard_normal((2, 3)))
    f = lambda x: x @ x.T
    for j in (wg.jacfwd(f), wg.jacrev(f)):
        assert j(a).shape == (2, 2, 2, 3)
    np.testing.assert_allclose(wg.jacfwd(f)(a).numpy(), wg.jacrev(f)(a).numpy(), atol=1e-12)
    assert wg.jacfwd(lambda x: x.sum())(a).shape == (2, 3)
    assert wg.jacrev(lambda x: x * wg.ones((4,), dtype=wg.float64))(wg.tensor(1.0, dtype=wg.float64)).shape == (4,)
    assert wg.jacfwd(lambda x: x * 2.0)(wg.zeros((0,))).shape == (0, 0)
    assert wg.jacrev(lambda x: x * 2.0)(wg.zeros((0,))).shape == (0, 0)
    assert wg.jacfwd(lambda x: x[:0])(wg.zeros((3,))).shape == (0, 3)
    assert wg.jacrev(lambda x: x[:0])(wg.zeros((3,))).shape == (0, 3)


def test_jacobian_of_another_argument() -> None:
    f = lambda x, y: x * y
    assert wg.jacfwd(f, 1)(t(1.0, 2.0), t(3.0, 4.0)).tolist() == [[1.0, 0.0], [0.0, 2.0]]
    assert wg.jacrev(f, 1)(t(1.0, 2.0), t(3.0, 4.0)).tolist() == [[1.0, 0.0], [0.0, 2.0]]


def test_jacobian_of_a_constant() -> None:
    f = lambda x: wg.ones((2,), dtype=wg.float64)
    assert wg.jacfwd(f)(t(1.0, 2.0)).tolist() == wg.jacrev(f)(t(1.0, 2.0)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_hessian() -> None:
    """Rosenbrock: not a quadratic, and not diagonal."""
    f = lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    a, b = 0.7, -0.4
    exact = [[2 - 400 * (b - 3 * a * a), -400 * a], [-400 * a, 200]]
    np.testing.assert_allclose(wg.hessian(f)(t(a, b)).numpy(), exact, rtol=1e-12)
    for v in (t(1.0, 0.0), t(-2.0, 3.0)):
        np.testing.assert_allclose(wg.hvp(f, t(a, b), v).numpy(), np.array(exact) @ v.numpy(), rtol=1e-12)


def test_hessian_of_a_matrix_argument() -> None:
    f = lambda x: wg.exp(x).sum() * x[0, 0]
    x = wg.tensor([[0.1, 0.2]], dtype=wg.float64)
    h = wg.hessian(f)(x)
    assert h.shape == (1, 2, 1, 2)
    e = np.exp([0.1, 0.2])
    exact = [[0.1 * e[0] + 2 * e[0], e[1]], [e[1], 0.1 * e[1]]]
    np.testing.assert_allclose(h.numpy().reshape(2, 2), exact, rtol=1e-12)


def test_hessian_of_a_linear_function_is_zero() -> None:
    assert wg.hessian(lambda x: (x * 3.0).sum())(t(1.0, 2.0)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert wg.hvp(lambda x: (x * 3.0).sum(), t(1.0, 2.0), t(1.0, 1.0)).tolist() == [0.0, 0.0]


def test_in_place_inside_transformations() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        y[0] = x[1] * x[1]
        y *= x
        return y.sum()

    # y = (x1² x0, 2 x1²)
    assert wg.grad(f)(t(3.0, 5.0)).tolist() == [25.0, 2 * 5 * 3 + 20.0]


def test_arguments_are_not_changed() -> None:
    def f(x: Any) -> Any:
        x += 1.0
        return (x * x).sum()

    x = t(1.0, 2.0)
    try:
        g = wg.grad(f)(x)
    except wg.InPlaceError:
        pass
    else:
        assert g.tolist() == [4.0, 6.0]
    assert x.tolist() == [1.0, 2.0]


def test_transformed_functions_compose_with_threads() -> None:
    import threading

    results: dict[int, float] = {}

    def work(k: int) -> None:
        results[k] = wg.hessian(lambda x: (x**3).sum())(t(float(k))).item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    assert results == {k: 6.0 * k for k in range(8)}


@pytest.mark.parametrize("transform", [wg.jacfwd, wg.jacrev, wg.jacobian])
def test_jacobians_of_containers(transform: Any) -> None:
    """The structure of the result, and in each place of it that of the argument; blocks have y.shape + x.shape."""

    def f(p: Any) -> Any:
        return {"product": p["a"] * p["b"][0], "total": (p["a"] ** 2).sum()}

    a, b = t(1.0, 2.0), t(3.0)
    j = transform(f)({"a": a, "b": [b]})
    assert j["product"]["a"].tolist() == [[3.0, 0.0], [0.0, 3.0]]
    assert j["product"]["b"][0].tolist() == [[1.0], [2.0]]
    assert j["total"]["a"].tolist() == [2.0, 4.0]
    assert j["total"]["b"][0].tolist() == [0.0]


@pytest.mark.parametrize("transform", [wg.jacfwd, wg.jacrev, wg.jacobian])
def test_jacobians_by_several_arguments(transform: Any) -> None:
    f = lambda x, y, scale=1.0: x * y * scale
    x, y = t(1.0, 2.0), t(3.0, 4.0)
    by_x, by_y = transform(f, argnums=(0, 1))(x, y, scale=2.0)
    assert by_x.tolist() == [[6.0, 0.0], [0.0, 8.0]]
    assert by_y.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert transform(f, argnums=-1)(x, y).tolist() == [[1.0, 0.0], [0.0, 2.0]]
    with pytest.raises(wg.ArgumentError, match="argnums 2 is out of range for 2 positional arguments"):
        transform(f, argnums=2)(x, y)


def test_hessian_of_a_container() -> None:
    h = wg.hessian(lambda p: (p["a"] ** 2 * p["b"]).sum())({"a": t(1.0, 2.0), "b": t(3.0, 5.0)})
    assert h["a"]["a"].tolist() == [[6.0, 0.0], [0.0, 10.0]]
    assert h["a"]["b"].tolist() == h["b"]["a"].tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert h["b"]["b"].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_the_mode_is_the_second_argument_of_jacobian() -> None:
    assert wg.jacobian(wg.square, "forward")(t(1.0)).tolist() == wg.jacobian(wg.square, "reverse")(t(1.0)).tolist()


def test_results_do_not_lead_to_the_variables_of_the_transformation() -> None:
    """What grad and linearize hand out is tracked only where something outside is."""
    x, w = t(1.0, 2.0), t(3.0, 4.0)
    (_, aux), _ = wg.value_and_grad(lambda a: ((a * a).sum(), {"twice": a * 2, "name": "n"}), has_aux=True)(x)
    assert not aux["twice"].requires_grad and aux["name"] == "n"
    _, push = wg.linearize(wg.sin, x)
    assert not push(w).requires_grad
    w.requires_grad_()
    (_, aux), _ = wg.value_and_grad(lambda a: ((a * a).sum(), a * w), has_aux=True)(x)
    assert aux.sum().backward()[w].tolist() == [1.0, 2.0]
    _, push = wg.linearize(lambda a: a * w, x)
    assert push(t(5.0, 6.0)).sum().backward()[w].tolist() == [5.0, 6.0]


def test_jvp_takes_tuples() -> None:
    with pytest.raises(wg.ArgumentError, match="primals must be a tuple with one entry per argument of f, got Tensor"):
        wg.jvp(wg.sin, t(1.0, 2.0), t(1.0, 2.0))


def test_tangents_and_cotangents_are_matched_by_key() -> None:
    f = lambda p: {"x": p["a"] * 2, "y": p["b"] * 3}
    p = {"a": t(1.0), "b": t(1.0)}
    swapped = {"b": t(10.0), "a": t(1.0)}
    assert {k: v.tolist() for k, v in wg.jvp(f, (p,), (swapped,))[1].items()} == {"x": [2.0], "y": [30.0]}
    assert {k: v.tolist() for k, v in wg.linearize(f, p)[1](swapped).items()} == {"x": [2.0], "y": [30.0]}
    (p_bar,) = wg.vjp(f, p)[1]({"y": t(10.0), "x": t(1.0)})
    assert {k: v.tolist() for k, v in p_bar.items()} == {"a": [2.0], "b": [30.0]}
    with pytest.raises(wg.ArgumentError, match=r"keys \['a'\] in place of a dict with keys \['a', 'b'\]"):
        wg.jvp(f, (p,), ({"a": t(1.0)},))
    with pytest.raises(wg.ArgumentError, match="another structure: a Tensor in place of a dict"):
        wg.vjp(f, p)[1](t(1.0))


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda f, x: wg.grad(f)(x),
        lambda f, x: wg.value_and_grad(f)(x)[1],
        lambda f, x: wg.vjp(f, x)[1](wg.tensor(1.0))[0],
    ],
    ids=["grad", "value_and_grad", "vjp"],
)
def test_result_that_does_not_depend_on_the_argument_warns(differentiate):
    x, w = wg.tensor([1.0, 2.0]), wg.tensor(3.0, requires_grad=True)
    for f in (lambda x: wg.tensor(1.0), lambda x: w * w, lambda x: (x.detach() ** 2).sum()):
        with pytest.warns(UserWarning, match="does not depend on the argument") as caught:
            assert differentiate(f, x).sum().item() == 0.0
        assert caught[0].filename == __file__
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(5):
            differentiate(lambda x: w * w, x)
    assert len(caught) == 1


def test_derivatives_that_vanish_do_not_warn():
    x = wg.tensor([1.0, 2.0])
    assert wg.hessian(lambda x: (3.0 * x).sum())(x).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert wg.hvp(lambda x: (3.0 * x).sum(), x, x).tolist() == [0.0, 0.0]
    assert wg.grad(lambda p: p["a"] * 2.0)({"a": wg.tensor(1.0), "unused": wg.tensor(1.0)})["unused"].item() == 0.0
    assert wg.jacobian(lambda x: (x[0], x[1]))(x)[0].tolist() == [1.0, 0.0]
    assert wg.grad(lambda x: (x * 0.0).sum())(x).tolist() == [0.0, 0.0]
    y, push = wg.linearize(lambda x: x * 2.0, x)
    assert push(x).tolist() == [2.0, 4.0]


def test_strings_among_the_leaves_are_explained() -> None:
    with pytest.raises(wg.DTypeError, match=r"grad: an argument holds the string 'm'.*metadata=\{\"static\": True\}"):
        wg.grad(lambda p: p["w"] * 2.0)({"name": "m", "w": wg.tensor(1.0)})
