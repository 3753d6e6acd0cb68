"""Differential equations beside SciPy, torchdiffeq and Diffrax: `python -m benchmarks.ode`.

All solve the same equations in float64 to the same tolerances, and agree before they are timed; JAX is compiled before.
SciPy has no gradients. Prints a table with goals, and writes benchmarks/results/ode.json and ode.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Row, interleave, timed_row

SCIPY, TORCH, DIFFRAX = "SciPy", "torchdiffeq", "Diffrax jit"
MODULES = {SCIPY: "scipy", TORCH: "torchdiffeq", DIFFRAX: "diffrax"}
RATES = np.array([1.0, 0.5, 0.3, 0.7])
START = np.array([1.0, 2.0])
Calls = dict[str, Callable[[], Any]]  # by contender; each returns what must agree


def equations(stack: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The right-hand sides, in the library whose `stack` is given."""

    def lotka_volterra(t: Any, y: Any, p: Any) -> Any:
        return stack([p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]])

    def van_der_pol(t: Any, y: Any, mu: Any) -> Any:
        return stack([y[1], mu * (1.0 - y[0] * y[0]) * y[1] - y[0]])

    return {"lotka_volterra": lotka_volterra, "van_der_pol": van_der_pol}


def available(name: str) -> bool:
    """Whether a contender is installed."""
    return importlib.util.find_spec(MODULES[name]) is not None


def _jax() -> tuple[Any, Any, Any]:
    import diffrax
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax, jax.numpy, diffrax


def _diffrax_solution(f: Any, y0: Any, times: Any, p: Any, tol: float, solver: Any, adjoint: Any = None) -> Any:
    _, jnp, diffrax = _jax()
    adjoint = diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint
    return diffrax.diffeqsolve(
        diffrax.ODETerm(f), solver, times[0], times[-1], None, y0, p, max_steps=100_000, adjoint=adjoint,
        saveat=diffrax.SaveAt(ts=jnp.asarray(times)),
        stepsize_controller=diffrax.PIDController(rtol=tol, atol=tol, pcoeff=0.2, icoeff=0.65),
    ).ys  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- rows


def orbit(n_times: int, tol: float) -> Calls:
    """Lotka and Volterra's equations over thirty units of time."""
    times = np.linspace(0.0, 30.0, n_times)
    f, p, y0 = equations(wg.stack)["lotka_volterra"], wg.asarray(RATES), wg.asarray(START)
    calls: Calls = {"wengert": lambda: wg.ode.odeint(f, y0, times, p, rtol=tol, atol=tol).y[-1].numpy()}
    if available(SCIPY):
        from scipy.integrate import solve_ivp

        g = equations(np.stack)["lotka_volterra"]
        calls[SCIPY] = lambda: solve_ivp(
            g, (0.0, 30.0), START, t_eval=times, args=(RATES,), rtol=tol, atol=tol, method="RK45"
        ).y[:, -1]
    if available(TORCH):
        import torch
        import torchdiffeq

        h, q = equations(torch.stack)["lotka_volterra"], torch.tensor(RATES)
        s, ts = torch.tensor(START), torch.tensor(times)
        calls[TORCH] = lambda: torchdiffeq.odeint(lambda t, y: h(t, y, q), s, ts, rtol=tol, atol=tol)[-1].numpy()
    if available(DIFFRAX):
        jax, jnp, diffrax = _jax()
        e = equations(jnp.stack)["lotka_volterra"]
        run = jax.jit(lambda y, p: _diffrax_solution(e, y, times, p, tol, diffrax.Dopri5())[-1])
        calls[DIFFRAX] = lambda: np.asarray(run(jnp.asarray(START), jnp.asarray(RATES)))
    return calls


def orbit_gradient(adjoint: str, tol: float) -> Calls:
    """The gradient by the four rates of a sum over 21 states."""
    times = np.linspace(0.0, 20.0, 21)
    f, y0 = equations(wg.stack)["lotka_volterra"], wg.asarray(START)
    ours = wg.grad(lambda p: (wg.ode.odeint(f, y0, times, p, rtol=tol, atol=tol, gradient=adjoint).y ** 2).sum())
    rates = wg.asarray(RATES)
    calls: Calls = {"wengert": lambda: ours(rates).numpy()}
    if available(TORCH):
        import torch
        import torchdiffeq

        h, s, ts = equations(torch.stack)["lotka_volterra"], torch.tensor(START), torch.tensor(times)
        q = torch.tensor(RATES, requires_grad=True)
        solve = torchdiffeq.odeint if adjoint == "discrete" else torchdiffeq.odeint_adjoint
        more = {} if adjoint == "discrete" else {"adjoint_params": (q,)}

        def theirs() -> Any:
            y = solve(lambda t, y: h(t, y, q), s, ts, rtol=tol, atol=tol, **more)
            return torch.autograd.grad((y**2).sum(), q)[0].numpy()

        calls[TORCH] = theirs
    if available(DIFFRAX):
        jax, jnp, diffrax = _jax()
        e = equations(jnp.stack)["lotka_volterra"]
        kind = None if adjoint == "discrete" else diffrax.BacksolveAdjoint()
        loss = lambda p: (_diffrax_solution(e, jnp.asarray(START), times, p, tol, diffrax.Dopri5(), kind) ** 2).sum()
        run = jax.jit(jax.grad(loss))
        calls[DIFFRAX] = lambda: np.asarray(run(jnp.asarray(RATES)))
    return calls


