"""Trees: nested containers whose leaves are everything that is not a container.

Containers are dicts, lists, tuples, named tuples, dataclasses, `None` (which has no leaves), and the classes that were
registered. Modules are leaves. Wherever wengert takes containers (`grad`, `jvp`, `vjp`, `hvp`, `compile`, optimizers in
their pure form, …) it takes all of these.

>>> import wengert as wg
>>> params = {"w": wg.ones((2,)), "b": [wg.zeros(()), None]}
>>> wg.tree.structure(params)
{'w': *, 'b': [*, None]}
>>> wg.tree.map(lambda x: x.ndim, params)
{'w': 1, 'b': [0, None]}
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from wengert.errors import ArgumentError
from wengert.foreign_names import MissingName

__all__ = ["Structure", "flatten", "leaves", "map", "register", "structure", "unflatten"]

IsLeaf = Callable[[Any], bool] | None
_LONGEST = 2000  # characters of a structure in a message


class _Kind(NamedTuple):
    """How containers of one class are flattened and rebuilt. `labels` gives the accessor of each child."""

    parts: Callable[[Any], tuple[Iterable[Any], Any]]  # container → (children, metadata)
    build: Callable[[type, Any, list[Any]], Any]  # class, metadata, children → container
    show: Callable[[type, Any, list[str]], str]  # class, metadata, texts of the children → text
    labels: Callable[[Any, int], list[str]]  # metadata, number of children → "[0]", ".x", …


class Structure:
    """The containers of a tree without its leaves. Trees of the same form have equal structures with equal hashes.

    The keys of a dict stand in their order, which is the order of the leaves.

    >>> s = structure((1, {"a": 2}))
    >>> s, s.num_leaves, s == structure((5, {"a": 6})), s == structure([5, {"a": 6}])
    ((*, {'a': *}), 2, True, False)
    """

    __slots__ = ("_node",)

    def __init__(self, node: Any) -> None:
        self._node = node  # None for a leaf; otherwise (class, metadata, nodes of the children)

    @property
    def is_leaf(self) -> bool:
        """Whether the tree is a single leaf without a container."""
        return self._node is None

    @property
    def num_leaves(self) -> int:
        """How many leaves the tree has."""
        return sum(node is None for node in _nodes(self._node))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and bool(self._node == other._node)

    def __hash__(self) -> int:
        return hash(self._node)

    def __repr__(self) -> str:
        return _text(self._node)


def flatten(tree: Any, *, is_leaf: IsLeaf = None) -> tuple[list[Any], Structure]:
    """The leaves, and the structure around them. What `is_leaf` says is a leaf is not looked into.

    >>> flatten({"a": 1, "b": (2, 3)})
    ([1, 2, 3], {'a': *, 'b': (*, *)})
    """
    found: list[Any] = []
    try:
        return found, Structure(_describe(tree, found, is_leaf))
    except RecursionError:
        raise ArgumentError("tree: the containers are nested too deeply, or one of them contains itself") from None


def leaves(tree: Any, *, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves, in the order of the containers.

    >>> leaves([1, {"a": 2}, None])
    [1, 2]
    """
    return flatten(tree, is_leaf=is_leaf)[0]


def structure(tree: Any, *, is_leaf: IsLeaf = None) -> Structure:
    """The containers, without the leaves.

    >>> structure([1, {"a": 2}, None])
    [*, {'a': *}, None]
    """
    return flatten(tree, is_leaf=is_leaf)[1]


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves.

    >>> unflatten(structure({"a": 1, "b": (2, 3)}), [10, 20, 30])
    {'a': 10, 'b': (20, 30)}
    """
    given = list(leaves)
    node = structure._node
    if node is not None and node[0] is tuple and len(node[2]) == len(given) and not any(node[2]):
        return tuple(given)  # what most compiled functions return: each of their calls comes here
    rest = iter(given)
    try:
        built = _build(structure._node, rest)
    except StopIteration:
        built = rest  # too few leaves: discard the partial result
    if built is rest or next(rest, rest) is not rest:
        raise ArgumentError(
            f"tree.unflatten: the structure {_shortened(structure)} has {structure.num_leaves} leaves, got {len(given)}"
        )
    return built


def map(f: Callable[..., Any], tree: Any, *others: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree with f(leaf, *leaves of the others) for leaves. All must have the same containers; dicts match by key.

    >>> map(lambda p, g: p - 0.5 * g, {"w": 1.0, "b": 2.0}, {"b": 2.0, "w": 4.0})
    {'w': -1.0, 'b': 1.0}
    """
    first, form = flatten(tree, is_leaf=is_leaf)
    columns = [leaves_like(x, form, f"tree.map: tree {k}", is_leaf) for k, x in enumerate(others, 2)]
    return unflatten(form, [f(*row) for row in zip(first, *columns)])


