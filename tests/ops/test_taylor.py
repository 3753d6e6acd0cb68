"""Taylor series of every op: by rules they are what derivatives of derivatives are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ops.sampling import TESTED_ELSEWHERE, array, cases, differentiable, make, outputs, tensor
from wengert.errors import ArgumentError
from wengert.registry.record import Op
from wengert.registry.samples import Sample
from wengert.transforms.functional import jvp
from wengert.transforms.taylor import taylor


def _smooth(op: Op, sample: Sample) -> bool:
    return differentiable(op, sample) and sample.second and op.name not in TESTED_ELSEWHERE


# Ops whose kernels have the derivatives by a parameter up to some order only; they say so beyond it.
LIMITED = frozenset({
    "gammainc", "gammaincc", "gammainc_by_a", "gammaincinv", "gammainccinv", "betainc", "betainc_by_ab", "betaincinv",
    "von_mises_cdf", "von_mises_icdf", "bessel_iv", "bessel_ive", "bessel_kv", "bessel_kve",
})  # fmt: skip
_THIRD = [c for c in cases(_smooth) if int(c.id.rpartition("-")[2]) in (1, 2, 3)]
_BEGINS_HIGH = frozenset({"gammainc_by_a", "betainc_by_ab"})  # some samples are of a high order themselves


def _nested(f: Callable[[Any], Any], path: list[list[Any]], order: int) -> list[list[Any]]:
    """The derivatives of f along the path, each by differentiating the one before: for every order, all outputs."""

    def along(t: Any) -> list[Any]:
        at = [sum((c * t**k / math.factorial(k) for k, c in enumerate(row[1:], 1)), row[0]) for row in path]
        return [f(at)]

    def derived(g: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def both(t: Any) -> Any:
            values, slopes = jvp(g, (t,), (tensor(np.ones(())),))
            return [*values, slopes[-1]]

        return both

    g: Callable[[Any], Any] = along
    for _ in range(order):
        g = derived(g)
    return g(tensor(np.zeros(())))  # type: ignore[no-any-return]


def _check(op: Op, sample: Sample, order: int) -> None:
    arrays = make(sample, "float64", op.name)
    moving = [k for k, a in enumerate(arrays) if a.dtype == np.float64]
    rng = np.random.default_rng(order)
    path = [
        [tensor(arrays[k]), *(tensor(0.1 * rng.normal(size=arrays[k].shape)) for _ in range(order))] for k in moving
    ]

    def f(xs: Any) -> Any:
        given = list(map(tensor, arrays))
        for k, x in zip(moving, xs):
            given[k] = x
        return [y for y in outputs(op, given, sample.attrs) if y.dtype.kind == "f"]

    y, derivatives = taylor(f, [row[0] for row in path], [[row[k] for row in path] for k in range(1, order + 1)])
    expected = _nested(f, path, order)
    for k, (got, wanted) in enumerate(zip([y, *derivatives], expected, strict=True)):
        for a, b in zip(got, wanted, strict=True):
            scale = np.abs(array(b)).max(initial=1.0)
            np.testing.assert_allclose(array(a), array(b), rtol=1e-7, atol=1e-9 * scale, err_msg=f"derivative {k}")


@pytest.mark.parametrize(("op", "sample"), [c for c in _THIRD if c.values[0].name not in _BEGINS_HIGH])
def test_third_order(op: Op, sample: Sample) -> None:
    _check(op, sample, 3)


@pytest.mark.parametrize(("op", "sample"), [c for c in cases(_smooth) if c.id.endswith("-0")])
def test_sixth_order(op: Op, sample: Sample) -> None:
    if op.name in LIMITED:
        with pytest.raises(ArgumentError, match="the order must be between"):
            _check(op, sample, 6)
        _check(op, sample, 3)
    else:
        _check(op, sample, 6)
