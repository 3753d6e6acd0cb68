"""Pictures of examples that draw none themselves, from what they compute: `python -m tools.site.gallery` writes them."""

from __future__ import annotations

import importlib.util
import types
from collections.abc import Callable

import numpy as np

import wengert as wg
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


def physics_informed() -> str:
    """The network beside the solution that it was never shown."""
    example = _load("physics_informed")
    t = wg.linspace(0.0, 3.0, 201).reshape(-1, 1)
    found = example.train()(t).detach().numpy()[:, 0]
    times = t.numpy()[:, 0]
    return draw({"network": (times, found), "solution": (times, example.exact(t).numpy()[:, 0])}, "the oscillation")


def pde_newton() -> str:
    """The temperature across the middle, for reactions of several strengths."""
    example = _load("pde_newton")
    x = np.linspace(0.0, 1.0, 33)
    curves = {f"λ = {s:g}": (x, np.pad(example.solve(31, s)[0][15], 1)) for s in (2.0, 5.0, 6.8)}
    return draw(curves, "the temperature across the middle", limits=(0.0, 1.5))


def gaussian_mixture() -> str:
    """The points, and two standard deviations around each mean that was found."""
    example, rng = _load("gaussian_mixture"), np.random.default_rng(0)
    points, _ = example.sample(rng, 400)
    x = wg.asarray(points)
    start = example.start(rng, points, 3)
    found = wg.optimize.minimize(lambda p: -example.log_likelihood(p, x), start, method="l-bfgs").x
    around = np.linspace(0.0, 2.0 * np.pi, 61)
    circle = np.stack([np.cos(around), np.sin(around)])
    curves = {}
    for k in range(3):
        factor = np.tril(found["lower"][k].numpy(), -1) + np.diag(np.exp(found["log_diagonal"][k].numpy()))
        ellipse = found["means"][k].numpy()[:, None] + 2.0 * np.linalg.solve(factor.T, circle)
        curves[f"cluster {k + 1}"] = (ellipse[0], ellipse[1])
    return draw(curves, "the clusters", limits=(-3.0, 6.5), points={"points": (points[:, 0], points[:, 1])})


def gaussian_process() -> str:
    """Measurements, and the mean of the process, one year beyond them."""
    example, rng = _load("gaussian_process"), np.random.default_rng(0)
    t = np.arange(60) / 12.0
    seen = np.sin(2.0 * np.pi * t) + 0.3 * np.cos(4.0 * np.pi * t) + 0.5 * np.sin(0.7 * t)
    seen += 0.2 * rng.standard_normal(len(t))
    times, values = wg.asarray(t), wg.asarray(seen)
    found = wg.optimize.minimize(example.negative_log_likelihood, example.START, (times, values)).x
    new = np.linspace(0.0, 6.0, 241)
    mean = example.predict(found, times, values, wg.asarray(new)).numpy()
    return draw({"mean": (new, mean)}, "the process", points={"measured": (t, seen)}, limits=(-1.8, 2.2))


def ode_parameters() -> str:
    """The pelts, and the curves that were fitted to their logarithms."""
    example = _load("ode_parameters")
    start = {"log_rates": wg.asarray(np.log([0.5, 0.025, 0.8, 0.025])), "log_start": wg.asarray(example.PELTS[0])}
    data = wg.asarray(example.PELTS)
    residuals = lambda z: (example.simulate(z, len(example.PELTS) - 1) - data).reshape(-1)
    curve = np.exp(example.simulate(wg.scipy.least_squares(residuals, start).x, 20).numpy())
    years = np.arange(1900.0, 1921.0)
    names = ("hares", "lynxes")
    curves = {name: (years, curve[:, k]) for k, name in enumerate(names)}
    points = {"pelts": (np.tile(years, 2), np.exp(example.PELTS).T.ravel())}
    return draw(curves, "hares and lynxes", points=points, limits=(0.0, 90.0))


def hand_model() -> str:
    """Points on the skin of a hand, as they are seen, and where the search begins."""
    example, rng = _load("hand_model"), np.random.default_rng(0)
    offsets = wg.asarray(rng.uniform([-0.2, 0.0, -0.2], [0.2, 1.0, 0.2], (24, 3)))
    truth = np.concatenate([rng.normal(0.0, 0.3, 6), rng.normal(0.0, 0.1, 5), rng.uniform(0.1, 0.8, 15)])
    start = np.concatenate([np.zeros(11), np.full(15, 0.4)])
    points = {}
    for name, pose in (("seen", truth), ("first guess", start)):
        at = example.skin(example.unpack(wg.asarray(pose)), offsets).numpy().reshape(-1, 3)
        points[name] = (at[:, 0], at[:, 1])
    return draw({}, "the hand", points=points, limits=(1.0, 18.0))


