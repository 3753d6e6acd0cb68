"""Trees: what is a container, what comes back, and what is said where two trees do not match."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import wengert as wg


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any = None
    activation: str = dataclasses.field(default="tanh", metadata={"static": True})


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """Computes one field from another, and refuses what is not a tensor: neither may happen while trees are built."""

    value: Any
    twice: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        assert isinstance(self.value, wg.Tensor)
        object.__setattr__(self, "twice", self.value * 2)


def t(*values: float) -> wg.Tensor:
    return wg.tensor(values, dtype=wg.float64)


def layer() -> Layer:
    return Layer(t(1.0, 2.0), Point(t(3.0), None))


TREES = [
    1,
    None,
    [],
    [1, (2, [3])],
    {"b": 1, "a": {"c": 2}},
    collections.OrderedDict(b=1, a=2),
    collections.Counter("aab"),
    Point(1, {"z": 2}),
    Layer(1, [2, None], "relu"),
    {1: (), 2: None},
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_come_back(tree: Any) -> None:
    leaves, structure = wg.tree.flatten(tree)
    back = wg.tree.unflatten(structure, leaves)
    assert back == tree and type(back) is type(tree)
    assert (wg.tree.leaves(tree), wg.tree.structure(tree)) == (leaves, structure)
    assert structure.num_leaves == len(leaves)
    assert hash(structure) == hash(wg.tree.structure(wg.tree.map(str, tree)))
    assert structure == wg.tree.structure(wg.tree.map(str, tree))


def test_a_defaultdict_keeps_its_factory() -> None:
    d = collections.defaultdict(list, a=[1])
    back = wg.tree.map(lambda x: x + 1, d)
    assert back == {"a": [2]} and back["new"] == []


def test_dataclasses_are_built_without_running_their_code() -> None:
    made = wg.tree.map(lambda x: "leaf", Checked(t(1.0)))
    assert (made.value, made.twice) == ("leaf", "leaf")


def test_structures_are_printed() -> None:
    tree = {"a": [1, (2,)], "p": Point(1, None), "l": Layer(1, 2)}
    text = "{'a': [*, (*,)], 'p': Point(x=*, y=None), 'l': Layer(weight=*, bias=*, activation='tanh')}"
    assert repr(wg.tree.structure(tree)) == text
    assert repr(wg.tree.structure(3)) == "*"
    assert repr(wg.tree.structure(collections.OrderedDict(a=1))) == "OrderedDict({'a': *})"


def test_static_fields_belong_to_the_structure() -> None:
    relu, tanh = Layer(1, 2, "relu"), Layer(1, 2, "tanh")
    assert wg.tree.leaves(relu) == [1, 2]
    assert wg.tree.structure(relu) != wg.tree.structure(tanh)
    with pytest.raises(wg.ArgumentError, match=r"a Layer with \('tanh',\) in place of \('relu',\), at \['net'\]"):
        wg.tree.map(lambda a, b: a, {"net": relu}, {"net": tanh})


def test_map_goes_over_several_trees() -> None:
    assert wg.tree.map(lambda a, b, c: a + b + c, [1, {"x": 2}], [10, {"x": 20}], (100, {"x": 200})) == [
        111,
        {"x": 222},
    ]
    moved = wg.tree.map(lambda p, g: p - g, layer(), layer())
    assert isinstance(moved, Layer) and moved.weight.tolist() == [0.0, 0.0] and moved.bias.y is None


def test_what_is_said_to_be_a_leaf_is_one() -> None:
    tree = [(1, 2), (3, 4)]
    pair = lambda x: isinstance(x, tuple)
    assert wg.tree.leaves(tree, is_leaf=pair) == tree
    assert repr(wg.tree.structure(tree, is_leaf=pair)) == "[*, *]"
    assert wg.tree.map(sum, tree, is_leaf=pair) == [3, 7]
    assert wg.tree.map(lambda a, b: a + b, tree, tree, is_leaf=pair) == [(1, 2, 1, 2), (3, 4, 3, 4)]
    assert wg.tree.leaves([1, None], is_leaf=lambda x: x is None) == [1, None]


@pytest.mark.parametrize(
    ("tree", "other", "difference"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, r"keys \['a'\] in place of a dict with keys \['a', 'b'\]"),
        ([1, {"w": 2}], [1, {"w": [2]}], r"a list in place of one value, at \[1\]\['w'\]"),
        ([1, 2], [1], "1 entries in place of a list of 2"),
        (Point(1, 2), {"x": 1}, "a dict in place of a Point of 2"),
        (Layer(1, (2, 3)), Layer(1, (2,)), r"1 entries in place of a tuple of 2, at \.bias"),
        (Layer(1, 2), Point(1, 2), "a Point in place of a Layer"),
        ([None], [1], r"an int in place of None, at \[0\]"),
        ([1], [None], r"None in place of one value, at \[0\]"),
    ],
)
def test_trees_that_do_not_match_are_both_printed(tree: Any, other: Any, difference: str) -> None:
    with pytest.raises(wg.ArgumentError, match=difference) as e:
        wg.tree.map(lambda a, b: a, tree, other)
    lines = str(e.value).split("\n")
    assert lines[0].startswith("tree.map: tree 2 has another structure: ")
    assert lines[1:] == [f"  expected {wg.tree.structure(tree)}", f"  got      {wg.tree.structure(other)}"]


def test_huge_structures_are_shortened_in_messages() -> None:
    with pytest.raises(wg.ArgumentError) as e:
        wg.tree.map(lambda a, b: a, list(range(10_000)), [1])
    assert len(str(e.value)) < 3000 and "…" in str(e.value)


def test_the_number_of_leaves_is_checked() -> None:
    structure = wg.tree.structure([1, (2, 3)])
    for leaves in ([1, 2], [1, 2, 3, 4], []):
        with pytest.raises(wg.ArgumentError, match=rf"\[\*, \(\*, \*\)\] has 3 leaves, got {len(leaves)}"):
            wg.tree.unflatten(structure, leaves)
    assert wg.tree.unflatten(structure, iter("abc")) == ["a", ("b", "c")]


def test_a_container_in_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(wg.ArgumentError, match="contains itself"):
        wg.tree.leaves(loop)


class Scaled:
    def __init__(self, parts: list[Any], scale: float) -> None:
        self.parts, self.scale = parts, scale


wg.tree.register(Scaled, lambda x: (x.parts, x.scale), lambda scale, parts: Scaled(parts, scale))


def test_registered_classes_are_containers() -> None:
    x = Scaled([t(1.0), {"a": t(2.0)}], 0.5)
    assert repr(wg.tree.structure(x)) == "Scaled(0.5, *, {'a': *})"
    g = wg.grad(lambda x: x.scale * (x.parts[0] * x.parts[1]["a"]).sum())(x)
    assert isinstance(g, Scaled) and g.parts[0].tolist() == [1.0] and g.parts[1]["a"].tolist() == [0.5]
    with pytest.raises(wg.ArgumentError, match="a Scaled with 2.0 in place of 0.5"):
        wg.tree.map(lambda a, b: a, x, Scaled(x.parts, 2.0))
    for cls in (Scaled, dict, list):
        with pytest.raises(wg.ArgumentError, match="is a container already"):
            wg.tree.register(cls, lambda x: ((), None), lambda *_: None)
    with pytest.raises(wg.ArgumentError, match="takes a class, got str"):
        wg.tree.register("Scaled", lambda x: ((), None), lambda *_: None)  # type: ignore[arg-type]


def test_modules_are_leaves_even_as_dataclasses() -> None:
    @dataclasses.dataclass(eq=False)
    class Net(wg.nn.Module):
        layer: Any

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    net = Net(wg.nn.Linear(2, 1))
    assert wg.tree.leaves([net, 1]) == [net, 1]


# -------------------------------------------------------------------------------------------- where trees are taken


def loss(p: Layer) -> Any:
    return (p.weight**3).sum() * p.bias.x.sum()


def same(a: Any, b: Any) -> None:
    wg.tree.map(lambda x, y: np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-12), a, b)


EXPECTED = Layer(t(9.0, 36.0), Point(t(9.0), None))  # the gradient of loss at layer()


def test_gradients_of_dataclasses_and_named_tuples() -> None:
    same(wg.grad(loss)(layer()), EXPECTED)
    value, g = wg.value_and_grad(loss)(layer())
    assert value.item() == 27.0
    same(g, EXPECTED)
    y, pull = wg.vjp(lambda p: Point(loss(p), p.weight), layer())
    assert isinstance(y, Point)
    (p_bar,) = pull(Point(wg.tensor(1.0, dtype=wg.float64), t(1.0, 1.0)))
    same(p_bar, Layer(t(10.0, 37.0), Point(t(9.0), None)))


def test_tangents_of_dataclasses() -> None:
    v = Layer(t(1.0, 0.0), Point(t(2.0), None))
    assert wg.jvp(loss, (layer(),), (v,))[1].item() == 9.0 + 18.0
    assert wg.linearize(loss, layer())[1](v).item() == 27.0
    product = wg.hvp(loss, layer(), v)
    same(product, Layer(t(18.0 + 6.0, 24.0), Point(t(3.0), None)))
    with pytest.raises(wg.ArgumentError, match=r"at \[0\]\.bias\n  expected \(Layer\(weight=\*, bias=Point"):
        wg.jvp(loss, (layer(),), (Layer(t(1.0, 0.0), None),))


def test_jacobians_of_named_tuples() -> None:
    j = wg.jacobian(lambda p: Point(p.x * p.y, p.x))(Point(t(1.0, 2.0), t(3.0, 4.0)))
    assert isinstance(j, Point) and isinstance(j.x, Point)
    assert j.x.x.tolist() == [[3.0, 0.0], [0.0, 4.0]] and j.y.y.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_compiled_functions_take_and_return_dataclasses() -> None:
    traced = []

    @wg.compile
    def step(p: Layer, lr: float) -> Layer:
        traced.append(p.activation)
        g = wg.grad(loss)(p)
        return wg.tree.map(lambda x, dx: x - lr * dx, p, g)

    for _ in range(2):
        p = step(layer(), 0.5)
        same(p, wg.tree.map(lambda x, dx: x - 0.5 * dx, layer(), EXPECTED))
    assert isinstance(p, Layer) and p.activation == "tanh" and traced == ["tanh"]
    same(wg.grad(lambda p: loss(step(p, 0.0)))(layer()), EXPECTED)


def test_optimizers_and_clipping_take_dataclasses() -> None:
    state = wg.optim.SGD.init(layer())
    p, state = wg.optim.SGD.update(layer(), EXPECTED, state, lr=0.1)
    same(p, wg.tree.map(lambda x, dx: x - 0.1 * dx, layer(), EXPECTED))
    clipped = wg.clip_by_value(EXPECTED, 10.0)
    same(clipped, Layer(t(9.0, 10.0), Point(t(9.0), None)))
