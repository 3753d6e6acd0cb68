"""Modules: functions with parameters, nested.

A module is an ordinary object. Its parameters, buffers and submodules are its attributes, also inside lists, tuples and
dicts; nothing is registered behind the scenes but the names of buffers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.reverse import HookHandle
from wengert.dtypes import as_dtype
from wengert.errors import ArgumentError
from wengert.foreign_names import FOREIGN_OF_NETWORKS, ForeignMethod, readable
from wengert.modes import no_grad
from wengert.nn.backward_hooks import GradientWatch
from wengert.nn.parameter import Parameter, ParameterDict
from wengert.program.call_trace import call_trace
from wengert.tensors import conversion
from wengert.tensors.device import is_device, move
from wengert.tensors.html import escaped, table


class _Entry(NamedTuple):
    """Something that a module holds, and where."""

    name: str
    value: Any
    owner: Any  # a module, list, tuple or dict
    key: Any  # attribute, index or key


def _items(owner: Any) -> Iterable[tuple[Any, Any]]:
    """The contents of a module or container, by attribute, key or index."""
    if isinstance(owner, Module):
        return owner._held()
    return owner.items() if isinstance(owner, (dict, ParameterDict)) else enumerate(owner)


def _collect(owner: Any, prefix: str, seen: set[int], found: list[_Entry]) -> list[_Entry]:
    """Parameters, buffers and modules held by `owner`, each module once and before its contents."""
    seen.add(id(owner))
    buffers = owner._buffers if isinstance(owner, Module) else ()
    for key, value in list(_items(owner)):
        if isinstance(value, Parameter) or key in buffers:
            found.append(_Entry(f"{prefix}{key}", value, owner, key))
        elif isinstance(value, _CONTAINERS) and id(value) not in seen and key not in _HOOK_LISTS:
            if isinstance(value, Module):
                found.append(_Entry(f"{prefix}{key}", value, owner, key))
            _collect(value, f"{prefix}{key}.", seen, found)
    return found


_HOOK_LISTS = ("_hooks_before", "_hooks_after", "_hooks_of_gradients")


class Module:
    """Base class of layers and networks: assign parameters and modules to attributes, and define `forward`.

    Calling a module calls `forward`, with the same arguments. `parameters()` finds all parameters, including those of
    modules inside, also in lists and dicts. There is no need to call `super().__init__()`.

    >>> import wengert as wg
    >>> class Net(Module):
    ...     def __init__(self):
    ...         self.hidden = wg.nn.Linear(4, 8)
    ...         self.scale = wg.Parameter.ones((8,))
    ...     def forward(self, x):
    ...         return wg.tanh(self.hidden(x)) * self.scale
    >>> net = Net()
    >>> net(wg.ones((2, 4))).shape
    (2, 8)
    >>> [name for name, _ in net.named_parameters()]
    ['hidden.weight', 'hidden.bias', 'scale']
    """

    _training: bool = True
    _buffers: frozenset[str] = frozenset()
    _transient: frozenset[str] = frozenset()  # buffers that are not part of the state
    _hooked: bool = False  # whether a hook was ever registered: one look decides on the way of every call
    _hooks_before: Iterable[Callable[..., Any]] = ()
    _hooks_after: Iterable[Callable[..., Any]] = ()
    _hooks_of_gradients: Iterable[Callable[..., Any]] = ()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of the module; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._hooked:
            return self.forward(*args, **kwargs)
        for hook in tuple(self._hooks_before):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        watch = GradientWatch(self, self._hooks_of_gradients) if self._hooks_of_gradients else None
        if watch is not None:
            args = watch.inputs(args)
        result = self.forward(*args, **kwargs)
        for hook in tuple(self._hooks_after):
            changed = hook(self, args, result)
            result = result if changed is None else changed
        return result if watch is None else watch.outputs(result)

    def register_forward_pre_hook(self, hook: Callable[[Any, tuple[Any, ...]], Any]) -> HookHandle:
        """Call `hook(module, args)` before every call; what it returns, a tuple or one value, replaces the arguments.

        >>> import wengert as wg
        >>> m = wg.nn.Linear(3, 2)
        >>> handle = m.register_forward_pre_hook(lambda module, args: print(args[0].shape))
        >>> _ = m(wg.ones((4, 3)))
        (4, 3)
        >>> handle.remove()
        """
        return self._add_hook("_hooks_before", hook)

    def register_forward_hook(self, hook: Callable[[Any, tuple[Any, ...], Any], Any]) -> HookHandle:
        """Call `hook(module, args, result)` after every call; what it returns replaces the result.

        >>> import wengert as wg
        >>> m = wg.nn.Linear(3, 2)
        >>> handle = m.register_forward_hook(lambda module, args, result: result.shape)
        >>> m(wg.ones((1, 3)))
        (1, 2)
        """
        return self._add_hook("_hooks_after", hook)

    def register_full_backward_hook(self, hook: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], Any]) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the module's arguments are known; its return
        value, a tuple or a tensor, replaces them. They are None for arguments without a gradient.

        >>> import wengert as wg
        >>> m = wg.nn.Linear(3, 2)
        >>> handle = m.register_full_backward_hook(lambda module, inputs, outputs: print(outputs[0].tolist()))
        >>> _ = m(wg.ones((1, 3), requires_grad=True)).sum().backward()
        [[1.0, 1.0]]
        """
        return self._add_hook("_hooks_of_gradients", hook)

    def _add_hook(self, name: str, hook: Callable[..., Any]) -> HookHandle:
        self._hooked = True
        hooks: list[Callable[..., Any]] = vars(self).setdefault(name, [])
        hooks.append(hook)
        return HookHandle(hooks, hook)

    # ---------------------------------------------------------------------------------------- what it holds

    def _held(self) -> Iterable[tuple[Any, Any]]:
        return vars(self).items()

    def _entries(self) -> list[_Entry]:
        return _collect(self, "", set(), [])

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter) pairs, in the order of assignment; a shared parameter comes once."""
        seen: set[int] = set()
        for e in self._entries():
            if isinstance(e.value, Parameter) and id(e.value) not in seen:
                seen.add(id(e.value))
                yield e.name, e.value

    def parameters(self) -> list[Parameter]:
        """All parameters as a list, including those of submodules; each appears once.

        >>> import wengert as wg
        >>> [p.shape for p in Module.parameters(wg.nn.Linear(3, 2))]
        [(2, 3), (2,)]
        """
        return [p for _, p in self.named_parameters()]

    def buffers(self) -> list[Tensor]:
        """All buffers, of submodules too."""
        return [b for _, b in self.named_buffers()]

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) pairs of what `register_buffer` was given."""
        for e in self._entries():
            if isinstance(e.owner, Module) and e.key in e.owner._buffers and e.value is not None:
                yield e.name, e.value

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """(name, module) pairs: this one, under the name "", and all inside it."""
        yield "", self
        for e in self._entries():
            if isinstance(e.value, Module):
                yield e.name, e.value

    def modules(self) -> list[Module]:
        """This module and all inside it."""
        return [m for _, m in self.named_modules()]

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) pairs of the modules that are held directly, also in lists and dicts.

        >>> import wengert as wg
        >>> [name for name, _ in wg.nn.Sequential(wg.nn.Linear(2, 2), wg.nn.ReLU()).named_children()]
        ['0', '1']
        """
        inside = [e for e in self._entries() if isinstance(e.value, Module)]
        nested: tuple[str, ...] = ()
        for e in inside:  # a module comes before its contents
            if not e.name.startswith(nested):
                nested = (f"{e.name}.",)
                yield e.name, e.value

    def children(self) -> list[Module]:
        """The modules that are held directly."""
        return [m for _, m in self.named_children()]

    def get_submodule(self, name: str) -> Module:
        """The module of this dotted name; "" is this one.

        >>> import wengert as wg
        >>> wg.nn.Sequential(wg.nn.ReLU()).get_submodule("0")
        ReLU()
        """
        known = dict(self.named_modules())
        if name not in known:
            raise ArgumentError(
                f"{type(self).__name__} has no module {name!r}; it has {', '.join(known)[2:] or 'none'}"
            )
        return known[name]

    def get_parameter(self, name: str) -> Parameter:
        """The parameter of this dotted name.

        >>> import wengert as wg
        >>> wg.nn.Sequential(wg.nn.Linear(3, 2)).get_parameter("0.bias").shape
        (2,)
        """
        known = {e.name: e.value for e in self._entries() if isinstance(e.value, Parameter)}
        if name not in known:
            raise ArgumentError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known) or 'none'}")
        return known[name]

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """The same as `self.<name> = parameter`, for those who look for it.

        >>> import wengert as wg
        >>> m = Module()
        >>> m.register_parameter("scale", wg.Parameter.ones((2,)))
        >>> m.scale.tolist()
        [1.0, 1.0]
        """
        if not name.isidentifier() or hasattr(type(self), name):
            raise ArgumentError(
                f"register_parameter: {name!r} cannot be the name of a parameter of {type(self).__name__}"
            )
        if parameter is not None and not isinstance(parameter, Parameter):
            raise ArgumentError(
                f"register_parameter: {name!r} must be a Parameter or None, got {type(parameter).__name__}; "
                "Parameter(tensor) makes one"
            )
        setattr(self, name, parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, *, persistent: bool = True) -> None:
        """A tensor that belongs to the module but is not trained, such as a running mean; it is `self.<name>`.

        With `persistent=False` it is cast and exchanged like the others, but is not part of `state_dict`.

        >>> import wengert as wg
        >>> m = Module()
        >>> m.register_buffer("count", wg.zeros(()))
        >>> list(m.state_dict())
        ['count']
        """
        if not name.isidentifier() or hasattr(type(self), name):
            raise ArgumentError(f"register_buffer: {name!r} cannot be the name of a buffer of {type(self).__name__}")
        self._buffers = self._buffers | {name}
        self._transient = self._transient - {name} if persistent else self._transient | {name}
        setattr(self, name, tensor)

    # ------------------------------------------------------------------------------------------- what to do

    def apply(self, f: Callable[[Module], Any]) -> Self:
        """Call `f` on every module inside, then on this one; returns this one."""
        for m in reversed(self.modules()):
            f(m)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters: `.grad` is None again, or zeros where one was with `set_to_none=False`."""
        for p in self.parameters():
            p.zero_grad(set_to_none)

    @property
    def training(self) -> bool:
        """Whether this is training, where dropout and batch statistics are on. Compiled functions follow it."""
        trace = call_trace()
        if trace is not None:
            trace.read(self, "_training")
        return self._training

    @training.setter
    def training(self, mode: bool) -> None:
        self._training = mode
        _core.settings_changed()

    def train(self, mode: bool = True) -> Self:
        """Set `training` here and in all modules inside; returns this one."""
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Self:
        """`train(False)`: dropout and batch statistics off."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze all parameters, or train them again."""
        for p in self.parameters():
            p.requires_grad = requires_grad
        return self

    def to(self, *where: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False) -> Self:
        """Cast floating-point parameters and buffers, or move all to a device: `net.to(wg.float64)`,
        `net.to("cuda")`.

        Works in place, and returns the module. Make optimizers afterwards: their state has the dtype and the device
        that the parameters had when they were passed. `non_blocking` is that of `Tensor.to`.

        >>> import wengert as wg
        >>> wg.nn.Linear(3, 2).to("float64").weight.dtype
        wengert.float64
        """
        for w in where:
            if is_device(w):
                device = w
            else:
                dtype = w.dtype if isinstance(w, Tensor) else w
        kind = None if dtype is None else as_dtype(dtype)
        if kind is not None and not kind.is_floating:
            raise ArgumentError(f"{type(self).__name__}.to: parameters must have a floating dtype, got {kind.name}")
        for e in self._entries():
            if not isinstance(e.value, Tensor):
                continue
            cast = e.value.detach()
            if kind is not None and cast.dtype.is_floating and cast.dtype != kind:
                cast = cast.astype(kind)
            if device is not None:
                cast = move(cast, device, non_blocking)
            if cast.dtype == e.value.dtype and cast.device == e.value.device:
                continue
            if isinstance(e.value, Parameter):  # stays the same object: optimizers hold it
                trained = e.value.requires_grad
                e.value._adopt(cast)
                e.value.requires_grad = trained
            else:
                e.owner._exchange(e.key, cast)
        return self

    def double(self) -> Self:
        """`to("float64")`."""
        return self.to("float64")

    def float(self) -> Self:
        """`to("float32")`."""
        return self.to("float32")

    def half(self) -> Self:
        """`to("float16")`."""
        return self.to("float16")

    def bfloat16(self) -> Self:
        """`to("bfloat16")`."""
        return self.to("bfloat16")

    def cpu(self) -> Self:
        """`to("cpu")`."""
        return self.to("cpu")

    # ------------------------------------------------------------------------------------------------ state

    def _state(self) -> dict[str, Tensor]:
        return {
            e.name: e.value
            for e in self._entries()
            if isinstance(e.value, Tensor) and not (isinstance(e.owner, Module) and e.key in e.owner._transient)
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all parameters and buffers by name; further training does not change them.

        >>> import wengert as wg
        >>> {name: t.shape for name, t in wg.nn.Linear(3, 2).state_dict().items()}
        {'weight': (2, 3), 'bias': (2,)}
        """
        return {name: conversion.tensor(t, requires_grad=False) for name, t in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Copy values into the parameters and buffers, by name.

        If something does not fit, the error names all of it at once, and nothing is loaded. `strict=False` loads what
        is there, and ignores names that are missing or unknown; shapes must still fit.

        >>> import wengert as wg
        >>> a, b = wg.nn.Linear(3, 2), wg.nn.Linear(3, 2)
        >>> a.load_state_dict(b.state_dict())
        >>> bool((a.weight == b.weight).all())
        True
        """
        load_into(self._state(), state, strict, f"this {type(self).__name__}")

    # ---------------------------------------------------------------------------------------------- display

    def extra_repr(self) -> str:
        """The text in parentheses after the name; subclasses may override it."""
        return ""

    def __repr__(self) -> str:
        inside = [f"{name}: {m!r}".replace("\n", "\n  ") for name, m in self.named_children()]
        head = f"{type(self).__name__}({self.extra_repr()}"
        if not inside:
            return f"{head}){self._count()}"
        return f"{head}{self._count()}\n  " + "\n  ".join(inside) + "\n)"

    def _repr_html_(self) -> str:
        rows = [
            (name, p.dtype.name, tuple(p.shape), f"{p.size:,}", "" if p.requires_grad else "frozen")
            for name, p in self.named_parameters()
        ]
        listed = table(["parameter", "dtype", "shape", "elements", ""], rows) if rows else ""
        return f"<pre>{escaped(repr(self))}</pre>{listed}"

    def __dir__(self) -> list[str]:
        return readable(self)

    def _count(self) -> str:
        own = self.parameters()
        size, trained = sum(p.size for p in own), sum(p.size for p in own if p.requires_grad)
        if not size:
            return ""
        return f"  # {size:,} parameters" + (f", {trained:,} of them trained" if trained < size else "")

    def _exchange(self, key: Any, value: Any) -> None:
        """Hold another value under a key that `_held` gave."""
        setattr(self, key, value)


for _name, _ours in FOREIGN_OF_NETWORKS.items():
    setattr(Module, _name, ForeignMethod(_name, _ours))

_CONTAINERS = (Module, ParameterDict, list, tuple, dict)


def load_into(own: Mapping[str, Tensor], state: Mapping[str, Any], strict: bool, what: str) -> None:
    """Copy tensors into others of the same names, in place; or name all that does not fit, and copy nothing."""
    given = {name: conversion.asarray(t) for name, t in state.items()}
    problems = []
    if strict:
        problems += [f"missing: {name}" for name in own if name not in given]
        problems += [f"unexpected: {name}" for name in given if name not in own]
    common = [name for name in own if name in given]
    problems += [
        f"mismatched: {name} has shape {own[name].shape}, the state {given[name].shape}"
        for name in common
        if own[name].shape != given[name].shape
    ]
    if problems:
        raise ArgumentError(f"load_state_dict: the state does not fit {what}:\n  " + "\n  ".join(problems))
    with no_grad():
        for name in common:
            target = own[name]
            target._assign(given[name].detach().astype(target.dtype), "load_state_dict")


def exchange_modules(root: Any, table: Mapping[int, Module]) -> Any:
    """Put other modules, by the id of the old ones, wherever those stand; returns the root, or what takes its place."""
    if id(root) in table:
        return table[id(root)]
    seen: set[int] = set()
    places: list[tuple[Any, Any, Module]] = []
    todo = [root]
    while todo:
        owner = todo.pop()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        for key, value in list(_items(owner)):
            if id(value) in table:
                places.append((owner, key, table[id(value)]))
            elif isinstance(value, _CONTAINERS) and key not in _HOOK_LISTS:
                todo.append(value)
    if any(isinstance(owner, tuple) for owner, _, _ in places):
        raise ArgumentError("a module that is held by a tuple cannot be exchanged; hold it in a list")
    for owner, key, new in places:
        if isinstance(owner, Module):
            owner._exchange(key, new)
        else:
            owner[key] = new
    return root


def functional_call(module: Module, parameters: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Call a module with other parameters: module(*args, **kwargs) as a function of `parameters`, for `grad`, `vmap`
    and `hvp`.

    `parameters` maps names, as in `state_dict`, to tensors; parameters and buffers that it does not name keep their
    values. The module itself is not changed, except for buffers that it writes in place. What it assigns to its
    attributes during the call is discarded.

    >>> import wengert as wg
    >>> net = wg.nn.Linear(3, 2)
    >>> params = dict(net.named_parameters())
    >>> loss = lambda params: functional_call(net, params, wg.ones((1, 3))).sum()
    >>> wg.grad(loss)(params)["bias"].tolist()
    [1.0, 1.0]
    """
    names = {e.name: e.value for e in module._entries() if isinstance(e.value, Tensor)}
    unknown = [name for name in parameters if name not in names]
    if unknown:
        raise ArgumentError(
            f"functional_call: {type(module).__name__} has no {', '.join(unknown)}; it has {', '.join(names) or 'no state'}"
        )
    exchanged = {id(names[name]): value for name, value in parameters.items()}
    return _copy_with(module, exchanged, {})(*args, **kwargs)


def _copy_with(x: Any, exchanged: Mapping[int, Any], copies: dict[int, Any]) -> Any:
    """Modules and containers anew, with tensors exchanged by id, and everything else as it is."""
    if id(x) in exchanged:
        return exchanged[id(x)]
    if not isinstance(x, _CONTAINERS):
        return x
    if id(x) in copies:
        return copies[id(x)]
    if isinstance(x, tuple):
        parts = [_copy_with(v, exchanged, copies) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    new: Any = object.__new__(type(x)) if isinstance(x, (Module, ParameterDict)) else copy.copy(x)
    copies[id(x)] = new
    if isinstance(x, (list, dict)):
        for k, v in enumerate(x) if isinstance(x, list) else x.items():
            new[k] = _copy_with(v, exchanged, copies)
    else:
        held = vars(new)
        for k, v in vars(x).items():
            known = id(v) in exchanged or (isinstance(v, _CONTAINERS) and k not in _HOOK_LISTS)
            held[k] = _copy_with(v, exchanged, copies) if known else v
    return new
