"""Modules that hold modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter


class _Listed(Module):
    """The common base of lists of modules, which are named by position."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._layers: list[Module] = []
        for m in modules:
            self.append(m)

    def _held(self) -> Iterator[tuple[Any, Any]]:
        yield from enumerate(self._layers)
        yield from ((k, v) for k, v in vars(self).items() if k != "_layers")

    def _exchange(self, key: Any, value: Any) -> None:
        if isinstance(key, int):
            self._layers[key] = value
        else:
            super()._exchange(key, value)

    def _of(self, modules: Sequence[Module]) -> Any:
        """A container of the same kind, which a slice of this one becomes; each kind says how it is built."""
        raise NotImplementedError(f"{type(self).__name__} does not define _of")

    def append(self, module: Module) -> Self:
        """Add a module at the end; returns this one."""
        if not callable(module):
            raise ArgumentError(
                f"{type(self).__name__}: layer {len(self)} is of type {type(module).__name__}, which cannot be called; "
                "of a list, pass the layers themselves: *layers"
            )
        self._layers.append(module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end; returns this one."""
        for m in modules:
            self.append(m)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Add a module before the one at `index`."""
        self._layers.insert(index, module)

    def __getitem__(self, index: Any) -> Any:
        return self._of(self._layers[index]) if isinstance(index, slice) else self._layers[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self._layers[index] = module

    def __delitem__(self, index: Any) -> None:
        del self._layers[index]

    def __iter__(self) -> Iterator[Module]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)


class Sequential(_Listed):
    """Apply modules one after the other. Slices are modules, too; a dict of modules gives them names.

    >>> import wengert as wg
    >>> net = Sequential(wg.nn.Linear(4, 8), wg.nn.ReLU(), wg.nn.Linear(8, 2))
    >>> net(wg.ones((3, 4))).shape, net[:2](wg.ones((3, 4))).shape
    ((3, 2), (3, 8))
    >>> net
    Sequential(  # 58 parameters
      0: Linear(4, 8)  # 40 parameters
      1: ReLU()
      2: Linear(8, 2)  # 18 parameters
    )
    >>> net = Sequential({"hidden": wg.nn.Linear(4, 8), "out": wg.nn.Linear(8, 2)})
    >>> list(net.state_dict()), net.hidden is net[0] is net["hidden"]
    (['hidden.weight', 'hidden.bias', 'out.weight', 'out.bias'], True)
    """

    def __init__(self, *layers: Any) -> None:
        named = layers[0] if len(layers) == 1 and isinstance(layers[0], Mapping) else None
        self._names: list[str] | None = None
        super().__init__(layers if named is None else named.values())
        if named is not None:
            taken = [name for name in named if not name.isidentifier() or hasattr(type(self), name)]
            if taken:
                raise ArgumentError(f"Sequential: {taken[0]!r} cannot be the name of a layer")
            self._names = list(named)

    def _held(self) -> Iterator[tuple[Any, Any]]:
        yield from zip(self._keys(), self._layers)
        yield from ((k, v) for k, v in vars(self).items() if k not in ("_layers", "_names"))

    def _keys(self) -> Iterable[Any]:
        """Names, and numbers of those that have none."""
        names = self._names or []
        return [*names, *range(len(names), len(self._layers))]

    def _exchange(self, key: Any, value: Any) -> None:
        if isinstance(key, str) and self._names and key in self._names:
            key = self._names.index(key)
        super()._exchange(key, value)

    def _of(self, modules: Sequence[Module]) -> Sequential:
        return Sequential(*modules)

    def __getattr__(self, name: str) -> Any:
        names = vars(self).get("_names") or []
        if name in names:
            return self._layers[names.index(name)]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return getattr(self, index)
        if isinstance(index, slice) and self._names:
            return Sequential(dict(zip(self._names[index], self._layers[index])))
        return super().__getitem__(index)

    def __delitem__(self, index: Any) -> None:
        super().__delitem__(index)
        if self._names:
            del self._names[index]

    def insert(self, index: int, module: Module) -> None:
        """Add a module before the one at `index`."""
        if self._names:
            raise ArgumentError("Sequential: layers with names cannot be inserted by number; make a new one of a dict")
        super().insert(index, module)

    def forward(self, x: Any) -> Any:
        """The last layer's output."""
        for layer in self._layers:
            x = layer(x)
        return x


class ModuleList(_Listed):
    """A list of modules, as in PyTorch; a plain list in an attribute works as well.

    >>> import wengert as wg
    >>> len(ModuleList([wg.nn.Linear(2, 2), wg.nn.Linear(2, 2)]).parameters())
    4
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__(modules)

    def _of(self, modules: Sequence[Module]) -> ModuleList:
        return ModuleList(modules)


class ParameterList(Module):
    """A list of parameters, as in PyTorch; a plain list in an attribute works as well. Tensors become parameters.

    >>> import wengert as wg
    >>> weights = ParameterList([wg.ones((2,)), wg.zeros((3,))])
    >>> [name for name, p in weights.named_parameters()], len(weights)
    (['0', '1'], 2)
    """

    def __init__(self, parameters: Iterable[Tensor] = ()) -> None:
        self._listed: list[Parameter] = []
        self.extend(parameters)

    def _held(self) -> Iterator[tuple[Any, Any]]:
        yield from enumerate(self._listed)
        yield from ((k, v) for k, v in vars(self).items() if k != "_listed")

    def _exchange(self, key: Any, value: Any) -> None:
        if isinstance(key, int):
            self._listed[key] = value
        else:
            super()._exchange(key, value)

    def append(self, parameter: Tensor) -> Self:
        """Add a parameter at the end; returns this list."""
        if not isinstance(parameter, Tensor):
            raise ArgumentError(f"ParameterList: takes parameters and tensors, got {type(parameter).__name__}")
        self._listed.append(parameter if isinstance(parameter, Parameter) else Parameter(parameter))
        return self

    def extend(self, parameters: Iterable[Tensor]) -> Self:
        """Add parameters at the end; returns this list."""
        for p in parameters:
            self.append(p)
        return self

    def __getitem__(self, index: Any) -> Any:
        return ParameterList(self._listed[index]) if isinstance(index, slice) else self._listed[index]

    def __setitem__(self, index: int, parameter: Tensor) -> None:
        self._listed[index] = parameter if isinstance(parameter, Parameter) else Parameter(parameter)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


class ModuleDict(Module):
    """Modules by name, as in PyTorch; a plain dict in an attribute works as well.

    >>> import wengert as wg
    >>> heads = ModuleDict({"a": wg.nn.Linear(2, 2)})
    >>> heads["b"] = wg.nn.Linear(2, 3)
    >>> [name for name, _ in heads.named_parameters()]
    ['a.weight', 'a.bias', 'b.weight', 'b.bias']
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self._layers: dict[str, Module] = dict(modules or {})

    def _held(self) -> Iterator[tuple[Any, Any]]:
        yield from self._layers.items()
        yield from ((k, v) for k, v in vars(self).items() if k != "_layers")

    def _exchange(self, key: Any, value: Any) -> None:
        if key in self._layers:
            self._layers[key] = value
        else:
            super()._exchange(key, value)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._layers.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._layers.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """(name, module) pairs."""
        return self._layers.items()

    def __getitem__(self, name: str) -> Module:
        return self._layers[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self._layers[name] = module

    def __delitem__(self, name: str) -> None:
        del self._layers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._layers

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)
