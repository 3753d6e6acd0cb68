"""Decides which functions may be traced once and replayed without the user asking for `compile`.

A replay runs no Python. That must not show: so a function is replayed only where its code is seen to depend on nothing but
its arguments, tensors, and constants that are the same as before, and to do nothing but compute. All others run as they are
written, in every call.
"""

from __future__ import annotations

import dis
import functools
import inspect
import math
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert import _core, functional, tree
from wengert._core import Tensor
from wengert.compiling.compile import _wrap
from wengert.dtypes import DType
from wengert.program.call_trace import call_trace
from wengert.program.trace import tracing
from wengert.registry.record import OPS, Op
from wengert.transforms.naming import Transformed

_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, np.generic, DType)
_NATIVE = (type(OPS["add"].function), type(functional.sum), Op)
_MODULES = ("wengert", "math", "numpy", "operator", "functools", "itertools", "cmath")
_BUILTINS = frozenset({
    "abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "int",
    "isinstance", "len", "list", "map", "max", "min", "pow", "range", "reversed", "round", "set", "slice", "sorted",
    "str", "sum", "tuple", "type", "zip",
})  # fmt: skip
# Opcodes that change something that outlives the call.
_EFFECTS = frozenset({
    "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "IMPORT_FROM", "IMPORT_STAR",
})  # fmt: skip
# Opcodes and methods that may change a container.
_CHANGES = frozenset({
    "add", "append", "clear", "delitem", "discard", "extend", "insert", "iadd", "ior", "move_to_end", "pop", "popitem",
    "remove", "reverse", "setdefault", "setitem", "sort", "update",
})  # fmt: skip
# Methods, builtins and modules that may turn a tensor into a Python number, which a trace would treat as a constant.
_READING = frozenset({"item", "numpy", "tolist", "float", "int", "bool", "complex", "round", "str", "max", "min"})
_READING_MODULES = ("math", "cmath", "numpy", "operator")
_MOST = 64  # remembered functions
_MANY = 256  # elements


class Effect(BaseException):
    """Raised if the traced function has side effects; not an Exception, so that users' handlers do not catch it."""


@dataclass(slots=True, frozen=True)
class _Code:
    """What a function's code reads from outside."""

    pure: bool
    names: tuple[str, ...]  # global names
    changes: bool  # whether it may change a container
    numbers: bool  # whether it may read the numbers of a tensor


@functools.lru_cache(maxsize=512)
def _examine(code: types.CodeType) -> _Code:
    names: dict[str, None] = {}
    pure = not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
    pure, changes, numbers = pure or code.co_name == "<genexpr>", False, False
    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[i.argval] = None
            numbers = numbers or i.argval in _READING
        pure = pure and i.opname not in _EFFECTS
        pure = pure and not (i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval in code.co_freevars)
        attribute = i.argval if i.opname in ("LOAD_ATTR", "LOAD_METHOD") else ""
        pure = pure and attribute != "random"
        changes = changes or i.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") or attribute in _CHANGES
        numbers = numbers or attribute in _READING or ("JUMP" in i.opname and "_IF_" in i.opname)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found = _examine(inner)
            pure, changes, numbers = pure and found.pure, changes or found.changes, numbers or found.numbers
            names.update(dict.fromkeys(found.names))
    return _Code(pure, tuple(names), changes, numbers)


class _NotReplayable(Exception):
    pass


class _State(list[Any]):
    """What a function depends on besides its arguments: constants, tensors, code."""

    tensors = containers = changes = numbers = False


def _state_of(f: Any) -> _State:
    """The state that f depends on; raises _NotReplayable if it is unknown or f may change it."""
    state = _State()
    _read(f, state, set())
    if (state.containers and state.changes) or (state.tensors and state.numbers):
        raise _NotReplayable
    return state


def _read(f: Any, state: _State, seen: set[int]) -> None:
    """Append what f depends on."""
    if isinstance(f, (_core.Compiled, *_NATIVE)):
        state.append(f)
    elif isinstance(f, Transformed):
        transform, inner, options = f._recipe
        state.append(transform)
        for value in options.values():
            _read_value(value, state, seen)
        _read(inner, state, seen)
    elif isinstance(f, functools.partial):
        _read(f.func, state, seen)
        for value in (*f.args, *f.keywords.values()):
            _read_value(value, state, seen)
    elif isinstance(f, types.FunctionType):
        _read_function(f, state, seen)
    else:
        raise _NotReplayable


def _read_function(f: types.FunctionType, state: _State, seen: set[int]) -> None:
    if _is_ours(f):
        state.append(f)
        return
    state.append(f.__code__)
    if id(f) in seen:
        return
    seen.add(id(f))
    for value in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
        _read_value(value, state, seen)
    for cell in f.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:
            raise _NotReplayable from None
        _read_value(value, state, seen)
    if _is_trusted(f.__module__):
        return
    found = _examine(f.__code__)
    if not found.pure:
        raise _NotReplayable
    state.changes |= found.changes
    state.numbers |= found.numbers
    for name in found.names:
        if name in f.__globals__:
            _read_value(f.__globals__[name], state, seen)
        elif name not in _BUILTINS:
            raise _NotReplayable


