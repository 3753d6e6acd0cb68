"""Pictures of examples that draw none themselves, from what they compute: `python -m tools.site.gallery` writes them."""

from __future__ import annotations

import importlib.util
import types
from collections.abc import Callable

import numpy as np

from tools.site.curves import draw
from tools.site.links import ROOT


def _load(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fit() -> str:
    """The oscillation that was found, and the true one."""
    example = _load("fit")
    t = np.linspace(0.0, 10.0, 201)
    curve = lambda a, decay, frequency, phase: a * np.exp(-decay * t) * np.sin(frequency * t + phase)
    return draw({"found": (t, curve(*example.fit()[0])), "true": (t, curve(*example.TRUE))}, "the fit")


def kmeans() -> str:
    """The ten centres: the digits that the clusters mean."""
    from sklearn.datasets import load_digits

    centres, _ = _load("kmeans").cluster(load_digits().data / 16.0)
    return images(centres.numpy().reshape(-1, 8, 8), "centres of the clusters")


def ode_sensitivities() -> str:
    """How many are ill, and how that depends on the two rates."""
    example = _load("ode_sensitivities")
    found = example.sensitivities()
    curves = {"ill": (example.TIMES, found["curve"])}
    for k, name in enumerate(("10 % more contacts", "10 % faster recovery")):
        curves[name] = (example.TIMES, found["curve"] + 0.1 * found["of_curve"][:, k])
    return draw(curves, "an epidemic", limits=(0.0, 450.0))


def images(pixels: np.ndarray, title: str, size: int = 6) -> str:
    """Grey images side by side; numbers from 0 (white) to 1 (black)."""
    count, height, width = pixels.shape
    step = width + 2
    squares = [
        f'<rect x="{(n * step + x) * size}" y="{y * size}" width="{size}" height="{size}" fill-opacity="{value:.2f}"/>'
        for n, image in enumerate(pixels)
        for (y, x), value in np.ndenumerate(np.clip(image, 0.0, 1.0))
        if value > 0.02
    ]
    box = f'viewBox="0 0 {(count * step - 2) * size} {height * size}" width="{(count * step - 2) * size}"'
    return f'<svg class="wg-plot" {box} role="img" aria-label="{title}" fill="currentColor">{"".join(squares)}</svg>'


MADE: dict[str, Callable[[], str]] = {f.__name__: f for f in (fit, kmeans, ode_sensitivities)}
