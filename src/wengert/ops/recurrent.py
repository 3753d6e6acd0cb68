"""LSTM and GRU over whole sequences (Hochreiter and Schmidhuber, 1997; Cho et al., 2014): one op for all steps.

The tangents of the input, the weights and the bias enter through those of the gates at all steps at once, so that
every gradient but that of the initial state is one matrix product or one sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.activations import sigmoid
from wengert.ops.blocked import filled, jvp_of_linear, transpose_by
from wengert.ops.matmul import matmul
from wengert.ops.shape import broadcast_to, concat, repeated_zeros, reshape, slice, zeros_like
from wengert.ops.sparsity import through
from wengert.ops.transcendental import tanh
from wengert.ops.work import of_steps
from wengert.passes.batch import by_meaning
from wengert.passes.example_axis import merge, spread, unmerge
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, real
from wengert.registry.zero import ZERO

# ------------------------------------------------------------------------------------------------- parts of arrays


def _before(x: Any, initial: Any) -> Any:
    """The states before each step: the initial one, then all but the last."""
    steps, batch, n = x.shape
    first = reshape(initial, (1, batch, n))
    return concat([first, slice(x, (0, 0, 0), (steps - 1, batch, n), (1, 1, 1))], 0)


def _times(x: Any, w: Any) -> Any:
    """x wᵀ of (steps, batch, n)."""
    steps, batch, n = x.shape
    return reshape(matmul(reshape(x, (steps * batch, n)), w, 0, 1), (steps, batch, w.shape[0]))


def _at(x: Any, t: int) -> Any:
    """One step, as a matrix."""
    return reshape(slice(x, (t, 0, 0), (1, *x.shape[1:]), (1, 1, 1)), x.shape[1:])


def _groups(x: Any, n: Any, count: int) -> list[Any]:
    """The last axis in `count` groups of n."""
    lead, steps = x.shape[:-1], (1,) * x.ndim
    return [slice(x, (*(0,) * len(lead), k * n), (*lead, n), steps) for k in range(count)]


def _stacked(xs: list[Any]) -> Any:
    return concat([reshape(x, (1, *x.shape)) for x in xs], 0)


# ------------------------------------------------------------------------------------------------------------ LSTM


def _share(x_dot: Any, w_dot: Any, x: Any, w: Any) -> Any:
    """The tangent of x wᵀ at all steps."""
    y_dot: Any = ZERO
    if x_dot is not ZERO:
        y_dot = y_dot + _times(x_dot, w)
    if w_dot is not ZERO:
        y_dot = y_dot + _times(x, w_dot)
    return y_dot


def _spread_bias(b_dot: Any, gates: Any) -> Any:
    return ZERO if b_dot is ZERO else broadcast_to(b_dot, gates.shape)


def _lstm_jvp(
    x_dot: Any, h0_dot: Any, c0_dot: Any, w_ih_dot: Any, w_hh_dot: Any, b_dot: Any,
    ys: Any, x: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    h, c, gates = ys
    pre_dot = _share(x_dot, w_ih_dot, x, w_ih) + _spread_bias(b_dot, gates)
    if w_hh_dot is not ZERO:
        pre_dot = pre_dot + _times(_before(h, h0), w_hh_dot)
    pre_dot, h0_dot, c0_dot = filled((pre_dot, h0_dot, c0_dot), (gates, h0, c0))
    h_dot, c_dot = lstm_tangent(pre_dot, h0_dot, c0_dot, w_hh, gates, c, c0)
    total = pre_dot + _times(_before(h_dot, h0_dot), w_hh)
    i, f, g, o = _groups(gates, w_hh.shape[1], 4)
    slopes = concat([i * (1.0 - i), f * (1.0 - f), 1.0 - g * g, o * (1.0 - o)], 2)
    return h_dot, c_dot, total * slopes


def _lstm_tangent(pre_dot: Any, h0_dot: Any, c0_dot: Any, w: Any, gates: Any, c: Any, c0: Any) -> tuple[Any, Any]:
    n, hs, cs = w.shape[1], [], []
    h_dot, c_dot, c_before = h0_dot, c0_dot, c0
    for t in range(int(gates.shape[0])):
        total = _at(pre_dot, t) + matmul(h_dot, w, 0, 1)
        (i, f, g, o), (di, df, dg, do) = _groups(_at(gates, t), n, 4), _groups(total, n, 4)
        c_dot = f * (1.0 - f) * df * c_before + f * c_dot + i * (1.0 - i) * di * g + i * (1.0 - g * g) * dg
        c_before = _at(c, t)
        y = tanh(c_before)
        h_dot = o * (1.0 - o) * do * y + o * (1.0 - y * y) * c_dot
        hs.append(h_dot)
        cs.append(c_dot)
    return _stacked(hs), _stacked(cs)


def _lstm_cotangent(h_bar: Any, c_bar: Any, w: Any, gates: Any, c: Any, c0: Any) -> tuple[Any, Any, Any]:
    n, bars = w.shape[1], []
    h_carry, c_carry = zeros_like(c0), zeros_like(c0)
    for t in reversed(range(int(gates.shape[0]))):
        i, f, g, o = _groups(_at(gates, t), n, 4)
        y = tanh(_at(c, t))
        h = _at(h_bar, t) + h_carry
        c_all = _at(c_bar, t) + c_carry + h * o * (1.0 - y * y)
        before = _at(c, t - 1) if t else c0
        parts = [
            c_all * g * i * (1.0 - i),
            c_all * before * f * (1.0 - f),
            c_all * i * (1.0 - g * g),
            h * y * o * (1.0 - o),
        ]
        bars.append(concat(parts, 1))
        h_carry, c_carry = matmul(bars[-1], w, 0, 0), c_all * f
    return _stacked(bars[::-1]), h_carry, c_carry


# ------------------------------------------------------------------------------------------------------------- GRU


def _spread(hidden: Any, n: Any) -> Any:
    """The hidden state's share (reset, update, candidate) in the four groups; it has none in the third."""
    a, b, c = _groups(hidden, n, 3)
    return concat([a, b, zeros_like(a), c], hidden.ndim - 1)


