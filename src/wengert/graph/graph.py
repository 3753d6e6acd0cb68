"""Static graphs: `Graph`, and what runs of it are compiled to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import wengert
from wengert import _core, tree
from wengert._core import Tensor
from wengert.debug.drawing import to_dot, to_svg, to_text
from wengert.dtypes import DType, float32
from wengert.errors import ArgumentError, DTypeError, GradientError, ShapeError, TraceError
from wengert.graph.nodes import GraphTrace, Node, Placeholder, Variable
from wengert.graph.program_file import SignatureLeaf
from wengert.graph.sized_program import SizedProgram, leaf_of, leaves_of_attrs
from wengert.modes import no_grad
from wengert.nn.parameter import Parameter
from wengert.program.ir import Program, Type, Var, format_program, remove_dead
from wengert.program.sizes import own_symbols
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import ones_like
from wengert.transforms.pullback import pull, require_real, require_scalar

_Size = int | str | None


class Graph:
    """A static graph: a program that is built once, node by node, and run many times.

    Placeholders stand for what is fed, variables for what is kept between runs. Every function and operator of
    tensors accepts nodes and makes new ones; each function is also a method of the graph. Shapes and dtypes are
    checked when a node is made. An unknown size is None or a name; sizes with the same name are equal. If an
    operation needs two unknown sizes to be equal, the values fed must be. In Python comparisons, an unknown size
    counts as a large number that equals no other.

    Ordinary tensors that meet nodes are read in every run. Random operations on nodes, or inside `with graph:`, draw
    anew in every run.

    >>> import wengert as wg
    >>> g = wg.Graph()
    >>> x = g.placeholder("x", (None, 3))
    >>> w = g.variable("w", wg.ones((3, 1)))
    >>> loss = ((x @ w) ** 2).mean()
    >>> (dw,) = g.gradients(loss, [w])
    >>> value, gradient = g.run([loss, dw], x=wg.ones((5, 3)))
    >>> value.item(), gradient.shape
    (9.0, (3, 1))
    """

    def __init__(self) -> None:
        self._trace = GraphTrace(self)
        self._placeholders: dict[str, Placeholder] = {}
        self._variables: dict[str, Variable] = {}
        self._sizes: dict[str, Any] = {}  # unknown ones that have names
        self._compiled: dict[Any, CompiledGraph] = {}

    # ------------------------------------------------------------------------------------------------------ nodes

    def placeholder(self, name: str, shape: Iterable[_Size], *, dtype: DType = float32) -> Placeholder:
        """A node whose value is fed in every run: of this dtype, and of this shape, in which `None` is any size.

        >>> import wengert as wg
        >>> wg.Graph().placeholder("x", ("batch", 3))
        <placeholder x: float32[batch, 3]>
        """
        self._check_name("placeholder", name)
        sizes = tuple(self._size(name, axis, n) for axis, n in enumerate(shape))
        node = self._input(Placeholder, name, Type(dtype.code, sizes))
        self._placeholders[name] = node
        return node  # type: ignore[no-any-return]

    def variable(self, name: str, value: Any) -> Variable:
        """A node whose value is kept between runs, and begins as this one.

        `parameter` is the `wg.Parameter` that holds it: what optimizers update, given the variable or the parameter.

        >>> import wengert as wg
        >>> g = wg.Graph()
        >>> w = g.variable("w", [1.0, 2.0])
        >>> wg.optim.SGD(lr=0.5).apply_gradients([(w, wg.ones((2,)))])
        >>> g.run(w * 2.0).tolist()
        [1.0, 3.0]
        """
        self._check_name("variable", name)
        if isinstance(value, Node):
            raise ArgumentError(f"variable: {name!r} begins with data, not with a node, {value!r}")
        t = asarray(value)
        node = self._input(Variable, name, Type(t.dtype.code, tuple(t.shape)))
        if isinstance(value, Parameter):
            node.parameter = value
        else:
            node.parameter = Parameter(t) if t.dtype.is_floating else t.clone()
        self._variables[name] = node
        return node  # type: ignore[no-any-return]

    def _check_name(self, what: str, name: Any) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"{what}: the name must be an identifier, got {name!r}")
        known: Any = {**self._placeholders, **self._variables}.get(name)
        if known is not None:
            raise ArgumentError(f"{what}: the graph has {known!r} already; names are given once")

    def _size(self, name: str, axis: int, n: _Size) -> Any:
        if n is None:
            return self._trace.size(f"{name}.{axis}")
        if isinstance(n, str):
            if n not in self._sizes:
                self._sizes[n] = self._trace.size(n)
            return self._sizes[n]
        if isinstance(n, bool) or not hasattr(n, "__index__") or int(n) < 0:
            raise ShapeError(f"placeholder: size {axis} of {name!r} must be a size, None or a name, got {n!r}")
        return int(n)

    def _input(self, kind: type[Node], name: str, type_: Type) -> Any:
        node = self._trace.made_of(kind, Var(type_))
        node.name = name
        self._trace.inputs.append(node._var)
        self._trace._entry[node] = node._var
        return node

    @property
    def placeholders(self) -> dict[str, Placeholder]:
        """The placeholders, by name."""
        return dict(self._placeholders)

    @property
    def variables(self) -> dict[str, Variable]:
        """The variables, by name."""
        return dict(self._variables)

    def gradients(self, ys: Any, xs: Sequence[Any], grad_ys: Any = None) -> list[Any]:
        """Nodes for the derivatives of ys with respect to each of xs, differentiable again; None if there is no path.

        ys is a node, or a list whose gradients add up. Without `grad_ys`, cotangents of the same shapes, each is a scalar.
        """
        listed = list(ys) if isinstance(ys, (list, tuple)) else [ys]
        bars = [None] * len(listed) if grad_ys is None else grad_ys
        bars = list(bars) if isinstance(bars, (list, tuple)) else [bars]
        if isinstance(xs, Tensor) or not isinstance(xs, Iterable):
            raise ArgumentError("gradients: xs must be a list of nodes")
        if len(bars) != len(listed):
            raise ArgumentError(f"gradients: {len(listed)} ys have {len(bars)} grad_ys")
        sources = list(xs)
        for y in (*listed, *sources):
            self._check_own("gradients", y)
            if not y.dtype.is_inexact:
                raise GradientError(f"gradients: {y!r} is of {y.dtype.name}; only floating nodes have derivatives")
        with self._trace:
            seeds = [self._seed(y, bar) for y, bar in zip(listed, bars)]
            return pull(listed, seeds, sources, retain=True, record=True)

    def _seed(self, y: Any, bar: Any) -> Any:
        if bar is None:
            require_scalar(y, "gradients")
            require_real(y, "gradients")
            return ones_like(y)
        seed = bar if isinstance(bar, Tensor) else asarray(bar, dtype=y.dtype)
        return seed if isinstance(seed, Node) else self._trace.capture(seed)

    def _check_own(self, what: str, y: Any) -> None:
        if isinstance(y, Tensor) and y._plain and id(y) in self._trace.captured:
            return
        if not isinstance(y, Node) or y._trace is not self._trace:
            raise ArgumentError(f"{what}: takes nodes of this graph, got {y!r}")

    # ------------------------------------------------------------------------------------------------------ running

    def run(self, fetches: Any, feeds: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
        """The values of nodes: one, or a container of them like `fetches`. Placeholders are fed by name, or in a dict by
        node or name. Only what the fetched nodes need is computed, and has to be fed.

        What runs is compiled at the first time, and kept.
        """
        leaves, structure = tree.flatten(fetches)
        for y in leaves:
            self._check_own("run", y)
        key = (structure, tuple(self._trace.value(y) for y in leaves))
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = CompiledGraph(self, leaves, structure)
        return compiled(feeds, **named)

    def compile(self, fetches: Any) -> CompiledGraph:
        """A function of what is fed, which returns the values of these nodes: what `run` calls."""
        leaves, structure = tree.flatten(fetches)
        for y in leaves:
            self._check_own("compile", y)
        return CompiledGraph(self, leaves, structure)

    def save(self, path: str | os.PathLike[str], fetches: Any) -> None:
        """Write what computes these nodes to a file, with the values that variables and captured tensors have now.

        `wg.load_program(path)` is a function of what was to be fed, by name, and returns what `run` would.
        """
        self.compile(fetches)._save(path)

    # ------------------------------------------------------------------------------------------------------ looking

    def program(self, fetches: Any = None) -> Program:
        """The instructions of these nodes, or all: placeholders, variables and captured tensors → fetched nodes."""
        whole = self._trace.program([])
        if fetches is None:
            read = {v for i in whole.instructions for v in i.vars()}
            made = [v for i in whole.instructions for v in i.outputs]
            return Program(whole.inputs, list(whole.instructions), [v for v in made if v not in read])
        outputs = []
        for y in tree.leaves(fetches):
            self._check_own("program", y)
            outputs.append(self._trace.value(y))
        return Program(whole.inputs, remove_dead(whole.instructions, outputs), list(outputs))

    def verify(self) -> None:
        """Raise if the program of the graph is not well formed."""
        self.program().verify()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        n = len(self._trace.instructions)
        return f"<graph of {len(self._placeholders)} placeholders, {len(self._variables)} variables, {n} instructions>"

    def text(self, fetches: Any = None) -> str:
        """The program as text, one instruction a line."""
        return self._trace.readable(format_program(self.program(fetches), self._names()))

    def draw(
        self, path: str | os.PathLike[str] | None = None, fetches: Any = None, *, format: str | None = None
    ) -> str:
        """A drawing of the graph, or of what these nodes need: as SVG, DOT (for Graphviz) or text. It is returned, and
        written to a file if there is a path, whose suffix names the format: .svg, .dot or .txt.
        """
        kind = format or (Path(path).suffix.lstrip(".").lower() if path is not None else "svg")
        writers: dict[str, Callable[..., str]] = {"svg": to_svg, "dot": to_dot, "txt": to_text}
        if kind not in writers:
            raise ArgumentError(f"draw: the format must be svg, dot or txt, got {kind!r}")
        drawing = self._trace.readable(writers[kind](self.program(fetches), self._names()))
        if path is not None:
            Path(path).write_text(drawing, encoding="utf-8")
        return drawing

    def _names(self) -> dict[Var, str]:
        inputs: list[Any] = [*self._placeholders.values(), *self._variables.values()]
        names = {self._trace._entry[node]: node.name for node in inputs}
        for k, (_, node) in enumerate(self._trace.captured.values()):
            name: Any = node
            names[self._trace._entry[name]] = f"tensor{k}"
        return names

    # ----------------------------------------------------------------------------------------- functions as methods

    def __enter__(self) -> Graph:
        self._trace.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._trace.__exit__(*exc)

    def __getattr__(self, name: str) -> Any:
        function = getattr(wengert, name) if name in wengert.__all__ else None
        if not callable(function) or isinstance(function, type):
            raise AttributeError(f"a Graph has no attribute {name!r}, and wengert no function of that name")

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._trace:
                made = function(*args, **kwargs)
                return tree.map(lambda y: self._trace.tracer(self._trace.value(y)) if _is_plain(y) else y, made)

        call.__name__, call.__doc__ = name, function.__doc__
        return call


def _is_plain(y: Any) -> bool:
    return isinstance(y, Tensor) and y._plain


class CompiledGraph:
    """Computes nodes of a graph from placeholders that are fed. Made by `Graph.compile`."""

    def __init__(self, graph: Graph, fetched: Sequence[Any], structure: Any) -> None:
        self._structure = structure
        trace = graph._trace
        outputs = [trace.value(y) for y in fetched]
        instructions = remove_dead(trace.instructions, outputs)
        read = {v for i in instructions for v in i.vars()} | set(outputs)
        entry: dict[Any, Var] = trace._entry
        used = leaves_of_attrs(instructions)
        self._placeholders = graph.placeholders
        # Also those of which only a size is read, as by zeros(x.shape).
        self._fed = {
            name: node
            for name, node in self._placeholders.items()
            if entry[node] in read or any(leaf_of(n) in used for n in node.shape if isinstance(n, _core.Dim))
        }
        self._variables = [node for node in graph._variables.values() if entry[node] in read]
        captured = [(x, entry[node]) for x, node in trace.captured.values() if entry[node] in read]
        self._captured = [x for x, _ in captured]
        inputs = [entry[node] for node in (*self._fed.values(), *self._variables)]
        program = Program([*inputs, *(v for _, v in captured)], instructions, list(outputs))
        self._sized = SizedProgram("graph", program, trace.draws)
        self._readable = trace.readable

    @property
    def program(self) -> Program:
        """The program that runs: fed placeholders, variables, captured tensors → fetched nodes."""
        return self._sized.program

    def __call__(self, feeds: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
        given = self._given(feeds, named)
        fed = [_converted(name, node, given) for name, node in self._fed.items()]
        operands = [*fed, *(v.parameter for v in self._variables), *self._captured]
        self._check_sizes(fed, operands)
        with no_grad():
            return tree.unflatten(self._structure, self._sized(operands))

    def _given(self, feeds: Mapping[Any, Any] | None, named: dict[str, Any]) -> dict[str, Any]:
        given = dict(named)
        if feeds is not None and not isinstance(feeds, Mapping):
            raise ArgumentError(f"run: feeds must be a dict by placeholder, got {type(feeds).__name__}")
        for key, value in (feeds or {}).items():
            name = key.name if isinstance(key, Placeholder) else key
            if isinstance(key, Node) and not any(key is node for node in self._placeholders.values()):
                raise ArgumentError(f"run: {key!r} cannot be fed: it is not a placeholder, or belongs to another graph")
            if name in given:
                raise ArgumentError(f"run: {name!r} is fed twice")
            given[name] = value
        for name in given:
            if name not in self._placeholders:
                known = ", ".join(self._placeholders) or "none"
                raise ArgumentError(f"run: the graph has no placeholder {name!r}; it has {known}")
        missing = [repr(node) for name, node in self._fed.items() if name not in given]
        if missing:
            raise ArgumentError(f"run: {', '.join(missing)} must be fed: what is fetched depends on it")
        return given

    def _check_sizes(self, fed: Sequence[Any], operands: Sequence[Any]) -> None:
        """Raise unless the sizes of what is fed fit each other."""
        names = list(self._fed)
        first: dict[Any, tuple[int, str]] = {}
        for name, x, node in zip(names, fed, self._fed.values()):
            for axis, (n, declared) in enumerate(zip(x.shape, node.shape)):
                if isinstance(declared, _core.Dim):
                    known, where = first.setdefault(leaf_of(declared), (n, f"size {axis} of {name!r}"))
                    if known != n:
                        raise ShapeError(
                            f"run: size {axis} of {name!r} is {n}, but {where}, which must be equal, is {known}"
                        )
        try:
            self._sized.check([x.shape for x in operands])
        except ShapeError as e:
            listed = ", ".join(f"{name} {tuple(x.shape)}" for name, x in zip(names, fed))
            raise ShapeError(f"run: the sizes of {listed} do not fit each other in this graph: {e}") from None

    def _save(self, path: str | os.PathLike[str]) -> None:
        from wengert.graph.export import save_program

        constants = {v.name: v.parameter for v in self._variables}
        constants |= {f"tensor {k}": x for k, x in enumerate(self._captured)}
        places = {name: SignatureLeaf(k) for k, name in enumerate(self._fed)}
        with own_symbols():
            program, draws = self._sized.renamed()
            save_program(path, program, constants, ((), places), self._structure, draws, [])

    def report(self) -> Any:
        """What the compiled programs do, one for each pattern of sizes, as `wg.compile` reports it."""
        return self._sized.report()

    def __repr__(self) -> str:
        results = ", ".join(str(o.type) for o in self.program.outputs if isinstance(o, Var))
        return f"<compiled graph ({', '.join(map(repr, self._fed.values()))}) -> {self._readable(results)}>"


def _converted(name: str, node: Placeholder, given: Mapping[str, Any]) -> Any:
    value = given[name]
    if isinstance(value, (bool, int, float, complex, list, tuple)):
        value = asarray(value, dtype=node.dtype)
    t = asarray(value)
    if isinstance(t, Node):
        raise TraceError(f"run: {name!r} is fed a node, {t!r}; feed data, or run the other graph first")
    if t.dtype != node.dtype:
        raise DTypeError(f"run: {node!r} is fed {t.dtype.name}{tuple(t.shape)}; convert it with astype")
    declared = node.shape
    if t.ndim != len(declared) or any(isinstance(n, int) and n != m for n, m in zip(declared, t.shape)):
        raise ShapeError(f"run: {node!r} is fed {t.dtype.name}{tuple(t.shape)}")
    return t


__all__ = ["CompiledGraph", "Graph"]