def stiff(tol: float) -> Calls:
    """Van der Pol's equation with μ = 1000 over a period and more."""
    times, start = np.array([0.0, 1000.0, 2000.0]), np.array([2.0, 0.0])
    f, mu, y0 = equations(wg.stack)["van_der_pol"], wg.asarray(np.float64(1000.0)), wg.asarray(start)
    calls: Calls = {
        "wengert": lambda: wg.ode.odeint(f, y0, times, mu, method="rodas5p", rtol=tol, atol=tol).y[-1, :1].numpy()
    }
    if available(SCIPY):
        from scipy.integrate import solve_ivp

        g = equations(np.stack)["van_der_pol"]
        calls[SCIPY] = lambda: solve_ivp(
            g, (0.0, 2000.0), start, t_eval=times, args=(1000.0,), rtol=tol, atol=tol, method="LSODA"
        ).y[:1, -1]
    if available(DIFFRAX):
        jax, jnp, diffrax = _jax()
        e = equations(jnp.stack)["van_der_pol"]
        run = jax.jit(lambda y, p: _diffrax_solution(e, y, times, p, tol, diffrax.Kvaerno5())[-1, :1])
        calls[DIFFRAX] = lambda: np.asarray(run(jnp.asarray(start), 1000.0))
    return calls


def network(tol: float) -> Calls:
    """A network 2-64-2 as right-hand side of 128 states: the gradient by its weights."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(s) / s[0] ** 0.5 for s in ((2, 64), (64, 2))]
    start, times = rng.standard_normal((128, 2)), np.array([0.0, 1.0])

    def slope(tanh: Any) -> Callable[..., Any]:
        return lambda t, y, w: tanh(y @ w[0]) @ w[1]

    f, ws, y0 = slope(wg.tanh), tuple(map(wg.asarray, weights)), wg.asarray(start)
    ours = wg.grad(lambda w: (wg.ode.odeint(f, y0, times, w, rtol=tol, atol=tol).y[-1] ** 2).sum())
    calls: Calls = {"wengert": lambda: ours(ws)[1].numpy()}
    if available(TORCH):
        import torch
        import torchdiffeq

        h, s, ts = slope(torch.tanh), torch.tensor(start), torch.tensor(times)
        q = [torch.tensor(w, requires_grad=True) for w in weights]

        def theirs() -> Any:
            y = torchdiffeq.odeint(lambda t, y: h(t, y, q), s, ts, rtol=tol, atol=tol)[-1]
            return torch.autograd.grad((y**2).sum(), q)[1].numpy()

        calls[TORCH] = theirs
    if available(DIFFRAX):
        jax, jnp, diffrax = _jax()
        e = slope(jnp.tanh)
        loss = lambda w: (_diffrax_solution(e, jnp.asarray(start), times, w, tol, diffrax.Dopri5())[-1] ** 2).sum()
        run, given = jax.jit(jax.grad(loss)), tuple(map(jnp.asarray, weights))
        calls[DIFFRAX] = lambda: np.asarray(run(given)[1])
    return calls


# name: what makes the calls, how far results may differ (SciPy and others choose other steps), goals
ROWS: dict[str, tuple[Callable[[], Calls], float, dict[str, float]]] = {
    "Lotka-Volterra, 30 units, 2 times, 1e-6": (lambda: orbit(2, 1e-6), 1e-2, {SCIPY: 3.0, TORCH: 3.0}),
    "Lotka-Volterra, 30 units, 300 times, 1e-8": (lambda: orbit(300, 1e-8), 1e-4, {SCIPY: 3.0, TORCH: 3.0}),
    "gradient by rates, discrete, 1e-6": (lambda: orbit_gradient("discrete", 1e-6), 1e-2, {TORCH: 3.0}),
    "gradient by rates, continuous, 1e-6": (lambda: orbit_gradient("continuous", 1e-6), 1e-2, {TORCH: 3.0}),
    "van der Pol, mu = 1000, stiff, 1e-6": (lambda: stiff(1e-6), 1e-2, {SCIPY: 1.0}),
    "network 2-64-2, 128 states, gradient, 1e-6": (lambda: network(1e-6), 1e-2, {TORCH: 1.0}),
}


def timed(name: str, rounds: int) -> Row:
    """One row, after all contenders have agreed."""
    make, tolerance, goals = ROWS[name]
    calls = make()
    results = {k: np.asarray(call()) for k, call in calls.items()}
    for k, value in results.items():
        np.testing.assert_allclose(value, results["wengert"], rtol=tolerance, err_msg=k)
    timings, load = interleave({k: measure.statement("call()", {"call": c}) for k, c in calls.items()}, rounds, 0.1)
    missing = [k for k in MODULES if not available(k)]
    return timed_row(name, timings, load, goals=goals, missing=missing)


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.ode", __doc__, ROWS, rounds=3)
    rows = []
    for name in options.rows:
        rows.append(timed(name, options.rounds))
        shown = ", ".join(f"{k} {r:.2f}x" for k, r in rows[-1].ratios.items())
        print(f"{name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit} ({shown})", flush=True)
    measure.show(rows)
    if not options.dry:
        title = "Differential equations beside SciPy, torchdiffeq and Diffrax"
        measure.write("ode", title, rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
