"""Regions that run again in backward: the same gradients to the bit, fewer bytes kept, and nothing else changed."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

import wengert as wg


def bits(x):
    return np.asarray(x.detach().numpy()).tobytes()


def assert_same_bits(a, b):
    assert a.shape == b.shape and a.dtype == b.dtype
    assert bits(a) == bits(b)


def block(x, w, b):
    return wg.tanh(x @ w + b) * wg.sigmoid(x).sum(axis=1, keepdims=True)


def leaves(*shapes, dtype=wg.float64):
    g = wg.Generator(7)
    return [wg.randn(*s, generator=g, dtype=dtype, requires_grad=True) for s in shapes]


class Counted:
    """A function that counts its runs."""

    def __init__(self, f):
        self.f, self.runs = f, 0

    def __call__(self, *args, **kwargs):
        self.runs += 1
        return self.f(*args, **kwargs)


# --------------------------------------------------------------------------------------------------- gradients


def test_gradients_are_those_without_a_checkpoint_to_the_bit():
    args = leaves((5, 4), (4, 4), (4,))
    plain = block(*args).sum().backward()
    f = Counted(block)
    y = wg.checkpoint(f, *args)
    assert f.runs == 1
    assert_same_bits(y, block(*args))
    kept = y.sum().backward()
    assert f.runs == 2
    for x in args:
        assert_same_bits(kept[x], plain[x])


def test_nothing_runs_again_without_backward_or_without_recording():
    f = Counted(lambda x: wg.exp(x))
    x = wg.ones((3,), requires_grad=True)
    with wg.no_grad():
        assert not wg.checkpoint(f, x).requires_grad
    y = wg.checkpoint(f, x.detach())
    assert not y.requires_grad and f.runs == 2


def test_a_chain_of_regions():
    x, *ws = leaves((6, 4), *[(4, 4)] * 5)

    def chain(run):
        h = x
        for w in ws:
            h = run(lambda h, w: wg.tanh(h @ w), h, w)
        return (h * h).sum().backward()

    plain, kept = chain(lambda f, *a: f(*a)), chain(wg.checkpoint)
    for t in (x, *ws):
        assert_same_bits(kept[t], plain[t])


def test_trees_and_keyword_arguments():
    x, w = leaves((3, 4), (4, 4))

    def f(inputs, *, scale, flag):
        assert flag == "on"
        h = inputs["x"] @ inputs["w"]
        return {"a": h * scale, "b": [wg.sin(h), 3, None], "n": wg.tensor([1, 2])}

    def loss(run):
        out = run(f, {"x": x, "w": w}, scale=x.sum(), flag="on")
        assert out["b"][1:] == [3, None] and out["n"].tolist() == [1, 2]
        return (out["a"].sum() + (out["b"][0] * 2).sum()).backward()

    plain, kept = loss(lambda f, *a, **k: f(*a, **k)), loss(wg.checkpoint)
    assert_same_bits(kept[x], plain[x])
    assert_same_bits(kept[w], plain[w])


def test_an_output_that_is_not_used_adds_nothing():
    x = wg.tensor([0.0, 4.0], requires_grad=True)
    a, _ = wg.checkpoint(lambda x: (x * 2, wg.log(x)), x)
    assert a.sum().backward()[x].tolist() == [2.0, 2.0]


def test_a_result_may_be_an_argument_and_may_not_depend_on_any():
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    same, constant = wg.checkpoint(lambda x: (x, wg.ones((2,))), x)
    assert not constant.requires_grad
    assert (same * 3).sum().backward()[x].tolist() == [3.0, 3.0]


def test_an_argument_given_twice():
    x = wg.tensor(3.0, requires_grad=True)
    assert wg.checkpoint(lambda a, b: a * b, x, x).backward()[x].item() == 6.0


def test_integer_and_frozen_arguments():
    table = wg.randn(5, 3, requires_grad=True)
    index, scale = wg.tensor([0, 2, 2]), wg.tensor(2.0, requires_grad=False)
    plain = (table[index] * scale).sum().backward()
    kept = wg.checkpoint(lambda t, i, s: t[i] * s, table, index, scale).sum().backward()
    assert_same_bits(kept[table], plain[table])
    assert scale.grad is None


@pytest.mark.parametrize("dtype", [wg.float32, wg.bfloat16, wg.float16, wg.complex64])
def test_dtypes(dtype):
    x, w = leaves((3, 4), (4, 4), dtype=dtype)
    f = lambda x, w: wg.abs(wg.exp(x @ w * 0.1))
    plain, kept = f(x, w).sum().backward(), wg.checkpoint(f, x, w).sum().backward()
    assert_same_bits(kept[x], plain[x])
    assert_same_bits(kept[w], plain[w])


def test_grad_accumulates_and_backward_twice_runs_twice():
    x = wg.tensor(2.0, requires_grad=True)
    f = Counted(lambda x: x * x * x)
    y = wg.checkpoint(f, x)
    y.backward(retain_graph=True)
    y.backward()
    assert f.runs == 3 and x.grad.item() == 24.0
    with pytest.raises(wg.GradientError, match="freed by an earlier backward"):
        y.backward()


# ------------------------------------------------------------------------------------------- what f closes over


def test_parameters_that_the_function_closes_over():
    net = wg.nn.Sequential(wg.nn.Linear(4, 8), wg.nn.Tanh(), wg.nn.Linear(8, 4))
    x = wg.randn(5, 4)
    plain = net(x).sum().backward()
    y = wg.checkpoint(net, x)
    kept = y.sum().backward()
    for p in net.parameters():
        assert_same_bits(kept[p], plain[p])


def test_hooks_of_what_it_closes_over_are_called_once():
    w, x = wg.tensor(3.0, requires_grad=True), wg.tensor(2.0, requires_grad=True)
    calls = []
    w.register_hook(lambda g: calls.append(g.item()) or g * 10)
    grads = (wg.checkpoint(lambda x: x * w, x) + w).backward()
    assert calls == [3.0] and grads[w].item() == 30.0
    final = []
    w.register_post_accumulate_hook(lambda w: final.append(w.grad.item()))
    w.grad = None
    (wg.checkpoint(lambda x: x * w, x) + wg.checkpoint(lambda x: x * w, x)).backward()
    assert calls == [3.0, 4.0] and final == [40.0]


class Holder:
    """Hides a tensor from those who look at closures."""

    def __init__(self, **tensors):
        vars(self).update(tensors)


@pytest.mark.parametrize("hidden", [False, True])
def test_intermediates_that_the_function_closes_over(hidden):
    x, w = leaves((3, 3), (3, 3))
    calls = []

    def loss(run):
        memory = wg.exp(w)
        memory.register_hook(lambda g: calls.append(1) or g * 2)
        memory.retain_grad()
        held = Holder(memory=memory)
        f = (lambda x: x @ held.memory) if hidden else (lambda x: x @ memory)
        grads = (run(f, x).sum() + memory.sum()).backward()
        return grads, memory.grad

    (plain, plain_memory), (kept, kept_memory) = loss(lambda f, x: f(x)), loss(wg.checkpoint)
    assert len(calls) == 2
    assert_same_bits(kept[w], plain[w])
    assert_same_bits(kept[x], plain[x])
    assert_same_bits(kept_memory, plain_memory)


def test_captured_tensors_that_depend_on_each_other():
    x, w = leaves((3, 3), (3, 3))
    held = Holder(normal=w / wg.norm(w))
    with pytest.raises(
        wg.GradientError, match=r"closes over a tensor that was computed outside, by .*pass it as an arg"
    ):
        wg.checkpoint(lambda x: (x @ held.normal) * w, x)
    normal = {"n": [held.normal]}
    plain = ((x @ held.normal) * w).sum().backward(retain_graph=True)
    for kept in (
        wg.checkpoint(lambda x, n, w: (x @ n) * w, x, held.normal, w).sum().backward(retain_graph=True),
        wg.checkpoint(lambda x: (x @ normal["n"][0]) * w, x).sum().backward(),
    ):
        np.testing.assert_allclose(kept[w].numpy(), plain[w].numpy(), rtol=1e-13)


def test_an_argument_that_it_closes_over_as_well():
    x = wg.tensor(3.0, requires_grad=True)
    assert wg.checkpoint(lambda a: a * x, x).backward()[x].item() == 6.0
    h = x * 1.0
    assert wg.checkpoint(lambda a: a * h, h).backward()[x].item() == 6.0
    held = Holder(h=x * 1.0)
    y = wg.checkpoint(lambda a: a * held.h, held.h)
    with pytest.raises(wg.GradientError, match="closes over a tensor that was computed outside"):
        y.backward()


def test_closures_with_defaults_empty_cells_and_names_of_their_own():
    x = wg.tensor(3.0, requires_grad=True)
    h = x * x

    def f(a, b=2.0, *, c=4.0):
        nonlocal h
        h = h * b  # in the second run, from where the first one began
        if a is None:
            return late
        return h * a * c

    y = wg.checkpoint(f, x)
    after = h
    assert y.backward()[x].item() == 3 * 9 * 8
    assert h is after
    late = None


def test_arguments_of_nested_gradients_that_it_closes_over():
    w, x = (t.detach() for t in leaves((3, 2), (5, 3)))

    def second(run):
        def loss(ps):
            return run(lambda x: wg.tanh(x @ ps["w"]), x).sum()

        return wg.grad(lambda ps: (wg.grad(loss)(ps)["w"] ** 2).sum())({"w": w})["w"]

    np.testing.assert_allclose(second(wg.checkpoint).numpy(), second(lambda f, x: f(x)).numpy(), rtol=1e-12)


def test_what_escapes_keeps_its_own_graph():
    x = wg.tensor(3.0, requires_grad=True)
    aux = []

    def f(x):
        h = x * x
        aux.append(h)
        return wg.exp(h * 0)

    y = wg.checkpoint(f, x)
    assert (y + aux[0]).backward()[x].item() == 6.0


# --------------------------------------------------------------------------------------- transformations, tapes


def scalar(x, w):
    return wg.checkpoint(lambda x, w: wg.tanh(x @ w), x, w).sum()


def plain_scalar(x, w):
    return wg.tanh(x @ w).sum()


@pytest.mark.parametrize("tracked", [False, True])
def test_inside_grad_and_vjp(tracked):
    x, w = (t if tracked else t.detach() for t in leaves((3, 4), (4, 2)))
    for a, b in zip(wg.grad(scalar, argnums=(0, 1))(x, w), wg.grad(plain_scalar, argnums=(0, 1))(x, w)):
        assert_same_bits(a, b)
    closed = lambda w: wg.checkpoint(lambda x: wg.tanh(x @ w), x).sum()
    assert_same_bits(wg.grad(closed)(w), wg.grad(plain_scalar, argnums=1)(x, w))
    _, pull = wg.vjp(scalar, x, w)
    assert_same_bits(pull(wg.tensor(1.0, dtype=wg.float64))[0], wg.grad(plain_scalar)(x, w))


@pytest.mark.parametrize("persistent", [False, True])
def test_on_a_tape_also_what_only_the_tape_tracks(persistent):
    x, w = (t.detach() for t in leaves((3, 4), (4, 2)))
    f = Counted(lambda x: wg.tanh(x @ w))
    with wg.GradientTape(persistent=persistent) as tape:
        y = wg.checkpoint(f, x).sum()
    dx, dw = tape.gradient(y, [x, w])
    assert f.runs >= 2
    ex, ew = wg.grad(plain_scalar, argnums=(0, 1))(x, w)
    assert_same_bits(dx, ex)
    assert_same_bits(dw, ew)


def test_a_tape_gets_the_gradients_of_all_leaves():
    x, w = (t.detach() for t in leaves((3, 4), (4, 2)))
    with wg.GradientTape() as tape:
        y = wg.checkpoint(lambda x: wg.tanh(x @ w), x).sum()
    grads = tape.backward(y)
    assert_same_bits(grads[w], wg.grad(plain_scalar, argnums=1)(x, w))


def test_a_tape_runs_again_what_it_recorded():
    x = wg.tensor([1.0, 2.0])
    with wg.GradientTape() as tape:
        y = wg.checkpoint(lambda x: wg.sin(x) * x, x).sum()
    assert (
        tape.program(y)(wg.tensor([0.5, 1.0])).item() == (wg.sin(wg.tensor([0.5, 1.0])) * wg.tensor([0.5, 1.0])).sum()
    )


def test_tapes_in_tapes():
    x = wg.tensor(2.0)
    with wg.GradientTape() as outer:
        with wg.GradientTape() as inner:
            y = wg.checkpoint(lambda x: x * x * x, x)
        dy = inner.gradient(y, x)
    assert dy.item() == 12.0 and outer.gradient(dy, x).item() == 12.0


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_every_order(order):
    def f(x):
        return wg.checkpoint(lambda x: wg.sin(x) * wg.exp(x), x)

    def g(x):
        return wg.sin(x) * wg.exp(x)

    for _ in range(order):
        f, g = wg.grad(f), wg.grad(g)
    x = wg.tensor(0.7, dtype=wg.float64)
    np.testing.assert_allclose(f(x).item(), g(x).item(), rtol=1e-14)


def test_create_graph():
    x, w = leaves((3, 4), (4, 2))

    def penalty(run):
        y = run(lambda x: wg.tanh(x @ w), x).sum()
        (gx, gw) = wg.grad_of(y, [x, w], create_graph=True)
        return (gx * gx).sum() + (gw * gw * gw).sum()

    plain, kept = penalty(lambda f, x: f(x)).backward(), penalty(wg.checkpoint).backward()
    for t in (x, w):
        np.testing.assert_allclose(kept[t].numpy(), plain[t].numpy(), rtol=1e-13)


def test_second_derivatives_through_a_module():
    net = wg.nn.Sequential(wg.nn.Linear(3, 4, dtype=wg.float64), wg.nn.Tanh(), wg.nn.Linear(4, 1, dtype=wg.float64))
    x = wg.randn(5, 3, dtype=wg.float64, requires_grad=True)

    def penalty(run):
        (g,) = wg.grad_of(run(net, x).sum(), [x], create_graph=True)
        return (g * g).sum().backward()

    plain, kept = penalty(lambda f, x: f(x)), penalty(wg.checkpoint)
    for p in net.parameters():
        assert (plain.get(p) is None) == (kept.get(p) is None) or not kept[p].numpy().any()
        if plain.get(p) is not None:
            np.testing.assert_allclose(kept[p].numpy(), plain[p].numpy(), rtol=1e-12, atol=1e-15)


def test_under_duals_vmap_and_compile_it_calls_the_function():
    x, w = (t.detach() for t in leaves((3, 4), (4, 2)))
    for run in (
        lambda f: wg.jvp(f, (x, w), (wg.ones_like(x), wg.ones_like(w)))[1],
        lambda f: wg.vmap(f, in_axes=(0, None))(x, w),
        lambda f: wg.compile(f)(x, w),
        lambda f: wg.compile(wg.grad(f, argnums=1))(x, w),
        lambda f: wg.hvp(lambda w: f(x, w), w, wg.ones_like(w)),
        lambda f: wg.hessian(lambda w: f(x, w))(w),
    ):
        assert_same_bits(run(scalar), run(plain_scalar))
    y, y_dot = wg.jvp(lambda w: wg.checkpoint(lambda x: x @ w, x), (w,), (wg.ones_like(w),))
    assert_same_bits(y_dot, x @ wg.ones_like(w))


def test_a_compiled_function_in_a_region():
    x, w = leaves((3, 4), (4, 2))
    f = wg.compile(lambda x, w: wg.tanh(x @ w))
    plain, kept = f(x, w).sum().backward(), wg.checkpoint(f, x, w).sum().backward()
    assert_same_bits(kept[w], plain[w])


def test_nested():
    x, w = leaves((3, 4), (4, 4))
    inner, outer = Counted(lambda x, w: wg.tanh(x @ w)), None

    def f(x):
        return wg.checkpoint(inner, wg.sin(wg.checkpoint(inner, x, w)), w)

    outer = Counted(f)
    plain = wg.tanh(wg.sin(wg.tanh(x @ w)) @ w).sum().backward()
    kept = wg.checkpoint(outer, x).sum().backward()
    assert outer.runs == 2 and inner.runs == 2 + 2 + 2
    for t in (x, w):
        assert_same_bits(kept[t], plain[t])


def test_a_gradient_inside_the_region():
    x = wg.tensor(1.5, requires_grad=True)
    f = lambda x: x * wg.grad(lambda z: wg.checkpoint(wg.sin, z) * z)(x)
    plain = (x * (wg.cos(x) * x + wg.sin(x))).backward()
    np.testing.assert_allclose(wg.checkpoint(f, x).backward()[x].item(), plain[x].item(), rtol=1e-6)


# ------------------------------------------------------------------------------------------------- random numbers


def noisy(x, g=None):
    return wg.dropout(x, 0.5) * wg.randn(*x.shape, generator=g) + wg.rand_like(x)


@pytest.mark.parametrize("own", [False, True])
def test_random_numbers_are_drawn_again_and_the_generator_is_left_alone(own):
    g = wg.Generator(3) if own else None
    x = wg.ones((40,), requires_grad=True)

    def run(call):
        wg.manual_seed(0)
        if g is not None:
            g.manual_seed(1)
        y = call(noisy, x, g)
        between = wg.rand(3)
        grads = y.sum().backward()
        return y, between, grads[x], wg.rand(3), g and g.get_state()

    plain, kept = run(lambda f, x, g: f(x, g)), run(wg.checkpoint)
    for a, b in zip(plain, kept):
        assert a == b if isinstance(a, tuple) or a is None else bits(a) == bits(b)


def test_seeds_and_generators_that_the_function_sets_itself():
    x = wg.ones((8,), requires_grad=True)

    def f(x):
        wg.manual_seed(5)
        return x * wg.randn(8) * wg.randn(8, generator=wg.Generator(6)) * wg.randn(8, generator=wg.Generator())

    y = wg.checkpoint(f, x)
    state = wg.default_generator.get_state()
    g = y.sum().backward()[x]
    np.testing.assert_allclose(g.numpy(), y.detach().numpy(), rtol=1e-6)  # x is one
    assert wg.default_generator.get_state() == state


def test_random_numbers_in_nested_regions_and_compiled_functions():
    x = wg.ones((8,), requires_grad=True)
    drop = wg.compile(lambda x: wg.dropout(x, 0.5))

    def f(x):
        return wg.checkpoint(lambda x: drop(x) * wg.randn(8), x * wg.rand(8)) + x * wg.rand(8)

    wg.manual_seed(1)
    plain_y = f(x)
    plain = plain_y.sum().backward()[x]
    wg.manual_seed(1)
    y = wg.checkpoint(f, x)
    assert_same_bits(y, plain_y)
    assert_same_bits(y.sum().backward()[x], plain)


def test_another_thread_draws_in_between():
    x = wg.ones((1000,), requires_grad=True)
    stop = threading.Event()

    def draw():
        while not stop.is_set():
            wg.rand(3)

    other = threading.Thread(target=draw)
    other.start()
    try:
        for _ in range(20):
            y = wg.checkpoint(lambda x: wg.dropout(x, 0.5) * wg.rand(1000) * wg.rand(1000), x)
            np.testing.assert_allclose(y.sum().backward()[x].numpy(), y.detach().numpy(), rtol=1e-6)
    finally:
        stop.set()
        other.join()


def test_running_statistics_move_once():
    x = wg.randn(6, 3, requires_grad=True)
    nets = [wg.nn.BatchNorm1d(3) for _ in range(2)]
    plain = nets[0](x).sum().backward()[x]
    assert_same_bits(wg.checkpoint(nets[1], x).sum().backward()[x], plain)
    for a, b in zip(nets[0].buffers(), nets[1].buffers()):
        assert_same_bits(a, b)


# ---------------------------------------------------------------------------------------- writing, other results


def test_writing_to_tensors_of_its_own():
    x = wg.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def f(x):
        y = wg.zeros((3,)) + x
        y *= x
        y[0] = 5.0 * x[1]
        return wg.relu(y)

    plain, kept = f(x).sum().backward(), wg.checkpoint(f, x).sum().backward()
    assert_same_bits(kept[x], plain[x])


def test_writing_to_its_argument():
    x = wg.tensor([1.0, 2.0], requires_grad=True)

    def f(h):
        h *= 3.0
        return h * h

    def run(call):
        h = x * 1.0
        y = call(f, h)
        return h, (y.sum() + h.sum()).backward()

    (h, plain), (kept_h, kept) = run(lambda f, h: f(h)), run(wg.checkpoint)
    assert_same_bits(kept_h, h)
    assert_same_bits(kept[x], plain[x])


def test_an_argument_changed_after_the_call_keeps_its_value_for_the_region():
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    h = x * 1.0
    y = wg.checkpoint(lambda h: h * h, h)
    h += 10.0
    y *= 1.0
    assert y.sum().backward()[x].tolist() == [2.0, 4.0]


def test_an_optimizer_steps_before_backward():
    w = wg.Parameter(wg.ones((3,)))
    x = wg.ones((3,), requires_grad=True)
    y = wg.checkpoint(lambda x, w: x * w, x, w)
    wg.optim.SGD([w], lr=1.0).apply_gradients([(w, wg.ones((3,)))])
    assert w.tolist() == [0.0, 0.0, 0.0]
    assert y.sum().backward()[x].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda s: s.__setitem__("scale", 3.0), "other numbers in result 0"),
        (lambda s: s.__setitem__("n", 2), r"float32\(2,\) instead of float32\(3,\)"),
        (lambda s: s.__setitem__("dtype", wg.float64), r"float64\(3,\) instead of float32\(3,\)"),
        (lambda s: s.__setitem__("pair", True), r"returned \(\*, \*\) instead of \*"),
        (lambda s: s.__setitem__("draw", True), "drew other random numbers"),
    ],
)
def test_another_result_the_second_time_is_named(change, how):
    state = {"scale": 2.0, "n": 3, "dtype": wg.float32, "pair": False, "draw": False}

    def step(x):
        if state["draw"]:
            wg.rand(2)
        y = (x * state["scale"])[: state["n"]].astype(state["dtype"])
        return (y, y) if state["pair"] else y

    x = wg.ones((3,), requires_grad=True)
    y = wg.checkpoint(step, x)
    change(state)
    with pytest.raises(wg.GradientError, match=rf"step {how}|step returned {how}"):
        y.sum().backward()
    assert (x * 2).sum().backward()[x].tolist() == [2.0, 2.0, 2.0]


def test_random_numbers_of_others_and_changed_parameters_are_noticed():
    x, w = wg.ones((3,), requires_grad=True), wg.ones((3,), requires_grad=True)
    rng = np.random.default_rng(0)
    with pytest.raises(wg.GradientError, match="random numbers that are not wengert's"):
        wg.checkpoint(lambda x: x * float(rng.random()), x).sum().backward()
    y = wg.checkpoint(lambda x: x * w, x)
    with wg.no_grad():
        w += 1.0
    with pytest.raises(wg.GradientError, match="other numbers in result 0"):
        y.sum().backward()
    drop = wg.nn.Dropout(0.5)
    y = wg.checkpoint(drop, x)
    drop.eval()
    with pytest.raises(wg.GradientError, match=r"train\(\) or eval\(\)"):
        y.sum().backward()


def test_an_exception_in_a_recomputation_leaves_everything_usable():
    x = wg.ones((3,), requires_grad=True)
    w = wg.tensor(2.0, requires_grad=True)
    fail = [False]
    calls = []
    w.register_hook(lambda g: calls.append(1))

    def f(x):
        y = x * wg.rand(3) * w
        if fail[0]:
            raise KeyError("the second time")
        return y

    y = wg.checkpoint(f, x)
    state = wg.default_generator.get_state()
    fail[0] = True
    with pytest.raises(KeyError, match="the second time"):
        y.sum().backward(retain_graph=True)
    assert wg.default_generator.get_state() == state and wg.is_grad_enabled() and not calls
    fail[0] = False
    g = y.sum().backward()
    np.testing.assert_allclose(g[x].numpy(), y.detach().numpy())
    assert calls == [1]
    with wg.GradientTape() as tape:
        z = wg.checkpoint(f, wg.ones((3,))).sum()
        fail[0] = True
    with pytest.raises(KeyError):
        tape.gradient(z, w)
    fail[0] = False
    assert not wg._core.recording_tapes()


def test_an_exception_in_the_first_run():
    x = wg.ones((3,), requires_grad=True)
    with pytest.raises(wg.ShapeError):
        wg.checkpoint(lambda x: x @ wg.ones((4, 4)), x)
    assert (x * 2).sum().backward()[x].tolist() == [2.0, 2.0, 2.0]


def test_not_a_function():
    with pytest.raises(TypeError, match="checkpoint: takes a function and its arguments, got Tensor"):
        wg.checkpoint(wg.ones((3,)), lambda x: x)


# --------------------------------------------------------------------------------------------------------- memory

SIZE = 256 * 256 * 4


def mlp(run, x, ws):
    h = x
    for w in ws:
        h = run(lambda h, w: wg.tanh(wg.tanh(wg.tanh(h @ w))), h, w)
    return (h * h).sum()


@pytest.mark.parametrize("taped", [False, True])
def test_only_inputs_are_kept(taped):
    x, *ws = leaves(*[(256, 256)] * 7, dtype=wg.float32)

    def kept(run):
        gc.collect()
        before = wg.memory_stats()
        tape = wg.GradientTape()
        if taped:
            with tape:
                loss = mlp(run, x, ws)
        else:
            loss = mlp(run, x, ws)
        after = wg.memory_stats()
        del loss
        return (after.live_bytes - before.live_bytes) // SIZE, (after.saved_bytes - before.saved_bytes) // SIZE

    plain_live, plain_saved = kept(lambda f, *a: f(*a))
    live, saved = kept(wg.checkpoint)
    assert plain_live >= 18
    assert live <= 7 and saved <= plain_saved - 12


def test_a_tape_keeps_nothing_of_nested_regions():
    x, w = leaves((256, 256), (256, 256), dtype=wg.float32)

    def f(x):
        for _ in range(4):
            x = wg.checkpoint(lambda x: wg.tanh(wg.sin(x @ w)), x)
        return x

    before = wg.memory_stats().live_bytes
    with wg.GradientTape() as tape:
        y = wg.checkpoint(f, x).sum()
    assert (wg.memory_stats().live_bytes - before) // SIZE <= 1
    assert_same_bits(tape.gradient(y, w), f(x).sum().backward()[w])


def test_the_peak_drops():
    x, *ws = leaves(*[(256, 256)] * 13, dtype=wg.float32)

    def peak(run):
        gc.collect()
        wg.reset_peak()
        before = wg.memory_stats().live_bytes
        grads = mlp(run, x, ws).backward()
        del grads
        for t in (x, *ws):
            t.grad = None
        return (wg.memory_stats().peak_bytes - before) // SIZE

    plain, kept = peak(lambda f, *a: f(*a)), peak(wg.checkpoint)
    assert plain >= 36
    assert kept <= 13 + 13 + 6  # inputs, gradients, and one region


def test_nothing_is_left_behind():
    x, w = leaves((256, 256), (256, 256), dtype=wg.float32)

    def run():
        wg.checkpoint(lambda x: wg.checkpoint(lambda x: wg.tanh(x @ w), wg.sin(x)), x).sum().backward()
        x.grad = w.grad = None

    run()
    gc.collect()
    before = wg.memory_stats().live_bytes
    for _ in range(3):
        run()
    assert wg.memory_stats().live_bytes == before


# ------------------------------------------------------------------------------------------------------- segments


@pytest.mark.parametrize("segments", [1, 2, 3, 7])
def test_segments(segments):
    layers = [wg.nn.Linear(4, 4) for _ in range(7)]
    net = wg.nn.Sequential(*layers)
    x = wg.randn(5, 4, requires_grad=True)
    plain = net(x).sum().backward()
    runs = []
    counted = [functools.partial(lambda k, f, x: runs.append(k) or f(x), k, f) for k, f in enumerate(layers)]
    kept = wg.checkpoint_sequential(counted, segments, x).sum().backward()
    assert sorted(runs) == sorted([*range(7), *range(7)])
    for t in (x, *net.parameters()):
        assert_same_bits(kept[t], plain[t])
    assert_same_bits(wg.checkpoint_sequential(net, segments, x), net(x))


@pytest.mark.parametrize("segments", [0, -1, 8])
def test_a_number_of_segments_that_makes_no_sense(segments):
    with pytest.raises(
        wg.ArgumentError, match=rf"segments must be between 1 and the number of functions, 7; got {segments}"
    ):
        wg.checkpoint_sequential([wg.sin] * 7, segments, wg.ones(()))


def test_the_first_use_is_in_a_trace() -> None:
    """The module is loaded then, and what it makes for itself is no value of the program."""
    code = (
        "import wengert as wg\n"
        "f = lambda x: wg.checkpoint(lambda y: wg.sin(y) * y, x).sum()\n"
        "x = wg.ones((3,))\n"
        "wg.compile(f)(x)\n"
        "assert wg.grad(f)(x).shape == (3,)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
