"""Loss scaling: gradients in half precision, kept clear of underflow and overflow (Micikevicius et al., 2018).

Small gradients are zero in float16, whose smallest number is 6·10⁻⁸. The loss is multiplied by a scale S before backward,
and the gradients by 1/S, in float32, before the step. Where S was too large, gradients are infinite or NaN: the step is
skipped, and S becomes smaller. After many good steps it becomes larger again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, NoReturn

from wengert import tree
from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.debug.overflow import Overflow, OverflowSource, Watch
from wengert.dtypes import float32
from wengert.errors import ArgumentError, GradientError
from wengert.modes import no_grad
from wengert.optim.traced_scaling import traced_scaling
from wengert.tensors.arguments import native
from wengert.tensors.custom_node import record_node

_isfinite = native("isfinite")
_LARGEST_SCALE = 2.0**127  # a finite float32


class StaticLossScaler:
    """A scale that stays as it is. Steps that overflow are skipped all the same.

    >>> StaticLossScaler(128.0).scale
    128.0
    """

    def __init__(self, scale: float) -> None:
        self.scale = _positive(type(self).__name__, "scale", scale)

    def update(self, overflowed: bool) -> bool:
        """After a step; whether the scale is another one now."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """A state for `load_state_dict`."""
        return {"scale": self.scale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self.scale = _positive(type(self).__name__, "scale", state["scale"])


class DynamicLossScaler(StaticLossScaler):
    """A scale that is multiplied by `backoff_factor` after each overflow, and by `growth_factor` after `growth_interval`
    steps without one.

    >>> s = DynamicLossScaler(init_scale=8.0, growth_interval=2)
    >>> for overflowed in (True, False, False, False):
    ...     _ = s.update(overflowed)
    >>> s.scale
    8.0
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        who = type(self).__name__
        self.scale = _positive(who, "init_scale", init_scale)
        if not 1.0 < growth_factor < math.inf:
            raise ArgumentError(f"{who}: growth_factor must be greater than 1, got {growth_factor}")
        if not 0.0 < backoff_factor < 1.0:
            raise ArgumentError(f"{who}: backoff_factor must lie between 0 and 1, got {backoff_factor}")
        if growth_interval < 1 or int(growth_interval) != growth_interval:
            raise ArgumentError(f"{who}: growth_interval must be a positive number of steps, got {growth_interval}")
        self.growth_factor, self.backoff_factor = float(growth_factor), float(backoff_factor)
        self.growth_interval = int(growth_interval)
        self.good_steps = 0  # since the scale was last changed

    def update(self, overflowed: bool) -> bool:
        """After a step; whether the scale is another one now."""
        before = self.scale
        self.good_steps = 0 if overflowed else self.good_steps + 1
        if overflowed:
            self.scale *= self.backoff_factor
        elif self.good_steps == self.growth_interval:
            self.good_steps = 0
            if self.scale * self.growth_factor <= _LARGEST_SCALE:
                self.scale *= self.growth_factor
        return self.scale != before

    def state_dict(self) -> dict[str, Any]:
        """The scale, and how many good steps it has seen."""
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        super().load_state_dict(state)
        self.good_steps = int(state["good_steps"])


