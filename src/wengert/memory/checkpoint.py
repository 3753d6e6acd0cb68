"""Regions that keep only their inputs, and run again when their derivative is needed.

The first run of a region is recorded like everything else. What was recorded is then looked through for what the region
reads from outside (its arguments, and leaves such as parameters that it closes over), dropped, and replaced by one node
with edges to just those. When the backward pass reaches that node, the function runs again on leaves of its own, and what
is recorded then is walked at once. To be differentiated again, this walk is a region itself.
"""

from __future__ import annotations

import itertools
import threading
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np

from wengert import _core, tree
from wengert._core import Tensor
from wengert.errors import ArgumentError, GradientError
from wengert.modes import enable_grad
from wengert.program.trace import tracing, untraced
from wengert.recomputing import recomputation
from wengert.registry.precision import cast_apart
from wengert.tensors.arguments import native
from wengert.tensors.creation import zeros, zeros_like
from wengert.tensors.custom_node import record_node, tapes_paused
from wengert.tensors.numpy import data
from wengert.tensors.random import draws_logged, draws_repeated

_Edge = tuple[Any, int]  # a recorded instruction and the number of one of its outputs
_BLOCK = 509  # words per sum of a digest; a prime, so that what moves by rows is seen
with untraced():  # a function that is being traced may be the first to need this module
    _PLACEHOLDER = zeros((0,))  # where a tensor is needed, and only its edge matters
_PLACEHOLDER.requires_grad = False
_reshape = native("reshape")


