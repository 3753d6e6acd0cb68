"""Random numbers: counter-based (Philox), so that an instruction carries all it needs to draw the same again."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.dtypes import ALL as DTYPES
from wengert.dtypes import complex128, float32, float64, int64
from wengert.passes.example_axis import all_mapped, count
from wengert.program.trace import create
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, exactly, real, whole

# Each example draws from counters of its own, which follow those of the one before: a whole number of them.


def _per_counter(dtype: int) -> int:
    """How many numbers one counter gives, as `random_counters` in core/kernels/random.h."""
    t = DTYPES[dtype]
    return (2 if t in (float64, complex128, int64) else 4) // (2 if t.kind == "c" else 1)


def _draw_examples(op: Op, size: Any, attrs: dict[str, Any]) -> Any:
    shape, *rest = attrs.values()
    per, n = _per_counter(attrs.get("dtype", int64.code)), count(shape)
    padded = (n + per - 1) // per * per
    y = create(op, ((size, padded), *rest))
    return OPS["reshape"](_cut(y, n), (size, *shape))


def _cut(rows: Any, n: Any) -> Any:
    return rows if rows.shape[1] == n else OPS["slice"](rows, (0, 0), (rows.shape[0], n), (1, 1))


def _drop_examples(size: Any, mapped: Any, x: Any, p: float, key: Any, counter: Any) -> Any:
    (x,) = all_mapped(size, mapped, (x,))
    n = count(x.shape[1:])
    padded = (n + 3) // 4 * 4
    rows = OPS["reshape"](x, (size, n))
    if padded != n:
        rows = OPS["concat"]([rows, create(OPS["full"], ((size, padded - n), x.dtype.code, 0.0))], 1)
    return OPS["reshape"](_cut(random_dropout(rows, p, key, counter), n), x.shape)


def _dropped(x: Any, p: float, key: Any, counter: Any) -> Any:
    return x * random_dropout(create(OPS["full"], (x.shape, x.dtype.code, 1.0)), p, key, counter)


_drop_examples.meaning = _dropped  # type: ignore[attr-defined]  # where all examples draw the same


random_uniform: Op = define(
    "random_uniform",
    formula="uniform on [0, 1)",
    vmap=lambda size, mapped, **attrs: _draw_examples(random_uniform, size, attrs),
    samples=[Sample((), ((3, 4), 11, (1, 2), (0,)), gradients=False)],
    expensive=True,
    public=False,
)
random_normal: Op = define(
    "random_normal",
    formula="standard normal",
    vmap=lambda size, mapped, **attrs: _draw_examples(random_normal, size, attrs),
    samples=[Sample((), ((3, 4), 11, (1, 2), (0,)), gradients=False)],
    expensive=True,
    public=False,
)
random_integers: Op = define(
    "random_integers",
    formula="uniform integers in [low, high)",
    vmap=lambda size, mapped, **attrs: _draw_examples(random_integers, size, attrs),
    samples=[Sample((), ((3, 4), (1, 2), (0,), (0,), (10,)), gradients=False)],
    expensive=True,
    public=False,
)


def _np_dropout(x: Any, p: float, key: Any, counter: Any) -> Any:
    drawn = np.asarray(random_uniform(x.shape, float32.code, key, counter))
    return np.where(drawn >= np.float32(p), x / (1.0 - p), 0.0)


random_dropout: Op = define(
    "random_dropout",
    where_zero="all elements were dropped",
    formula="x / (1 − p), or 0 where a uniform number is less than p; the numbers are drawn again, not kept",
    reference=_np_dropout,
    jvp="linear",
    transpose=lambda y_bar, x, p, key, counter: random_dropout(y_bar, p, key, counter),
    sparsity="elementwise",
    vmap=_drop_examples,
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
