"""Batching of functions: a function of one example becomes one of many, without a loop."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from wengert import tree
from wengert._core import Tensor
from wengert.compiling.compile import _call_structured, _tell, _wrap
from wengert.dtypes import float32
from wengert.errors import ArgumentError, AxisError, ShapeError, TraceError
from wengert.functional.indexing import assign
from wengert.modes import set_grad_enabled
from wengert.passes.batch import Examples
from wengert.passes.example_axis import spread
from wengert.program.call_trace import Name
from wengert.program.inner_trace import InnerTrace
from wengert.program.ir import Const, Operand, Type, Var
from wengert.program.numbers import is_number
from wengert.program.simplify import simplify
from wengert.program.trace import create, filled
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.tensors.dual import DualTensor
from wengert.transforms.functional import argument_numbers, grad
from wengert.transforms.naming import named, require_function, transformed
from wengert.transforms.replay import shared
from wengert.user_line import user_line

_MOST_BYTES = 2**30  # of the values that many derivatives of one function have at a time
_STREAMS = 2**16  # how many examples have a stream of random numbers of their own, whatever the size of the batch


class Example(Name):
    """A tensor of one example, while a function of it is traced."""

    __slots__ = ()

    def _refuse(self, verb: str, remedy: str) -> NoReturn:
        self._trace._require_open((self,))
        remedy = remedy.replace("the compiled function", "the function that vmap maps")
        kind = Type(self._var.type.dtype, self._var.type.example_shape())
        raise TraceError(
            f"vmap: the function {verb} the data of a tensor {kind} of one example, at {user_line()}; it runs "
            f"once for all examples, and its tensors have no data. {remedy}; or map it with a Python loop"
        )


class ExampleTrace(InnerTrace):
    """The program of one example in the making."""

    what = "vmap: the function"
    remedy = "which one example cannot do for all; use grad() inside, and return what it gives"

    def __init__(self, size: Any, once: list[Any] | None = None) -> None:
        super().__init__()
        self.size = size
        self._once = None if once is None else iter(list(once))
        self._made = once
        self.drawn: set[Any] = set()  # the first counters of what each example draws itself
        self.axis_name: str | None = None
        self.anchor: Any = None  # a number of each example, where their axis has a name: `collectives` sums over it

    def example_of(self, x: Any) -> Name:
        """A new argument, for what lies along the first axis of x."""
        return self.argument(Type(x.dtype.code, tuple(x.shape[1:])))

    def tracer(self, var: Var) -> Name:
        """A tensor that stands for `var`."""
        name = super().tracer(var)
        name.__class__ = Example
        return name

    def draw(self, generator: Any, n: Any, wide: bool) -> tuple[tuple[Any, Any], tuple[Any]]:
        """Key and first counter of a draw of n elements by each example, for so many that the size is no matter; or of one
        draw for all of them."""
        if self._once is not None:
            return self._draw_once(generator, n, wide)
        streams = _STREAMS
        while not self.size <= streams:
            streams *= 2
        counters = generator.counters(n, wide) * streams
        key, (first,) = self._place(generator, counters * 2, True)  # a counter has two numbers of 64 bits
        self.drawn.add(_raw(first))
        return key, (first,)

    def _place(self, generator: Any, n: Any, wide: bool) -> tuple[tuple[Any, Any], tuple[Any]]:
        if self.outer is not None:
            return self.outer.draw(generator, n, wide)
        low, high, first = generator.reserve(generator.counters(n, wide))
        return (low, high), (first,)

    def _draw_once(self, generator: Any, n: Any, wide: bool) -> tuple[tuple[Any, Any], tuple[Any]]:
        """The next one of the draws that this function has made before, or a new one."""
        assert self._once is not None and self._made is not None
        drawn: Any = next(self._once, None)
        if drawn is None:
            drawn = self._place(generator, n, wide)
            self._made.append(drawn)
        return drawn  # type: ignore[no-any-return]

    def draws_each(self, counter: Any) -> bool:
        """Whether examples draw there; otherwise it is a draw of before, which is drawn again for a derivative."""
        return _raw(counter) in self.drawn


def _raw(size: Any) -> Any:
    return size if isinstance(size, int) else ("symbol", size.raw)


def vmap(
    f: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    *,
    axis_name: str | None = None,
) -> Any:
    """Turn a function of one example into a function of a batch: yᵢ = f(xᵢ) for all i at once, without a loop.

    - `in_axes`: the axis along which the examples of each argument lie. An integer holds for all arguments; a tuple
      has one entry per argument: an integer, None (the same for all examples), or a container like the argument.
      Arguments given by name are the same for all examples.
    - `out_axes`: where the examples lie in the results, in the same form.
    - `axis_size`: the number of examples, needed only if no argument has any.
    - `axis_name`: a name under which `psum` and `pmean` inside f sum over all examples.

    f is traced once per signature, as by `compile`, and may do what is allowed there. It does not see how many
    examples there are. Random numbers are drawn separately for each example and do not depend on the size of the
    batch. The result can be differentiated, and nests with every other transformation.

    >>> import wengert as wg
    >>> dot = lambda a, b: (a * b).sum()
    >>> a, b = wg.ones((5, 3)), wg.ones((3, 5))
    >>> wg.vmap(dot, in_axes=(0, 1))(a, b).tolist()
    [3.0, 3.0, 3.0, 3.0, 3.0]
    >>> wg.vmap(wg.grad(dot), in_axes=(0, None))(a, wg.tensor([1.0, 2.0, 3.0]))[0].tolist()
    [1.0, 2.0, 3.0]
    """
    require_function(f, "vmap")
    if axis_size is not None and not (_is_axis(axis_size) and axis_size >= 0):
        raise ArgumentError(f"vmap: axis_size must be the number of examples, got {axis_size!r}")
    if axis_name is not None and not isinstance(axis_name, str):
        raise ArgumentError(f"vmap: axis_name must be a string, got {type(axis_name).__name__}")

    def make() -> Any:
        run: Any = functools.partial(_run, f, in_axes, out_axes, axis_size, axis_name)
        again = functools.partial(vmap, axis_name=axis_name) if axis_name is not None else vmap
        run.recipe = (again, (f, in_axes, out_axes, axis_size))
        mapped = named(_wrap(run, "vmap", slow=_call_on_arrays), "vmap", f, "{f} for many examples at once.")
        mapped.report = functools.partial(_tell, weakref.ref(mapped), "report")
        return mapped

    return shared(
        make, f, ("vmap", in_axes, out_axes, axis_size, axis_name)
    )  # a function that is mapped anew is not traced anew


def per_sample_grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Return a function that computes the gradient of f for each example of a batch: gᵢ = ∂f(p, xᵢ, …)/∂p.

    The arguments `argnums` are the same for all examples; the other positional arguments hold the examples along
    their first axis, and so do the gradients. f returns a single number for one example.

    >>> import wengert as wg
    >>> loss = lambda w, x, t: ((x @ w - t) ** 2).sum()
    >>> w, x, t = wg.ones((3,)), wg.ones((5, 3)), wg.zeros((5,))
    >>> wg.per_sample_grad(loss)(w, x, t).shape
    (5, 3)
    """
    require_function(f, "per_sample_grad")
    argnums = argument_numbers(argnums, "per_sample_grad")
    gradient = grad(f, argnums)
    mapped: dict[int, Any] = {}  # by the number of positional arguments
    chosen = (argnums,) if isinstance(argnums, int) else argnums

    def gradients(*args: Any, **kwargs: Any) -> Any:
        n = len(args)
        if n not in mapped:
            if any(not -n <= k < n for k in chosen):
                raise ArgumentError(f"per_sample_grad: argnums {argnums} is out of range for {n} positional arguments")
            shared = {k % n for k in chosen}
            mapped[n] = vmap(gradient, tuple(None if k in shared else 0 for k in range(n)))
        return mapped[n](*args, **kwargs)

    return transformed(gradients, "The gradient of {f} for each example.", per_sample_grad, f, argnums=argnums)


