"""Recurrent cells, and layers of them over whole sequences, in PyTorch's layout of gates and weights."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.joining import flip, stack
from wengert.functional.linear import linear
from wengert.ops.shape import zeros_like
from wengert.tensors.arguments import as_floating, as_tensor, describe, native, promoted

_matmul, _reshape, _slice, _concat = (native(n) for n in ("matmul", "reshape", "slice", "concat"))
_sigmoid, _tanh, _relu, _lstm, _gru = (native(n) for n in ("sigmoid", "tanh", "relu", "lstm", "gru"))


def _groups(x: Tensor, count: int) -> list[Any]:
    """The last axis in `count` equal groups."""
    n = x.shape[-1] // count
    lead, steps = x.shape[:-1], (1,) * x.ndim
    return [_slice(x, (*(0,) * len(lead), k * n), (*lead, n), steps) for k in range(count)]


def _affine(x: Any, weight: Tensor, bias: Tensor | None) -> Any:
    y: Any = _matmul(x, weight, 0, 1)
    return y if bias is None else y + bias


@composite(precision="low", functions=("lstm_cell",))
def _lstm_step(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> Any:
    i, f, g, o = _groups(_affine(x, w_ih, b_ih) + _affine(h, w_hh, b_hh), 4)
    c = _sigmoid(f) * c + _sigmoid(i) * _tanh(g)
    return _sigmoid(o) * _tanh(c), c


@composite(precision="low", functions=("gru_cell",))
def _gru_step(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Any:
    (r, z, n), (p, q, m) = _groups(_affine(x, w_ih, b_ih), 3), _groups(_affine(h, w_hh, b_hh), 3)
    candidate = _tanh(n + _sigmoid(r + p) * m)
    update = _sigmoid(z + q)
    return candidate + update * (h - candidate)


@composite(precision="low", functions=("rnn_cell",))
def _rnn_step(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, relu: bool
) -> Any:
    y = _affine(x, w_ih, b_ih) + _affine(h, w_hh, b_hh)
    return _relu(y) if relu else _tanh(y)


@composite(precision="low", functions=("rnn",))
def _rnn_step_of_projected(x: Tensor, h: Tensor, w_hh: Tensor, relu: bool) -> Any:
    y = x + _matmul(h, w_hh, 0, 1)
    return _relu(y) if relu else _tanh(y)


def is_relu(nonlinearity: str, name: str) -> bool:
    """Whether it is "relu" and not "tanh"."""
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f"{name}: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
    return nonlinearity == "relu"


def _cell_operands(name: str, groups: int, x: Any, state: tuple[Any, ...], parameters: tuple[Any, ...]) -> list[Any]:
    """Tensors in one dtype, checked: x (batch, input), states (batch, hidden), weights and biases."""
    given = [None if a is None else as_floating(as_tensor(a, name)) for a in (x, *state, *parameters)]
    present = promoted([a for a in given if a is not None])
    tensors = iter(present)
    all_ = [None if a is None else next(tensors) for a in given]
    n = len(state)
    t, states, (w_ih, w_hh, b_ih, b_hh) = all_[0], all_[1 : n + 1], all_[n + 1 :]
    assert t is not None and w_ih is not None and w_hh is not None
    hidden = w_hh.shape[-1]
    fits = t.ndim == 2 and all(s is not None and tuple(s.shape) == (t.shape[0], hidden) for s in states)
    fits = (
        fits and tuple(w_ih.shape) == (groups * hidden, t.shape[1]) and tuple(w_hh.shape) == (groups * hidden, hidden)
    )
    if not fits or any(b is not None and tuple(b.shape) != (groups * hidden,) for b in (b_ih, b_hh)):
        shapes = ", ".join(describe(a) for a in all_ if a is not None)
        raise ShapeError(
            f"{name}: x is (batch, input), states (batch, hidden), weights ({groups} hidden, input) and "
            f"({groups} hidden, hidden), biases ({groups} hidden,); got {shapes}"
        )
    return all_


def lstm_cell(
    x: Any, state: tuple[Any, Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: (h, c) from x and the state before, as one fused program (Hochreiter and Schmidhuber, 1997).

    Gates i, f, g, o of x w_ihᵀ + b_ih + h w_hhᵀ + b_hh: c = σ(f) c + σ(i) tanh(g), h = σ(o) tanh(c).

    >>> import wengert as wg
    >>> h, c = lstm_cell(wg.ones((2, 3)), (wg.zeros((2, 4)), wg.zeros((2, 4))), wg.ones((16, 3)), wg.ones((16, 4)))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """
    made: tuple[Tensor, Tensor] = _lstm_step(*_cell_operands("lstm_cell", 4, x, tuple(state), (w_ih, w_hh, b_ih, b_hh)))
    return made


