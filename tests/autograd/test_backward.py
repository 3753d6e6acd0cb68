"""Reverse mode: what backward returns, what it leaves behind, and what it refuses."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import wengert as wg


def leaf(*values: float) -> wg.Tensor:
    return wg.tensor(list(values), dtype=wg.float64, requires_grad=True)


def test_gradients_accumulate_in_grad_but_not_in_maps() -> None:
    x = leaf(1.0, 2.0)
    maps = [(x * x * k).sum().backward() for k in (1.0, 10.0)]
    assert maps[0][x].tolist() == [2.0, 4.0]
    assert maps[1][x].tolist() == [20.0, 40.0]
    assert x.grad.tolist() == [22.0, 44.0]
    x.grad = None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_fan_out_of_many_paths() -> None:
    x = leaf(0.5)
    y = x
    for _ in range(20):
        y = y + y  # 2^20 paths, 20 nodes
    assert y.backward(wg.ones(1))[x].tolist() == [2.0**20]


def test_diamond_visits_each_node_once() -> None:
    x = leaf(2.0)
    a = x * x
    b, c = a * 3.0, a * a
    (b * c).sum().backward()
    assert x.grad.tolist() == [3 * 6 * 2.0**5]


def test_a_leaf_is_its_own_gradient() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    assert x.backward()[x].item() == 1.0
    assert x.grad.item() == 1.0


def test_one_element_counts_as_scalar() -> None:
    x = leaf(3.0)
    assert (x * x).backward()[x].tolist() == [6.0]
    assert (x * x).reshape((1, 1)).backward()[x].tolist() == [6.0]


def test_seed() -> None:
    x = leaf(1.0, 2.0)
    assert (x * x).backward(wg.tensor([1.0, -3.0]))[x].tolist() == [2.0, -12.0]
    assert (x * x).backward([1.0, 10.0])[x].tolist() == [2.0, 40.0]
    assert (x * x).backward(np.array([2.0, 0.0]))[x].tolist() == [4.0, 0.0]


def test_seed_is_not_aliased_by_the_gradient() -> None:
    """A gradient that is the seed itself must not change with it, nor the seed with the gradient."""
    x = leaf(1.0, 2.0)
    seed = wg.tensor([1.0, 2.0], dtype=wg.float64)
    grads = (x + 0.0).backward(seed)
    seed[0] = 99.0
    assert grads[x].tolist() == [1.0, 2.0]
    x.grad[1] = -5.0
    assert seed.tolist() == [99.0, 2.0]


def test_two_leaves_do_not_share_a_gradient() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    grads = (x + y).sum().backward()
    with wg.no_grad():
        x.grad += 10.0
    assert y.grad.tolist() == [1.0, 1.0]
    assert grads[y].tolist() == [1.0, 1.0]


def test_map_and_grad_after_writing_to_grad() -> None:
    x = leaf(1.0, 2.0)
    grads = (x * x).sum().backward()
    (x * x).sum().backward()
    assert grads[x].tolist() == [2.0, 4.0]


def test_bad_seeds() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(wg.GradientError, match=r"\(2,\)"):
        (x * x).backward()
    with pytest.raises(wg.ShapeError, match=r"\(3,\).*\(2,\)"):
        (x * x).backward(wg.ones(3))
    with pytest.raises(wg.ShapeError):
        (x * x).sum().backward(wg.ones(2))


def test_integers_have_no_gradient() -> None:
    with pytest.raises(wg.DTypeError, match="int64"):
        wg.tensor([1, 2], requires_grad=True)
    with pytest.raises(wg.DTypeError):
        wg.tensor([1, 2]).requires_grad_()
    with pytest.raises((wg.DTypeError, wg.GradientError)):
        wg.tensor([1, 2]).sum().backward()
    with pytest.raises((wg.DTypeError, wg.GradientError), match="int64|floating"):
        wg.grad(lambda x: (x * 2).sum())(wg.tensor([1, 2]))


def test_nothing_recorded() -> None:
    with pytest.raises(wg.GradientError, match="requires a gradient"):
        wg.ones(2).sum().backward()
    x = leaf(1.0)
    with wg.no_grad():
        y = x * x
    with pytest.raises(wg.GradientError, match="no_grad"):
        y.backward()
    with pytest.raises(wg.GradientError):
        (x * x).detach().backward()


def test_backward_twice() -> None:
    x = leaf(1.0, 2.0)
    y = (wg.sin(x) * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(wg.GradientError, match="freed.*retain_graph"):
        y.backward()
    expected = 2 * (np.cos([1.0, 2.0]) * [1.0, 2.0] + np.sin([1.0, 2.0]))
    np.testing.assert_allclose(x.grad.numpy(), expected)


def test_the_error_of_a_freed_graph_names_op_and_line() -> None:
    x = leaf(1.0, 2.0)
    y = wg.exp(x).sum()
    y.backward()
    with pytest.raises(wg.GradientError) as caught:
        y.backward()
    assert "test_backward.py" in str(caught.value)


def test_a_freed_graph_leaves_half_walked_gradients_alone() -> None:
    """y shares a freed part with z; the failed pass must not have touched .grad."""
    x, w = leaf(2.0), leaf(3.0)
    shared = wg.exp(x)
    (shared * 2.0).backward(wg.ones(1))
    before = x.grad.tolist()
    with pytest.raises(wg.GradientError):
        (shared * w).backward(wg.ones(1))
    assert x.grad.tolist() == before
    assert w.grad is None or w.grad.tolist() == np.exp([2.0]).tolist()


def test_shared_subgraph_with_retain() -> None:
    x = leaf(2.0)
    h = wg.exp(x)
    (h * 2.0).backward(wg.ones(1), retain_graph=True)
    (h * 3.0).backward(wg.ones(1))
    np.testing.assert_allclose(x.grad.numpy(), 5 * np.exp([2.0]))


def test_inputs_restrict_what_is_computed() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    h = x * w
    y = (h * h).sum()
    grads = y.backward(inputs=[h, w], retain_graph=True)
    assert grads[h].tolist() == [6.0, 16.0]
    assert grads[w].tolist() == [6.0, 32.0]
    assert grads.get(x) is None
    assert x.grad is None
    assert y.backward(inputs=x)[x].tolist() == [18.0, 64.0]


def test_inputs_that_are_not_connected() -> None:
    x, other = leaf(1.0), leaf(2.0)
    grads = (x * x).backward(inputs=[x, other])
    assert grads.get(other) is None
    assert grads[x].tolist() == [2.0]


def test_inputs_of_the_output_itself() -> None:
    x = leaf(3.0)
    y = x * x
    grads = y.backward(inputs=[y, x])
    assert grads[y].tolist() == [1.0]
    assert grads[x].tolist() == [6.0]


def test_retain_grad() -> None:
    x = leaf(1.0, 2.0)
    h = x * x
    h.retain_grad()
    grads = (h * 3.0).sum().backward()
    assert h.grad.tolist() == [3.0, 3.0]
    assert grads[h].tolist() == [3.0, 3.0]
    assert not h.is_leaf
    with pytest.raises(wg.GradientError):
        wg.ones(2).retain_grad()


def test_intermediates_have_no_grad_otherwise() -> None:
    x = leaf(1.0)
    h = x * x
    (h * h).backward(wg.ones(1))
    assert h.grad is None


def test_none_is_not_zeros() -> None:
    x = leaf(1.5, 2.5)
    grads = wg.floor(x).sum().backward()
    assert grads[x].tolist() == [0.0, 0.0], "floor is differentiable: its derivative is zero"
    assert x.grad.tolist() == [0.0, 0.0]
    y = wg.argmax(x)
    assert not y.requires_grad, "argmax ends the path"
    z = (x * 2.0).sum() + wg.take(wg.tensor([1.0, 2.0], dtype=wg.float64), wg.argmax(x).reshape((1,)), axis=0).sum()
    assert z.backward()[x].tolist() == [2.0, 2.0]
    assert (x > 2.0).requires_grad is False


def test_zero_path_beside_a_real_one() -> None:
    x = leaf(1.5)
    assert (wg.floor(x) * x).backward(wg.ones(1))[x].tolist() == [1.0]
    assert (wg.floor(x) + x * x).backward(wg.ones(1))[x].tolist() == [3.0]


def test_strong_zero() -> None:
    x = leaf(0.0, 4.0)
    y = wg.where(x > 0, wg.sqrt(x), 1.0).sum()
    assert y.backward()[x].tolist() == [0.0, 0.25]
    x = leaf(0.0, 2.0)
    assert wg.where(x > 0, wg.log(x), 0.0).sum().backward()[x].tolist() == [0.0, 0.5]
    assert wg.where(x > 0, 1 / x, x).sum().backward()[x].tolist() == [1.0, -0.25]


def test_strong_zero_at_second_order() -> None:
    f = lambda x: wg.where(x > 0, wg.sqrt(x), 1.0).sum()
    for g in (wg.hessian(f), wg.jacrev(wg.grad(f))):
        h = g(wg.tensor([0.0, 4.0], dtype=wg.float64)).numpy()
        np.testing.assert_allclose(h, [[0.0, 0.0], [0.0, -1 / 32]])


def test_create_graph() -> None:
    x = leaf(1.0, 2.0)
    grads = (x**4).sum().backward(create_graph=True)
    assert grads[x].requires_grad
    second = grads[x].sum().backward(create_graph=True, inputs=[x])
    np.testing.assert_allclose(second[x].detach().numpy(), [12.0, 48.0])
    third = second[x].sum().backward(create_graph=True, inputs=[x])
    np.testing.assert_allclose(third[x].detach().numpy(), [24.0, 48.0])
    fourth = third[x].sum().backward(inputs=[x])
    np.testing.assert_allclose(fourth[x].numpy(), [24.0, 24.0])


def test_gradient_penalty() -> None:
    """The usual use: a loss that holds a gradient norm, trained by its parameters."""
    w = wg.tensor([[0.5, -0.2], [0.3, 0.8]], dtype=wg.float64, requires_grad=True)
    x = leaf(1.0, -2.0)

    def penalty(w: Any) -> Any:
        (g,) = wg.grad_of(wg.tanh(w @ x).sum(), x, create_graph=True)
        return (g * g).sum()

    got = penalty(w).backward(inputs=[w])[w].numpy()
    step = 1e-6
    for i in np.ndindex(2, 2):
        up, down = w.numpy().copy(), w.numpy().copy()
        up[i] += step
        down[i] -= step
        numeric = (penalty(wg.asarray(up)).item() - penalty(wg.asarray(down)).item()) / (2 * step)
        assert got[i] == pytest.approx(numeric, rel=1e-6)


def test_a_gradient_without_create_graph_cannot_be_differentiated() -> None:
    x = leaf(1.0, 2.0)
    grads = (x * x).sum().backward()
    with pytest.raises(wg.GradientError, match="create_graph"):
        grads[x].sum().backward()


def test_create_graph_leaves_no_cycle_behind() -> None:
    """.grad of a leaf that depends on the leaf is a cycle; clearing .grad must free it."""
    gc.collect()
    before = wg.memory_stats().live_bytes
    x = wg.tensor(np.ones(1000), requires_grad=True)
    grads = (x * x * x).sum().backward(create_graph=True)
    x.grad = None
    del x, grads
    gc.collect()
    assert wg.memory_stats().live_bytes == before


def test_grad_of() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    gx, gw = wg.grad_of((x * w).sum(), [x, w])
    assert gx.tolist() == [3.0, 4.0] and gw.tolist() == [1.0, 2.0]
    assert x.grad is None and w.grad is None
    (g,) = wg.grad_of([x * 2.0, x * x], x, [wg.ones(2), wg.tensor([1.0, 10.0])])
    assert g.tolist() == [4.0, 42.0]
    with pytest.raises(wg.GradientError, match="allow_unused"):
        wg.grad_of(x.sum(), w)
    assert wg.grad_of(x.sum(), [x, w], allow_unused=True)[1] is None
    (second,) = wg.grad_of(wg.grad_of((x**3).sum(), x, create_graph=True)[0].sum(), x)
    assert second.tolist() == [6.0, 12.0]
    with pytest.raises(wg.GradientError):
        wg.grad_of(x * x, x)
    with pytest.raises(wg.WengertError):
        wg.grad_of([x.sum(), w.sum()], [x], [wg.ones(())])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_seeds_of_every_kind(dtype: Any) -> None:
    """A seed that fits is taken as it is; arrays, other dtypes and strides are converted; nothing is shared with it."""
    array = np.arange(1, 7, dtype=dtype)[::2]
    for seed in (array, wg.asarray(array), wg.tensor(array), wg.tensor(np.arange(1, 7, dtype=dtype))[::2]):
        x = wg.tensor([2.0, 3.0, 4.0], requires_grad=True)
        y = x + 0.0
        (g,) = wg.grad_of(y, (x,), seed, retain_graph=True)
        grads = y.backward(seed)
        array += 1
        assert g.tolist() == grads[x].tolist() == x.grad.tolist() == [1.0, 3.0, 5.0]
        assert g.dtype == x.dtype
        array -= 1


def test_grad_of_through_a_path_that_carries_nothing() -> None:
    x, w = wg.tensor([2.0, 3.0], requires_grad=True), wg.tensor([1.0, 1.0], requires_grad=True)
    y = wg.floor(x) * w
    gx, gw = wg.grad_of(y, [x, w], wg.tensor([1.0, 10.0]), allow_unused=True)
    assert gw.tolist() == [2.0, 30.0]
    assert gx.tolist() == [0.0, 0.0]
    assert x.grad is None and w.grad is None  # .grad is not touched
    with pytest.raises(wg.GradientError, match="freed by an earlier backward"):
        wg.grad_of(y, [w], wg.tensor([1.0, 10.0]))


def test_grad_of_the_same_input_twice() -> None:
    x = leaf(3.0)
    a, b = wg.grad_of(x * x, [x, x], wg.ones(1))
    assert a.tolist() == b.tolist() == [6.0]


def test_detach_and_stop_gradient() -> None:
    x = leaf(3.0)
    assert (x * x.detach()).backward(wg.ones(1))[x].tolist() == [3.0]
    assert (x * wg.stop_gradient(x)).backward(wg.ones(1))[x].tolist() == [3.0]
    d = x.detach()
    assert not d.requires_grad and d.tolist() == x.tolist()
    for transform in (wg.grad, lambda f: lambda z: wg.jvp(f, (z,), (wg.ones_like(z),))[1]):
        g = transform(lambda z: (z * wg.stop_gradient(z)).sum())(wg.tensor([3.0]))
        assert np.ravel(g.numpy()).tolist() == [3.0]
    assert wg.grad(wg.compile(lambda z: (z * wg.stop_gradient(z)).sum()))(wg.tensor([3.0])).tolist() == [3.0]


def test_frozen_inputs_are_pruned() -> None:
    """Counters: the gradient of a frozen weight is not computed."""
    from wengert import _core

    x = wg.randn(4, 5)
    frozen = wg.randn(5, 6)
    w = wg.randn(6, 3, requires_grad=True)
    y = (wg.tanh(x @ frozen) @ w).sum()
    *_, nodes, edges = _core.backward([(y, wg.ones(()))], None, False, False, True)
    assert (nodes, edges) == (2, 2), "sum and the last product; the tanh and the first product were never recorded"
    a, b = wg.randn(4, 5, requires_grad=True), wg.randn(5, 6, requires_grad=True)
    y = (a @ b).sum()
    *_, edges = _core.backward([(y, wg.ones(()))], [_core.node_of(a)], False, False, False)
    assert edges == 2, "only the product for a"


def test_graphs_are_freed_when_a_loss_is_dropped() -> None:
    gc.collect()
    before = wg.memory_stats()
    x = wg.tensor(np.ones((64, 64)), requires_grad=True)
    held = wg.memory_stats().live_bytes
    y = wg.tanh(x * 2.0)
    loss = wg.exp(y).sum()
    assert wg.memory_stats().saved_bytes > before.saved_bytes
    del y, loss
    after = wg.memory_stats()
    assert after.live_bytes == held
    assert after.saved_bytes == before.saved_bytes


def test_backward_frees_what_it_saved() -> None:
    before = wg.memory_stats().saved_bytes
    x = wg.tensor(np.ones((64, 64)), requires_grad=True)
    loss = (wg.sin(x) * wg.exp(x)).sum()
    loss.backward()
    assert wg.memory_stats().saved_bytes == before


def test_clear_frees_this_threads_records() -> None:
    x = wg.tensor(np.ones(100), requires_grad=True)
    loss = wg.exp(x).sum()
    wg.autograd.clear()
    for options in ({}, {"create_graph": True}, {"inputs": [x]}):
        with pytest.raises(wg.GradientError, match=r"graph of \w+ \(.*\) was freed by autograd.clear\(\); compute"):
            loss.backward(**options)
    assert (x * x).sum().backward()[x].tolist() == [2.0] * 100


def test_dtypes_of_gradients() -> None:
    for dtype in (wg.float16, wg.bfloat16, wg.float32, wg.float64):
        x = wg.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
        assert (x * x).sum().backward()[x].dtype == dtype
    x = wg.tensor([1.0, 2.0], dtype=wg.float32, requires_grad=True)
    w = wg.tensor([3.0, 4.0], dtype=wg.float64, requires_grad=True)
    grads = (x * w).sum().backward()
    assert grads[x].dtype == wg.float32 and grads[w].dtype == wg.float64


def test_broadcast_gradients_have_the_operands_shape() -> None:
    a, b, c = wg.randn(3, 1, requires_grad=True), wg.randn(1, 4, requires_grad=True), wg.randn((), requires_grad=True)
    grads = ((a + b) * c - a).sum().backward()
    for t in (a, b, c):
        assert grads[t].shape == t.shape


def test_empty_tensors() -> None:
    x = wg.zeros((0, 3), requires_grad=True)
    grads = (wg.exp(x) * 2.0).sum().backward()
    assert grads[x].shape == (0, 3)
    w = wg.randn(3, 2, requires_grad=True)
    grads = (x @ w).sum().backward()
    assert grads[w].tolist() == [[0.0, 0.0]] * 3


def test_nan_and_infinity_as_data() -> None:
    x = leaf(np.nan, np.inf, -np.inf, 1.0)
    g = (x * x).sum().backward()[x].numpy()
    assert np.isnan(g[0]) and g[1] == np.inf and g[2] == -np.inf and g[3] == 2.0


def test_hash_and_equality_of_keys() -> None:
    x, y = leaf(1.0), leaf(1.0)
    grads = (x * 2.0).backward(wg.ones(1))
    assert x in grads and y not in grads and x.id in grads


def test_requires_grad_of_an_intermediate_cannot_be_switched_off() -> None:
    x = leaf(1.0)
    y = x * x
    with pytest.raises(wg.WengertError):
        y.requires_grad = False


def test_requires_grad_switched_off_stops_recording() -> None:
    x = leaf(1.0)
    x.requires_grad = False
    assert not (x * x).requires_grad
    x.requires_grad = True
    assert (x * x).backward(wg.ones(1))[x].tolist() == [2.0]


def test_arguments_of_grad_of_by_position() -> None:
    """As the public contract orders them: grad_outputs, create_graph, allow_unused."""
    x, unused = leaf(1.0, 2.0), leaf(1.0)
    (g, nothing) = wg.grad_of((x**3).sum(), [x, unused], None, True, True)
    assert g is not None and nothing is None
    assert g.sum().backward()[x].tolist() == [6.0, 12.0]


@pytest.mark.parametrize("given", [3, "x", {"x": 1}, [3]], ids=repr)
def test_what_is_no_tensor_cannot_be_differentiated_by(given: Any) -> None:
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    refused = pytest.raises(TypeError, match="a tensor or a sequence of tensors, got ")
    with refused:
        wg.grad_of(y, given)
    with refused:
        wg.grad_of(given, x)
    with refused:
        y.backward(inputs=given)
    assert y.backward()[x].tolist() == [2.0, 4.0]


def test_stop_gradient_of_a_number() -> None:
    assert wg.stop_gradient(3.0).item() == 3.0


@pytest.mark.parametrize("shared", ["asarray", "numpy"])
@pytest.mark.parametrize("how", ["grad_of", "backward"])
def test_seed_that_shares_memory_with_numpy_keeps_its_graph(shared, how):
    t = wg.tensor(np.array([0.3, 0.7]), requires_grad=True)
    array = np.array([1.0, 2.0])
    c = wg.asarray(array) if shared == "asarray" else wg.tensor(array)
    c.requires_grad = True
    seed = c * 1.0 if shared == "numpy" else c
    if shared == "numpy":
        seed.detach().numpy()  # a look is enough: the memory is shared from then on
    y = wg.sin(t)
    if how == "grad_of":
        (g,) = wg.grad_of([y], [t], [seed], create_graph=True)
    else:
        g = y.backward(seed, create_graph=True, inputs=[t])[t]
    (by_seed,) = wg.grad_of([g.sum()], [c])
    np.testing.assert_allclose(by_seed.numpy(), np.cos([0.3, 0.7]))


def test_gradient_does_not_change_with_the_array_that_seeded_it():
    t = wg.tensor(np.array([0.3, 0.7]), requires_grad=True)
    array = np.array([1.0, 2.0])
    g = (t + 0.0).backward(wg.asarray(array))[t]
    array[:] = 7.0
    assert g.tolist() == [1.0, 2.0]
