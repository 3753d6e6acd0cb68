from __future__ import annotations

import pytest

import wengert as wg
from tests.debug.faults.lines import line_at_fault
from tests.debug.faults.paths import NONE, ZERO

FAULTS = {**NONE, **ZERO}


def _leaves(x):
    return wg.tensor(x, requires_grad=True), wg.tensor([1.0, 2.0, 3.0], requires_grad=True)


class _Module(wg.nn.Module):
    def __init__(self, f, x, w):
        super().__init__()
        self.x, self.w, self.f = wg.Parameter(x.detach()), wg.Parameter(w.detach()), f

    def forward(self):
        return self.f(self.x, self.w)


@pytest.mark.parametrize("name", FAULTS)
def test_after_backward_with_the_graph_freed(name):
    f, words, given = FAULTS[name]
    x, w = _leaves(given)
    grads = f(x, w).backward()
    text = wg.explain(grads, x)
    assert words in text
    assert line_at_fault(f) in text
    assert (grads.get(x) is None) == (name in NONE)
    assert "not zero" in wg.explain(grads, w)


@pytest.mark.parametrize("name", FAULTS)
def test_of_a_loss_before_and_after_backward(name):
    f, words, given = FAULTS[name]
    x, w = _leaves(given)
    loss = f(x, w)
    before = wg.explain(loss, x)
    assert words in before
    assert line_at_fault(f) in before
    assert x.grad is None
    loss.backward()
    assert wg.explain(loss, x) == before


@pytest.mark.parametrize("name", FAULTS)
def test_in_a_module(name):
    f, words, given = FAULTS[name]
    net = _Module(f, *_leaves(given))
    text = wg.explain(net().backward(), net.x)
    assert words in text
    assert line_at_fault(f) in text


@pytest.mark.parametrize("name", NONE)
def test_a_path_that_ends_in_a_compiled_function(name):
    f, _, given = NONE[name]
    x, w = _leaves(given)
    text = wg.explain(wg.compile(f)(x, w).backward(), x)
    assert line_at_fault(f) in text


@pytest.mark.parametrize("name", ZERO)
def test_a_gradient_that_is_zero_because_of_a_compiled_function(name):
    f, _, given = ZERO[name]
    x, w = _leaves(given)
    compiled = wg.compile(f)
    text = wg.explain(compiled(x, w), x)
    assert line_at_fault(f) in text


def test_not_used():
    x, w = _leaves([1.0, 2.0, 3.0])
    text = wg.explain((w * w).sum().backward(), x)
    assert "not used" in text


def test_several_layers_back():
    x, w = _leaves([1.0, 2.0, 3.0])
    h = wg.tanh(x * 2.0)
    grads = (h.detach() * w).sum().backward()
    text = wg.explain(grads, x)
    assert "may have come from it" in text
    assert "detach() at" in text


def test_what_cannot_have_a_gradient():
    x, w = _leaves([1.0, 2.0, 3.0])
    grads = (x * w).sum().backward()
    assert "not a floating tensor" in wg.explain(grads, wg.arange(3))
    assert "not tracked" in wg.explain(grads, wg.ones(3))
    with pytest.raises(wg.ArgumentError, match="got list"):
        wg.explain(grads, [1.0])
    with pytest.raises(wg.ArgumentError, match="must be the gradients or a loss: .*; got int"):
        wg.explain(3, x)


def test_a_result_is_no_leaf():
    x, w = _leaves([1.0, 2.0, 3.0])
    h = x * w
    text = wg.explain(h.sum().backward(), h)
    assert "retain_grad()" in text


def test_a_loss_without_graph():
    x, _ = _leaves([1.0, 2.0, 3.0])
    assert "detach() at" in wg.explain((x * 2.0).detach().sum(), x)
    assert "nothing that it was computed from" in wg.explain(wg.ones(2).sum(), x)


