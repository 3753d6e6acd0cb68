"""Static graphs: built once, checked when they are built, run on whatever is fed."""

from __future__ import annotations

import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.ops.sampling import array, cases, make, outputs, tensor
from wengert.errors import ArgumentError, DTypeError, GradientError, ShapeError, TraceError
from wengert.graph import Node
from wengert.registry.record import Op
from wengert.registry.samples import Sample

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    return wg.tensor(RNG.normal(size=shape).astype("float32"))


def classifier() -> Any:
    g = wg.Graph()
    x, t = g.placeholder("x", (None, 5)), g.placeholder("t", (None,), dtype=wg.int64)
    w = g.variable("w", real(5, 3))
    loss = wg.softmax_cross_entropy(wg.tanh(x @ w), t)
    return g, x, t, w, loss


def eager(x: Any, t: Any) -> Any:
    return lambda w: wg.softmax_cross_entropy(wg.tanh(x @ w), t)


@pytest.mark.parametrize("batch", [1, 4, 7])
def test_any_batch_size_gives_the_bits_of_eager_execution(batch: int) -> None:
    g, _, _, w, loss = classifier()
    (dw,) = g.gradients(loss, [w])
    (ddw,) = g.gradients((dw * dw).sum(), [w])
    x, t = real(batch, 5), wg.tensor(RNG.integers(0, 3, batch))
    f, value = eager(x, t), w.parameter.detach()
    *ours, second = g.run([loss, dw, ddw], x=x, t=t)
    for made, expected in zip(ours, (f(value), wg.grad(f)(value))):
        np.testing.assert_array_equal(made.numpy(), expected.numpy())
    # To the second order, the result of tanh has three cotangents. A program adds them in another order than the walk.
    expected = wg.grad(lambda w: (wg.grad(f)(w) ** 2).sum())(value)
    np.testing.assert_allclose(second.numpy(), expected.numpy(), rtol=1e-5, atol=1e-7)


def test_a_training_loop() -> None:
    g, x, t, w, loss = classifier()
    (dw,) = g.gradients(loss, [w])
    step, optimizer = g.compile([loss, dw]), wg.optim.SGD(lr=0.5)
    images, labels = real(16, 5), wg.tensor(RNG.integers(0, 3, 16))
    losses = []
    for _ in range(20):
        value, gradient = step({x: images, t: labels})
        optimizer.apply_gradients([(w, gradient)])
        losses.append(value.item())
    assert losses[-1] < losses[0] - 0.1
    assert len(step.report()) == 1
    before = w.parameter.tolist()
    wg.optim.Adam([w]).step([wg.ones((5, 3))])
    assert w.parameter.tolist() != before


class TestWhatIsFed:
    def test_by_node_or_by_name(self) -> None:
        g, x, t, _, loss = classifier()
        images, labels = real(2, 5), wg.tensor([0, 1])
        a = g.run(loss, {x: images, t: labels}).item()
        assert a == g.run(loss, {x: images}, t=labels).item() == g.run(loss, {"x": images, "t": [0, 1]}).item()

    def test_only_what_is_fetched(self) -> None:
        g, x, _, w, _ = classifier()
        assert g.run(x @ w, x=real(2, 5)).shape == (2, 3)
        assert g.run({"w": w, "none": None})["w"].shape == (5, 3)
        assert g.run(wg.zeros_like(x).sum(0), x=real(2, 5)).tolist() == [0.0] * 5

    @pytest.mark.parametrize(
        ("feeds", "error", "text"),
        [
            ({"x": real(2, 5)}, ArgumentError, "<placeholder t: int64.* must be fed"),
            ({"x": real(2, 5), "t": [0, 1], "y": 1}, ArgumentError, "no placeholder 'y'; it has x, t"),
            ({"x": real(2, 4), "t": [0, 1]}, ShapeError, r"<placeholder x: float32\[x.0, 5\]> is fed float32\(2, 4\)"),
            ({"x": real(5), "t": [0, 1]}, ShapeError, r"is fed float32\(5,\)"),
            ({"x": np.ones((2, 5)), "t": [0, 1]}, DTypeError, "is fed float64.*astype"),
            ({"x": real(3, 5), "t": [0, 1]}, ShapeError, r"x \(3, 5\), t \(2,\) do not fit each other"),
        ],
    )
    def test_what_does_not_fit(self, feeds: dict[str, Any], error: type[Exception], text: str) -> None:
        g, _, _, _, loss = classifier()
        with pytest.raises(error, match=text):
            g.run(loss, feeds)

    def test_sizes_of_one_name_are_equal(self) -> None:
        g = wg.Graph()
        a, b = g.placeholder("a", ("n", 2)), g.placeholder("b", ("n",))
        y = a.sum() + b.sum()
        assert g.run(y, a=wg.ones((3, 2)), b=wg.ones((3,))).item() == 9.0
        with pytest.raises(ShapeError, match="size 0 of 'b' is 4, but size 0 of 'a', which must be equal, is 3"):
            g.run(y, a=wg.ones((3, 2)), b=wg.ones((4,)))

    def test_sizes_that_met_do_not_broadcast_later(self) -> None:
        g = wg.Graph()
        a, b = g.placeholder("a", (None,)), g.placeholder("b", (None,))
        with pytest.raises(ShapeError, match="do not fit each other"):
            g.run(a * b, a=wg.ones((3,)), b=wg.ones((1,)))


