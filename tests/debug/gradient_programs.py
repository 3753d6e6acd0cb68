"""Programs for the gradient checker: wrong rules, kinks, and such as only look wrong. Each is (name, f, inputs)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg

Program = tuple[str, Callable[..., Any], tuple[Any, ...]]


def _vector(*numbers: float, dtype: Any = wg.float64) -> wg.Tensor:
    return wg.tensor(list(numbers), dtype=dtype)


def _ruled(forward: Callable[..., Any], vjp: Callable[..., Any]) -> Any:
    """An op with this rule, right or wrong: (y_bar, y, *inputs) → cotangents."""
    op = wg.custom_op(forward)
    op.defvjp(vjp)
    return op


def _pushed(forward: Callable[..., Any], jvp: Callable[..., Any]) -> Any:
    op = wg.custom_op(forward)
    op.defjvp(jvp)
    return op


def _in_network(op: Any) -> Callable[..., Any]:
    """The op in the middle of other ones."""
    return lambda w, x: wg.tanh(op(wg.tanh(x @ w)) * 0.5).mean()


class _ForgetsToSum(wg.CustomOp):
    """A bias whose gradient is that of one row only."""

    def forward(self, x: Any, b: Any) -> Any:
        return x + b

    def backward(self, y_bar: Any, x: Any, b: Any) -> Any:
        return y_bar, y_bar[0]


class _Transposed(wg.CustomOp):
    def forward(self, a: Any, b: Any) -> Any:
        return a @ b

    def backward(self, y_bar: Any, a: Any, b: Any) -> Any:
        return (a @ y_bar).mT, a.mT @ y_bar  # right only for square matrices that commute


_square = wg.randn(3, 3, dtype=wg.float64, generator=wg.Generator(1))
_other = wg.randn(3, 3, dtype=wg.float64, generator=wg.Generator(2))
_x = _vector(0.3, -1.2, 2.0, 0.7)
_single = _x.astype(wg.float32)
_w = wg.randn(4, 4, dtype=wg.float64, generator=wg.Generator(3))
_rows = wg.randn(5, 4, dtype=wg.float64, generator=wg.Generator(4))

_cube_factor = _ruled(lambda x: x * x * x, lambda b, y, x: 2 * x * x * b)
_tanh_of_output = _ruled(lambda x: wg.tanh(x), lambda b, y, x: (1 - y) * b)
_only_last = _ruled(
    lambda x: wg.exp(x), lambda b, y, x: b * y * wg.asarray([1.0] * (x.size - 1) + [1.001]).astype(x.dtype)
)

WRONG: list[Program] = [
    ("a factor of two thirds", _cube_factor, (_x,)),
    ("the same in float32", _cube_factor, (_single,)),
    ("the same in a network", _in_network(_cube_factor), (_w, _rows)),
    ("the same in a compiled function", wg.compile(lambda x: (_cube_factor(x) * 2.0).sum()), (_x,)),
    ("a wrong sign", _ruled(lambda x: wg.cos(x), lambda b, y, x: wg.sin(x) * b), (_x,)),
    ("a square that is missing", _tanh_of_output, (_x,)),
    ("the same in float32", _tanh_of_output, (_single,)),
    ("one element wrong by a thousandth", _only_last, (_x,)),
    ("one part in a thousand, in float32", _ruled(lambda x: x * x, lambda b, y, x: 2.02 * x * b), (_single,)),
    ("an identity for a gradient", _ruled(lambda x: wg.sigmoid(x), lambda b, y, x: b), (_x,)),
    ("zeros for a gradient", _ruled(lambda x: wg.sigmoid(x), lambda b, y, x: 0.0 * b), (_x,)),
    ("a broadcast that is not summed", _ForgetsToSum(), (_rows, _vector(1.0, 2.0, 3.0, 4.0))),
    ("a product transposed wrongly", _Transposed(), (_square, _other)),
    ("arguments exchanged", _ruled(lambda a, b: a / b, lambda g, y, a, b: (-g * a / b**2, g / b)), (_x, _x + 4.0)),
    ("a wrong tangent", _pushed(lambda x: wg.sqrt(x), lambda d, y, x: d / y), (abs(_x) + 0.5,)),
    ("a derivative by the wrong index", _ruled(lambda x: wg.flip(x) * 2.0, lambda b, y, x: 2.0 * b), (_x,)),
    ("a detached factor", lambda x: (x * x.detach()).sum(), (_x,)),
    ("a number that left for Python", lambda x: x.sum() * float(x[0].detach()), (_x,)),
    ("a conjugate that is missing", _ruled(lambda z: z * z, lambda b, y, z: 2 * z * b), (wg.tensor([1 + 2j, 0.5 - 1j]),)),
    ("a rule at a kink that is none of its sides", _ruled(lambda x: wg.relu(x), lambda b, y, x: b * 5.0), (_vector(0.0),)),
]  # fmt: skip

KINKS: list[Program] = [
    ("relu at zero", lambda x: wg.relu(x).sum(), (_vector(1.0, 0.0, -1.0),)),
    ("relu at zero, in float32", lambda x: wg.relu(x).sum(), (_vector(1.0, 0.0, -1.0, dtype=wg.float32),)),
    ("relu at zero, compiled", wg.compile(lambda x: wg.relu(x * 2.0).sum()), (_vector(1.0, 0.0, -1.0),)),
    ("abs", lambda x: abs(x - 2.0), (_x,)),
    ("abs in float32", lambda x: abs(x - 2.0), (_single,)),
    ("the larger of two equal ones", lambda a, b: wg.maximum(a, b).sum(), (_x, _x * 1.0)),
    ("the maximum of two equal elements", lambda x: x.max(), (_vector(1.0, 3.0, 3.0),)),
    ("clip at its edge", lambda x: wg.clip(x, -1.0, 2.0).sum(), (_x,)),
    ("the norm at zero", lambda x: wg.linalg.vector_norm(x), (_vector(0.0, 0.0),)),
    ("the root at zero", lambda x: wg.sqrt(x).sum(), (_vector(1.0, 0.0),)),
    ("a step", lambda x: wg.where(x >= 2.0, x * 3.0, x).sum(), (_x,)),
    ("a change of slope", lambda x: wg.where(x > 2.0, 2 * x - 2, x).sum(), (_x,)),
    ("leaky relu", lambda x: wg.leaky_relu(x).sum(), (_vector(0.0, 3.0),)),
    ("a hinge", lambda x: wg.relu(1.0 - x).sum(), (_vector(1.0, 3.0, -2.0),)),
    ("the median of equal ones", lambda x: wg.median(x), (_vector(1.0, 2.0, 2.0, 2.0, 7.0),)),
    ("a cube root at zero", lambda x: (wg.sign(x) * abs(x) ** (1 / 3)).sum(), (_vector(0.0, 1.0),)),
    ("sign at zero", lambda x: (wg.sign(x) * (x + 1.0)).sum(), (_vector(0.0, 1.0),)),
    ("the distance of equal points", lambda a, b: wg.sqrt(((a - b) ** 2).sum()), (_x, _x * 1.0)),
    ("hard tanh at its edge", lambda x: wg.hard_tanh(x).sum(), (_vector(1.0, 0.3),)),
    ("among many smooth elements", lambda x: abs(x).sum(), (wg.concat([wg.linspace(0.1, 3.0, 200), wg.zeros(1)]),)),
]

_noise = wg.Generator(0)
_counter = iter(range(10**9))


def _rounded_inside(x: Any) -> Any:
    return (x.astype(wg.float16).astype(x.dtype) ** 2).sum()


def _summed_badly(x: Any) -> Any:
    """Large numbers that cancel: half of the digits are lost."""
    return ((x + 1e6) - 1e6).sum()


def _iterated(x: Any) -> Any:
    for _ in range(30):
        x = wg.cos(x) + 0.1 * x
    return x.sum()


_random = random.Random(0)
_numbers = np.random.default_rng(0)


def _in_half(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: f(x.astype(wg.float16)).astype(x.dtype)


def _variance_by_squares(x: Any) -> Any:
    y = x + 1e8
    return (y**2).mean() - y.mean() ** 2


class _Growing:
    """State that is not reset."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return (x * x).sum() + 1e-6 * self.calls


