"""Recurrent layers over sequences, with PyTorch's weights: state dicts map one to one."""

from __future__ import annotations

import math
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.dropout import check_probability
from wengert.functional.recurrent import gru_layer, is_relu, lstm_layer, rnn_layer
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tensors.arguments import describe
from wengert.tensors.creation import zeros
from wengert.tensors.device import like
from wengert.tensors.random import Generator, uniform


class _Recurrent(Module):
    """Layers and directions of one kind of cell. Subclasses say how many groups of gates there are, and run a layer."""

    groups: int
    states: int  # tensors of which a state consists

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        name = type(self).__name__
        if min(input_size, hidden_size, num_layers) < 1:
            raise ArgumentError(
                f"{name}: sizes must be positive, got input_size={input_size}, hidden_size={hidden_size}, "
                f"num_layers={num_layers}"
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = check_probability(dropout, name)
        bound, rows = 1.0 / math.sqrt(hidden_size), self.groups * hidden_size

        def start(*shape: int) -> Parameter:
            return Parameter._owning(uniform(-bound, bound, shape, dtype=dtype, generator=generator))

        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * self.directions
            for suffix in self._suffixes(layer):
                setattr(self, f"weight_ih{suffix}", start(rows, width))
                setattr(self, f"weight_hh{suffix}", start(rows, hidden_size))
                if bias:
                    setattr(self, f"bias_ih{suffix}", start(rows))
                    setattr(self, f"bias_hh{suffix}", start(rows))

    @property
    def directions(self) -> int:
        """2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def _weights(self, suffix: str) -> list[Any]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return [getattr(self, name + suffix) if self.bias or "weight" in name else None for name in names]

    def _run(self, x: Any, state: list[Any], weights: list[Any], reverse: bool) -> tuple[Any, ...]:
        """All states of all steps of one layer in one direction, h first; LSTM and GRU write it."""
        raise NotImplementedError(f"{type(self).__name__} does not define _run")

    def _prepared(self, x: Tensor, state: Any) -> tuple[Any, list[Any], bool]:
        """x as (steps, batch, input), the initial states as (layers · directions, batch, hidden), and whether x was one
        sequence without a batch."""
        name = type(self).__name__
        single = x.ndim == 2
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            axes = "(batch, steps, input)" if self.batch_first else "(steps, batch, input)"
            raise ShapeError(
                f"{name}: x must be {axes} or (steps, input), with input_size {self.input_size}, got {describe(x)}"
            )
        if single:
            x = F.expand_dims(x, axis=1)
        elif self.batch_first:
            x = F.swapaxes(x, 0, 1)
        if x.shape[0] == 0:
            raise ShapeError(f"{name}: needs at least one step, got {describe(x)}")
        shape = (self.num_layers * self.directions, x.shape[1], self.hidden_size)
        if state is None:
            return x, [zeros(shape, dtype=x.dtype, device=like(x)) for _ in range(self.states)], single
        states = [F.expand_dims(s, axis=1) if single else s for s in (state if self.states > 1 else [state])]
        for s in states:
            if tuple(s.shape) != shape:
                raise ShapeError(f"{name}: a state must have shape {shape}, got {describe(s)}")
        return x, states, single

    def forward(self, x: Tensor, state: Any = None) -> tuple[Any, Any]:
        """(h of all steps of the last layer, the state after the last step); see the class."""
        y, initial, single = self._prepared(x, state)
        last: list[list[Any]] = [[] for _ in range(self.states)]
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                y = F.dropout(y, self.dropout)
            outputs = []
            for k, suffix in enumerate(self._suffixes(layer)):
                start = [s[layer * self.directions + k] for s in initial]
                made = self._run(y, start, self._weights(suffix), k == 1)
                outputs.append(made[0])
                for kept, sequence in zip(last, made):
                    kept.append(sequence[0 if k else -1])
            y = outputs[0] if len(outputs) == 1 else F.concat(outputs, axis=-1)
        final = [F.stack(s, axis=0) for s in last]
        if single:
            y, final = F.squeeze(y, axis=1), [F.squeeze(s, axis=1) for s in final]
        elif self.batch_first:
            y = F.swapaxes(y, 0, 1)
        return y, tuple(final) if self.states > 1 else final[0]

    def extra_repr(self) -> str:
        """Sizes and what differs from the defaults."""
        options = [f"num_layers={self.num_layers}"] if self.num_layers > 1 else []
        options += [f"{n}=True" for n in ("batch_first", "bidirectional") if getattr(self, n)]
        options += [f"dropout={self.dropout}"] if self.dropout else []
        return ", ".join([str(self.input_size), str(self.hidden_size), *options])


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997): `y, (h, c) = lstm(x)` or `lstm(x, (h0, c0))`.

    x is (steps, batch, input), (batch, steps, input) with `batch_first`, or (steps, input); states are (layers ·
    directions, batch, hidden). All steps of a layer run as one op. `dropout` is between layers, while training.

    >>> import wengert as wg
    >>> y, (h, c) = LSTM(3, 4, batch_first=True)(wg.ones((2, 5, 3)))
    >>> y.shape, h.shape, c.shape
    ((2, 5, 4), (1, 2, 4), (1, 2, 4))
    """

    groups, states = 4, 2

    def _run(self, x: Any, state: list[Any], weights: list[Any], reverse: bool) -> tuple[Any, ...]:
        (h, c), (w_ih, w_hh, b_ih, b_hh) = state, weights
        made: tuple[Any, ...] = lstm_layer(x, h, c, w_ih, w_hh, b_ih, b_hh, reverse)
        return made


class GRU(_Recurrent):
    """Gated recurrent units (Cho et al., 2014): `y, h = gru(x)` or `gru(x, h0)`. Shapes are those of `LSTM`.

    >>> import wengert as wg
    >>> y, h = GRU(3, 4, num_layers=2, bidirectional=True)(wg.ones((5, 2, 3)))
    >>> y.shape, h.shape
    ((5, 2, 8), (4, 2, 4))
    """

    groups, states = 3, 1

    def _run(self, x: Any, state: list[Any], weights: list[Any], reverse: bool) -> tuple[Any, ...]:
        (h,), (w_ih, w_hh, b_ih, b_hh) = state, weights
        return (gru_layer(x, h, w_ih, w_hh, b_ih, b_hh, reverse),)


class RNN(_Recurrent):
    """Simple recurrent networks (Elman, 1990): `y, h = rnn(x)` or `rnn(x, h0)`. Shapes are those of `LSTM`.

    `nonlinearity` is "tanh" or "relu".

    >>> import wengert as wg
    >>> y, h = RNN(3, 4, nonlinearity="relu")(wg.ones((5, 2, 3)))
    >>> y.shape, h.shape
    ((5, 2, 4), (1, 2, 4))
    """

    groups, states = 1, 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        is_relu(nonlinearity, "RNN")
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, num_layers, **options)

    def _run(self, x: Any, state: list[Any], weights: list[Any], reverse: bool) -> tuple[Any, ...]:
        (h,), (w_ih, w_hh, b_ih, b_hh) = state, weights
        return (rnn_layer(x, h, w_ih, w_hh, b_ih, b_hh, reverse, self.nonlinearity == "relu"),)