def _gru_jvp(
    x_dot: Any, h0_dot: Any, w_ih_dot: Any, w_hh_dot: Any, b_dot: Any,
    ys: Any, x: Any, h0: Any, w_ih: Any, w_hh: Any, b: Any,
) -> tuple[Any, Any]:  # fmt: skip
    h, gates = ys
    n = w_hh.shape[1]
    pre_dot, input_dot = _spread_bias(b_dot, gates), _share(x_dot, w_ih_dot, x, w_ih)
    if input_dot is not ZERO:
        pre_dot = pre_dot + concat([input_dot, zeros_like(h)], 2)
    if w_hh_dot is not ZERO:
        pre_dot = pre_dot + _spread(_times(_before(h, h0), w_hh_dot), n)
    pre_dot, h0_dot = filled((pre_dot, h0_dot), (gates, h0))
    h_dot = gru_tangent(pre_dot, h0_dot, w_hh, gates, h, h0)
    reset, update, made, share = _groups(gates, n, 4)
    total = pre_dot + _spread(_times(_before(h_dot, h0_dot), w_hh), n)
    reset_dot, update_dot, made_dot, share_dot = _groups(total, n, 4)
    reset_dot = reset_dot * (reset * (1.0 - reset))
    update_dot = update_dot * (update * (1.0 - update))
    made_dot = (made_dot + reset_dot * share + share_dot * reset) * (1.0 - made * made)
    return h_dot, concat([reset_dot, update_dot, made_dot, share_dot], 2)


def _gru_tangent(pre_dot: Any, h0_dot: Any, w: Any, gates: Any, h: Any, h0: Any) -> Any:
    n, hs = w.shape[1], []
    h_dot, before = h0_dot, h0
    for t in range(int(gates.shape[0])):
        reset, update, made, share = _groups(_at(gates, t), n, 4)
        a, b, c, d = _groups(_at(pre_dot, t) + _spread(matmul(h_dot, w, 0, 1), n), n, 4)
        made_dot = (c + reset * (1.0 - reset) * a * share + reset * d) * (1.0 - made * made)
        h_dot = made_dot * (1.0 - update) + update * (1.0 - update) * b * (before - made) + update * h_dot
        before = _at(h, t)
        hs.append(h_dot)
    return _stacked(hs)


