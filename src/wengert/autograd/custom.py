"""Custom operations: any Python forward, with a derivative rule of one's own.

One rule is enough. A `defjvp` rule is linear in its tangents, so its transpose is the reverse mode; a `defvjp` rule that is
linear in its cotangent gives the forward mode the same way. Rules written in wengert ops are differentiable themselves, so
every order follows.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, overload

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.linear_rule import not_linear, transposed
from wengert.errors import CustomOpError, TraceError
from wengert.modes import no_grad
from wengert.passes.callbacks import define_callback
from wengert.program.ir import Instruction, Var
from wengert.program.trace import Tracer, tracing, untraced
from wengert.registry.zero import ZERO
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import full, zeros_like
from wengert.tensors.custom_node import record_node, tapes_paused
from wengert.tensors.determinism import require_pure
from wengert.tensors.dual import DualTensor
from wengert.tensors.leaving import numbers_kept, running_rule
from wengert.tensors.numpy import data

_CHECKING_RESULTS = 2  # as core/anomaly.h: Checks::results


class CustomOp:
    """Base class of operations with a hand-written backward pass: define `forward(self, *inputs)` and `backward`.

    `backward(self, *y_bars, *inputs)` gets the cotangents of all outputs, then the inputs, and returns one cotangent
    per input: a tuple if there are several inputs, None for an input without a gradient. `self.save(...)` in
    `forward` keeps tensors, which `backward` finds in `self.saved`. Inputs that are not tensors are passed on
    unchanged.

    >>> import wengert as wg
    >>> class ClipGradient(CustomOp):
    ...     def forward(self, x):
    ...         return x
    ...     def backward(self, y_bar, x):
    ...         return wg.clip(y_bar, -1.0, 1.0)
    >>> x = wg.tensor(2.0, requires_grad=True)
    >>> (ClipGradient()(x) * 100.0).backward()[x].item()
    1.0
    """

    saved: tuple[Any, ...] = ()
    # Whether forward gives the same results for the same inputs, so that it may be called again. None: not declared.
    pure: bool | None = None

    def forward(self, *args: Any) -> Any:
        """The operation itself."""
        raise CustomOpError(f"{type(self).__name__} does not define forward")

    def backward(self, *args: Any) -> Any:
        """Cotangents of the inputs."""
        raise CustomOpError(f"{type(self).__name__} does not define backward")

    def vmap(self, size: int, mapped: tuple[bool, ...], *args: Any) -> Any:
        """The results for `size` examples, along their first axis, where the arguments in `mapped` have the examples along
        theirs. A class that does not define it is called for one example after the other."""
        raise CustomOpError(f"{type(self).__name__} does not define vmap")

    def save(self, *values: Any) -> None:
        """Keep values for backward, in `self.saved`."""
        self.saved = values

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = _in_order(self.forward, args, kwargs)
        kept: list[tuple[Any, ...]] = []  # of this call; the next call saves its own

        def forward(*inputs: Any) -> Any:
            self.saved = ()
            result = self.forward(*inputs)
            kept[:] = [self.saved]
            return result

        def backward(*bars_and_inputs: Any) -> Any:
            (self.saved,) = kept
            return self.backward(*bars_and_inputs)

        batched = self.vmap if type(self).vmap is not CustomOp.vmap else None
        again = None if self.pure is False else self
        call = _Call(type(self).__name__, forward, None, backward, residuals=kept, vmap=batched, again=again)
        call.pure = self.pure
        return call(*args)


class FunctionOp:
    """What `@custom_op` makes of a function."""

    def __init__(self, forward: Callable[..., Any], pure: bool | None = None) -> None:
        self._forward = forward
        self._pure = pure
        self._jvp: Callable[..., Any] | None = None
        self._vjp: Callable[..., Any] | None = None
        self._vmap: Callable[..., Any] | None = None
        functools.update_wrapper(self, forward)

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The rule (*x_dots, *ys, *xs) → y_dots; linear in the tangents."""
        self._jvp = rule
        return rule

    def defvjp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The rule (*y_bars, *ys, *xs) → cotangents of the inputs."""
        self._vjp = rule
        return rule

    def defvmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The rule (size, mapped, *xs) → results for `size` examples, along their first axis, where the arguments in
        `mapped` have the examples along theirs. Without it, `vmap` calls the operation for one example after the other."""
        self._vmap = rule
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = _in_order(self._forward, args, kwargs)
        name = getattr(self, "__name__", "custom op")
        if self._jvp is None and self._vjp is None:
            vjp = None
        else:
            vjp = self._vjp
        again = None if self._pure is False else self
        call = _Call(name, self._forward, self._jvp, vjp, passes_outputs=True, vmap=self._vmap, again=again)
        call.pure = self._pure
        return call(*args)


