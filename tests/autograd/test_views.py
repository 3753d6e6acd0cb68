"""Views, bases and writes between them: NumPy is the model of who shares what, finite differences judge the gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from tests.program.test_ir import traced
from wengert.program.simplify import simplify


def check(f: Callable[..., Any], *arrays: Any, tolerance: float = 1e-7) -> None:
    """f runs on tensors and on arrays alike; its value and gradient must agree."""
    given = [np.array(a, np.float64) for a in arrays]
    on_arrays = np.asarray(f(*(a.copy() for a in given)))
    leaves = [wg.tensor(a, requires_grad=True) for a in given]
    y = f(*leaves)
    np.testing.assert_allclose(y.detach().numpy(), on_arrays, rtol=1e-12, atol=1e-12)
    (bar,) = fd.seeds([on_arrays.shape])
    grads = y.backward(bar)
    numeric = fd.gradient(lambda *xs: np.sum(bar * f(*(x.copy() for x in xs))), given)
    for k, (x, n) in enumerate(zip(leaves, numeric)):
        got = grads.get(x)
        got = np.zeros_like(n) if got is None else got.numpy()
        np.testing.assert_allclose(got, n, rtol=tolerance, atol=tolerance, err_msg=f"operand {k}")


A = np.arange(6.0).reshape(2, 3) / 5 - 0.4
V = np.array([0.3, -0.7, 1.1])


def test_intermediate_that_nobody_saved() -> None:
    def f(x: Any) -> Any:
        y = x + 1.0
        y += 2.0
        y *= 3.0
        return y

    check(f, A)


def test_intermediate_that_somebody_saved() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        z = y * y  # saves y
        y += 100.0
        return z + y

    check(f, A)


def test_output_that_somebody_saved() -> None:
    def f(x: Any) -> Any:
        y = np.tanh(x) if isinstance(x, np.ndarray) else wg.tanh(x)
        z = y * 1.0
        y *= 5.0  # tanh saved its output
        return z + y

    check(f, A)


def test_indexed_assignment_differentiates_both() -> None:
    def f(x: Any, v: Any) -> Any:
        y = x * 2.0
        y[1] = v * v
        y[0, 1:] = v[:2] * x[1, :2]
        return y * y

    check(f, A, V)


def test_assignment_with_broadcast_and_steps() -> None:
    def f(x: Any, v: Any) -> Any:
        y = x * 2.0
        y[:, ::2] = v[0]
        y[:, 1] = v[1:]
        return y * x

    check(f, A, V)


def test_repeated_indices_last_wins() -> None:
    def f(x: Any, v: Any) -> Any:
        y = x * 2.0
        index = np.array([1, 1, 0]) if isinstance(x, np.ndarray) else wg.tensor([1, 1, 0])
        y[index] = v
        return y * y

    check(f, np.ones(2), V)


def test_base_changed_under_a_view() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        row, column = y[0], y[:, 1]
        y *= x
        y[0] = 7.0 * x[1]
        return row * row + column[0] * 3.0

    check(f, A)


def test_view_changed_under_its_base() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        row = y[0]
        row *= 3.0
        row[1] = x[1, 1] * x[1, 1]
        return y * y

    check(f, A)


def test_two_views_overlap() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        a, b = y[:, :2], y[:, 1:]
        a *= 2.0
        b += x[:, :2]
        return a * a + b.sum() * y[0, 0]

    check(f, A)


def test_views_of_views() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        a = y[0][1:][::-1]
        a[0] = x[1, 2] * 4.0
        y.reshape((6,))[0:2] *= x[0, :2]
        return y * y

    check(f, A)


def test_overlapping_copy() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[:, 1:] = y[:, :-1]
        return y * y

    check(f, A)


def test_view_taken_after_a_write() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[0] = x[1] * 2.0
        v = y[0]
        v *= v
        return y

    check(f, A)


def test_transposed_views() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        t = y.T
        t[1] *= 3.0
        y[0] += t[:, 1].sum()
        return t * t

    check(f, A)


def test_write_through_a_view_of_a_dead_base() -> None:
    def f(x: Any) -> Any:
        row = (x * 2.0)[1]
        row *= row
        return row

    check(f, A)


def test_self_assignment() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y *= y
        y += y
        y[0] = y[1] * y[0]
        return y

    check(f, A)


def test_values_read_before_a_write_keep_their_gradient() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        before = y * y
        y[0] = 0.0
        after = y * y
        return before * after + before

    check(f, A)


def _random_program(seed: int) -> Callable[..., Any]:
    """A sequence of views, writes and reads, the same for arrays and tensors."""

    def f(x: Any) -> Any:
        rng = np.random.default_rng(seed)
        live = [x * 1.5]
        total = 0.0
        for _ in range(8):
            t = live[rng.integers(len(live))]
            k = rng.integers(9)
            n = t.shape[0] if t.ndim else 0
            if k == 0 and n > 1:
                live.append(t[1:])
            elif k == 1 and n:
                live.append(t[int(rng.integers(n)), ...])  # `...`: a view, also of one element
            elif k == 2 and t.ndim == 2:
                live.append(t.T)
            elif k == 3 and n > 1:
                live.append(t[::-2])
            elif k == 4:
                t *= 1.2
            elif k == 5:
                t += x[0, 0]
            elif k == 6 and n:
                t[rng.integers(n)] = x[0, 1] * x[1, 0]
            elif k == 7:
                total = total + (t * t).sum()
            elif k == 8 and n > 1:
                t[:-1] = t[1:] * 2.0
        for t in live:
            total = total + (t * t * t).sum()
        return total

    return f


@pytest.mark.parametrize("seed", range(150))
def test_random_sequences(seed: int) -> None:
    check(_random_program(seed), np.random.default_rng(seed).uniform(-0.8, 0.8, (3, 4)), tolerance=1e-6)


# ------------------------------------------------------------------------------------------------------- leaves


def test_leaves_are_written_under_no_grad_only() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    for write in (lambda: x.add_(1.0), lambda: x.__setitem__(0, 5.0), lambda: x.copy_(wg.zeros(2))):
        with pytest.raises(wg.InPlaceError, match="no_grad"):
            write()
    assert x.tolist() == [1.0, 2.0]
    with wg.no_grad():
        x += 1.0
        x[0] = 5.0
    assert x.tolist() == [5.0, 3.0] and x.is_leaf and x.requires_grad
    assert (x * x).sum().backward()[x].tolist() == [10.0, 6.0]


def test_views_of_leaves_are_protected_too() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    view = x[1:]
    with pytest.raises(wg.InPlaceError):
        view *= 2.0
    assert x.tolist() == [1.0, 2.0]


def test_update_after_the_forward_pass_does_not_change_its_gradient() -> None:
    """A leaf that was saved, then updated under no_grad: backward uses the value of the forward pass, or raises."""
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    with wg.no_grad():
        x += 100.0
    try:
        grads = y.backward()
    except wg.InPlaceError:
        return
    assert grads[x].tolist() == [2.0, 4.0]


def test_training_loop() -> None:
    w = wg.tensor([4.0, -3.0], requires_grad=True)
    for _ in range(50):
        g = (w * w).sum().backward()[w]
        with wg.no_grad():
            w -= g * 0.1
        w.grad = None
    assert abs(w.numpy()).max() < 1e-4
    assert w.is_leaf


def test_writing_into_grad_in_place() -> None:
    """w.grad.mul_(0.5), w.grad[0] = 0: what people do to clip gradients."""
    w = wg.tensor([4.0, -3.0], requires_grad=True)
    (w * w).sum().backward()
    w.grad.mul_(0.5)
    assert w.grad.tolist() == [4.0, -3.0]
    w.grad[0] = 1.0
    assert w.grad.tolist() == [1.0, -3.0]
    w.grad.zero_()
    assert w.grad.tolist() == [0.0, 0.0]


def test_writing_into_one_grad_leaves_the_others_alone() -> None:
    """Gradients that the walk passed on unchanged share a buffer, until one of them is written to."""
    for seed in (None, wg.tensor([1.0, 1.0])):
        x, y = wg.tensor([1.0, 2.0], requires_grad=True), wg.tensor([3.0, 4.0], requires_grad=True)
        total = x + y
        grads = total.sum().backward() if seed is None else total.backward(seed)
        x.grad[0] = 5.0
        assert x.grad.tolist() == [5.0, 1.0]
        assert y.grad.tolist() == [1.0, 1.0]
        assert grads[y].tolist() == [1.0, 1.0]
        assert grads[x].tolist() == [1.0, 1.0], "an earlier map never changes"


# -------------------------------------------------------------------------------------- memory shared with NumPy


def test_overwriting_a_saved_buffer_of_numpy_names_both_lines() -> None:
    data = np.array([1.0, 2.0])
    x = wg.asarray(data)
    w = wg.tensor([3.0, 4.0], dtype=wg.float64, requires_grad=True)
    saved_line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    y = (w * x).sum()
    written_line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    x += 1.0
    assert data.tolist() == [2.0, 3.0], "shared memory is written in place"
    with pytest.raises(wg.InPlaceError) as caught:
        y.backward()
    message = str(caught.value)
    assert "mul" in message
    assert "(2,)" in message
    assert f"test_views.py:{saved_line}" in message or f"line {saved_line}" in message
    assert f"test_views.py:{written_line}" in message or f"line {written_line}" in message
    assert w.grad is None


def test_an_exported_buffer_is_written_in_place() -> None:
    x = wg.tensor([1.0, 2.0])
    a = x.numpy()
    x += 1.0
    assert a.tolist() == [2.0, 3.0]
    a[0] = 7.0
    assert x.tolist() == [7.0, 3.0]


def test_a_shared_buffer_that_nobody_saved_may_be_written() -> None:
    x = wg.asarray(np.array([1.0, 2.0]))
    w = wg.tensor([3.0, 4.0], dtype=wg.float64, requires_grad=True)
    y = (w + x).sum()
    x += 1.0
    assert y.backward()[w].tolist() == [1.0, 1.0]


def test_writes_in_one_order_do_not_disturb_another_tensor() -> None:
    x = wg.tensor([1.0, 2.0])
    y = x.clone()
    z = wg.tensor(x)
    x *= 10.0
    assert y.tolist() == z.tolist() == [1.0, 2.0]
    d = x.detach()
    x += 1.0
    assert d.tolist() in ([10.0, 20.0], [11.0, 21.0])


# --------------------------------------------------------------------------------- elements that share their memory


def test_a_broadcast_view_and_its_views_refuse_to_be_written() -> None:
    """NumPy's broadcast_to is read-only; writing one element of ours must not change several."""
    x = wg.tensor([1.0, 2.0])
    y = wg.broadcast_to(x, (2, 2))
    writes = (
        lambda: y.__setitem__((0, 0), 5.0),
        lambda: y[0].__setitem__(0, 5.0),
        lambda: y[0].add_(1.0),
        lambda: y.T[0, 1:].copy_(wg.zeros(1)),
        lambda: y.__setitem__([0], 5.0),
        lambda: y.__setitem__(y > 1.0, 5.0),
        lambda: y.mul_(2.0),
        lambda: wg.broadcast_arrays(x, wg.zeros((2, 2)))[0].__setitem__((0, 0), 5.0),
        lambda: wg.add(y[0], 1.0, out=y[0]),
    )
    for write in writes:
        with pytest.raises(wg.InPlaceError, match=r"clone\(\)"):
            write()
    assert x.tolist() == [1.0, 2.0]
    x[0] = 7.0
    assert y.tolist() == [[7.0, 2.0], [7.0, 2.0]], "what is written to the base is seen"
    copy = y.clone()
    copy[0, 0] = 5.0
    assert copy.tolist() == [[5.0, 2.0], [7.0, 2.0]]


COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "tile": lambda m, x: m.tile(x, (2, 1)),
    "tile once": lambda m, x: m.tile(x, 1),
    "tile along columns": lambda m, x: m.tile(x, (1, 3)),
    "tile with new axes": lambda m, x: m.tile(x, (2, 1, 1)),
    "repeat rows": lambda m, x: m.repeat(x, 2, axis=0),
    "repeat once": lambda m, x: m.repeat(x, 1, axis=0),
    "repeat flat": lambda m, x: m.repeat(x, 2),
    "meshgrid": lambda m, x: m.meshgrid(x[0], x[0])[0],
    "meshgrid, second": lambda m, x: m.meshgrid(x[0], x[0], indexing="ij")[1],
    "meshgrid of one": lambda m, x: m.meshgrid(x[0])[0],
    "roll by nothing": lambda m, x: m.roll(x, 0),
    "roll round": lambda m, x: m.roll(x, 3, axis=1),
}


@pytest.mark.parametrize("name", COPIES)
def test_what_numpy_copies_is_written_alone(name: str) -> None:
    x = wg.tensor(A)
    y = COPIES[name](wg, x)
    y[(0,) * y.ndim] = 5.0
    np.testing.assert_array_equal(x.numpy(), A)

    def f(x: Any) -> Any:
        m = np if isinstance(x, np.ndarray) else wg
        u = x * x
        y = COPIES[name](m, u)
        y[(0,) * y.ndim] = 5.0
        y[..., 1] *= 3.0
        return (y * y).sum() + (u * u).sum()

    check(f, A)
    compiled = wg.compile(f)
    check(lambda x: f(x) if isinstance(x, np.ndarray) else compiled(x), A)


