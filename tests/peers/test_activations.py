"""Activations beside PyTorch: values, both modes and second order, away from kinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
F = torch.nn.functional

RNG = np.random.default_rng(0)
X = RNG.uniform(-7.5, 7.5, (5, 6))
LARGE = np.array([-1e4, -90.0, -30.0, 30.0, 90.0, 1e4])

CASES: dict[str, tuple[Any, Any]] = {
    "relu": (wg.relu, F.relu),
    "leaky_relu": (lambda x: wg.leaky_relu(x, 0.2), lambda x: F.leaky_relu(x, 0.2)),
    "elu": (lambda x: wg.elu(x, 1.3), lambda x: F.elu(x, 1.3)),
    "celu": (lambda x: wg.celu(x, 2.0), lambda x: F.celu(x, 2.0)),  # 1/α is float32 in PyTorch: exact for powers of 2
    "selu": (wg.selu, F.selu),
    "gelu": (wg.gelu, F.gelu),
    "gelu tanh": (lambda x: wg.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "silu": (wg.silu, F.silu),
    "mish": (wg.mish, F.mish),
    "hard_swish": (wg.hard_swish, F.hardswish),
    "hard_sigmoid": (wg.hard_sigmoid, F.hardsigmoid),
    "hard_tanh": (lambda x: wg.hard_tanh(x, -2.0, 3.0), lambda x: F.hardtanh(x, -2.0, 3.0)),
    "relu6": (wg.relu6, F.relu6),
    "softplus": (wg.softplus, lambda x: F.softplus(x, threshold=500.0)),
    "sigmoid": (wg.sigmoid, torch.sigmoid),
    "tanh": (wg.tanh, torch.tanh),
    "log_sigmoid": (wg.log_sigmoid, F.logsigmoid),
    "softmax": (wg.softmax, lambda x: F.softmax(x, -1)),
    "softmax 0": (lambda x: wg.softmax(x, 0), lambda x: F.softmax(x, 0)),
    "log_softmax": (wg.log_softmax, lambda x: F.log_softmax(x, -1)),
    "logsumexp": (lambda x: wg.logsumexp(x, axis=-1), lambda x: torch.logsumexp(x, -1)),
    "softsign": (wg.softsign, F.softsign),
    "hard_shrink": (lambda x: wg.hard_shrink(x, 0.7), lambda x: F.hardshrink(x, 0.7)),
    "soft_shrink": (lambda x: wg.soft_shrink(x, 0.7), lambda x: F.softshrink(x, 0.7)),
    "threshold": (lambda x: wg.threshold(x, 0.7, -3.0), lambda x: F.threshold(x, 0.7, -3.0)),
    "glu": (wg.glu, F.glu),
    "glu 0": (lambda x: wg.glu(x, 0), lambda x: F.glu(x, 0)),
}

# PyTorch multiplies by 1/6 rounded to float32, and has no derivative of that.
LACKS = {"hard_sigmoid": ["vjp", "jvp", "second order"]}


def _shape(name: str) -> Any:
    return X[:4] if name == "glu 0" else X


@pytest.mark.parametrize("name", CASES)
def test_activation(name: str) -> None:
    ours, theirs = CASES[name]
    compare(ours, torch=theirs, arrays=[_shape(name)], lacks={"torch": LACKS.get(name, [])})


@pytest.mark.parametrize("name", [n for n in CASES if n != "glu 0"])
def test_large_arguments(name: str) -> None:
    ours, theirs = CASES[name]
    compare(ours, torch=theirs, arrays=[LARGE], lacks={"torch": ["jvp", "second order"]})


def test_prelu() -> None:
    compare(wg.prelu, torch=F.prelu, arrays=[X, RNG.uniform(0.1, 0.9, 6)])
    compare(wg.prelu, torch=F.prelu, arrays=[X, np.array([0.3])])
