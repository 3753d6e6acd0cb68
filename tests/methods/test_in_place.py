from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert import _core


def test_operators_keep_the_object():
    x = wg.tensor([1.0, 2.0, 3.0])
    before = x
    x += 1
    x *= wg.tensor([2.0, 2.0, 2.0])
    x -= 0.5
    x /= 2
    x **= 2
    assert x is before
    np.testing.assert_allclose(x.numpy(), ((np.array([1.0, 2.0, 3.0]) + 1) * 2 - 0.5) ** 2 / 4)
    i = wg.tensor([5, 7])
    i //= 2
    i %= 2
    i <<= 3
    i |= 1
    i &= 9
    i ^= 1
    assert i.tolist() == [0, 8]
    m = wg.eye(2)
    m @= wg.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert m.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_methods():
    x = wg.tensor([1.0, 4.0])
    assert x.sqrt_() is x
    assert x.tolist() == [1.0, 2.0]
    x.add_(1.0).mul_(2.0).sub_(1.0).div_(3.0).pow_(2).neg_()
    np.testing.assert_allclose(x.numpy(), [-1.0, -25 / 9], rtol=1e-6)
    assert x.copy_(wg.tensor([3, 4])).tolist() == [3.0, 4.0]
    assert x.copy_(5).tolist() == [5.0, 5.0]
    assert x.fill_(7).tolist() == [7.0, 7.0]
    assert x.clip_(max=6.0).tolist() == [6.0, 6.0]
    assert x.zero_().exp_().tolist() == [1.0, 1.0]
    assert x.fill_(wg.tensor(2.0)).tolist() == [2.0, 2.0]
    big = 2**60 + 1
    assert wg.zeros((1,), dtype="int64").fill_(big).tolist() == [big]
    g = wg.Generator(seed=0)
    assert wg.zeros((3,)).normal_(generator=g).tolist() != [0.0] * 3
    assert (wg.zeros((3,)).uniform_(2.0, 3.0, generator=g) >= 2.0).all()


def test_dtype_stays():
    x = wg.tensor([1.0, 2.0])
    x += wg.tensor([1.0, 1.0], dtype="float64")
    assert x.dtype == wg.float32
    i = wg.tensor([1, 2])
    with pytest.raises(wg.DTypeError, match="float32"):
        i += 0.5
    with pytest.raises(wg.ShapeError, match="does not fit"):
        x += wg.ones((3, 2))
    with pytest.raises(TypeError):
        x += "a"
    assert x.tolist() == [2.0, 3.0]
    with pytest.raises(wg.ShapeError, match="copy_"):
        x.copy_(wg.ones((3,)))


def test_gradients():
    def f(x, v):
        y = x * 2.0
        y += v
        y *= y
        y.exp_()
        return y.mul_(v)

    check(f, np.array([0.1, -0.2, 0.3]), np.array([0.5, 0.4, -0.3]))


def test_gradients_of_copies():
    def f(x, v):
        y = x * 1.0
        y.copy_(v)
        y[1:] *= 3.0
        return y * x

    check(f, np.array([0.1, -0.2, 0.3]), np.array([0.5, 0.4, -0.3]))
    check(lambda x: (x * 2.0).zero_() + x, np.ones(2))
    check(lambda x: (x * 2.0).clip_(-1.0, 1.0), np.array([0.1, 0.9]))


def test_views_and_bases():
    def base_changed(x):
        y = x * 2.0
        row = y[0]
        y *= 3.0
        return row * row

    def view_changed(x):
        y = x * 2.0
        row = y[0]
        row *= 3.0
        return y * y

    a = np.random.default_rng(0).standard_normal((2, 3))
    check(base_changed, a)
    check(view_changed, a)


def test_leaves():
    x = wg.ones((2,), requires_grad=True)
    with pytest.raises(wg.InPlaceError, match="no_grad"):
        x += 1.0
    with wg.no_grad():
        x += 1.0
    assert x.requires_grad
    assert x.is_leaf
    (x * x).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]


def test_out():
    a, b, c = wg.tensor([1.0, 2.0]), wg.tensor([3.0, 4.0]), wg.zeros((2,))
    assert wg.mul(a, b, out=c) is c
    assert c.tolist() == [3.0, 8.0]