class TestErrorsWhenTheGraphIsBuilt:
    def test_shapes_and_dtypes(self) -> None:
        g, x, t, w, _ = classifier()
        with pytest.raises(ShapeError, match=r"matmul: float32\(x.0, 5\) and float32\(x.0, 5\)"):
            x @ x
        with pytest.raises(ShapeError, match=r"\(x.0, 5\) and \(4,\) do not broadcast"):
            x + wg.ones((4,))
        with pytest.raises(DTypeError):
            wg.bitwise_and(x, t)
        with pytest.raises(GradientError, match="int64"):
            g.gradients((x @ w).sum(), [t])
        with pytest.raises(GradientError, match="only a scalar"):
            g.gradients(x @ w, [w])

    def test_reading_data_that_do_not_exist(self) -> None:
        _, x, _, _, loss = classifier()
        for read in (float, bool, lambda y: y.item(), lambda y: y.numpy(), np.asarray):
            with pytest.raises(TraceError, match=r"a node float32\[\], which has none"):
                read(loss)
        with pytest.raises(TraceError, match=r"graph\.gradients"):
            loss.backward()
        with pytest.raises(TraceError, match="cannot become a Python number"):
            1.0 / x.shape[0]

    def test_names(self) -> None:
        g, _, _, _, _ = classifier()
        with pytest.raises(ArgumentError, match="the graph has <placeholder x"):
            g.variable("x", 1.0)
        with pytest.raises(ArgumentError, match="identifier"):
            g.placeholder("a b", ())
        with pytest.raises(ShapeError, match="size 1 of 'y'"):
            g.placeholder("y", (3, -1))
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            g.nothing()

    def test_nodes_of_other_graphs(self) -> None:
        g, x, _, _, loss = classifier()
        other = wg.Graph().placeholder("y", (None, 5))
        for mix in (lambda: x + other, lambda: wg.softmax_cross_entropy(x, other)):
            with pytest.raises(TraceError, match="another graph"):
                mix()
        with pytest.raises(ArgumentError, match="nodes of this graph"):
            wg.Graph().run(loss)
        with pytest.raises(ArgumentError, match="belongs to another graph"):
            g.run(loss, {other: 1.0})

    def test_placeholders_and_variables_are_not_written_to(self) -> None:
        _, x, _, w, _ = classifier()
        for write in (lambda: x.add_(1.0), lambda: w.__setitem__(0, 0.0), lambda: w[0].zero_()):
            with pytest.raises(TraceError, match="cannot be changed in place by a graph"):
                write()


def test_nodes_are_changed_in_place() -> None:
    g = wg.Graph()
    x = g.placeholder("x", (None, 2))
    y = x * 2.0
    y += 1.0
    y[:, 0] = 0.0
    assert g.run(y, x=[[1.0, 2.0]]).tolist() == [[0.0, 5.0]]


def test_every_function_is_a_method() -> None:
    g, x, _, w, _ = classifier()
    images = real(2, 5)
    np.testing.assert_array_equal(
        g.run(g.tanh(g.matmul(x, w)), x=images).numpy(), wg.tanh(images @ w.parameter).detach().numpy()
    )
    assert isinstance(g.zeros((3,)), Node) and g.run(g.arange(3)).tolist() == [0, 1, 2]


