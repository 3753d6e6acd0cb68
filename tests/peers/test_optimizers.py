"""Every optimizer beside PyTorch's, on the same problem: the same weights after every step, in float64."""

from __future__ import annotations

from collections.abc import Iterator
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
    ("NAdam", dict(lr=0.02)),
    ("NAdam", dict(lr=0.005, betas=(0.8, 0.95), weight_decay=0.1, momentum_decay=0.1)),
    ("NAdam", dict(lr=0.02, weight_decay=0.3, decoupled_weight_decay=True, maximize=True)),
    ("RAdam", dict(lr=0.02)),
    ("RAdam", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)),
    ("RAdam", dict(lr=0.02, weight_decay=0.3, decoupled_weight_decay=True, maximize=True)),
    ("Adamax", dict(lr=0.02)),
    ("Adamax", dict(lr=0.02, betas=(0.8, 0.9), eps=1e-4, weight_decay=0.1, maximize=True)),
    ("Adadelta", dict(lr=1.0)),
    ("Adadelta", dict(lr=0.02, rho=0.8, eps=1e-3, weight_decay=0.1, maximize=True)),
    ("Rprop", dict(lr=0.01)),
    ("Rprop", dict(lr=0.05, etas=(0.4, 1.3), step_sizes=(1e-4, 0.5))),
    ("LBFGS", dict(lr=0.1, max_iter=3, history_size=4)),
    ("LBFGS", dict(lr=1.0, max_iter=4, history_size=5, line_search_fn="strong_wolfe")),
]


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    """PyTorch keeps numbers of its state in its default dtype, whatever the parameters are."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


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
    # Rprop begins with steps of this size: its state depends on it.
    state = kind.init(params, **(options if name == "Rprop" else fixed))
    gradient = wg.grad(lambda params: _loss(params, wg.sin))
    theirs = [torch.tensor(x, requires_grad=True) for x in _start()]
    for _ in range(20):
        params, state = kind.update(params, gradient(params), state, lr=options["lr"], **fixed)
    peer = _walk(getattr(torch.optim, name)(theirs, **options), theirs, torch.sin)[19]
    for a, b in zip(params, peer):
        np.testing.assert_allclose(a.numpy(), b, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    "options", [{}, dict(nesterov=False), dict(adjust_lr="match_rms_adamw", weight_decay=0.0)], ids=str
)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_muon(shape: tuple[int, int], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)  # in which PyTorch orthogonalises, to two digits
    start, target = np.random.default_rng(0).normal(size=(2, *shape))
    p, q = wg.Parameter(start), torch.tensor(start, requires_grad=True)
    theirs = {"adjust_lr_fn" if k == "adjust_lr" else k: v for k, v in options.items()}
    ours, peer = optim.Muon([p], lr=0.02, **options), torch.optim.Muon([q], lr=0.02, **theirs)
    for t in range(STEPS):
        p.set_grad(np.tanh(p.numpy() - target))
        q.grad = torch.tanh(q.detach() - torch.tensor(target))
        ours.step()
        peer.step()
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"step {t}")
