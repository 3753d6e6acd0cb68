"""Sampling and densities beside torch.distributions: `python -m benchmarks.stats`.

Small batches of ten distributions, large ones of a million. The distributions are made before, except where a row says so:
"differentiated" is the gradient by all parameters of the sum of a sample. Prints a table with goals, and writes
benchmarks/results/stats.json and stats.md.
"""

from __future__ import annotations

import os

# Before any library starts its threads: two each, as in benchmarks.eager.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

from typing import Any

import numpy as np

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Row, interleave, statement, timed_row

PYTORCH = "PyTorch"
SMALL, LARGE = 10, 1_000_000
GOALS = {SMALL: 2.0, LARGE: 1.0}
ROWS_OF_VECTORS = 10  # a vector has this many numbers: a tenth as many of them
POSITIVE, ANY, UNIT = "positive", "any", "unit"

# name: the kinds of its parameters, in the order in which both libraries take them
FAMILIES: dict[str, tuple[str, ...]] = {
    "Normal": (ANY, POSITIVE),
    "LogNormal": (ANY, POSITIVE),
    "Uniform": (ANY, "above"),
    "Laplace": (ANY, POSITIVE),
    "Cauchy": (ANY, POSITIVE),
    "Gumbel": (ANY, POSITIVE),
    "Gamma": (POSITIVE, POSITIVE),
    "Beta": (POSITIVE, POSITIVE),
    "Exponential": (POSITIVE,),
    "Chi2": (POSITIVE,),
    "StudentT": (POSITIVE,),
    "Weibull": (POSITIVE, POSITIVE),
    "VonMises": (ANY, POSITIVE),
    "Dirichlet": ("positive vectors",),
    "MultivariateNormal": ("vectors", "covariance"),
    "Bernoulli": (UNIT,),
    "Geometric": (UNIT,),
    "Binomial": ("counts", UNIT),
    "Poisson": (POSITIVE,),
    "Categorical": ("simplex",),
}
METHODS = ("log_prob", "sample", "gradient", "made")
# Whose samples are differentiated, and which are made anew: a few stand for all.
FEW = {"gradient": ("Normal", "Gamma", "Beta", "StudentT", "Dirichlet"), "made": ("Normal", "Gamma", "Categorical")}


def arrays(kinds: tuple[str, ...], n: int) -> list[Any]:
    """Parameters of n distributions, or of as many vectors as have n numbers."""
    rng = np.random.default_rng(0)
    rows = max(1, n // ROWS_OF_VECTORS)

    def one(kind: str) -> Any:
        if kind == "positive vectors":
            return rng.uniform(0.5, 3.0, (rows, ROWS_OF_VECTORS))
        if kind == "simplex":
            return rng.dirichlet(np.ones(ROWS_OF_VECTORS), rows)
        if kind == "vectors":
            return rng.normal(size=(rows, ROWS_OF_VECTORS))
        if kind == "covariance":
            half = rng.normal(size=(ROWS_OF_VECTORS, ROWS_OF_VECTORS))
            return half @ half.T + np.eye(ROWS_OF_VECTORS)
        if kind == "counts":
            return np.full(n, 20.0)
        low, high = {ANY: (-1.0, 1.0), POSITIVE: (0.5, 3.0), UNIT: (0.1, 0.9), "above": (2.0, 3.0)}[kind]
        return rng.uniform(low, high, n)

    made = [one(kind).astype(np.float32) for kind in kinds]
    if kinds == ("simplex",):
        made = [made[0] / made[0].sum(-1, keepdims=True)]
    return made


def calls(family: str, method: str, n: int) -> dict[str, Any]:
    """One statement for each library, after checking that densities agree."""
    import torch

    torch.set_num_threads(2)
    given = arrays(FAMILIES[family], n)
    if family == "Binomial":  # PyTorch's counts are not batched
        given[0] = np.float32(20.0)
    ours, theirs = [wg.asarray(a) for a in given], [torch.tensor(a) for a in given]
    kind, peer = getattr(wg.stats, family), getattr(torch.distributions, family)
    d, e = kind(*ours), peer(*theirs)
    x = d.sample()
    y = torch.tensor(x.numpy())
    np.testing.assert_allclose(d.log_prob(x).numpy(), e.log_prob(y).numpy(), rtol=2e-3, atol=2e-3)
    draw = "rsample" if e.has_rsample else "sample"
    code = {
        "log_prob": ("d.log_prob(x)", "d.log_prob(x)"),
        "sample": ("d.sample()", f"d.{draw}()"),
        "gradient": ("kind(*given).sample().sum().backward()", "kind(*given).rsample().sum().backward()"),
        "made": ("kind(*given).log_prob(x)", "kind(*given).log_prob(x)"),
    }[method]
    if method == "gradient":
        for t in (*ours, *theirs):
            t.requires_grad_()
    return {
        "wengert": statement(code[0], {"d": d, "x": x, "kind": kind, "given": ours}),
        PYTORCH: statement(code[1], {"d": e, "x": y, "kind": peer, "given": theirs}),
    }


def timed(family: str, method: str, n: int, rounds: int) -> Row:
    """One row."""
    timings, load = interleave(calls(family, method, n), rounds)
    return timed_row(title(family, method, n), timings, load, goals={PYTORCH: GOALS[n]})


def title(family: str, method: str, n: int) -> str:
    """The name of a row."""
    what = {"gradient": " made, sampled, differentiated", "made": " made, then log_prob"}.get(method, f".{method}")
    return f"{family}{what}, {n:,}"


def wanted() -> list[tuple[str, str, int]]:
    """All rows, small and large."""
    return [(f, m, n) for n in GOALS for m in METHODS for f in FAMILIES if f in FEW.get(m, FAMILIES)]


def main() -> None:
    """Run the rows that were asked for; all by default."""
    names = {title(*row): row for row in wanted()}
    options = command_line.parse("benchmarks.stats", __doc__, names, rounds=5, listed=FAMILIES)
    rows = []
    for name in options.rows:
        rows.append(timed(*names[name], options.rounds))
        print(
            f"{name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit} ({rows[-1].ratios[PYTORCH]:.2f}x)", flush=True
        )
    measure.show(rows)
    if not options.dry:
        measure.write("stats", "Distributions beside PyTorch", rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
