"""The backward walk that is itself recorded: derived programs as instructions, in every order, shape and nesting."""

import sys

import numpy as np
import pytest

import wengert as wg

COMPILED = {
    "tanh": wg.compile(lambda x: wg.tanh(x * x)),
    "product": wg.compile(lambda x: wg.exp(x) * wg.sin(x) * x),
    "softmax": wg.compile(lambda x: wg.softmax(x, -1) * x),
    "norm": wg.compile(lambda x: x / wg.sqrt((x * x).sum() + 1.0)),
    "matmul": wg.compile(lambda x: wg.tanh(x[:, None] @ x[None, :]).sum(1)),
}
EAGER = {
    "tanh": lambda x: wg.tanh(x * x),
    "quotient": lambda x: wg.sin(x) / (1.0 + x),
    "layer_norm": lambda x: wg.layer_norm(x, (x.shape[-1],)) * x,
    "gelu": lambda x: wg.gelu(x),
    "prod": lambda x: wg.prod(x) * x,
    "cumsum": lambda x: wg.cumulative_sum(x) ** 6,
    "logsumexp": lambda x: wg.logsumexp(x * x) * x,
    "slices": lambda x: wg.exp(x[1:]) * x[:-1] ** 2,
    "concat": lambda x: wg.concat([x, x * x]) ** 6,
    "solve": lambda x: wg.linalg.solve(wg.eye(x.shape[0], dtype=x.dtype) + x[:, None] * x, x),
}
FUNCTIONS = {**{f"compiled {k}": f for k, f in COMPILED.items()}, **EAGER}


def along(f, weights):
    return lambda x: (f(x) * weights[: f(x).shape[0]]).sum()


def reverse_orders(f, x, directions):
    """⟨…⟨⟨f'(x), v₁⟩', v₂⟩'…⟩: one reverse pass per direction, all on one recorded graph."""
    x = wg.tensor(x, requires_grad=True)
    y, found = f(x), []
    for v in directions:
        (g,) = wg.grad_of(y, [x], create_graph=True)
        y = (g * v).sum()
        found.append(y.item())
    return found


def forward_orders(f, x, directions):
    found = []
    for v in directions:
        f = (lambda g, v: lambda z: wg.jvp(g, (z,), (v,))[1])(f, v)
        found.append(f(wg.tensor(x)).item())
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("n", [3, 5])  # the second size meets what was derived for the first
def test_orders_by_reverse_and_forward_mode_agree(name, n):
    rng = np.random.default_rng(0)
    f = along(FUNCTIONS[name], wg.tensor(rng.uniform(0.5, 1.5, 12)))
    x = rng.uniform(0.2, 0.9, n)
    directions = [wg.tensor(rng.uniform(0.5, 1.0, n)) for _ in range(4)]
    orders = 4 if name != "compiled matmul" else 3
    np.testing.assert_allclose(
        reverse_orders(f, x, directions[:orders]), forward_orders(f, x, directions[:orders]), rtol=1e-9
    )


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (1, 1, 2), (2, 1, 3), (0, 2)])
def test_every_shape_shares_what_was_derived(shape):
    x = wg.tensor(np.random.default_rng(1).uniform(0.3, 0.8, shape), requires_grad=True)
    y = (wg.tanh(x * x) * wg.exp(x)).sum()
    (g,) = wg.grad_of(y, [x], create_graph=True)
    (h,) = wg.grad_of(g.sum(), [x], create_graph=True)
    (third,) = wg.grad_of(h.sum(), [x])

    def derivative(order):
        f = lambda z: wg.tanh(z * z) * wg.exp(z)
        for _ in range(order):
            f = (lambda k: lambda z: wg.jvp(k, (z,), (wg.ones_like(z),))[1])(f)
        return f(x.detach()).numpy()

    np.testing.assert_allclose(h.detach().numpy(), derivative(2), rtol=1e-12)
    np.testing.assert_allclose(third.numpy(), derivative(3), rtol=1e-12)


