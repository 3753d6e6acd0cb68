"""The simplex method of Nelder and Mead, with coefficients that depend on the number of unknowns (Gao & Han, 2012)."""

from __future__ import annotations

import numpy as np

from wengert.optimize.descent import Outcome, Search
from wengert.optimize.result import CONVERGED, OUT_OF_ITERATIONS
from wengert.tensors.conversion import asarray


def nelder_mead(search: Search) -> Outcome:
    """A minimum by values alone. It stops when the simplex, and the values on it, have shrunk to the tolerance."""
    start = np.array(search.problem.x.numpy())
    n = len(start)
    m = max(n, 2)
    expand, contract, shrink = 1.0 + 2.0 / m, 0.75 - 0.5 / m, 1.0 - 1.0 / m
    points = np.stack([start, *(start + _spread(start, k) for k in range(n))])

    def value(p: np.ndarray) -> float:
        found = float(search.problem.value(asarray(p.astype(start.dtype))))
        return found if np.isfinite(found) else np.inf

    values = np.array([value(p) for p in points])
    for k in range(search.most):
        order = np.argsort(values, kind="stable")
        points, values = points[order], values[order]
        size = np.abs(points[1:] - points[0]).max()
        if size <= search.tolerance and values[-1] - values[0] <= search.tolerance:
            return Outcome(
                asarray(points[0].copy()), float(values[0]), None, k, CONVERGED, "the simplex has shrunk to tol"
            )
        if search.stops(asarray(points[0].copy())):
            return search.stopped(asarray(points[0].copy()), float(values[0]), None, k)
        centre = points[:-1].mean(axis=0)
        away = centre - points[-1]
        reflected = value(centre + away)
        if reflected < values[0]:
            expanded = value(centre + expand * away)
            better = expanded < reflected
            points[-1], values[-1] = centre + (expand if better else 1.0) * away, min(expanded, reflected)
        elif reflected < values[-2]:
            points[-1], values[-1] = centre + away, reflected
        else:
            side = contract if reflected < values[-1] else -contract
            contracted = value(centre + side * away)
            if contracted <= min(reflected, values[-1]):
                points[-1], values[-1] = centre + side * away, contracted
            else:
                points[1:] = points[0] + shrink * (points[1:] - points[0])
                values[1:] = [value(p) for p in points[1:]]
    best = int(np.argmin(values))
    message = f"maxiter={search.most} iterations were used up"
    return Outcome(asarray(points[best].copy()), float(values[best]), None, search.most, OUT_OF_ITERATIONS, message)


def _spread(start: np.ndarray, k: int) -> np.ndarray:
    step = np.zeros_like(start)
    step[k] = 0.05 * start[k] if start[k] else 0.00025
    return step
