"""Tracing: running Python on symbolic tensors to obtain a program."""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import ALL as DTYPES
from wengert.dtypes import DType, complex64, complex128, float32, float64, int64
from wengert.errors import DTypeError, TraceError, WengertError
from wengert.program.ir import Const, Instruction, Operand, Origin, Program, Shape, Type, Var, infer
from wengert.program.numbers import is_number
from wengert.registry.record import OPS, Op
from wengert.user_line import user_line

_state = threading.local()


class origins:
    """A scope in which traced instructions get the origin of a given instruction, or none, instead of the running user line.

    Rules are traced for the instruction that they differentiate, and the library's own functions for all who call them.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> origins:
        self._before = getattr(_state, "origin", _HERE)
        _state.origin = None
        return self

    def set(self, i: Instruction) -> None:
        """From now on, traced instructions belong to the derivative of this one."""
        _state.origin = derived_origin(i)

    def __exit__(self, *exc: object) -> None:
        _state.origin = self._before


_HERE = Origin(None)


def derived_origin(i: Instruction) -> Origin | None:
    """The origin of what belongs to the derivative of an instruction."""
    return None if i.origin is None else Origin(i.origin.line, i.origin.op or i.op.name)


def _origin() -> Origin | None:
    origin: Origin | None = getattr(_state, "origin", _HERE)
    return Origin(_core.Line()) if origin is _HERE else origin


def _traces() -> list[Trace | None]:
    if not hasattr(_state, "traces"):
        _state.traces = []
    return _state.traces  # type: ignore[no-any-return]


def tracing() -> Trace | None:
    """The innermost open trace of this thread."""
    open_traces: list[Trace | None] | None = getattr(_state, "traces", None)  # every eager step of an optimizer asks
    return open_traces[-1] if open_traces else None


def is_open(trace: Trace) -> bool:
    """Whether a trace is open in this thread, be it around others."""
    return trace in _traces()


# Static graphs, which accept instructions without being open, by the source number of their sizes.
STANDING: weakref.WeakValueDictionary[int, Trace] = weakref.WeakValueDictionary()
_GIVEN = 3  # as core/dim.h: SizeLeaf::given


def standing_trace(x: Any) -> Trace | None:
    """The static graph that a tensor or a size belongs to, if no trace is open."""
    if not isinstance(x, (Tracer, _core.Dim)) or tracing() is not None:
        return None
    if isinstance(x, Tracer):
        return x._trace if x._trace.standing else None
    return next((STANDING.get(source) for kind, source, _ in _core.leaves_of_sizes((x,)) if kind == _GIVEN), None)


class untraced:
    """A scope in which ops without operands run immediately, even inside a trace, for Python that runs while tracing."""

    def __enter__(self) -> None:
        _enter(None)

    def __exit__(self, *exc: object) -> None:
        _leave()


def _enter(trace: Trace | None) -> None:
    _traces().append(trace)
    _core.set_capturing(trace is not None and trace.captures)


def _leave() -> None:
    _traces().pop()
    trace = tracing()
    _core.set_capturing(trace is not None and trace.captures)


def open_calls() -> tuple[Any, ...]:
    """The calls that instructions belong to which are traced now, from the outermost on."""
    calls: tuple[Any, ...] = getattr(_state, "calls", ())
    return calls


class Call:
    """A call of a compiled function in a trace, which eager code would record as one node. `results`: what it returned."""

    __slots__ = ("results",)

    results: list[Var]

    def __init__(self) -> None:
        self.results = []


class one_call:
    """A scope whose instructions belong to one call: eager code records a single node for them."""

    __slots__ = ("_before", "_call")

    def __init__(self, call: Any) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._before = open_calls()
        _state.calls = (*self._before, self._call)

    def __exit__(self, *exc: object) -> None:
        _state.calls = self._before


def create(op: Op, attrs: tuple[Any, ...]) -> Any:
    """An op without operands: it runs now, or becomes an instruction of the open trace."""
    trace = tracing()
    return op.function(*attrs) if trace is None else trace.emit(op, (), attrs)


def refuse_kept_size(name: str) -> NoReturn:
    """Raise for a symbolic size that is used outside of its trace."""
    raise TraceError(
        f"{name}: a size was kept from the tracing of a compiled function, where it has no value. Read the shape of a "
        "tensor outside; or keep int(size), which makes the function trace anew for other sizes"
    )


def filled(shape: Shape, value: Any, dtype: int) -> Any:
    """A tensor filled with one value, now or in the open trace. Attributes are real, so an imaginary part is added."""
    if not isinstance(value, complex):
        return create(OPS["full"], (shape, dtype, float(value)))
    if DTYPES[dtype].kind != "c":
        raise DTypeError(f"full: {value} does not fit {DTYPES[dtype].name}; use a complex dtype")
    parts = real_parts(dtype)
    re, im = (create(OPS["full"], (shape, parts, x)) for x in (value.real, value.imag))
    return OPS["make_complex"](re, im)


def real_parts(dtype: int) -> int:
    """The dtype of the real and imaginary parts."""
    return {complex64.code: float32.code, complex128.code: float64.code}.get(dtype, dtype)


_KEEP_TENSOR = "Compute with the tensor itself, which ops take like a number; or return it and read it outside"


class Tracer(Tensor):
    """A tensor that represents a value of the program being traced."""

    __slots__ = ("_level", "_trace", "_var")

    _trace: Trace
    _var: Var
    _level: int

    @property
    def shape(self) -> Shape:
        return self._var.type.shape

    @property
    def dtype(self) -> DType:
        return DTYPES[self._var.type.dtype]

    @property
    def ndim(self) -> int:
        return len(self._var.type.shape)

    @property
    def size(self) -> Any:
        n: Any = 1
        for s in self.shape:
            n = n * s
        return n

    @property
    def requires_grad(self) -> bool:
        return False

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value:
            raise TraceError(
                f"requires_grad: a tensor {self._var.type} that is being traced cannot become a leaf; make leaves outside "
                "the compiled function, or use grad() inside"
            )

    def __len__(self) -> int:
        return int(self.shape[0])

    def __bool__(self) -> NoReturn:
        self._refuse(
            "branches on",
            "Use where() or cond() instead of if, and while_loop() instead of while; or branch outside the function",
        )

    def __float__(self) -> NoReturn:
        self._refuse("converts to a Python number", _KEEP_TENSOR)

    def __int__(self) -> NoReturn:
        self._refuse("converts to a Python number", _KEEP_TENSOR)

    def __complex__(self) -> NoReturn:
        self._refuse("converts to a Python number", _KEEP_TENSOR)

    def __index__(self) -> NoReturn:
        self._refuse(
            "takes for a size, an axis or a Python index",
            "Index with the tensor itself, x[i] or take(x, i); pass sizes and axes as integers",
        )

    def item(self) -> NoReturn:
        """Not available while tracing."""
        self._refuse("reads with item()", _KEEP_TENSOR)

    def numpy(self) -> NoReturn:
        """Not available while tracing."""
        self._refuse("reads with NumPy", "Use the function of wengert, or return the tensor and read it outside")

    def detach(self) -> Tracer:
        """The value as a constant for differentiation."""
        return self._trace.emit(OPS["stop_gradient"], (self,), ())  # type: ignore[no-any-return]

    def _refuse(self, verb: str, remedy: str) -> NoReturn:
        raise TraceError(
            f"the traced function {verb} the data of a tensor {self._var.type}, at {user_line()}; while tracing there is "
            f"none. {remedy}"
        )

    def __repr__(self) -> str:
        return f"Tracer({self._var.type})"


class Trace:
    """A program under construction."""

    captures = False  # whether ops on plain tensors become instructions too
    absorbs = False  # whether ops on tensors of enclosing transformations do too
    standing = False  # whether it accepts instructions without being open, as static graphs do

    def __init__(self) -> None:
        self.level = _core.new_level()
        self.inputs: list[Var] = []
        self.instructions: list[Instruction] = []
        self.captured: dict[int, tuple[Any, Tracer]] = {}
        self.hooks: dict[Var, list[Any]] = {}  # hooks that may change the cotangents of values
        self.calls: dict[Instruction, tuple[Any, ...]] = {}  # of those that belong to calls, from the outermost on
        self._cast_by: list[Any] = []  # the enclosing autocast policies

    def __enter__(self) -> Trace:
        _enter(self)
        if not self.captures:  # a rule or a pass over a program: its ops keep their precision
            self._cast_by.append(_core.set_autocast(None))
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.captures:
            _core.set_autocast(self._cast_by.pop())
        _leave()

    def tracer(self, var: Var) -> Tracer:
        """A tensor that represents `var`."""
        t = Tracer.__new__(Tracer)
        t._trace, t._var, t._level = self, var, self.level
        return t

    def input(self, type_: Type, linear: bool = False) -> Tracer:
        """A new input of the program."""
        var = Var(type_, linear)
        self.inputs.append(var)
        return self.tracer(var)

    def capture(self, x: Any) -> Tracer:
        """A tensor from outside: an implicit input."""
        known = self.captured.get(id(x))
        if known is None:
            known = self.captured[id(x)] = (x, self.tracer(Var(Type(x.dtype.code, x.shape))))
        return known[1]

    def variables(self, x: Any) -> list[Var]:
        """The values of this program whose cotangents add up to the gradient with respect to x."""
        return [x._var] if isinstance(x, Tracer) and x._trace is self else []

    def another_name(self, x: Tracer) -> Tracer:
        """x under a new name: writing to one of the two leaves the other unchanged."""
        return self.tracer(x._var)

    def rebind(self, x: Any, value: Any, name: str) -> NoReturn:
        """In a trace of one op or rule nothing is written to."""
        raise TraceError(
            f"{name}: a tensor of shape {tuple(x.shape)} cannot be changed in place here, because it or the new value is "
            "traced; compute a new tensor instead"
        )

    def operand(self, x: Any, dtype: int) -> Operand:
        """An operand of an instruction: a value of this program, a captured one, or a literal."""
        return self.value(x) if isinstance(x, Tensor) else Const(x, dtype)

    def value(self, x: Any) -> Var:
        """The value that a tensor represents in this program."""
        if isinstance(x, Tracer) and x._trace is self:
            return x._var
        return self.capture(x)._var

    def emit(self, op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """Append an instruction and return its outputs as tensors."""
        operands: list[Any] = []
        linear, dtype, has_numbers = False, 0, False
        for x in inputs:
            v = self.value(x) if isinstance(x, Tensor) else x
            if isinstance(v, Var):
                linear = linear or v.linear
                dtype = v.type.dtype
            else:
                has_numbers = True
            operands.append(v)
        if has_numbers:
            operands = [x if isinstance(x, Var) else Const(x, dtype) for x in operands]
        if linear and op.strong:
            op, operands = _strong(op, operands)
        outputs = tuple([Var(t, linear) for t in infer(op, operands, attrs)])
        made = Instruction(op, tuple(operands), attrs, outputs, _origin())
        self.append(made, open_calls() if self.captures else ())
        if op.n_outputs == 1:
            return self.tracer(outputs[0])
        return tuple([self.tracer(v) for v in outputs])

    def append(self, i: Instruction, calls: tuple[Any, ...]) -> None:
        """Add an instruction that belongs to these calls."""
        self.instructions.append(i)
        if calls and self.captures:
            self.calls[i] = calls

    def process(self, op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """Handle an op on this trace's tensors; called by dispatch."""
        return self.emit(op, inputs, attrs)

    def explain(self, error: Exception) -> None:
        """Add what is known here about the sizes in an error message."""

    def program(self, outputs: Sequence[Any]) -> Program:
        """The finished program; captured tensors follow the inputs."""
        captured = [t._var for _, t in self.captured.values()]
        return Program([*self.inputs, *captured], self.instructions, list(outputs))