def test_a_gradient_of_one_number_gets_memory_when_it_is_written() -> None:
    """The gradient of a sum is one element seen through strides of zero; nobody needs to know."""

    def gradient() -> Any:
        return wg.grad(lambda x: x.sum())(wg.tensor([1.0, 2.0, 3.0]))

    g = gradient()
    g[0] = 5.0
    assert g.tolist() == [5.0, 1.0, 1.0]
    g = gradient()
    g[1:] += 1.0
    assert g.tolist() == [1.0, 2.0, 2.0]
    g = gradient()
    g[[2, 0]] = wg.tensor([5.0, 6.0])
    assert g.tolist() == [6.0, 1.0, 5.0]
    g = gradient()
    a = g.numpy()
    a[0] = 7.0
    assert g.tolist() == a.tolist() == [7.0, 1.0, 1.0]


REPEATED: dict[str, Callable[[Any], Any]] = {
    "tile": lambda x: wg.tile(x, (2, 1)),
    "repeat": lambda x: wg.repeat(x, 2, axis=0),
    "meshgrid": lambda x: wg.meshgrid(x[0], x[0])[0],
}


@pytest.mark.parametrize("name", list(REPEATED))
def test_what_repeats_elements_has_each_of_them_once(name: str) -> None:
    x = wg.tensor([[1.0, 2.0, 3.0]])
    y = REPEATED[name](x)
    y[0, 0] = 5.0
    assert y.tolist()[0] == [5.0, 2.0, 3.0] and y.tolist()[1] == [1.0, 2.0, 3.0] and x.tolist() == [[1.0, 2.0, 3.0]]

    def f(x: Any) -> Any:
        y = REPEATED[name](x)
        y[0, 0] = 5.0
        return (y * y).sum()

    times = y.shape[0]
    assert wg.grad(f)(x).tolist() == [[2.0 * (times - 1), 4.0 * times, 6.0 * times]]