def register(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, list[Any]], Any],
) -> None:
    """Make containers of a class: `flatten(x)` gives the children and what else x is made of, which must be hashable;
    `unflatten(else, children)` makes an x of them. Subclasses are registered on their own.

    Dataclasses need no registering: all their fields are children, but for those made with
    `dataclasses.field(metadata={"static": True})`, which belong to the structure.

    >>> class Interval:
    ...     def __init__(self, low, high):
    ...         self.low, self.high = low, high
    >>> register(Interval, lambda x: ((x.low, x.high), None), lambda _, ends: Interval(*ends))
    >>> map(lambda x: 2 * x, Interval(1, 3)).high
    6
    """
    if not isinstance(cls, type):
        raise ArgumentError(f"tree.register: takes a class, got {type(cls).__name__}")
    if cls in _REGISTERED or cls in (dict, list, tuple, type(None)):
        raise ArgumentError(f"tree.register: {cls.__name__} is a container already")
    _REGISTERED[cls] = _Kind(flatten, lambda _, extra, children: unflatten(extra, children), _show_registered, _numbers)
    _kind.cache_clear()


def leaves_like(tree: Any, structure: Structure, what: str, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree in the order of another one's structure: dicts are matched by key, whatever their order, and
    lists, tuples and named tuples by position."""
    found: list[Any] = []
    try:
        _match(tree, structure._node, found, is_leaf, "")
    except _Mismatch as e:
        given = _shortened(flatten(tree, is_leaf=is_leaf)[1])
        raise ArgumentError(
            f"{what} has another structure: {e}\n  expected {_shortened(structure)}\n  got      {given}"
        ) from None
    return found


def is_container(x: Any) -> bool:
    """Whether x is a container.

    >>> is_container([]), is_container(None), is_container("text")
    (True, True, False)
    """
    cls: Any = type(x)
    return _kind(cls) is not None


def labelled(x: Any) -> list[tuple[str, Any]]:
    """The children of a container, each with its accessor.

    >>> labelled({"a": 1, "b": (2, 3)})
    [("['a']", 1), ("['b']", (2, 3))]
    """
    cls: Any = type(x)
    kind = _kind(cls)
    if kind is None:
        raise ArgumentError(f"tree: {_a(cls)} is not a container")
    parts, extra = kind.parts(x)
    children = list(parts)
    return list(zip(kind.labels(extra, len(children)), children))


# -------------------------------------------------------------------------------------------------- nodes


def _describe(tree: Any, found: list[Any], is_leaf: IsLeaf) -> Any:
    cls: Any = type(tree)
    kind = _kind(cls)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        found.append(tree)
        return None
    children, extra = kind.parts(tree)
    return cls, extra, tuple([_describe(child, found, is_leaf) for child in children])


def _build(node: Any, rest: Iterator[Any]) -> Any:
    if node is None:
        return next(rest)
    cls, extra, children = node
    kind = _kind(cls)
    assert kind is not None  # x was a container when the node was made
    return kind.build(cls, extra, [_build(child, rest) for child in children])


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in () if node is None else node[2]:
        yield from _nodes(child)


def _text(node: Any) -> str:
    if node is None:
        return "*"
    cls, extra, children = node
    kind = _kind(cls)
    assert kind is not None
    return kind.show(cls, extra, [_text(child) for child in children])


def _shortened(structure: Structure) -> str:
    text = repr(structure)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"


class _Mismatch(Exception):
    """A difference between two trees, and where it is."""


def _differ(place: str, text: str) -> NoReturn:
    raise _Mismatch(f"{text}, at {place}" if place else text)


def _match(tree: Any, node: Any, found: list[Any], is_leaf: IsLeaf, place: str) -> None:
    cls: Any = type(tree)
    kind = _kind(cls)
    container = kind is not None and not (is_leaf is not None and is_leaf(tree))
    if node is None:
        if container:
            _differ(place, f"{_a(cls)} in place of one value")
        found.append(tree)
        return
    expected, extra, nodes = node
    if expected in _REGISTERED:
        children = _parts_like(tree, kind if container else None, expected, extra, place)
    elif issubclass(expected, dict):
        children = _values_like(tree, extra, place)
    elif issubclass(expected, (list, tuple)):
        children = _entries_like(tree, expected, len(nodes), place)
    else:
        children = _parts_like(tree, kind if container else None, expected, extra, place)
    known = _kind(expected)
    assert known is not None
    for child, inner, label in zip(children, nodes, known.labels(extra, len(nodes))):
        _match(child, inner, found, is_leaf, place + label)


def _values_like(tree: Any, extra: Any, place: str) -> list[Any]:
    keys = _keys(extra)
    if not isinstance(tree, dict) or tree.keys() != set(keys):
        given = f"keys {list(tree)}" if isinstance(tree, dict) else _a(type(tree))
        _differ(place, f"{given} in place of a dict with keys {keys}")
    return [tree[k] for k in keys]


def _entries_like(tree: Any, expected: type, n: int, place: str) -> Sequence[Any]:
    if not isinstance(tree, (list, tuple)) or len(tree) != n:
        given = f"{len(tree)} entries" if isinstance(tree, (list, tuple)) else _a(type(tree))
        _differ(place, f"{given} in place of {_a(expected)} of {n}")
    return tree


def _parts_like(tree: Any, kind: _Kind | None, expected: type, extra: Any, place: str) -> Iterable[Any]:
    if kind is None or type(tree) is not expected:
        _differ(place, f"{_a(type(tree))} in place of {_a(expected)}")
    children, given = kind.parts(tree)
    if given != extra:
        _differ(place, f"{_a(expected)} with {given!r} in place of {extra!r}")
    return children


def _a(cls: type) -> str:
    if cls is type(None):
        return "None"
    return f"{'an' if cls.__name__[0] in 'aeiouAEIOU' else 'a'} {cls.__name__}"


# -------------------------------------------------------------------------------------------------- containers


def _keys(extra: Any) -> list[Any]:
    """Keys of a dict, of what its structure keeps: the keys, and the factory of a defaultdict."""
    return list(extra[0])


def _show_dict(cls: type, extra: Any, texts: list[str]) -> str:
    inner = "{" + ", ".join(f"{k!r}: {text}" for k, text in zip(_keys(extra), texts)) + "}"
    return inner if cls is dict else f"{cls.__name__}({inner})"


def _show_sequence(cls: type, _: Any, texts: list[str]) -> str:
    inner = ", ".join(texts)
    if cls is list:
        return f"[{inner}]"
    inner = f"({inner},)" if len(texts) == 1 else f"({inner})"
    return inner if cls is tuple else f"{cls.__name__}{inner}"


def _show_fields(cls: type, names: Sequence[str], texts: list[str]) -> str:
    return f"{cls.__name__}({', '.join(f'{name}={text}' for name, text in zip(names, texts))})"


def _show_registered(cls: type, extra: Any, texts: list[str]) -> str:
    shown = texts if extra is None else [repr(extra), *texts]
    return f"{cls.__name__}({', '.join(shown)})"


def _numbers(_: Any, n: int) -> list[str]:
    return [f"[{k}]" for k in range(n)]


def _key_labels(extra: Any, _: int) -> list[str]:
    return [f"[{k!r}]" for k in _keys(extra)]


_DICT = _Kind(
    parts=lambda x: (x.values(), (tuple(x),)),
    build=lambda cls, extra, values: dict(zip(extra[0], values)) if cls is dict else cls(dict(zip(extra[0], values))),
    show=_show_dict,
    labels=_key_labels,
)
_DEFAULTDICT = _Kind(
    parts=lambda x: (x.values(), (tuple(x), x.default_factory)),
    build=lambda cls, extra, values: cls(extra[1], zip(extra[0], values)),
    show=_show_dict,
    labels=_key_labels,
)
_SEQUENCE = _Kind(
    parts=lambda x: (x, None),
    build=lambda cls, _, values: values if cls is list else cls(values),
    show=_show_sequence,
    labels=_numbers,
)
_NOTHING = _Kind(parts=lambda _: ((), None), build=lambda *_: None, show=lambda *_: "None", labels=lambda _, n: [])
_REGISTERED: dict[type, _Kind] = {}


def _named_tuple(fields: tuple[str, ...]) -> _Kind:
    return _Kind(
        parts=lambda x: (x, None),
        build=lambda cls, _, values: cls._make(values),  # type: ignore[attr-defined]
        show=lambda cls, _, texts: _show_fields(cls, fields, texts),
        labels=lambda _, n: [f".{name}" for name in fields],
    )


def _dataclass(cls: type) -> _Kind:
    """Built without `__init__`: fields have the values that they are given, whatever it would compute or refuse."""
    fields = dataclasses.fields(cls)
    names = [f.name for f in fields if not f.metadata.get("static", False)]
    static = [f.name for f in fields if f.metadata.get("static", False)]

    def build(cls: type, extra: Any, values: list[Any]) -> Any:
        new: Any = object.__new__(cls)
        for name, value in zip((*names, *static), (*values, *extra)):
            object.__setattr__(new, name, value)
        return new

    return _Kind(
        parts=lambda x: ([getattr(x, name) for name in names], tuple([getattr(x, name) for name in static])),
        build=build,
        show=lambda cls, extra, texts: _show_fields(cls, [*names, *static], [*texts, *(repr(v) for v in extra)]),
        labels=lambda _, n: [f".{name}" for name in names],
    )


@functools.lru_cache(maxsize=4096)
def _kind(cls: Any) -> _Kind | None:
    """How containers of a class are taken apart; None of classes that are leaves."""
    if cls in _REGISTERED:
        return _REGISTERED[cls]
    if cls is type(None):
        return _NOTHING
    if issubclass(cls, dict):
        return _DEFAULTDICT if issubclass(cls, defaultdict) else _DICT
    if issubclass(cls, (list, tuple)):
        fields = getattr(cls, "_fields", None) if hasattr(cls, "_make") else None
        return _SEQUENCE if fields is None else _named_tuple(fields)
    is_plain = hasattr(cls, "__dataclass_fields__") and not hasattr(cls, "named_parameters")
    return _dataclass(cls) if is_plain else None


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
