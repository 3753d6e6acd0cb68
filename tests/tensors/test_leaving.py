"""Numbers that leave for Python or NumPy: nowhere is a derivative lost without a word."""

import copy
import math
import pickle
import threading

import numpy as np
import pytest

import wengert as wg

LEAVE = {
    "item": lambda x: x.item(),
    "float": float,
    "complex": complex,
    "math.sin": math.sin,
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "np.array": np.array,
    "np.array of tensors": lambda x: np.array([x, 2 * x]),
    "assignment to an array": lambda x: np.zeros(2).__setitem__(0, x),
    "np.r_": lambda x: np.r_[x, 1.0],
    "np.float64": np.float64,
    "np.full": lambda x: np.full((2,), x),
    "np.copyto": lambda x: np.copyto(np.zeros(()), x),
    "tolist": lambda x: x.tolist(),
    "memoryview": memoryview,
    "dlpack": lambda x: np.from_dlpack(x),
    "pickle": pickle.dumps,
    "new leaf": lambda x: wg.tensor(x, requires_grad=True),
    "new leaf from a list": lambda x: wg.tensor([x, x], requires_grad=True),
}  # fmt: skip

x0 = np.float64(0.5)


def modes(f):
    """f under each transformation, as calls without arguments."""
    x, one = wg.tensor(x0), wg.tensor(np.float64(1.0))
    return {
        "grad": lambda: wg.grad(f)(x),
        "value_and_grad": lambda: wg.value_and_grad(f)(x),
        "vjp": lambda: wg.vjp(f, x),
        "jvp": lambda: wg.jvp(f, (x,), (one,)),
        "linearize": lambda: wg.linearize(f, x),
        "jacobian": lambda: wg.jacobian(f)(x),
        "hessian": lambda: wg.hessian(f)(x),
        "hvp": lambda: wg.hvp(f, x, one),
        "grad of grad": lambda: wg.grad(wg.grad(f))(x),
        "grad of an outer argument": lambda: wg.grad(lambda w: wg.grad(lambda x: f(w) * x)(x))(x),
    }


MODES = list(modes(None))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE)
@pytest.mark.parametrize("computed", [False, True], ids=["the argument", "what is computed from it"])
def test_what_would_cut_the_path_raises_inside_transformations(mode, leave, computed):
    def f(x):
        leave(wg.sin(x) if computed else x)
        return x * x

    with pytest.raises(wg.GradientError if leave is not memoryview else (wg.GradientError, TypeError)) as e:
        modes(f)[mode]()
    if leave is not memoryview or mode == "grad":
        assert "detach()" in str(e.value)
        assert f"{__file__}:" in str(e.value)


@pytest.mark.parametrize("mode", MODES)
def test_what_cuts_nothing_is_allowed_inside_transformations(mode):
    w = wg.tensor(x0, requires_grad=True)
    other = w * 2.0  # recorded, but not from the argument

    def f(x):
        x.detach().item(), np.asarray(x.detach()), math.sin(wg.stop_gradient(x)), other.item(), float(w), w.numpy()
        assert x > 0
        assert bool(x)
        assert (int(x), math.floor(x), math.ceil(x), math.trunc(x)) == (0, 0, 1, 0)
        assert repr(x)
        assert f"{x:.1f}" == "0.5"
        assert np.array_equal(x, x)
        assert int((x > 0).item()) == 1
        return x * x * x

    modes(f)[mode]()


def test_user_line_is_named_through_numpy_and_scipy():
    stats = pytest.importorskip("scipy.stats")

    def f(x):
        return stats.norm.logpdf(x)

    with pytest.raises(wg.GradientError, match=r"test_leaving\.py:\d+.*detach\(\)"):
        wg.grad(f)(0.5)


def test_under_no_grad_nothing_is_lost():
    def f(x):
        with wg.no_grad():
            scale = float(x)
        return x * scale

    assert wg.grad(f)(wg.tensor(3.0)).item() == 3.0


def test_outside_arrays_of_recorded_results_raise_and_numbers_do_not():
    w = wg.tensor([1.0, 2.0], requires_grad=True)
    assert w.numpy().tolist() == np.asarray(w).tolist() == [1.0, 2.0]  # a leaf has no history
    y = w * 2.0
    for leave in (lambda y: y.numpy(), np.asarray, lambda y: np.array([y, y]), memoryview, np.from_dlpack):
        with pytest.raises(wg.GradientError, match=r"history.*detach\(\)\.numpy\(\)"):
            leave(y)
    assert y.detach().numpy().tolist() == y.tolist() == [2.0, 4.0]
    loss = y.sum()
    assert loss.item() == float(loss) == 6.0
    assert str(y) == "tensor([2., 4.], requires_grad=True)"
    assert pickle.loads(pickle.dumps(y)).tolist() == [2.0, 4.0]


def test_results_of_a_tape_are_free_when_it_has_ended():
    x = wg.tensor([1.0, 2.0])
    with wg.GradientTape() as tape:
        y = x * x
        with pytest.raises(wg.GradientError, match="detach"):
            y.numpy()
    assert y.numpy().tolist() == [1.0, 4.0]
    assert tape.gradient(y.sum() if False else y, x).tolist() == [2.0, 4.0]


