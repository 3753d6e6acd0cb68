"""Derivatives of every op: forward, reverse and second order against finite differences, and against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import finite_differences as fd
from tests.ops.sampling import (
    Differentiable,
    array,
    cases,
    differentiable,
    dtypes_of,
    has_kind,
    has_numbers,
    make,
    tensor,
    typed_cases,
)
from tests.tolerances import AGREEMENT, FIRST_ORDER, NARROW_GRADIENT, SECOND_ORDER, assert_near
from wengert.compiling.compile import compile
from wengert.dtypes import float64
from wengert.errors import GradientError
from wengert.ops import OPS
from wengert.passes.callbacks import define_callback
from wengert.registry.record import Op
from wengert.registry.samples import Sample
from wengert.transforms.functional import jvp, vjp


def _tensors(arrays: Any) -> tuple[Any, ...]:
    return tuple(tensor(a) for a in arrays)


@pytest.mark.parametrize(("op", "sample", "dtype"), typed_cases(differentiable))
def test_first_order(op: Op, sample: Sample, dtype: str) -> None:
    f = Differentiable(op, sample, dtype)
    x_dots = fd.seeds_like(f.xs)
    y, y_dot = jvp(f, _tensors(f.xs), _tensors(x_dots))
    (y_bar,) = fd.seeds_like([array(y)], 1)
    _, pull = vjp(f, *_tensors(f.xs))
    x_bars = [array(g) for g in pull(tensor(y_bar))]

    expected = fd.directional(f.on_arrays, f.xs, x_dots)
    assert_near(array(y_dot), expected, FIRST_ORDER, "forward mode")
    numeric = fd.gradient(lambda *xs: fd.inner([y_bar], [f.on_arrays(*xs)]), f.xs)
    for k, (g, n) in enumerate(zip(x_bars, numeric)):
        assert_near(g, n, FIRST_ORDER, f"reverse mode, operand {k}")
    forward, reverse = fd.inner([y_bar], [array(y_dot)]), fd.inner(x_bars, x_dots)
    assert forward == pytest.approx(reverse, rel=AGREEMENT, abs=AGREEMENT)


@pytest.mark.parametrize(("op", "sample", "dtype"), typed_cases(differentiable))
def test_one_operand_at_a_time(op: Op, sample: Sample, dtype: str) -> None:
    """The other operands are constants: symbolic zeros, and narrowed programs."""
    f = Differentiable(op, sample, dtype)
    if len(f.xs) < 2:
        return
    (y_bar,) = fd.seeds_like([f.on_arrays(*f.xs)], 1)
    _, pull = vjp(f, *_tensors(f.xs))
    together = [array(g) for g in pull(tensor(y_bar))]
    for k, x in enumerate(f.xs):

        def alone(z: Any, k: int = k) -> Any:
            return f(*(z if j == k else tensor(a) for j, a in enumerate(f.xs)))

        _, pull_one = vjp(alone, tensor(x))
        g = array(pull_one(tensor(y_bar))[0])
        assert_near(g, together[k], AGREEMENT, f"operand {k} alone")
        (x_dot,) = fd.seeds_like([x], 2)
        _, y_dot = jvp(alone, (tensor(x),), (tensor(x_dot),))
        assert fd.inner([y_bar], [array(y_dot)]) == pytest.approx(fd.inner([g], [x_dot]), rel=AGREEMENT, abs=AGREEMENT)


def _same_operand(op: Op, sample: Sample) -> bool:
    same = len(set(sample.inputs)) < len(sample.inputs) or len({a.shape for a in sample.inputs}) == 1
    return differentiable(op, sample) and op.n_inputs == 2 and op.elementwise and same


@pytest.mark.parametrize(("op", "sample", "dtype"), typed_cases(_same_operand))
def test_the_same_tensor_twice(op: Op, sample: Sample, dtype: str) -> None:
    """f(x, x): both cotangents arrive at x."""
    x = make(sample, dtype, op.name)[0 if op.name == "pow" else 1]
    if op.name in ("maximum", "minimum", "remainder", "floor_divide", "copysign"):
        return  # a tie everywhere: tested with the ties

    def f(z: Any) -> Any:
        return op(z, z)

    (y_bar,) = fd.seeds_like([array(f(tensor(x)))], 1)
    _, pull = vjp(f, tensor(x))
    numeric = fd.gradient(lambda a: fd.inner([y_bar], [array(f(tensor(a)))]), [x])
    assert_near(array(pull(tensor(y_bar))[0]), numeric[0], FIRST_ORDER)


def _literal(op: Op, sample: Sample) -> bool:
    return differentiable(op, sample) and op.elementwise and op.n_inputs == 2 and sample is op.samples[0]


@pytest.mark.filterwarnings("ignore:.*does not depend on the argument")  # the gradients of linear ops are constants
@pytest.mark.parametrize(("op", "sample", "dtype"), typed_cases(_literal))
def test_literal_operands(op: Op, sample: Sample, dtype: str) -> None:
    """A Python number beside a tensor: in both modes, traced, and twice differentiated."""
    a, b = make(sample, dtype, op.name)
    for k, x in enumerate((a, b)):
        number = (a, b)[1 - k].flat[0].item()

        def f(z: Any, k: int = k, number: complex = number) -> Any:
            return op(z, number) if k == 0 else op(number, z)

        def filled(z: Any, k: int = k, number: complex = number) -> Any:
            full = tensor(np.full(a.shape, number))
            return op(z, full) if k == 0 else op(full, z)

        (bar,) = fd.seeds_like([array(f(tensor(x)))], 1)
        (v,) = fd.seeds_like([x], 2)
        for g in (f, compile(f)):
            assert_near(array(g(tensor(x))), array(filled(tensor(x))), AGREEMENT)
            for transform in (_pushed, _pulled, _pushed_gradient, _pulled_gradient):
                got, expected = (array(transform(h, x, bar, v)) for h in (g, filled))
                assert_near(got, expected, AGREEMENT, f"{transform.__name__}, operand {k}")


def _pushed(f: Any, x: Any, bar: Any, v: Any) -> Any:
    return jvp(f, (tensor(x),), (tensor(v),))[1]


def _pulled(f: Any, x: Any, bar: Any, v: Any) -> Any:
    return vjp(f, tensor(x))[1](tensor(bar))[0]


def _pushed_gradient(f: Any, x: Any, bar: Any, v: Any) -> Any:
    return jvp(lambda z: vjp(f, z)[1](tensor(bar))[0], (tensor(x),), (tensor(v),))[1]


def _pulled_gradient(f: Any, x: Any, bar: Any, v: Any) -> Any:
    return vjp(lambda z: vjp(f, z)[1](tensor(bar))[0], tensor(x))[1](tensor(v))[0]


def _second(op: Op, sample: Sample) -> bool:
    return differentiable(op, sample) and sample.second


@pytest.mark.filterwarnings("ignore:.*does not depend on the argument")  # the gradients of linear ops are constants
@pytest.mark.parametrize(("op", "sample", "dtype"), typed_cases(_second))
def test_second_order(op: Op, sample: Sample, dtype: str) -> None:
    """H v four ways: every nesting of the two modes, and differences of the gradient."""
    f = Differentiable(op, sample, dtype)
    xs, vs = _tensors(f.xs), fd.seeds_like(f.xs, 3)
    (bar,) = fd.seeds_like([f.on_arrays(*f.xs)], 1)
    y_bar, v = tensor(bar), _tensors(vs)

    def gradient(*zs: Any) -> tuple[Any, ...]:
        return vjp(f, *zs)[1](y_bar)

    def slope(*zs: Any) -> Any:
        return jvp(f, zs, v)[1]

    forward_over_reverse = [array(g) for g in jvp(gradient, xs, v)[1]]
    reverse_over_reverse = [array(g) for g in vjp(gradient, *xs)[1](v)]
    reverse_over_forward = [array(g) for g in vjp(slope, *xs)[1](y_bar)]
    ws = fd.seeds_like(f.xs, 4)
    forward_over_forward = fd.inner([bar], [array(jvp(slope, xs, _tensors(ws))[1])])

    def on_arrays(*zs: Any) -> Any:
        return np.concatenate([array(g).ravel() for g in gradient(*_tensors(zs))])

    numeric = fd.directional(on_arrays, f.xs, vs)
    flat = np.concatenate([g.ravel() for g in forward_over_reverse])
    assert_near(flat, numeric, SECOND_ORDER, "forward over reverse")
    for a, b, c in zip(forward_over_reverse, reverse_over_reverse, reverse_over_forward):
        assert_near(b, a, AGREEMENT, "reverse over reverse")
        assert_near(c, a, AGREEMENT, "reverse over forward")
    assert forward_over_forward == pytest.approx(fd.inner(ws, forward_over_reverse), rel=AGREEMENT, abs=AGREEMENT)


@pytest.mark.parametrize(("op", "sample"), cases(differentiable))
def test_narrow_dtypes(op: Op, sample: Sample) -> None:
    """Cotangents have the dtype of their operand, and the size that they have in float64."""
    wide = Differentiable(op, sample)
    (bar,) = fd.seeds_like([wide.on_arrays(*wide.xs)], 1)
    for dtype, tolerance in NARROW_GRADIENT.items():
        if dtype not in dtypes_of(sample) and has_kind(sample, "float"):
            continue
        f = Differentiable(op, sample, dtype)
        y, pull = vjp(f, *_tensors(f.xs))
        narrow = pull(tensor(bar.astype(array(y).dtype)))
        exact = vjp(wide, *_tensors([fd.wide(x) for x in f.xs]))[1](tensor(bar))
        for g, e, x in zip(narrow, exact, f.xs):
            assert g.dtype == x.dtype, f"a cotangent of {g.dtype} for an operand of {x.dtype}"
            assert_near(array(g), array(e), tolerance, dtype)


def test_every_op_has_a_rule_or_says_zero() -> None:
    assert not [op.name for op in OPS.values() if op.differentiable and op.n_inputs and op.jvp == "undefined"]


def test_an_undefined_derivative_raises_and_names_the_op() -> None:
    op = define_callback("mystery", 1, [(float64.code, (2,))], lambda x: [x], jvp="undefined")
    x = tensor(np.ones(2))
    with pytest.raises(GradientError, match="mystery"):
        jvp(op, (x,), (x,))
    with pytest.raises(GradientError, match="mystery"):
        vjp(op, x)[1](x)


def _zero(op: Op, sample: Sample) -> bool:
    return op.differentiable and op.jvp == "zero" and has_numbers(sample)


@pytest.mark.parametrize(("op", "sample"), cases(_zero))
def test_zero_derivatives_are_zeros(op: Op, sample: Sample) -> None:
    f = Differentiable(op, sample)
    y, pull = vjp(f, *_tensors(f.xs))
    for g, x in zip(pull(tensor(np.ones(y.shape))), f.xs):
        np.testing.assert_array_equal(array(g), np.zeros(x.shape))


# ------------------------------------------------------------------------------------------- corners of the rules


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_ties_share_evenly(name: str) -> None:
    x = tensor(np.array([1.0, 1.0, 2.0]))
    y = tensor(np.array([1.0, 0.0, 3.0]))
    _, pull = vjp(OPS[name], x, y)
    a, b = (array(g) for g in pull(tensor(np.array([2.0, 4.0, 8.0]))))
    np.testing.assert_array_equal(a + b, [2.0, 4.0, 8.0])
    assert a[0] == b[0] == 1.0


@pytest.mark.parametrize("name", ["max", "min"])
def test_reduction_ties_share_evenly(name: str) -> None:
    x = tensor(np.array([[3.0, 3.0, 3.0, 3.0], [1.0, 5.0, 1.0, 5.0]]))
    _, pull = vjp(lambda z: OPS[name](z, (1,), 0), x)
    g = array(pull(tensor(np.array([4.0, 2.0])))[0])
    np.testing.assert_array_equal(g[0], np.ones(4))
    np.testing.assert_array_equal(g[1], [0.0, 1.0, 0.0, 1.0] if name == "max" else [1.0, 0.0, 1.0, 0.0])


def test_pow_corners() -> None:
    a = np.array([0.0, 0.0, 0.0, 0.0, -2.0, -2.0, 2.0])
    b = np.array([0.0, 1.0, 2.0, 0.5, 3.0, 2.0, 0.0])
    _, pull = vjp(lambda x: OPS["pow"](x, tensor(b)), tensor(a))
    g = array(pull(tensor(np.ones(7)))[0])
    np.testing.assert_allclose(g, [0.0, 1.0, 0.0, np.inf, 12.0, -4.0, 0.0])
    _, pull = vjp(lambda e: OPS["pow"](tensor(np.array([0.0, 2.0])), e), tensor(np.array([2.0, 0.0])))
    np.testing.assert_allclose(array(pull(tensor(np.ones(2)))[0]), [0.0, np.log(2.0)])


def test_strong_zero() -> None:
    """An infinite slope in a branch that was not taken does not matter."""
    x = tensor(np.array([0.0, 4.0]))

    def f(z: Any) -> Any:
        return OPS["where"](z > 0, OPS["sqrt"](z), 1.0)

    _, pull = vjp(f, x)
    np.testing.assert_array_equal(array(pull(tensor(np.array([1.0, 2.0])))[0]), [0.0, 0.5])
    _, y_dot = jvp(f, (x,), (tensor(np.array([1.0, 1.0])),))
    np.testing.assert_array_equal(array(y_dot), [0.0, 0.25])


def test_extreme_slopes_are_finite() -> None:
    """Where the function is flat, its derivative is 0 and not NaN."""
    x = tensor(np.array([-1e4, -800.0, 0.0, 800.0, 1e4]))
    for name in ("tanh", "sigmoid", "erf", "erfc", "relu", "atan"):
        _, pull = vjp(OPS[name], x)
        assert np.isfinite(array(pull(tensor(np.ones(5)))[0])).all(), name