def _strong(op: Op, operands: list[Operand]) -> tuple[Op, list[Operand]]:
    """Turn a product of a tangent and a coefficient into `scale`, which is zero wherever the tangent is."""
    first, strong = operands[0], OPS[op.strong]
    if isinstance(first, Var) and first.linear:
        return strong, operands
    return (strong, operands[::-1]) if op.commutes else (op, operands)


_level_of = operator.attrgetter("_level")


def dispatch(name: str, inputs: tuple[Any, ...], attrs: tuple[Any, ...] | None) -> Any:
    """Apply an op to tensors that are not all plain, at the highest level among them."""
    op = OPS[name]
    if op.elementwise and not _unified(op, inputs):
        inputs = tuple(map(_convert, inputs))
        if any(x is NotImplemented for x in inputs):
            return NotImplemented  # Python then tries the other operand, such as a symbolic zero
        if any(isinstance(x, _core.Dim) for x in inputs):
            inputs = _with_sizes(inputs)
        if any(is_number(x) for x in inputs):
            inputs = _with_numbers(op, inputs)
        try:
            inputs = unify(op, inputs)
        except WengertError as e:
            for x in inputs:
                if isinstance(x, Tracer):
                    x._trace.explain(e)
            raise
    levelled: list[Any] = [x for x in inputs if isinstance(x, Tensor) and not x._plain]
    top = max(levelled, key=_level_of) if len(levelled) > 1 else levelled[0] if levelled else None
    if top is None:
        trace = tracing()
        # All tensors are plain, but an attribute is a size of the trace, or the trace captures everything.
        if trace is not None and (attrs is not None or trace.captures):
            return trace.emit(op, inputs, attrs or ())
        if attrs is not None:
            standing = next((t for a in attrs for n in _sizes_in(a) if (t := standing_trace(n)) is not None), None)
            return refuse_kept_size(name) if standing is None else standing.emit(op, inputs, attrs)
        return op(*inputs)  # unification left only plain tensors
    trace = tracing()
    if trace is not None and trace.absorbs and trace.level > top._level:
        return trace.process(op, inputs, attrs or ())
    return top._trace.process(op, inputs, attrs or ())


