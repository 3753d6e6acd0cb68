"""The examples learn: each reaches its stated measure, from three seeds, at reduced size."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import wengert as wg

pytest.importorskip("sklearn", reason="the examples learn from scikit-learn's data")
pytest.importorskip("rich", reason="the examples show their progress")

EXAMPLES = Path(__file__).parents[1] / "examples"
SEEDS = (0, 1, 2)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and typing look there
    spec.loader.exec_module(module)
    return module


def test_every_example_is_short_and_tested() -> None:
    source = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 150, path.name
        assert f'"{path.stem}"' in source, f"{path.name} has no test here"


@pytest.mark.parametrize("seed", SEEDS)
def test_fit(seed: int) -> None:
    found, error = load("fit").fit(seed=seed)
    np.testing.assert_allclose(found, [2.0, 0.3, 1.7, 0.4], rtol=0.1)
    assert error < 0.004  # the noise alone: 0.0025


@pytest.mark.parametrize("seed", SEEDS)
def test_digits_mlp(seed: int) -> None:
    accuracy, seconds = load("digits_mlp").train(epochs=15, seed=seed)
    assert accuracy >= 0.95
    assert seconds > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_digits_cnn(seed: int, tmp_path: Path) -> None:
    example = load("digits_cnn")
    history, true, predicted = example.train(epochs=6, seed=seed)
    assert history["accuracy"][-1] >= 0.96
    assert np.mean(true == predicted) == history["accuracy"][-1]
    pytest.importorskip("matplotlib", reason="pictures")
    example.draw(tmp_path / "demo" / "curves.png", history, true, predicted)
    assert (tmp_path / "demo" / "curves.png").stat().st_size > 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_char_transformer(seed: int) -> None:
    example = load("char_transformer")
    bits, net, alphabet = example.train(steps=300, batch=8, length=32, width=48, blocks=1, seed=seed)
    assert bits < 3.6  # single letters alone: 4.4
    assert len(example.write(net, alphabet, 5)) == 6


@pytest.mark.parametrize("seed", SEEDS)
def test_vae(seed: int) -> None:
    bound, _ = load("vae").train(epochs=15, seed=seed)
    assert bound < 27.0  # an autoencoder that ignores its input reaches 31.6


@pytest.mark.parametrize("seed", SEEDS)
def test_diffusion_with_adapters(seed: int) -> None:
    result = load("diffusion_lora").train(steps=1200, tuning=300, width=96, seed=seed)
    assert result["before"] < 0.45  # predicting nothing: 1
    assert result["after"] < 0.9 * result["before"]
    assert result["trained"] < 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_physics_informed(seed: int) -> None:
    example = load("physics_informed")
    assert example.error(example.train(steps=1200, seed=seed)) < 0.2  # all of 3,000 steps: 0.02; the zero function: 1


@pytest.mark.parametrize("seed", SEEDS)
def test_ode_parameters(seed: int) -> None:
    rates, error = load("ode_parameters").fit(seed)
    # The estimates by Carpenter (2018) from the same data, and about two of his standard deviations.
    assert rates["alpha"] == pytest.approx(0.55, abs=0.13)
    assert rates["gamma"] == pytest.approx(0.80, abs=0.2)
    assert error < 0.26


@pytest.mark.parametrize("seed", SEEDS)
def test_pendulum(seed: int, tmp_path: Path) -> None:
    example = load("pendulum")
    found, errors, times, seen = example.fit(seed)
    for name, truth in example.TRUTH.items():
        assert found[name] == pytest.approx(truth, abs=4.0 * errors[name])
        assert errors[name] < 0.02
    pytest.importorskip("matplotlib", reason="pictures")
    example.draw(tmp_path / "demo" / "pendulum.png", found, times, seen)
    assert (tmp_path / "demo" / "pendulum.png").stat().st_size > 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_penalty(seed: int) -> None:
    found, exact = load("gradient_penalty").train(steps=400, seed=seed)
    assert found == pytest.approx(exact, rel=0.12)


@pytest.mark.parametrize("seed", SEEDS)
def test_meta_learning(seed: int) -> None:
    before, after = load("meta_learning").train(rounds=300, batch=4, seed=seed)
    assert after < 0.6 * before


@pytest.mark.parametrize("seed", SEEDS)
def test_bundle_adjustment(seed: int) -> None:
    before, after = load("bundle_adjustment").solve(cameras=4, points=20, seed=seed)
    assert before > 10.0
    assert after < 0.6  # the noise is half a pixel


@pytest.mark.parametrize("seed", SEEDS)
def test_gaussian_mixture(seed: int) -> None:
    likelihood, right = load("gaussian_mixture").fit(seed=seed)
    assert likelihood > -3.4  # a single Gaussian: -3.8
    assert right > 0.95


@pytest.mark.parametrize("seed", SEEDS)
def test_hand_model(seed: int) -> None:
    mode, before, after = load("hand_model").fit(points=8, seed=seed)
    assert mode == "forward"  # few parameters, many outputs
    assert before > 1.0
    assert after < 0.025  # the noise is 0.02


def test_ode_sensitivities() -> None:
    example = load("ode_sensitivities")
    found = example.sensitivities()
    step = 1e-5
    for k in range(3):
        moved = [np.log([0.5, 0.15, 2.0]) + sign * step * np.eye(3)[k] for sign in (1, -1)]
        up, down = (example.sensitivities(*np.exp(q)) for q in moved)
        for name in ("curve", "peak"):
            expected = (up[name] - down[name]) / (2 * step)
            np.testing.assert_allclose(found[f"of_{name}"][..., k], expected, rtol=1e-3, atol=1e-3)
    assert found["peak"] >= found["curve"].max()
    np.testing.assert_allclose(found["peak"], found["curve"].max(), rtol=0.01)


@pytest.mark.parametrize("seed", SEEDS)
def test_bilevel(seed: int) -> None:
    example = load("bilevel")
    before, after, penalties = example.tune(steps=30, seed=seed)
    assert after < 0.95 * before
    assert penalties[:3].mean() < penalties[3:].mean()  # features that say something are penalised less
    bound, prices = wg.asarray(2.0, dtype=wg.float64), wg.asarray(np.array([1.0, 2.0, 4.0]))
    slope = wg.grad(lambda b: (prices * example.cheapest(b, prices)[0]).sum())(bound)
    assert float(slope) == pytest.approx(float(example.cheapest(bound, prices)[1]), rel=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_gaussian_process(seed: int) -> None:
    found, errors, ahead = load("gaussian_process").fit(seed=seed)
    assert found[3] == pytest.approx(1.0, abs=0.02)  # the period
    assert found[5] == pytest.approx(0.2, rel=0.35)  # the noise
    assert errors[3] < 0.02
    assert ahead < 0.5  # without the season: 0.7


@pytest.mark.parametrize("seed", SEEDS)
def test_uncertainty(seed: int) -> None:
    found = load("uncertainty").propagate(samples=4000, seed=seed)
    np.testing.assert_allclose(found["linear"], found["sampled"], rtol=0.2)
    np.testing.assert_allclose(found["indices"].sum(axis=1), 1.0, rtol=1e-12)
    assert found["indices"][0].argmax() == 0  # the radius of the borehole


@pytest.mark.parametrize("seed", SEEDS)
def test_laplace(seed: int) -> None:
    found = load("laplace").run(seed=seed)
    assert found["evidence"] >= found["evidence_at_one"]
    assert abs(found["far"] - 0.5) < abs(found["far_without"] - 0.5)
    assert found["near"] > 0.9


@pytest.mark.parametrize("seed", SEEDS)
def test_kmeans(seed: int) -> None:
    example, rng = load("kmeans"), np.random.default_rng(seed)
    points = np.concatenate([rng.normal(size=(40, 3)) + 4.0 * rng.normal(size=3) for _ in range(4)])
    centres = points[[0, 40, 80, 120]]
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    lloyd = np.stack([points[nearest == k].mean(axis=0) for k in range(4)])
    np.testing.assert_allclose(example.newton_step(wg.asarray(centres), wg.asarray(points)).numpy(), lloyd, rtol=1e-10)
    far = wg.asarray(np.concatenate([centres, np.full((1, 3), 1e3)]))  # nearest to no point
    np.testing.assert_array_equal(example.newton_step(far, wg.asarray(points))[4].numpy(), 1e3)
    _, costs = example.cluster(points, 4, seed=seed)
    assert len(costs) > 2 and costs == sorted(costs, reverse=True)


def test_pde_newton() -> None:
    example = load("pde_newton")
    u, norms, slope = example.solve(n=31)
    assert len(norms) <= 6 and norms[-1] < 1e-12  # quadratic convergence
    step = 1e-4
    up, down = (example.solve(n=31, strength=5.0 + sign * step)[0][15, 15] for sign in (1, -1))
    assert slope == pytest.approx((up - down) / (2 * step), rel=1e-6)
    np.testing.assert_allclose(u, u.T, rtol=1e-10)  # the problem is symmetric
