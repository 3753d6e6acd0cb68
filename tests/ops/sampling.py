"""Every op x sample of the registry, as arrays and calls."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests import finite_differences as fd
from wengert import _core
from wengert.dtypes import ALL, DType, as_dtype
from wengert.ops import OPS
from wengert.registry.record import Op
from wengert.registry.samples import Array, Sample
from wengert.tensors.conversion import asarray

FLOATS = ("float64", "float32", "float16", "bfloat16")
COMPLEXES = ("complex128", "complex64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

# Ops whose values cannot be checked against a NumPy function, and what checks them instead.
WITHOUT_REFERENCE = {
    "cast": "its reference is astype, tested for every pair of dtypes in test_casts.py",
    "svd": "the signs of its vectors are free: what the factors multiply to is tested in tests/linalg",
    "eigh": "the signs of its vectors are free: what the factors multiply to is tested in tests/linalg",
    "eig": "the phases of its vectors are free: what the factors multiply to is tested in tests/linalg",
    "random_uniform": "random: distribution and reproducibility are tested in test_random.py",
    "random_normal": "random: distribution and reproducibility are tested in test_random.py",
    "random_integers": "random: distribution and reproducibility are tested in test_random.py",
    **dict.fromkeys(
        [f"random_{n}" for n in ("gamma", "von_mises", "poisson", "binomial", "multinomial", "categorical")],
        "random: distribution and reproducibility are tested in test_distributions.py",
    ),
}


# Ops whose derivatives are not those of their operands as they stand, and what checks them instead.
TESTED_ELSEWHERE = {
    "lu_solve": "its factors are those of its operand a: solve is tested in tests/linalg",
    "undefined_tangent": "there is none: svd and qr are tested in tests/linalg",
    "undefined_cotangent": "there is none: svd and qr are tested in tests/linalg",
    "attention_tangent": "its o and lse are those of its other operands: attention is tested to second order",
    "attention_cotangent": "its o and lse are those of its other operands: attention is tested to second order",
    "cross_entropy_tangent": "its numbers of rows follow from x: cross_entropy is tested to second order",
    "cross_entropy_cotangent": "its numbers of rows follow from x: cross_entropy is tested to second order",
    "replace_value": "its derivative is that of another value: tests/methods/test_in_place_no_grad.py",
    "pinv": "at constant rank, and not by its cutoff: tested in tests/linalg",
    "eig": "vectors are defined up to phases: invariants are tested in tests/linalg",
    "random_gamma": "the derivative keeps the probability, not the random words: tested in test_distributions.py",
    "random_von_mises": "samples keep their probability: tested in tests/stats",
}


def cases(keep: Callable[[Op, Sample], bool] = lambda op, sample: True) -> list[Any]:
    """pytest parameters (op, sample) of all that `keep` wants."""
    return [
        pytest.param(op, sample, id=f"{op.name}-{k}")
        for op in OPS.values()
        for k, sample in enumerate(op.samples)
        if keep(op, sample)
    ]


def typed_cases(keep: Callable[[Op, Sample], bool]) -> list[Any]:
    """pytest parameters (op, sample, dtype): every case in float64, and in complex128 where the op takes it."""
    return [
        pytest.param(*case.values, dtype, id=f"{case.id}-{dtype}")
        for case in cases(keep)
        for dtype in ("float64", "complex128")
        if dtype == "float64" or takes_complex(*case.values)
    ]


def takes_complex(op: Op, sample: Sample) -> bool:
    """Whether the sample's real numbers may be complex: asked of the core."""
    finite = all(np.isfinite(a.values).all() for a in sample.inputs if a.values is not None)
    if sample.phases or not (has_kind(sample, "float") and finite):
        return False
    types = [(as_dtype(a.dtype).code, a.shape) for a in make(sample, "complex128")]
    try:
        _core.infer(op.name, types, sample.attrs)
    except TypeError:
        return False
    return True


def has_numbers(sample: Sample) -> bool:
    """Whether an input is real or complex."""
    return has_kind(sample, "float") or has_kind(sample, "complex")


def has_kind(sample: Sample, kind: str) -> bool:
    """Whether an input is of this kind: float, complex, int, bool, index."""
    return any(kind_of(a) == kind for a in sample.inputs)


def kind_of(a: Array) -> str:
    """What the array holds; literal values say it themselves."""
    if a.values is None:
        return a.kind
    if all(isinstance(v, bool) for v in a.values) and a.values:
        return "bool"
    return "index" if all(isinstance(v, int) for v in a.values) else "float"


def dtypes_of(sample: Sample) -> tuple[str, ...]:
    """The dtypes in which the sample makes sense."""
    if has_kind(sample, "complex"):
        return COMPLEXES
    if any(a.form for a in sample.inputs):
        return FLOATS[:2]  # LAPACK has no half precision
    if has_kind(sample, "float"):
        return FLOATS
    return INTEGERS if has_kind(sample, "int") else ("",)