def test_numpy_sees_overlapping_elements_read_only() -> None:
    for dtype in (wg.float32, wg.bfloat16):
        x = wg.ones((2,), dtype=dtype)
        y = wg.broadcast_to(x, (3, 2))
        for a in (y.numpy(), np.asarray(y), y[0].numpy()):
            assert not a.flags.writeable
        assert x.numpy().flags.writeable
        assert y.clone().numpy().flags.writeable


def test_programs_have_no_copies_of_what_is_not_written() -> None:
    def f(x: Any) -> Any:
        return (wg.tile(x, (4, 1)) * wg.repeat(x, 4, axis=0)).sum()

    program = simplify(traced(f, (1, 3)))
    assert not any(i.op.name in ("copy", "contiguous") for i in program.instructions)


def test_two_tensors_on_one_array_are_read_before_they_are_written() -> None:
    """Each made of the array on its own: that they share memory shows only in their addresses."""

    def assign(a: Any, b: Any) -> None:
        a[:] = b

    for write in (lambda a, b: a.copy_(b), assign, lambda a, b: a.copy_(b * 1.0), lambda a, b: wg.add(b, 0.0, out=a)):
        n = np.arange(6.0)
        write(wg.asarray(n), wg.asarray(n[::-1]))
        assert n.tolist() == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
        n = np.arange(6.0)
        write(wg.asarray(n[1:]), wg.asarray(n[:-1]))
        assert n.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
        m = np.arange(9.0).reshape(3, 3)
        write(wg.asarray(m), wg.asarray(m.T))
        assert m.tolist() == np.arange(9.0).reshape(3, 3).T.tolist()


