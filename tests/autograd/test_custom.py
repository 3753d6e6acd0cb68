"""Custom operations: one rule, both modes, any order; and rules that break the contract."""

from __future__ import annotations

import math
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


# ----------------------------------------------------------------------------- linear rules, and rules that are not

NOT_LINEAR = {
    "square": lambda d, x: d * d,
    "clip": lambda d, x: wg.clip(d, -10.0, 10.0),
    "affine": lambda d, x: d * 3.0 + 1.0,
    "affine in x": lambda d, x: d + x,
    "abs": lambda d, x: abs(d) * x,
    "relu": lambda d, x: wg.where(d > 0.0, d, 0.0),
    "where beside numbers": lambda d, x: wg.where(x > 0.0, d, 1.0),
    "matmul": lambda d, x: wg.matmul(d, d) + 0.0 * d,
    "rounded": lambda d, x: d.astype("int64").astype(x.dtype),
    "constant": lambda d, x: wg.ones_like(x),
}
NEEDS_NUMBERS = {  # which there are none of while a function is compiled
    "numpy": lambda d, x: wg.asarray(d.numpy() * 2.0),
    "asarray": lambda d, x: wg.asarray(np.asarray(d) * 2.0),
    "float": lambda d, x: d * float(d.sum()),
    "branch": lambda d, x: d if d.sum() > 0 else 2.0 * d,
}


def op_with_jvp(rule):
    @wg.custom_op
    def special(x):
        return wg.asarray(x.numpy() * 2.0)

    special.defjvp(lambda x_dot, y, x: rule(x_dot, x))
    return special


@pytest.mark.parametrize(
    "make, rule",
    [
        *(pytest.param(lambda op: op, rule, id=name) for name, rule in (NOT_LINEAR | NEEDS_NUMBERS).items()),
        *(pytest.param(wg.compile, rule, id=f"{name}, compiled") for name, rule in NOT_LINEAR.items()),
    ],
)
def test_reverse_mode_refuses_jvp_rules_that_are_not_linear(make, rule):
    f = make(op_with_jvp(rule))
    x = wg.tensor([0.5, 2.0])
    message = r"special: reverse mode needs .* linear .* defvjp"
    with pytest.raises(wg.GradientError, match=message):
        wg.grad(lambda x: f(x).sum())(x)
    with pytest.raises(wg.GradientError, match=message):
        f(wg.tensor([0.5, 2.0], requires_grad=True)).sum().backward()
    y, y_dot = wg.jvp(f, (x,), (wg.tensor([1.5, -3.0]),))  # the mode that the rule is for
    assert y.tolist() == [1.0, 4.0]
    assert y_dot.tolist() == rule(wg.tensor([1.5, -3.0]), x).tolist()


LINEAR = {
    "with numbers from NumPy": lambda d, x: d * wg.asarray(np.cos(x.numpy())),
    "branches on x": lambda d, x: d if float(x.sum()) > 0 else 2.0 * d,
    "masked": lambda d, x: wg.where(x > 1.0, d, 0.0),
    "joined with zeros": lambda d, x: wg.concat([d[:1], wg.zeros((1,), dtype=x.dtype)]),
    "zero": lambda d, x: wg.zeros_like(x),
    "product": lambda d, x: wg.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=x.dtype) @ d,
    "mean": lambda d, x: d.mean() * x,
    "looks at the sign": lambda d, x: (d > 0.0, d / x)[1],
    "infinite coefficient": lambda d, x: d * wg.asarray(np.array([np.inf, 1.0])),
}