def test_random_numbers_are_drawn_in_every_run() -> None:
    g = wg.Graph()
    x = g.placeholder("x", (None,))
    known = g.variable("known", wg.ones((100,)))
    wg.manual_seed(3)
    for node in (g.randn(5), wg.dropout(x), wg.dropout(known), g.randn(3) + g.randn(3)):
        first, second = (g.run(node, x=wg.ones((100,))).tolist() for _ in range(2))
        assert first != second
    a = g.randn(4)
    first, second = g.run([a, a * 1.0])
    assert first.tolist() == second.tolist()
    generator = wg.Generator(1)
    with g:
        b = wg.rand(3, generator=generator)
    expected = wg.rand(3, generator=wg.Generator(1)).tolist()
    assert g.run(b).tolist() == expected != g.run(b).tolist()


def test_tensors_are_read_in_every_run() -> None:
    g, table = wg.Graph(), wg.zeros((2,))
    y = g.placeholder("x", (2,)) + table
    table += 3.0
    assert g.run(y, x=[0.0, 1.0]).tolist() == [3.0, 4.0]
    (dt,) = g.gradients((y * y).sum(), [table])
    assert g.run(dt, x=[0.0, 1.0]).tolist() == [6.0, 8.0]


def test_control_flow_on_nodes() -> None:
    g = wg.Graph()
    x = g.placeholder("x", (None,))
    y = wg.cond(x.sum() > 0, lambda x: x * x, lambda x: -x, x)
    total, partial = wg.scan(lambda c, v: (c + v, c * v), wg.tensor(0.0), y)
    (dx,) = g.gradients(total, [x])
    value, gradient = g.run([partial, dx], x=[1.0, 2.0])
    assert value.tolist() == [0.0, 4.0] and gradient.tolist() == [2.0, 4.0]
    assert g.run(dx, x=[-1.0, -2.0, -3.0]).tolist() == [-1.0] * 3


def test_a_path_that_is_missing() -> None:
    g, x, _, w, loss = classifier()
    assert g.gradients((x * x).sum(), [w]) == [None]
    assert len(g.gradients([loss, loss * 2.0], [w], grad_ys=[None, 3.0])) == 1


def test_text_and_drawings(tmp_path: Path) -> None:
    g, x, _, w, loss = classifier()
    (dw,) = g.gradients(loss, [w])
    g.verify()
    assert "float32[x.0, 3] = matmul x, w" in str(g) and repr(x) == "<placeholder x: float32[x.0, 5]>"
    g.draw(tmp_path / "graph.svg", [loss, dw])
    drawing = xml.etree.ElementTree.parse(tmp_path / "graph.svg")
    texts = ["".join(e.itertext()) for e in drawing.iter() if e.tag.endswith("text")]
    assert "w" in texts and "float32[x.0, 5]" in texts and any(t.startswith("matmul") for t in texts)
    boxes = [
        tuple(float(e.attrib[k]) for k in ("x", "y", "width", "height"))
        for e in drawing.iter()
        if e.attrib.get("class", "").startswith("box")
    ]
    assert len(boxes) > 10
    for k, (x0, y0, width, height) in enumerate(boxes):
        for x1, y1, other, _ in boxes[k + 1 :]:
            assert abs(y0 - y1) >= height or x0 + width <= x1 or x1 + other <= x0, "boxes overlap"
    assert g.draw(format="dot").startswith("digraph") and "matmul" in g.draw(format="txt")
    with pytest.raises(ArgumentError, match="svg, dot or txt"):
        g.draw("graph.png")


def test_a_variable_is_assigned() -> None:
    g, _, _, w, _ = classifier()
    w.assign(wg.ones((5, 3)))
    assert g.run(w.sum()).item() == 15.0
    with pytest.raises(ArgumentError, match="does not fit"):
        w.assign(wg.ones((5, 2)))
    with pytest.raises(ArgumentError, match="not a node"):
        w.assign(w * 2.0)


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, sample: bool(sample.inputs)))
def test_every_op_takes_nodes(op: Op, sample: Sample) -> None:
    given = [tensor(a) for a in make(sample, "float32", op.name)]
    g = wg.Graph()
    nodes = [g.placeholder(f"x{k}", x.shape, dtype=x.dtype) for k, x in enumerate(given)]
    made = g.run(list(outputs(op, nodes, sample.attrs)), dict(zip(nodes, given)))
    for ours, expected in zip(made, outputs(op, given, sample.attrs)):
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(array(ours), array(expected))
