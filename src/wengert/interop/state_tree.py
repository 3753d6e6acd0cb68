"""States as a flat dictionary of tensors and a description in JSON of everything around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.errors import ArgumentError, LoadError
from wengert.tensors.conversion import asarray
from wengert.tensors.random import Generator


def encode(state: Any) -> tuple[dict[str, Tensor], Any]:
    """The tensors by dotted name, and the structure; None if the state is just a dictionary of tensors.

    >>> import wengert as wg
    >>> encode({"a": {"b": wg.ones((1,))}, "n": 3})
    ({'a.b': tensor([1.])}, {'dict': [['a', {'dict': [['b', {'tensor': 'a.b'}]]}], ['n', 3]]})
    """
    tensors: dict[str, Tensor] = {}
    structure = _describe(state, "", tensors)
    flat = isinstance(state, Mapping) and list(tensors) == list(state)
    return tensors, None if flat else structure


def _describe(x: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if x is None or isinstance(x, (bool, str)) or type(x) in (int, float):
        return x
    if isinstance(x, np.generic):
        return _describe(x.item(), name, tensors)
    if isinstance(x, (Tensor, np.ndarray)):
        return {"tensor": _add(x, name or "tensor", tensors)}
    if isinstance(x, Mapping):
        for k in x:
            if type(k) not in (str, int):
                raise ArgumentError(f"save: {name or 'the state'} has a key {k!r}; keys must be strings or integers")
        return {"dict": [[k, _describe(v, _join(name, k), tensors)] for k, v in x.items()]}
    if type(x) in (list, tuple):
        return {type(x).__name__: [_describe(v, _join(name, k), tensors) for k, v in enumerate(x)]}
    if isinstance(x, Generator):
        return {"generator": list(x.get_state())}
    raise ArgumentError(
        f"save: {name or 'the state'} has type {type(x).__name__}; tensors, arrays, numbers, texts, None, generators, and "
        "dicts, lists and tuples of them can be saved. Modules and optimizers are saved by their state_dict()"
    )


def _join(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def _add(x: Any, name: str, tensors: dict[str, Tensor]) -> str:
    if name == "__metadata__":
        raise ArgumentError("save: a tensor cannot have the name __metadata__, which the format keeps for itself")
    if name in tensors:
        raise ArgumentError(f"save: two tensors have the name {name!r}; rename one")
    t = x if isinstance(x, Tensor) else asarray(x)
    if not t._plain:
        raise ArgumentError(f"save: {name!r} is of type {type(t).__name__}, which holds no data of its own")
    tensors[name] = t
    return name


def decode(structure: Any, tensors: Mapping[str, Tensor], path: str) -> Any:
    """The state that `encode` described; LoadError if the description makes no sense.

    >>> decode({"list": [1, {"tuple": []}]}, {}, "file")
    [1, ()]
    """
    try:
        return _build(structure, tensors)
    except RecursionError:
        raise LoadError(f"{path}: the structure is nested too deeply") from None
    except (KeyError, TypeError, ValueError) as e:
        raise LoadError(f"{path}: the structure does not fit the tensors: {type(e).__name__}: {str(e)[:200]}") from None


def _build(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    if node is None or isinstance(node, (bool, int, float, str)):
        return node
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError(f"{str(node)[:80]} is not part of a state")
    ((kind, content),) = node.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {k: _build(v, tensors) for k, v in content}
    if kind == "list":
        return [_build(v, tensors) for v in content]
    if kind == "tuple":
        return tuple(_build(v, tensors) for v in content)
    if kind == "generator":
        g = Generator(seed=0)
        g.set_state(tuple(content))
        return g
    raise ValueError(f"{str(node)[:80]} is not part of a state")