def test_results_of_transformations_are_free():
    x = wg.tensor([1.0, 2.0])
    value, g = wg.value_and_grad(lambda x: (x * x).sum())(x)
    assert value.numpy() == 5.0
    assert g.numpy().tolist() == [2.0, 4.0]
    y, y_dot = wg.jvp(wg.sin, (x,), (x,))
    assert y.numpy().shape == y_dot.numpy().shape == (2,)


def test_a_dual_keeps_its_numbers_outside_of_jvp_too():
    x = wg.dual(wg.tensor(0.5), wg.tensor(1.0))
    for leave in (LEAVE["math.sin"], LEAVE["numpy"], LEAVE["tolist"], LEAVE["pickle"]):
        with pytest.raises(wg.GradientError, match="detach"):
            leave(x)
    assert x.value.item() == x.detach().item() == 0.5


def test_other_threads_are_not_inside():
    found = []

    def f(x):
        y = wg.tensor(2.0, requires_grad=True) * 1.0
        thread = threading.Thread(target=lambda: found.append(y.item()))
        thread.start()
        thread.join()
        return x * x

    wg.grad(f)(1.0)
    assert found == [2.0]


def test_errors_leave_no_transformation_behind():
    def fail(x):
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        wg.grad(fail)(1.0)
    assert (wg.tensor(2.0, requires_grad=True) * 1.0).item() == 2.0


# ------------------------------------------------------------------------- what is differentiated on its way instead

KEEP = {
    "tensor": lambda x: wg.tensor(x).sum(),
    "tensor with a dtype": lambda x: wg.tensor(x, dtype="float64").sum(),
    "tensor of a list": lambda x: (wg.tensor([x[0], 2 * x[1], 3.0]) ** 2).sum(),
    "tensor of nested lists": lambda x: (wg.tensor([[x[0], 2 * x[1]], [1.0, x[1]]]) ** 2).sum(),
    "tensor of rows": lambda x: (wg.tensor([x, 2 * x]) ** 2).sum(),
    "deepcopy": lambda x: (copy.deepcopy(x) ** 2).sum(),
    "deepcopy of a result": lambda x: (copy.deepcopy(wg.sin(x)) ** 2).sum(),
    "deepcopy in a container": lambda x: (copy.deepcopy({"a": [x]})["a"][0] ** 2).sum(),
    "copy": lambda x: (copy.copy(x) ** 2).sum(),
    "full": lambda x: (wg.full((3,), x[1]) ** 2).sum(),
    "full_like": lambda x: (wg.full_like(wg.zeros((2, 2), dtype="float64"), x[0]) ** 2).sum(),
    "np.array with like=": lambda x: (np.array([x[0], 2 * x[1]], like=x) ** 2).sum(),
    "np.asarray with like=": lambda x: (np.asarray(x, like=x) ** 2).sum(),
    "np.full_like": lambda x: (np.full_like(x, x[1]) ** 2).sum(),
    "np.stack": lambda x: (np.stack([x, 2 * x]) ** 2).sum(),
}


@pytest.mark.parametrize("f", KEEP.values(), ids=KEEP)
def test_copies_and_lists_keep_their_gradients(f):
    x, x_dot = wg.tensor(np.array([0.5, -1.5])), wg.tensor(np.array([1.0, 0.25]))
    g = wg.grad(f)(x)
    step = 1e-6
    moved = [float(f(x.detach() + s * step * x_dot)) for s in (1.0, -1.0)]
    along = (moved[0] - moved[1]) / (2 * step)
    assert float((g * x_dot).sum()) == pytest.approx(along, rel=1e-8)
    assert float(wg.jvp(f, (x,), (x_dot,))[1]) == pytest.approx(along, rel=1e-8)
    assert wg.grad(wg.compile(f))(x).tolist() == pytest.approx(g.tolist())


def test_tensor_of_tensors_outside():
    w = wg.tensor([1.0, 2.0], requires_grad=True)
    y = wg.tensor([w[0], w[1] * w[1]])
    assert y.backward(wg.tensor([1.0, 10.0]))[w].tolist() == [1.0, 40.0]
    leaf = wg.tensor(w * 2.0, requires_grad=True)
    assert leaf.is_leaf
    assert leaf.requires_grad
    assert not wg.tensor(w * 2.0, requires_grad=False).requires_grad
    copied = wg.tensor(leaf.detach())
    copied[0] = 5.0
    assert leaf.tolist() == [2.0, 4.0]


def test_deepcopy_of_a_result_is_a_clone():
    w = wg.tensor([1.0, 2.0], requires_grad=True)
    y = w * w
    z = copy.deepcopy(y)
    with wg.no_grad():
        z += 1.0
    assert y.tolist() == [1.0, 4.0]
    both = copy.deepcopy([y, y])
    assert both[0] is both[1]
    assert both[0].sum().backward()[w].tolist() == [2.0, 4.0]