# Values that are too inexact, or not the same twice, to tell whether a derivative is right.
NOISY: list[Program] = [
    ("noise that is drawn", lambda x: (x + 1e-3 * wg.randn(4, dtype=wg.float64, generator=_noise)).sum(), (_x,)),
    ("a counter", lambda x: x.sum() * (1 + 1e-9 * next(_counter)), (_x,)),
    ("a factor of Python's", lambda x: (x * _random.random()).sum(), (_x,)),
    ("a factor that is drawn now and then", lambda x: (x * x).sum() * (1.1 if _random.random() < 0.1 else 1.0), (_x,)),
    ("a mask of NumPy's", lambda x: (x * wg.asarray(_numbers.integers(0, 2, 4).astype(float))).sum(), (_x,)),
    ("dropout from a generator of its own", lambda x: wg.dropout(x * x, 0.5, generator=_noise).sum(), (_x,)),
    ("a random sign", lambda x: (x * _random.choice([-1.0, 1.0])).sum(), (_x,)),
    ("a mean of samples", lambda x: wg.tanh(x + 0.1 * wg.randn(9, 4, dtype=wg.float64, generator=_noise)).mean(0), (_x,)),
    ("results of another shape", lambda x: wg.concat([x] * _random.randint(1, 3)), (_x,)),
    ("state that grows", _Growing(), (_x,)),
    ("a clock", lambda x: x.sum() * (1 + 1e-3 * time.perf_counter()), (_x,)),
    ("nothing but rounding errors", lambda x: ((x + 1e15) - 1e15).sum(), (_x * 0.3,)),
    ("the same in float32", lambda x: ((x + 3e7) - 3e7).sum(), (_single,)),
    ("half precision inside", _rounded_inside, (_x,)),
    ("bfloat16 inside", lambda x: (x.astype(wg.bfloat16).astype(x.dtype) * 2.0).sum(), (_x,)),
    ("a function in half precision", _in_half(lambda x: wg.tanh(x * 1.3).sum()), (_x,)),
    ("a variance by squares", _variance_by_squares, (_x,)),
    ("the logarithm near one", lambda x: wg.log(1.0 + x * 1e-14).sum() * 1e14, (_x,)),
    ("a network that cancels in float32", lambda w, x: ((x @ w + 1e6) - 1e6).mean(),
     (_w.astype(wg.float32), _rows.astype(wg.float32))),
    ("the same in a compiled function", wg.compile(lambda x: ((x * 2.0 + 1e15) - 1e15).sum()), (_x * 0.3,)),
]  # fmt: skip