class _Cell(Module):
    """One step of a recurrent layer. Subclasses say how many groups of gates there are, and run the step."""

    groups: int

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        if min(input_size, hidden_size) < 1:
            raise ArgumentError(
                f"{type(self).__name__}: sizes must be positive, got input_size={input_size}, hidden_size={hidden_size}"
            )
        self.input_size, self.hidden_size = input_size, hidden_size
        bound, rows = 1.0 / math.sqrt(hidden_size), self.groups * hidden_size

        def start(*shape: int) -> Parameter:
            return Parameter._owning(uniform(-bound, bound, shape, dtype=dtype, generator=generator))

        self.weight_ih, self.weight_hh = start(rows, input_size), start(rows, hidden_size)
        self.bias_ih = start(rows) if bias else None
        self.bias_hh = start(rows) if bias else None

    def _step(self, x: Tensor, state: list[Any]) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define _step")

    def _weights(self) -> tuple[Any, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _stepped(self, x: Tensor, state: Any, count: int) -> list[Any]:
        """The states after the step, of x with a batch or without."""
        single = x.ndim == 1
        x = F.expand_dims(x, axis=0) if single else x
        if state is None:
            states = [zeros((x.shape[0], self.hidden_size), dtype=x.dtype, device=like(x))] * count
        else:
            states = [F.expand_dims(s, axis=0) if single else s for s in state]
        made = self._step(x, states)
        return [F.squeeze(s, axis=0) for s in made] if single else made

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias_ih is not None else ", bias=False")


class LSTMCell(_Cell):
    """One step of an LSTM: `h, c = cell(x)` or `cell(x, (h, c))`, of x (batch, input) or (input,); see `lstm_cell`.

    >>> import wengert as wg
    >>> h, c = LSTMCell(3, 4)(wg.ones((2, 3)))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    groups = 4

    def _step(self, x: Tensor, state: list[Any]) -> list[Any]:
        return list(F.lstm_cell(x, (state[0], state[1]), *self._weights()))

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        """The state after the step."""
        h, c = self._stepped(x, state, 2)
        return h, c


class GRUCell(_Cell):
    """One step of a GRU: `h = cell(x)` or `cell(x, h)`, of x (batch, input) or (input,); see `gru_cell`.

    >>> import wengert as wg
    >>> GRUCell(3, 4)(wg.ones((2, 3))).shape
    (2, 4)
    """

    groups = 3

    def _step(self, x: Tensor, state: list[Any]) -> list[Any]:
        return [F.gru_cell(x, state[0], *self._weights())]

    def forward(self, x: Tensor, h: Any = None) -> Tensor:
        """The state after the step."""
        (made,) = self._stepped(x, None if h is None else [h], 1)
        return made  # type: ignore[no-any-return]


class RNNCell(_Cell):
    """One step of a simple recurrent network: `h = cell(x)` or `cell(x, h)`; see `rnn_cell`.

    >>> import wengert as wg
    >>> RNNCell(3, 4, nonlinearity="relu")(wg.ones((2, 3))).shape
    (2, 4)
    """

    groups = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        is_relu(nonlinearity, "RNNCell")
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, **options)

    def _step(self, x: Tensor, state: list[Any]) -> list[Any]:
        return [F.rnn_cell(x, state[0], *self._weights(), nonlinearity=self.nonlinearity)]

    def forward(self, x: Tensor, h: Any = None) -> Tensor:
        """The state after the step."""
        (made,) = self._stepped(x, None if h is None else [h], 1)
        return made  # type: ignore[no-any-return]
