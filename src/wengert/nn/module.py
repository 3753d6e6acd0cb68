"""Modules: functions with parameters, nested.

A module is an ordinary object. Its parameters, buffers and submodules are its attributes, also inside lists, tuples and
dicts; nothing is registered behind the scenes but the names of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from wengert._core import Tensor
from wengert.autograd import creation
from wengert.autograd.modes import no_grad
from wengert.dtypes import as_dtype
from wengert.errors import ArgumentError
from wengert.nn.parameter import Parameter, ParameterDict


class _Entry(NamedTuple):
    """Something that a module holds, and where."""

    name: str
    value: Any
    owner: Any  # a module, list, tuple or dict
    key: Any  # attribute, index or key


def _entries(owner: Any, prefix: str, seen: set[int]) -> Iterator[_Entry]:
    """Parameters, buffers and modules held by `owner`, each module once and before its contents."""
    seen.add(id(owner))
    buffers: frozenset[str] = frozenset()
    if isinstance(owner, Module):
        items, buffers = owner._held(), owner._buffers
    elif isinstance(owner, (dict, ParameterDict)):
        items = owner.items()
    else:
        items = enumerate(owner)
    for key, value in list(items):
        if isinstance(value, Parameter) or key in buffers:
            yield _Entry(f"{prefix}{key}", value, owner, key)
        elif isinstance(value, _CONTAINERS) and id(value) not in seen:
            if isinstance(value, Module):
                yield _Entry(f"{prefix}{key}", value, owner, key)
            yield from _entries(value, f"{prefix}{key}.", seen)


class Module:
    """Base class of layers and networks: assign parameters and modules to attributes, and write `forward`.

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

    training: bool = True
    _buffers: frozenset[str] = frozenset()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; subclasses write it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # ---------------------------------------------------------------------------------------- what it holds

    def _held(self) -> Iterable[tuple[Any, Any]]:
        return vars(self).items()

    def _entries(self) -> Iterator[_Entry]:
        return _entries(self, "", set())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter) pairs, in the order of assignment; a shared parameter comes once."""
        seen: set[int] = set()
        for e in self._entries():
            if isinstance(e.value, Parameter) and id(e.value) not in seen:
                seen.add(id(e.value))
                yield e.name, e.value

    def parameters(self) -> list[Parameter]:
        """All parameters, of submodules too.

        >>> [p.shape for p in Module.parameters(_example())]
        [(2, 3), (2,)]
        """
        return [p for _, p in self.named_parameters()]

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

    def register_buffer(self, name: str, tensor: Tensor | None) -> None:
        """A tensor that belongs to the state but is not trained, such as a running mean; it is `self.<name>`.

        >>> m = Module()
        >>> m.register_buffer("count", creation.zeros(()))
        >>> list(m.state_dict())
        ['count']
        """
        if not name.isidentifier() or hasattr(type(self), name):
            raise ArgumentError(f"register_buffer: {name!r} cannot be the name of a buffer of {type(self).__name__}")
        self._buffers = self._buffers | {name}
        setattr(self, name, tensor)

    # ------------------------------------------------------------------------------------------- what to do

    def apply(self, f: Callable[[Module], Any]) -> Self:
        """Call `f` on every module inside, then on this one; returns this one."""
        for m in reversed(self.modules()):
            f(m)
        return self

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for p in self.parameters():
            p.grad = None

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

    def to(self, target: Any) -> Self:
        """Cast all floating parameters and buffers to a dtype, in place: `net.to(wg.float64)`; or `net.to("cpu")`.

        >>> _example().to("float64").weight.dtype
        wengert.float64
        """
        if isinstance(target, str) and target.split(":")[0] in ("cpu", "cuda"):
            creation.check_device(target)
            return self
        dtype = as_dtype(target)
        for e in list(self._entries()):
            if not isinstance(e.value, Tensor) or not e.value.dtype.is_floating or e.value.dtype == dtype:
                continue
            cast = e.value.detach().astype(dtype)
            if isinstance(e.value, Parameter):  # stays the same object: optimizers hold it
                trained = e.value.requires_grad
                e.value._adopt(cast)
                e.value.requires_grad = trained
            else:
                _put(e, cast)
        return self

    # ------------------------------------------------------------------------------------------------ state

    def _state(self) -> dict[str, Tensor]:
        return {e.name: e.value for e in self._entries() if isinstance(e.value, Tensor)}

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all parameters and buffers by name; training on does not change them.

        >>> {name: t.shape for name, t in _example().state_dict().items()}
        {'weight': (2, 3), 'bias': (2,)}
        """
        return {name: creation.tensor(t, requires_grad=False) for name, t in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Copy a state into parameters and buffers. All that does not fit is named at once, and then nothing is loaded.

        With `strict=False` only what is there is loaded; shapes must still fit.

        >>> a, b = _example(), _example()
        >>> a.load_state_dict(b.state_dict())
        >>> bool((a.weight == b.weight).all())
        True
        """
        own = self._state()
        given = {name: creation.asarray(t) for name, t in state.items()}
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
            raise ArgumentError(
                f"load_state_dict: the state does not fit this {type(self).__name__}:\n  " + "\n  ".join(problems)
            )
        with no_grad():
            for name in common:
                target = own[name]
                target._assign(given[name].detach().astype(target.dtype), "load_state_dict")

    # ---------------------------------------------------------------------------------------------- display

    def extra_repr(self) -> str:
        """What stands in the parentheses after the name; subclasses may write it."""
        return ""

    def __repr__(self) -> str:
        size = sum(p.size for p in self.parameters())
        count = f"  # {size:,} parameters" if size else ""
        inside = [e for e in self._entries() if isinstance(e.value, Module)]
        children = [e for e in inside if not any(e.name.startswith(f"{o.name}.") for o in inside)]
        head = f"{type(self).__name__}({self.extra_repr()}"
        if not children:
            return f"{head}){count}"
        lines = (f"{e.name}: {e.value!r}".replace("\n", "\n  ") for e in children)
        return f"{head}{count}\n  " + "\n  ".join(lines) + "\n)"


_CONTAINERS = (Module, ParameterDict, list, tuple, dict)


def _put(e: _Entry, value: Any) -> None:
    if isinstance(e.owner, Module):
        setattr(e.owner, e.key, value)
    elif isinstance(e.owner, tuple):
        raise ArgumentError(f"{e.name} is held by a tuple, where it cannot be exchanged; hold it in a list")
    elif isinstance(e.owner, ParameterDict):
        e.owner._parameters[e.key] = value  # as it is, also if it is no parameter
    else:
        e.owner[e.key] = value


def functional_call(module: Module, parameters: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    """module(*args) with other parameters (and buffers): for `grad`, `vmap` and meta-learning.

    What `parameters` does not name stays as it is. The module holds the others while it runs, so a module that
    several threads share must not be called this way by two of them at once.

    >>> import wengert as wg
    >>> net = wg.nn.Linear(3, 2)
    >>> params = dict(net.named_parameters())
    >>> loss = lambda params: functional_call(net, params, wg.ones((1, 3))).sum()
    >>> wg.grad(loss)(params)["bias"].tolist()
    [1.0, 1.0]
    """
    places: dict[int, list[_Entry]] = {}
    names: dict[str, int] = {}
    for e in list(module._entries()):
        if isinstance(e.value, Tensor):
            places.setdefault(id(e.value), []).append(e)
            names[e.name] = id(e.value)
    unknown = [name for name in parameters if name not in names]
    if unknown:
        raise ArgumentError(
            f"functional_call: {type(module).__name__} has no {', '.join(unknown)}; it has {', '.join(names) or 'no state'}"
        )
    exchanged: list[_Entry] = []
    try:
        for name, value in parameters.items():
            for e in places[names[name]]:  # a shared parameter is exchanged wherever it stands
                _put(e, value)
                exchanged.append(e)
        return module(*args, **kwargs)
    finally:
        for e in exchanged:
            _put(e, e.value)


def _example() -> Any:
    from wengert.nn.layers import Linear

    return Linear(3, 2)