# With the verdict that is right.
OTHERS: list[tuple[str, Callable[..., Any], tuple[Any, ...], str]] = [
    ("large numbers that cancel", _summed_badly, (_x,), "ok"),
    ("half precision", lambda x: (x * wg.sin(x)).sum(), (_x.astype(wg.float16),), "ok"),
    ("softmax in float32", lambda x: wg.softmax(x)[0], (_single,), "ok"),
    ("a network in float32", lambda w, x: wg.tanh(x @ w).mean(), (_w.astype(wg.float32), _rows.astype(wg.float32)), "ok"),
    ("dropout from the default generator", lambda x: wg.dropout(x * x, 0.5).sum(), (_x,), "ok"),
    ("an iteration", _iterated, (_x,), "ok"),
    ("a cubic at zero", lambda x: (x**3).sum(), (_vector(0.0, 0.0),), "ok"),
    ("a smooth corner", lambda x: wg.sqrt(x * x + 1e-4).sum(), (_vector(0.0, 0.5),), "ok"),
    ("near a kink", lambda x: wg.relu(x).sum(), (_vector(1e-4, -1e-4, 1.0),), "ok"),
    ("piecewise constant", lambda x: wg.round(x * 10.0).sum() + x.sum() * 0, (_x + 0.013,), "ok"),
    ("large and small elements", lambda x: wg.log(x).sum(), (_vector(1e-8, 1.0, 1e6),), "ok"),
    ("complex", lambda z: (abs(z) ** 2 + (z * z).real).sum(), (wg.tensor([1 + 2j, 0.5 - 1j]),), "ok"),
    ("containers", lambda p: {"a": p["w"] @ p["b"], "n": [p["w"].sum()]}, ({"w": _w, "b": _x},), "ok"),
    ("many relus", lambda x: wg.relu(x).sum(), (wg.randn(1000, generator=wg.Generator(5)),), "ok"),
    ("a linear function", lambda x: x @ wg.asarray(np.arange(4.0)), (_x,), "ok"),
]  # fmt: skip
