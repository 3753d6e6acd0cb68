"""Every mode of differentiation beside the plain path, PyTorch and JAX: `python -m benchmarks.modes`.

Each row times a piece of work and what it is held to: our own forward pass, or forward and backward, in turns in one
process. Prints a table with goals, and writes benchmarks/results/modes.json and modes.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Row, Timing, interleave, statement

PLAIN, PYTORCH, JAX = "plain", "PyTorch", "JAX jit"


@dataclass
class Work:
    """What is timed: ours, what it is compared with, and the goals as factors over `plain` and in microseconds."""

    name: str
    code: str
    plain: str = ""
    most_plain: float | None = None
    most_us: float | None = None
    pytorch: str = ""
    least_pytorch: float | None = None
    jax: str = ""
    names: dict[str, Any] = field(default_factory=dict)


def rosenbrock(x: Any) -> Any:
    """The banana function of many variables."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def ours() -> dict[str, Any]:
    """Names that our statements use."""
    n = wg.Generator(seed=0)
    x, w, b = (wg.randn(*s, generator=n) for s in ((8, 8), (8, 8), (8,)))
    z, v = wg.randn(50, generator=n), wg.randn(50, generator=n)
    duals = wg.ForwardADContext()
    inner = duals.dual(x, w)
    outer = wg.ForwardADContext().dual(inner, duals.dual(w, x))
    tracked = [t.clone().requires_grad_() for t in (x, w, b)]
    chain = lambda x, w, b: wg.tanh(x * w + b).sum()
    _, push = wg.linearize(rosenbrock, z)
    return dict(
        wg=wg, x=x, w=w, b=b, z=z, v=v, X=tracked, zr=z.clone().requires_grad_(), d=inner, dd=outer, chain=chain,
        compiled=wg.compile(lambda x, w: wg.tanh(x * w) + 1.0), one=wg.compile(lambda x: x * 2.0),
        three=wg.compile(lambda x: (x * 2.0, wg.sin(x), wg.exp(x))), big=wg.randn(10**6).requires_grad_(),
        ones_big=wg.ones((10**6,)), rosenbrock=rosenbrock, push=push, gradient=wg.grad(rosenbrock), ones=wg.ones((8, 8)),
    )  # fmt: skip


def pytorch() -> dict[str, Any] | None:
    """Names that PyTorch's statements use; None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(2)
    torch.manual_seed(0)
    x, w, b, z, v = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8), torch.randn(50), torch.randn(50)
    tracked = [t.clone().requires_grad_() for t in (x, w, b)]
    return dict(
        torch=torch, z=z, v=v, X=tracked, zr=z.clone().requires_grad_(), w=w,
        chain=lambda x, w, b: torch.tanh(x * w + b).sum(), rosenbrock=rosenbrock, gradient=torch.func.grad(rosenbrock),
        x=x,
    )  # fmt: skip


@contextmanager
def _dual_level(names: dict[str, Any] | None) -> Iterator[None]:
    """Inside, PyTorch's names have a dual, `d`: its transformations do not run while a level of its own is open."""
    if names is None:
        yield
        return
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        names["d"] = forward_ad.make_dual(names["x"], names["w"])
        yield


def jax() -> dict[str, Any] | None:
    """Names that JAX's statements use; None if it is not installed."""
    try:
        import jax
    except ImportError:
        return None
    z, v = (jax.random.normal(jax.random.key(k), (50,)) for k in range(2))
    gradient = jax.grad(rosenbrock)
    hvp = jax.jit(lambda z, v: jax.jvp(gradient, (z,), (v,))[1])
    return dict(
        z=z, v=v, gradient=jax.jit(gradient), hvp=hvp, jvp=jax.jit(lambda z, v: jax.jvp(rosenbrock, (z,), (v,)))
    )


