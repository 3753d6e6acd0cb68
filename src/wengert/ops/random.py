"""Random numbers: counter-based (Philox), so that an instruction carries all it needs to draw the same again."""

from __future__ import annotations

from wengert.ops.registry import define
from wengert.ops.samples import Sample

random_uniform = define(
    "random_uniform",
    formula="uniform on [0, 1)",
    samples=[Sample((), ((3, 4), 11, (1, 2), (0,)), gradients=False)],
    dear=True,
    public=False,
)
random_normal = define(
    "random_normal",
    formula="standard normal",
    samples=[Sample((), ((3, 4), 11, (1, 2), (0,)), gradients=False)],
    dear=True,
    public=False,
)
random_integers = define(
    "random_integers",
    formula="uniform integers in [low, high)",
    samples=[Sample((), ((3, 4), (1, 2), (0,), (0,), (10,)), gradients=False)],
    dear=True,
    public=False,
)
