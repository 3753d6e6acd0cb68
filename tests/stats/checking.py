"""Derivatives of functions of arrays in float64: forward mode, reverse mode and second order beside finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg
from tests import finite_differences as fd
from tests.tolerances import AGREEMENT, FIRST_ORDER, SECOND_ORDER, assert_near


def check_derivatives(f: Callable[..., Any], *arrays: Any, second: bool = True) -> None:
    """Assert that f's JVP, its VJP and the JVP of its VJP are right at these arrays."""
    xs = [np.asarray(a, np.float64) for a in arrays]
    tensors = tuple(wg.asarray(x) for x in xs)
    x_dots = fd.seeds_like(xs, 1)
    dots = tuple(wg.asarray(d) for d in x_dots)

    def numbers(*at: Any) -> Any:
        return f(*(wg.asarray(np.asarray(x)) for x in at)).numpy()

    y, y_dot = wg.jvp(f, tensors, dots)
    assert_near(y_dot.numpy(), fd.directional(numbers, xs, x_dots), FIRST_ORDER, "forward mode")
    (y_bar,) = fd.seeds_like([y.numpy()], 2)

    def pulled(*at: Any) -> tuple[Any, ...]:
        return wg.vjp(f, *at)[1](wg.asarray(y_bar))

    x_bars = [g.numpy() for g in pulled(*tensors)]
    assert_near(fd.inner(x_bars, x_dots), fd.inner([y_bar], [y_dot.numpy()]), AGREEMENT, "both modes")
    if second:
        slopes = wg.jvp(pulled, tensors, dots)[1]
        for k, slope in enumerate(slopes):

            def gradient(*at: Any, k: int = k) -> Any:
                return pulled(*(wg.asarray(np.asarray(x)) for x in at))[k].numpy()

            assert_near(slope.numpy(), fd.directional(gradient, xs, x_dots), SECOND_ORDER, f"second order, operand {k}")