def _call_on_arrays(mapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Arguments in containers, or arrays, which become tensors."""
    leaves, structure = tree.flatten((args, kwargs))
    if not any(isinstance(x, np.ndarray) for x in leaves):
        return _call_structured(mapped, args, kwargs)
    converted = [asarray(x) if isinstance(x, np.ndarray) else x for x in leaves]
    args, kwargs = tree.unflatten(structure, converted)
    return mapped(*args, **kwargs)


def _run(
    f: Callable[..., Any],
    in_axes: Any,
    out_axes: Any,
    axis_size: int | None,
    axis_name: str | None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """f on all examples: traced on one, and run on tensors of any level."""
    leaves, structure = tree.flatten(args)
    axes = _axes_of_arguments(in_axes, args, leaves)
    trace = ExampleTrace(_common_size(leaves, axes, axis_size, args))
    columns = [x if a is None else _to_front(x, a) for x, a in zip(leaves, axes)]
    given = [x if a is None else trace.example_of(x) for x, a in zip(columns, axes)]
    places = [(x, a) for x, a in zip(leaves, axes) if a is not None]
    mapped = [x for x, a in zip(columns, axes) if a is not None]
    if axis_name is not None:
        mapped.append(create(OPS["full"], ((trace.size,), float32.code, 0.0)))
        places.append((mapped[-1], 0))
        trace.axis_name, trace.anchor = axis_name, trace.example_of(mapped[-1])
    program = _ExampleProgram(trace, lambda: f(*tree.unflatten(structure, given), **kwargs))
    examples = program.run(trace.size, mapped)
    program.write_back(examples, places)
    return program.results(examples, out_axes)


def run_on_units(
    f: Callable[[Any], Any], units: Callable[[int, Any], Any], n: Any, chunk: int | None, once: list[Any]
) -> list[Any]:
    """f of n vectors, along a new first axis of each of its results; `units(first, count)` makes some of the vectors.

    In chunks of so many or, where that is None, as many as fit into memory. `once`: what f has drawn at random, for all of
    the vectors at once; it draws the same again.
    """
    some = units(0, n)
    trace = ExampleTrace(n, once)
    given = trace.example_of(some)
    program = _ExampleProgram(trace, lambda: f(given))
    if chunk is None:
        chunk = program.fitting(n)
    if chunk is None or int(n) <= chunk:
        examples = program.run(n, [some])
        program.write_back(examples, [(some, 0)])
        return list(program.results(examples, 0))
    parts = []
    for first in range(0, int(n), chunk):
        count = min(chunk, int(n) - first)
        examples = program.run(count, [units(first, count)])
        parts.append(program.results(examples, 0))
    program.write_back(examples, [(some, 0)])
    return [OPS["concat"](list(column), 0) for column in zip(*parts)]


class _ExampleProgram:
    """A function that was traced on one example, to be run on many."""

    def __init__(self, trace: ExampleTrace, call: Callable[[], Any]) -> None:
        self.trace = trace
        with trace:
            results, self.structure = tree.flatten(call())
            self.recipes = [_Recipe(trace, x) for x in results]
            outputs = [_result(trace, x) for recipe in self.recipes for x in recipe.parts]
        self.program = simplify(trace.program(outputs))
        self.captured = [x for x, _ in trace.captured.values()]
        self.new: list[Any] = self.program.outputs[len(outputs) :]  # values of what was written to

    def run(self, size: Any, arguments: list[Any]) -> Examples:
        """On `size` examples, along the first axis of the arguments."""
        inputs = self.program.inputs
        values: dict[Var, Any] = dict(zip(inputs, [*arguments, *self.captured]))
        examples = Examples(size, values, set(inputs[: len(arguments)]), self.trace.draws_each)
        examples.run(self.program.instructions)
        return examples

    def results(self, examples: Examples, out_axes: Any) -> Any:
        """What the function returned, of all examples."""
        places = _axes_of_results(out_axes, self.structure, len(self.recipes))
        remaining = iter(self.program.outputs)
        made = [
            recipe.rebuilt([_placed(examples, next(remaining), axis) for _ in recipe.parts])
            for recipe, axis in zip(self.recipes, places)
        ]
        return tree.unflatten(self.structure, made)

    def fitting(self, n: Any) -> int | None:
        """How many examples may run at a time; None if all may."""
        each = sum(o.type.example_bytes() for i in self.program.instructions if not i.op.view for o in i.outputs)
        all_of_them = each * (n if isinstance(n, int) else n.hint)
        return None if all_of_them <= _MOST_BYTES else max(1, _MOST_BYTES // each)

    def write_back(self, examples: Examples, arguments: list[tuple[Any, int]]) -> None:
        """What the function has changed in place is changed in the tensors that its arguments were examples of."""
        for (name, position), o in zip(self.trace.changed(), self.new):
            with set_grad_enabled(name._recorded):
                if position < len(arguments):
                    x, axis = arguments[position]
                    assign(x, _from_front(examples.with_axis(o), axis), name._op)
                elif o in examples.mapped:
                    raise TraceError(
                        f"vmap: {name._op} writes what differs between examples to a tensor {name._var.type} that is the "
                        "same for all; write to a tensor that is mapped, or return the value"
                    )
                else:
                    assign(self.captured[position - len(arguments)], examples.values[o], name._op)


def _to_front(x: Any, axis: int) -> Any:
    return OPS["permute"](x, (axis, *(k for k in range(x.ndim) if k != axis))) if axis else x


def _from_front(x: Any, axis: int) -> Any:
    rest = list(range(1, x.ndim))
    return OPS["permute"](x, (*rest[:axis], 0, *rest[axis:])) if axis else x


# ---------------------------------------------------------------------------------------------------------- arguments


def _axes_of_arguments(in_axes: Any, args: tuple[Any, ...], leaves: list[Any]) -> list[int | None]:
    """The axis of the examples in every leaf of the arguments, not negative; None for what is the same for all."""
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not isinstance(in_axes, tuple):
        in_axes = (in_axes,) * len(args)
    if len(in_axes) != len(args):
        raise ArgumentError(f"vmap: in_axes has {len(in_axes)} entries for {len(args)} positional arguments")
    axes: list[Any] = []
    for k, (entry, x) in enumerate(zip(in_axes, args)):
        axes += _spread_axes(entry, x, f"vmap: in_axes[{k}]")
    named = iter(axes)
    for k, argument in enumerate(args):
        parts = tree.flatten(argument)[0]
        for j, x in enumerate(parts):
            axis = next(named)
            if axis is not None:
                _require_axis(x, axis, _name_of(k, j, len(parts)))
    return [None if a is None else a % x.ndim for x, a in zip(leaves, axes)]


def _spread_axes(axes: Any, x: Any, what: str) -> list[Any]:
    """One axis per leaf of x: of an integer or None the same for all, of containers each its own."""
    if axes is None or _is_axis(axes):
        return [axes] * len(tree.leaves(x))
    parts, structure = tree.flatten(x, is_leaf=lambda part: part is not x)
    if structure.is_leaf:
        raise ArgumentError(f"{what} is {axes!r}; an axis is an integer, or None")
    entries = tree.leaves_like(axes, structure, what, is_leaf=lambda entry: entry is not axes)
    return [a for entry, part in zip(entries, parts) for a in _spread_axes(entry, part, what)]


def _is_axis(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _name_of(argument: int, leaf: int, leaves: int) -> str:
    return f"argument {argument}" if leaves == 1 else f"tensor {leaf} of argument {argument}"


def _shape_of(x: Any) -> tuple[int, ...]:
    """As users know it: sizes that are symbols while a function is traced have those of the call."""
    return tuple(n if isinstance(n, int) else n.hint for n in x.shape)


def _require_axis(x: Any, axis: int, name: str) -> None:
    if not isinstance(x, Tensor):
        raise ArgumentError(
            f"vmap: {name}, a {type(x).__name__}, has no axis of examples; give it None in in_axes, or make "
            "a tensor of it"
        )
    if not -x.ndim <= axis < x.ndim:
        raise AxisError(
            f"vmap: in_axes {axis} is out of range for {name} of shape {_shape_of(x)}; None in its place "
            "gives it to all examples"
        )


def _common_size(leaves: list[Any], axes: list[int | None], axis_size: int | None, args: tuple[Any, ...]) -> Any:
    sizes = [x.shape[a] for x, a in zip(leaves, axes) if a is not None]
    if axis_size is not None:
        sizes.insert(0, axis_size)
    if not sizes:
        raise ArgumentError(
            "vmap: no argument has an axis of examples; say how many there are with axis_size, or where they lie with "
            "in_axes"
        )
    if not all(n == sizes[0] for n in sizes[1:]):
        raise ShapeError(f"vmap: the numbers of examples differ: {', '.join(_named_sizes(args, axes, axis_size))}")
    return next((n for n in sizes if isinstance(n, int)), sizes[0])


def _named_sizes(args: tuple[Any, ...], axes: list[int | None], axis_size: int | None) -> list[str]:
    found = [] if axis_size is None else [f"axis_size is {axis_size}"]
    remaining = iter(axes)
    for k, argument in enumerate(args):
        parts = tree.flatten(argument)[0]
        for j, x in enumerate(parts):
            axis = next(remaining)
            if axis is not None:
                name, shape = _name_of(k, j, len(parts)), _shape_of(x)
                found.append(f"{name} of shape {shape} has {shape[axis]} along axis {axis}")
    return found


# ------------------------------------------------------------------------------------------------------------ results


class _Recipe:
    """A result in parts. What is pulled back through duals of a transformation around, for one example, is a dual of that
    transformation whose value and tangent are of the example; it is put together again when all examples have run."""

    def __init__(self, trace: ExampleTrace, x: Any) -> None:
        self.level: Any = None
        self.parts = [x]
        if isinstance(x, DualTensor) and x._level < trace.level:
            self.level = x._trace
            value, tangent = self.level.split(x)
            self.inner = [_Recipe(trace, part) for part in (value, tangent) if part is not None]
            self.parts = [p for recipe in self.inner for p in recipe.parts]

    def rebuilt(self, parts: list[Any]) -> Any:
        """The result of parts like these."""
        if self.level is None:
            return parts[0]
        remaining = iter(parts)
        made = [recipe.rebuilt([next(remaining) for _ in recipe.parts]) for recipe in self.inner]
        return self.level.dual(made[0], made[1] if len(made) > 1 else None)


def _result(trace: ExampleTrace, x: Any) -> Operand:
    if is_number(x):
        x = x.known()
    if isinstance(x, Tensor):
        if not trace.owns(x):
            raise TraceError("vmap: the function returns a tensor of a transformation inside it, such as a dual")
        return trace.operand(trace._own(x), 0)
    if isinstance(x, (bool, int, float, complex)):
        return trace.operand(trace._own(asarray(x)), 0)
    raise TraceError(
        f"vmap: the function returns tensors, numbers, None and containers of them, not a {type(x).__name__}"
    )


def _axes_of_results(out_axes: Any, structure: Any, count: int) -> list[int | None]:
    if out_axes is None or _is_axis(out_axes):
        return [out_axes] * count
    return _spread_axes(out_axes, tree.unflatten(structure, [0] * count), "vmap: out_axes")


def _placed(examples: Examples, o: Operand | None, axis: int | None) -> Any:
    if isinstance(o, Const):
        value = filled((), o.value, o.dtype)
        return value if axis is None else spread(value, examples.size)
    assert isinstance(o, Var)
    if axis is None:
        if o in examples.mapped:
            raise ArgumentError(
                "vmap: out_axes is None for a result that differs between examples, of shape "
                f"{_shape_of(examples.values[o])}; say where they lie, or reduce it with psum or pmean"
            )
        return examples.values[o]
    y = examples.with_axis(o)
    if not -y.ndim <= axis < y.ndim:
        raise AxisError(
            f"vmap: out_axes {axis} is out of range for a result of shape {_shape_of(y)}, examples included"
        )
    return _from_front(y, axis + y.ndim if axis < 0 else axis)
