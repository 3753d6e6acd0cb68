"""Loss scaling inside compiled functions: whether a step takes effect is a value of the program."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.dtypes import bool_, float64
from wengert.errors import TraceError
from wengert.functional.joining import stack
from wengert.optim.master_weights import MasterWeights
from wengert.optim.optimizer import Optimizer
from wengert.program.call_trace import CallTrace, StepCondition, call_trace
from wengert.program.trace import untraced
from wengert.tensors.arguments import as_dtype_of, native
from wengert.tensors.creation import zeros
from wengert.tensors.device import like

if TYPE_CHECKING:
    from wengert.optim.scaler import GradScaler

_isfinite = native("isfinite")


class TracedScaling:
    """What a scaler does in a function that is being compiled.

    The scale is read when a call begins. A step computes its new values in any case, and keeps the old ones where a
    gradient is not finite. After the call the scaler reads which gradients these were, counts, and adapts the scale.
    """

    def __init__(self, scaler: GradScaler, trace: CallTrace) -> None:
        self.unscaled: list[Any] = []  # optimizers and maps, by this function
        self._scaler, self._trace = scaler, trace
        self._stepped: list[tuple[Any, bool]] = []  # optimizers, and whether they were unscaled before the call
        self._updated = False
        # What is called later must not hold the trace.
        self._scale, self._inverse = trace.scalars(partial(_read, scaler, self._stepped), 2, float64)

    def factor(self, dtype: Any) -> Tensor:
        """What losses are multiplied by."""
        self._require_no_update("scale")
        return as_dtype_of(self._scale, dtype)

    def inverse(self, dtype: Any) -> Tensor:
        """What gradients are multiplied by."""
        return as_dtype_of(self._inverse, dtype)

    def unscale(self, source: Any) -> None:
        """Note that the gradients of an optimizer or a map are unscaled from here on."""
        self.unscaled.append(source)
        if not isinstance(source, GradientMap):
            self._trace.commits[self, id(source)] = partial(self._scaler._note_unscaled, source)

    def step(self, optimizer: Any, parameters: list[Tensor], given: GradientMap) -> Tensor:
        """The step of an optimizer, if all gradients of the parameters are finite; whether they are."""
        self._require_no_update("step")
        if not isinstance(optimizer, Optimizer | MasterWeights):
            raise TraceError(
                f"GradScaler.step: a compiled function cannot skip steps of {type(optimizer).__name__}, which keeps state "
                "in Python; call step outside compiled functions"
            )
        if any(o is optimizer for o, _ in self._stepped):
            self._scaler._refuse_second_step()
        self._stepped.append((optimizer, _is_unscaled(self._scaler, optimizer)))
        with untraced():
            kept = zeros((len(parameters),), dtype=bool_, device=like(parameters[0]))
        finite = stack([_isfinite(given[p]).all() for p in parameters])
        kept._assign(finite, "step")  # for after the call
        holds = finite.all()
        self._trace.condition = StepCondition(holds, lambda: all(kept.tolist()))
        try:
            optimizer.step(given)
        finally:
            self._trace.condition = None

        self._trace.commits[self, optimizer] = partial(_settle, self._scaler, optimizer, parameters, kept)
        return holds

    def update(self) -> None:
        """Adapt the scale after the call."""
        self._require_no_update("update")
        self._updated = True
        self._trace.commits[self, "update"] = self._scaler.update

    def _require_no_update(self, method: str) -> None:
        if self._updated:
            raise TraceError(
                f"GradScaler.{method}: called after update in the same compiled function, whose calls adapt the scale when "
                "they end; compile one step, and loop outside"
            )


def _read(scaler: GradScaler, stepped: list[tuple[Any, bool]]) -> tuple[float, float] | None:
    """The scale of a call and its inverse; None if the function was traced for gradients in another state."""
    for optimizer, unscaled in stepped:
        scaler._require_no_step(optimizer)
        if _is_unscaled(scaler, optimizer) is not unscaled:
            return None
    return scaler.get_scale(), 1.0 / scaler.get_scale()


def _is_unscaled(scaler: GradScaler, optimizer: Any) -> bool:
    """Whether its gradients were unscaled before the call."""
    return any(x is optimizer for x in scaler._unscaled)


def _settle(scaler: GradScaler, optimizer: Any, parameters: list[Tensor], finite: Tensor) -> None:
    """Tell the scaler, after a call, which gradients were finite."""
    scaler._settle(optimizer, len(parameters), [p for p, ok in zip(parameters, finite.tolist()) if not ok])


def traced_scaling(scaler: GradScaler) -> TracedScaling | None:
    """The part of a scaler in the function that is being compiled; None outside of one."""
    trace = call_trace()
    if trace is None:
        return None
    known = trace.notes.get(scaler)
    if known is None:
        known = trace.notes[scaler] = TracedScaling(scaler, trace)
    return known