@pytest.mark.parametrize("rule", LINEAR.values(), ids=LINEAR)
def test_reverse_mode_is_the_transpose_of_a_linear_jvp_rule(rule):
    op = op_with_jvp(rule)
    x = wg.tensor(np.array([0.5, 2.0]))
    jacobian = np.array([rule(wg.tensor(np.array(e)), x).tolist() for e in ([1.0, 0.0], [0.0, 1.0])]).T
    for bar in ([1.0, 0.0], [0.3, -2.0]):
        y, pull = wg.vjp(op, x)
        strong = np.where(np.array(bar) == 0, 0.0, np.array(bar))
        with np.errstate(invalid="ignore"):
            expected = np.nansum(strong[:, None] * jacobian, axis=0)
        np.testing.assert_allclose(pull(wg.tensor(np.array(bar)))[0].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("clip", [1.0, 1e6])
def test_forward_mode_refuses_backward_rules_that_are_not_linear(clip):
    @wg.custom_op
    def special(x):
        return x * 2.0

    special.defvjp(lambda y_bar, y, x: wg.clip(y_bar, -clip, clip))
    x = wg.tensor([0.5, 2.0])
    with pytest.raises(wg.CustomOpError, match=r"special: forward mode needs .* linear"):
        wg.jvp(special, (x,), (x,))
    assert wg.grad(lambda x: special(x).sum())(x).tolist() == [1.0, 1.0]


def test_bodies_see_plain_tensors():
    class Plain(wg.CustomOp):
        def forward(self, x, scale):
            self.save(float(x.sum()))
            return wg.asarray(np.sin(x.numpy()) * scale)

        def backward(self, y_bar, x, scale):
            assert self.saved[0] == x.sum().item()
            return wg.asarray(y_bar.numpy() * np.cos(np.asarray(x)) * scale)

    def f(x):
        return Plain()(x * 2.0, 3.0).sum()

    x = wg.tensor(np.array([0.5, -0.25]))
    expected = 6.0 * np.cos([1.0, -0.5])
    np.testing.assert_allclose(wg.grad(f)(x).numpy(), expected)
    w = wg.tensor(x, requires_grad=True)
    np.testing.assert_allclose(f(w).backward()[w].numpy(), expected)
    with wg.GradientTape() as tape:
        y = f(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), expected)
    np.testing.assert_allclose(wg.value_and_grad(wg.compile(f))(x)[1].numpy(), expected)
    with pytest.raises(wg.CustomOpError, match=r"Plain: .*write the rule in wengert ops"):
        wg.grad(lambda x: wg.grad(f)(x).sum())(x)


@pytest.mark.parametrize(
    "leave", [float, lambda x: x.item(), lambda x: x.numpy(), np.asarray], ids=["float", "item", "numpy", "asarray"]
)
def test_rule_that_leaves_wengert_is_named_at_the_next_order(leave):
    @wg.custom_op
    def special(x):
        return wg.sin(x)

    special.defjvp(lambda x_dot, y, x: x_dot * math.cos(leave(x)))
    x = wg.tensor(0.5)
    assert wg.jvp(special, (x,), (wg.tensor(1.0),))[1].item() == pytest.approx(math.cos(0.5))
    assert wg.grad(special)(x).item() == pytest.approx(math.cos(0.5))
    for second in (
        lambda: wg.grad(wg.grad(special))(x),
        lambda: wg.hvp(special, x, wg.tensor(1.0)),
        lambda: wg.grad(lambda x: wg.jvp(special, (x,), (wg.tensor(1.0),))[1])(x),
        lambda: wg.jvp(lambda x: wg.jvp(special, (x,), (wg.tensor(1.0),))[1], (x,), (wg.tensor(1.0),)),
    ):
        with pytest.raises(wg.CustomOpError, match=r"special: .*wengert ops"):
            second()


def test_residuals_in_compiled_functions_belong_to_their_call():
    class Square(wg.CustomOp):
        def forward(self, x):
            self.save(2.0 * x, float(x.sum()))
            return x * x

        def backward(self, y_bar, x):
            assert self.saved[1] == float(x.sum())
            return y_bar * self.saved[0]

    f = wg.compile(lambda x: Square()(x))
    a, b = wg.tensor([1.0, 2.0], requires_grad=True), wg.tensor([3.0, 5.0], requires_grad=True)
    y, z = f(a), f(b)
    assert y.sum().backward()[a].tolist() == [2.0, 4.0]
    assert z.sum().backward()[b].tolist() == [6.0, 10.0]


def test_residuals_are_differentiated_at_the_next_order():
    class Cube(wg.CustomOp):
        def forward(self, x):
            self.save(3.0 * x * x)
            return x**3

        def backward(self, y_bar, x):
            return y_bar * self.saved[0]

    def f(x):
        return Cube()(x * 1.0)

    x, one = wg.tensor(2.0), wg.tensor(1.0)
    assert wg.grad(wg.grad(f))(x).item() == 12.0
    assert wg.grad(wg.grad(wg.grad(f)))(x).item() == 6.0
    assert wg.hvp(f, x, one).item() == 12.0
    assert wg.grad(lambda x: wg.jvp(f, (x,), (one,))[1])(x).item() == 12.0
    assert wg.jvp(lambda x: wg.jvp(f, (x,), (one,))[1], (x,), (one,))[1].item() == 12.0
    w = wg.tensor(2.0, requires_grad=True)
    y = f(w)
    assert y.backward(create_graph=True)[w].backward()[w].item() == 12.0


