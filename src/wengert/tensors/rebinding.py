"""Writing in place in forward mode.

The value and the tangent of a dual never change. A write gives the *name* that is written to another pair; what is a view
of it is read from it again when it is next used, and a write to a view is a write to what it is a view of. A tensor without
a tangent that is given a value with one becomes a dual, and so does everything that shares its memory; when the
transformation ends it is again what it was, with the new value.
"""

from __future__ import annotations

import weakref
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.errors import InPlaceError, TraceError
from wengert.modes import enable_grad
from wengert.passes.evaluate import apply
from wengert.program.call_trace import Name, call_trace, has_known_layout, require_same_but_for_ones
from wengert.program.trace import Tracer
from wengert.registry.record import OPS, Op


@_core.core_layout
class Pair(_core.Pair):
    """The contents of a dual: Pair(value, tangent, level). A tangent of None is zero; a level belongs to a transformation.

    `view` says what the dual is a view of, `version` counts writes, and where `known_layout` is False, whether it is
    contiguous differs from call to call of a compiled function.
    """

    __slots__ = ()

    def give(self, x: Any) -> None:
        """Set the value and tangent of x from here on."""
        if _is_dual(x):
            pair = x._pair
            self.value, self.tangent, self.level = pair.value, pair.tangent, pair.level
        else:
            self.value, self.tangent = OPS["copy"](x) if x._pinned else another_name(x), None
        self.version += 1


@_core.core_layout
class View(_core.View):
    """How a dual is a view of another: View(base, name of the op, attrs, seen, detached=False).

    `seen` is the version of the base's pair that the view reflects.
    """

    __slots__ = ()

    @property
    def op(self) -> Op:
        """The op that makes the view from its base."""
        return OPS[self.name]

    def of(self, base: Any) -> Any:
        """The view of a tensor of the base's type."""
        y = self.op(base, *self.attrs)
        return y.detach() if self.detached else y

    def reread(self, pair: Pair) -> None:
        """Refresh the view after a write to its base, which is up to date."""
        self._require_sharing(pair.value, "this")
        with enable_grad():  # how a view relates to its base does not depend on whether its reader records
            pair.give(self.of(self.base))

    def _require_sharing(self, y: Any, name: str) -> None:
        pair = self.base._pair
        if self.op.may_copy and not (pair.view is None and pair.known_layout) and _is_traced(pair.value):
            require_same_but_for_ones(y, self.base, name)

    def updated(self, part: Any, name: str) -> Any:
        """The base with these values written to the view's position."""
        write_back = OPS[self.name].written_back
        if self.detached or write_back is None:
            made = "detach" if self.detached else self.name
            raise InPlaceError(
                f"{name}: a view that {made} made of a tensor with a tangent cannot be changed in place; change the tensor "
                "that it was made of, or clone() it first"
            )
        self._require_sharing(part, name)
        return write_back(apply, self.base, part, self.attrs)


def _is_dual(x: Any) -> bool:
    return hasattr(type(x), "_pair")


def another_name(x: Any) -> Any:
    """x under a new name: writing to one of the two leaves the other unchanged."""
    return _core.another_name(x) if x._plain else x._trace.another_name(x)


def note_view(y: Any, x: Any, op: Op, attrs: tuple[Any, ...]) -> None:
    """y, which the op made of x, follows writes to x if it shares its memory, as it would without tangents."""
    inner_y, inner_x = _innermost(y), _innermost(x)
    if not (inner_x._plain and inner_y._plain) or _core.same_buffer(inner_y, inner_x):
        y._held.view = View(x, op.name, attrs, x._pair.version)


def _is_traced(x: Any) -> bool:
    return isinstance(_innermost(x), Tracer)


def argument(level: Any, value: Any, tangent: Any) -> Any:
    """A dual as an argument of a function: a new name for its contents."""
    made = level.pair(another_name(value), another_name(tangent))
    made._held.known_layout = not _is_traced(value)
    return made


def _innermost(x: Any) -> Any:
    while _is_dual(x):
        x = x._pair.value
    return x


# ------------------------------------------------------------------------------------------------------------- writing


def write(x: Any, value: Any, level: Any, name: str) -> None:
    """Give x a new value from here on. One of the two is a dual of this level, which is the higher one."""
    if call_trace() is not None and not _is_traced(x):
        raise TraceError(
            f"{name}: a tensor {x.dtype.name}{tuple(x.shape)} from outside of the function that is being traced cannot be "
            "given a value with a tangent in place; compute a new tensor instead"
        )
    if call_trace() is not None and not _is_traced(value):
        value = OPS["copy"](value)  # in the trace: what was made there has a value there
    if not _is_dual(x):
        _lift(x, level, name)
    pair = x._pair
    before = pair.level
    if pair.view is None:
        value = _laid_out_like(pair.value, value)
        pair.give(value if _core.is_grad_enabled() else _replaced(pair.level.pair(pair.value, pair.tangent), value))
        _core.note_dual_write()
    else:
        write(pair.view.base, pair.view.updated(value, name), level, name)
    if x._pair.level.level > before.level:
        _note_turned(x, level, before)


