"""Compiled functions: traced once per signature, run as one native call, recorded as one instruction."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

from wengert import _core, tree
from wengert.compiling.report import Assumptions, Report, Signature, summarize
from wengert.compiling.retrace import Recent, history, name_of, run_op_by_op
from wengert.compiling.static_arguments import (
    Static,
    refuse_static_tensors,
    static_names,
    with_statics,
    without_statics,
)
from wengert.dtypes import float32, int64
from wengert.errors import ArgumentError, TraceError, WengertError
from wengert.passes.derive import Derivable
from wengert.passes.variants import derive_program, symbolic_types
from wengert.program.call_trace import CallTrace, ClosesOver, call_trace
from wengert.program.ir import Const, Instruction, Operand, Program, Var, infer
from wengert.program.lower import lower
from wengert.program.numbers import Numbers, is_number, may_be_operand, operand_type
from wengert.program.simplify import read_by_derivatives, simplify
from wengert.program.sizes import own_symbols, unify_sizes
from wengert.program.trace import Call, Tracer, create, one_call, origins, standing_trace, tracing
from wengert.registry.precision import code_of, enlist
from wengert.registry.record import OPS
from wengert.tensors.creation import zeros_like
from wengert.tensors.dual import DualTensor, _Level, running_forward
from wengert.tensors.rebinding import argument

F = TypeVar("F", bound=Callable[..., Any])
Convert = Callable[..., tuple[Any, ...]]


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Pause Python's search for cyclic garbage.

    Passes over a program make many objects that live until their end, and no garbage: searching them again and again took a
    third of the time.
    """
    enabled, preparing = gc.isenabled(), _core.profile_preparing(True)
    gc.disable()
    try:
        yield
    finally:
        _core.profile_preparing(preparing)
        if enabled:
            gc.enable()


class TracedFunction:
    """One signature of a compiled function: its program, and derivatives made on demand."""

    def __init__(self, name: str, program: Program, native: Any, guards: list[Any], assumptions: Assumptions) -> None:
        self.name = name
        self.program = program
        self.native = native
        self.guards = guards
        self.assumptions = assumptions
        self.derivations: dict[int, Any] = {}
        self.native_derivatives: list[Any] = []

    def derive(self, mask: int) -> tuple[Any, Any]:
        """The derivative with respect to the inputs in the mask, for the core, with all guards so far."""
        _core.open_guards()
        try:
            with _without_collections():
                derivation, native = derive_program(self.program, mask, self.name)
        finally:
            self.guards = [*self.guards, *_core.close_guards()]
        self.derivations[mask] = derivation
        self.native_derivatives.append(native)
        return native, _core.make_guards(self.guards)

    def as_derived(self) -> Any:
        """What the core derives its push from; None if tangents do not follow the program, under no_grad."""
        if read_by_derivatives(self.program):
            return None
        return _core.make_derived(self.native, 0, Derivable(self.name, self.program, [], []))

    def report(self) -> Report:
        """What a run of the plain program does, and what runs it, or its derivatives if only they run."""
        tiers = [_core.tier_of(self.native)]
        for derivative in self.native_derivatives:
            tiers += _core.tiers_of_derivative(derivative)
        report = summarize(self.program)
        report.tier = next((t for t in tiers if t != report.tier), report.tier)
        return report

    def signature(self) -> Signature:
        """What it assumes."""
        return self.assumptions.signature(self.name, self.guards)