def _gru_cotangent(h_bar: Any, w: Any, gates: Any, h: Any, h0: Any) -> tuple[Any, Any]:
    n, bars, carry = w.shape[1], [], zeros_like(h0)
    for t in reversed(range(int(gates.shape[0]))):
        reset, update, made, share = _groups(_at(gates, t), n, 4)
        whole = _at(h_bar, t) + carry
        before = _at(h, t - 1) if t else h0
        made_bar = whole * (1.0 - update) * (1.0 - made * made)
        a, b = made_bar * share * reset * (1.0 - reset), whole * (before - made) * update * (1.0 - update)
        bars.append(concat([a, b, made_bar, made_bar * reset], 1))
        carry = whole * update + matmul(concat([a, b, made_bar * reset], 1), w, 0, 0)
    return _stacked(bars[::-1]), carry


# ------------------------------------------------------------------------------------------------------- batching


def _lstm(x: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b: Any) -> tuple[Any, Any, Any]:
    n, made = w_hh.shape[1], []
    h, c = h0, c0
    pre = _times(x, w_ih)
    for t in range(int(x.shape[0])):
        z = _at(pre, t) + matmul(h, w_hh, 0, 1)
        i, f, g, o = _groups(z + broadcast_to(b, z.shape), n, 4)
        i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        c = f * c + i * g
        h = o * tanh(c)
        made.append((h, c, concat([i, f, g, o], 1)))
    hs, cs, gates = zip(*made)
    return _stacked(list(hs)), _stacked(list(cs)), _stacked(list(gates))


def _gru(x: Any, h0: Any, w_ih: Any, w_hh: Any, b: Any) -> tuple[Any, Any]:
    n, made, h = w_hh.shape[1], [], h0
    pre = _times(x, w_ih)
    first, second, third, fourth = _groups(b, n, 4)
    for t in range(int(x.shape[0])):
        a, d, c = _groups(_at(pre, t), n, 3)
        p, q, r = _groups(matmul(h, w_hh, 0, 1), n, 3)
        first, second, third, fourth = (broadcast_to(v, p.shape) for v in (first, second, third, fourth))
        reset, update, share = sigmoid(a + p + first), sigmoid(d + q + second), r + fourth
        candidate = tanh(c + third + reset * share)
        h = (1.0 - update) * candidate + update * h
        made.append((h, concat([reset, update, candidate, share], 1)))
    hs, gates = zip(*made)
    return _stacked(list(hs)), _stacked(list(gates))


def _of_examples(name: str, axes: tuple[int | None, ...], made: tuple[int, ...], meaning: Any) -> Any:
    """The batch rule: examples are part of the batch, which is this axis of each operand and result. Where each has a weight
    of its own (an axis of None), the steps are run one by one, for all examples at once."""

    def rule(size: Any, mapped: Any, *operands: Any) -> Any:
        if any(m and a is None for m, a in zip(mapped, axes)) and int(operands[0].shape[-3]):
            return by_meaning(meaning, size, mapped, operands, {})
        parts = [x if a is None else merge(x if m else spread(x, size), a) for x, m, a in zip(operands, mapped, axes)]
        ys = OPS[name](*parts)
        n = operands[0].shape[1 + mapped[0]]
        outputs = tuple(unmerge(y, size, n, a) for y, a in zip(ys if len(made) > 1 else (ys,), made))
        return outputs if len(made) > 1 else outputs[0]

    return rule