def _laid_out_like(old: Any, new: Any) -> Any:
    """The new value, contiguous if the old one is, as after a real write, so that reshape makes a view of it."""
    before, after = _innermost(old), _innermost(new)
    if before._plain and after._plain and before.is_contiguous and not after.is_contiguous:
        with enable_grad():
            return OPS["reshape"](OPS["reshape"](new, (new.size,)), new.shape)
    return new


def _replaced(old: Any, new: Any) -> Any:
    """The result of a write under no_grad: the new numbers, tangents included, with the edges of the old ones."""
    if _is_dual(new):
        level = new._pair.level
        value, tangent = level.split(old)
        new_tangent = new._pair.tangent
        return level.pair(
            _replaced(value, new._pair.value), None if new_tangent is None else _replaced(tangent, new_tangent)
        )
    if _is_dual(old):
        return _replaced(old._pair.value, new)
    if old is None:
        return new.detach()
    with enable_grad():
        return OPS["replace_value"](old, new.detach())


def _note_turned(x: Any, level: Any, before: Any) -> None:
    """Note that when the level ends, x returns to the previous level or, if that is None, is no longer a dual."""
    level.turned.append((weakref.ref(x), before))


def _lift(x: Any, level: Any, name: str) -> None:
    """x becomes a dual with a zero tangent, and so do all tensors that share its memory."""
    if isinstance(x, Name):
        return _lift_names(x, level)
    if type(x) is not Tensor or (x.requires_grad and x.is_leaf):
        raise InPlaceError(
            f"{name}: a tensor {x.dtype.name}{tuple(x.shape)} that is a parameter, or a leaf that requires a gradient, "
            "cannot be given a value with a tangent in place; compute a new tensor instead"
        )
    shared = _core.sharing(x)
    if shared is None:
        _become(x, Pair(_core.another_name(x), None, level))
        _note_turned(x, level, None)
        return
    names, whole = shared
    root = level.pair(whole, None)
    _note_turned(root, level, None)
    for other, place, detached in names:
        op, attrs = ("as_strided", place) if place is not None else ("reshape", (whole.shape,))
        value = _core.another_name(other)
        _become(other, Pair(value, None, level, View(root, op, attrs, root._pair.version, detached)))
        _note_turned(other, level, None)


def _become(x: Any, pair: Pair) -> None:
    _core.hold(x, pair)
    x.__class__ = pair.level.dual_type


def _lift_names(x: Name, level: Any) -> None:
    """The same for a tensor of the open trace: its base, and all views of that."""
    root: Any = x
    while root._view is not None:
        root = root._view.base
    todo: list[tuple[Any, View | None]] = [(root, None)]
    while todo:
        name, view = todo.pop()
        known = view is not None or has_known_layout(name)
        _become_traced(name, Pair(name._trace.another_name(name), None, level, view, known_layout=known))
        _note_turned(name, level, None)
        for ref in name._views:
            other = ref()
            if other is not None and other._view is not None and other._view.base is name:
                todo.append((other, View(name, other._view.op.name, other._view.attrs, name._held.version)))


def _become_traced(x: Name, pair: Pair) -> None:
    _core.hold(x, pair)
    x.__class__ = pair.level.traced_dual_type


# ------------------------------------------------------------------------------------------------ the end of a level


def end(level: Any) -> None:
    """Tensors that became duals of this level by a write and outlive it keep their value and lose their tangent."""
    turned, level.turned = level.turned, []
    for ref, before in turned:
        x = ref()
        if x is not None:
            _lower(x, level, before)
            _core.note_dual_write()


def _lower(x: Any, level: Any, before: Any) -> None:
    """Move x one level down. Its base was noted, and therefore lowered, before it."""
    if not _is_dual(x):
        return
    pair, view = x._held, x._held.view
    if pair.level is not level:
        return
    if view is not None and not _is_dual(view.base):
        _to_plain(x, pair, view)
        return
    if view is None and _is_dual(pair.value):
        pair.give(pair.value)
    elif view is None and before is None:
        _to_plain(x, pair, None)
        return
    elif view is None:
        pair.tangent, pair.level, pair.version = None, before, pair.version + 1
    now = x._pair.level
    if before is None or now.level > before.level:
        _note_turned(x, now, before)


def _to_plain(x: Any, pair: Pair, view: View | None) -> None:
    if isinstance(x, Name):
        x.__class__ = Name
        if view is None:
            x._trace.write(x, pair.value, x._op)
    else:
        x.__class__ = Tensor
        _core.hold_data(x, pair.value if view is None else view.of(view.base))
