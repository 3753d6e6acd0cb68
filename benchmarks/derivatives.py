"""Gradients, Jacobians, Hessians, their products, gradients of examples and Taylor steps, beside JAX, PyTorch and autograd:
`python -m benchmarks.derivatives`.

Contenders run in turns in one process, in float32. JAX is compiled (`jit`), PyTorch is `torch.func`, autograd is HIPS's.
Prints a table with goals, and writes benchmarks/results/derivatives.json and derivatives.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Row, interleave, statement

HAND, PYTORCH, JAX, AUTOGRAD = "by hand", "PyTorch", "JAX jit", "autograd"
JAX_FORWARD = "JAX jit, jacfwd"
RNG = np.random.default_rng(0)
POINTS = {n: RNG.normal(size=n).astype(np.float32) for n in (50, 500, 5_000, 100_000)}
DIRECTIONS = {n: RNG.normal(size=n).astype(np.float32) for n in (50, 500)}
SIZES = ((32, 64), (64, 64), (64, 10))  # of the layers
EXAMPLES = 256
SAMPLE_S = 5e-3  # short, so that some of many samples are not disturbed
_CALLS = itertools.count()
WEIGHTS = [(RNG.normal(size=s) / np.sqrt(s[0])).astype(np.float32) for s in SIZES]
WAIST = (1000, 500, 10, 500, 1000)  # a network whose Jacobian is cheapest in mixed mode
WAIST_WEIGHTS = [(RNG.normal(size=s) / np.sqrt(s[0])).astype(np.float32) for s in itertools.pairwise(WAIST)]
WAIST_POINT = RNG.normal(size=WAIST[0]).astype(np.float32)
STATES = RNG.uniform(0.5, 1.5, size=(3, 64)).astype(np.float32)  # of 64 pendulums on springs
STEP = 0.01
CAMERAS, SCENE_POINTS, OBSERVATIONS = 50, 5_000, 30_000
INPUTS, TARGETS = (RNG.normal(size=(EXAMPLES, n)).astype(np.float32) for n in (SIZES[0][0], SIZES[-1][1]))


@dataclass
class Work:
    """What is timed: our statement, those beside it, and the goals as factors over them (below 1: how much slower), or as
    the most milliseconds that it may take."""

    name: str
    code: str
    beside: dict[str, str] = field(default_factory=dict)
    goals: dict[str, float] = field(default_factory=dict)
    most: float | None = None
    note: str = ""


def rosenbrock(x: Any) -> Any:
    """The banana function of many variables."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def fresh() -> Any:
    """A function like it, which no cache knows: code with another constant is other code."""
    return eval(f"lambda x: ({100.0 + next(_CALLS)} * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()")


def network(tanh: Any) -> Any:
    """The loss of one example, or of many, of a network of dense layers."""

    def loss(weights: Any, x: Any, t: Any) -> Any:
        for w in weights[:-1]:
            x = tanh(x @ w)
        return ((x @ weights[-1] - t) ** 2).sum()

    return loss


def waist(tanh: Any, weights: Any) -> Any:
    """A network from many numbers through few to many."""

    def f(x: Any) -> Any:
        for w in weights[:-1]:
            x = tanh(x @ w)
        return x @ weights[-1]

    return f


def slope(sin: Any, stack: Any) -> Any:
    """A pendulum on a spring: an equation y' = slope(y), for many at once."""

    def f(y: Any) -> Any:
        angle, speed, length = y[0], y[1], y[2]
        return stack([speed, -sin(angle) / length - 0.1 * speed, 0.1 * (1.0 - length) * speed * speed])

    return f


def taylor_step(series: Any) -> Any:
    """A step of third order, from the derivatives of the solution: each is one of the slope along those before."""

    def step(f: Any, y: Any) -> Any:
        first = f(y)
        second = series(f, y, [first])[0]
        third = series(f, y, [first, second])[1]
        return y + STEP * first + STEP**2 / 2 * second + STEP**3 / 6 * third

    return step


