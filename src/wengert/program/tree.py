"""Nested containers of tensors: flattened to lists of leaves and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert import _core
from wengert.errors import ArgumentError

Unflatten = Callable[[list[Any]], Any]


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Leaves, and a hashable description of the containers around them (tuples, lists, dicts, named tuples)."""
    leaves: list[Any] = []
    return leaves, _describe(tree, leaves)


def _describe(tree: Any, leaves: list[Any]) -> Any:
    if isinstance(tree, dict):
        return ("dict", type(tree), tuple((k, _describe(v, leaves)) for k, v in tree.items()))
    if isinstance(tree, (list, tuple)):
        return ("sequence", type(tree), tuple(_describe(v, leaves) for v in tree))
    leaves.append(tree)
    return "leaf"


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """The tree with these leaves."""
    return _build(structure, iter(leaves))


def _build(structure: Any, leaves: Any) -> Any:
    if structure == "leaf":
        return next(leaves)
    kind, cls, children = structure
    if kind == "dict":
        items = [(k, _build(c, leaves)) for k, c in children]
        return dict(items) if cls is dict else cls(items)
    values = [_build(c, leaves) for c in children]
    return cls(*values) if hasattr(cls, "_fields") else cls(values)


def leaves_like(tree: Any, structure: Any, what: str) -> list[Any]:
    """The leaves of a tree in the order of another one's structure: dicts are matched by key, whatever their order."""
    leaves: list[Any] = []
    _match(tree, structure, leaves, what)
    return leaves


def _match(tree: Any, structure: Any, leaves: list[Any], what: str) -> None:
    if structure == "leaf":
        if isinstance(tree, (dict, list, tuple)):
            raise ArgumentError(f"{what} has another structure: a {type(tree).__name__} in place of one value")
        leaves.append(tree)
        return
    kind, cls, children = structure
    if kind == "dict":
        keys = [k for k, _ in children]
        if not isinstance(tree, dict) or tree.keys() != set(keys):
            given = f"keys {list(tree)}" if isinstance(tree, dict) else f"a {type(tree).__name__}"
            raise ArgumentError(f"{what} has another structure: {given} in place of a dict with keys {keys}")
        for k, child in children:
            _match(tree[k], child, leaves, what)
        return
    if not isinstance(tree, (list, tuple)) or len(tree) != len(children):
        given = f"{len(tree)} entries" if isinstance(tree, (list, tuple)) else f"a {type(tree).__name__}"
        raise ArgumentError(f"{what} has another structure: {given} in place of a {cls.__name__} of {len(children)}")
    for value, child in zip(tree, children):
        _match(value, child, leaves, what)


def is_tensor(x: Any) -> bool:
    """Whether a leaf is a tensor."""
    return isinstance(x, _core.Tensor)