def test_traced():
    @wg.compile
    def f(x):
        x = x * 1.0
        x += 2.0
        return x

    assert f(wg.ones((2,))).tolist() == [3.0, 3.0]


# ------------------------------------------------------------------------------------------------ shared elements


@pytest.mark.parametrize("make", [lambda x: wg.broadcast_to(x, (4, 3)), lambda x: wg.broadcast_to(x[:1], (3,))])
def test_writing_to_a_broadcast_view_is_refused(make: Any) -> None:
    x = wg.tensor([1.0, 2.0, 3.0])
    view = make(x)
    for write in (lambda: view.add_(1.0), lambda: view.__setitem__(slice(None), 5.0), lambda: view[..., 1:].mul_(2.0)):
        with pytest.raises(wg.InPlaceError, match="share memory.*clone"):
            write()
    assert x.tolist() == [1.0, 2.0, 3.0]
    own = view.clone()
    own.add_(1.0)
    assert own.numpy().tolist() == (view.numpy() + 1).tolist()


def test_a_gradient_of_equal_elements_can_be_written() -> None:
    x = wg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x.sum().backward()
    x.grad[1] = 5.0
    assert x.grad.tolist() == [1.0, 5.0, 1.0]
    x.grad.mul_(wg.tensor([1.0, 2.0, 3.0]))
    assert x.grad.tolist() == [1.0, 10.0, 3.0]
    x.sum().backward()
    assert x.grad.tolist() == [2.0, 11.0, 4.0]


def test_parts_of_a_gradient_in_a_map_are_written() -> None:
    x = wg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    g = x.sum().backward()[x]
    g[1] = 5.0
    g.add_(wg.tensor([0.0, 1.0, 2.0]))
    assert g.tolist() == [1.0, 6.0, 3.0] and x.grad.tolist() == [1.0, 1.0, 1.0]
    x.grad = None
    h = x.sum().backward()[x]
    assert h.tolist() == [1.0, 1.0, 1.0]  # through an array, which sees this memory from now on
    h.add_(wg.tensor([0.0, 1.0, 2.0]))
    assert h.tolist() == [1.0, 2.0, 3.0] and x.grad.tolist() == [1.0, 1.0, 1.0]


def test_overlapping_places_cannot_be_updated() -> None:
    update = _core.ops["as_strided_update"]
    x = wg.zeros((6,))
    assert update(x, wg.ones((2, 2)), (2, 2), (3, 1), (1,)).tolist() == [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    for strides in ((1, 1), (0, 1), (0, 0), (-1, 1)):
        with pytest.raises(ValueError, match="overlap"):
            update(x, wg.ones((2, 2)), (2, 2), strides, (2,))


def test_a_tensor_that_takes_another_value_leaves_its_views_alone() -> None:
    p = wg.Parameter(np.arange(4.0))
    before = p.detach()
    p._adopt(wg.tensor(np.full(4, 7.0)))
    assert p.tolist() == [7.0] * 4 and before.tolist() == [0.0, 1.0, 2.0, 3.0]
    with wg.no_grad():
        p.add_(1.0)
        before.add_(10.0)
    assert p.tolist() == [8.0] * 4 and before.tolist() == [10.0, 11.0, 12.0, 13.0]


@pytest.mark.filterwarnings("ignore:.*does not depend on the argument")  # after fill_
@pytest.mark.parametrize("shared", [False, True])
def test_a_function_that_is_differentiated_may_change_its_argument(shared: bool):
    array = np.array([0.5, -1.5, 2.0])
    x = wg.asarray(array) if shared else wg.tensor(array)

    def whole(h: Any) -> Any:
        h.mul_(2.0)
        return (h * h).sum()

    def through_a_view(h: Any) -> Any:
        h[1:].mul_(3.0)
        h[0] = h[2]
        return (h * h).sum()

    for transform in (wg.grad, lambda f: wg.compile(wg.grad(f))):
        np.testing.assert_allclose(transform(whole)(x).numpy(), 8 * array)
        np.testing.assert_allclose(transform(through_a_view)(x).numpy(), [0.0, 18 * array[1], 36 * array[2]])
        assert transform(lambda h: h.fill_(1.0).sum())(x).tolist() == [0.0] * 3
    assert x.tolist() == array.tolist() == [0.5, -1.5, 2.0], "the caller's tensor is as it was"