def checkpoint(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Compute f(*args, **kwargs), keeping only the arguments for the backward pass, which runs f again.

    A chain of n regions keeps n inputs, and what one region records while it is being differentiated; each region
    costs one more run of f. Arguments and results may be containers of tensors. Tensors that f uses from outside get
    their gradients, too; if one that was computed before is hidden in an object, an error asks for it as an argument.

    Random numbers are drawn again as they were, and the generator is left alone. f must compute the same results both
    times, otherwise GradientError is raised; what it changes elsewhere, it changes twice. Where nothing is recorded,
    in forward mode, and inside `compile` and `vmap` (where the compiler decides what is kept), this simply calls f.

    >>> import wengert as wg
    >>> runs = []
    >>> def f(x):
    ...     runs.append(1)
    ...     return wg.exp(wg.sin(x))
    >>> x = wg.tensor(0.0, requires_grad=True)
    >>> grads = checkpoint(f, x).backward()
    >>> grads[x].item(), len(runs)
    (1.0, 2)
    """
    if not callable(f):
        raise TypeError(f"checkpoint: takes a function and its arguments, got {type(f).__name__}")
    leaves, structure = tree.flatten((args, kwargs, computed_cells(f)))
    traced = tracing() is not None or any(isinstance(x, Tensor) and not x._plain for x in leaves)
    if traced or not _core.is_grad_enabled():
        return f(*args, **kwargs)
    return _UserRegion(f, leaves, structure).first_run(args, kwargs)


def checkpoint_sequential(functions: Sequence[Callable[[Any], Any]], segments: int, x: Any) -> Any:
    """Apply functions one after the other, functions[n − 1](… functions[0](x)), in `segments` checkpoints of about
    equal length.

    With n functions and √n segments, about 2√n values are kept at a time instead of n, for one more run of each
    function (Chen et al., 2016). `functions` may be a `Sequential`.

    >>> import wengert as wg
    >>> x = wg.tensor(0.5, requires_grad=True)
    >>> y = checkpoint_sequential([wg.sin, wg.exp, wg.tanh], 2, x)
    >>> bool(y == wg.tanh(wg.exp(wg.sin(x))))
    True
    """
    chain = list(functions)
    if not 1 <= segments <= max(1, len(chain)):
        raise ArgumentError(
            f"checkpoint_sequential: segments must be between 1 and the number of functions, {len(chain)}; got {segments}"
        )
    ends = [round(k * len(chain) / segments) for k in range(segments + 1)]
    for first, last in itertools.pairwise(ends):
        x = checkpoint(_in_a_row, chain[first:last], x)
    return x


def _in_a_row(functions: Sequence[Callable[[Any], Any]], x: Any) -> Any:
    for f in functions:
        x = f(x)
    return x


class _Input:
    """A tensor that a region is given: its value as it is now, whatever is written to it later, and its edge."""

    def __init__(self, x: Tensor) -> None:
        self.edge = _core.node_of(x) if x.dtype.is_inexact else None
        self._value = _core.untracked_name(x)
        self._keeper = _keeper(self._value) if x.dtype.is_inexact else None

    def attached(self) -> Tensor:
        """The tensor with its edge."""
        return self._value if self.edge is None else _attached(self.edge, self._value)

    def fresh(self) -> Tensor:
        """The tensor as a leaf of its own; where nothing was tracked, as one that never is."""
        made: Tensor = _core.another_name(self._value) if self.edge is None else _core.fresh_leaf(self._value)
        return made


class _Region:
    """What one node stands for: `run` on these inputs, with what it reads besides."""

    def __init__(self, name: str, inputs: list[_Input]) -> None:
        self.name, self.inputs = name, inputs
        self.captured: list[_Edge] = []
        self.outputs: list[int] = []  # which results of `run` are outputs of the node

    def run(self, inputs: list[Tensor]) -> list[Any]:
        """The results, recorded by these inputs."""
        raise NotImplementedError(f"{type(self).__name__} does not define run")

    def replace(self, results: list[Any]) -> list[Any]:
        """The results, with those in `outputs` as outputs of one node."""
        edges = [_attached(e, _PLACEHOLDER) for e in self.captured]
        made = record_node(self, [*(x.attached() for x in self.inputs), *edges], [results[k] for k in self.outputs])
        replaced = list(results)
        for k, y in zip(self.outputs, made):
            replaced[k] = y
        return replaced

    def __call__(self, bars: Sequence[Tensor], node: Any = None) -> list[Any]:
        """Cotangents of the inputs and of what is captured. With a node given, they are being recorded."""
        edges = [*(x.edge for x in self.inputs), *self.captured, *map(_core.node_of, bars)]
        if node is not None and any(e is not None and e[0].active for e in edges):
            return _Pull(self, bars).first_run()
        with _tracked_again(self.captured):
            return self.pull([x.fresh() for x in self.inputs], bars, record=False)

    def pull(self, inputs: list[Tensor], bars: Sequence[Tensor], record: bool) -> list[Any]:
        """Run again on these inputs, and walk back at once."""
        with enable_grad():
            start = _sequence_number()
            results = self.run(inputs)
            outputs = [results[k] for k in self.outputs]
            outside = self._outside(_recorded_since(start, outputs)[1])
            own = [_core.node_of(x) if x.requires_grad else None for x in inputs]
            # What was computed outside is visited, too, and stays as it is.
            retain = record or any(e is not None and not e[0].is_leaf for e in outside)
            with _hooks_set_aside(outside) as met:
                found, *_ = _core.backward(list(zip(outputs, bars)), [*own, *outside], retain, False, False, record)
        n, m = len(inputs), len(self.captured)
        gradients = [g if e is None else met.get(e, g) for e, g in zip([*own, *outside], found)]
        again = gradients[n + m :]  # of inputs that the function closes over
        return [*map(_sum, gradients[:n], again), *gradients[n : n + m]]

    def _outside(self, reached: list[_Edge]) -> list[_Edge | None]:
        """Where the walk ends besides at the leaves of this run: at what is captured, and at inputs, if the function
        closes over them, too. None where it does not get there."""
        by_key = {(n.key, k): (n, k) for n, k in reached}
        by_id = {n.id: (n, k) for n, k in reached if n.is_leaf and n.id}

        def now(node: Any, k: int) -> _Edge | None:
            # A leaf that a tape makes for a tensor is another one each time, but knows the tensor.
            return by_key.get((node.key, k)) or (by_id.get(node.id) if node.is_leaf else None)

        captured = [now(*e) for e in self.captured]
        again = [None if x.edge is None else now(*x.edge) for x in self.inputs]
        for (node, _), edge in zip(self.captured, captured):
            if edge is None and not node.is_leaf and not node.active:
                self._refuse_captured(node)
        for edge in again:
            if edge is not None and not (edge[0].is_leaf and all(n.is_leaf for n, _ in self.captured)):
                self._refuse_captured(edge[0])
        return [*captured, *again]

    def _refuse_captured(self, node: Any) -> NoReturn:
        raise GradientError(
            f"checkpoint: {self.name} closes over a tensor that was computed outside, by {node.name} at {node.line}; pass "
            "it as an argument: checkpoint(f, x, that_tensor)"
        )


class _UserRegion(_Region):
    """A function of the user's on containers of tensors."""

    def __init__(self, f: Callable[..., Any], leaves: list[Any], structure: Any) -> None:
        super().__init__(_name_of(f), [_Input(x) for x in leaves if isinstance(x, Tensor)])
        self._f, self._structure = f, structure
        self._others = [None if isinstance(x, Tensor) else (x,) for x in leaves]  # None: a tensor goes here
        self._draws: list[Any] = []
        self._casts = cast_apart()
        self._out_structure: Any = None
        self._results: list[_Seen | None] = []

    def first_run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function on what it was given, and return its results as those of one node."""
        start = _sequence_number()
        with draws_logged() as self._draws, self._casts:
            result = self._f(*args, **kwargs)
        leaves, self._out_structure = tree.flatten(result)
        self.outputs = [k for k, y in enumerate(leaves) if isinstance(y, Tensor) and y.requires_grad]
        if not self.outputs or not all(y._plain for y in leaves if isinstance(y, Tensor)):
            return result
        self._results = [_Seen.of(y) if isinstance(y, Tensor) else None for y in leaves]
        inside, reached = _recorded_since(start, [leaves[k] for k in self.outputs])
        given = {(x.edge[0].key, x.edge[1]) for x in self.inputs if x.edge is not None}
        self.captured = [(n, k) for n, k in reached if (n.key, k) not in given]
        self._require_separate()
        if _core.recording_tapes():
            _forget(inside)
        return tree.unflatten(self._out_structure, self.replace(leaves))

    def _require_separate(self) -> None:
        """A walk goes on beyond what was computed outside; if it got to something else that is captured, the way there
        would count twice: inside, and when the outer walk goes it again."""
        for edge in self.captured:
            if not edge[0].is_leaf and _leads_to(edge, [e for e in self.captured if e is not edge]):
                self._refuse_captured(edge[0])

    def run(self, inputs: list[Tensor]) -> list[Any]:
        """The function again, on other tensors."""
        given = iter([_behind(x) if x.requires_grad else x for x in inputs])
        leaves = [next(given) if x is None else x[0] for x in self._others]
        args, kwargs, cells = tree.unflatten(self._structure, leaves)
        f = with_cells(self._f, cells) if cells else self._f
        with draws_repeated(self._draws) as draws, recomputation(), self._casts:
            result = f(*args, **kwargs)
        results, structure = tree.flatten(result)
        if draws.differ:
            self._refuse("drew other random numbers")
        if structure != self._out_structure:
            self._refuse(f"returned {structure} instead of {self._out_structure}")
        for k, (y, before) in enumerate(zip(results, self._results)):
            if before is not None:
                self._require_same(k, y, before)
        return results

    def _require_same(self, k: int, y: Any, before: _Seen) -> None:
        now = _Seen.of(y) if isinstance(y, Tensor) and y._plain else None
        if now is None or now.type != before.type:
            self._refuse(f"returned {'no tensor' if now is None else now.type} instead of {before.type} as result {k}")
        if now != before:
            self._refuse(f"returned other numbers in result {k}, {before.type}")

    def _refuse(self, how: str) -> NoReturn:
        raise GradientError(
            f"checkpoint: {self.name} {how} when it ran again for its derivative. It must compute the same twice, but it "
            "reads something that changed in between (a Python object, a parameter, a buffer, train() or eval(), an array "
            "that shares memory with a tensor), or random numbers that are not wengert's"
        )


class _Pull(_Region):
    """The walk back through a region, as a region: of its inputs and of the cotangents of its outputs."""

    def __init__(self, region: _Region, bars: Sequence[Tensor]) -> None:
        super().__init__(region.name, [*region.inputs, *map(_Input, bars)])
        self._region, self.captured = region, region.captured

    def first_run(self) -> list[Any]:
        """The cotangents, as outputs of a node."""
        with _tracked_again(self.captured):
            results = self.run([x.fresh() for x in self.inputs])
            self.outputs = [k for k, g in enumerate(results) if g is not None and g.requires_grad]
        return self.replace(results)

    def run(self, inputs: list[Tensor]) -> list[Any]:
        """Cotangents that are recorded."""
        n = len(self._region.inputs)
        return self._region.pull(inputs[:n], inputs[n:], record=True)


# -------------------------------------------------------------------------------------------------- recorded nodes


def _sequence_number() -> int:
    """Of what is recorded from here on, all numbers are higher."""
    return int(_core.node_of(_core.fresh_leaf(_PLACEHOLDER))[0].seq)


def _recorded_since(start: int, results: Sequence[Tensor]) -> tuple[list[Any], list[_Edge]]:
    """The instructions after `start` that lead to these results, and the edges to what they read from before, or from
    leaves. A leaf that was made since is the function's own, unless it is a tape's handle for a tensor from outside."""
    handles = bool(_core.recording_tapes())
    inside: dict[int, Any] = {}
    outside: dict[tuple[int, int], _Edge] = {}
    todo = [edge for edge in map(_core.node_of, results) if edge is not None]
    while todo:
        node, k = todo.pop()
        if node.is_leaf or node.seq <= start:
            if node.seq <= start or handles:
                outside[node.key, k] = (node, k)
        elif node.key not in inside:
            inside[node.key] = node
            todo += [edge for edge in node.edges if edge is not None]
    return list(inside.values()), list(outside.values())


def _walk_without_cotangents(roots: Sequence[_Edge], sources: Sequence[_Edge], retain: bool) -> list[bool]:
    """Visit all on the way from the roots to the sources, but compute nothing; say which sources were reached."""
    ends = [_attached(e, _PLACEHOLDER) for e in roots]
    with enable_grad():
        (nothing,) = record_node(lambda bars: [None] * len(roots), ends, [_PLACEHOLDER])
    _, reached, *_ = _core.backward([(nothing, _PLACEHOLDER)], list(sources), retain, False, False)
    return list(reached)


def _leads_to(edge: _Edge, others: Sequence[_Edge]) -> bool:
    """Whether what was recorded for one was computed from one of the others."""
    return bool(others) and any(_walk_without_cotangents([edge], others, retain=True))


def _forget(nodes: Sequence[Any]) -> None:
    """Free what these instructions keep, though a tape has them: a walk frees what it leaves behind."""
    for node in nodes:
        if isinstance(node.custom, _Region):
            node.custom.inputs.clear()
    edges = [(n, 0) for n in nodes if not n.freed]
    _walk_without_cotangents(edges, edges, retain=False)


def _attached(edge: _Edge, x: Tensor) -> Tensor:
    return _core.reattach(edge[0], edge[1], x)  # type: ignore[no-any-return]


def _behind(leaf: Tensor) -> Tensor:
    """The leaf as if it had been computed: functions may write to such arguments in place, but not to leaves."""
    return record_node(lambda bars, node=None: bars, [leaf], [leaf])[0]


def _keeper(x: Tensor) -> Any:
    """An instruction that keeps x, and says so to the statistics; it computes nothing, of no element of x."""
    leaf = _core.fresh_leaf(x)
    with enable_grad(), tapes_paused():
        none = (_reshape(leaf, (1,)) if leaf.ndim == 0 else leaf)[:0]
        return _core.node_of(none * none)[0]


@contextmanager
def _tracked_again(edges: Sequence[_Edge]) -> Iterator[None]:
    """Inside, leaves are tracked that were so only in the block of a tape, or for the length of a transformation."""
    if all(n.active for n, _ in edges):
        yield
        return
    tape = _core.TapeRecord()
    tape.start()
    try:
        yield
    finally:
        tape.stop()
        tape.clear()


@contextmanager
def _hooks_set_aside(edges: Sequence[_Edge | None]) -> Iterator[dict[_Edge, Tensor]]:
    """Inside, this thread calls no hooks of what lies outside of a region, and adds nothing to gradients that it retains:
    the outer walk does. Yields the gradients that were met instead of them."""
    met: dict[_Edge, Tensor] = {}
    before: list[tuple[list[Any], list[Any]]] = []
    thread = threading.get_ident()
    try:
        for node, _ in {(e[0], 0) for e in edges if e is not None}:
            retains = bool(node.id) and not node.is_leaf
            if not node.hooks and not retains:
                continue
            hooks = _core.hooks_of(_attached((node, 0), _PLACEHOLDER))
            before.append((hooks, list(hooks)))
            hooks[:] = [_meeting(met, (node, 0), retains, thread), *(_elsewhere(h, thread) for h in hooks)]
        yield met
    finally:
        for hooks, own in before:
            hooks[:] = own


def _meeting(met: dict[_Edge, Tensor], edge: _Edge, retains: bool, thread: int) -> Callable[[Tensor], Tensor | None]:
    def meet(g: Tensor) -> Tensor | None:
        if threading.get_ident() != thread:
            return None
        met[edge] = g
        return zeros_like(g) if retains else None

    return meet


def _elsewhere(hook: Callable[[Tensor], Any], thread: int) -> Callable[[Tensor], Any]:
    return lambda g: None if threading.get_ident() == thread else hook(g)


# -------------------------------------------------------------------------------------------------------- closures


def computed_cells(f: Any) -> dict[int, Any]:
    """The variables that a function closes over which hold results of recorded operations: further arguments of a region.
    Leaves need not be: the walk finds them."""
    cells = (f.__closure__ or ()) if isinstance(f, types.FunctionType) else ()
    found = {}
    for k, cell in enumerate(cells):
        try:
            content = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        held = [content] if isinstance(content, Tensor) else tree.leaves(content) if tree.is_container(content) else ()
        if any(isinstance(x, Tensor) and x._plain and x.requires_grad and not x.is_leaf for x in held):
            found[k] = content
    return found


def with_cells(f: Any, contents: dict[int, Any]) -> Callable[..., Any]:
    """The same function with other values for some of the variables that it closes over."""
    cells = [types.CellType(contents[k]) if k in contents else cell for k, cell in enumerate(f.__closure__)]
    made = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, tuple(cells))
    made.__kwdefaults__ = f.__kwdefaults__
    return made


# --------------------------------------------------------------------------------------------------------- results


class _Seen(NamedTuple):
    """What is remembered of a result, to know it again: its type, and a sum of its bits."""

    type: str
    digest: int

    @staticmethod
    def of(y: Tensor) -> _Seen:
        """Of a plain tensor."""
        flat = np.ascontiguousarray(data(y)).reshape(-1).view(np.uint8)
        words = flat[: flat.size // 8 * 8].view(np.uint64)
        blocks = words[: words.size // _BLOCK * _BLOCK].reshape(-1, _BLOCK).sum(1)
        rest = flat[blocks.size * _BLOCK * 8 :]
        return _Seen(f"{y.dtype.name}{tuple(y.shape)}", zlib.crc32(rest.tobytes(), zlib.crc32(blocks.tobytes())))


def _sum(g: Any, more: Any) -> Any:
    return g if more is None else more if g is None else g + more


def _name_of(f: Any) -> str:
    return getattr(f, "__qualname__", None) or type(f).__name__


__all__ = ["checkpoint", "checkpoint_sequential"]