def all_dtypes_of(op: Op, sample: Sample) -> tuple[str, ...]:
    """The dtypes in which the sample makes sense, and the complex ones if the op takes them."""
    return (*dtypes_of(sample), *(COMPLEXES if takes_complex(op, sample) else ()))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of this name."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def make(sample: Sample, dtype: str = "float64", name: str = "", extra: int = 0) -> list[np.ndarray[Any, Any]]:
    """The sample's arrays, the same in every run; `dtype` is that of its floating (or integer) ones."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), extra])
    return [_array(a, rng, dtype) for a in sample.inputs]


def _array(a: Array, rng: np.random.Generator, dtype: str) -> np.ndarray[Any, Any]:
    kind = kind_of(a)
    dtype = "float32" if a.wide and dtype in ("float16", "bfloat16") else dtype
    if a.values is not None:
        wanted = {"float": dtype, "index": "int64", "bool": "bool"}[kind]
        with np.errstate(over="ignore", invalid="ignore"):
            turned = np.array(a.values) * ((1 + 0.3j) if wanted in COMPLEXES else 1)
            return turned.astype(numpy_dtype(wanted)).reshape(a.shape)
    if kind == "bool":
        return rng.random(a.shape) < 0.5
    if kind == "index":
        return rng.integers(int(a.low), int(a.high), a.shape)
    if kind == "pivot":
        return np.array([rng.integers(i, a.shape[-1]) + 1 for i in range(a.shape[-1])], np.int32)
    if kind == "int":
        low = 0 if dtype.startswith("u") else int(a.low)
        return rng.integers(low, int(a.high), a.shape).astype(dtype if dtype in INTEGERS else "int64")
    x = rng.uniform(a.low, a.high, a.shape)
    if a.gap:
        x = np.where(np.abs(x) < a.gap, np.where(x < 0, x - a.gap, x + a.gap), x)
    if kind == "complex":
        x = x + 1j * rng.uniform(a.low, a.high, a.shape)
        dtype = {"float64": "complex128", "complex128": "complex128"}.get(dtype, "complex64")
    elif dtype in COMPLEXES:
        x = x + 1j * rng.uniform(-0.45, 0.45, a.shape)  # no jump of `round` on the way
    return np.asarray(_formed(x, a.form)).astype(numpy_dtype(dtype))


def _formed(x: Any, form: str) -> Any:
    if form == "spd":
        return x @ np.conj(np.swapaxes(x, -1, -2)) / x.shape[-1] + np.eye(x.shape[-1])
    if form == "spaced":
        return x / 4 + np.eye(*x.shape[-2:]) * (1.5 * np.arange(1, x.shape[-1] + 1))
    if form == "triangular":
        return x / x.shape[-1] + 2 * np.eye(x.shape[-1])
    return x + 2 * np.flip(np.eye(*x.shape[-2:]), -1) if form == "regular" else x


def tensor(a: Any) -> _core.Tensor:
    """A tensor that shares the array where it can."""
    return asarray(np.asarray(a))


def array(t: Any) -> np.ndarray[Any, Any]:
    """The tensor's numbers."""
    a = np.asarray(t)
    if t.dtype.name == "bfloat16" and a.dtype != ml_dtypes.bfloat16:
        a = a.view(ml_dtypes.bfloat16)
    return a


def outputs(op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """All outputs of the op."""
    made = op(list(tensors), *attrs) if op.n_inputs < 0 else op(*tensors, *attrs)
    return (made,) if op.n_outputs == 1 else tuple(made)


def call(op: Op, tensors: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """The op on tensors and attributes. Several outputs come as one vector, so that every test sees them all."""
    made = outputs(op, tensors, attrs)
    if len(made) == 1:
        return made[0]
    code = made[0].dtype.code
    for y in made:
        code = _core.promote(code, y.dtype.code)
    return OPS["concat"]([OPS["cast"](OPS["reshape"](y, (y.size,)), code) for y in made], 0)


def evaluate(op: Op, arrays: Sequence[Any], attrs: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """The op on arrays."""
    return array(call(op, [tensor(a) for a in arrays], attrs))


def references(op: Op, arrays: Sequence[Any], attrs: tuple[Any, ...]) -> tuple[np.ndarray[Any, Any], ...]:
    """The reference on arrays: floating ones in float64, so that it is exact to the eyes of the narrower types."""
    assert op.reference is not None
    exact = op.name == "nextafter"  # about the last bit of its own type
    wide = [fd.wide(a) if not exact and as_dtype(a.dtype).is_inexact else a for a in arrays]
    with np.errstate(all="ignore"):
        made = op.reference(*wide, *attrs)
    return (np.asarray(made),) if op.n_outputs == 1 else tuple(map(np.asarray, made))


def reference(op: Op, arrays: Sequence[Any], attrs: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """The same, of several outputs as one vector."""
    made = references(op, arrays, attrs)
    return made[0] if len(made) == 1 else np.concatenate([np.ravel(y) for y in made])


class Differentiable:
    """An op at a sample as a function of its floating and complex inputs alone."""

    def __init__(self, op: Op, sample: Sample, dtype: str = "float64") -> None:
        self.op, self.attrs = op, sample.attrs
        self.inputs = make(sample, dtype, op.name)
        self.places = [k for k, a in enumerate(self.inputs) if as_dtype(a.dtype).is_inexact]
        self.xs = [self.inputs[k] for k in self.places]

    def __call__(self, *xs: Any) -> Any:
        """On tensors."""
        given: list[Any] = [tensor(a) for a in self.inputs]
        for k, x in zip(self.places, xs):
            given[k] = x
        return call(self.op, given, self.attrs)

    def on_arrays(self, *xs: Any) -> np.ndarray[Any, Any]:
        """On arrays: what finite differences evaluate."""
        return array(self(*(tensor(x) for x in xs)))


def differentiable(op: Op, sample: Sample) -> bool:
    """Whether the derivatives of this sample are to be checked."""
    return op.differentiable and sample.gradients and has_numbers(sample)


def supports(op: Op, dtype: DType) -> bool:
    """Whether an elementwise op takes this dtype."""
    try:
        _core.elementwise_dtypes(op.name, dtype.code)
    except TypeError:
        return False
    return True


__all__ = ["ALL", "OPS"]
