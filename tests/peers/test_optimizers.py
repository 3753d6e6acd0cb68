"""Every optimizer beside PyTorch's, on the same problem: the same weights after every step, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import optim

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")

STEPS, TOLERANCE = 100, 1e-6

CASES = [
    ("SGD", dict(lr=0.01)),
    ("SGD", dict(lr=1e-4, weight_decay=0.1, maximize=True)),
    ("SGD", dict(lr=0.01, momentum=0.9)),
    ("SGD", dict(lr=0.01, momentum=0.9, dampening=0.3, weight_decay=0.05)),
    ("SGD", dict(lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.05)),
    ("Adam", dict(lr=0.02)),
    ("Adam", dict(lr=0.02, betas=(0.8, 0.9), eps=1e-4, weight_decay=0.1, amsgrad=True)),
    ("Adam", dict(lr=0.02, maximize=True)),
    ("AdamW", dict(lr=0.02)),
    ("AdamW", dict(lr=0.02, weight_decay=0.3, amsgrad=True)),
    ("RMSprop", dict(lr=0.002)),
    ("RMSprop", dict(lr=0.01, alpha=0.9, momentum=0.9, weight_decay=0.1)),
    ("RMSprop", dict(lr=0.002, centered=True)),
    ("RMSprop", dict(lr=0.005, centered=True, momentum=0.8, maximize=True)),
    ("Adagrad", dict(lr=0.02)),
    ("Adagrad", dict(lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5)),
    ("Adafactor", dict(lr=0.05)),
    ("Adafactor", dict(lr=0.05, beta2_decay=-0.6, eps=(1e-8, 1e-2), d=1.5, weight_decay=0.1)),
    ("LBFGS", dict(lr=0.1, max_iter=3, history_size=4)),
    ("LBFGS", dict(lr=1.0, max_iter=4, history_size=5, line_search_fn="strong_wolfe")),
]


def _start() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=s) for s in [(4, 3), (3,), (2, 4, 3), ()]]


def _loss(params: Any, sin: Any) -> Any:
    """Bounded, not convex, and it joins all parameters."""
    w, b, t, s = params
    h = sin(w + b)
    return (h * h * t * s).sum() + 0.1 * ((t * t * t * t).sum() + s * s * s * s + (w * w).sum()) + (b * b).sum() * s * s


def _walk(optimizer: Any, params: Any, sin: Any) -> list[Any]:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = _loss(params, sin)
        loss.backward()
        return loss

    trace = []
    for _ in range(STEPS):
        if type(optimizer).__name__ == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        trace.append([np.array(p.detach().numpy()) for p in params])
    return trace


@pytest.mark.parametrize(("name", "options"), CASES)
def test_trajectory(name: str, options: dict[str, Any]) -> None:
    ours = [wg.Parameter(wg.tensor(x)) for x in _start()]
    theirs = [torch.tensor(x, requires_grad=True) for x in _start()]
    mine = _walk(getattr(optim, name)(ours, **options), ours, wg.sin)
    peer = _walk(getattr(torch.optim, name)(theirs, **options), theirs, torch.sin)
    for t, (a, b) in enumerate(zip(mine, peer)):
        for x, y in zip(a, b):
            np.testing.assert_allclose(x, y, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"step {t}")
    assert max(np.abs(x - s).max() for x, s in zip(mine[-1], _start())) > 0.01  # it went somewhere


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c[0] != "LBFGS"])
def test_pure_form_follows_too(name: str, options: dict[str, Any]) -> None:
    kind = getattr(optim, name)
    params: Any = tuple(wg.tensor(x) for x in _start())
    fixed = {k: v for k, v in options.items() if k != "lr"}
    state, gradient = kind.init(params, **fixed), wg.grad(lambda params: _loss(params, wg.sin))
    theirs = [torch.tensor(x, requires_grad=True) for x in _start()]
    for _ in range(20):
        params, state = kind.update(params, gradient(params), state, lr=options["lr"], **fixed)
    peer = _walk(getattr(torch.optim, name)(theirs, **options), theirs, torch.sin)[19]
    for a, b in zip(params, peer):
        np.testing.assert_allclose(a.numpy(), b, rtol=TOLERANCE, atol=TOLERANCE)
