"""The nodes of a static graph: traced tensors, of a trace that stays open as long as the graph lives."""

from __future__ import annotations

import itertools
import re
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

from wengert import _core
from wengert._core import Tensor
from wengert.errors import ArgumentError, TraceError, WengertError
from wengert.graph.sized_program import Draw
from wengert.modes import no_grad
from wengert.program.call_trace import CallTrace, Name, View
from wengert.program.ir import Program, Var
from wengert.program.sizes import own_symbols
from wengert.program.trace import STANDING, Trace, Tracer
from wengert.registry.record import Op
from wengert.tensors.conversion import asarray

_GIVEN = 3  # as core/dim.h: SizeLeaf::given
# What sizes that are unknown count as where Python compares them: with each other they are equal, and with the sizes that
# people write they are not.
_EXAMPLE = 1009


# Graphs have numbers, which their sizes carry. Sizes live as long as the process, so numbers of graphs that are gone come
# back; not at once, so that a size that somebody has kept of such a graph is recognised.
_MOST_FREE = 64
_fresh_numbers = itertools.count(1)
_free_numbers: deque[int] = deque()


def _number() -> int:
    return _free_numbers.popleft() if len(_free_numbers) > _MOST_FREE else next(_fresh_numbers)


class Node(Name):
    """A value of a static graph: a tensor without data, which has a dtype, a shape, and every method of tensors."""

    __slots__ = ()

    @property
    def graph(self) -> Any:
        """The graph that the node belongs to."""
        trace: Any = self._trace
        return trace.graph

    def backward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not available: gradients of nodes are nodes, which `Graph.gradients` makes."""
        raise TraceError(f"backward: {self!r} has no data to pull back; use graph.gradients(loss, variables)")

    def _refuse(self, verb: str, remedy: str) -> NoReturn:
        raise TraceError(
            f"the code that builds the graph {verb} the data of a node {self._described()}, which has none before it runs. "
            "Fetch it with graph.run(); inside of the graph use ops, where() and cond()"
        )

    def _described(self) -> str:
        trace: Any = self._trace
        return str(trace.readable(str(self._var.type)))

    def __repr__(self) -> str:
        return f"<node {self._described()}>"


class Placeholder(Node):
    """A node whose value is fed in every run. Made by `Graph.placeholder`.

    >>> import wengert as wg
    >>> g = wg.Graph()
    >>> x = g.placeholder("x", (None, 2))
    >>> g.run(x.sum(axis=1), x=wg.ones((3, 2))).tolist()
    [2.0, 2.0, 2.0]
    """

    __slots__ = ("name",)
    name: str

    def __repr__(self) -> str:
        return f"<placeholder {self.name}: {self._described()}>"


class Variable(Node):
    """A node whose value is kept between runs. `parameter` is the tensor that holds it, for optimizers and for reading.

    >>> import wengert as wg
    >>> g = wg.Graph()
    >>> w = g.variable("w", wg.ones(2))
    >>> w.assign([3.0, 4.0])
    >>> g.run(w * 2).tolist()
    [6.0, 8.0]
    """

    __slots__ = ("name", "parameter")
    name: str
    parameter: Any

    def assign(self, value: Any) -> None:
        """Give it another value, of the same shape and dtype.

        >>> import wengert as wg
        >>> w = wg.Graph().variable("w", wg.zeros((2,)))
        >>> w.assign([1.0, 2.0])
        >>> w.parameter.tolist()
        [1.0, 2.0]
        """
        t = value if isinstance(value, Tensor) else asarray(value, dtype=self.dtype)
        if isinstance(t, Tracer):
            raise ArgumentError(f"assign: {self!r} is given a value, not a node; run the node first")
        if tuple(t.shape) != tuple(self.parameter.shape) or t.dtype != self.dtype:
            raise ArgumentError(f"assign: {t.dtype.name}{tuple(t.shape)} does not fit {self!r}")
        with no_grad():
            self.parameter.copy_(t)

    def __repr__(self) -> str:
        return f"<variable {self.name}: {self._described()}>"


class GraphTrace(CallTrace):
    """The program of a static graph. It takes instructions in at any time, be it open or not."""

    standing = True

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph
        self.number = _number()
        self.draws: list[Draw] = []
        self.size_names: list[str] = []  # of unknown sizes, by their leaf's index
        STANDING[self.number] = self
        weakref.finalize(self, _free_numbers.append, self.number).atexit = False

    # ----------------------------------------------------------------------------------------------------- sizes

    def size(self, name: str, example: int = _EXAMPLE) -> Any:
        """A new size that is not known."""
        self.size_names.append(name)
        with own_symbols():  # nobody else asks for one of this number while the graph lives
            return _core.new_symbol(_GIVEN, self.number, len(self.size_names) - 1, example)

    def readable(self, text: str) -> str:
        """A text with the names of sizes for their symbols."""
        return re.sub(rf"s{self.number}_(\d+)", lambda m: self.size_names[int(m[1])], text)

    # ----------------------------------------------------------------------------------------------------- nodes

    def tracer(self, var: Var) -> Node:
        """A node that stands for `var`."""
        return self.made_of(Node, var)  # type: ignore[no-any-return]

    def made_of(self, kind: type[Node], var: Var) -> Any:
        """A node of this kind that stands for `var`."""
        t: Any = kind.__new__(kind)
        t._trace, t._var, t._source, t._level = self, var, var, self.level
        t._version, t._view, t._views, t._recorded, t._op = 0, None, [], False, ""
        return t

    def capture(self, x: Any) -> Name:
        """A tensor from outside: its contents at the time of each run are what counts."""
        if isinstance(x, Tracer) or not x._plain:
            raise TraceError(
                f"{x!r} cannot be used in this graph: it belongs to another graph, or to a transformation that is at work"
            )
        name: Any = Trace.capture(self, x)
        self._entry.setdefault(name, name._var)
        return name  # type: ignore[no-any-return]

    def emit(self, op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """Append an instruction; errors say what sizes are called."""
        try:
            return super().emit(op, inputs, attrs)
        except WengertError as e:
            self.explain(e)
            raise

    def explain(self, error: Exception) -> None:
        """Put the names of sizes into the message of an error."""
        error.args = tuple(self.readable(a) if isinstance(a, str) else a for a in error.args)

    def write(self, x: Any, value: Any, op: str) -> None:
        """A node that an op made has a new value from here on."""
        if not isinstance(x, Node) or isinstance(x, (Placeholder, Variable)):
            raise TraceError(
                f"{op}: {x!r} cannot be changed in place by a graph; compute a new node, and give variables their values "
                "with assign(), or with an optimizer, between runs"
            )
        super().write(x, value, op)

    def rebind(self, x: Any, value: Any, name: str) -> None:  # type: ignore[override]
        """An in-place op outside of `with graph`."""
        with self:
            self.write(x, value, name)

    def _update_base(self, name: Name, view: View, var: Var, op: str, recorded: bool) -> None:
        if isinstance(view.base, (Placeholder, Variable)):
            self.write(view.base, name, op)
        super()._update_base(name, view, var, op, recorded)

    def draw(self, generator: Any, n: Any, wide: bool) -> tuple[tuple[Any, Any], tuple[Any]]:
        """Key and counter of a draw, as numbers that each run reads from the generator."""
        begin = len(self.size_names)
        first, second, counter = (self.size(f"{what} of draw {len(self.draws)}", 0) for what in ("key", "key", "place"))
        leaves = [(_GIVEN, self.number, begin + k) for k in range(3)]
        self.draws.append(Draw(generator, n, wide, leaves))
        return (first, second), (counter,)

    def read(self, owner: Any, setting: str) -> None:
        """An attribute of a Python object is looked at once, when the graph is built."""

    def scalars(self, read: Any, count: int, dtype: Any) -> NoReturn:
        """Not available."""
        raise TraceError("an optimizer cannot step inside a graph; fetch gradients, and call apply_gradients with them")

    def act(self, do: Any, save: Any) -> NoReturn:
        """Not available."""
        self.scalars(None, 0, None)

    def grad(self, x: Any) -> NoReturn:
        """Not available."""
        raise TraceError("a graph has no .grad and no backward(); use graph.gradients(loss, variables)")

    def set_grad(self, x: Any, gradient: Any) -> NoReturn:
        """Not available."""
        self.grad(x)

    def accumulate(self, x: Any, gradient: Any) -> NoReturn:
        """Not available."""
        self.grad(x)

    def __exit__(self, *exc: object) -> None:
        Trace.__exit__(self, *exc)

    def program(self, outputs: Sequence[Any]) -> Program:
        """All instructions so far; inputs are placeholders and variables, then captured tensors."""
        captured = [self._entry[name] for _, name in self.captured.values()]  # type: ignore[index]
        return Program([*self.inputs, *captured], self.instructions, list(outputs))