def nested_series(push: Any) -> Any:
    """The derivatives of f along a path by derivatives of derivatives, of which two are enough here."""

    def series(f: Any, y: Any, path: Any) -> Any:
        along = lambda y, v: push(f, (y,), (v,))[1]
        if len(path) == 1:
            return [along(y, path[0])]
        first, second = path
        return [along(y, first), push(along, (y, first), (first, second))[1]]

    return series


def scene() -> tuple[Any, ...]:
    """Cameras (rotation, position, focal length, two distortions, centre), points, and which camera sees which point."""
    rng = np.random.default_rng(1)
    cameras = np.concatenate(
        [
            0.2 * rng.normal(size=(CAMERAS, 3)), np.array([0.0, 0.0, 6.0]) + 0.3 * rng.normal(size=(CAMERAS, 3)),
            rng.uniform(400, 600, (CAMERAS, 1)), 1e-3 * rng.normal(size=(CAMERAS, 2)),
        ],
        axis=1,
    )  # fmt: skip
    points = rng.uniform(-1.0, 1.0, (SCENE_POINTS, 3))
    seen_by, seen = (rng.integers(0, n, OBSERVATIONS) for n in (CAMERAS, SCENE_POINTS))
    return cameras.astype(np.float32), points.astype(np.float32), seen_by, seen


def projection(np_like: Any, stack: Any) -> Any:
    """Where a camera (…, 9) sees a point (…, 3), in pixels: Rodrigues' rotation, translation, perspective, distortion."""

    def project(camera: Any, point: Any) -> Any:
        rotation, position = camera[..., :3], camera[..., 3:6]
        angle = np_like.sqrt((rotation * rotation).sum(-1)[..., None] + 1e-20)
        a, p = rotation / angle, point
        sin, cos = np_like.sin(angle), np_like.cos(angle)
        across = stack(
            [
                a[..., 1] * p[..., 2] - a[..., 2] * p[..., 1],
                a[..., 2] * p[..., 0] - a[..., 0] * p[..., 2],
                a[..., 0] * p[..., 1] - a[..., 1] * p[..., 0],
            ],
            -1,
        )
        turned = p * cos + across * sin + a * (a * p).sum(-1)[..., None] * (1.0 - cos) + position
        flat = turned[..., :2] / turned[..., 2:]
        square = (flat * flat).sum(-1)[..., None]
        return camera[..., 6:7] * (1.0 + square * (camera[..., 7:8] + square * camera[..., 8:9])) * flat

    return project


def squares(y: Any) -> Any:
    """A convex loss."""
    return (y * y).sum()


def gauss_newton(push: Any, pull: Any, grad: Any, f: Any) -> Any:
    """Jᵀ H J v, as one writes it down without a function for it."""

    def product(x: Any, v: Any) -> Any:
        y, y_dot = push(f, (x,), (v,))
        return pull(f, x)[1](push(grad(squares), (y,), (y_dot,))[1])[0]

    return product


def by_hand(weights: Any, x: Any, t: Any) -> Any:
    """The gradients of all examples as one writes them down without vmap."""
    w1, w2, w3 = weights
    h1 = wg.tanh(x @ w1)
    h2 = wg.tanh(h1 @ w2)
    d3 = 2.0 * (h2 @ w3 - t)
    d2 = (d3 @ w3.T) * (1.0 - h2 * h2)
    d1 = (d2 @ w2.T) * (1.0 - h1 * h1)
    return [a[:, :, None] @ d[:, None, :] for a, d in ((x, d1), (h1, d2), (h2, d3))]


def block(x: Any, w: Any, v: Any) -> Any:
    """A residual block, of one example or of many."""
    return x + wg.gelu(wg.layer_norm(x, (x.shape[-1],)) @ w) @ v


