"""Jacobians replay a trace only where nobody can notice: everything else runs as it is written, in every call."""

from __future__ import annotations

import functools
import gc
import math
import random
import weakref
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.transforms import replay

X = np.linspace(0.5, 1.5, 3)
scale = 2.0
offsets = wg.asarray(np.ones(3))


def x() -> Any:
    return wg.asarray(X.copy())


def diagonal(f: Any, *args: Any) -> Any:
    return np.diag(np.asarray(wg.jacrev(f)(x(), *args)))


def test_what_is_replayed_runs_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    replay._shared.clear()
    wg.hessian(cubes)(x())
    monkeypatch.setattr(wg.transforms.jacobian, "_row_blocks", None)  # nothing evaluates a derivative now
    np.testing.assert_allclose(np.asarray(wg.hessian(cubes)(x())), np.diag(6 * X))
    np.testing.assert_allclose(np.asarray(wg.hessian(cubes)(x() * 2.0)), np.diag(12 * X))


def cubes(z: Any) -> Any:
    return (z * z * z).sum()


@pytest.mark.parametrize(
    "f",
    [
        lambda z: wg.softmax(wg.tanh(z) @ wg.ones((3, 3), dtype=wg.float64), axis=-1),
        lambda z: wg.gelu(z) + sum(z[i] * math.sin(i) for i in range(3)),
        functools.partial(lambda k, z: z**k, 3),
        wg.grad(lambda z: (z**3).sum()),
        wg.sin,
    ],
)
def test_what_is_seen_to_compute_only(f: Any) -> None:
    assert replay._state_of(f)


def test_side_effects_happen_in_every_call() -> None:
    seen = []

    def f(z: Any) -> Any:
        seen.append(z.shape)
        return z * z

    jacobian = wg.jacrev(f)
    for k in range(3):
        jacobian(x())
        assert len(seen) == k + 1


def test_assignments_outside_happen_in_every_call() -> None:
    count = 0

    def f(z: Any) -> Any:
        nonlocal count
        count += 1
        return z * z

    class Holder:
        value = 0.0

    holder = Holder()

    def g(z: Any) -> Any:
        holder.value += 1.0
        return z * z

    for h in (f, g):
        jacobian = wg.jacrev(h)
        for _ in range(3):
            jacobian(x())
    assert (count, holder.value) == (3, 3.0)


def test_branches_on_data_are_taken_anew() -> None:
    jacobian = wg.jacrev(lambda z: z * z if float(z.sum().detach()) > 0 else z)
    hessian = wg.hessian(lambda z: (z * z).sum() if bool(z.detach().sum() > 0) else (z * z * z).sum())
    for _ in range(3):
        np.testing.assert_allclose(np.diag(np.asarray(jacobian(x()))), 2 * X)
        np.testing.assert_allclose(np.diag(np.asarray(jacobian(-x()))), 1.0)
        np.testing.assert_allclose(np.diag(np.asarray(hessian(x()))), 2.0)
        np.testing.assert_allclose(np.diag(np.asarray(hessian(-x()))), -6 * X)


def test_constants_that_change() -> None:
    factor = 3.0
    jacobian = wg.jacrev(lambda z: z * factor)
    for factor in (3.0, 4.0, 3.0, -0.0, 0.0):
        np.testing.assert_array_equal(np.diag(np.asarray(jacobian(x()))), factor)
        assert math.copysign(1.0, float(np.asarray(jacobian(x()))[0, 0])) == math.copysign(1.0, factor)


def test_globals_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(z: Any) -> Any:
        return z * scale + offsets * z

    assert diagonal(f).tolist() == [3.0] * 3
    monkeypatch.setitem(globals(), "scale", 5.0)
    assert diagonal(f).tolist() == [6.0] * 3
    monkeypatch.setitem(globals(), "offsets", wg.asarray(np.full(3, 2.0)))
    assert diagonal(f).tolist() == [7.0] * 3


def test_helpers_that_change() -> None:
    power = 2

    def helper(z: Any) -> Any:
        return z**power

    def f(z: Any) -> Any:
        return helper(z)

    jacobian = wg.jacfwd(f)
    for power in (2, 3, 2):
        np.testing.assert_allclose(np.diag(np.asarray(jacobian(x()))), power * X ** (power - 1))


def test_tensors_that_are_closed_over() -> None:
    w = wg.asarray(np.full(3, 2.0))
    jacobian = wg.jacrev(lambda z: z * w)
    for _ in range(3):
        assert np.diag(np.asarray(jacobian(x()))).tolist() == [2.0] * 3
    w += 1.0
    assert np.diag(np.asarray(jacobian(x()))).tolist() == [3.0] * 3
    w = wg.asarray(np.full(3, 7.0))
    assert np.diag(np.asarray(jacobian(x()))).tolist() == [7.0] * 3


def test_numbers_that_are_read_of_tensors() -> None:
    """A trace would take them for constants."""
    w = wg.asarray(np.array(2.0))
    functions = [
        lambda z: z * float(w),
        lambda z: z * w.item(),
        lambda z: z * math.exp(w),
        lambda z: z * np.asarray(w),
        lambda z: z * 2.0 if w > 2.5 else z * 3.0,
        lambda z: z * 2.0 if w else z * 3.0,
        lambda z: z * int(w),
    ]
    expected: list[Any] = [float, float, math.exp, float]
    expected += [lambda v: 2.0 if v > 2.5 else 3.0, lambda v: 2.0 if v else 3.0, int]
    jacobians = [wg.jacrev(f) for f in functions]
    for value in (2.0, 2.0, 3.0, 0.0, 2.0):
        w.fill_(value)
        for jacobian, slope in zip(jacobians, expected):
            np.testing.assert_allclose(np.diag(np.asarray(jacobian(x()))), slope(value))


