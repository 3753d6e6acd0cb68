"""Loops of thousands of iterations keep nothing: bytes are counted, of tensors, of Python and of the C++ heap."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.memory.growth import assert_bounded, growth, heap_bytes

X = wg.tensor(np.linspace(-1.0, 1.0, 12).reshape(3, 4))
LABELS = wg.tensor([0, 2, 1])


def test_what_is_kept_is_counted() -> None:
    kept: list[Any] = []
    found = growth(lambda i: kept.append((wg.zeros((16,), dtype="float64"), bytearray(1000))), 500, 10)
    assert found.tensors == 128 and found.objects > 1000


def test_names_that_python_looked_up_are_not_counted() -> None:
    """Python keeps strings of its last lookups of attributes; reading JSON looks attributes up by new strings."""

    def look_up(_: int) -> None:
        for name in [f"no_such_attribute_{n}" for n in range(2000)]:
            hasattr(X, name)

    found = growth(look_up, 1, 0)
    assert found.objects < 4000 and found.heap < 8000, found  # kept: 30,000 and 70,000


COMPOSITES = {
    "huber_loss": lambda k: wg.huber_loss(X, X * 0.5, delta=k),
    "cross_entropy": lambda k: wg.cross_entropy(X, LABELS, label_smoothing=k / 3.0),
    "elu": lambda k: wg.elu(X, k),
    "leaky_relu": lambda k: wg.leaky_relu(X, k),
    "dropout": lambda k: wg.dropout(X, k / 3.0),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_with_changing_numbers(name: str) -> None:
    assert_bounded(lambda i: COMPOSITES[name](0.5 + i * 1e-4))


NUMBERS = {
    "float": lambda i: 0.5 + i * 1e-4,
    "int": lambda i: i,
    "np.float32": lambda i: np.float32(0.5 + i * 1e-4),
    "np.int64": lambda i: np.int64(i),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_compiled_functions_with_changing_numbers(kind: str) -> None:
    f = wg.compile(lambda x, k: (x * k).sum())
    assert_bounded(lambda i: f(X, NUMBERS[kind](i)))


def test_recorded_ops_with_changing_numbers() -> None:
    x = X.clone().requires_grad_()
    assert_bounded(lambda i: ((x * (0.5 + i * 1e-4)) ** (2.0 + i * 1e-4)).sum().backward(inputs=[x]))


# What is derived for an op is kept per value of such a number, but only for the last thousand of them.
def _layer_norm(x: Any, k: float) -> Any:
    return wg.layer_norm(x, (4,), eps=k)


def _gradient(i: int) -> Any:
    x = X.clone().requires_grad_()
    return _layer_norm(x, 0.5 + i * 1e-4).sum().backward(inputs=[x])


def _tangent(i: int) -> Any:
    return wg.jvp(lambda x: _layer_norm(x, 0.5 + i * 1e-4), (X,), (X,))


def _dropout_gradient(i: int) -> Any:
    x = X.clone().requires_grad_()
    return wg.dropout(x, 0.25 + i * 1e-4).sum().backward(inputs=[x])


def _dropout_tangent(i: int) -> Any:
    return wg.jvp(lambda x: wg.dropout(x, 0.25 + i * 1e-4), (X,), (X,))


@pytest.mark.parametrize("derive", [_gradient, _tangent, _dropout_gradient, _dropout_tangent])
def test_derivatives_of_ops_with_changing_numbers(derive: Any) -> None:
    """In counts of objects: where caches replace thousands of them, the tables of tracemalloc grow themselves."""
    counts = []
    for first, end in ((0, 1600), (1600, 2200)):
        for i in range(first, end):
            derive(i)
        gc.collect()
        wg.empty_pool()
        counts.append((len(gc.get_objects()), heap_bytes()))
    (objects, heap), (more_objects, more_heap) = counts
    assert more_objects - objects < 600 and more_heap - heap < 600 * 100, counts


def test_a_derivative_that_was_forgotten_is_made_again() -> None:
    x = X.clone().requires_grad_()
    first = _layer_norm(x, 0.25)
    (expected,) = wg.grad_of([first], [x], [X], retain_graph=True)
    for i in range(1100):
        _layer_norm(x, 0.5 + i * 1e-3)
    (kept,) = wg.grad_of([first], [x], [X])
    (again,) = wg.grad_of([_layer_norm(x, 0.25)], [x], [X])
    assert kept.tolist() == again.tolist() == expected.tolist()


def test_changing_sizes() -> None:
    f = wg.compile(lambda x: wg.softmax(x * 2.0, axis=-1).sum())
    x = wg.tensor(np.ones((60, 50)), requires_grad=True)
    assert_bounded(lambda i: f(x[: 2 + i % 50, : 2 + i % 43]).backward(inputs=[x]), warm=2200)


ERRORS = {
    "add": lambda: X + wg.ones((5,)),
    "reshape": lambda: X.reshape((5, 5)),
    "index": lambda: X[7],
    "composite": lambda: wg.huber_loss(X, wg.ones((5,))),
    "concat": lambda: wg.concat([X, wg.ones((2, 2, 2))]),
    "product": lambda: X @ X,
    "backward": lambda: X.backward(),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    def fail(i: int) -> None:
        with pytest.raises(wg.WengertError):
            ERRORS[name]()

    assert_bounded(fail, 1000)


def test_nested_gradients() -> None:
    g = wg.grad(lambda w: wg.grad(lambda h: (h * h * w).sum())(X).sum())
    w = [X]

    def step(i: int) -> None:
        w[0] = w[0] - 1e-3 * g(w[0])

    assert_bounded(step, 1000)


MODES = {
    "hvp": lambda: wg.hvp(lambda x: (x * x * x).sum(), X, X),
    "hessian": lambda: wg.hessian(lambda x: (x * x).sum())(X[0, :2]),
    "jvp of a compiled function": lambda: wg.jvp(_cube, (X,), (X,)),
    "tape": lambda: _taped(X),
    "create_graph": lambda: _twice(X.clone().requires_grad_()),
    "in place": lambda: wg.grad(_written)(X),
}
_cube = wg.compile(lambda x: x * x * x)


def _taped(x: Any) -> Any:
    with wg.GradientTape() as tape:
        y = (x * x).sum()
    return tape.gradient(y, x)


def _twice(x: Any) -> Any:
    (g,) = wg.grad_of([(x * x * x).sum()], [x], create_graph=True)
    return wg.grad_of([(g * g).sum()], [x])


def _written(x: Any) -> Any:
    y = x * 2.0
    y[0] = x[1]
    y[:, 1:].mul_(x[:, 1:])
    return (y * y).sum()


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    assert_bounded(lambda i: MODES[mode](), 1000)  # the tracer's own table may double once, to 16 KB


PRODUCTS = {
    "vectors": ((3,), (4,)),
    "a matrix and a vector": ((2, 3), (4,)),
    "stacks": ((2, 2, 3), (3, 3, 4)),
    "a stack and a matrix": ((5, 2, 3), (2, 3)),
}


@pytest.mark.parametrize("shapes", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "recorded"])
def test_products_that_fail(shapes: Any, requires_grad: bool) -> None:
    a, b = (wg.ones(s, requires_grad=requires_grad) for s in shapes)

    def fail(i: int) -> None:
        with pytest.raises(wg.ShapeError):
            a @ b

    assert_bounded(fail, 2000)


@wg.custom_op
def _cube_by_jvp(a: Any) -> Any:
    return wg.asarray(a.numpy() ** 3)


@_cube_by_jvp.defjvp
def _(a_dot: Any, y: Any, a: Any) -> Any:
    return 3 * a * a * a_dot


@wg.custom_op
def _cube_by_vjp(a: Any) -> Any:
    return wg.asarray(a.numpy() ** 3)


@_cube_by_vjp.defvjp
def _(y_bar: Any, y: Any, a: Any) -> Any:
    return wg.asarray(3 * a.numpy() ** 2) * y_bar


SHORT_LIVED = {
    "sizes": lambda x: wg.softmax(x[1:] * 2.0, axis=-1).sum(),
    "a custom op with a JVP": lambda x: _cube_by_jvp(x).sum(),
    "a custom op with a VJP": lambda x: _cube_by_vjp(x).sum(),
}


@pytest.mark.parametrize("name", SHORT_LIVED)
def test_compiled_functions_that_are_gone(name: str) -> None:
    """With what was traced, derived and called back."""
    x = X.clone().requires_grad_()
    f = SHORT_LIVED[name]
    assert_bounded(lambda i: wg.compile(lambda x: f(x))(x).backward(inputs=[x]), 500)


MAPPED = {
    "vmap over a closure": lambda x, w: wg.vmap(lambda row: wg.tanh(row * w).sum())(x).sum(),
    "vmap of a custom op": lambda x, w: wg.vmap(lambda row: (_cube_by_jvp(row) * w).sum())(x).sum(),
    "hessian of an object": lambda x, w: wg.hessian(_Squares(w))(x[0]).sum(),
}


class _Squares:
    def __init__(self, w: Any) -> None:
        self.w = w

    def __call__(self, row: Any) -> Any:
        return (row**3 * self.w).sum()


@pytest.mark.parametrize("name", MAPPED)
def test_mapped_functions_that_are_gone(name: str) -> None:
    x = X.clone().requires_grad_()
    assert_bounded(lambda i: MAPPED[name](x, X[0] * 2.0).backward(inputs=[x]), 100, 40)


def test_compiled_functions_that_fail() -> None:
    f = wg.compile(lambda x: wg.softmax(x, axis=0) @ x)

    def fail(i: int) -> None:
        with pytest.raises(wg.ShapeError):
            f(X)

    assert_bounded(fail, 1000)


def _hook_on_a_result() -> None:
    y = X.clone().requires_grad_() * 2.0
    y.register_hook(lambda g: g * y.detach())


def _hook_on_a_leaf() -> None:
    x = X.clone().requires_grad_()
    x.register_hook(lambda g: g * x.detach())
    (x * x).sum().backward()


def _hook_on_a_parameter() -> None:
    p = wg.nn.Parameter(X.clone())
    p.register_hook(lambda g: g * p.detach())
    (p * p).sum().backward()


def _hook_that_was_called() -> None:
    x = X.clone().requires_grad_()
    y = x * 2.0
    handle = y.register_hook(lambda g: (g * y.detach(), handle)[0])
    y.sum().backward()


def _hook_over_a_view() -> None:
    y = X.clone().requires_grad_() * 2.0
    y.register_hook(lambda g: g * y[0].detach())
    y[1:].sum().backward()


def _hook_over_what_comes_later() -> None:
    h = X.clone().requires_grad_() * 2.0
    h.register_hook(lambda g: g * loss.detach())
    loss = (h * h).sum()
    loss.backward()  # after which no hook is called any more


def _hook_over_what_comes_later_in_a_graph_that_is_not_walked() -> None:
    h = X.clone().requires_grad_() * 2.0
    h.register_hook(lambda g: g * loss.detach())
    loss = (h * h).sum()


def _hooks_over_each_other() -> None:
    h = X.clone().requires_grad_() * 2.0
    rows = [h[0], h[1:]]
    h.register_hook(lambda g: g * loss.detach())
    h.register_hook(lambda g, row=rows[1]: g * row[0].detach() * h.detach())
    loss = (h * h * rows[0]).sum()
    loss.register_hook(lambda g: g * rows[0].sum().detach())


def _hook_of_a_leaf_over_its_loss() -> None:
    x = X.clone().requires_grad_()
    x.register_post_accumulate_hook(lambda x: loss.detach())
    loss = (x * x).sum()


@pytest.mark.parametrize(
    "make",
    [
        _hook_on_a_result,
        _hook_on_a_leaf,
        _hook_on_a_parameter,
        _hook_that_was_called,
        _hook_over_a_view,
        _hook_over_what_comes_later,
    ],
)
def test_hooks_that_close_over_their_tensor(make: Any) -> None:
    assert_bounded(lambda i: make(), 2000)


@pytest.mark.parametrize(
    "make",
    [_hook_over_what_comes_later_in_a_graph_that_is_not_walked, _hooks_over_each_other, _hook_of_a_leaf_over_its_loss],
)
def test_hooks_that_no_walk_has_called(make: Any) -> None:
    """Full collections find them; so that tables of what is alive in between do not grow, there are many."""

    def step(i: int) -> None:
        make()
        if i % 100 == 0:
            gc.collect()

    assert_bounded(step, 600)


def test_hooks_live_as_long_as_the_graph() -> None:
    x = X.clone().requires_grad_()
    calls: list[int] = []

    def hooked() -> Any:
        y = x * 2.0
        y.register_hook(lambda g: calls.append(y.ndim))
        return y.sum()

    loss = hooked()
    gc.collect()
    loss.backward()
    assert calls == [2]


def test_hooks_over_what_comes_later_live_while_something_leads_to_them() -> None:
    x = X.clone().requires_grad_()
    calls: list[float] = []

    def hooked(keep: str) -> Any:
        h = x * 2.0
        handle = h.register_hook(lambda g: calls.append(loss.ndim))
        loss = (h * h).sum()
        kept = {"loss": loss, "other": h.exp().sum(), "view": loss[None], "list": [loss], "handle": (handle, loss)}
        return kept[keep]

    for n, keep in enumerate(("loss", "other", "view", "list", "handle"), start=1):
        found = hooked(keep)
        gc.collect()
        found = found[-1] if isinstance(found, (list, tuple)) else found
        found.sum().backward()
        assert len(calls) == n, keep


def _differentiated_graph(sizes: tuple[Any, ...] = (None, 3)) -> tuple[Any, list[Any]]:
    g = wg.Graph()
    x, w = g.placeholder("x", sizes), g.variable("w", wg.ones((3, 1)))
    loss = wg.tanh(x @ w).sum()
    return g, [loss, *g.gradients(loss, [w])]


def test_static_graphs_leave_nothing() -> None:
    assert_bounded(
        lambda i: _differentiated_graph(), 10_000, 300
    )  # sizes are symbols, which live as long as the process


def test_static_graphs_that_ran_leave_nothing() -> None:
    def run(i: int) -> None:
        g, nodes = _differentiated_graph(("batch", 3))
        g.run(nodes, x=wg.ones((2, 3)))

    assert_bounded(run, 200, 600)


def test_loaded_programs_leave_nothing(tmp_path: Path) -> None:
    g, nodes = _differentiated_graph()
    g.save(tmp_path / "g.wg", nodes)

    def step(i: int) -> None:
        wg.load_program(tmp_path / "g.wg")(x=wg.ones((2, 3)))
        if i % 100 == 0:
            gc.collect()  # what was loaded is in cycles

    assert_bounded(step, 200, 200)


def test_sizes_of_graphs_that_are_gone_are_still_recognised() -> None:
    size = wg.Graph().placeholder("x", (None, 3)).shape[0]
    gc.collect()
    other = wg.Graph()
    other.placeholder("x", (None, 3))
    with pytest.raises(wg.TraceError, match="size was kept"):
        wg.zeros((size, 2))