def ours() -> dict[str, Any]:
    """Names that our statements use."""
    gradient, loss = wg.grad(rosenbrock), network(wg.tanh)
    weights = [wg.asarray(w) for w in WEIGHTS]
    wide = wg.asarray(RNG.normal(size=(64, 128)).astype(np.float32))
    products = wg.compile(lambda z, v: wg.hvp(rosenbrock, z, v))
    narrow = [wg.asarray(w) for w in WAIST_WEIGHTS]
    cameras, points, seen_by, seen = (wg.asarray(a) for a in scene())
    project = projection(wg, lambda parts, axis: wg.stack(parts, axis=axis))
    return dict(
        fresh_sparse=lambda: wg.hessian(fresh(), sparse=True), sparse=wg.hessian(rosenbrock, sparse=True),
        bundle=wg.jacobian(lambda c, p: project(c[seen_by], p[seen]), argnums=(0, 1), sparse=True), scene=(cameras, points),
        wg=wg, z=_named(wg.asarray, POINTS), v=_named(wg.asarray, DIRECTIONS), rosenbrock=rosenbrock, fresh=fresh,
        gradient=gradient, compiled=wg.compile(gradient), products=products, hessian=wg.hessian(rosenbrock),
        compiled_hessian=wg.compile(wg.hessian(rosenbrock)), weights=weights, x=wg.asarray(INPUTS),
        t=wg.asarray(TARGETS), per_sample=wg.per_sample_grad(loss), by_hand=wg.compile(by_hand),
        blocks=wg.vmap(block, (0, None, None)), block=wg.compile(block), y=wg.asarray(RNG.normal(size=(256, 64))),
        wide=[wide.astype(wg.float64), wide.T.astype(wg.float64)], layer=wg.jacrev(_layer(wg.tanh, weights)),
        waist=wg.compile(wg.jacobian(waist(wg.tanh, narrow))), point=wg.asarray(WAIST_POINT),
        fresh_waist=lambda: waist(wg.tanh, narrow), state=wg.asarray(STATES),
        gauss_newton=wg.compile(lambda x, v: wg.ggnvp(_layer(wg.tanh, weights), squares, x, v)),
        step=wg.compile(lambda y: taylor_step(lambda *a: wg.taylor(*a)[1])(slope(wg.sin, wg.stack), y)),
    )  # fmt: skip


def _layer(tanh: Any, weights: Any) -> Any:
    return lambda x: tanh(tanh(x @ weights[0]) @ weights[1])


def _named(make: Any, arrays: dict[int, Any]) -> dict[int, Any]:
    return {n: make(a) for n, a in arrays.items()}


