"""The functions and points of docs/kinks.md, by name: here, in PyTorch and in JAX."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

INF, NAN = np.inf, np.nan
PAGE = Path(__file__).parents[1] / "docs" / "kinks.md"


class Kink(NamedTuple):
    """One row: the function in terms of a library `m` (wengert, torch or jax.numpy as in `library`), and the point."""

    function: Callable[[Any, Any], Any]
    at: Any
    torch: Callable[[Any, Any], Any] | None = None  # where it is written differently
    jax: Callable[[Any, Any], Any] | None = None


def _nn(name: str) -> Callable[[Any, Any], Any]:
    return lambda m, x: getattr(m.nn.functional, name)(x)


def _jnn(name: str) -> Callable[[Any, Any], Any]:
    def call(m: Any, x: Any) -> Any:
        import jax

        return getattr(jax.nn, name)(x)

    return call


def _jax_segments(name: str) -> Callable[[Any, Any], Any]:
    def call(m: Any, x: Any) -> Any:
        import jax

        return getattr(jax.ops, name)(x, m.array([0, 0, 1]), num_segments=2) * 3.0

    return call


KINKS: dict[str, Kink] = {
    "max, two tie": Kink(lambda m, x: m.max(x), [1.0, 3.0, 3.0], lambda m, x: m.amax(x)),
    "min, two tie": Kink(lambda m, x: m.min(x), [1.0, 1.0, 3.0], lambda m, x: m.amin(x)),
    "max along an axis": Kink(lambda m, x: m.max(x, axis=0), [3.0, 3.0], lambda m, x: m.amax(x, 0)),
    "maximum, tie": Kink(lambda m, x: m.maximum(x, 0 * x + 2.0), [2.0]),
    "minimum, tie": Kink(lambda m, x: m.minimum(x, 0 * x + 2.0), [2.0]),
    "sort, two tie": Kink(lambda m, x: m.sort(x)[0] * 5, [2.0, 2.0], lambda m, x: m.sort(x)[0][0] * 5),
    "cummax, tie": Kink(
        lambda m, x: m.cummax(x, axis=0)[0][1] * 5,
        [2.0, 2.0],
        lambda m, x: m.cummax(x, 0)[0][1] * 5,
        lambda m, x: m.maximum.accumulate(x)[1] * 5,
    ),
    "median, all tie": Kink(lambda m, x: m.median(x), [2.0, 2.0, 2.0], lambda m, x: m.median(x)),
    "segment_max, tie": Kink(
        lambda m, x: m.segment_max(x, [0, 0, 1], num_segments=2) * 3.0,
        [2.0, 2.0, 1.0],
        lambda m, x: m.scatter_reduce(0 * x[:2].detach(), 0, m.tensor([0, 0, 1]), x, "amax", include_self=False) * 3.0,
        _jax_segments("segment_max"),
    ),
    "segment_min, tie": Kink(
        lambda m, x: m.segment_min(x, [0, 0, 1], num_segments=2) * 3.0,
        [2.0, 2.0, 1.0],
        lambda m, x: m.scatter_reduce(0 * x[:2].detach(), 0, m.tensor([0, 0, 1]), x, "amin", include_self=False) * 3.0,
        _jax_segments("segment_min"),
    ),
    "abs": Kink(lambda m, x: m.abs(x), [0.0]),
    "sign": Kink(lambda m, x: m.sign(x), [0.0]),
    "relu": Kink(lambda m, x: m.relu(x), [0.0], None, _jnn("relu")),
    "leaky_relu": Kink(lambda m, x: m.leaky_relu(x), [0.0], _nn("leaky_relu"), _jnn("leaky_relu")),
    "elu": Kink(lambda m, x: m.elu(x), [0.0], _nn("elu"), _jnn("elu")),
    "clip, at the bounds": Kink(lambda m, x: m.clip(x, -1.0, 1.0), [-1.0, 1.0]),
    "interp, at the points": Kink(
        lambda m, x: m.interp(x, m.asarray([0.0, 1.0, 3.0]), m.asarray([5.0, 7.0, 3.0])),
        [0.0, 1.0, 3.0],
    ),
    "relu6": Kink(lambda m, x: m.relu6(x), [0.0, 6.0], _nn("relu6"), _jnn("relu6")),
    "hard_tanh": Kink(lambda m, x: m.hard_tanh(x), [-1.0, 1.0], _nn("hardtanh"), _jnn("hard_tanh")),
    "hard_sigmoid": Kink(lambda m, x: m.hard_sigmoid(x), [-3.0, 3.0], _nn("hardsigmoid"), _jnn("hard_sigmoid")),
    "hard_swish": Kink(lambda m, x: m.hard_swish(x), [-3.0, 3.0], _nn("hardswish"), _jnn("hard_swish")),
    "hard_shrink": Kink(lambda m, x: m.hard_shrink(x), [0.5], _nn("hardshrink")),
    "soft_shrink": Kink(lambda m, x: m.soft_shrink(x), [0.5], _nn("softshrink")),
    "floor": Kink(lambda m, x: m.floor(x), [2.0]),
    "sqrt": Kink(lambda m, x: m.sqrt(x), [0.0]),
    "x ** 0": Kink(lambda m, x: x**0, [0.0, 2.0]),
    "x ** 2": Kink(lambda m, x: x**2, [0.0]),
    "0 ** y": Kink(
        lambda m, x: (0 * x) ** x, [2.0], lambda m, x: m.zeros_like(x) ** x, lambda m, x: m.zeros_like(x) ** x
    ),
    "0 ** y, y < 0": Kink(lambda m, x: m.zeros_like(x) ** x, [-1.0]),
    "0 ** y, y = 0": Kink(lambda m, x: m.zeros_like(x) ** x, [0.0]),
    "x ** 0.5": Kink(lambda m, x: x**0.5, [0.0]),
    "x ** 3, x < 0": Kink(lambda m, x: x**3.0, [-2.0]),
    "x ** 1.5, x < 0": Kink(lambda m, x: x**1.5, [-2.0]),
    "norm": Kink(lambda m, x: m.norm(x), [0.0, 0.0], lambda m, x: m.linalg.norm(x), lambda m, x: m.linalg.norm(x)),
    "hypot": Kink(lambda m, x: m.hypot(x, 0 * x), [0.0], lambda m, x: m.hypot(x, m.zeros_like(x))),
    "atan2": Kink(lambda m, x: m.atan2(x, m.zeros_like(x)), [0.0], None, lambda m, x: m.arctan2(x, m.zeros_like(x))),
    "logsumexp of −inf": Kink(
        lambda m, x: m.logsumexp(x, axis=0),
        [-INF, -INF],
        lambda m, x: m.logsumexp(x, 0),
        lambda m, x: __import__("jax").scipy.special.logsumexp(x),
    ),
    "logsumexp, one −inf": Kink(
        lambda m, x: m.logsumexp(x, axis=0),
        [-INF, 1.0],
        lambda m, x: m.logsumexp(x, 0),
        lambda m, x: __import__("jax").scipy.special.logsumexp(x),
    ),
    "softmax of −inf": Kink(
        lambda m, x: m.softmax(x)[0],
        [-INF, -INF],
        lambda m, x: m.softmax(x, 0)[0],
        lambda m, x: _jnn("softmax")(m, x)[0],
    ),
    "softmax, one −inf": Kink(
        lambda m, x: m.softmax(x)[1] * 2,
        [-INF, 1.0],
        lambda m, x: m.softmax(x, 0)[1] * 2,
        lambda m, x: _jnn("softmax")(m, x)[1] * 2,
    ),
    "where around NaN": Kink(
        lambda m, x: m.where(x > 0, m.sqrt(x), 1.0), [-1.0, 4.0], lambda m, x: m.where(x > 0, m.sqrt(x), m.ones_like(x))
    ),
    "where around log 0": Kink(
        lambda m, x: m.where(x > 0, m.log(x), 0.0), [0.0, 2.0], lambda m, x: m.where(x > 0, m.log(x), m.zeros_like(x))
    ),
    "prod, one zero": Kink(lambda m, x: m.prod(x), [0.0, 2.0, 3.0]),
    "prod, two zeros": Kink(lambda m, x: m.prod(x), [0.0, 0.0, 3.0]),
    "std of a constant": Kink(lambda m, x: m.std(x), [2.0, 2.0], lambda m, x: m.std(x, correction=0)),
    "xlogy(0, x)": Kink(
        lambda m, x: m.xlogy(m.zeros_like(x), x),
        [0.0, 2.0],
        None,
        lambda m, x: __import__("jax").scipy.special.xlogy(m.zeros_like(x), x),
    ),
    "xlogy(x, 2)": Kink(
        lambda m, x: m.xlogy(x, 0 * x + 2.0),
        [0.0],
        None,
        lambda m, x: __import__("jax").scipy.special.xlogy(x, 0 * x + 2.0),
    ),
}


class Row(NamedTuple):
    """One row of the page: what it says of value and derivative."""

    value: list[float]
    derivative: list[float]
    torch: str
    jax: str


def rows() -> dict[str, Row]:
    """The page's tables by name of the function."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) == 6 and cells[0] not in ("function", "---") and not cells[0].startswith("--"):
            found[cells[0].replace("`", "")] = Row(numbers(cells[2]), numbers(cells[3]), cells[4], cells[5])
    return found


def numbers(cell: str) -> list[float]:
    """Numbers as the page writes them: −, ∞ and fractions."""
    words = cell.replace("−", "-").replace("∞", "inf").split(",")
    return [_number(w.strip()) for w in words]


def _number(word: str) -> float:
    m = re.fullmatch(r"(-?\d+)/(\d+)", word)
    return float(m[1]) / float(m[2]) if m else float(word)