class GradScaler:
    """Loss scaling for half precision: scales losses, unscales gradients, and skips steps whose gradients overflowed.

    - `init_scale`, `growth_factor`, `backoff_factor`, `growth_interval`, `min_scale`: how the scale changes. It is
      multiplied by the backoff factor after an overflow, and by the growth factor after so many steps without one.
    - `loss_scaler`: decides on the scale instead, for example a `StaticLossScaler`.

    Works with any optimizer that takes gradients; several optimizers may step before one `update`. `report()` says
    what overflowed. Weights are best kept in float32 and cast in the forward pass: gradients of float16 parameters
    are rounded to float16 again when they are unscaled.

    >>> import wengert as wg
    >>> w = wg.Parameter(wg.tensor([2.0], dtype=wg.float16))
    >>> optimizer, scaler = wg.optim.SGD([w], lr=0.5), GradScaler(init_scale=1024.0)
    >>> grads = scaler.scale((w * w).sum()).backward()
    >>> scaler.step(optimizer, grads), scaler.update()
    (True, None)
    >>> w.tolist(), scaler.get_scale()
    ([0.0], 1024.0)
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        *,
        loss_scaler: StaticLossScaler | None = None,
        min_scale: float = 2.0**-24,
    ) -> None:
        if loss_scaler is not None and not isinstance(loss_scaler, StaticLossScaler):
            raise ArgumentError(
                f"GradScaler: loss_scaler must be a StaticLossScaler or a DynamicLossScaler, got "
                f"{type(loss_scaler).__name__}"
            )
        options = (init_scale, growth_factor, backoff_factor, growth_interval)
        self.loss_scaler = loss_scaler or DynamicLossScaler(*options)
        self.min_scale = _positive("GradScaler", "min_scale", min_scale)
        self.steps = self.skipped_steps = 0
        self._stepped: list[tuple[Any, bool]] = []  # optimizers since the last update, and whether they overflowed
        self._unscaled: list[Any] = []  # optimizers and maps whose gradients are unscaled already
        self._watch: Watch | None = None
        self._watching = True  # the first steps, and those after a change, are the ones that overflow
        self._overflow: Overflow | None = None  # the latest

    @property
    def _scale(self) -> float:
        return self.loss_scaler.scale

    def get_scale(self) -> float:
        """What losses are multiplied by."""
        return self.loss_scaler.scale

    # ------------------------------------------------------------------------------------------------- one step

    def scale(self, losses: Any) -> Any:
        """The loss, or each in a container, times the scale; in float32 where it is in half precision."""
        leaves, structure = tree.flatten(losses)
        return tree.unflatten(structure, [self._scaled(loss) for loss in leaves])

    def _scaled(self, loss: Any) -> Tensor:
        if not isinstance(loss, Tensor) or not loss.dtype.is_inexact:
            what = f"{loss.dtype.name}{tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ArgumentError(f"GradScaler.scale: the loss must be a floating tensor, got {what}")
        wide = loss.astype(float32) if loss.dtype.is_floating and loss.dtype.itemsize < 4 else loss
        traced = traced_scaling(self)
        scaled: Tensor = wide * (self._scale if traced is None else traced.factor(wide.dtype))
        if not scaled._plain or not scaled.requires_grad or traced is not None:
            return scaled
        self._watch = Watch(loss, scaled, every=self._watching)
        return record_node(self._watch, [scaled], [scaled])[0]

    def unscale_(self, source: Any) -> Any:
        """Divide the gradients by the scale, in an optimizer's parameters or in a map, so that they can be clipped before
        `step`, which does not divide them again. Returns the source."""
        if self._is_unscaled(source):
            raise GradientError(
                "GradScaler.unscale_: these gradients are unscaled already; call update() after the step"
            )
        if isinstance(source, GradientMap):
            for key, g in list(source.items()):
                source[key] = self._divided(g)
        else:
            for p in _parameters(source):
                if p.grad is not None:
                    p.grad = self._divided(p.grad).astype(p.dtype)
        traced = traced_scaling(self)
        if traced is None:
            self._note_unscaled(source)
        else:
            traced.unscale(source)
        return source

    def _note_unscaled(self, source: Any) -> None:
        self._unscaled.append(source)

    def _is_unscaled(self, source: Any) -> bool:
        traced = traced_scaling(self)
        return any(x is source for x in (*self._unscaled, *(() if traced is None else traced.unscaled)))

    def step(self, optimizer: Any, grads: Any = None) -> bool | Tensor:
        """`optimizer.step(grads)` with gradients that are divided by the scale, unless one is infinite or NaN.

        `grads` as for the optimizer: a map, pairs, a list, or nothing for those in `.grad`. Returns whether it stepped;
        in compiled functions this is a boolean tensor, and where it is false everything keeps its value.
        """
        self._require_no_step(optimizer)
        parameters = _parameters(optimizer)
        given = self._gradients(optimizer, parameters, grads)
        traced = traced_scaling(self)
        if traced is not None:
            return traced.step(optimizer, [p for p in parameters if p in given], given)
        bad = [p for p in parameters if p in given and not bool(_isfinite(given[p]).all())]
        first = self._watch.first({p.id: given[p] for p in bad}) if bad and self._watch is not None else None
        self._settle(optimizer, len(given), bad, first)
        if bad:
            for p in parameters:  # as a step does with what it has used
                p.grad = None
            return False
        optimizer.step(given)
        return True

    def _require_no_step(self, optimizer: Any) -> None:
        if any(o is optimizer for o, _ in self._stepped):
            self._refuse_second_step()

    def _refuse_second_step(self) -> NoReturn:
        raise GradientError("GradScaler.step: this optimizer has stepped already; call update() after each step")

    def _settle(self, optimizer: Any, n: int, bad: list[Tensor], first: OverflowSource | None = None) -> None:
        """Note a step with n gradients, which was not made if those of some parameters were bad."""
        self._stepped.append((optimizer, bool(bad)))
        if bad:
            names: dict[int, str] = getattr(optimizer, "_names", {})
            labels = [names.get(p.id, f"{p.dtype.name}{tuple(p.shape)}") for p in bad]
            self._overflow = Overflow(self.steps + 1, self._scale, labels, n, first, names)

    def _gradients(self, optimizer: Any, parameters: list[Tensor], grads: Any) -> GradientMap:
        """Unscaled gradients of the parameters, in their dtypes."""
        if callable(grads):
            raise ArgumentError(
                f"GradScaler.step: {type(optimizer).__name__} computes losses itself, by a function; scaling works with "
                "optimizers that take gradients"
            )
        ready = self._is_unscaled(optimizer if grads is None else grads)
        if grads is None:
            pairs = [(p, p.grad) for p in parameters if p.grad is not None]
        elif isinstance(grads, GradientMap):
            pairs = [(p, grads[p]) for p in parameters if p in grads]
        else:
            pairs = optimizer._paired(grads)
        if not pairs:
            raise GradientError(
                "GradScaler.step: no parameter of the optimizer has a gradient; call scale(loss).backward() before"
            )
        made = GradientMap()
        for p, g in pairs:
            unscaled = g if ready else self._divided(g)
            made[p] = unscaled if unscaled.dtype == p.dtype else unscaled.astype(p.dtype)
        return made

    def _divided(self, g: Tensor) -> Tensor:
        with no_grad():
            wide = g.astype(float32) if g.dtype.is_floating and g.dtype.itemsize < 4 else g
            traced = traced_scaling(self)
            return wide * (1.0 / self._scale if traced is None else traced.inverse(wide.dtype))

    def update(self) -> None:
        """Adapt the scale to the steps since the last update."""
        traced = traced_scaling(self)
        if traced is not None:
            traced.update()
            return
        if not self._stepped:
            raise GradientError("GradScaler.update: no step was made since the last update")
        overflowed = any(bad for _, bad in self._stepped)
        self._stepped, self._unscaled, self._watch = [], [], None
        self.steps += 1
        self.skipped_steps += overflowed
        self._watching = self.loss_scaler.update(overflowed) or overflowed
        if overflowed and self._scale < self.min_scale:
            raise GradientError(
                f"GradScaler: gradients overflow at every scale down to {self._scale:g}, so it is not the scale that makes "
                f"them. {self.report()}"
            )

    # ---------------------------------------------------------------------------------------------------- report

    def report(self, net: Any = None) -> str:
        """What overflowed last: the first operation and the layer it is in, and the gradients that are not finite.

        Layers are known by the names of parameters: of `net`, or of the optimizer, where it was given
        `net.named_parameters()`. In the first step, and after an overflow or a change of the scale, every operation of
        backward is watched. Of an overflow in another step the first operation is named that gave a gradient which is not
        finite to a parameter, or the forward operation.
        """
        if self._overflow is None:
            return f"no overflow in {self.steps} steps; the scale is {self._scale:g}"
        names = {} if net is None else {p.id: name for name, p in net.named_parameters()}
        return self._overflow.text(names)

    # ----------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """The state of the scale, and how many steps were made and skipped."""
        return {
            "loss_scaler": self.loss_scaler.state_dict(),
            "steps": self.steps,
            "skipped_steps": self.skipped_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        missing = [k for k in self.state_dict() if k not in state]
        if missing:
            raise ArgumentError(f"GradScaler.load_state_dict: the state does not fit, missing: {', '.join(missing)}")
        self.loss_scaler.load_state_dict(state["loss_scaler"])
        self.steps, self.skipped_steps = int(state["steps"]), int(state["skipped_steps"])

    def __repr__(self) -> str:
        return f"GradScaler(scale={self._scale:g}, steps={self.steps}, skipped_steps={self.skipped_steps})"


def _parameters(optimizer: Any) -> list[Tensor]:
    if not hasattr(optimizer, "param_groups"):
        raise ArgumentError(f"GradScaler: takes an optimizer, got {type(optimizer).__name__}")
    return [p for group in optimizer.param_groups for p in group["params"]]


def _positive(who: str, name: str, value: Any) -> float:
    is_number = isinstance(value, Real)
    if not is_number or not 0.0 < value < math.inf:
        raise ArgumentError(f"{who}: {name} must be positive and finite, got {value!r}")
    return float(value)


__all__ = ["DynamicLossScaler", "GradScaler", "StaticLossScaler"]
