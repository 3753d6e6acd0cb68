"""One thread, two or four: the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ops.sampling import OPS, array, call, has_kind, make, tensor
from tests.tolerances import assert_same
from wengert import _core
from wengert.dtypes import as_dtype
from wengert.registry.record import Op
from wengert.registry.samples import Sample
from wengert.transforms.functional import vjp

ELEMENTS = 300_000
THREADS = (1, 2, 4)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = _core.num_threads()
    yield
    _core.set_num_threads(before)


def _enlarged(op: Op, sample: Sample) -> Sample | None:
    """The sample with every size but 1 multiplied, or None where that is not a valid call."""
    shapes = [a.shape for a in sample.inputs if a.shape] + [
        v for spec, v in zip(op.attrs, sample.attrs) if spec.name == "shape" and v
    ]
    if not shapes or any(0 in s for s in shapes) or any(spec.name == "strides" for spec in op.attrs):
        return None  # strides belong to sizes: larger places would overlap
    largest = max(shapes, key=lambda s: (int(np.prod(s)), len(s)))
    factor = max(2, round((ELEMENTS / np.prod(largest)) ** (1 / len(largest))))

    def scale(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(n if n == 1 else n * factor for n in shape)

    inputs = tuple(a._replace(shape=scale(a.shape)) for a in sample.inputs)
    if any(a.values is not None for a in inputs):
        return None
    attrs = tuple(scale(v) if spec.name in ("shape", "sizes") else v for spec, v in zip(op.attrs, sample.attrs))
    types = [(as_dtype(a.dtype).code, a.shape) for a in make(Sample(inputs, attrs), "float64", op.name)]
    try:
        _core.infer(op.name, types, attrs)
    except Exception:
        return None
    return Sample(inputs, attrs)


def _large() -> list[Any]:
    found = []
    for op in OPS.values():
        k, sample = next(((k, s) for k, s in enumerate(_enlarged(op, s) for s in op.samples) if s), (0, None))
        if sample is not None:
            found.append(pytest.param(op, sample, op.samples[k].gradients, id=op.name))
    return found


@pytest.mark.parametrize(("op", "sample", "gradients"), _large())
def test_threads_do_not_change_the_bits(op: Op, sample: Sample, gradients: bool) -> None:
    arrays = make(sample, "float32", op.name)
    tensors = [tensor(a) for a in arrays]
    results = []
    for n in THREADS:
        _core.set_num_threads(n)
        results.append(array(call(op, tensors, sample.attrs)).copy())
    for other in results[1:]:
        assert_same(results[0], other)
    if not (gradients and op.differentiable and has_kind(sample, "float")):
        return
    places = [k for k, a in enumerate(arrays) if as_dtype(a.dtype).is_floating]

    def f(*xs: Any) -> Any:
        given = list(tensors)
        for k, x in zip(places, xs):
            given[k] = x
        return call(op, given, sample.attrs)

    seed = np.random.default_rng(5).uniform(0.5, 1.5, results[0].shape).astype(np.float32)
    pulled = []
    for n in THREADS:
        _core.set_num_threads(n)
        _, pull = vjp(f, *(tensors[k] for k in places))
        pulled.append([array(g).copy() for g in pull(tensor(seed))])
    for other in pulled[1:]:
        for a, b in zip(pulled[0], other, strict=True):
            assert_same(a, b)


def test_larger_matrix_product_keeps_its_bits() -> None:
    rng = np.random.default_rng(0)
    a = tensor(rng.standard_normal((301, 407)).astype(np.float32))
    b = tensor(rng.standard_normal((407, 203)).astype(np.float32))
    results = []
    for n in THREADS:
        _core.set_num_threads(n)
        results.append(array(OPS["matmul"](a, b, 0, 0)).copy())
    for other in results[1:]:
        assert_same(results[0], other)
