"""`vmap`: one call for many examples is the loop over them, in every mode and nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

RNG = np.random.default_rng(7)
N = 4


def array(*shape: int) -> Any:
    return RNG.normal(size=shape)


def loop(f: Any, *args: Any) -> np.ndarray[Any, Any]:
    """f of each example, stacked."""
    return np.stack([np.asarray(f(*(wg.asarray(a[i].copy()) for a in args))) for i in range(len(args[0]))])


def near(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(got.detach()), expected, rtol=1e-12, atol=1e-13)


def energy(x: Any, w: Any) -> Any:
    """A scalar of a vector and a matrix, through a product, a sum, a shape and functions."""
    h = wg.tanh(w @ x + 0.5)
    return (h.reshape((-1, 1)) * h).sum() + wg.exp(-(x * x)).mean()


X, W = array(N, 3), array(5, 3)
SHARED = wg.asarray(W)
HALF = wg.tensor(0.5)


def f(x: Any) -> Any:
    return energy(x, SHARED)


# ------------------------------------------------------------------------------------------------------- every mode


def test_values_and_gradients_are_those_of_the_loop() -> None:
    near(wg.vmap(f)(wg.asarray(X)), loop(f, X))
    near(wg.vmap(wg.grad(f))(wg.asarray(X)), loop(wg.grad(f), X))


def test_gradient_of_a_mapped_function() -> None:
    x = wg.asarray(X)
    near(wg.grad(lambda z: wg.vmap(f)(z).sum())(x), loop(wg.grad(f), X))
    leaf = wg.tensor(X, requires_grad=True)
    near(wg.vmap(f)(leaf).sum().backward()[leaf], loop(wg.grad(f), X))


def test_gradient_by_what_all_examples_share() -> None:
    w = wg.tensor(W, requires_grad=True)
    total = wg.vmap(lambda x: energy(x, w))(wg.asarray(X)).sum()
    expected = sum(np.asarray(wg.grad(lambda m: energy(wg.asarray(x), m))(SHARED)) for x in X)
    near(total.backward()[w], expected)
    near(wg.grad(lambda m: wg.vmap(energy, (0, None))(wg.asarray(X), m).sum())(SHARED), expected)


def test_forward_mode_inside_and_outside() -> None:
    v = array(N, 3)

    def along(x: Any, x_dot: Any) -> Any:
        return wg.jvp(f, (x,), (x_dot,))[1]

    expected = loop(along, X, v)
    near(wg.vmap(along)(wg.asarray(X), wg.asarray(v)), expected)
    near(wg.jvp(wg.vmap(f), (wg.asarray(X),), (wg.asarray(v),))[1], expected)


def test_second_order_in_every_order_of_transformations() -> None:
    v = array(N, 3)
    x, x_dot = wg.asarray(X), wg.asarray(v)
    expected = loop(lambda a, b: wg.hvp(f, a, b), X, v)
    near(wg.vmap(lambda a, b: wg.hvp(f, a, b))(x, x_dot), expected)
    near(wg.jvp(wg.vmap(wg.grad(f)), (x,), (x_dot,))[1], expected)
    near(wg.grad(lambda z: (wg.vmap(wg.grad(f))(z) * x_dot).sum())(x), expected)
    near(wg.hvp(lambda z: wg.vmap(f)(z).sum(), x, x_dot), expected)
    near(wg.grad(lambda z: (wg.grad(lambda u: wg.vmap(f)(u).sum())(z) * x_dot).sum())(x), expected)


def test_products_with_a_hessian_for_many_directions() -> None:
    """The point is the same for all: what depends on it alone is computed once."""
    x, directions = wg.asarray(X[0]), wg.asarray(array(6, 3))
    many = wg.vmap(lambda v: wg.hvp(f, x, v))
    expected = np.stack([np.asarray(wg.hvp(f, x, v)) for v in directions])
    near(many(directions), expected)
    near(wg.compile(lambda z, vs: wg.vmap(lambda v: wg.hvp(f, z, v))(vs))(x, directions), expected)


def test_inside_compile_it_appends_instructions() -> None:
    compiled = wg.compile(lambda z: wg.vmap(wg.grad(f))(z * 2.0).sum(axis=0))
    near(compiled(wg.asarray(X)), loop(wg.grad(f), X * 2.0).sum(0))
    assert len(compiled.report()) == 1


def test_compiled_function_inside() -> None:
    inner = wg.compile(f)
    near(wg.vmap(wg.grad(inner))(wg.asarray(X)), loop(wg.grad(f), X))


def test_nested() -> None:
    a, b = array(3, 2), array(4, 2)

    def kernel(p: Any, q: Any) -> Any:
        return wg.exp(-((p - q) ** 2).sum())

    gram = wg.vmap(lambda p: wg.vmap(lambda q: kernel(p, q))(wg.asarray(b)))
    near(gram(wg.asarray(a)), np.exp(-((a[:, None] - b) ** 2).sum(-1)))
    twice = wg.vmap(wg.vmap(kernel, (None, 0)), (0, None))
    near(twice(wg.asarray(a), wg.asarray(b)), np.exp(-((a[:, None] - b) ** 2).sum(-1)))
    slopes = wg.vmap(wg.vmap(wg.grad(kernel), (None, 0)), (0, None))(wg.asarray(a), wg.asarray(b))
    difference = a[:, None] - b
    near(slopes, -2 * difference * np.exp(-(difference**2).sum(-1))[..., None])


def test_closing_over_a_dual() -> None:
    """A mapped function of a plain argument that closes over a tensor with a tangent."""
    x, w_dot = wg.asarray(X), wg.asarray(array(5, 3))

    def total(w: Any) -> Any:
        return wg.vmap(lambda z: energy(z, w))(x)

    _, y_dot = wg.jvp(total, (SHARED,), (w_dot,))
    _, expected = wg.jvp(lambda w: wg.stack([energy(wg.asarray(z), w) for z in X]), (SHARED,), (w_dot,))
    near(y_dot, np.asarray(expected))


def test_pulling_many_cotangents_through_what_was_evaluated_before() -> None:
    """One walk for each: what was recorded outside is not a program of the trace."""
    x = wg.asarray(X[0])
    y, pull = wg.vjp(lambda z: wg.sin(z) * z.sum(), x)
    rows = wg.vmap(pull)(wg.eye(3, dtype=wg.float64))[0]
    near(rows, np.asarray(wg.jacrev(lambda z: wg.sin(z) * z.sum())(x)))
    near(wg.compile(pull)(wg.ones((3,), dtype=wg.float64))[0], np.asarray(rows).sum(0))
    _, push = wg.linearize(lambda z: wg.sin(z) * z.sum(), x)
    near(wg.vmap(push)(wg.eye(3, dtype=wg.float64)), np.asarray(rows).T)


def test_per_sample_gradients() -> None:
    def loss(p: Any, x: Any, t: Any, *, scale: float = 1.0) -> Any:
        return ((wg.tanh(p["w"] @ x) - t) ** 2).sum() * scale

    p = {"w": wg.asarray(array(2, 3))}
    x, t = array(N, 3), array(N, 2)
    got = wg.per_sample_grad(loss)(p, wg.asarray(x), wg.asarray(t), scale=3.0)
    near(got["w"], loop(lambda a, b: wg.grad(loss)(p, a, b, scale=3.0)["w"], x, t))
    by_t, by_p = wg.per_sample_grad(lambda t, x, p: loss(p, x, t), argnums=(0, -1))(wg.asarray(t[0]), wg.asarray(x), p)
    near(by_p["w"], loop(lambda a: wg.grad(loss)(p, a, wg.asarray(t[0]))["w"], x))
    assert by_t.shape == (N, 2)
    with pytest.raises(wg.ArgumentError, match="argnums 3 is out of range for 2"):
        wg.per_sample_grad(loss, argnums=3)(p, wg.asarray(x))


# ------------------------------------------------------------------------------------------------- axes and containers


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_axes_of_arguments_and_results(axis: int) -> None:
    x = array(3, 4, 2)
    moved = np.moveaxis(x, axis, 0)
    got = wg.vmap(lambda a: wg.sin(a) @ a.T, in_axes=axis)(wg.asarray(x))
    near(got, np.stack([np.sin(a) @ a.T for a in moved]))
    for out in (0, 1, -1, 2):
        placed = wg.vmap(lambda a: wg.sin(a) @ a.T, in_axes=axis, out_axes=out)(wg.asarray(x))
        near(placed, np.moveaxis(np.stack([np.sin(a) @ a.T for a in moved]), 0, out))


def test_containers_and_unmapped_leaves() -> None:
    p = {"w": wg.asarray(array(N, 2, 3)), "b": wg.asarray(array(2))}
    pair = (wg.asarray(array(3, N)), wg.asarray(array(N)))

    def g(p: Any, pair: Any, scale: Any) -> Any:
        x, s = pair
        return {"y": p["w"] @ x * s + p["b"] * scale, "b": p["b"]}

    got = wg.vmap(g, in_axes=({"w": 0, "b": None}, (1, 0), None), out_axes={"y": 0, "b": None})(p, pair, 3.0)
    w, b, x, s = (np.asarray(t) for t in (p["w"], p["b"], *pair))
    near(got["y"], np.einsum("nij,jn->ni", w, x) * s[:, None] + b * 3.0)
    near(got["b"], b)


def test_results_that_do_not_depend_on_the_example_are_repeated() -> None:
    y, z = wg.vmap(lambda x: (wg.ones((2,)), 3.0))(wg.asarray(X))
    assert y.tolist() == [[1.0, 1.0]] * N
    assert z.tolist() == [3.0] * N


def test_axis_size_alone() -> None:
    assert wg.vmap(lambda: wg.ones((2,)), axis_size=3)().shape == (3, 2)


def test_arrays_are_converted_and_options_are_passed_on() -> None:
    got = wg.vmap(lambda x, *, power: (x**power).sum())(X, power=2)
    near(got, (X**2).sum(1))


def test_one_trace_serves_every_number_of_examples() -> None:
    mapped = wg.vmap(wg.grad(f))
    for n in (2, 5, 9):
        x = array(n, 3)
        near(mapped(wg.asarray(x)), loop(wg.grad(f), x))
    assert len(mapped.traces) == 1
    assert mapped(wg.zeros((0, 3), dtype=wg.float64)).shape == (0, 3)


def test_a_function_that_is_mapped_anew_is_not_traced_anew() -> None:
    traced = []
    for scale in (2.0, 2.0, 3.0):
        mapped = wg.vmap(lambda x: x * scale)
        assert mapped(wg.ones((2,))).tolist() == [scale] * 2
        traced.append(mapped.traces[0])
    assert traced[0] is traced[1] and traced[1] is not traced[2]
    x = wg.ones((2,))
    assert wg.vmap(wg.grad(lambda x: x * x))(x) is not wg.vmap(wg.grad(lambda x: x * x * x))(x)
    assert wg.vmap(wg.grad(lambda x: x * x * x))(x).tolist() == [3.0, 3.0]


def test_captured_tensors_are_read_in_every_call() -> None:
    w = wg.tensor([1.0, 2.0])
    mapped = wg.vmap(lambda x: (x * w).sum())
    assert mapped(wg.ones((2, 2))).tolist() == [3.0, 3.0]
    w += 1.0
    assert mapped(wg.ones((2, 2))).tolist() == [5.0, 5.0]


# --------------------------------------------------------------------------------------------------- writes in place


def test_writes_inside() -> None:
    def g(x: Any) -> Any:
        y = x.clone()
        y[0] = y[1] * 2.0
        y *= x
        z = wg.zeros_like(y)
        z[1:] += y[1:]
        return z

    near(wg.vmap(g)(wg.asarray(X)), loop(g, X))
    near(wg.vmap(wg.grad(lambda x: g(x).sum()))(wg.asarray(X)), loop(wg.grad(lambda x: g(x).sum()), X))


def test_writes_to_arguments_change_what_they_are_examples_of() -> None:
    x = wg.asarray(X.T.copy())

    def g(row: Any) -> Any:
        row *= 2.0
        return row.sum()

    near(wg.vmap(g, in_axes=1)(x), X.sum(1) * 2.0)
    near(x, X.T * 2.0)


def test_writes_to_what_all_share() -> None:
    count = wg.zeros(())
    mapped = wg.vmap(lambda x: (count.add_(1.0), x)[1])
    mapped(wg.ones((3,)))
    mapped(wg.ones((3,)))
    assert count.item() == 2.0
    with pytest.raises(wg.TraceError, match="differs between examples"):
        wg.vmap(lambda x: count.add_(x))(wg.ones((3,)))


# ---------------------------------------------------------------------------------------------------------- bad input


def test_sizes_that_differ_are_named() -> None:
    with pytest.raises(
        wg.ShapeError,
        match=r"argument 0 of shape \(4, 3\) has 4 along axis 0, argument 1 of shape \(3, 5\) has 5 along axis 1",
    ):
        wg.vmap(lambda a, b: a + b, in_axes=(0, 1))(wg.ones((4, 3)), wg.ones((3, 5)))
    with pytest.raises(wg.ShapeError, match="axis_size is 7"):
        wg.vmap(lambda a: a, axis_size=7)(wg.ones((4, 3)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"in_axes": 2}, wg.AxisError, "in_axes 2 is out of range"),
        ({"in_axes": (0, 0)}, wg.ArgumentError, "2 entries for 1 positional"),
        ({"in_axes": ("a",)}, wg.ArgumentError, "integer, or None"),
        ({"in_axes": None}, wg.ArgumentError, "axis_size"),
        ({"out_axes": 5}, wg.AxisError, "out_axes 5 is out of range"),
        ({"out_axes": None}, wg.ArgumentError, "differs between examples"),
    ],
)
def test_axes_that_do_not_fit(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        wg.vmap(lambda x: x * 2.0, **options)(wg.ones((3, 2)))


def test_axes_that_do_not_fit_name_the_argument() -> None:
    x = wg.ones((3, 2))
    with pytest.raises(wg.AxisError, match=r"in_axes 5 is out of range for tensor 1 of argument 1 of shape \(3, 2\)"):
        wg.vmap(lambda a, b: a, in_axes=(0, {"p": 0, "q": 5}))(x, {"p": x, "q": x})
    with pytest.raises(wg.AxisError, match=r"out_axes 5 is out of range for a result of shape \(3, 2\)"):
        wg.vmap(lambda a: a, out_axes=5)(x)
    with pytest.raises(wg.ArgumentError, match=r"of shape \(3, 2\); say where they lie"):
        wg.vmap(lambda a: a, out_axes=None)(x)
    with pytest.raises(wg.ArgumentError, match="argnums must be an integer, or a tuple of them, got 'w'"):
        wg.per_sample_grad(lambda w, x: (w * x).sum(), argnums="w")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "f", [lambda x: x[x > 0], wg.nonzero, wg.argwhere, wg.unique_values], ids=["mask", "nonzero", "argwhere", "unique"]
)
def test_sizes_that_depend_on_data_name_the_line_and_the_remedy(f: Any) -> None:
    with pytest.raises(
        wg.TraceError,
        match=r"vmap: the function .* the data of a tensor \w+\[2\] of one example, at .*test_vmap.py:\d+; .* a Python loop",
    ):
        wg.vmap(lambda x: f(x))(wg.ones((3, 2)))


def test_numbers_have_no_axis() -> None:
    with pytest.raises(wg.ArgumentError, match="argument 1, a float, has no axis of examples"):
        wg.vmap(lambda x, k: x * k)(wg.ones((3,)), 2.0)


def test_branches_on_data_name_the_line_and_the_remedy() -> None:
    def g(x: Any) -> Any:
        return x if x > 0 else -x

    with pytest.raises(wg.TraceError, match=r"vmap.*test_vmap\.py:\d+.*where\(\)"):
        wg.vmap(g)(wg.ones((3,)))


def test_backward_inside_is_refused() -> None:
    w = wg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(wg.TraceError, match=r"backward\(\).*grad\(\)"):
        wg.vmap(lambda x: ((x * w).sum().backward(), x)[1])(wg.ones((3, 2)))


def test_what_is_no_function() -> None:
    with pytest.raises(wg.ArgumentError, match="takes a function"):
        wg.vmap(3)  # type: ignore[arg-type]
    with pytest.raises(wg.ArgumentError, match="axis_size"):
        wg.vmap(f, axis_size=-1)


# --------------------------------------------------------------------------------------------------------- custom ops


@wg.custom_op
def cube(x: Any) -> Any:
    return wg.asarray(np.asarray(x) ** 3)


@cube.defjvp
def _(x_dot: Any, y: Any, x: Any) -> Any:
    return 3 * x**2 * x_dot


@wg.custom_op
def scaled_sine(x: Any, w: Any, scale: float) -> Any:
    return wg.asarray(np.sin(np.asarray(x)) * np.asarray(w) * scale)


@scaled_sine.defvjp
def _(y_bar: Any, y: Any, x: Any, w: Any, scale: float) -> Any:
    return y_bar * wg.cos(x) * w * scale, y_bar * wg.sin(x) * scale


class Doubled(wg.CustomOp):
    """Several outputs, saved residuals."""

    def forward(self, x: Any) -> Any:
        self.save(x * 2.0)
        return x * x

    def backward(self, y_bar: Any, x: Any) -> Any:
        return y_bar * self.saved[0]


def test_custom_ops_run_in_a_loop_and_the_report_says_so() -> None:
    x = wg.asarray(X)
    mapped = wg.vmap(lambda z: cube(z).sum())
    near(mapped(x), (X**3).sum(1))
    assert mapped.report()[0].loops == ("cube",)
    assert "cube: one example after the other" in str(mapped.report()[0])
    assert wg.vmap(f).report() == []


@pytest.mark.parametrize("g", [lambda x: (cube(x) * wg.sin(x)).sum(), lambda x: Doubled()(x).sum()])
def test_derivatives_of_custom_ops(g: Any) -> None:
    x = wg.asarray(X)
    expected = loop(wg.grad(g), X)
    near(wg.vmap(wg.grad(g))(x), expected)
    near(wg.grad(lambda z: wg.vmap(g)(z).sum())(x), expected)


def test_forward_mode_and_second_order_of_a_custom_op() -> None:
    x, v = wg.asarray(X), wg.asarray(array(N, 3))

    def g(z: Any) -> Any:
        return cube(z).sum()

    near(wg.jvp(wg.vmap(g), (x,), (v,))[1], (3 * X**2 * np.asarray(v)).sum(1))
    near(wg.vmap(lambda a, b: wg.hvp(g, a, b))(x, v), 6 * X * np.asarray(v))
    near(wg.hvp(lambda z: wg.vmap(g)(z).sum(), x, v), 6 * X * np.asarray(v))


def test_operands_that_the_examples_of_a_custom_op_share() -> None:
    w = wg.asarray(array(3))

    def total(x: Any, w: Any) -> Any:
        return wg.vmap(lambda z: scaled_sine(z, w, 2.0))(x).sum()

    by_x, by_w = wg.grad(total, argnums=(0, 1))(wg.asarray(X), w)
    near(by_x, np.cos(X) * np.asarray(w) * 2.0)
    near(by_w, (np.sin(X) * 2.0).sum(0))


def test_a_batch_rule_of_its_own() -> None:
    calls = []

    @wg.custom_op
    def squared(x: Any, k: float) -> Any:
        calls.append(x.shape)
        return wg.asarray(np.asarray(x) ** 2 * k)

    @squared.defjvp
    def _(x_dot: Any, y: Any, x: Any, k: float) -> Any:
        return 2.0 * k * x * x_dot

    @squared.defvmap
    def _(size: int, mapped: tuple[bool, ...], x: Any, k: float) -> Any:
        assert (size, mapped) == (N, (True, False))
        return squared(x, k)

    mapped = wg.vmap(lambda x: squared(x, 3.0).sum())
    mapped(wg.asarray(X))
    calls.clear()
    near(mapped(wg.asarray(X)), (X**2).sum(1) * 3.0)
    assert calls == [(N, 3)]
    assert mapped.report()[0].loops == ()
    near(wg.vmap(wg.grad(lambda x: squared(x, 3.0).sum()))(wg.asarray(X)), 6.0 * X)


def test_a_batch_rule_that_forgets_the_examples() -> None:
    @wg.custom_op
    def same(x: Any) -> Any:
        return x

    same.defvmap(lambda size, mapped, x: x.sum())
    with pytest.raises(wg.CustomOpError, match=r"same: the vmap rule must return 4 examples .* shape \(\)"):
        wg.vmap(same)(wg.asarray(X))


def test_a_custom_class_with_a_batch_rule() -> None:
    class Negated(wg.CustomOp):
        def forward(self, x: Any) -> Any:
            return -x

        def backward(self, y_bar: Any, x: Any) -> Any:
            return -y_bar

        def vmap(self, size: int, mapped: tuple[bool, ...], x: Any) -> Any:
            return Negated()(x)

    mapped = wg.vmap(lambda x: Negated()(x))
    near(mapped(wg.asarray(X)), -X)
    assert mapped.report()[0].loops == ()


# ------------------------------------------------------------------------------------------------------ random numbers


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + wg.randn(3),
        lambda x: wg.dropout(x, 0.5),
        lambda x: wg.dropout(wg.dropout(x, 0.3) + wg.rand(5)[1:4], 0.2) * wg.randn(2, dtype=wg.float64)[1],
        lambda x: x * wg.randint(0, 100, (3,)),
        lambda x: wg.vmap(lambda z: z + wg.randn(3))(wg.stack([x, x])),
        lambda x: wg.stats.Gamma(wg.exp(x), 1.0).sample(),
        lambda x: wg.cond(x[0] > 0.0, lambda z: z + wg.randn(3), lambda z: z, x),
        lambda x: x * wg.cond(HALF > 0.0, lambda z: z + wg.randn(3), lambda z: z + wg.zeros((3,)), HALF),
    ],
    ids=["normal", "dropout", "several", "integers", "nested", "gamma", "branch", "branch of all"],
)
def test_examples_draw_numbers_that_do_not_depend_on_their_number(draw: Any) -> None:
    x = wg.ones((5, 3), dtype=wg.float64)
    mapped = wg.vmap(draw)
    made = []
    for n in (5, 3, 5):
        wg.manual_seed(11)
        made.append(np.asarray(mapped(x[:n])))
    np.testing.assert_array_equal(made[0][:3], made[1])
    np.testing.assert_array_equal(made[0], made[2])
    assert len({row.tobytes() for row in made[0]}) == 5
    assert not np.array_equal(np.asarray(mapped(x)), made[0])


def test_gradients_see_the_numbers_that_were_drawn() -> None:
    x = wg.asarray(X)
    mapped = wg.vmap(lambda z: wg.dropout(z, 0.5))
    wg.manual_seed(3)
    y = np.asarray(mapped(x))
    wg.manual_seed(3)
    near(wg.grad(lambda z: mapped(z).sum())(x), y / X)
    wg.manual_seed(3)
    near(wg.vmap(wg.grad(lambda z: wg.dropout(z, 0.5).sum()))(x), y / X)


# ------------------------------------------------------------------------------------------------------------- modules


def test_an_ensemble_of_modules() -> None:
    net = wg.nn.Sequential(wg.nn.Linear(3, 4), wg.nn.Tanh(), wg.nn.Linear(4, 2))
    members = [{k: wg.randn(p.shape) for k, p in net.named_parameters()} for _ in range(N)]
    stacked = {k: wg.stack([m[k] for m in members]) for k in members[0]}
    x = wg.randn(5, 3)

    def loss(params: Any, x: Any) -> Any:
        return (wg.nn.functional_call(net, params, x) ** 2).sum()

    got = wg.vmap(wg.grad(loss), (0, None))(stacked, x)
    for k in got:
        expected = np.stack([np.asarray(wg.grad(loss)(m, x)[k]) for m in members])
        np.testing.assert_allclose(np.asarray(got[k]), expected, rtol=2e-5, atol=1e-5)


def test_modules_in_training_follow_their_mode() -> None:
    net = wg.nn.Dropout(0.5)
    mapped = wg.vmap(lambda x: net(x))
    x = wg.ones((4, 8))
    assert 0.0 in np.asarray(mapped(x))
    net.eval()
    assert mapped(x).tolist() == x.tolist()


def test_tangents_around_a_compiled_jacobian_of_a_gradient() -> None:
    def f(x: Any) -> Any:
        return (x**4).sum() + x[0] * x[1] ** 2

    x, v = wg.tensor([1.0, 2.0], dtype=wg.float64), wg.tensor([0.5, -1.0], dtype=wg.float64)
    for hessian in (wg.jacfwd(wg.grad(f)), wg.jacrev(wg.grad(f)), wg.jacfwd(wg.jacfwd(f))):
        compiled = wg.compile(lambda x, h=hessian: h(x))
        for ours, theirs in zip(wg.jvp(compiled, (x,), (v,)), wg.jvp(hessian, (x,), (v,))):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-14)