def pytorch() -> dict[str, Any] | None:
    """Names that PyTorch's statements use; None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(2)
    tensor, func = torch.from_numpy, torch.func
    gradient = func.grad(rosenbrock)
    weights, narrow = [tensor(w) for w in WEIGHTS], [tensor(w) for w in WAIST_WEIGHTS]
    return dict(
        z=_named(tensor, POINTS), v=_named(tensor, DIRECTIONS), gradient=gradient, hessian=func.hessian(rosenbrock),
        products=lambda z, v: func.jvp(gradient, (z,), (v,))[1], weights=weights, x=tensor(INPUTS), t=tensor(TARGETS),
        per_sample=func.vmap(func.grad(network(torch.tanh)), (None, 0, 0)),
        layer=func.jacrev(_layer(torch.tanh, weights)), waist=func.jacrev(waist(torch.tanh, narrow)),
        point=tensor(WAIST_POINT), gauss_newton=gauss_newton(func.jvp, func.vjp, func.grad, _layer(torch.tanh, weights)),
        step=lambda y: taylor_step(nested_series(func.jvp))(slope(torch.sin, torch.stack), y), state=tensor(STATES),
    )  # fmt: skip


def jax() -> dict[str, Any] | None:
    """Names that JAX's statements use; None if it is not installed."""
    try:
        import jax
        import jax.numpy as jnp
        from jax.experimental.jet import jet
    except ImportError:
        return None
    gradient = jax.grad(rosenbrock)
    weights = [jnp.asarray(w) for w in WEIGHTS]
    through = waist(jnp.tanh, [jnp.asarray(w) for w in WAIST_WEIGHTS])
    cameras, points, seen_by, seen = (jnp.asarray(a) for a in scene())
    project = projection(jnp, jnp.stack)
    blocks = jax.jit(lambda c, p: jax.vmap(jax.jacfwd(project, (0, 1)))(c[seen_by], p[seen]))
    return dict(
        blocks=blocks, scene=(cameras, points),
        jax=jax, done=jax.block_until_ready, z=_named(jnp.asarray, POINTS), v=_named(jnp.asarray, DIRECTIONS),
        gradient=jax.jit(gradient), hessian=jax.jit(jax.hessian(rosenbrock)), fresh=fresh,
        products=jax.jit(lambda z, v: jax.jvp(gradient, (z,), (v,))[1]), weights=weights, x=jnp.asarray(INPUTS),
        t=jnp.asarray(TARGETS), per_sample=jax.jit(jax.vmap(jax.grad(network(jnp.tanh)), (None, 0, 0))),
        layer=jax.jit(jax.jacrev(_layer(jnp.tanh, weights))), point=jnp.asarray(WAIST_POINT),
        waist=jax.jit(jax.jacrev(through)), waist_forward=jax.jit(jax.jacfwd(through)), state=jnp.asarray(STATES),
        gauss_newton=jax.jit(gauss_newton(jax.jvp, jax.vjp, jax.grad, _layer(jnp.tanh, weights))),
        step=jax.jit(lambda y: taylor_step(_jets(jet))(slope(jnp.sin, jnp.stack), y)),
    )  # fmt: skip


def _jets(jet: Any) -> Any:
    return lambda f, y, path: jet(f, (y,), (list(path),))[1]


def autograd() -> dict[str, Any] | None:
    """Names that autograd's statements use; None if it is not installed."""
    try:
        import autograd as hips
        import autograd.numpy as anp
    except ImportError:
        return None
    f = lambda x: anp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)
    return dict(z=POINTS, v=DIRECTIONS, gradient=hips.grad(f), hessian=hips.hessian(f))


def _rosenbrock(n: int) -> list[Work]:
    peers = {PYTORCH: f"gradient(z[{n}])", JAX: f"done(gradient(z[{n}]))", AUTOGRAD: f"gradient(z[{n}])"}
    products = {PYTORCH: f"products(z[{n}], v[{n}])", JAX: f"done(products(z[{n}], v[{n}]))"}
    hessians = {PYTORCH: f"hessian(z[{n}])", JAX: f"done(hessian(z[{n}]))"}
    hessians |= {AUTOGRAD: f"hessian(z[{n}])"} if n < 100 else {}
    return [
        Work(f"gradient, Rosenbrock {n}", f"gradient(z[{n}])", peers),
        Work(f"gradient, Rosenbrock {n}, compiled", f"compiled(z[{n}])", {JAX: peers[JAX]}, {JAX: 1.0}),
        Work(f"hvp, Rosenbrock {n}", f"wg.hvp(rosenbrock, z[{n}], v[{n}])", products),
        Work(f"hvp, Rosenbrock {n}, compiled", f"products(z[{n}], v[{n}])", {JAX: products[JAX]}, {JAX: 1.0}),
        Work(f"Hessian, Rosenbrock {n}", f"hessian(z[{n}])", hessians, {PYTORCH: 20.0}),
        Work(f"Hessian, Rosenbrock {n}, compiled", f"compiled_hessian(z[{n}])", {JAX: hessians[JAX]}, {JAX: 1.0}),
    ]


