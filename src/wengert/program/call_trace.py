"""Tracing for compile(): random draws, captured tensors and in-place writes become explicit inputs and outputs of the
program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from wengert import _core
from wengert.dtypes import ALL as DTYPES
from wengert.dtypes import DType, int64
from wengert.errors import GradientError, ShapeError, TraceError
from wengert.program.effects import Act, Before, Beginning, Check, Entry, LeafGrad, Numbers, Stream
from wengert.program.ir import Program, Type, Var, remove_dead
from wengert.program.trace import Trace, Tracer, is_open, same_shape, tracing
from wengert.registry.record import OPS, Op

_CONTENT = 2  # as core/dim.h: SizeLeaf::content
_LAST_BIT = 63  # as core/tape.h: kLastBit


def call_trace() -> CallTrace | None:
    """The open trace of this thread, if it is one made by compile()."""
    trace = tracing()
    return trace if isinstance(trace, CallTrace) else None


class ClosesOver(BaseException):
    """The function being traced closes over a tensor that is not plain: a dual, or a tensor of another trace.

    It says nothing about the function, which runs on such tensors op by op; so no handler of users' may catch it.
    """


@dataclass(slots=True, eq=False)
class View:
    """How one tensor of the trace is a view of another."""

    base: Tracer
    op: Op
    attrs: tuple[Any, ...]
    seen: int  # the base's version that the view reflects


@dataclass(slots=True, eq=False)
class StepCondition:
    """Whether optimizer steps take effect: known in the program, and after the call."""

    holds: Any  # a boolean tensor of the trace
    held: Callable[[], bool]


class Name(Tracer):
    """A tensor in the trace. Writing to it in place gives the name a new value, as outside of traces."""

    __slots__ = ("_op", "_recorded", "_source", "_version", "_view", "_views")

    _trace: CallTrace
    _version: int  # counts writes
    _view: View | None
    _views: list[weakref.ref[Name]]  # views of this tensor
    _recorded: bool  # whether a write was recorded, rather than made under no_grad
    _source: Var  # the value that supplies its derivative; writes under no_grad do not change it
    _op: str  # the op of the last write

    def _refuse(self, verb: str, remedy: str) -> NoReturn:
        self._trace._require_open((self,))
        super()._refuse(verb, remedy)

    @property
    def grad(self) -> Any:
        """The gradient accumulated so far, or None."""
        return self._trace.grad(self)

    @grad.setter
    def grad(self, gradient: Any) -> None:
        self._trace.set_grad(self, gradient)


class CallTrace(Trace):
    """A program under construction. Hidden inputs follow the arguments; new values of changed tensors are extra outputs."""

    captures = True

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[Name] = []
        self.hidden: list[tuple[Stream | Numbers | Entry, Var]] = []
        self.made: dict[int, Any] = {}  # plain tensors that the function creates, anew in every call
        self.commits: dict[Any, Callable[[], None]] = {}  # further changes made after a successful call
        self.checks: list[Check] = []  # assumptions about Python objects, checked in every call
        self.assumed: list[str] = []  # the same assumptions in words
        self.grads: dict[int, LeafGrad] = {}  # gradients of arguments and captured tensors, by name
        self.retained: dict[int, tuple[Name, LeafGrad]] = {}  # gradients of intermediate tensors
        self.asks_roles = False  # whether the program depends on which tensors are leaves
        self._given: dict[Name, Any] = {}  # the actual arguments of the traced call
        self._acts: list[tuple[int, Act]] = []  # each with the number of hidden inputs before it
        self._undo: list[Callable[[], None]] = []
        self.freed: set[Var] = set()  # values whose graph a backward pass has consumed
        self._program = Program([], [], [])  # set when the trace is finished
        self.steps: dict[Any, int] = {}  # optimizer steps per call, by what is updated
        self.condition: StepCondition | None = None  # of the optimizer steps that are being traced
        self.notes: dict[Any, Any] = {}  # what objects that take part in the trace keep until it ends
        self._read: dict[tuple[int, str], tuple[Any, str, Any]] = {}  # settings of Python objects
        self._entry: dict[Name, Var] = {}  # the values of names when the call began
        self._ended = False

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if not is_open(self):
            self._ended = True
            for x, _ in self.captured.values():
                _core.mark_changed(x, False)
            while self._undo:
                self._undo.pop()()

    # ---------------------------------------------------------------------------------------------------- inputs

    def tracer(self, var: Var) -> Name:
        """A tensor that represents `var`."""
        t = Name.__new__(Name)
        t._trace, t._var, t._source, t._level = self, var, var, self.level
        t._version, t._view, t._views, t._recorded, t._op = 0, None, [], False, ""
        return t

    def argument(self, type_: Type, given: Any = None) -> Name:
        """A new argument of the function, whose value in the traced call is `given`."""
        name: Any = self.input(type_)
        self.arguments.append(name)
        self._given[name] = given
        self._entry[name] = name._var
        return name  # type: ignore[no-any-return]

    def capture(self, x: Any) -> Name:
        """A tensor from outside: an implicit input. Raises ClosesOver if it belongs to a transformation around the call."""
        if isinstance(x, Name):
            x._trace._require_open((x,))
        if not x._plain:
            raise ClosesOver
        name: Any = super().capture(x)
        self._entry.setdefault(name, name._var)
        return name  # type: ignore[no-any-return]

    def _require_open(self, given: Sequence[Any]) -> None:
        if self._ended:
            kept = next(x for x in given if isinstance(x, Name) and x._trace is self)
            raise TraceError(
                f"a tensor {kept._var.type} was kept from the tracing of a compiled function, where it has no data. Return "
                "it from the function; or write to a tensor that exists before, in place, which every call does"
            )

    def draw(self, generator: Any, n: Any, wide: bool) -> tuple[tuple[Any, Any], tuple[Any]]:
        """Key and counter of a draw of n elements, as numbers that each call reads from the generator."""
        stream = next((s for s, _ in self.hidden if isinstance(s, Stream) and s.generator is generator), None)
        if stream is None:
            k = len(self.inputs) + len(self.hidden)
            first, second, start = (_core.new_symbol(_CONTENT, k, j, 0) for j in range(3))
            stream = Stream(generator, (first, second), start)
            self.hidden.append((stream, Var(Type(int64.code, (3,)))))
        counter = stream.start + stream.taken
        stream.taken = stream.taken + generator.counters(n, wide)
        return stream.key, (counter,)

    def scalars(self, read: Callable[[], Sequence[float] | None], count: int, dtype: DType) -> list[Any]:
        """Numbers that every call reads when it begins, as 0-d tensors. If `read` returns None, the function is traced
        again."""
        var = Var(Type(dtype.code, (count,)))
        self.hidden.append((Numbers.of(read, dtype), var))
        row = self.tracer(var)
        return [row[k] for k in range(count)]

    def act(self, do: Callable[[], None], save: Callable[[], Callable[[], None]]) -> None:
        """Apply an effect now, until the trace ends, and in every call. `save()` returns a function that undoes it."""
        self._acts.append((len(self.hidden), Act(do, save)))
        self._undo.append(save())
        do()

    def read(self, owner: Any, setting: str) -> None:
        """Note that the function read an attribute. If its value changes, the function is traced again."""
        self._read.setdefault((id(owner), setting), (owner, setting, getattr(owner, setting)))

    def read_settings(self) -> list[tuple[Any, str, Any]]:
        """Owner, name and value of each attribute that was read."""
        return list(self._read.values())

    def settings(self) -> Callable[[], bool] | None:
        """A check that the attributes that were read are unchanged, to be called after `_core.settings_changed`."""
        read = self.read_settings()
        return (lambda: all(getattr(owner, name) == value for owner, name, value in read)) if read else None

    # --------------------------------------------------------------------------------------------------- values

    def another_name(self, x: Tracer) -> Name:
        """x under a new name."""
        name: Any = x
        return self.tracer(self._current(name))

    def value(self, x: Any) -> Var:
        """The current value of a name."""
        return self._current(x if isinstance(x, Name) and x._trace is self else self.capture(x))

    def _current(self, name: Name) -> Var:
        """The value, taken from its base again if the base was written to."""
        view = name._view
        if view is not None:
            base: Any = view.base
            self._current(base)
            if base._version != view.seen:
                _require_view(name, "this")
                name._var = name._source = super().emit(view.op, (base,), view.attrs)._var
                view.seen = base._version
                name._version += 1
        return name._var

    def emit(self, op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """Append an instruction and return its outputs as tensors, which are constants under no_grad."""
        self._require_open(inputs)
        made = super().emit(op, inputs, attrs)
        if op.view:
            x = inputs[0]
            base: Any = x if isinstance(x, Tracer) else self.capture(x)
            made._view = View(base, op, attrs, base._version)
            base._views.append(weakref.ref(made))
        if _core.is_grad_enabled() or op.passes_on:
            return made
        for y in made if op.n_outputs > 1 else (made,):
            y._var = y._source = self._stopped(y._var)
        return made

    def _stopped(self, var: Var) -> Var:
        if not DTYPES[var.type.dtype].is_inexact:
            return var
        stopped = super().emit(OPS["stop_gradient"], (self.tracer(var),), ())
        return stopped._var  # type: ignore[no-any-return]

    # --------------------------------------------------------------------------------------------------- writing

    def owns(self, x: Any) -> bool:
        """Whether x is a tensor of this trace, or one from outside."""
        return x._plain or (isinstance(x, Tracer) and x._trace is self)

    def write(self, x: Any, value: Any, op: str) -> None:
        """Give x, a tensor of this trace or from outside, a new value from here on."""
        name: Any = x if isinstance(x, Name) else self.capture(x)
        var = self.operand(value, 0)
        if not isinstance(var, Var) or var.type.dtype != name._var.type.dtype or not same_shape(value.shape, x.shape):
            raise TraceError(f"{op}: {value!r} does not fit in place of {x!r}")
        self._give(name, var, op, _core.is_grad_enabled())
        if x._plain:
            _core.mark_changed(x, True)

    def rebind(self, x: Any, value: Any, name: str) -> NoReturn:
        """Write where x or the value belongs to a transformation around the call."""
        self._require_open((x, value))
        raise ClosesOver

    def _give(self, name: Name, var: Var, op: str, recorded: bool) -> None:
        if name._view is not None:
            self._current(name)
            self._update_base(name, name._view, var, op, recorded)
            return
        if recorded:
            name._var = name._source = var
        else:
            name._var = self._replaced(name._var, var)
        name._version += 1
        name._recorded |= recorded
        name._op = op

    def _replaced(self, old: Var, new: Var) -> Var:
        """The new value with the derivative of the old one."""
        if not DTYPES[new.type.dtype].is_inexact:
            return new
        replaced = super().emit(OPS["replace_value"], (self.tracer(old), self.tracer(self._stopped(new))), ())
        return replaced._var  # type: ignore[no-any-return]

    def _update_base(self, name: Name, view: View, var: Var, op: str, recorded: bool) -> None:
        """Write through a view to its base."""
        _require_view(name, op)
        base: Any = view.base
        new = self.tracer(var)
        if view.op.written_back is not None:
            whole = view.op.written_back(super().emit, base, new, view.attrs)
        elif view.op.passes_on:  # detach(): a write through it is not recorded
            whole, recorded = new, False
        else:
            raise TraceError(
                f"{op}: a tensor {name._var.type} that {view.op.name} made cannot be changed in place inside a compiled "
                "function; change the tensor that it was made of, or clone() it first"
            )
        self._give(base, whole._var, op, recorded)

    # ------------------------------------------------------------------------------------------------- gradients

    def given(self, leaf: Any) -> Any:
        """The actual tensor of an argument in the traced call, or a captured tensor itself; None for computed tensors."""
        return self._given.get(leaf) if isinstance(leaf, Name) else leaf

    def sources(self) -> tuple[list[Any], list[Any]]:
        """The arguments and captured tensors that require a gradient: leaves, and tensors computed outside."""
        self.asks_roles = True
        known = [(name, x) for name, x in self._given.items() if isinstance(x, _core.Tensor)]
        known += [(x, x) for x, _ in self.captured.values()]
        tracked = [(leaf, x) for leaf, x in known if x._plain and x.requires_grad]
        return [leaf for leaf, x in tracked if x.is_leaf], [leaf for leaf, x in tracked if not x.is_leaf]

    def variables(self, x: Any) -> list[Var]:
        """The values whose cotangents add up to the gradient with respect to x."""
        name: Any = x if isinstance(x, Name) else self.captured.get(id(x), (None, None))[1]
        if name is None:
            return []
        self._current(name)
        return [name._source]

    def free(self, y: Name) -> None:
        """Note that the graph of y has been freed, so y and what it was computed from cannot be differentiated any more."""
        self.freed.update(o for i in remove_dead(self.instructions, [self._current(y)]) for o in i.outputs)

    def _leaf_grad(self, x: Any) -> LeafGrad:
        """The `.grad` of an argument or a captured tensor."""
        name: Any = x if isinstance(x, Name) else self.capture(x)
        known = self.grads.get(id(name))
        if known is None:
            self.asks_roles = True
            known = self.grads[id(name)] = LeafGrad(x)
        return known

    def _is_result(self, x: Any) -> bool:
        return isinstance(x, Name) and x not in self._given

    def grad(self, x: Any) -> Any:
        """`x.grad` at this point of the function."""
        self._require_open((x,))
        if self._is_result(x):
            retained = self.retained.get(id(x))
            return None if retained is None else retained[1].read(self)
        return self._leaf_grad(x).read(self)

    def set_grad(self, x: Any, gradient: Any) -> None:
        """`x.grad = gradient`, in every call."""
        self._require_open((x,))
        if gradient is None and (self._is_result(x) or x.dtype.kind not in "fc"):
            self.retained.pop(id(x), None)
            return
        if gradient is not None:
            if not isinstance(gradient, _core.Tensor):
                raise TypeError("grad: expected a tensor or None")
            if self._is_result(x) or not self.given(x).requires_grad:
                raise GradientError("grad: this tensor does not require a gradient; set requires_grad first")
            if not same_shape(gradient.shape, x.shape):
                raise ShapeError(
                    f"grad: a gradient of shape {tuple(gradient.shape)} does not fit a tensor of shape {tuple(x.shape)}"
                )
            gradient = gradient.detach()
        self._leaf_grad(x).assign(self, gradient)

    def found_grad(self, outside: Any) -> Name:
        """The tensor for a `.grad` that exists when a call begins."""
        var = Var(Type(outside.dtype.code, outside.shape))
        self.hidden.append((Entry(), var))
        name = self.tracer(var)
        self._entry[name] = var
        return name

    def retain_grad(self, x: Name) -> None:
        """Keep the gradient of an intermediate tensor."""
        self.retained.setdefault(id(x), (x, LeafGrad.of_result(x)))

    def accumulate(self, x: Any, gradient: Any) -> None:
        """Add this to the `.grad` of x in every call."""
        if id(x) in self.retained:
            self.retained[id(x)][1].add(self, gradient)
        elif not self._is_result(x):
            self._leaf_grad(x).add(self, gradient)

    # ---------------------------------------------------------------------------------------------------- result

    def _from_outside(self) -> list[tuple[Name, int]]:
        """The names that have a value when the call begins, with their input numbers."""
        known: list[Any] = [*self.arguments, *self._hidden_names(), *(name for _, name in self.captured.values())]
        return [(name, k) for k, name in enumerate(known) if name is not None]

    def _hidden_names(self) -> list[Any]:
        entries = {self._entry[g.entry]: g.entry for g in self.grads.values() if g.entry is not None}
        return [entries.get(var) for _, var in self.hidden]

    def changed(self) -> list[tuple[Name, int]]:
        """The names from outside whose value the call changes, with their input numbers."""
        skipped = {id(self.captured[k][1]) for k in self.made if k in self.captured}
        return [
            (name, k)
            for name, k in self._from_outside()
            if self._current(name) is not self._entry[name] and id(name) not in skipped
        ]

    def program(self, outputs: Sequence[Any]) -> Program:
        """The finished program: arguments, hidden inputs, captured tensors; results, new values, gradients."""
        changed = [name._var if name._recorded else self._stopped(name._var) for name, _ in self.changed()]
        left = [grad.result()[1] for grad in self.grads.values()]
        gradients = [self.value(g) for g in left if g is not None]
        captured = [self._entry[name] for _, name in self.captured.values()]  # type: ignore[index]
        inputs = [*self.inputs, *(v for _, v in self.hidden), *captured]
        self._program = Program(inputs, self.instructions, [*outputs, *changed, *gradients])
        return self._program

    def has_effects(self) -> bool:
        """Whether a call does more than compute results from its arguments and captured tensors."""
        return bool(self.hidden or self.commits or self.grads or self._acts or self.checks or self.changed())

    def effects(self) -> _core.Effects | None:
        """The side effects of a call, for the core; None if there are none."""
        if not self.has_effects():
            return None
        changed = self.changed()
        program = self._program
        n_gradients = sum(grad.result()[1] is not None for grad in self.grads.values())
        n_results = len(program.outputs) - len(changed) - n_gradients
        return _core.Effects(
            draws=_core.make_sizes(tuple(source.taken for source, _ in self.hidden)),
            writes=[
                _core.TensorWrite(input=k, output=n_results + j, recorded=name._recorded, op=name._op)
                for j, (name, k) in enumerate(changed)
            ],
            sources=reach(program, input_bits(program), self.freed),
            n_results=n_results,
            grads=self._leaf_effects(n_results + len(changed)),
        )

    def begin(self) -> Callable[[list[int]], list[Any] | None]:
        """The first step of a call with effects."""
        return Beginning([source for source, _ in self.hidden], self._acts, self.checks).__call__

    def commit(self) -> Callable[[], None] | None:
        """The changes to Python objects after a successful call; None if there are none."""
        commits = [*(act.do for _, act in self._acts), *self.commits.values()]

        def commit() -> None:
            for change in commits:
                change()

        return commit if commits else None

    def _leaf_effects(self, first_output: int) -> list[_core.LeafGrad]:
        """The effects on each `.grad` that is read or changed."""
        position = {id(name): k for name, k in self._from_outside()}
        made = []
        output = first_output
        for name, grad in self.grads.items():
            after, left = grad.result()
            here = grad.before == Before.PRESENT
            made.append(
                _core.LeafGrad(
                    leaf=position[name],
                    before=grad.before,
                    dtype=self._entry[grad.entry].type.dtype if here else 0,
                    input=position[id(grad.entry)] if here else 0,
                    after=after,
                    output=output if left is not None else 0,
                )
            )
            output += left is not None
        return made


def _require_view(name: Name, op: str) -> None:
    """Raise if it depends on strides, which a trace does not know, whether the tensor shares memory with its base."""
    view: Any = name._view
    if view.op.may_copy and not (view.base._view is None and has_known_layout(view.base)):
        require_same_but_for_ones(name, view.base, op)


def has_known_layout(name: Name) -> bool:
    """Whether a tensor that is not a view is contiguous in every call."""
    if any(name is x for x in name._trace.arguments):
        return False
    captured = next((x for x, n in name._trace.captured.values() if n is name), None)
    return captured is None or bool(captured.is_contiguous)


def require_same_but_for_ones(reshaped: Any, base: Any, op: str) -> None:
    """Raise unless reshaping only adds or removes axes of size 1, which needs no memory whatever the strides are."""
    left, right = ([n for n in x.shape if not (isinstance(n, int) and n == 1)] for x in (reshaped, base))
    if not same_shape(tuple(left), tuple(right)):
        raise TraceError(
            f"{op}: whether a reshaped tensor of shape {tuple(reshaped.shape)} shares memory with the tensor that it was "
            "made of depends on strides, which a compiled function does not know; clone() one of the two"
        )


def input_bits(program: Program) -> dict[Var, int]:
    """A bit for every input that may have a gradient; the last bit covers all remaining inputs."""
    floating = [(k, v) for k, v in enumerate(program.inputs) if DTYPES[v.type.dtype].is_inexact]
    return {v: 1 << min(k, _LAST_BIT) for k, v in floating}


def reach(program: Program, starts: dict[Var, int], ends: set[Var]) -> list[int]:
    """For each output, the bits of the values that it depends on by a path that avoids `ends`."""
    bits = dict(starts)
    for i in program.instructions:
        found = 0
        if i.passes_derivatives():
            for v in i.vars():
                found |= bits.get(v, 0)
        for o in i.outputs:
            if found and o not in ends and DTYPES[o.type.dtype].is_inexact:
                bits[o] = bits.get(o, 0) | found
    return [bits.get(o, 0) if isinstance(o, Var) else 0 for o in program.outputs]