def gru_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """One step of a GRU: h from x and the state before, as one fused program (Cho et al., 2014).

    Gates r, z, n: n = tanh(xₙ + σ(r) hₙ), h = (1 − σ(z)) n + σ(z) h; hₙ is the hidden state's share with its bias.

    >>> import wengert as wg
    >>> gru_cell(wg.ones((2, 3)), wg.zeros((2, 4)), wg.ones((12, 3)), wg.ones((12, 4))).shape
    (2, 4)
    """
    made: Tensor = _gru_step(*_cell_operands("gru_cell", 3, x, (h,), (w_ih, w_hh, b_ih, b_hh)))
    return made


def rnn_cell(
    x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, *, nonlinearity: str = "tanh"
) -> Tensor:
    """One step of a simple recurrent network: tanh(x w_ihᵀ + b_ih + h w_hhᵀ + b_hh), or relu of it (Elman, 1990).

    >>> import wengert as wg
    >>> rnn_cell(wg.ones((2, 3)), wg.zeros((2, 4)), wg.ones((4, 3)), wg.ones((4, 4))).shape
    (2, 4)
    """
    relu = is_relu(nonlinearity, "rnn_cell")
    t, before, *weights = _cell_operands("rnn_cell", 1, x, (h,), (w_ih, w_hh, b_ih, b_hh))
    made: Tensor = _rnn_step(t, before, weights[0], weights[1], weights[2], weights[3], relu)
    return made


def rnn_layer(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
    relu: bool,
) -> Tensor:
    """h of all steps of x (steps, batch, input); `reverse` goes from the last step to the first."""
    projected = linear(x, w_ih, b_ih if b_ih is None or b_hh is None else b_ih + b_hh)
    steps = int(x.shape[0])
    h, made = h0, []
    for t in reversed(range(steps)) if reverse else range(steps):
        h = _rnn_step_of_projected(projected[t], h, w_hh, relu)
        made.append(h)
    return stack(made[::-1] if reverse else made, axis=0)


def _no_bias(weight: Tensor) -> Any:
    """Zeros for the rows of a weight."""
    rows = weight.shape[0]
    return zeros_like(_reshape(_slice(weight, (0, 0), (rows, 1), (1, 1)), (rows,)))


@composite(precision="low", functions=("lstm",))
def lstm_layer(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
) -> Any:
    """h and c of all steps of x (steps, batch, input); `reverse` goes from the last step to the first."""
    bias = _no_bias(w_hh) if b_ih is None or b_hh is None else b_ih + b_hh
    made: Any = _lstm(flip(x, axis=0) if reverse else x, h0, c0, w_ih, w_hh, bias)
    return tuple(flip(y, axis=0) if reverse else y for y in made[:2])


@composite(precision="low", functions=("gru",))
def gru_layer(
    x: Tensor, h0: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, reverse: bool
) -> Any:
    """h of all steps of x (steps, batch, input); `reverse` goes from the last step to the first."""
    first = _no_bias(w_hh) if b_ih is None else b_ih
    (r, z, n), (p, q, m) = _groups(first, 3), _groups(_no_bias(w_hh) if b_hh is None else b_hh, 3)
    h: Any = _gru(flip(x, axis=0) if reverse else x, h0, w_ih, w_hh, _concat([r + p, z + q, n, m], 0))
    return flip(h[0], axis=0) if reverse else h[0]