def bundle_adjustment() -> str:
    """What one camera sees, and what it would see of the scene that the search begins with."""
    example, rng = _load("bundle_adjustment"), np.random.default_rng(0)
    scene = example.make(rng, 6, 40)
    scales = {"rotations": 0.05, "positions": 0.1, "focals": 20.0, "points": 0.1}
    guess = {k: t + scales[k] * wg.asarray(rng.standard_normal(t.shape)) for k, t in scene.items()}
    seen = {name: example.predict(s)[0].numpy() for name, s in (("seen", scene), ("first guess", guess))}
    return draw({}, "image points", points={k: (v[:, 0], v[:, 1]) for k, v in seen.items()}, limits=(-60.0, 180.0))


def laplace() -> str:
    """How sure the classifier is, along a line that leads away from the data."""
    example, rng = _load("laplace"), np.random.default_rng(0)
    points = rng.standard_normal((60, 2))
    labels = np.where(points @ [1.5, -1.0] + 0.3 + 0.7 * rng.standard_normal(60) > 0, 1.0, -1.0)
    x, t = wg.asarray(np.c_[points, np.ones(60)]), wg.asarray(labels)
    precision = wg.asarray(np.array(example.run()["precision"]))
    w = example.mode(precision, x, t)
    covariance = wg.linalg.inv(wg.hessian(example.negative_log_posterior)(w, precision, x, t))
    far = np.linspace(0.0, 36.0, 101)
    along = wg.asarray(np.c_[far * 20.0 / 36.0, far * 30.0 / 36.0, np.ones(101)])
    curves = {
        "with error bars": (far, example.predict(w, covariance, along).numpy()),
        "without": (far, wg.sigmoid(along @ w).numpy()),
    }
    return draw(curves, "probabilities", limits=(0.0, 1.0))


def bilevel() -> str:
    """The penalty of each feature; only the first three say anything."""
    _, _, penalties = _load("bilevel").tune()
    return bars({f"feature {k + 1}": p for k, p in enumerate(np.exp(penalties))}, "penalties")


def uncertainty() -> str:
    """How much of the variance comes from each input."""
    example = _load("uncertainty")
    indices = example.propagate()["indices"][0]
    return bars(dict(sorted(zip(example.INPUTS, indices), key=lambda row: -row[1])), "parts of the variance")


def gradient_penalty() -> str:
    """The distance that the critic finds, and the exact one."""
    found, exact = _load("gradient_penalty").train()
    return bars({"by the critic": found, "exact": exact}, "distance between threes and eights")


def meta_learning() -> str:
    """The error on new tasks after three steps, before and after learning to learn."""
    before, after = _load("meta_learning").train()
    return bars({"random weights": before, "meta-learned weights": after}, "mean squared error after three steps")


def bars(values: dict[str, float], title: str) -> str:
    """Horizontal bars with their names and numbers."""
    largest, rows = max(values.values()), []
    for k, (name, value) in enumerate(values.items()):
        y = 6 + 20 * k
        rows.append(
            f'<text x="170" y="{y + 12}" text-anchor="end">{name}</text>'
            f'<rect class="c0" x="178" y="{y}" width="{180 * value / largest:.1f}" height="14"/>'
            f'<text x="{184 + 180 * value / largest:.1f}" y="{y + 12}">{value:.3g}</text>'
        )
    box = f'viewBox="0 0 420 {20 * len(values) + 10}" width="420"'
    return f'<svg class="wg-plot" {box} role="img" aria-label="{title}">{"".join(rows)}</svg>'


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


MADE: dict[str, Callable[[], str]] = {
    f.__name__: f
    for f in (
        bilevel, bundle_adjustment, fit, gaussian_mixture, gaussian_process, gradient_penalty, hand_model, kmeans,
        laplace, meta_learning, ode_parameters, ode_sensitivities, pde_newton, physics_informed, uncertainty,
    )
}  # fmt: skip