WORK = (
    Work("multiply, recorded", "X[0] * X[1]", most_us=0.1, pytorch="X[0] * X[1]"),
    Work(
        "chain 8×8, forward and backward with create_graph",
        "wg.grad_of(chain(*X), X, create_graph=True)",
        "wg.grad_of(chain(*X), X)",
        most_plain=1.3,
        pytorch="torch.autograd.grad(chain(*X), X, create_graph=True)",
    ),
    Work(
        "Rosenbrock 50, forward and backward with create_graph",
        "wg.grad_of(rosenbrock(zr), [zr], create_graph=True)",
        "wg.grad_of(rosenbrock(zr), [zr])",
        most_plain=1.3,
        pytorch="torch.autograd.grad(rosenbrock(zr), zr, create_graph=True)",
    ),
    Work("multiply of a dual", "d * w", "x * w", most_plain=4, most_us=0.35, pytorch="d * w"),
    Work("tanh of a dual", "wg.tanh(d)", "wg.tanh(x)", most_plain=4, most_us=0.35, pytorch="torch.tanh(d)"),
    Work("multiply of a dual of duals", "dd * dd", "x * w", most_us=0.8),
    Work("sum of a dual", "d.sum()", "x.sum()", most_plain=4, pytorch="d.sum()"),
    Work("compiled function of a dual", "compiled(d, w)", "compiled(x, w)", most_plain=4),
    Work(
        "one of three results, a million elements, backward",
        "wg.grad_of(three(big)[0], [big], ones_big)",
        "wg.grad_of(one(big), [big], ones_big)",
    ),
    Work("x[1:]", "x[1:]", most_us=0.25, pytorch="x[1:]"),
    Work("sum", "x.sum()", most_us=0.3, pytorch="x.sum()"),
    Work("matmul 8×8", "x @ w", most_us=0.3, pytorch="x @ w"),
    Work(
        "jvp(f), chain 8×8",
        "wg.jvp(lambda x: chain(x, w, b), (x,), (w,))",
        "chain(x, w, b)",
        most_plain=3,
        pytorch="torch.func.jvp(lambda x: chain(x, X[1], X[2]), (x,), (w,))",
    ),
    Work(
        "jvp(f), Rosenbrock 50",
        "wg.jvp(rosenbrock, (z,), (v,))",
        "rosenbrock(z)",
        most_plain=3,
        pytorch="torch.func.jvp(rosenbrock, (z,), (v,))",
        jax="jvp(z, v)",
    ),
    Work("push of linearize, Rosenbrock 50", "push(v)", "rosenbrock(zr).backward()", most_plain=1),
    Work(
        "grad(f)(x), Rosenbrock 50",
        "gradient(z)",
        "rosenbrock(zr).backward()",
        most_plain=1.3,
        pytorch="gradient(z)",
        jax="gradient(z)",
    ),
    Work(
        "hvp, Rosenbrock 50",
        "wg.hvp(rosenbrock, z, v)",
        "rosenbrock(zr).backward()",
        pytorch="torch.func.jvp(gradient, (z,), (v,))[1]",
        least_pytorch=8,
        jax="hvp(z, v)",
    ),
)


def _row(work: Work, libraries: dict[str, dict[str, Any] | None], rounds: int) -> Row:
    contenders = {"wengert": (work.code, libraries["wengert"])}
    contenders |= {PLAIN: (work.plain, libraries["wengert"])} if work.plain else {}
    for label, code in ((PYTORCH, work.pytorch), (JAX, work.jax)):
        if code and libraries[label] is not None:
            contenders[label] = (code, libraries[label])
    with _dual_level(libraries[PYTORCH] if "a dual" in work.name else None):
        calls = {label: statement(code, names or {}, _finish(label)) for label, (code, names) in contenders.items()}
        timings, load = interleave(calls, rounds)
    row = measure.timed_row(work.name, timings, load, goals={})
    row.goal, judged = _judge(work, timings)
    row.met = all(judged) if judged and len(judged) == row.goal.count(",") + 1 else None
    return row


def _finish(label: str) -> Callable[[], Any]:
    if label != JAX:
        return lambda: None
    import jax

    return jax.effects_barrier


def _judge(work: Work, timings: dict[str, Timing]) -> tuple[str, list[bool]]:
    goals, judged, best = [], [], timings["wengert"].best
    if work.most_plain is not None:
        goals.append(f"≤ {work.most_plain:g}× plain")
        judged.append(best <= work.most_plain * timings[PLAIN].best)
    if work.most_us is not None:
        goals.append(f"≤ {work.most_us:g} µs")
        judged.append(best <= work.most_us * 1e-6)
    if work.least_pytorch is not None:
        goals.append(f"≥ {work.least_pytorch:g}× PyTorch")
        if PYTORCH in timings:
            judged.append(timings[PYTORCH].best >= work.least_pytorch * best)
    return ", ".join(goals), judged


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.modes", __doc__, [w.name for w in WORK], rounds=15)
    libraries = {"wengert": ours(), PYTORCH: pytorch(), JAX: jax()}
    rows = []
    for work in WORK:
        if work.name in options.rows:
            rows.append(_row(work, libraries, options.rounds))
            print(f"{work.name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit}", flush=True)
    measure.show(rows)
    if not options.dry:
        title = "Every mode of differentiation"
        measure.write("modes", title, rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
