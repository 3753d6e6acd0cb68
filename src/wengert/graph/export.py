"""Programs ahead of time: `export` writes a function to a file, and `load_program` runs it without its source."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from wengert import _core, tree
from wengert._core import Tensor
from wengert.compiling.compile import own_outputs
from wengert.errors import ArgumentError, DTypeError, ShapeError, TraceError
from wengert.graph import program_file
from wengert.graph.program_file import Reader, SignatureLeaf
from wengert.graph.sized_program import Draw, Leaf, SizedProgram
from wengert.passes.variants import symbolic_types
from wengert.program.call_trace import CallTrace, ClosesOver
from wengert.program.ir import Program, Type, resized
from wengert.program.simplify import simplify
from wengert.program.sizes import own_symbols, unify_sizes
from wengert.tensors.conversion import asarray
from wengert.tensors.random import default_generator
from wengert.transforms.regions import as_result
from wengert.version import VERSION

_INPUT, _CONTENT = 0, 2  # as core/dim.h: SizeLeaf::Kind


def export(f: Callable[..., Any], *examples: Any, path: str | os.PathLike[str], dynamic: Any = None) -> None:
    """Write f to a program file, which `load_program` reads and runs without f's source code.

    - `examples`: arguments on which f is traced. Calls of the program have their dtypes and, except for dynamic axes,
      their shapes. Arguments that are not tensors become part of the program, and must be the same in every call.
    - `path`: the file to write.
    - `dynamic`: which axes may have any size: an axis, a tuple of axes or True (all), for every tensor; or a tuple
      with one of these per argument. A dynamic axis must not have size 1 in the examples, as 1 stands for
      broadcasting.

    Tensors that f uses from outside, such as parameters, become constants in the file. f may draw random numbers,
    from the default generator; it must not change tensors from outside.

    >>> import tempfile, wengert as wg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     wg.export(lambda x: (x * x).sum(), wg.ones((3,)), path=f"{folder}/f.wg", dynamic=0)
    ...     g = wg.load_program(f"{folder}/f.wg")
    >>> g(wg.tensor([1.0, 2.0])).item(), wg.grad(g)(wg.tensor([1.0, 2.0])).tolist()
    (5.0, [2.0, 4.0])
    """
    if not callable(f):
        raise ArgumentError(f"export: takes a function, got {type(f).__name__}")
    leaves, structure = tree.flatten((examples, {}))
    leaves = [asarray(x) if hasattr(x, "__array__") and not isinstance(x, Tensor) else x for x in leaves]
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    for x in tensors:
        if not x._plain:
            raise ArgumentError("export: examples must be tensors with data")
    axes = _dynamic_axes(dynamic, examples)

    def flat(*given: Any) -> Any:
        fresh = iter(given)
        args, _ = tree.unflatten(structure, [next(fresh) if isinstance(x, Tensor) else x for x in leaves])
        return f(*args)

    with own_symbols():
        trace, program, guards, out_structure = _traced(flat, tensors)
        program, draws = _closed(trace, program)
        sizes = _fixed_sizes(program, axes, tensors)
        program = resized(program, sizes)
        draws = [Draw(d.generator, sizes((d.size,))[0], d.wide, d.leaves) for d in draws]
        count = iter(range(len(tensors)))
        places = [
            SignatureLeaf(next(count)) if isinstance(x, Tensor) else SignatureLeaf(None, _static(x)) for x in leaves
        ]
        constants = [x for x, _ in trace.captured.values()]
        save_program(
            path,
            program,
            {f"constant {k}": x for k, x in enumerate(constants)},
            tree.unflatten(structure, places),
            out_structure,
            draws,
            _kept_guards(guards, sizes),
        )


def _traced(f: Callable[..., Any], tensors: Sequence[Tensor]) -> tuple[CallTrace, Program, list[Any], Any]:
    """The trace of f, its program, guards, and the structure of its results."""
    trace = CallTrace()
    recording = _core.set_grad_enabled(True)
    _core.open_guards()
    try:
        given = [trace.argument(t) for t in symbolic_types([(x.dtype.code, tuple(x.shape)) for x in tensors])]
        with trace:
            leaves, structure = tree.flatten(f(*given))
            results = [as_result("export: the function", y) for y in leaves]
        _refuse_effects(trace)
        program = trace.program([trace.value(y) for y in results])
    except ClosesOver:
        raise TraceError("export: the function closes over a tensor of a transformation that is at work") from None
    finally:
        guards = _core.close_guards()
        _core.set_grad_enabled(recording)
    _core.open_guards()
    try:
        program = own_outputs(simplify(unify_sizes(program, guards)))
    finally:
        guards = [*guards, *_core.close_guards()]
    return trace, program, guards, structure


def _static(x: Any) -> Any:
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    raise ArgumentError(
        f"export: an argument is of type {type(x).__name__}; a program file takes tensors, arrays, numbers and texts"
    )


def _dynamic_axes(dynamic: Any, examples: Sequence[Any]) -> list[set[int]]:
    """The axes of each tensor that may have any size."""
    per_argument = list(dynamic) if isinstance(dynamic, tuple) and _is_per_argument(dynamic) else None
    if per_argument is not None and len(per_argument) != len(examples):
        raise ArgumentError(f"export: dynamic has {len(per_argument)} entries for {len(examples)} arguments")
    found = []
    for k, example in enumerate(examples):
        wanted = dynamic if per_argument is None else per_argument[k]
        for x in tree.leaves(example):
            if isinstance(x, Tensor) or hasattr(x, "__array__"):
                found.append(_axes(wanted, x, strict=per_argument is not None))
    return found


def _is_per_argument(dynamic: tuple[Any, ...]) -> bool:
    return any(d is None or isinstance(d, (bool, tuple)) for d in dynamic)


def _axes(wanted: Any, x: Any, strict: bool) -> set[int]:
    if wanted is None or wanted is False:
        return set()
    listed = range(x.ndim) if wanted is True else wanted if isinstance(wanted, tuple) else (wanted,)
    axes = set()
    for a in listed:
        if isinstance(a, bool) or not isinstance(a, int):
            raise ArgumentError(f"export: dynamic takes True, None, axes, or a tuple of these per argument, got {a!r}")
        if not -x.ndim <= a < x.ndim:
            if strict:
                raise ArgumentError(f"export: dynamic names axis {a} of an example of shape {tuple(x.shape)}")
            continue
        axes.add(a % x.ndim)
    for a in axes:
        if x.shape[a] == 1 and wanted is not True:
            raise ArgumentError(
                f"export: axis {a} of an example of shape {tuple(x.shape)} cannot be dynamic: its size is 1, which would be "
                "taken for broadcasting; use an example of another size"
            )
    return {a for a in axes if x.shape[a] != 1}


def _refuse_effects(trace: CallTrace) -> None:
    changed = trace.changed()
    if changed:
        raise TraceError(
            f"export: the function changes a tensor {changed[0][0]._var.type} in place ({changed[0][0]._op}); a file has no "
            "tensors to change: return the new value, and pass it to the next call"
        )
    if trace.grads or trace.commits or any(not hasattr(s, "generator") for s, _ in trace.hidden):
        raise TraceError(
            "export: the function calls backward() or steps an optimizer; return gradients instead, with value_and_grad, "
            "and step outside"
        )


def _closed(trace: CallTrace, program: Program) -> tuple[Program, list[Draw]]:
    """The program without the hidden inputs of random streams, over which sizes keep their names; and what it draws."""
    n = len(trace.inputs)
    hidden = len(trace.hidden)
    draws: list[Draw] = []
    for k, (stream, _) in enumerate(trace.hidden):
        leaves: list[Leaf] = [(_CONTENT, n + k, j) for j in range(3)]
        if getattr(stream, "generator", None) is not default_generator:
            raise ArgumentError(
                "export: the function draws from a generator of its own, which a file does not hold; use the default "
                "generator, or draw outside"
            )
        # As many counters as the function takes: a draw of four elements takes one.
        draws.append(Draw(default_generator, 4 * stream.taken, False, leaves))
    return Program([*program.inputs[:n], *program.inputs[n + hidden :]], program.instructions, program.outputs), draws


def _fixed_sizes(program: Program, axes: list[set[int]], tensors: Sequence[Tensor]) -> Callable[[Any], Any]:
    """A substitution that replaces sizes that are not dynamic by those of the examples, and equal sizes by one, as the types
    of the inputs already do."""
    leaves, numbers = [], []
    for k, (t, which) in enumerate(zip(tensors, axes)):
        for axis, n in enumerate(t.shape):
            if axis not in which and n != 1:
                leaves.append((_INPUT, k, axis))
                numbers.append(n)
    fixed = _core.SizeSubstitution(leaves, numbers)
    places = [(_INPUT, k, axis) for k, v in enumerate(program.inputs) for axis in range(len(v.type.shape))]
    unified = _core.SizeSubstitution(places, [n for v in program.inputs for n in v.type.shape])
    return lambda shape: tuple(fixed(unified(tuple(shape))))


def _kept_guards(guards: Sequence[Any], sizes: Callable[[Any], Any]) -> list[tuple[Any, str, Any, bool]]:
    """The guards that say more about dynamic sizes than the types of the inputs do, in which equal ones are one."""
    kept = []
    for a, comparison, b, outcome in _core.describe_guards(guards):
        left, right = sizes((a, b))
        if not (isinstance(left, int) and isinstance(right, int)) and not _core.same_sizes((left,), (right,)):
            kept.append((left, comparison, right, outcome))
    return kept


def save_program(
    path: str | os.PathLike[str],
    program: Program,
    constants: dict[str, Tensor],
    arguments: Any,
    results: Any,
    draws: Sequence[Draw],
    guards: Sequence[tuple[Any, str, Any, bool]],
) -> None:
    """Write a program whose inputs are arguments and then constants. `arguments` is (positional, by name) with places for
    leaves, and `results` the structure of what it returns."""
    count = results.num_leaves
    template = tree.unflatten(results, [SignatureLeaf(k) for k in range(count)])
    examples = [v.type.example_shape() for v in program.inputs]
    body, inside = program_file.encode_program(program)
    description = {
        "writer": f"wengert {VERSION}",
        "arguments": program_file.encode_tree(arguments, "arguments"),
        "results": program_file.encode_tree(template, "results"),
        "constants": list(constants),
        "examples": [list(shape) for shape in examples],
        "guards": [[*program_file.encode_sizes((a,)), c, *program_file.encode_sizes((b,)), o] for a, c, b, o in guards],
        "draws": [
            {"size": program_file.encode_sizes((d.size,))[0], "leaves": [list(leaf) for leaf in d.leaves]}
            for d in draws
        ],
        "program": body,
        "programs": inside,
    }
    program_file.write(path, description, {name: t.detach() for name, t in constants.items()})


# ------------------------------------------------------------------------------------------------------------- loading


class LoadedProgram:
    """A function that was read from a file. It takes what the function took that was exported, and is differentiable."""

    @own_symbols()
    def __init__(self, reader: Reader, description: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self._path = reader.path
        names = reader.field(description, "constants", list)
        if sorted(map(str, names)) != sorted(tensors):
            reader.fail("the constants are not those that the program names")
        types, draws = _read_symbols(reader, description)
        inside = reader.field(description, "programs", list)
        self.program = reader.program(reader.field(description, "program", dict), inside, types)
        self._constants = [tensors[name] for name in names]
        n = len(types) - len(names)
        for t, c in zip(types[max(n, 0) :], self._constants):
            if Type(c.dtype.code, tuple(c.shape)) != t:
                reader.fail(f"a constant is {c.dtype.name}{tuple(c.shape)}, not {t}")
        arguments = reader.tree(reader.field(description, "arguments", dict))
        self._places, self._structure = tree.flatten(arguments)
        self._arguments = types[: max(n, 0)]
        given = [p.number for p in self._places if p.number is not None]
        if sorted(given) != list(range(n)) or not isinstance(arguments, tuple) or len(arguments) != 2:
            reader.fail("the arguments are not the inputs of the program")
        results = reader.tree(reader.field(description, "results", dict))
        made, self._results = tree.flatten(results)
        if [p.number for p in made] != list(range(len(self.program.outputs))):
            reader.fail("the results are not the outputs of the program")
        self._guards = [_read_guard(reader, g) for g in reader.field(description, "guards", list)]
        self._sized = SizedProgram("loaded program", self.program, draws)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = tree.leaves_like((args, kwargs), self._structure, f"the call of {self._path}")
        operands: list[Any] = [None] * len(self._arguments)
        for place, x in zip(self._places, given):
            if place.number is not None:
                operands[place.number] = self._converted(place.number, x)
            elif type(x) is not type(place.value) or x != place.value:
                raise ArgumentError(f"{self._path}: an argument is {x!r}; the program was made for {place.value!r}")
        shapes = [tuple(x.shape) for x in (*operands, *self._constants)]
        if all(x._plain for x in operands):
            self._check_sizes(shapes)
        return tree.unflatten(self._results, self._sized([*operands, *self._constants]))

    def _converted(self, k: int, x: Any) -> Any:
        t, wanted = asarray(x), self._arguments[k]
        if t.dtype.code != wanted.dtype:
            raise DTypeError(
                f"{self._path}: argument {k} must be {wanted}, got {t.dtype.name}{tuple(t.shape)}; use astype"
            )
        fits = (n == m or not isinstance(n, int) or isinstance(m, _core.Dim) for n, m in zip(wanted.shape, t.shape))
        if t.ndim != len(wanted.shape) or not all(fits):
            raise ShapeError(f"{self._path}: argument {k} must be {wanted}, got {t.dtype.name}{tuple(t.shape)}")
        return t

    def _check_sizes(self, shapes: Sequence[tuple[int, ...]]) -> None:
        sizes = [shapes[k][axis] for k, axis in self._sized.places]
        for a, comparison, b, outcome in self._guards:
            left, right = _core.substitute_sizes((a, b), self._sized.leaves, sizes)
            if (left == right if comparison == "==" else left < right) is not outcome:
                listed = ", ".join(map(str, shapes[: len(self._arguments)]))
                relation = f"{'' if outcome else 'not '}{a} {comparison} {b}"
                raise ShapeError(
                    f"{self._path}: the program was made for sizes with {relation}, which those of {listed} do not fulfil "
                    f"({self.signature})"
                )
        try:
            self._sized.check(shapes)
        except ShapeError as e:
            raise ShapeError(f"{self._path}: the arguments do not fit each other: {e}") from None

    @property
    def signature(self) -> str:
        """The types of the arguments and of the results."""
        results = ", ".join(str(getattr(o, "type", "a number")) for o in self.program.outputs)
        return f"({', '.join(map(str, self._arguments))}) -> {results}"

    def report(self) -> Any:
        """What the compiled programs do, one for each pattern of sizes, as `wg.compile` reports it."""
        return self._sized.report()

    def __repr__(self) -> str:
        return f"<program {self._path}: {self.signature}>"


def load_program(path: str | os.PathLike[str]) -> LoadedProgram:
    """Load a program file that `export` or `Graph.save` wrote, as a function with derivatives of every order.

    A file that is damaged, altered, malicious, or written by a newer version raises LoadError; nothing in it is
    executed.

    >>> import tempfile, wengert as wg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     wg.export(wg.sin, wg.zeros((2,)), path=f"{folder}/sin.wg")
    ...     f = wg.load_program(f"{folder}/sin.wg")
    >>> f.signature, f(wg.zeros((2,))).tolist()
    ('(float32[2]) -> float32[2]', [0.0, 0.0])
    """
    description, tensors = program_file.read(path)
    reader = Reader(str(path))
    _core.open_guards()  # those of this file are in it
    try:
        return LoadedProgram(reader, description, tensors)
    except RecursionError:
        reader.fail("it is nested too deeply")
    finally:
        _core.close_guards()


def _read_symbols(reader: Reader, description: dict[str, Any]) -> tuple[list[Type], list[Draw]]:
    """The types of the inputs, with symbols for sizes that are no numbers; and what is drawn."""
    inputs = reader.field(reader.field(description, "program", dict), "inputs", list)
    examples = reader.field(description, "examples", list)
    if len(examples) != len(inputs):
        reader.fail("there is not one example for each input")
    for k, (entry, example) in enumerate(zip(inputs, examples)):
        if type(entry) is not list or len(entry) != 2 or type(entry[1]) is not list or type(example) is not list:
            reader.fail("an input has no type")
        if len(example) != len(entry[1]):
            reader.fail("an example has another number of axes than its input")
        for axis, (n, hint) in enumerate(zip(entry[1], example)):
            if n == f"n{k}_{axis}":
                reader.symbols[n] = _core.new_symbol(_INPUT, k, axis, max(0, reader.integer(hint)))
    draws = []
    for entry in reader.field(description, "draws", list):
        leaves = []
        for leaf in reader.field(entry, "leaves", list):
            if type(leaf) is not list or len(leaf) != 3 or leaf[0] != _CONTENT:
                reader.fail("random numbers are drawn at no proper place")
            source, index = (reader.integer(x) for x in leaf[1:])
            if not (0 <= source < 2**20 and 0 <= index < 3):
                reader.fail("random numbers are drawn at no proper place")
            reader.symbols[f"k{source}_{index}"] = _core.new_symbol(_CONTENT, source, index, 0)
            leaves.append((_CONTENT, source, index))
        if len(leaves) != 3:
            reader.fail("random numbers are drawn at no proper place")
        draws.append((entry, leaves))
    types = [reader.type(entry) for entry in inputs]
    for t in types:
        if any(isinstance(n, int) and n < 0 for n in t.shape):
            reader.fail("a size is negative")
    return types, [Draw(default_generator, reader.size(entry.get("size")), False, leaves) for entry, leaves in draws]


def _read_guard(reader: Reader, entry: Any) -> tuple[Any, str, Any, bool]:
    if type(entry) is not list or len(entry) != 4 or entry[1] not in ("==", "<") or type(entry[3]) is not bool:
        reader.fail("a guard is not a comparison of sizes")
    return reader.size(entry[0]), entry[1], reader.size(entry[2]), entry[3]


__all__ = ["LoadedProgram", "export", "load_program", "save_program"]
