"""Moving averages of weights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import DType
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.optim.update import state_dtype, update_program
from wengert.program.call_trace import CallTrace, call_trace
from wengert.tensors.arguments import as_dtype_of
from wengert.tensors.conversion import asarray, tensor


def _average(average: Any, weight: Any, rate: Any) -> tuple[Any, ...]:
    return (average + (weight - average) * rate,)


class EMA:
    """The exponential moving average of weights, a ← d a + (1 − d) p, from the weights at the start.

    `warmup` uses min(d, (1 + t)/(10 + t)) at update t, so that the start is forgotten soon. `debias` forgets it at once:
    the average is that of the weights at the updates alone, as Adam corrects its moments. Buffers are not averaged.

    >>> import wengert as wg
    >>> net = wg.nn.Linear(2, 1)
    >>> ema = EMA(net, decay=0.9)
    >>> wg.nn.init.ones(net.weight).shape, ema.update()
    ((1, 2), None)
    >>> with ema.swapped():  # evaluate with the averages
    ...     y = net(wg.ones((1, 2)))
    >>> net.weight.tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, weights: Any, decay: float = 0.999, *, warmup: bool = False, debias: bool = False) -> None:
        if not 0.0 <= decay < 1.0:
            raise ArgumentError(f"EMA: decay must be in [0, 1), got {decay}")
        self.decay, self.warmup, self.debias = decay, warmup, debias
        self.steps, self._weight_of_start = 0, 1.0
        self._names, self._weights = _named(weights)
        wide = [state_dtype(p.dtype) for p in self._weights]
        self._averages = [tensor(p.detach(), dtype=d, requires_grad=False) for p, d in zip(self._weights, wide)]
        self._by_dtype: dict[DType, list[int]] = {}
        for k, d in enumerate(wide):
            self._by_dtype.setdefault(d, []).append(k)

    def update(self) -> None:
        """Take the present weights into the averages; in place, one native call for all weights of a dtype."""
        trace = call_trace()
        if trace is not None:
            return self._update_in_trace(trace)
        self._advance()
        rate = self._rate()
        for dtype, chosen in self._by_dtype.items():
            weights = [self._weights[k].detach() for k in chosen]
            weights = [p if p.dtype == dtype else p.astype(dtype) for p in weights]
            averages = [self._averages[k] for k in chosen]
            program = update_program(_average, dtype, 0, 1)
            _core.update_in_place(program, averages, weights, [[] for _ in chosen], (rate,), dtype.code, None)

    def _decay(self) -> float:
        t = self.steps
        return min(self.decay, (1.0 + t) / (10.0 + t)) if self.warmup else self.decay

    def _advance(self) -> None:
        self.steps += 1
        self._weight_of_start *= self._decay()

    def _rate(self) -> float:
        """How much of the difference to the weights this update takes."""
        decay = self._decay()
        return (1.0 - decay) / (1.0 - self._weight_of_start) if self.debias else 1.0 - decay

    def _saved(self) -> Callable[[], None]:
        """What takes later updates back."""
        steps, weight = self.steps, self._weight_of_start

        def restore() -> None:
            self.steps, self._weight_of_start = steps, weight

        return restore

    def _update_in_trace(self, trace: CallTrace) -> None:
        """`update` in every call of the function that is traced; where other averages were loaded, it is traced anew."""
        known = self._averages
        trace.checks.append(lambda: self._averages is known)
        trace.act(self._advance, self._saved)
        for dtype, chosen in self._by_dtype.items():
            (rate,) = trace.scalars(lambda: [self._rate()], 1, dtype)
            with no_grad():
                for k in chosen:
                    (new,) = _average(self._averages[k], as_dtype_of(self._weights[k], dtype), rate)
                    self._averages[k]._assign(new, "EMA")

    def averages(self) -> dict[str, Tensor]:
        """The averages by name; half precision is averaged in float32."""
        return dict(zip(self._names, self._averages))

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the weights are their averages; afterwards they are what they were, to the bit."""
        kept = [_core.copy(p.detach()) for p in self._weights]
        self.copy_to_weights()
        try:
            yield
        finally:
            self._write(kept)

    def copy_to_weights(self) -> None:
        """Make the averages the weights, for good."""
        self._write(self._averages)

    def _write(self, values: Iterable[Tensor]) -> None:
        with no_grad():
            for p, v in zip(self._weights, values):
                p._assign(_core.copy(v) if v.dtype == p.dtype else v.astype(p.dtype), "EMA")

    def state_dict(self) -> dict[str, Any]:
        """Step count and copies of the averages."""
        copies = {name: tensor(a) for name, a in self.averages().items()}
        return {"steps": self.steps, "weight_of_start": self._weight_of_start, "averages": copies}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned. The error names everything that does not fit at once."""
        given, own = state["averages"], self.averages()
        problems = [f"missing: {n}" for n in own if n not in given] + [
            f"unexpected: {n}" for n in given if n not in own
        ]
        problems += [
            f"mismatched: {n} has shape {tuple(a.shape)}, the state {tuple(given[n].shape)}"
            for n, a in own.items()
            if n in given and tuple(given[n].shape) != tuple(a.shape)
        ]
        if problems:
            raise ArgumentError("EMA.load_state_dict: the state does not fit:\n  " + "\n  ".join(problems))
        self.steps, self._weight_of_start = int(state["steps"]), float(state["weight_of_start"])
        self._averages = [tensor(asarray(given[n]), dtype=a.dtype, requires_grad=False) for n, a in own.items()]


def _named(weights: Any) -> tuple[list[str], list[Tensor]]:
    """Names and tensors of a module, of (name, tensor) pairs, or of tensors."""
    listed = list(weights.named_parameters() if hasattr(weights, "named_parameters") else weights)
    pairs = [x if isinstance(x, tuple) else (str(k), x) for k, x in enumerate(listed)]
    if not pairs:
        raise ArgumentError("EMA: there are no weights")
    return [n for n, _ in pairs], [p for _, p in pairs]