def test_sizes_change_between_first_and_second_order():
    f = wg.compile(lambda x, w: wg.tanh(x @ w).sum(0))
    rng = np.random.default_rng(2)
    for n in (4, 1, 7, 2):
        x, w = wg.tensor(rng.normal(size=(n, 3))), wg.tensor(rng.normal(size=(3, 2)), requires_grad=True)
        (g,) = wg.grad_of(f(x, w).sum(), [w], create_graph=True)
        (h,) = wg.grad_of((g * g).sum(), [w])
        t = np.tanh(x.numpy() @ w.detach().numpy())
        gradient = x.numpy().T @ (1 - t**2)
        expected = x.numpy().T @ (-2 * t * (1 - t**2) * (x.numpy() @ (2 * gradient)))
        np.testing.assert_allclose(h.numpy(), expected, rtol=1e-10)


def test_outputs_that_are_the_cotangent_itself():
    a, b, c = (wg.tensor(v, requires_grad=True) for v in (1.0, 2.0, 3.0))
    seed = wg.tensor(0.5, requires_grad=True)
    grads = wg.grad_of(a + b, [a, b], [seed * c], create_graph=True)
    assert [g.item() for g in grads] == [1.5, 1.5]
    again = wg.grad_of(grads[0] * 2.0 + grads[1] * 3.0, [seed, c])
    assert [g.item() for g in again] == [15.0, 2.5]


def test_very_many_operands():
    parts = [wg.tensor([float(k)], requires_grad=True) for k in range(300)]
    y = (wg.concat(parts) ** 3).sum()
    grads = wg.grad_of(y, parts, create_graph=True)
    (h,) = wg.grad_of(grads[7] * grads[7], [parts[7]])
    assert h.item() == 2 * 3 * 49 * 6 * 7


def test_accumulated_gradients_are_recorded():
    x = wg.tensor(2.0, requires_grad=True)
    (x**3).backward(create_graph=True)
    (x**2).backward(create_graph=True)
    (second,) = wg.grad_of(x.grad, [x])
    assert second.item() == 6 * 2.0 + 2.0


def test_hooks_see_tracked_gradients():
    x = wg.tensor(3.0, requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = wg.grad_of(y * x, [x], create_graph=True)  # through the hook: x·x·2x, beside x²
    assert g.item() == 2 * 27.0 + 9.0
    assert wg.grad_of(g, [x])[0].item() == 6 * 9.0 + 3.0 * 6.0  # the path through y meets the hook again


def test_nothing_is_recorded_under_no_grad():
    x = wg.tensor(3.0, requires_grad=True)
    y = x * x
    with wg.no_grad():
        (g,) = wg.grad_of(y, [x], create_graph=True)
    assert not g.requires_grad


def frames_of(call):
    """How many Python frames of the library a call enters."""
    entered = []

    def profile(frame, event, _):
        if event == "call" and f"{wg.__name__}/" in frame.f_code.co_filename.replace("\\", "/"):
            entered.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(entered)


def test_python_does_not_run_per_instruction():
    def chain(length):
        x = wg.tensor([0.5, 0.25], requires_grad=True)
        y = x
        for _ in range(length):
            y = wg.tanh(y * x)
        y = y.sum()

        def twice():
            (g,) = wg.grad_of(y, [x], create_graph=True)
            wg.grad_of(g.sum(), [x], retain_graph=True)

        twice()  # derives
        return twice

    assert frames_of(chain(2)) == frames_of(chain(40))


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("first", [0, 3])
def test_what_residuals_were_made_of_may_read_sizes_that_the_derivative_does_not(n, first):
    f = wg.compile(lambda r, s: (s / (r * r + 1.0))[1:])

    def gradients(n):
        r, s = wg.tensor(np.linspace(0.2, 0.9, n)), wg.tensor(2.0, dtype=wg.float64)
        with wg.GradientTape(persistent=True) as tape:
            y = f(r, s).sum()
        return [tape.gradient(y, [r, s]) for _ in range(2)]

    gradients(first)
    r = np.linspace(0.2, 0.9, n)
    for by_r, by_s in gradients(n):
        np.testing.assert_allclose(by_r.numpy()[1:], (-4.0 * r / (r * r + 1.0) ** 2)[1:])
        np.testing.assert_allclose(by_s.item(), (1.0 / (r * r + 1.0))[1:].sum())