def test_contributions_that_cancel():
    x, _ = _leaves([1.0, 2.0, 3.0])
    assert "cancel" in wg.explain((x * 2.0 - x * 2.0).sum().backward(), x)


def test_in_a_layer_whose_units_are_dead():
    net = wg.nn.Sequential(wg.nn.Linear(3, 4), wg.nn.ReLU(), wg.nn.Linear(4, 1))
    with wg.no_grad():
        net[0].bias[:] = -1e3
    grads = net(wg.randn(8, 3)).sum().backward()
    assert "dead units" in wg.explain(grads, net[0].weight)


def test_ends_are_forgotten_after_many_others():
    x, w = _leaves([1.0, 2.0, 3.0])
    grads = (x.detach() * w).sum().backward()
    for _ in range(20_000):
        x.detach()
    assert "not used" in wg.explain(grads, x)


@pytest.mark.parametrize("name", FAULTS)
def test_in_a_mapped_function(name):
    f, words, given = FAULTS[name]
    x, w = (wg.stack([v, v]).detach() for v in _leaves(given))
    x.requires_grad = w.requires_grad = True
    text = wg.explain(wg.vmap(f)(x, w).sum(), x)
    assert line_at_fault(f) in text
    assert words in text, text


def test_a_gradient_of_before_is_no_answer():
    """The graph is gone, and the leaf has a gradient from elsewhere."""
    x, w = _leaves([1.0, 2.0, 3.0])
    (x * 2.0).sum().backward()
    for f, words in (
        (lambda: x.detach() * w, "detached"),
        (lambda: x * 0.0 + w, "other factor"),
        (lambda: x * w, "not zero"),
    ):
        loss = f().sum()
        loss.backward()
        assert words in wg.explain(loss, x)


def test_what_is_said_of_a_zero_is_so():
    x, w = _leaves([0.5, -1.5, 2.0])
    alike = wg.zeros(4, requires_grad=True)  # the sum of their probabilities is 1 exactly, and so the gradient 0
    assert "the same gradient" in wg.explain(wg.softmax(alike).sum().backward(), alike)
    assert "too small for the dtype" in wg.explain((wg.exp(x - 200.0) * w).sum().backward(), x)
    half = x.astype(wg.float16)
    assert "too small for float16" in wg.explain((half * 1e-4 * 1e-4).astype(wg.float32).sum().backward(), x)
    y = x * 1.0
    y[:] = 0.0
    assert "overwritten" in wg.explain((y * w).sum().backward(), x)
    y = x * 1.0
    y.register_hook(lambda g: g * 0.0)
    assert "a hook on its result" in wg.explain((y * w).sum(), x)


@pytest.mark.parametrize("given", [lambda y_bar: y_bar * 0.0, lambda y_bar: None])
def test_rules_that_give_no_gradient(given):
    def rule(y_bar, y, x):  # fault
        return given(y_bar)

    op = wg.custom_op(lambda x: x * 2.0)
    op.defvjp(rule)
    x, w = _leaves([0.5, -1.5, 2.0])
    text = wg.explain((op(x) * w).sum(), x)
    assert "its rule gives no gradient, or zeros" in text
    assert line_at_fault(rule) in text
    assert "its rule gives no gradient, or zeros" in wg.explain((op(x) * w).sum().backward(), x)


def test_a_derivative_that_is_constant():
    x, _ = _leaves([1.0, 2.0, 3.0])
    (g,) = wg.grad_of((x * 3.0).sum(), [x], create_graph=True)
    assert "something linear" in wg.explain(g.sum(), x)


def test_what_tapes_leave_open_is_said():
    x, w = _leaves([1.0, 2.0, 3.0])
    with wg.GradientTape() as tape:
        loss = (x.detach() * w).sum()
    inputs = tape.program().inputs
    assert tape.gradient(loss, x) is None
    assert "is an input of tape.program()" in wg.explain(loss, x)
    assert len(inputs) == 2
