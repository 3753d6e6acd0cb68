"""Rules of optimizers against the same written in NumPy: the step, the pure form, compiled, and after a round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import optim

SHAPES = [(3, 4), (5, 2), (2, 3, 2)]
STEPS = 30


def start() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=s) for s in SHAPES]


def gradient(p: Any, t: int) -> Any:
    """Of a function with a different landscape at every step."""
    return np.cos(p * (1 + t % 3)) + 0.1 * p


Rule = Callable[..., Any]  # (p, g, state, t from 1 on) → p, with what it keeps in the state


def nadam(lr: float, b1: float, b2: float, eps: float, decay: float, psi: float) -> Rule:
    def step(p: Any, g: Any, s: Any, t: int) -> Any:
        g = g + decay * p
        mu, after = (b1 * (1 - 0.5 * 0.96 ** (k * psi)) for k in (t, t + 1))
        s["product"] = s.get("product", 1.0) * mu
        s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
        s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
        scale = np.sqrt(s["v"] / (1 - b2**t)) + eps
        p = p - lr * (1 - mu) / (1 - s["product"]) * g / scale
        return p - lr * after / (1 - s["product"] * after) * s["m"] / scale

    return step


def radam(lr: float, b1: float, b2: float, eps: float, decay: float) -> Rule:
    def step(p: Any, g: Any, s: Any, t: int) -> Any:
        p = p * (1 - lr * decay)
        s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
        s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
        m, limit = s["m"] / (1 - b1**t), 2 / (1 - b2) - 1
        rho = limit - 2 * t * b2**t / (1 - b2**t)
        if rho <= 5:
            return p - lr * m
        r = np.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
        return p - lr * r * m * np.sqrt(1 - b2**t) / (np.sqrt(s["v"]) + eps)

    return step


def adamax(lr: float, b1: float, b2: float, eps: float, decay: float) -> Rule:
    def step(p: Any, g: Any, s: Any, t: int) -> Any:
        g = g + decay * p
        s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
        s["u"] = np.maximum(b2 * s.get("u", 0), np.abs(g) + eps)
        return p - lr / (1 - b1**t) * s["m"] / s["u"]

    return step


def adadelta(lr: float, rho: float, eps: float, decay: float) -> Rule:
    def step(p: Any, g: Any, s: Any, t: int) -> Any:
        g = g + decay * p
        s["v"] = rho * s.get("v", 0) + (1 - rho) * g * g
        d = g * np.sqrt(s.get("u", 0) + eps) / np.sqrt(s["v"] + eps)
        s["u"] = rho * s.get("u", 0) + (1 - rho) * d * d
        return p - lr * d

    return step


def rprop(lr: float, less: float, more: float, least: float, most: float) -> Rule:
    def step(p: Any, g: Any, s: Any, t: int) -> Any:
        agree = np.sign(g * s.get("g", np.zeros_like(g)))
        factor = np.where(agree > 0, more, np.where(agree < 0, less, 1.0))
        s["size"] = np.clip(s.get("size", np.full_like(p, lr)) * factor, least, most)
        s["g"] = np.where(agree < 0, 0.0, g)
        return p - np.sign(s["g"]) * s["size"]

    return step


def muon(lr: float, mu: float, decay: float) -> Rule:
    def step(p: Any, g: Any, s: Any, t: int) -> Any:
        s["m"] = mu * s.get("m", 0) + (1 - mu) * g
        direction = (1 - mu) * g + mu * s["m"]
        x = direction.reshape(len(p), -1)
        rows, columns = x.shape
        x = x.T if rows > columns else x
        x = x / np.linalg.norm(x)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        x = x.T if rows > columns else x
        return p * (1 - lr * decay) - lr * np.sqrt(max(1.0, rows / columns)) * x.reshape(p.shape)

    return step


def power(h: Any, exponent: float) -> Any:
    values, vectors = np.linalg.eigh(h)
    return vectors * values**exponent @ vectors.T


def shampoo(lr: float, mu: float, eps: float) -> Rule:
    def step(p: Any, g: Any, s: Any, t: int) -> Any:
        m = g.reshape(len(g), -1)
        s["l"] = s.get("l", 0) + m @ m.T
        s["r"] = s.get("r", 0) + m.T @ m
        left, right = (power(h + eps * np.eye(len(h)), -0.25) for h in (s["l"], s["r"]))
        s["b"] = mu * s.get("b", 0) + (left @ m @ right).reshape(p.shape)
        return p - lr * s["b"]

    return step


CASES: dict[str, tuple[Any, dict[str, Any], Rule]] = {
    "NAdam": (
        optim.NAdam,
        dict(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, momentum_decay=0.1),
        nadam(0.01, 0.8, 0.95, 1e-6, 0.1, 0.1),
    ),
    "RAdam": (
        optim.RAdam,
        dict(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, decoupled_weight_decay=True),
        radam(0.01, 0.8, 0.95, 1e-6, 0.1),
    ),
    "Adamax": (
        optim.Adamax,
        dict(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
        adamax(0.01, 0.8, 0.95, 1e-6, 0.1),
    ),
    "Adadelta": (
        optim.Adadelta,
        dict(lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1),
        adadelta(0.5, 0.8, 1e-4, 0.1),
    ),
    "Rprop": (
        optim.Rprop,
        dict(lr=0.02, etas=(0.4, 1.3), step_sizes=(1e-3, 0.1)),
        rprop(0.02, 0.4, 1.3, 1e-3, 0.1),
    ),
    "Muon": (optim.Muon, dict(lr=0.02, momentum=0.9, weight_decay=0.05), muon(0.02, 0.9, 0.05)),
    "Shampoo": (optim.Shampoo, dict(lr=0.05, momentum=0.5, eps=1e-3), shampoo(0.05, 0.5, 1e-3)),
}


def by_numpy(rule: Rule, steps: int = STEPS) -> list[Any]:
    params, states = start(), [{} for _ in SHAPES]
    for t in range(steps):
        params = [rule(p, gradient(p, t), s, t + 1) for p, s in zip(params, states)]
    return params


def close(ours: Any, theirs: Any) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def walk(optimizer: Any, params: Any, steps: range) -> None:
    for t in steps:
        for p in params:
            p.set_grad(gradient(p.numpy(), t))
        optimizer.step()


@pytest.mark.parametrize("name", CASES)
def test_the_step(name: str) -> None:
    kind, options, rule = CASES[name]
    params = [wg.Parameter(p) for p in start()]
    walk(kind(params, **options), params, range(STEPS))
    close([p.numpy() for p in params], by_numpy(rule))


@pytest.mark.parametrize("name", CASES)
def test_the_pure_form_and_the_compiled_step(name: str) -> None:
    kind, options, rule = CASES[name]
    params: Any = [wg.tensor(p) for p in start()]
    state = kind.init(params, **options)
    for t in range(STEPS):
        params, state = kind.update(params, [wg.asarray(gradient(p.numpy(), t)) for p in params], state, **options)
    close([p.numpy() for p in params], by_numpy(rule))

    trained = [wg.Parameter(p) for p in start()]
    optimizer = kind(trained, **options)

    @wg.compile
    def step(*gradients: Any) -> None:
        optimizer.apply_gradients(list(zip(trained, gradients)))

    for t in range(STEPS):
        step(*(wg.asarray(gradient(p.numpy(), t)) for p in trained))
    close([p.numpy() for p in trained], by_numpy(rule))


@pytest.mark.parametrize("name", CASES)
def test_states_go_on_where_they_were_taken(name: str) -> None:
    kind, options, rule = CASES[name]
    params = [wg.Parameter(p) for p in start()]
    first = kind(params, **options)
    walk(first, params, range(STEPS // 2))
    second = kind(params, **options)
    second.load_state_dict(first.state_dict())
    walk(second, params, range(STEPS // 2, STEPS))
    close([p.numpy() for p in params], by_numpy(rule))


@pytest.mark.parametrize("name", [n for n in CASES if n != "Muon"])
def test_vectors_and_numbers_are_trained_too(name: str) -> None:
    kind, options, _ = CASES[name]
    params = [wg.Parameter([3.0, -2.0, 1.0]), wg.Parameter(wg.tensor(2.0)), wg.Parameter(wg.ones((0,)))]
    optimizer = kind(params, **options)
    for _ in range(200):
        sum((p * p).sum() for p in params[:2]).backward()
        params[2].set_grad(wg.zeros((0,)))
        optimizer.step()
        optimizer.zero_grad()
    assert all(float(wg.max(wg.abs(p.detach()))) < 2.5 for p in params[:2])


def test_long_sides_are_not_preconditioned() -> None:
    g = np.random.default_rng(1).normal(size=(3, 5))
    p = wg.Parameter(np.zeros((3, 5)))
    opt = optim.Shampoo([p], lr=1.0, eps=1e-3, max_size=4)
    p.set_grad(g)
    opt.step()
    np.testing.assert_allclose(p.numpy(), -power(g @ g.T + 1e-3 * np.eye(3), -0.5) @ g, rtol=1e-8)
    assert opt.state_dict()["state"][0]["right"].shape == (0, 0)


def test_muon_makes_all_directions_equal() -> None:
    p = wg.Parameter(np.zeros((6, 4)))
    opt = optim.Muon([p], lr=1.0, weight_decay=0.0)
    p.set_grad(np.random.default_rng(0).normal(size=(6, 4)))
    opt.step()
    values = np.linalg.svd(p.numpy() / np.sqrt(1.5), compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.3
    with pytest.raises(wg.ArgumentError, match=r"got a parameter of shape \(4,\); train vectors by AdamW"):
        optim.Muon([wg.Parameter(wg.ones((4,)))])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: optim.NAdam(p, momentum_decay=-1.0), "momentum_decay must not be negative"),
        (lambda p: optim.RAdam(p, betas=(0.9, 1.0)), "betas must be two numbers"),
        (lambda p: optim.Adadelta(p, rho=1.5), r"rho must be in \[0, 1\)"),
        (lambda p: optim.Rprop(p, etas=(1.2, 0.5)), "one number below 1 and one above"),
        (lambda p: optim.Rprop(p, step_sizes=(1.0, 0.5)), "smallest, largest"),
        (lambda p: optim.Muon(p, adjust_lr="none"), "adjust_lr must be 'original'"),
        (lambda p: optim.Shampoo(p, eps=0.0), "eps must be positive"),
        (lambda p: optim.Adamax(p, eps=-1.0), "eps must not be negative"),
    ],
)
def test_options_are_checked(make: Any, message: str) -> None:
    with pytest.raises(wg.ArgumentError, match=message):
        make([wg.Parameter(wg.ones((2, 2)))])