def test_random_residuals():
    class Drop(wg.CustomOp):
        def forward(self, x):
            mask = wg.bernoulli(0.5, x.shape).astype(x.dtype)
            self.save(mask)
            return x * x * mask

        def backward(self, y_bar, x):
            return y_bar * 2.0 * x * self.saved[0]

    x = wg.ones((64,), requires_grad=True)
    y = Drop()(x)
    g = y.sum().backward(create_graph=True, inputs=[x])[x]
    assert g.tolist() == (2.0 * y).tolist()
    assert g.sum().backward(inputs=[x])[x].tolist() == (2.0 * y).tolist()
    with pytest.raises(wg.CustomOpError, match="Drop: .*other results the second time"):
        wg.grad(wg.compile(lambda x: Drop()(x).sum()))(x.detach())

    class Scaled(Drop):
        def forward(self, x):
            y = x * wg.bernoulli(0.5, x.shape).astype(x.dtype)
            self.save(y)
            return y * x

        def backward(self, y_bar, x):
            return y_bar * 2.0 * self.saved[0]

    with pytest.raises(wg.CustomOpError, match="Scaled: .*other results the second time"):
        Scaled()(x).sum().backward(create_graph=True, inputs=[x])


FACTOR = np.array([2.0, -1.0, 0.5])


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
def test_rules_of_compiled_functions_close_over_tensors(mode: str) -> None:
    factor = wg.tensor(FACTOR)

    @wg.custom_op
    def scaled_square(x: Any) -> Any:
        return wg.asarray(FACTOR * x.numpy() ** 2)

    if mode == "jvp":
        scaled_square.defjvp(lambda x_dot, y, x: x_dot * (2.0 * x * factor))
    else:
        scaled_square.defvjp(lambda y_bar, y, x: y_bar * (2.0 * x * factor))
    f = wg.compile(lambda x: scaled_square(x).sum())
    x, v = wg.tensor([1.0, 2.0, 4.0], dtype=wg.float64), wg.tensor([1.0, 0.5, 0.25], dtype=wg.float64)
    for _ in range(2):
        np.testing.assert_allclose(wg.grad(f)(x).numpy(), 2 * FACTOR * x.numpy())
        np.testing.assert_allclose(wg.compile(wg.grad(f))(x).numpy(), 2 * FACTOR * x.numpy())
    if mode == "jvp":
        np.testing.assert_allclose(wg.jvp(f, (x,), (v,))[1].item(), float((2 * FACTOR * x.numpy() * v.numpy()).sum()))
        np.testing.assert_allclose(wg.hvp(f, x, v).numpy(), 2 * FACTOR * v.numpy())
    factor.mul_(2.0)  # rules read it when they run
    np.testing.assert_allclose(wg.grad(f)(x).numpy(), 4 * FACTOR * x.numpy())
    leaf = wg.tensor(FACTOR, requires_grad=True)
    scaled_square.defjvp(lambda x_dot, y, x: x_dot * (x * leaf)) if mode == "jvp" else scaled_square.defvjp(
        lambda y_bar, y, x: y_bar * (x * leaf)
    )
    with pytest.raises(wg.CustomOpError, match="closes over a tensor .*requires a gradient.*argument of the op"):
        wg.grad(wg.compile(lambda x: scaled_square(x).sum()))(x)


@pytest.mark.parametrize("tracked", [None, True])
def test_the_result_itself_is_what_a_tape_differentiates(tracked: bool | None) -> None:
    x = wg.tensor([2.0, 3.0], requires_grad=tracked)
    with wg.GradientTape() as tape:
        y = Cube()(x)
        assert y.requires_grad
    assert tape.gradient(y, x).tolist() == [12.0, 27.0]


def test_backward_frees_what_a_custom_op_keeps_while_its_result_lives() -> None:
    @wg.custom_op
    def double(x: Any) -> Any:
        return x * 2.0

    double.defvjp(lambda y_bar, y, x: 2.0 * y_bar)
    w = wg.ones((1000,), requires_grad=True)
    before = wg.memory_stats().live_bytes
    y = double(w * 3.0)
    y.sum().backward()
    w.grad = None
    assert wg.memory_stats().live_bytes - before <= y.size * 4 + 64  # the result alone: not the argument