# ------------------------------------------------------------------------------------------- references and samples


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _np_lstm(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b: Any) -> Any:
    made = []
    for z in x:
        i, f, g, o = np.split(z @ w_ih.T + h @ w_hh.T + b, 4, -1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        made.append((h, c, np.concatenate([i, f, g, o], -1)))
    return tuple(np.stack(part) for part in zip(*made))


def _np_gru(x: Any, h: Any, w_ih: Any, w_hh: Any, b: Any) -> Any:
    made = []
    for z in x:
        first, second, third, fourth = np.split(b, 4)
        (a, d, c), (p, q, r) = np.split(z @ w_ih.T, 3, -1), np.split(h @ w_hh.T, 3, -1)
        reset, update, share = _sigmoid(a + p + first), _sigmoid(d + q + second), r + fourth
        candidate = np.tanh(c + third + reset * share)
        h = (1 - update) * candidate + update * h
        made.append((h, np.concatenate([reset, update, candidate, share], -1)))
    return tuple(np.stack(part) for part in zip(*made))


def _np_lstm_tangent(pre_dot: Any, h_dot: Any, c_dot: Any, w: Any, gates: Any, c: Any, c0: Any) -> Any:
    made = []
    for t, x in enumerate(pre_dot):
        (i, f, g, o), (p, q, r, s) = np.split(gates[t], 4, -1), np.split(x + h_dot @ w.T, 4, -1)
        y = np.tanh(c[t])
        c_dot = f * (1 - f) * q * (c[t - 1] if t else c0) + f * c_dot + i * (1 - i) * p * g + i * (1 - g * g) * r
        h_dot = o * (1 - o) * s * y + o * (1 - y * y) * c_dot
        made.append((h_dot, c_dot))
    return tuple(np.stack(part) for part in zip(*made))


def _np_gru_tangent(pre_dot: Any, h_dot: Any, w: Any, gates: Any, h: Any, h0: Any) -> Any:
    made = []
    for t, x in enumerate(pre_dot):
        (a, b, c, d), (p, q, r) = np.split(x, 4, -1), np.split(h_dot @ w.T, 3, -1)
        reset, update, candidate, share = np.split(gates[t], 4, -1)
        inner = c + reset * (1 - reset) * (a + p) * share + reset * (d + r)
        slope = (1 - candidate * candidate) * inner
        before = h[t - 1] if t else h0
        h_dot = (1 - update) * slope + update * (1 - update) * (b + q) * (before - candidate) + update * h_dot
        made.append(h_dot)
    return np.stack(made)


def _np_transpose(tangent: Any, shapes: Any) -> Any:
    """The transpose of a linear NumPy function, column by column."""

    def cotangent(bars: list[Any], rest: tuple[Any, ...]) -> Any:
        made = []
        for k, shape in enumerate(shapes(*rest)):
            g = np.zeros(shape)
            for place in np.ndindex(*shape):
                dots = [np.zeros(s) for s in shapes(*rest)]
                dots[k][place] = 1.0
                ys = tangent(*dots, *rest)
                ys = ys if isinstance(ys, tuple) else (ys,)
                g[place] = sum(np.sum(b * y) for b, y in zip(bars, ys))
            made.append(g)
        return tuple(made)

    return cotangent


_LSTM_T = _np_transpose(_np_lstm_tangent, lambda w, gates, c, c0: (gates.shape, c0.shape, c0.shape))
_GRU_T = _np_transpose(_np_gru_tangent, lambda w, gates, h, h0: (gates.shape, h0.shape))


def _open(*shape: int) -> Any:
    return real(*shape, low=0.2, high=0.8)


# (steps, batch, hidden); 18 rows are two blocks.
_SIZES = [(3, 2, 2), (1, 1, 1), (2, 18, 3)]
_WIDTHS = [3, 1, 2]  # of the input
_STATES = (real(2, 2), real(2, 2))

lstm: Op = define(
    "lstm",
    work=lambda i, made: of_steps(i, 3, 4),
    precision="low",
    formula="h, c and gates of all steps: c = f c + i g, h = o tanh c, gates of x w_ihᵀ + h w_hhᵀ + b",
    reference=_np_lstm,
    jvp=_lstm_jvp,
    vmap=_of_examples("lstm", (1, 0, 0, None, None, None), (1, 1, 1), _lstm),
    samples=[
        Sample((real(t, b, m), real(b, n), real(b, n), real(4 * n, m), real(4 * n, n), real(4 * n)))
        for (t, b, n), m in zip(_SIZES, _WIDTHS)
    ],
    invalid=[
        Invalid((real(3, 2, 5), *_STATES, real(6, 5), real(6, 2), real(8)), (), "ShapeError", "(4 hidden, hidden)"),
        Invalid((real(3, 2, 4), *_STATES, real(8, 5), real(8, 2), real(8)), (), "ShapeError", "(4 hidden, input)"),
        Invalid((real(3, 2, 5), *_STATES, real(8, 5), real(8, 2), real(6)), (), "ShapeError", "(4 hidden)"),
        Invalid((real(3, 4, 5), *_STATES, real(8, 5), real(8, 2), real(8)), (), "ShapeError", "h0"),
    ],
    expensive=True,
    public=False,
)
lstm_tangent: Op = define(
    "lstm_tangent",
    work=lambda i, made: of_steps(i, 3),
    formula="tangents of h and c of all steps",
    reference=_np_lstm_tangent,
    jvp=jvp_of_linear("lstm_tangent", 3, _lstm_tangent),
    transpose=transpose_by("lstm_cotangent", 3, lambda w, gates, c, c0: (repeated_zeros(c), repeated_zeros(c))),
    sparsity=through(_lstm_tangent),
    vmap=_of_examples("lstm_tangent", (1, 0, 0, None, 1, 1, 0), (1, 1), _lstm_tangent),
    samples=[
        Sample(
            (real(t, b, 4 * n), real(b, n), real(b, n), real(4 * n, n), _open(t, b, 4 * n), real(t, b, n), real(b, n))
        )
        for t, b, n in _SIZES
    ],
    expensive=True,
    public=False,
)
lstm_cotangent: Op = define(
    "lstm_cotangent",
    work=lambda i, made: of_steps(i, 2),
    formula="the transpose of lstm_tangent",
    reference=lambda h_bar, c_bar, *rest: _LSTM_T([h_bar, c_bar], rest),
    jvp=jvp_of_linear("lstm_cotangent", 2, _lstm_cotangent),
    transpose=transpose_by(
        "lstm_tangent", 2, lambda w, gates, c, c0: (zeros_like(gates), zeros_like(c0), zeros_like(c0))
    ),
    sparsity=through(_lstm_cotangent),
    vmap=_of_examples("lstm_cotangent", (1, 1, None, 1, 1, 0), (1, 0, 0), _lstm_cotangent),
    samples=[
        Sample((real(t, b, n), real(t, b, n), real(4 * n, n), _open(t, b, 4 * n), real(t, b, n), real(b, n)))
        for t, b, n in _SIZES
    ],
    expensive=True,
    public=False,
)
gru: Op = define(
    "gru",
    work=lambda i, made: of_steps(i, 2, 3),
    precision="low",
    formula="h and gates of all steps: h = (1 − z) n + z h, n = tanh(x + r q)",
    reference=_np_gru,
    jvp=_gru_jvp,
    vmap=_of_examples("gru", (1, 0, None, None, None), (1, 1), _gru),
    samples=[
        Sample((real(t, b, m), real(b, n), real(3 * n, m), real(3 * n, n), real(4 * n)))
        for (t, b, n), m in zip(_SIZES, _WIDTHS)
    ],
    invalid=[Invalid((real(3, 2, 5), real(2, 2), real(8, 5), real(8, 2), real(8)), (), "ShapeError", "3 hidden")],
    expensive=True,
    public=False,
)
gru_tangent: Op = define(
    "gru_tangent",
    work=lambda i, made: of_steps(i, 2),
    formula="tangents of h of all steps",
    reference=_np_gru_tangent,
    jvp=jvp_of_linear("gru_tangent", 2, _gru_tangent),
    transpose=transpose_by("gru_cotangent", 2, lambda w, gates, h, h0: (repeated_zeros(h),)),
    sparsity=through(_gru_tangent),
    vmap=_of_examples("gru_tangent", (1, 0, None, 1, 1, 0), (1,), _gru_tangent),
    samples=[
        Sample((real(t, b, 4 * n), real(b, n), real(3 * n, n), _open(t, b, 4 * n), real(t, b, n), real(b, n)))
        for t, b, n in _SIZES
    ],
    expensive=True,
    public=False,
)
gru_cotangent: Op = define(
    "gru_cotangent",
    work=lambda i, made: of_steps(i, 1),
    formula="the transpose of gru_tangent",
    reference=lambda h_bar, *rest: _GRU_T([h_bar], rest),
    jvp=jvp_of_linear("gru_cotangent", 1, _gru_cotangent),
    transpose=transpose_by("gru_tangent", 1, lambda w, gates, h, h0: (zeros_like(gates), zeros_like(h0))),
    sparsity=through(_gru_cotangent),
    vmap=_of_examples("gru_cotangent", (1, None, 1, 1, 0), (1, 0), _gru_cotangent),
    samples=[
        Sample((real(t, b, n), real(3 * n, n), _open(t, b, 4 * n), real(t, b, n), real(b, n))) for t, b, n in _SIZES
    ],
    expensive=True,
    public=False,
)