def _sizes_in(attr: Any) -> tuple[Any, ...]:
    return attr if isinstance(attr, tuple) else ()


# The dtype an elementwise op computes in, by (op, promoted dtype of its operands).
_COMPUTING: dict[tuple[Op, int], int] = {}


def _computing(op: Op, dtype: int) -> int:
    found = _COMPUTING.get((op, dtype))
    if found is None:
        found = _COMPUTING[op, dtype] = _core.elementwise_dtypes(op.name, dtype)[0]
    return found


def _unified(op: Op, inputs: tuple[Any, ...]) -> bool:
    """The common case: whether the operands are floats and tracers of one shape, in the dtype that the op computes in."""
    of: Type | None = None
    numbers = False
    for x in inputs:
        if isinstance(x, Tracer):
            t = x._var.type
            if of is None:
                of = t
            elif t is not of and (t.dtype != of.dtype or not _core.same_sizes(t.shape, of.shape)):
                return False
        elif type(x) is float:
            numbers = True
        else:
            return False
    if of is None or op.n_conditions or (numbers and DTYPES[of.dtype].kind not in "fc"):
        return False
    return _computing(op, of.dtype) == of.dtype


def _convert(x: Any) -> Any:
    return x if isinstance(x, (Tensor, float, int, complex, _core.Dim)) or is_number(x) else _core.convert_operand(x)