# ------------------------------------------------------------------------------------------- reading without recording


def test_a_view_read_under_no_grad_keeps_its_gradient() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        row = y[0]
        y *= x
        with wg.no_grad():
            row.sum()
        return row * row

    check(f, np.random.default_rng(0).standard_normal((2, 3)))
    x = wg.ones((2, 2), requires_grad=True)
    y = x * 2.0
    row = y[0]
    y *= 3.0
    with wg.no_grad():
        assert "6." in str(row)
    assert row.sum().backward()[x].tolist() == [[6.0, 6.0], [0.0, 0.0]]


def test_a_result_that_is_a_view_of_what_was_written_keeps_its_gradient() -> None:
    """It is brought up to date when it is read, which may be after the transformation or the tape has ended."""

    def f(x: Any) -> Any:
        y = x * 2.0
        row = y[0]
        y *= x
        return row

    x = wg.tensor([[0.5, 2.0]])
    assert wg.vjp(f, x)[1](wg.ones((2,)))[0].tolist() == [[2.0, 8.0]]
    assert wg.linearize(f, x)[1](wg.ones((1, 2))).tolist() == [2.0, 8.0]
    with wg.GradientTape() as tape:
        row = f(x)
    assert tape.gradient(row, x).tolist() == [[2.0, 8.0]]


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0)])
def test_views_of_results_in_another_order_of_axes_are_written(order: tuple[int, int, int]) -> None:
    """Elementwise results keep the layout of their operand; what a view is of them has to be found in that."""

    def view_changed(x: Any) -> Any:
        y = wg.sin(wg.permute_dims(x, order))
        kept, before = y[1:], y * y
        y[0] = y[-1] * 3.0
        y[..., 1].mul_(y[..., 0])
        kept[:, ::-1].add_(before[1:])
        return y * y + before

    def base_changed(x: Any) -> Any:
        y = wg.exp(wg.permute_dims(x, order))
        part = y[:, 1:]
        y *= y
        part.sin_()
        return y * 2.0

    a = np.random.default_rng(0).standard_normal((2, 3, 4))
    for f in (view_changed, base_changed):
        check(f, a)
        expected = f(wg.tensor(np.ascontiguousarray(a))).numpy()
        np.testing.assert_allclose(f(wg.tensor(a, requires_grad=True)).detach().numpy(), expected, rtol=1e-12)