def _trace_call(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _core.TracedCall | None:
    """The native form of a trace; None if the function closes over tensors of an enclosing transformation."""
    if compiled.__dict__.get("_runs_op_by_op"):
        return None
    try:
        traced = _trace(compiled, args, kwargs)
    except ClosesOver:
        return None
    except TraceError as e:
        if not run_op_by_op(compiled, e):
            raise
        return None
    history(compiled).warn_of_many_values(compiled, args, kwargs)
    return traced


def _trace(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _core.TracedCall:
    """Trace a call. Numbers whose values have changed become operands, unless the function needs their values."""
    refuse_static_tensors(compiled, args, kwargs)
    known = history(compiled)
    operands = known.operands(compiled, args, kwargs)
    fixed: set[int] = set()
    while True:
        numbers = Numbers()
        try:
            traced = _trace_with(compiled, args, kwargs, operands, numbers)
        except Exception:
            if not operands:
                raise  # and nothing was learned about the numbers
            numbers.needed |= operands  # the numbers may be the reason
        if not numbers.needed:
            break
        operands -= numbers.needed
        fixed |= numbers.needed
    known.fixed |= fixed
    compiled.operands = sorted(operands)
    return traced


@own_symbols()
def _trace_with(
    compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], operands: set[int], numbers: Numbers
) -> _core.TracedCall:
    arguments = [*args, *kwargs.values()]
    which = [k for k, x in enumerate(arguments) if isinstance(x, _core.Tensor) or k in operands]
    given = [
        ((x := arguments[k]).dtype.code, x.shape) if k not in operands else operand_type(arguments[k]) for k in which
    ]
    trace = CallTrace()
    recording = _core.set_grad_enabled(True)  # the caller's setting: the program is the same for calls under no_grad
    types = symbolic_types(given)
    _core.open_guards()
    try:
        for index, (k, t) in enumerate(zip(which, types)):
            symbol: Any = trace.argument(t, arguments[k])
            arguments[k] = numbers.argument(arguments[k], symbol, k, index) if k in operands else symbol
        with trace:
            outputs = compiled.function(*arguments[: len(args)], **dict(zip(kwargs, arguments[len(args) :])))
            leaves, structure = tree.flatten(outputs)
            leaves = [_returned_number(x) if is_number(x) else _returned_size(x) for x in leaves]
        program = trace.program([_result(trace, x, compiled.__name__) for x in leaves])
    except RecursionError as e:
        raise RecursionError(
            f"{compiled.__name__}: its Python functions call each other too deeply to be traced; each branch or loop inside "
            "of another takes several calls. Use fori_loop, scan or while_loop in place of the recursion, or raise the "
            "limit with sys.setrecursionlimit()"
        ) from e
    except BaseException as e:
        if isinstance(e, WengertError):
            sizes = [f"{n} = {size}" for t, g in zip(types, given) for n, size in zip(t.shape, g[1]) if n is not size]
            e.add_note(f"while tracing {compiled.__name__}" + (f", where {', '.join(sizes)}" if sizes else ""))
        raise
    finally:
        numbers.ended = True
        guards = _core.close_guards()
        _core.set_grad_enabled(recording)
    _core.open_guards()
    try:
        with _without_collections():
            program = own_outputs(simplify(unify_sizes(program, guards)))
            plain = lower(program)
    finally:
        guards = [*guards, *_core.close_guards()]
    captured = [x for x, _ in trace.captured.values()]
    unflatten = None if structure.is_leaf else functools.partial(tree.unflatten, structure)
    named = [(name_of(compiled, args, kwargs, k), x) for k, x in enumerate((*args, *kwargs.values()))]
    shown = [(n, program.inputs[which.index(k)].type if k in which else x) for k, (n, x) in enumerate(named)]
    traced = TracedFunction(compiled.__name__, program, plain, guards, Assumptions(trace, shown, numbers.guards))
    return _core.TracedCall(
        program=plain,
        guards=_core.make_guards(guards),
        numbers=numbers.guards,
        captured=captured,
        unflatten=unflatten,
        python=traced,
        effects=trace.effects(),
        begin=trace.begin(),
        commit=trace.commit(),
        settings=trace.settings(),
        asks_roles=trace.asks_roles,
    )


def _trace_composite(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _core.TracedCall | None:
    try:
        with origins():
            return _trace_explained(compiled, args, kwargs)
    except ClosesOver:
        return None


def _trace_explained(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _core.TracedCall:
    """`_trace`, with better errors: the sizes of a trace are symbols, so after a failure the same call on the actual tensors
    says in numbers what is wrong."""
    try:
        return _trace(compiled, args, kwargs)
    except Exception as e:
        error = e
    before = _core.set_grad_enabled(False)
    try:
        compiled.function(*args, **kwargs)
    finally:
        _core.set_grad_enabled(before)
    raise error


def _returned_number(x: Any) -> Any:
    """A number in the dtype that `tensor` gives it."""
    return x.weak(int64.code if isinstance(x.zero(), int) else float32.code)


def _returned_size(x: Any) -> Any:
    """A size as an int64."""
    return create(OPS["size_scalar"], ((x,), int64.code)) if isinstance(x, _core.Dim) else x


def _result(trace: CallTrace, x: Any, name: str) -> Operand:
    if isinstance(x, _core.Tensor):
        return trace.operand(x, 0)
    if isinstance(x, (bool, int, float)):
        return Const(x, 0 if isinstance(x, bool) else 4 if isinstance(x, int) else 11)
    raise TraceError(
        f"{name}: a compiled function returns tensors, numbers, None and containers of them, not a {type(x).__name__}"
    )


def own_outputs(program: Program) -> Program:
    """Copy outputs that would share an input's buffer or repeat another output."""
    shared = set(program.inputs)
    for i in program.instructions:
        if (i.op.view or i.op.passes_on) and i.inputs[-1] in shared:  # views have a single operand
            shared.update(i.outputs)
    body, outputs, seen = list(program.instructions), [], set()
    for o in program.outputs:
        if isinstance(o, Var) and (o in shared or o in seen):
            copy = OPS["contiguous"]
            made = Instruction(copy, (o,), (), (Var(infer(copy, [o], ())[0]),))
            body.append(made)
            o = made.outputs[0]
        seen.add(o)
        outputs.append(o)
    return Program(program.inputs, body, outputs)


def _call_structured(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call with arguments in containers: one flat compiled function per structure and set of static values."""
    if compiled.__dict__.get("_runs_op_by_op"):
        return compiled.function(*args, **kwargs)
    args, kwargs = with_statics(compiled, args, kwargs)
    leaves, structure = tree.flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, _core.Tensor)]
    if call_trace() is not None or not all(map(_core.is_simple, tensors)):
        return _call_lifted(compiled, *without_statics(args, kwargs))
    # Numbers are passed along with the tensors; the flat function decides whether they become operands.
    moving = [isinstance(x, _core.Tensor) or may_be_operand(x) for x in leaves]
    static = tuple(None if m else ("static", type(x), x) for x, m in zip(leaves, moving))
    by_structure = compiled.__dict__.setdefault("_by_structure", Recent())
    try:
        flat = by_structure.get((structure, static))
    except TypeError as e:
        raise TraceError(
            f"{compiled.__name__}: arguments of a compiled function are tensors, hashable values, and containers of them "
            f"({e}); make tensors of arrays, with asarray"
        ) from None
    if flat is None:
        # Keep only static leaves: holding the first call's tensors would keep them alive.
        kept = [None if m else x for x, m in zip(leaves, moving)]

        def run(*given: Any) -> Any:
            fresh = iter(given)
            filled = [next(fresh) if s is None else x for s, x in zip(static, kept)]
            inner_args, inner_kwargs = without_statics(*tree.unflatten(structure, filled))
            return compiled.function(*inner_args, **inner_kwargs)

        flat = by_structure[structure, static] = _wrap(run, compiled.__name__)
        flat._falls_back = compiled.__dict__.get("_falls_back")
        flat.precision = compiled.precision
        by_structure.warn_of_many(compiled)
    return flat(*(x for x, m in zip(leaves, moving) if m))


def _convert_and_call(convert: Convert, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    converted = convert(*args, **kwargs)
    if all(a is b for a, b in zip(args, converted)):
        return compiled.function(*args)  # nothing left to convert, so the function's own checks raise the error
    return compiled(*converted)


def _convert_and_lift(convert: Convert, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _call_lifted(compiled, convert(*args, **kwargs), {})


def _call_lifted(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call with tensors that are not plain, or inside a trace. On duals the compiled pushforward runs; a trace takes in the
    instructions."""
    try:
        return _push(compiled, args, kwargs)
    except ClosesOver:  # perhaps over duals of the same level, which must be combined with the actual arguments
        return compiled.function(*args, **kwargs)


def _push(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    leaves, structure = tree.flatten((args, kwargs))
    lifted: list[Any] = [x for x in leaves if isinstance(x, _core.Tensor) and not x._plain]
    top = max(lifted, key=lambda x: x._level, default=None)
    graph = standing_trace(top)
    if graph is not None:
        with graph:
            return _taken_in(compiled, args, kwargs)
    if not isinstance(top, DualTensor) or tracing() is not None:
        return _taken_in(compiled, args, kwargs)
    level = top._trace
    pairs = [level.split(x) for x in leaves]
    which = tuple(t is not None for _, t in pairs)
    by_structure = compiled.__dict__.setdefault("_pushforwards", {})
    push = by_structure.get((structure, which))
    if push is None:
        f = functools.partial(_pushed, compiled.function, structure, which)
        push = by_structure[structure, which] = _wrap(f, compiled.__name__, _trace_explained, lifted=_push)
    values, tangents, written = push(*(v for v, _ in pairs), *(t for _, t in pairs if t is not None))
    for k, pair in written.items():
        level.rebind(leaves[k], level.pair(*pair), compiled.__name__)
    ys, out_structure = tree.flatten(values)
    return tree.unflatten(out_structure, [level.dual(y, tangents.get(k)) for k, y in enumerate(ys)])


def _taken_in(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call it inside a trace: its instructions are one call of that trace."""
    call = Call()
    with one_call(call):
        result = compiled.function(*args, **kwargs)
    call.results = [x._trace.value(x) for x in tree.leaves(result) if isinstance(x, Tracer)]
    return result


def _pushed(f: Callable[..., Any], structure: Any, which: tuple[bool, ...], *given: Any) -> tuple[Any, ...]:
    """Call f on duals made from these values and tangents. Returns the values of its results, the tangents of those that
    have one, and the values and tangents of arguments that it changed in place."""
    level, dots = _Level(), iter(given[len(which) :])
    leaves = [argument(level, x, next(dots)) if w else x for x, w in zip(given, which)]
    args, kwargs = tree.unflatten(structure, leaves)
    with running_forward(level):
        results, out_structure = tree.flatten(f(*args, **kwargs))
        pairs = [level.split(y) for y in results]
        written = {
            k: _with_tangent(*level.split(x))
            for k, (x, w) in enumerate(zip(leaves, which))
            if isinstance(x, DualTensor) and (x._pair.version or not w)
        }
    tangents = {k: t for k, (_, t) in enumerate(pairs) if t is not None}
    return tree.unflatten(out_structure, [y for y, _ in pairs]), tangents, written


def _with_tangent(value: Any, tangent: Any) -> tuple[Any, Any]:
    return value, zeros_like(value) if tangent is None else tangent


def _wrap(
    f: Callable[..., Any], name: str, trace: Any = _trace_call, slow: Any = _call_structured, lifted: Any = _call_lifted
) -> Any:
    compiled: Any = _core.Compiled(f, trace, slow, lifted)
    compiled.__name__ = name
    return compiled


def _tell(reference: Any, what: str) -> list[Any]:
    compiled = reference()
    flat = compiled.__dict__.get("_by_structure", {}).values()
    return [getattr(t, what)() for c in (compiled, *flat) for t in c.traces]


@overload
def compile(f: F, *, static: Static = (), fallback: bool = False) -> F: ...
@overload
def compile(f: None = None, *, static: Static = (), fallback: bool = False) -> Callable[[F], F]: ...
def compile(f: Any = None, *, static: Static = (), fallback: bool = False) -> Any:
    """Compile f: trace it once per signature into a program that is simplified, fused, and run as one native call.

    - `static`: names or positions of arguments whose value f needs to know; each value is traced separately.
    - `fallback`: if f cannot be traced, run it operation by operation and warn once, instead of raising.

    The signature is the structure of the arguments, static values, and for each tensor its dtype, its rank and which
    of its sizes are 1; another batch size does not trace again. Tensors that f uses from outside are read in every
    call. The result is one instruction on the tape, differentiable in every mode and order.

    f may draw random numbers, change tensors in place, call `backward()` and step an optimizer; all of this happens
    in every call. It must not branch on data (use `cond` or `where`), and changes other Python objects only while it
    is traced. `f.report()` counts what each program does, `f.signature()` says what it assumes. `docs/compile.md` has
    the details.

    >>> import wengert as wg
    >>> @wg.compile
    ... def f(x, w, b):
    ...     return wg.tanh(x * w + b)
    >>> f(wg.ones((3,)), wg.ones((3,)), wg.zeros((3,))).shape
    (3,)
    >>> f.report()[0].passes
    1
    >>> f.signature()[0].arguments
    ('x: float32[n0_0]', 'w: float32[n0_0]', 'b: float32[n0_0]')
    """
    if f is None:
        return functools.partial(compile, static=static, fallback=fallback)
    if not callable(f):
        raise ArgumentError(f"compile: takes a function, got {type(f).__name__}")
    compiled = _wrap(f, getattr(f, "__name__", type(f).__name__))
    functools.update_wrapper(compiled, f)
    weak = weakref.ref(compiled)  # weak, so that the tracer is freed with the function
    compiled.report, compiled.signature = (functools.partial(_tell, weak, what) for what in ("report", "signature"))
    compiled._static = static_names(f, static)
    compiled._falls_back = weak if fallback else None
    return compiled


def _reduce(compiled: Any) -> Any:
    """For copies and pickles: by name, like functions, or by compiling the original again, with nothing traced.

    A function that a transformation made only to compile it has a recipe: the transformation, and its arguments.
    """
    if (recipe := getattr(compiled.function, "recipe", None)) is not None:
        return recipe
    found: Any = sys.modules.get(compiled.__module__)
    for part in compiled.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is compiled:
        return compiled.__qualname__
    again = functools.partial(compile, static=tuple(compiled._static), fallback=compiled._falls_back is not None)
    return again, (compiled.function,)


copyreg.pickle(_core.Compiled, _reduce)


def _compiled_repr(compiled: Any) -> str:
    flat = compiled.__dict__.get("_by_structure", {}).values()
    n = sum(len(c.traces) for c in (compiled, *flat))
    name = getattr(compiled, "__qualname__", compiled.__name__).rpartition("<locals>.")[2]
    if compiled.__dict__.get("_runs_op_by_op"):
        return f"<compiled {name}, runs op by op>"
    return f"<compiled {name}, traced {n} time{'' if n == 1 else 's'}>"


_core.Compiled.__repr__ = _compiled_repr  # type: ignore[method-assign]


@overload
def composite(f: F, *, precision: str = "any", functions: Sequence[str] = ()) -> F: ...
@overload
def composite(f: None = None, *, precision: str = "any", functions: Sequence[str] = ()) -> Callable[[F], F]: ...
def composite(f: Any = None, *, precision: str = "any", functions: Sequence[str] = ()) -> Any:
    """`compile` for the library's own functions: the same as users get, without the report methods.

    `precision` and `functions` as in the record of an op; autocast casts nothing inside.
    """
    if f is None:
        return functools.partial(composite, precision=precision, functions=functions)
    return _known(_wrap(f, f.__name__, _trace_composite), f, precision, functions)


def _known(compiled: Any, f: Any, precision: str, functions: Sequence[str]) -> Any:
    """The composite of f with its precision, registered under its public names."""
    functools.update_wrapper(compiled, f)
    compiled.precision = code_of(precision, f.__name__)
    enlist(compiled, *functions)
    return compiled


def checked_composite(convert: Convert, *, precision: str = "any", functions: Sequence[str] = ()) -> Callable[[F], F]:
    """A composite that checks its own arguments, only once per signature because guards compare the sizes.

    It is called with positional arguments. `convert` takes the same and returns them as tensors and plain numbers; it runs
    only if there is something else among them, or a tensor that is not plain.
    """

    def wrap(f: F) -> F:
        slow, lifted = (functools.partial(g, convert) for g in (_convert_and_call, _convert_and_lift))
        return _known(_wrap(f, f.__name__, _trace_composite, slow, lifted), f, precision, functions)  # type: ignore[no-any-return]

    return wrap
