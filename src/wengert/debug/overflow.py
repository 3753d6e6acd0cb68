"""Which operation made the first infinity or NaN of a loss or of its gradients."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.debug.elements import not_finite
from wengert.debug.recorded_values import first_operation
from wengert.program.trace import untraced
from wengert.registry.record import find_op
from wengert.tensors.creation import zeros
from wengert.transforms.pullback import reachable

_MOST_SHOWN = 6
with untraced():  # a function that is being traced may be the first to need this module
    _PLACEHOLDER = zeros((0,))  # where a tensor is needed, and only its edge matters
_PLACEHOLDER.requires_grad = False


@dataclass(frozen=True, slots=True)
class OverflowSource:
    """An operation, and the ids of the leaves that it was computed from, the nearest first."""

    text: str
    leaves: list[int]


@dataclass(frozen=True, slots=True)
class Overflow:
    """What is known of a step whose gradients overflowed."""

    step: int
    scale: float
    gradients: list[str]
    of: int  # gradients
    first: OverflowSource | None
    names: dict[int, str]  # of the optimizer's parameters

    def text(self, names: dict[int, str]) -> str:
        """A report; `names` of parameters go before those of the optimizer."""
        lines = [f"step {self.step} overflowed at a scale of {self.scale:g} and was skipped."]
        if self.first is not None:
            known = {**self.names, **names}
            near = next((known[k] for k in self.first.leaves if k in known), None)
            lines.append(f"  first: {self.first.text}" + ("" if near is None else f"; the nearest parameter is {near}"))
        shown = ", ".join(self.gradients[:_MOST_SHOWN])
        more = len(self.gradients) - _MOST_SHOWN
        lines.append(
            f"  {len(self.gradients)} of {self.of} gradients are not finite: {shown}"
            + (f" and {more} more" if more > 0 else "")
        )
        return "\n".join(lines)


class Watch:
    """Looks at one backward pass from its beginning, for the first operation whose numbers are not finite.

    A loss that is not finite itself is explained by the operations that led to it. Cotangents are looked at as well with
    `every`: at each operation, which costs about as much as the operation does.
    """

    def __init__(self, loss: Tensor, scaled: Tensor, every: bool) -> None:
        self._found: OverflowSource | None = None
        self._loss, self._scaled, self._every = _core.untracked_name(loss), _core.untracked_name(scaled), every
        self._edges = [_core.node_of(loss), _core.node_of(scaled)]
        self._readers: dict[int, Any] = {}  # of each operation and leaf, the latest operation that read its result

    def __call__(self, bars: list[Tensor], node: Any = None) -> list[Tensor]:
        """What the node of the scaled loss calls: backward begins here, with all that was recorded still there."""
        if self._found is None:
            self._begin()
        return bars

    def _begin(self) -> None:
        loss, scaled = self._edges
        if not_finite(self._loss):
            self._found = OverflowSource(f"the loss is not finite; {first_operation(loss)}", _leaves_behind(loss[0]))
        elif not_finite(self._scaled):
            self._found = OverflowSource("the loss times the scale is infinite", [])
        elif self._every:
            self._look_at_cotangents(reachable([scaled]).values())

    def _find_readers(self, nodes: Iterable[Any]) -> None:
        for node in sorted(nodes, key=lambda n: n.seq):
            for edge in node.edges:
                if edge is not None:
                    self._readers[edge[0].id if edge[0].is_leaf else edge[0].key] = node

    def _look_at_cotangents(self, nodes: Iterable[Any]) -> None:
        self._find_readers(nodes)
        for node in nodes:
            if not node.is_leaf and node.key in self._readers:
                hooks = _core.hooks_of(_core.reattach(node, 0, _PLACEHOLDER))
                hooks.append(functools.partial(_look, weakref.ref(self), node.key))  # a node must not own what owns it

    def look(self, key: int, g: Tensor) -> None:
        """At the cotangent of an operation."""
        if self._found is None and not_finite(g):
            self._found = self._made_by(key, g)

    def first(self, leaves: dict[int, Tensor]) -> OverflowSource | None:
        """The first operation, if it is known; `leaves` has the gradients that are not finite, by tensor id.

        Where cotangents were not looked at, it is the first of those that gave such a gradient to a leaf.
        """
        if self._found is not None:
            return self._found
        if not self._readers:
            self._find_readers(reachable([self._edges[1]]).values())
        read = [key for key in leaves if key in self._readers]
        if read:
            latest = max(read, key=lambda key: self._reader(key).seq)
            self._found = self._made_by(latest, leaves[latest])
        return self._found

    def _reader(self, key: int) -> Any:
        """The latest operation that read a result, or a cast of it."""
        reader = self._readers[key]
        op = find_op(reader.name)
        return self._readers.get(reader.key, reader) if op is not None and op.converts else reader

    def _made_by(self, key: int, g: Tensor) -> OverflowSource:
        reader = self._reader(key)
        what = f"{not_finite(g)} of {g.size} elements of {g.dtype.name}{tuple(g.shape)} are not finite"
        return OverflowSource(f"the derivative of {reader.name} at {reader.line}; {what}", _leaves_behind(reader))


def _look(watch: weakref.ref[Watch], key: int, g: Tensor) -> None:
    watching = watch()
    if watching is not None:
        watching.look(key, g)


def _leaves_behind(node: Any) -> list[int]:
    """The ids of the leaves that an operation was computed from, the nearest first."""
    found: list[int] = []
    seen, row = {node.key}, [node]
    while row:
        following = []
        for edge in (e for n in row for e in n.edges if e is not None):
            if edge[0].key not in seen:
                seen.add(edge[0].key)
                following.append(edge[0])
        found += [n.id for n in following if n.is_leaf]
        row = following
    return found
