"""Custom operations: one rule, both modes, any order; and rules that break the contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd


def t(*x: float) -> wg.Tensor:
    return wg.tensor(list(x), dtype=wg.float64)


def make_cube(rule: str) -> Any:
    @wg.custom_op
    def cube(x: Any) -> Any:
        return wg.asarray(x.numpy() ** 3)

    if rule == "jvp":

        @cube.defjvp
        def _(x_dot: Any, y: Any, x: Any) -> Any:
            return 3 * x**2 * x_dot
    else:

        @cube.defvjp
        def _(y_bar: Any, y: Any, x: Any) -> Any:
            return 3 * x**2 * y_bar

    return cube


class Cube(wg.CustomOp):
    def forward(self, x: Any) -> Any:
        return wg.asarray(x.numpy() ** 3)

    def backward(self, y_bar: Any, x: Any) -> Any:
        return 3 * x**2 * y_bar


CUBES = [make_cube("jvp"), make_cube("vjp"), lambda x: Cube()(x)]


@pytest.mark.parametrize("cube", CUBES, ids=["defjvp", "defvjp", "class"])
def test_every_mode_and_order(cube: Any) -> None:
    x, v = t(1.0, 2.0, -1.5), t(1.0, -2.0, 0.5)
    f = lambda z: cube(z).sum()
    a, d = x.numpy(), v.numpy()
    np.testing.assert_allclose(cube(x).numpy(), a**3)
    np.testing.assert_allclose(wg.grad(f)(x).numpy(), 3 * a**2)
    np.testing.assert_allclose(wg.jvp(cube, (x,), (v,))[1].numpy(), 3 * a**2 * d)
    np.testing.assert_allclose(wg.vjp(cube, x)[1](v)[0].numpy(), 3 * a**2 * d)
    np.testing.assert_allclose(wg.hvp(f, x, v).numpy(), 6 * a * d)
    np.testing.assert_allclose(wg.grad(lambda z: (wg.grad(f)(z) * v).sum())(x).numpy(), 6 * a * d)
    np.testing.assert_allclose(wg.hessian(f)(x).numpy(), np.diag(6 * a))
    np.testing.assert_allclose(wg.jacrev(wg.grad(f))(x).numpy(), np.diag(6 * a))
    np.testing.assert_allclose(wg.jacfwd(cube)(x).numpy(), np.diag(3 * a**2))
    third = wg.grad(lambda z: wg.grad(lambda y: wg.grad(f)(y).sum())(z).sum())(x)
    np.testing.assert_allclose(third.numpy(), np.full(3, 6.0))
    leaf = wg.tensor(a, requires_grad=True)
    f(leaf).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), 3 * a**2)
    with wg.GradientTape() as tape:
        y = f(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), 3 * a**2)


def test_a_rule_that_reads_the_output() -> None:
    @wg.custom_op
    def exponential(x: Any) -> Any:
        return wg.asarray(np.exp(x.numpy()))

    @exponential.defjvp
    def _(x_dot: Any, y: Any, x: Any) -> Any:
        return y * x_dot

    x = t(0.5, -1.0)
    expected = np.exp(x.numpy())
    f = lambda z: exponential(z).sum()
    np.testing.assert_allclose(wg.grad(f)(x).numpy(), expected)
    np.testing.assert_allclose(np.diag(wg.jacrev(wg.grad(f))(x).numpy()), expected)
    np.testing.assert_allclose(np.diag(wg.hessian(f)(x).numpy()), expected)


@wg.custom_op
def affine(x: Any, w: Any, power: int, b: Any = 0.0) -> Any:
    return (x * w) ** power, x + b


@affine.defvjp
def _affine_rule(y_bar: Any, z_bar: Any, y: Any, z: Any, x: Any, w: Any, power: int, b: Any = 0.0) -> Any:
    inner = power * (x * w) ** (power - 1) * y_bar
    return inner * w + z_bar, inner * x


def test_several_inputs_outputs_and_static_arguments() -> None:
    x, w = np.array([1.0, -2.0]), np.array([0.5, 3.0])

    def f(a: Any, b: Any) -> Any:
        y, z = affine(a, b, 3)
        return (y * t(1.0, 2.0)).sum() + (z * t(5.0, 7.0)).sum()

    grads = wg.grad(f, argnums=(0, 1))(wg.asarray(x), wg.asarray(w))
    numeric = fd.gradient(lambda a, b: f(wg.asarray(a), wg.asarray(b)).item(), [x, w])
    for g, n in zip(grads, numeric):
        np.testing.assert_allclose(g.numpy(), n, rtol=1e-8)
    _, y_dot = wg.jvp(f, (wg.asarray(x), wg.asarray(w)), (t(1.0, 2.0), t(-1.0, 1.0)))
    expected = fd.directional(
        lambda a, b: f(wg.asarray(a), wg.asarray(b)).item(), [x, w], [np.array([1.0, 2.0]), np.array([-1.0, 1.0])]
    )
    np.testing.assert_allclose(y_dot.numpy(), expected, rtol=1e-8)


def test_only_one_output_is_used() -> None:
    x = t(1.0, -2.0)
    assert wg.grad(lambda a: affine(a, t(1.0, 1.0), 1)[1].sum())(x).tolist() == [1.0, 1.0]
    assert wg.grad(lambda a: affine(a, t(2.0, 2.0), 1)[0].sum())(x).tolist() == [2.0, 2.0]


def test_integer_inputs_get_no_gradient() -> None:
    @wg.custom_op
    def pick(x: Any, i: Any) -> Any:
        return wg.take(x, i, axis=0)

    @pick.defvjp
    def _(y_bar: Any, y: Any, x: Any, i: Any) -> Any:
        return wg.zeros_like(x) + y_bar.sum(), None

    assert wg.grad(lambda x: pick(x, wg.tensor([1, 1])).sum())(t(1.0, 2.0)).tolist() == [2.0, 2.0]


def test_none_gradients() -> None:
    class First(wg.CustomOp):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

        def backward(self, bar: Any, x: Any, y: Any) -> Any:
            return bar, None

    x, y = wg.tensor([1.0], requires_grad=True), wg.tensor([2.0], requires_grad=True)
    grads = First()(x, y).sum().backward()
    assert grads[x].tolist() == [1.0]
    assert grads.get(y) is None or grads[y].tolist() == [0.0]


def test_saved_residuals() -> None:
    class Softplus(wg.CustomOp):
        def forward(self, x: Any) -> Any:
            e = wg.exp(x)
            self.save(e)
            return wg.log1p(e)

        def backward(self, y_bar: Any, x: Any) -> Any:
            (e,) = self.saved
            return y_bar * e / (1 + e)

    x = t(0.3, -1.2)
    g = wg.grad(lambda z: (Softplus()(z) * t(1.0, 3.0)).sum())(x).numpy()
    np.testing.assert_allclose(g, np.array([1.0, 3.0]) / (1 + np.exp(-x.numpy())))


def test_one_instance_called_twice_keeps_both_residuals() -> None:
    class Scale(wg.CustomOp):
        def forward(self, x: Any, factor: float) -> Any:
            self.save(factor)
            return x * factor

        def backward(self, y_bar: Any, x: Any, factor: float) -> Any:
            return y_bar * self.saved[0]

    op = Scale()
    x = wg.tensor([1.0], requires_grad=True)
    y = op(x, 2.0) + op(x, 10.0)
    assert y.sum().backward()[x].tolist() == [12.0]


class ClipGradient(wg.CustomOp):
    def forward(self, x: Any) -> Any:
        return x

    def backward(self, y_bar: Any, x: Any) -> Any:
        return wg.clip(y_bar, -1.0, 1.0)


def test_a_rule_that_is_not_linear_has_no_forward_mode() -> None:
    x = t(2.0)
    assert wg.grad(lambda z: (ClipGradient()(z) * 100.0).sum())(x).tolist() == [1.0]
    with pytest.raises(wg.CustomOpError, match="ClipGradient"):
        wg.jvp(lambda z: ClipGradient()(z), (x,), (t(1.0),))


def test_hvp_falls_back_to_reverse_over_reverse() -> None:
    def f(z: Any) -> Any:
        return (ClipGradient()(z) ** 3).sum() * 0.01

    assert wg.hvp(f, t(2.0), t(1.0)).tolist() == pytest.approx([0.12])


def test_missing_rules() -> None:
    @wg.custom_op
    def bare(x: Any) -> Any:
        return x * 2.0

    assert bare(t(2.0)).tolist() == [4.0]
    with pytest.raises(wg.CustomOpError, match="bare"):
        wg.grad(lambda x: bare(x).sum())(t(2.0))
    with pytest.raises(wg.CustomOpError, match="bare"):
        wg.jvp(bare, (t(2.0),), (t(1.0),))

    class Nothing(wg.CustomOp):
        pass

    with pytest.raises(wg.CustomOpError, match="Nothing"):
        Nothing()(t(1.0))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda g, x, y: g, "1 gradient"),
        (lambda g, x, y: (g, g, g), "3 gradient"),
        (lambda g, x, y: (g, wg.ones(7, dtype=wg.float64)), r"\(7,\)"),
        (lambda g, x, y: (g.sum(), g), r"\(\)"),
    ],
)
def test_wrong_gradients(result: Any, message: str) -> None:
    class Product(wg.CustomOp):
        def forward(self, x: Any, y: Any) -> Any:
            return x * y

        def backward(self, bar: Any, x: Any, y: Any) -> Any:
            return result(bar, x, y)

    x, y = wg.tensor([1.0, 2.0], requires_grad=True), wg.tensor([2.0, 3.0], requires_grad=True)
    out = Product()(x, y)
    with pytest.raises(wg.CustomOpError, match=f"Product.*{message}"):
        out.sum().backward()
    assert x.grad is None and y.grad is None
    assert (x * y).sum().backward()[x].tolist() == [2.0, 3.0]


def test_an_exception_in_a_rule_arrives() -> None:
    @wg.custom_op
    def bad(x: Any) -> Any:
        return x * 1.0

    @bad.defvjp
    def _(y_bar: Any, y: Any, x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        wg.grad(lambda x: bad(x).sum())(t(1.0))
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(KeyError, match="mine"):
        bad(x).sum().backward()
    assert (x * x).sum().backward()[x].tolist() == [2.0, 4.0]


def test_rules_in_numpy_stop_at_the_next_order() -> None:
    @wg.custom_op
    def cube(x: Any) -> Any:
        return wg.asarray(x.numpy() ** 3)

    @cube.defvjp
    def _(y_bar: Any, y: Any, x: Any) -> Any:
        return wg.asarray(3 * x.numpy() ** 2 * y_bar.numpy())

    f = lambda x: cube(x).sum()
    assert wg.grad(f)(t(2.0)).tolist() == [12.0]
    with pytest.raises(wg.WengertError, match="cube"):
        wg.grad(lambda x: wg.grad(f)(x).sum())(t(2.0))


def test_forward_may_return_its_input() -> None:
    class Identity(wg.CustomOp):
        def forward(self, x: Any) -> Any:
            return x

        def backward(self, y_bar: Any, x: Any) -> Any:
            return y_bar * 3.0

    x = wg.tensor([1.0], requires_grad=True)
    y = Identity()(x)
    assert (y + x).sum().backward()[x].tolist() == [4.0]


def test_nothing_is_recorded_under_no_grad() -> None:
    x = wg.tensor([1.0], requires_grad=True)
    with wg.no_grad():
        assert not CUBES[0](x).requires_grad
    assert not CUBES[0](wg.ones(1)).requires_grad


@pytest.mark.parametrize("cube", CUBES)
def test_in_compiled_functions(cube: Any) -> None:
    f = wg.compile(lambda x: (cube(x * 2.0) + 1.0).sum())
    for x in (t(1.0, 2.0), t(1.0, 2.0, 3.0)):  # another size traces again
        assert f(x).item() == pytest.approx(float((8 * x.numpy() ** 3 + 1).sum()))
        np.testing.assert_allclose(wg.grad(f)(x).numpy(), 24 * x.numpy() ** 2)
        np.testing.assert_allclose(wg.grad(lambda z: wg.grad(f)(z).sum())(x).numpy(), 48 * x.numpy())


def test_memory_is_freed() -> None:
    import gc

    from wengert import _core

    gc.collect()
    before = _core.memory_stats()["live_bytes"]
    for _ in range(10):
        x = wg.tensor(np.ones(1000), requires_grad=True)
        CUBES[0](x).sum().backward()
        CUBES[0](x)
    del x
    gc.collect()
    assert _core.memory_stats()["live_bytes"] == before


def test_arguments_by_name() -> None:
    class Scaled(wg.CustomOp):
        def forward(self, x: Any, factor: float, sign: float = 1.0) -> Any:
            return x * (factor * sign)

        def backward(self, y_bar: Any, x: Any, factor: float, sign: float) -> Any:
            return y_bar * (factor * sign)

    @wg.custom_op
    def power(x: Any, exponent: int = 2) -> Any:
        return x**exponent

    @power.defjvp
    def _(x_dot: Any, y: Any, x: Any, exponent: int) -> Any:
        return exponent * x ** (exponent - 1) * x_dot

    x = wg.tensor([1.0, 2.0], requires_grad=True)
    assert Scaled()(x, factor=3.0, sign=-1.0).sum().backward()[x].tolist() == [-3.0, -3.0]
    assert wg.GradientTape().custom_op(Scaled(), x, factor=3.0).sum().backward()[x].tolist() == [3.0, 3.0]
    assert power(x, exponent=3).sum().backward()[x].tolist() == [3.0, 12.0]

    @wg.custom_op
    def by_name_only(x: Any, *, k: int) -> Any:
        return x * k

    with pytest.raises(wg.CustomOpError, match="by_name_only: rules get arguments by position; k can be given by name"):
        by_name_only(x, k=2)


def test_a_forward_that_returns_nothing_is_named() -> None:
    class Forgetful(wg.CustomOp):
        def forward(self, x):
            x * 2

        def backward(self, y_bar, x):
            return y_bar

    @wg.custom_op
    def absent(x):
        x * 2

    @absent.defjvp
    def _(x_dot, y, x):
        return x_dot

    x = wg.ones((2,), requires_grad=True)
    for name, f in (("Forgetful", Forgetful()), ("absent", absent)):
        for call in (lambda: f(x), lambda: wg.grad(lambda x: f(x).sum())(x), lambda: wg.compile(lambda x: f(x))(x)):
            with pytest.raises(wg.CustomOpError, match=f"{name}: forward returned None.*`return` missing"):
                call()
