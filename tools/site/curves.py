"""Small plots as SVG, in the colours of the page: functions of one number with their slopes, by `wg.grad`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import wengert as wg
from tools.site.names import Name

WIDTH, HEIGHT, MARGIN = 420, 240, 40
Points = tuple[np.ndarray, np.ndarray]


def plot(name: Name) -> str:
    """A plot of what a curve says more about than words; "" for everything else."""
    try:
        for make in (_schedule, _distribution, _loss, _elementwise):
            if curves := make(name):
                return draw(curves, name.path)
    except (TypeError, ValueError, AttributeError, KeyError, wg.WengertError):
        pass  # it does not take what the others take: there is no curve of it
    return ""


def draw(
    curves: dict[str, Points],
    title: str,
    limits: tuple[float, float] | None = None,
    points: dict[str, Points] | None = None,
) -> str:
    """An SVG of named curves and points, with axes, a legend, and gaps where a curve leaves the frame."""
    points = points or {}
    shown = [*curves.values(), *points.values()]
    xs = np.concatenate([x[np.isfinite(x)] for x, _ in shown])
    ys = np.concatenate([y[np.isfinite(y)] for _, y in shown])
    left, right = float(xs.min()), float(xs.max())
    low, high = limits or _range(ys)

    def place(x: float, y: float) -> str:
        across = MARGIN + (x - left) / (right - left) * (WIDTH - 2 * MARGIN)
        down = HEIGHT - MARGIN - (y - low) / (high - low) * (HEIGHT - 2 * MARGIN)
        return f"{across:.1f} {down:.1f}"

    parts = [_axes(left, right, low, high, place)]
    places = _legend([*curves, *points])
    for k, (label, (x, y)) in enumerate(curves.items()):
        inside = np.isfinite(y) & (y >= low) & (y <= high)
        straight = _on_a_line(y, (high - low) / HEIGHT)
        path, pen_down = [], False
        for k_point, (at_x, at_y, seen) in enumerate(zip(x, y, inside)):
            ends = k_point + 1 == len(x) or not inside[k_point + 1]
            if seen and (not pen_down or ends or not straight[k_point]):
                path.append(("L" if pen_down else "M") + place(at_x, at_y))
            pen_down = bool(seen)
        parts.append(f'<path class="curve c{k}" d="{" ".join(path)}"/>')
        x0 = places[label]
        parts.append(f'<path class="curve c{k}" d="M{x0} 14 h18"/><text x="{x0 + 24}" y="18">{label}</text>')
    for k, (label, (x, y)) in enumerate(points.items(), len(curves)):
        dots = (place(a, b).split() for a, b in zip(x, y) if low <= b <= high)
        parts += [f'<circle class="c{k}" cx="{a}" cy="{b}" r="2"/>' for a, b in dots]
        x0 = places[label]
        parts.append(f'<circle class="c{k}" cx="{x0 + 9}" cy="14" r="3"/><text x="{x0 + 24}" y="18">{label}</text>')
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
    return f'<svg class="wg-plot" {box} role="img" aria-label="plot of {title}">{"".join(parts)}</svg>'


def _legend(labels: Sequence[str]) -> dict[str, int]:
    """Where each entry begins, in the order of the labels."""
    places, x = {}, MARGIN
    for label in labels:
        places[label] = x
        x += 36 + round(6.8 * len(label))
    return places


def _on_a_line(y: np.ndarray, pixel: float) -> np.ndarray:
    """Which points the line from the one before to the one after passes within a fraction of a pixel."""
    straight = np.zeros(len(y), bool)
    y = np.clip(np.nan_to_num(y), -1e9, 1e9)
    straight[1:-1] = abs(y[2:] - 2 * y[1:-1] + y[:-2]) < 0.01 * pixel
    straight[::5] = False  # small bends add up
    return straight


def _axes(left: float, right: float, low: float, high: float, place: Callable[[float, float], str]) -> str:
    x0, y0 = (min(max(0.0, a), b) for a, b in ((left, right), (low, high)))
    lines = f'<path class="axis" d="M{place(left, y0)} L{place(right, y0)} M{place(x0, low)} L{place(x0, high)}"/>'
    ends = []
    for x in (left, right):
        px, py = place(x, y0).split()
        ends.append(f'<text class="tick" x="{px}" y="{float(py) + 15:.1f}" text-anchor="middle">{x:.4g}</text>')
    for y in (low, high):
        px, py = place(x0, y).split()
        ends.append(
            f'<text class="tick" x="{float(px) - 5:.1f}" y="{float(py) + 4:.1f}" text-anchor="end">{y:.3g}</text>'
        )
    return lines + "".join(ends)


def _range(ys: np.ndarray) -> tuple[float, float]:
    """What most of the curve needs: poles and exponentials must not flatten the rest."""
    low, high = (float(v) for v in np.quantile(ys, [0.03, 0.97]))
    low, high = max(float(ys.min()), low - (high - low) * 0.2), min(float(ys.max()), high + (high - low) * 0.2)
    low, high = max(low, -8.0) if high > -8.0 else low, min(high, 8.0) if low < 8.0 else high
    return (low, high) if high - low > 1e-9 else (low - 1.0, high + 1.0)


def _slope(f: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    return wg.grad(lambda t: f(t).sum())(wg.asarray(x)).numpy()


def _with_slope(f: Callable[[Any], Any], x: np.ndarray, label: str, slope: str) -> dict[str, Points]:
    curves = {label: (x, f(wg.asarray(x)).numpy())}
    derivative = _slope(f, x)
    if np.isfinite(derivative).any() and np.abs(derivative[np.isfinite(derivative)]).max() > 0:
        curves[slope] = (x, derivative)
    return curves


def _elementwise(name: Name) -> dict[str, Points]:
    """Functions of one real tensor whose elements do not see each other."""
    if isinstance(name.value, type) or name.page not in ("elementwise", "special", "activations"):
        return {}
    if len(_needed(name.value)) != 1:
        return {}
    x = np.linspace(-4.0, 4.0, 202)  # 0 is not among them
    shuffled = np.random.default_rng(0).permutation(x.size)
    with np.errstate(all="ignore"):
        y = name.value(wg.asarray(x))
        if y.shape != x.shape or y.dtype != wg.float64 or not np.isfinite(y.numpy()).any():
            return {}
        if not np.array_equal(y.numpy()[shuffled], name.value(wg.asarray(x[shuffled])).numpy(), equal_nan=True):
            return {}
        return _with_slope(name.value, x, "value", "derivative")


def _loss(name: Name) -> dict[str, Points]:
    """Losses of a prediction and a target, over the prediction, where the target is 1."""
    if name.page != "losses" or len(_needed(name.value)) != 2:
        return {}
    x = np.linspace(-3.0, 4.0, 202)
    probabilities = np.linspace(0.002, 0.998, 202)
    for grid in (x, probabilities):
        target = wg.ones(grid.shape, dtype=wg.float64)
        f = lambda t, target=target: name.value(t, target, reduction="none")
        try:
            y = f(wg.asarray(grid))
        except wg.WengertError:
            continue
        if y.shape == grid.shape and np.isfinite(y.numpy()).all():
            return _with_slope(f, grid, "loss, target 1", "derivative")
    return {}


def _schedule(name: Name) -> dict[str, Points]:
    """Schedules of 100 steps: the factor of the learning rate."""
    if name.page != "schedules" or isinstance(name.value, type):
        return {}
    choices = {"steps": 100, "total": 100, "warmup": 10, "warmup_steps": 10, "every": 25, "step_size": 25, "period": 25,
               "gamma": 0.5, "factor": 0.5, "decay": 0.97, "rate": 0.97, "first": 30}  # fmt: skip
    needed = _needed(name.value)
    if not needed or not all(parameter in choices for parameter in needed):
        return {}
    schedule = name.value(**{parameter: choices[parameter] for parameter in needed})
    steps = np.arange(101.0)
    given = ", ".join(f"{p}={choices[p]}" for p in needed)
    return {f"factor, {given}": (steps, np.array([float(schedule(int(t))) for t in steps]))}


def _distribution(name: Name) -> dict[str, Points]:
    """Densities of distributions of one number, with parameters that are valid for most."""
    if name.page != "stats" or not isinstance(name.value, type) or name.value.__name__ == "Distribution":
        return {}
    needed = _needed(name.value)
    for parameters in ([2.0] * len(needed), [0.0, 1.0][: len(needed)], [0.3] * len(needed)):
        try:
            d = name.value(*(wg.tensor(p, dtype=wg.float64) for p in parameters))
            if d.event_shape != () or d.batch_shape != ():
                return {}
            for low, high in ((-4.0, 4.0), (0.005, 4.0), (0.005, 0.995), (-3.1, 3.1)):
                x = np.linspace(low, high, 201)
                density = _density(d, x)
                if np.isfinite(density).all() and density.max() > 0:
                    given = ", ".join(f"{n}={p:g}" for n, p in zip(needed, parameters))
                    return {f"density, {given}" if given else "density": (x, density)}
        except wg.WengertError:
            continue
    return {}


def _density(d: Any, x: np.ndarray) -> np.ndarray:
    try:
        return wg.exp(d.log_prob(wg.asarray(x))).numpy()
    except wg.WengertError:
        return np.full_like(x, np.nan)


def _needed(f: Any) -> Sequence[str]:
    """The names of the parameters without a default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(f).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]