WORK = (
    *_rosenbrock(50),
    *_rosenbrock(500),
    Work(
        "Hessian, Rosenbrock 50, first call",
        "wg.compile(wg.hessian(fresh()))(z[50])",
        {JAX: "done(jax.jit(jax.hessian(fresh()))(z[50]))"},
        {JAX: 10.0},
    ),
    Work("sparse Hessian, Rosenbrock 5,000", "sparse(z[5_000])", most=0.2, note="as a csr matrix"),
    Work("sparse Hessian, Rosenbrock 5,000, first call", "fresh_sparse()(z[5_000])", most=60.0),
    Work("sparse Hessian, Rosenbrock 100,000", "sparse(z[100_000])", most=3.0, note="as a csr matrix"),
    Work(
        "Jacobian of bundle adjustment, 30,000 observations",
        "bundle(*scene)",
        {JAX: "done(blocks(*scene))"},
        {JAX: 2.0},
        note="as a csr matrix; JAX by blocks, in forward mode, without the matrix",
    ),
    Work(
        "Jacobian of two layers, 32 to 64",
        "layer(x[0])",
        {PYTORCH: "layer(x[0])", JAX: "done(layer(x[0]))"},
    ),
    Work(
        "Jacobian of a network 1000-500-10-500-1000",
        "waist(point)",
        {PYTORCH: "waist(point)", JAX: "done(waist(point))", JAX_FORWARD: "done(waist_forward(point))"},
        {JAX: 10.0, JAX_FORWARD: 10.0},
        note="in mixed mode; PyTorch and JAX jit in reverse mode",
    ),
    Work(
        "Jacobian of a network 1000-500-10-500-1000, first call",
        "wg.compile(wg.jacobian(fresh_waist()))(point)",
    ),
    Work(
        "Gauss–Newton product of two layers, 256 examples",
        "gauss_newton(x, x)",
        {PYTORCH: "gauss_newton(x, x)", JAX: "done(gauss_newton(x, x))"},
        {PYTORCH: 3.0, JAX: 1.0},
        note="compiled",
    ),
    Work(
        "Taylor step of third order, 64 pendulums",
        "step(state)",
        {PYTORCH: "step(state)", JAX: "done(step(state))"},
        {PYTORCH: 20.0, JAX: 1.0},
        note="compiled; JAX by jets, PyTorch by nesting",
    ),
    Work(
        "gradients of 256 examples, network 32-64-64-10",
        "per_sample(weights, x, t)",
        {
            HAND: "by_hand(weights, x, t)",
            PYTORCH: "per_sample(weights, x, t)",
            JAX: "done(per_sample(weights, x, t))",
        },
        {HAND: 1 / 1.5, PYTORCH: 3.0, JAX: 1.0},
    ),
    Work(
        "residual block of 256 examples, vmap",
        "blocks(y, *wide)",
        {HAND: "block(y, *wide)"},
        {HAND: 1 / 1.5},
        note="by hand: compiled, on the whole batch",
    ),
)


def _row(work: Work, libraries: dict[str, dict[str, Any] | None], rounds: int) -> Row:
    calls = {"wengert": statement(work.code, libraries["wengert"] or {})}
    for label, code in work.beside.items():
        names = libraries[label]
        if names is not None:
            calls[label] = statement(code, names)
    timings, load = interleave(calls, rounds, SAMPLE_S)
    missing = [label for label in work.beside if libraries[label] is None]
    row = measure.timed_row(work.name, timings, load, goals=work.goals, missing=missing, note=work.note)
    if work.most is not None:
        row.goal, row.met = f"≤ {work.most:g} ms", timings["wengert"].best <= work.most / 1e3
    return row


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.derivatives", __doc__, [w.name for w in WORK], rounds=30)
    own = ours()
    names = jax()
    libraries = {
        "wengert": own, HAND: own, PYTORCH: pytorch(), JAX: names, JAX_FORWARD: names, AUTOGRAD: autograd(),
    }  # fmt: skip
    rows = []
    for work in WORK:
        if work.name in options.rows:
            rows.append(_row(work, libraries, options.rounds))
            print(f"{work.name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit}", flush=True)
    measure.show(rows)
    if not options.dry:
        title = "Gradients, Jacobians, Hessians and gradients of examples"
        measure.write("derivatives", title, rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
