"""Programs whose derivatives have known patterns: the function, a point, the number of entries, and how many colours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import wengert as wg


class Case(NamedTuple):
    """One program."""

    what: str  # jacobian or hessian
    function: Callable[..., Any]
    point: Any
    entries: int
    colours: int  # of the columns, or of a star colouring, at most


N, GRID = 30, 7
RNG = np.random.default_rng(0)


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def chained_wood(x: Any) -> Any:
    """Toint's problem: Σ over i = 0, 2, 4, … of four neighbours."""
    a, b, c, d = x[0:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
    terms = 100 * (a**2 - b) ** 2 + (a - 1) ** 2 + 90 * (c**2 - d) ** 2 + (1 - c) ** 2
    return (terms + 10 * (b + d - 2) ** 2 + (b - d) ** 2 / 10).sum()


def arrow(x: Any) -> Any:
    return (x[0] * x[1:]).sum() + (x**4).sum()


def broyden_tridiagonal(x: Any) -> Any:
    padded = wg.pad(x, ((1, 1),))
    return (3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0


def broyden_banded(x: Any) -> Any:
    padded = wg.pad(x, ((5, 1),))
    n = x.shape[0]
    near = [padded[k : k + n] for k in (0, 1, 2, 3, 4, 6)]
    return x * (2.0 + 5.0 * x**2) + 1.0 - sum(y * (1.0 + y) for y in near)


def laplacian(u: Any) -> Any:
    """Five points, zero outside."""
    p = wg.pad(u, ((1, 1), (1, 1)))
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4.0 * u


def brusselator(w: Any) -> Any:
    """Two substances that react and diffuse: of each five points, and the other one at the same place."""
    u, v = w[0], w[1]
    reaction = u * u * v
    return wg.stack([1.0 + reaction - 4.4 * u + 0.1 * laplacian(u), 3.4 * u - reaction + 0.1 * laplacian(v)])


def convolution(x: Any) -> Any:
    kernel = wg.asarray(np.array([[[0.25, 0.5, 0.25, 0.125]]]))
    return wg.tanh(wg.conv1d(wg.reshape(x, (1, 1, x.shape[0])), kernel))


BLOCK = wg.asarray(RNG.uniform(0.5, 1.0, (5, 5)))
ORDER = wg.asarray(RNG.permutation(N))
CAMERA_OF, POINT_OF = (wg.asarray(i.ravel()) for i in np.indices((4, 6)))
SCENE = {
    "cameras": wg.asarray(RNG.normal(size=(4, 11)) + np.array([0, 0, 0, 0, 0, 6, 1, 0, 0, 0, 0])),
    "points": wg.asarray(RNG.uniform(-1.0, 1.0, (6, 3))),
    "weights": wg.asarray(RNG.uniform(0.5, 1.0, 24)),
}


def bundle_adjustment(scene: Any) -> Any:
    """Cameras of eleven numbers (rotation, position, focal length, centre and two coefficients of the distortion), points of
    three, and the weight of each observation: fifteen numbers meet in a residual."""
    camera, point = scene["cameras"][CAMERA_OF], scene["points"][POINT_OF]
    turn, weight = camera[:, :3], scene["weights"]
    angle = wg.sqrt((turn**2).sum(axis=1, keepdims=True))
    axis = turn / angle
    along = (axis * point).sum(axis=1, keepdims=True)
    seen = point * wg.cos(angle) + wg.cross(axis, point) * wg.sin(angle) + axis * along * (1 - wg.cos(angle))
    seen = seen + camera[:, 3:6]
    plane = seen[:, :2] / seen[:, 2:] - camera[:, 7:9]
    square = (plane**2).sum(axis=1, keepdims=True)
    bent = plane * (1.0 + camera[:, 9:10] * square + camera[:, 10:11] * square**2)
    return weight[:, None] * camera[:, 6:7] * bent, 1.0 - weight**2


def at(*shape: int) -> Any:
    """A point where no derivative vanishes by chance."""
    return wg.asarray(RNG.uniform(0.5, 1.5, shape))


CASES = {
    "Rosenbrock": Case("hessian", rosenbrock, at(N), 3 * N - 2, 3),
    "chained Wood": Case("hessian", chained_wood, at(N), 3 * N - 2, 4),
    "arrow": Case("hessian", arrow, at(N), 3 * N - 2, 2),
    "tridiagonal": Case("jacobian", broyden_tridiagonal, at(N), 3 * N - 2, 3),
    "Broyden banded": Case("jacobian", broyden_banded, at(N), 7 * N - 16, 7),
    "five-point Laplacian": Case("jacobian", laplacian, at(GRID, GRID), 5 * GRID**2 - 4 * GRID, 8),
    "Brusselator": Case("jacobian", brusselator, at(2, GRID, GRID), 12 * GRID**2 - 8 * GRID, 12),
    "block diagonal": Case("jacobian", lambda x: wg.tanh(wg.reshape(x, (6, 5)) @ BLOCK), at(N), 25 * 6, 5),
    "convolution": Case("jacobian", convolution, at(N), 4 * (N - 3), 4),
    "cumulative sum": Case("jacobian", wg.cumsum, at(N), N * (N + 1) // 2, N),
    "permutation": Case("jacobian", lambda x: wg.sin(x[ORDER]), at(N), N, 1),
    "bundle adjustment": Case("jacobian", bundle_adjustment, SCENE, 24 * (2 * 15 + 1), 15),
}
