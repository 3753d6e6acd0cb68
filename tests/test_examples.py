"""The examples learn: each reaches its stated measure, from three seeds, at reduced size."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

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
    assert load("physics_informed").train(steps=1200, seed=seed) < 0.2  # all of 3,000 steps: 0.02; the zero function: 1


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