def test_gradients_reach_tensors_that_are_closed_over() -> None:
    w = wg.tensor(np.full(3, 2.0), requires_grad=True)
    jacobian = wg.jacrev(lambda z: z * w * w)
    for _ in range(3):
        assert jacobian(x()).sum().backward()[w].tolist() == [4.0] * 3


def test_arguments_of_other_kinds() -> None:
    jacobian = wg.jacobian(lambda z, k, *, power: (z * k) ** power)
    for k, power in ((2.0, 2), (3.0, 2), (3.0, 3)):
        got = np.diag(np.asarray(jacobian(x(), k, power=power)))
        np.testing.assert_allclose(got, power * k * (X * k) ** (power - 1))
    assert wg.jacobian(lambda z: z * z)(3.0).item() == 6.0
    assert wg.jacobian(lambda z: z * z)(np.array([3.0])).tolist() == [[6.0]]


def test_objects_and_arrays_are_read_in_every_call() -> None:
    array = np.ones(3)
    settings = {"factor": 2.0}

    class Model:
        factor = 2.0

        def __call__(self, z: Any) -> Any:
            return z * self.factor

    model = Model()
    functions = [lambda z: z * wg.asarray(array.copy()), lambda z: z * settings["factor"], model, model.__call__]
    jacobians = [wg.jacrev(f) for f in functions]
    for value in (2.0, 3.0, 4.0):
        array[:] = settings["factor"] = model.factor = value
        for jacobian in jacobians:
            assert np.diag(np.asarray(jacobian(x()))).tolist() == [value] * 3


def test_containers_that_are_closed_over() -> None:
    parameters = {"w": wg.asarray(np.full(3, 2.0)), "layers": [wg.asarray(np.ones(3))], "scale": 3.0}
    jacobian = wg.jacrev(lambda z: z * parameters["w"] * parameters["layers"][0] * parameters["scale"])
    for value in (6.0, 6.0, 6.0):
        assert np.diag(np.asarray(jacobian(x()))).tolist() == [value] * 3
    parameters["scale"] = 4.0
    assert np.diag(np.asarray(jacobian(x()))).tolist() == [8.0] * 3
    parameters["layers"][0] = wg.asarray(np.full(3, 5.0))
    assert np.diag(np.asarray(jacobian(x()))).tolist() == [40.0] * 3


def test_containers_that_the_function_changes() -> None:
    counts: dict[str, int] = {}
    seen: list[Any] = []

    def count(z: Any) -> Any:
        counts["calls"] = counts.get("calls", 0) + 1
        return z * z

    def note(z: Any) -> Any:
        (lambda: seen.append(1))()
        return z * z

    for f in (count, note):
        jacobian = wg.jacrev(f)
        for _ in range(4):
            jacobian(x())
    assert (counts, seen) == ({"calls": 4}, [1] * 4)


def test_random_numbers_are_drawn_in_every_call() -> None:
    drawn = wg.jacrev(lambda z: z * wg.rand(3, dtype=wg.float64))
    python = wg.jacrev(lambda z: z * random.random())
    numpy = wg.jacrev(lambda z: z * float(np.random.rand()))
    for jacobian in (drawn, python, numpy):
        assert not np.array_equal(np.asarray(jacobian(x())), np.asarray(jacobian(x())))


def test_partial_functions_and_transformed_ones() -> None:
    def f(k: float, z: Any) -> Any:
        return (z**3).sum() * k

    for k in (1.0, 2.0):
        g = functools.partial(f, k)
        for _ in range(2):
            np.testing.assert_allclose(np.asarray(wg.jacfwd(wg.grad(g))(x())), np.diag(6 * X * k))
            np.testing.assert_allclose(np.asarray(wg.hessian(wg.compile(g))(x())), np.diag(6 * X * k))


def test_errors_are_those_of_the_function() -> None:
    hessian = wg.hessian(lambda z: z * z)
    for _ in range(2):
        with pytest.raises(wg.GradientError, match=r"shape \(3,\), and only a scalar"):
            hessian(x())


def test_closed_over_tensors_are_not_kept_alive() -> None:
    def used() -> Any:
        w = wg.asarray(np.ones(3))
        jacobian = wg.jacrev(lambda z: z * w)
        for _ in range(3):
            jacobian(x())
        return weakref.ref(w)

    alive = used()
    gc.collect()
    assert alive() is None


def test_a_large_jacobian_of_a_closure_is_one_pass_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(x: Any) -> Any:
        raise AssertionError("one derivative after the other")

    monkeypatch.setattr("wengert.transforms.jacobian._basis", refuse)
    w = wg.ones((300, 2))
    for jacobian in (wg.jacobian, wg.jacfwd, wg.jacrev):
        assert jacobian(lambda x: wg.tanh(x @ w))(wg.zeros((300,))).shape == (2, 300)