def _read_value(value: Any, state: _State, seen: set[int]) -> None:
    if isinstance(value, (*_CONSTANTS, *_NATIVE)):
        state.append(value)
    elif isinstance(value, Tensor) and value._plain:
        state.append(value)
        state.tensors = True
    elif type(value) in (tuple, list, dict):
        state.containers |= type(value) is not tuple
        state += (type(value), len(value))
        for part in value if type(value) is not dict else (x for pair in value.items() for x in pair):
            _read_value(part, state, seen)
    elif isinstance(value, types.ModuleType):
        if not _is_trusted(value.__name__):
            raise _NotReplayable
        state.append(value)
        state.numbers |= value.__name__.partition(".")[0] in _READING_MODULES
    elif isinstance(value, (types.BuiltinFunctionType, np.ufunc)) or (
        isinstance(value, type) and _is_trusted(value.__module__)
    ):
        if getattr(value, "__module__", None) not in (None, "builtins") and not _is_trusted(value.__module__ or ""):
            raise _NotReplayable
        if value in (print, input, open, exec, eval):
            raise _NotReplayable
        state.append(value)
    else:
        _read(value, state, seen)


def _is_ours(f: types.FunctionType) -> bool:
    """Whether f is a function of the library itself, not one made for a user."""
    return _is_trusted(f.__module__) and getattr(sys.modules[f.__module__], f.__name__, None) is f


def _is_trusted(module: str | None) -> bool:
    return module is not None and module.partition(".")[0].removeprefix("_") in _MODULES


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, (*_CONSTANTS, types.CodeType)):
        return False
    return bool(a == b) and not (isinstance(a, float) and math.copysign(1.0, a) != math.copysign(1.0, b))


@dataclass(slots=True)
class _Known:
    state: list[Any]
    compiled: Any  # None for a function found to have side effects

    def fits(self, state: list[Any]) -> bool:
        return len(state) == len(self.state) and all(map(_same, state, self.state))


_shared: OrderedDict[Any, _Known] = OrderedDict()  # functions that close over no tensors, by their code


def replayed(made: Callable[..., Any], f: Any, options: tuple[Any, ...]) -> Callable[..., Any]:
    """Wrap `made`, which transforms f: trace it at its first call and replay later calls if that cannot be noticed.

    Of functions that close over tensors, whose traces must be kept with them, only what is called a second time is traced,
    or what is called on so many numbers that derivatives one after the other would take longer than tracing.
    """
    own: list[_Known] = []
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        if tracing() is not None or not _are_plain(args, kwargs):
            return made(*args, **kwargs)
        try:
            state = _state_of(f)
        except _NotReplayable:
            return made(*args, **kwargs)
        calls += 1
        if state.tensors:
            if (calls == 1 and not _are_many(args)) or (own and not own[0].fits(state)):
                return made(*args, **kwargs)
            if not own:
                own.append(_Known(state, compiled_purely(made, f)))
            known = own[0]
        else:
            known = _find(options, state, lambda: compiled_purely(made, f))
        if known.compiled is None:
            return made(*args, **kwargs)
        try:
            return known.compiled(*args, **kwargs)
        except (Effect, Exception):
            known.compiled = None  # run uncompiled to get the real error, or to find that there is none
            return made(*args, **kwargs)

    return call


def shared(make: Callable[[], Any], f: Any, options: tuple[Any, ...]) -> Any:
    """The result of `make()`, a compiled function of f, cached for as long as f is the same."""
    try:
        state = _state_of(f)
        hash(options)
    except (_NotReplayable, TypeError):
        return make()
    return make() if state.tensors else _find(options, state, make).compiled


@dataclass(slots=True)
class Dependence:
    """A snapshot of what a function depends on besides its arguments."""

    state: _State

    @property
    def on_tensors(self) -> bool:
        """Whether the function closes over tensors."""
        return self.state.tensors

    @property
    def key(self) -> Any:
        """Equal for functions of the same code."""
        return self.state[0]

    def is_same(self, other: Dependence) -> bool:
        """Whether nothing has changed since the snapshot."""
        return len(self.state) == len(other.state) and all(map(_same, self.state, other.state))


def dependence(f: Any) -> Dependence | None:
    """What f depends on, if its trace may be replayed; None if it is not known."""
    try:
        return Dependence(_state_of(f))
    except _NotReplayable:
        return None


def _find(options: tuple[Any, ...], state: _State, make: Callable[[], Any]) -> _Known:
    key = (options, state[0], _core.autocast_policy())
    known = _shared.get(key)
    if known is None or not known.fits(state):
        known = _shared[key] = _Known(state, make())
    _shared.move_to_end(key)
    if len(_shared) > _MOST:
        _shared.popitem(last=False)
    return known


def compiled_purely(made: Callable[..., Any], f: Any) -> Any:
    """`made`, which transforms f, compiled; tracing raises `Effect` at a side effect."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = made(*args, **kwargs)
        trace = call_trace()
        if trace is None or trace.has_effects():
            raise Effect
        return result

    return _wrap(run, getattr(f, "__name__", type(f).__name__))


def _are_many(args: tuple[Any, ...]) -> bool:
    return sum(x.size for x in tree.leaves(args) if isinstance(x, Tensor)) >= _MANY


def _are_plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether all arguments are plain tensors and numbers."""
    for x in (*args, *kwargs.values()):
        if isinstance(x, Tensor):
            if not x._plain:
                return False
        elif tree.is_container(x):
            if not all(isinstance(v, Tensor) and v._plain for v in tree.leaves(x)):
                return False
        elif not isinstance(x, (bool, int, float)):
            return False
    return any(isinstance(x, Tensor) or tree.is_container(x) for x in args)


__all__ = ["Dependence", "Effect", "compiled_purely", "dependence", "replayed", "shared"]