def _in_order(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Move keyword arguments to their position, because rules take all arguments by position."""
    if not kwargs:
        return args
    bound = inspect.signature(f).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise CustomOpError(
            f"{f.__name__}: rules get arguments by position; {', '.join(bound.kwargs)} can be given by name only"
        )
    return bound.args


@overload
def custom_op(f: Callable[..., Any]) -> FunctionOp: ...


@overload
def custom_op(*, pure: bool | None = None) -> Callable[[Callable[..., Any]], FunctionOp]: ...


def custom_op(f: Callable[..., Any] | None = None, *, pure: bool | None = None) -> Any:
    """Make a custom operation from a function; give it a derivative with `@f.defjvp` or `@f.defvjp`.

    The rule of `defjvp` gets the tangents, the result and the arguments, and returns the tangent of the result; that
    of `defvjp` gets the cotangents, the result and the arguments, and returns one cotangent per argument. One of the
    two is enough: the other mode follows from it. f sees plain tensors, and may compute in NumPy.

    `pure=False`, as in `@custom_op(pure=False)`, declares that f gives something else each time it is called (it
    reads a clock, a file, its own generator): it is then never called again to recompute its results. `pure=True`
    declares that it gives the same results for the same inputs, which `deterministic` asks for.

    >>> import wengert as wg
    >>> @custom_op
    ... def cube(x):
    ...     return wg.asarray(x.numpy() ** 3)
    >>> @cube.defjvp
    ... def _(x_dot, y, x):
    ...     return 3 * x ** 2 * x_dot
    >>> wg.grad(cube)(wg.tensor(2.0)).item()
    12.0
    """
    return functools.partial(FunctionOp, pure=pure) if f is None else FunctionOp(f, pure)


def linear_op(
    name: str,
    forward: Callable[[Tensor], Any],
    push: Callable[[Any], Any],
    pull: Callable[[Any], Any],
    vmap: Callable[..., Any] | None = None,
    sparsity: Callable[..., Any] | str = "everything",
) -> Callable[[Any], Any]:
    """An operation that is linear in its one argument: `push` is the operation itself, `pull` its transpose. `vmap` and
    `sparsity` are as in the records of ops."""
    call = _Call(name, forward, lambda x_dot, y, x: push(x_dot), lambda y_bar, x: pull(y_bar), linear=True, vmap=vmap)
    call.again, call.sparsity = call, sparsity
    return call


class _Call:
    """One call of a custom operation."""

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        jvp: Callable[..., Any] | None,
        vjp: Callable[..., Any] | None,
        passes_outputs: bool = False,
        linear: bool = False,
        residuals: list[tuple[Any, ...]] | None = None,
        vmap: Callable[..., Any] | None = None,
        again: Callable[..., Any] | None = None,
    ) -> None:
        self.name, self.forward, self.jvp, self.vjp, self.vmap = name, forward, jvp, vjp, vmap
        self.passes_outputs, self.linear, self._residuals = (
            passes_outputs,
            linear,
            [] if residuals is None else residuals,
        )
        self.again = again  # calls the operation again; None if it is not pure
        self.sparsity: Callable[..., Any] | str = "everything"
        self.pure: bool | None = True  # for the library's own calls; custom ops declare it themselves

    @property
    def residuals(self) -> bool:
        """Whether forward saved something for backward."""
        return any(self._residuals)

    def __call__(self, *args: Any) -> Any:
        tensors: list[Any] = [x for x in args if isinstance(x, Tensor)]
        top = max((x for x in tensors if not x._plain), key=lambda x: x._level, default=None)
        if isinstance(top, DualTensor):
            return self._on_duals(top, args)
        trace = top._trace if isinstance(top, Tracer) else tracing()
        if tensors and trace is not None and (top is not None or trace.captures):
            return TracedCall(self, args)(trace, tensors)
        require_pure(self.name, self.pure)
        with no_grad(), tapes_paused():
            result = self.forward(*(x.detach() if isinstance(x, Tensor) else x for x in args))
        single = not isinstance(result, (tuple, list))
        ys = [self._output(y) for y in ([result] if single else result)]
        floating = [x for x in tensors if x.dtype.is_inexact]
        if _core.is_grad_enabled() and any(x.requires_grad or _core.recording_tapes() for x in floating):
            # Separate values, not views of the outputs: a node must not own what owns it.
            kept = tuple(_core.untracked_name(y) for y in ys)
            ys = record_node(functools.partial(self._pull_node, args, kept), floating, ys)
        if _core.checks() == _CHECKING_RESULTS:
            _core.check_custom(self.name, tensors, ys)
        if _core.recording_tapes():
            static = [None if isinstance(x, Tensor) else (x,) for x in args]
            _core.log_custom(self.name, functools.partial(_call_again, self.name, self.again, static), tensors, ys)
        return ys[0] if single else type(result)(ys)

    def _output(self, y: Any) -> Tensor:
        if y is None:
            raise CustomOpError(
                f"{self.name}: forward returned None; it must return a tensor, or several. Is its `return` missing?"
            )
        t = y if isinstance(y, Tensor) else asarray(y)
        return _core.copy(t.detach()) if t._plain else t  # a separate output, whatever forward returned

    # ----------------------------------------------------------------------------------------------- reverse

    def _pull_node(
        self, args: tuple[Any, ...], ys: tuple[Any, ...], bars: Sequence[Any], node: Any = None
    ) -> list[Any]:
        """Called by the node. If a node is given, the derivative is being recorded and depends on inputs and outputs."""
        if node is None:
            return self._pull(tuple(x.detach() if isinstance(x, Tensor) else x for x in args), ys, bars)
        outputs = tuple(_core.reattach(node, k, y) for k, y in enumerate(ys))
        with self._named(), numbers_kept([*args, *outputs, *bars]), self._residuals_made_from(args, ys):
            return self._pull(args, outputs, bars)

    def _pull(self, args: tuple[Any, ...], ys: tuple[Any, ...], bars: Sequence[Any]) -> list[Any]:
        """Cotangents of the floating inputs, by the VJP rule or by the transpose of the JVP rule."""
        if self.vjp is not None:
            extra = ys if self.passes_outputs else ()
            return self._checked(self.vjp(*bars, *extra, *args), args)
        if self.jvp is None:
            raise CustomOpError(f"{self.name} has no derivative rule: add one with defjvp or defvjp")
        floating = [x for x in args if _differentiable(x)]
        wanted = "reverse mode needs a rule that is linear in its tangents, and this defjvp rule is not"
        with self._named():
            return transposed(
                lambda *x_dots: self._push(x_dots, ys, args),
                floating,
                bars,
                f"{self.name}: {wanted}",
                "add a defvjp rule, or use forward mode",
            )

    def _push(self, x_dots: Sequence[Any], ys: Sequence[Any], args: Sequence[Any]) -> tuple[Any, ...]:
        """Tangents of the outputs by the JVP rule; `x_dots` are those of the floating inputs."""
        assert self.jvp is not None
        fresh = iter(x_dots)
        tangents = [next(fresh) if _differentiable(x) else None for x in args if isinstance(x, Tensor)]
        y_dots = self.jvp(*tangents, *ys, *args)
        return y_dots if isinstance(y_dots, tuple) else (y_dots,)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """A scope in which errors about numbers that leave wengert name this op."""
        before = getattr(running_rule, "name", None)
        running_rule.name = self.name
        try:
            yield
        finally:
            running_rule.name = before

    @contextlib.contextmanager
    def _residuals_made_from(self, args: Sequence[Any], ys: Sequence[Any]) -> Iterator[None]:
        """A scope in which saved values depend on these arguments, if another derivative will follow."""
        if not self.residuals or all(x._plain and not x.requires_grad for x in args if isinstance(x, Tensor)):
            yield
            return
        (before,) = self._residuals
        same = self.repeat(args, ys)
        (again,) = self._residuals
        depends = [isinstance(r, Tensor) and (not r._plain or r.requires_grad) for r in again]
        try:
            if any(depends) and not same:
                self.refuse_repeated()
            if len(again) == len(before):  # others, such as random draws, keep their first values
                self._residuals[:] = [tuple(r if d else b for r, b, d in zip(again, before, depends))]
            yield
        finally:
            self._residuals[:] = [before]

    def repeat(self, args: Sequence[Any], ys: Sequence[Any]) -> bool:
        """Run forward again for the values it saves, and return whether it gave these results."""
        result = self.forward(*args)
        results = result if isinstance(result, (tuple, list)) else [result]
        return all(np.array_equal(_numbers(a), _numbers(b), equal_nan=True) for a, b in zip(results, ys))

    def refuse_repeated(self) -> NoReturn:
        """Raise for a forward that gives different results when called again."""
        raise CustomOpError(
            f"{self.name}: what forward saves has to be made again here, but forward gave other results the second time; "
            "write backward with the inputs and with what does not depend on them"
        )

    def _checked(self, result: Any, args: tuple[Any, ...]) -> list[Any]:
        tensors = [x for x in args if isinstance(x, Tensor)]
        given = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(given) == len(args) != len(tensors):
            given = [g for g, x in zip(given, args) if isinstance(x, Tensor)]
        if len(given) != len(tensors):
            raise CustomOpError(
                f"{self.name}: backward returned {len(given)} gradient(s) for {len(tensors)} tensor input(s)"
            )
        checked = []
        for k, (g, x) in enumerate(zip(given, tensors)):
            if not x.dtype.is_inexact:
                continue
            if g is not None:
                g = g if isinstance(g, Tensor) else asarray(g)
                if tuple(g.shape) != tuple(x.shape):
                    raise CustomOpError(
                        f"{self.name}: the gradient of input {k} has shape {tuple(g.shape)}, "
                        f"but the input has shape {tuple(x.shape)}"
                    )
                g = g if g.dtype == x.dtype else g.astype(x.dtype)
            checked.append(g)
        return checked

    # ----------------------------------------------------------------------------------------------- forward

    def _on_duals(self, top: DualTensor, args: tuple[Any, ...]) -> Any:
        level = top._trace
        pairs = [level.split(x) if isinstance(x, Tensor) else (x, None) for x in args]
        values = tuple(v for v, _ in pairs)
        outputs = self(*values)
        single = not isinstance(outputs, (tuple, list))
        ys = (outputs,) if single else tuple(outputs)
        x_dots = [(zeros_like(v) if t is None else t) for v, t in pairs if isinstance(v, Tensor) and v.dtype.is_inexact]
        with self._named(), self._residuals_made_from(values, ys):
            y_dots = self._push(x_dots, ys, values) if self.jvp is not None else self._pushed(values, ys, x_dots)
        duals = [level.dual(y, t) for y, t in zip(ys, y_dots)]
        return duals[0] if single else type(outputs)(duals)

    def _pushed(self, values: tuple[Any, ...], ys: tuple[Any, ...], x_dots: list[Any]) -> Sequence[Any]:
        """Forward mode from a VJP rule: its transpose."""

        def pull(*bars: Any) -> Any:
            floating = [x for x in values if _differentiable(x)]
            return tuple(zeros_like(x) if g is None else g for g, x in zip(self._pull(values, ys, bars), floating))

        wanted = "forward mode needs a rule that is linear in its cotangent, and this backward is not"
        remedy = "add a defjvp rule, or use reverse mode"
        return transposed(pull, ys, x_dots, f"{self.name}: {wanted}", remedy)


def _call_again(name: str, op: Callable[..., Any] | None, static: list[Any], *tensors: Any) -> list[Any]:
    """Call a recorded custom operation again, on other tensors."""
    if op is None:
        raise CustomOpError(f"{name} cannot be run again: it was declared with pure=False, so its results may differ")
    fresh = iter(tensors)
    result = op(*(next(fresh) if s is None else s[0] for s in static))
    return list(result) if isinstance(result, (tuple, list)) else [result]


class TracedCall:
    """A custom operation inside a compiled function: an instruction that calls back into Python.

    Output types are observed, by running the operation on ones of the sizes at hand; so another size traces again.
    """

    def __init__(self, call: _Call, args: tuple[Any, ...]) -> None:
        self.call = call
        self.static = [None if isinstance(x, Tensor) else (x,) for x in args]  # None marks a tensor

    def __call__(self, trace: Any, tensors: list[Tensor]) -> Any:
        shapes = [tuple(int(n) for n in x.shape) for x in tensors]
        with untraced():
            outputs = self.run(*(full(s, 1, dtype=x.dtype) for s, x in zip(shapes, tensors)))
        types = [(y.dtype.code, tuple(y.shape)) for y in outputs]
        transpose = [lambda y_bar, x: self.call.vjp(y_bar, x)] if self.call.linear else []  # type: ignore[misc]
        batched = None if self.call.vmap is None else self.batched
        op = define_callback(
            self.call.name,
            len(tensors),
            types,
            self.run,
            jvp=self.tangents,
            transpose=transpose,
            vmap=batched,
            sparsity=self.call.sparsity,
        )
        self.single_type = types[0] if len(types) == 1 else None
        return trace.emit(op, tensors, ())

    def filled(self, tensors: Sequence[Any]) -> list[Any]:
        """All arguments, with the tensors filled in."""
        fresh = iter(tensors)
        return [next(fresh) if s is None else s[0] for s in self.static]

    def run(self, *tensors: Any) -> list[Tensor]:
        """The operation itself."""
        require_pure(self.call.name, self.call.pure)
        with no_grad(), untraced():
            result = self.call.forward(*self.filled(tensors))
        return [self.call._output(y) for y in (result if isinstance(result, (tuple, list)) else [result])]

    def batched(self, size: Any, mapped: tuple[bool, ...], *tensors: Any) -> Any:
        """The batch rule of the instruction, based on the custom one, which takes all arguments."""
        n, which = int(size), iter(mapped)
        given = [s is None and next(which) for s in self.static]
        assert self.call.vmap is not None
        made = self.call.vmap(n, tuple(given), *self.filled(tensors))
        for y in made if isinstance(made, (tuple, list)) else (made,):
            if not isinstance(y, Tensor) or not y.ndim or y.shape[0] != n:
                shape = tuple(y.shape) if isinstance(y, Tensor) else f"of a {type(y).__name__}"
                raise CustomOpError(
                    f"{self.call.name}: the vmap rule must return {n} examples along the first axis, got the shape {shape}"
                )
        return tuple(made) if isinstance(made, (tuple, list)) else made

    def tangents(self, *values: Any) -> Any:
        """The JVP of the instruction: the custom rule, or the transpose of the custom VJP."""
        n = self.static.count(None)
        x_dots, y, xs = values[:n], values[n], values[n + 1 :]
        ys = y if isinstance(y, tuple) else (y,)
        given = [zeros_like(x) if d is ZERO else d for d, x in zip(x_dots, xs) if _differentiable(x)]
        if self.call.jvp is not None:
            return self._tangents_by_jvp(given, ys, xs)
        if self.call.vjp is None or self.single_type is None:
            raise CustomOpError(
                f"{self.call.name}: inside a compiled function an operation with several outputs needs a defjvp rule"
            )
        return self._push(given, ys, xs)

    def _tangents_by_jvp(self, x_dots: list[Any], ys: Sequence[Any], xs: Sequence[Any]) -> Any:
        """The custom JVP as instructions or, if they are not linear, as a single instruction that cannot be transposed."""
        linear = [d for d in x_dots if isinstance(d, Tracer)]
        start = len(linear[0]._trace.instructions) if linear else 0
        with _constants_as_instructions((*x_dots, *xs)):
            y_dots = self.call._push(x_dots, ys, self.filled(xs))
        why = not_linear(linear[0]._trace.instructions[start:], y_dots) if linear else None
        if why is not None:
            y_dots = self._opaque(x_dots, ys, xs, why)
        return y_dots if len(y_dots) > 1 else y_dots[0]

    def _opaque(self, x_dots: list[Any], ys: Sequence[Any], xs: Sequence[Any], why: str) -> tuple[Any, ...]:
        n, m = len(x_dots), len(ys)

        def run(*operands: Any) -> list[Tensor]:
            with no_grad(), untraced():
                return list(self.call._push(operands[:n], operands[n : n + m], self.filled(operands[n + m :])))

        def refuse(*operands: Any, **attributes: Any) -> Any:
            raise CustomOpError(
                f"{self.call.name}: reverse mode needs a rule that is linear in its tangents, and this defjvp rule is not "
                f"({why}); add a defvjp rule, or use forward mode"
            )

        types = [(y.dtype.code, tuple(int(k) for k in y.shape)) for y in ys]
        op = define_callback(
            f"{self.call.name} pushed", n + m + len(xs), types, run, jvp=refuse, transpose=[refuse] * n
        )
        made = op(*x_dots, *ys, *xs)
        return made if isinstance(made, tuple) else (made,)

    def _push(self, x_dots: list[Any], ys: Sequence[Any], xs: Sequence[Any]) -> Any:
        """A linear instruction that exists only for its transpose, the custom VJP."""
        name, n, m = self.call.name, len(x_dots), len(ys)

        def refuse(*operands: Any) -> Any:
            raise CustomOpError(f"{name}: forward mode inside a compiled function needs a defjvp rule")

        def transposed(k: int) -> Callable[..., Any]:
            def rule(y_bar: Any, *operands: Any) -> Any:
                found = self._pulled(y_bar, operands[n : n + m], operands[n + m :])
                return ZERO if found[k] is None else found[k]

            return rule

        assert self.single_type is not None
        rules = [transposed(k) for k in range(n)]
        op = define_callback(f"{name} pushed", n + m + len(xs), [self.single_type], refuse, jvp=refuse, transpose=rules)
        return op(*x_dots, *ys, *xs)

    def _pulled(self, y_bar: Any, ys: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        """Cotangents by the custom VJP: as instructions or, if it needs numbers or residuals, by a callback."""
        if not self.call.residuals:
            with contextlib.suppress(TraceError), _constants_as_instructions((y_bar, *xs)):
                return self.call._pull(tuple(self.filled(xs)), tuple(ys), [y_bar])
        name, m = self.call.name, len(ys)

        def run(y_bar: Any, *operands: Any) -> list[Tensor]:
            given = self.filled(operands[m:])
            with no_grad(), untraced():
                # The last call may have saved other values than this one.
                if self.call.residuals and not self.call.repeat(given, operands[:m]):
                    self.call.refuse_repeated()
                found = self.call._pull(tuple(given), operands[:m], [y_bar])
                return [zeros_like(x) if g is None else g for g, x in zip(found, filter(_differentiable, given))]

        def refuse(*operands: Any) -> Any:
            raise CustomOpError(
                f"{name}: its derivative is being differentiated inside a compiled function, but its rule needs numbers or "
                "saved residuals; write the rule in wengert ops of its inputs"
            )

        types = [(x.dtype.code, tuple(int(k) for k in x.shape)) for x in xs if _differentiable(x)]
        op = define_callback(f"{name} pulled", 1 + m + len(xs), types, run, jvp=refuse)
        made = op(y_bar, *ys, *xs)
        return made if isinstance(made, tuple) else (made,)


@contextlib.contextmanager
def _constants_as_instructions(operands: Sequence[Any]) -> Iterator[None]:
    """A scope in which tensors that a rule closes over are read by instructions, because a derivative's trace has no inputs
    for them."""
    traces = [x._trace for x in operands if isinstance(x, Tracer) and not x._trace.captures]
    if not traces:
        yield
        return
    trace, start = traces[0], len(traces[0].instructions)
    before = dict(trace.captured)
    yield
    fresh = [trace.captured.pop(key) for key in list(trace.captured) if key not in before]
    trace.instructions[start:start] = [_reading(constant, tracer._var) for constant, tracer in fresh]


def _reading(constant: Tensor, var: Var) -> Instruction:
    if constant.requires_grad:
        raise CustomOpError(
            f"the rule of a custom op closes over a tensor {constant.dtype.name}{tuple(constant.shape)} that requires a "
            "gradient, which a compiled function would lose; make it an argument of the op, or detach() it"
        )
    read = define_callback(
        "constant", 0, [(constant.dtype.code, tuple(constant.shape))], lambda: [constant], jvp="zero"
    )
    return Instruction(read, (), (), (var,))


def _numbers(y: Any) -> Any:
    return data(y) if isinstance(y, Tensor) else y


def _differentiable(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype.is_inexact


__all__ = ["CustomOp", "FunctionOp", "custom_op"]
