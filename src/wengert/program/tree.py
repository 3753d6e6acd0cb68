"""Nested containers of tensors: flattened to lists of leaves and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert import _core

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


def tree_map(f: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """f applied to every leaf (and to the leaves of other trees at the same place)."""
    leaves, structure = flatten(tree)
    rest = [flatten(t)[0] for t in others]
    return unflatten(structure, [f(*xs) for xs in zip(leaves, *rest)])


def is_tensor(x: Any) -> bool:
    """Whether a leaf is a tensor."""
    return isinstance(x, _core.Tensor)
