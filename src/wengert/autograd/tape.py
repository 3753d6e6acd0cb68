"""Tapes: recording scopes that own what they record."""

from __future__ import annotations

import contextlib
import functools
import operator
from typing import TYPE_CHECKING, Any

from wengert import _core
from wengert._core import Tensor
from wengert.autograd import deterministic as determinism
from wengert.autograd.gradient_map import GradientMap
from wengert.autograd.recorded import Entry, RecordedProgram, recorded_program
from wengert.autograd.reverse import as_tensors, seed_for
from wengert.errors import ArgumentError, DTypeError, GradientError, ShapeError, TapeConsumedError
from wengert.memory.strategies import CheckpointConfig, checkpointing
from wengert.modes import inside_reverse
from wengert.tensors.creation import ones_like, zeros
from wengert.transforms.functional import _source
from wengert.transforms.jacobian import jacrev
from wengert.transforms.pullback import pull
from wengert.transforms.schedule import Plan, SchedulerConfig
from wengert.transforms.scheduler import HybridScheduler, as_config

if TYPE_CHECKING:
    from wengert.amp.config import AmpConfig
    from wengert.amp.tape_scaling import TapeScaling
    from wengert.tensors.determinism import DeterministicConfig


class GradientTape:
    """Record every operation on floating-point tensors in a `with` block, and differentiate what was recorded.

    Tensors need no `requires_grad`; those made with `requires_grad=False` are not tracked. Tapes nest, and each
    thread has its own.

    - `persistent`: keep the record after the first `gradient`, `jacobian` or `backward`, so that there can be
      several.
    - `scheduler`: how Jacobians are computed (`SchedulerConfig`).
    - `amp`: run the block under `autocast` with these settings, and scale the loss. Gradients come back unscaled;
      `overflowed` says whether one of them is not finite, in which case the scale has become smaller.
    - `deterministic`: refuse what cannot be repeated to the bit (`DeterministicConfig`).
    - `checkpoint`: which results are kept for the backward pass (`CheckpointConfig`).

    >>> import wengert as wg
    >>> x = wg.tensor(3.0)
    >>> with GradientTape() as tape:
    ...     y = x * x
    >>> tape.gradient(y, x).item()
    6.0
    """

    def __init__(
        self,
        persistent: bool = False,
        *,
        scheduler: SchedulerConfig | HybridScheduler | None = None,
        amp: AmpConfig | None = None,
        deterministic: DeterministicConfig | None = None,
        checkpoint: CheckpointConfig | None = None,
    ) -> None:
        self._record = _core.TapeRecord()
        self._persistent = persistent
        self._consumed = False
        self._watched: dict[int, Tensor] = {}
        self._scheduler = None if scheduler is None else as_config(scheduler, "GradientTape")
        self.plan: Plan | None = None  # of the last Jacobian
        self._contexts: list[Any] = []  # that are open while it records
        self._scaling: TapeScaling | None = None
        if amp is not None:
            from wengert.amp.autocast import autocast
            from wengert.amp.config import AmpConfig
            from wengert.amp.tape_scaling import TapeScaling

            if not isinstance(amp, AmpConfig):
                raise TypeError(f"GradientTape: amp takes an AmpConfig, got {type(amp).__name__}")
        if amp is not None and amp.enabled:
            self._contexts.append(autocast(amp))
            self._scaling = TapeScaling(amp)
        if deterministic is not None:
            self._contexts.append(determinism.deterministic(deterministic))
        if checkpoint is not None:
            self._contexts.append(checkpointing(checkpoint))
        self._open = contextlib.ExitStack()

    # ------------------------------------------------------------------------------------------ recording

    def __enter__(self) -> GradientTape:
        self.reset()
        self.start_recording()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop_recording()

    def start_recording(self) -> None:
        """Record from here on, until `stop_recording`."""
        if self._record.recording:
            raise GradientError("start_recording: this tape is recording already")
        if self._consumed:
            self.reset()
        for context in self._contexts:
            self._open.enter_context(context)
        self._record.start()

    def stop_recording(self) -> None:
        """Record no more; what was recorded stays."""
        self._record.stop()
        self._open.close()

    def reset(self) -> None:
        """Forget everything; the tape can be used anew."""
        if self._record.recording:
            raise GradientError("this tape is recording already; make another one to nest them")
        self._record.clear()
        self._consumed = False

    @property
    def recording(self) -> bool:
        """Whether operations are being recorded on this tape."""
        return bool(self._record.recording)

    @property
    def overflowed(self) -> bool:
        """Whether a gradient that this tape computed last is infinite or NaN, with `amp`."""
        return self._scaling is not None and self._scaling.overflowed

    def watch(self, x: Tensor) -> Tensor:
        """Return a tracked handle to x: operations on it are recorded anywhere, also outside the `with` block."""
        if not isinstance(x, Tensor):
            raise TypeError(f"watch: takes a tensor, got {type(x).__name__}; make one with wengert.tensor(...)")
        if not x.dtype.is_inexact:
            raise DTypeError(f"watch: only floating tensors can be tracked, got {x.dtype.name}{tuple(x.shape)}")
        if (
            not x._plain or x.requires_grad
        ):  # tracked by an outer transformation or graph, which must see through the handle
            return _source(x, True)  # type: ignore[no-any-return]
        handle: Tensor = _core.fresh_leaf(x.detach(), x.id)
        self._watched[x.id] = handle
        return handle

    variable = watch

    # -------------------------------------------------------------------------------------- differentiating

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None) -> Any:
        """The gradients of `target`, or of the sum of several targets, with respect to `sources`.

        - `sources`: one tensor, for which one gradient is returned, or a sequence, for which a list is; None where no
          path leads to a source.
        - `output_gradients`: how much each element of the target counts; may be left out.
        """
        targets = as_tensors(target, "gradient: targets")
        single = isinstance(sources, Tensor)
        xs = as_tensors(sources, "gradient: sources")
        seeds = output_gradients if isinstance(output_gradients, (list, tuple)) else [output_gradients] * len(targets)
        if len(seeds) != len(targets):
            raise GradientError(f"gradient: {len(targets)} targets, but {len(seeds)} output_gradients")
        self._consume()
        pairs = [(y, self._scaled(_seed(y, s))) for y, s in zip(targets, seeds) if _is_tracked(y)]
        gradients = self._pull(pairs, [self._handles(x) for x in xs]) if pairs else [None] * len(xs)
        gradients = self._unscaled(gradients, [x.dtype for x in xs])
        for y, s in zip(targets, seeds):
            if y.dtype.is_inexact and not _is_tracked(y):  # nothing was recorded for it, but it may be a source itself
                gradients = [_added(g, _seed(y, s)) if x is y else g for x, g in zip(xs, gradients)]
        self._finish()
        return gradients[0] if single else gradients

    def backward(self, target: Tensor, gradient: Any = None, *, retain_graph: bool = False) -> GradientMap:
        """Gradients of the target with respect to all recorded leaves; `.grad` stays. `retain_graph` keeps the tape."""
        self._consume(keep=retain_graph)
        grads = GradientMap()
        if _core.node_of(target) is None:
            raise GradientError(
                f"backward: this tape recorded nothing for the target, {target.dtype.name}{tuple(target.shape)}; "
                "compute it inside the tape's block"
            )
        seed = self._scaled(seed_for(target, gradient, "backward"))
        record = bool(_core.recording_tapes()) or inside_reverse()
        retain = retain_graph or self._persistent or record
        *_, leaves, _, _ = _core.backward([(target, seed)], None, retain, False, True, record)
        unscaled = self._unscaled([g for _, g in leaves], [g.dtype for _, g in leaves])
        for (key, _), g in zip(leaves, unscaled):
            grads[key] = g
        if not record:
            self._finish(keep=retain_graph)
        return grads

    def _pull(self, pairs: list[tuple[Tensor, Tensor]], sources: list[list[Tensor]]) -> list[Any]:
        # Inside an outer tape or transformation, or on a persistent one, the derivative is recorded, too.
        record = self._persistent or bool(_core.recording_tapes()) or inside_reverse()
        ys, seeds = [y for y, _ in pairs], [s for _, s in pairs]
        flat = [x for handles in sources for x in handles]
        found = iter(pull(ys, seeds, flat, retain=self._persistent or record, record=record))
        results = []
        for handles in sources:
            parts = [g for g in [next(found) for _ in handles] if g is not None]
            results.append(functools.reduce(operator.add, parts) if parts else None)
        return results

    def _scaled(self, seed: Tensor) -> Tensor:
        return seed if self._scaling is None else self._scaling.scaled(seed)

    def _unscaled(self, gradients: list[Any], dtypes: list[Any]) -> list[Any]:
        return gradients if self._scaling is None else self._scaling.unscaled(gradients, dtypes)

    def _handles(self, x: Tensor) -> list[Tensor]:
        """What stands for a source in the recording: the tensor itself, the tape's own handle, the one `watch` gave."""
        if not x._plain:
            return [x]
        handles = [x, self._record.handle(x.id), self._watched.get(x.id)]
        by_node = {_core.node_of(h): h for h in handles if h is not None}
        return [h for node, h in by_node.items() if node is not None]

    def _consume(self, keep: bool = False) -> None:
        if self._consumed:
            raise TapeConsumedError(
                "this tape was consumed by an earlier gradient() or backward(); make it with persistent=True, "
                "or enter it again to record anew"
            )
        if not (self._persistent or keep):
            self._consumed = True

    def _finish(self, keep: bool = False) -> None:
        if not (self._persistent or keep) and not self._record.recording:
            self._record.clear()

    def jacobian(self, target: Tensor, sources: Any) -> Any:
        """The Jacobian ∂yᵢ/∂xⱼ of `target` with respect to `sources`: shape target.shape + source.shape.

        `sources` is one tensor, for which one Jacobian is returned, or a sequence, for which a list is; None where no
        path leads to a source. The tape's scheduler decides how it is computed; `plan` says what it decided (for
        several sources: for the last one). While a tape records, the Jacobian is recorded, too.

        >>> import wengert as wg
        >>> x = wg.tensor([1.0, 2.0, 3.0])
        >>> with GradientTape(scheduler=wg.SchedulerConfig("reverse")) as tape:
        ...     y = x[1:] * x[:-1]
        >>> tape.jacobian(y, x).tolist()
        [[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]]
        >>> tape.plan.passes
        2
        """
        _require_one("jacobian", target=target)
        self._consume()
        single = isinstance(sources, Tensor)
        found = [self._jacobian(target, x, self._config) for x in as_tensors(sources, "jacobian: sources")]
        self._finish()
        return found[0] if single else found

    def batch_jacobian(self, target: Tensor, source: Tensor) -> Tensor | None:
        """The Jacobian of each example, ∂y[b]/∂x[b], for a target whose examples do not depend on each other.

        Target and source have the examples along their first axes; shape (examples, *target.shape[1:], *source.shape[1:]).

        >>> import wengert as wg
        >>> x = wg.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> with GradientTape() as tape:
        ...     y = x * x
        >>> tape.batch_jacobian(y, x)[1].tolist()
        [[6.0, 0.0], [0.0, 8.0]]
        """
        _require_one("batch_jacobian", target=target, source=source)
        if target.ndim == 0 or source.ndim == 0 or target.shape[0] != source.shape[0]:
            raise ShapeError(
                f"batch_jacobian: the first axes of the target, {tuple(target.shape)}, and of the source, "
                f"{tuple(source.shape)}, must have the same examples"
            )
        self._consume()
        found = self._jacobian(target, source, self._config, by_example=True)
        self._finish()
        if found is None:
            return None
        m = target.ndim - 1
        return _core.ops["permute"](found, (m, *range(m), *range(m + 1, found.ndim)))  # type: ignore[no-any-return]

    def forward_gradient(self, source: Tensor, target: Tensor) -> Tensor:
        """The Jacobian of target with respect to source in forward mode: a derivative for each element of the source.

        What was recorded is pushed forward, all columns in one pass; nothing of the user's runs again. Shape:
        target.shape + source.shape.
        """
        _require_one("forward_gradient", target=target, source=source)
        if self._consumed:
            self._consume()
        found = self._jacobian(target, source, SchedulerConfig("forward"))
        return zeros((*target.shape, *source.shape), dtype=target.dtype) if found is None else found

    @property
    def _config(self) -> SchedulerConfig:
        return SchedulerConfig() if self._scheduler is None else self._scheduler

    def _jacobian(self, y: Tensor, source: Tensor, config: SchedulerConfig, by_example: bool = False) -> Any:
        from wengert.autograd.recorded_jacobian import RecordedJacobian

        self.plan = Plan("forward", source.size, y.size)
        if y is source and not _is_tracked(y):
            return _identity(y, by_example)
        names = self._handles(source) if _is_tracked(y) else []
        if not names:
            return None
        made = RecordedJacobian(self._record.calls() if y._plain else [], y, names, by_example)
        if not made.connected():
            return None
        record = not y._plain or bool(_core.recording_tapes()) or inside_reverse()
        found, self.plan = made.compute(config, record)
        return found

    def custom_op(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """op(*args): custom operations record themselves."""
        return op(*args, **kwargs)

    def program(self, *results: Tensor) -> RecordedProgram:
        """Return what was recorded as a program, which can be printed, verified, and run again.

        It computes `results`, or, if none are given, all results that nothing else has used. Call it without
        arguments for the values that were recorded, or with other values in place of them.

        >>> import wengert as wg
        >>> x = wg.tensor([1.0, -2.0])
        >>> with GradientTape() as tape:
        ...     y = wg.where(x > 0, x * x, 0.0).sum()
        >>> program = tape.program()
        >>> program().item(), program(wg.tensor([-1.0, 3.0])).item()
        (1.0, 9.0)
        """
        return recorded_program(self._record.calls(), results)

    @property
    def entries(self) -> list[Entry]:
        """What was recorded, one entry for each instruction: `op`, `inputs`, `outputs`, `saved`, `line`.

        >>> import wengert as wg
        >>> with GradientTape() as tape:
        ...     y = wg.exp(wg.ones((2, 3)))
        >>> entry = tape.entries[0]
        >>> entry.op, [str(t) for t in entry.outputs]
        ('exp', ['float32[2, 3]'])
        """
        return [Entry(call) for call in self._record.calls() if call.node is not None]

    def __repr__(self) -> str:
        state = "recording" if self.recording else "consumed" if self._consumed else "ready"
        return f"<GradientTape {state}, {self._record.n_nodes} instructions>"


Tape = GradientTape


def _is_tracked(x: Tensor) -> bool:
    return not x._plain or _core.node_of(x) is not None


def _require_one(what: str, **tensors: Any) -> None:
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{what}: the {name} must be one tensor, got {type(x).__name__}")


def _identity(y: Tensor, by_example: bool) -> Tensor:
    """The Jacobian of y with respect to itself, or of the sum over its examples."""
    return jacrev(lambda x: x.sum(axis=0) if by_example else x)(y.detach())  # type: ignore[no-any-return]


def _added(g: Tensor | None, more: Tensor) -> Tensor:
    return more if g is None else g + more


def _seed(y: Tensor, given: Any) -> Tensor:
    if given is None and y.size != 1:  # TensorFlow's convention: the sum of the elements is differentiated
        return ones_like(y.detach() if y._plain else y)
    return seed_for(y, given, "gradient")


__all__ = ["GradientTape", "Tape"]