def _promoted(inputs: tuple[Any, ...]) -> int:
    """The promoted dtype of the tensors; that of an integer if there are none."""
    codes = [x.dtype.code for x in inputs if isinstance(x, Tensor)]
    return functools.reduce(_core.promote, codes) if codes else int64.code


def _with_sizes(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands with sizes, as in x / x.shape[0], replaced by values, which promote weakly, as integers do."""
    dtype = _core.promote_number(_promoted(inputs), 0)
    return tuple(create(OPS["size_scalar"], ((x,), dtype)) if isinstance(x, _core.Dim) else x for x in inputs)


def _planned(op: Op, inputs: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
    """The dtype that the op computes in, and the operands, where integers out of range of the tensor that they are compared
    with are replaced by infinities."""
    return _core.plan_operands(op.name, [x.dtype.code if isinstance(x, Tensor) else -1 for x in inputs], inputs)


def _with_numbers(op: Op, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands with symbolic numbers replaced by values in the dtype that the op computes in; they promote weakly."""
    dtype, _ = _planned(op, tuple(x.zero() if is_number(x) else x for x in inputs))
    first = op.n_conditions
    return tuple(x if not is_number(x) else x.known() if k < first else x.weak(dtype) for k, x in enumerate(inputs))


def unify(op: Op, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Bring the operands of an elementwise op to one dtype and shape; scalars stay scalars."""
    first = op.n_conditions
    dtype, inputs = _planned(op, inputs)
    shape = broadcast_shapes(op.name, *(x.shape for x in inputs if isinstance(x, Tensor)))
    unified = []
    for k, x in enumerate(inputs):
        if isinstance(x, Tensor):
            wanted = 0 if k < first else dtype
            if x.dtype.code != wanted:
                x = OPS["cast"](x, wanted)
            if not same_shape(x.shape, shape):
                x = OPS["broadcast_to"](_known_to_trace(x, shape), shape)
        elif k < first:  # literals take the dtype of the other operands, and a condition is bool
            x = filled(shape, bool(x), 0)
        unified.append(x)
    if not any(isinstance(x, Tensor) for x in unified[first:]):  # where(mask, 1.0, 2.0)
        unified[-1] = filled(shape, unified[-1], dtype)
    return tuple(unified)


def _known_to_trace(x: Any, sizes: Shape) -> Any:
    """x, captured by the trace that the sizes belong to, because an op with symbolic sizes cannot run now."""
    if not x._plain or not any(isinstance(n, _core.Dim) for n in sizes):
        return x
    trace = tracing() or next((t for n in sizes if (t := standing_trace(n)) is not None), None)
    return x if trace is None else trace.capture(x)


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal; sizes that are only equal for now record a guard."""
    return len(a) == len(b) and all(x == y for x, y in zip(a, b))


def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """The common shape of operands."""
    result: Shape = shapes[0]
    for shape in shapes[1:]:
        result = tuple(_core.broadcast_shapes(name, result, shape))
    return result
