"""Random numbers: counter-based (Philox), so that an instruction carries all it needs to draw the same again."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.dtypes import float32
from wengert.ops.registry import Op, define
from wengert.ops.samples import Invalid, Sample, exactly, real, whole

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


def _np_dropout(x: Any, p: float, key: Any, counter: Any) -> Any:
    drawn = np.asarray(random_uniform(x.shape, float32.code, key, counter))
    return np.where(drawn >= np.float32(p), x / (1.0 - p), 0.0)


random_dropout: Op = define(
    "random_dropout",
    formula="x / (1 − p), or 0 where a uniform number is less than p; the numbers are drawn again, not kept",
    reference=_np_dropout,
    jvp="linear",
    transpose=lambda y_bar, x, p, key, counter: random_dropout(y_bar, p, key, counter),
    samples=[
        Sample((real(7, 5),), (0.3, (1, 2), (3,))),
        Sample((real(67),), (0.0, (1, 2), (0,))),
        Sample((real(),), (0.5, (1, 3), (0,))),
        Sample((real(0, 4),), (0.5, (1, 2), (0,))),
        Sample((exactly(np.inf, np.nan, -np.inf, 1.0),), (0.5, (3, 2), (0,)), gradients=False),
    ],
    invalid=[
        Invalid((real(3),), (1.0, (1, 2), (0,)), "ArgumentError", "[0, 1)"),
        Invalid((whole(3),), (0.5, (1, 2), (0,)), "DTypeError", "floating"),
    ],
    public=False,
)
