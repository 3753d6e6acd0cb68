"""Fusion: what runs in one pass, and that nothing is computed out of order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.program.test_ir import run, traced
from wengert.compiling.compile import summarize
from wengert.program.fuse import LONGEST_ROW, Group, fuse, fuse_counting
from wengert.program.simplify import simplify


def passes(f: Any, *shapes: tuple[int, ...]) -> int:
    return summarize(simplify(traced(f, *shapes))).passes


def test_elementwise_chains_are_one_pass() -> None:
    assert passes(lambda x, w, b: wg.tanh(x * w + b), (8,), (8,), (8,)) == 1
    assert passes(lambda x: wg.where(x > 0, wg.exp(x), wg.sin(x) * 2.0), (8,)) == 1


def softmax(x: Any) -> Any:
    e = wg.exp(x - wg.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * wg.rsqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


def test_row_reductions_fuse() -> None:
    assert passes(softmax, (4, 8)) == 1
    assert passes(layer_norm, (4, 8)) == 1
    assert passes(lambda x: wg.log(wg.exp(x).sum(axis=-1)), (4, 8)) == 1
    assert passes(lambda x: x.sum(axis=(1, 2)), (4, 3, 2)) == 1


def test_public_functions_are_one_pass() -> None:
    for f in (wg.softmax, wg.log_softmax, wg.logsumexp, wg.gelu):
        g = wg.compile(f)
        g(wg.ones((4, 8)))
        (report,) = g.report()
        assert report.passes == 1, f"{f.__name__}: {report}"


def test_column_reductions_do_not_fuse_with_rows() -> None:
    p = simplify(traced(lambda x: wg.exp(x).sum(axis=0) * 2.0, (4, 8)))
    x = np.random.default_rng(0).standard_normal((4, 8))
    np.testing.assert_allclose(run(p, x)[0], 2 * np.exp(x).sum(0))
    assert summarize(p).passes >= 2


def test_long_rows_do_not_fuse() -> None:
    assert passes(softmax, (2, LONGEST_ROW)) == 1
    assert passes(softmax, (2, LONGEST_ROW + 1)) > 1


def test_matrix_products_are_counted() -> None:
    report = summarize(simplify(traced(lambda x, w, v: wg.relu(x @ w) @ v, (2, 3), (3, 4), (4, 5))))
    assert report.gemms == 2
    assert report.passes == 3


def test_views_are_no_pass() -> None:
    assert passes(lambda x: x.reshape((8,))[2:], (2, 4)) == 0


def test_order_is_kept() -> None:
    """Every value is made before it is read, also across groups."""

    def f(x: Any, w: Any) -> Any:
        a = wg.exp(x)
        b = a @ w  # between two parts of what could be one group
        c = a * 2.0 + b
        d = c.sum(axis=1, keepdims=True)
        e = (d @ wg.ones((1, 3), dtype=wg.float64)) * a
        return e + c

    p = simplify(traced(f, (3, 3), (3, 3)))
    made = set(p.inputs)
    for unit in fuse(p):
        for i in unit.members if isinstance(unit, Group) else [unit]:
            assert all(v in made for v in i.vars())
            made.update(i.outputs)


def test_two_iteration_spaces() -> None:
    def f(x: Any, y: Any) -> Any:
        return wg.exp(x) * 2.0, wg.exp(y) * 2.0, wg.exp(x).sum(axis=1) + y

    p = simplify(traced(f, (3, 4), (3,)))
    x, y = np.random.default_rng(0).standard_normal((3, 4)), np.arange(3.0)
    g = wg.compile(f)
    for got, expected in zip(g(wg.asarray(x), wg.asarray(y)), run(p, x, y)):
        np.testing.assert_array_equal(got.numpy(), expected)


def test_many_members() -> None:
    """More than fits one group."""

    def f(x: Any) -> Any:
        for k in range(200):
            x = wg.sin(x) + float(k)
        return x

    x = np.linspace(0, 1, 5)
    got = wg.compile(f)(wg.asarray(x)).numpy()
    np.testing.assert_array_equal(got, f(wg.asarray(x)).numpy())


@pytest.mark.parametrize("shape", [(4, 8), (1, 8), (4, 1), (1, 1), (3, 4, 5), (0, 8), (7,)])
def test_fused_values(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    for f in (softmax, layer_norm):
        eager = f(wg.asarray(x)).numpy()
        np.testing.assert_array_equal(wg.compile(f)(wg.asarray(x)).numpy(), eager)


def test_numbers_from_outside_are_filled_in_by_the_group_that_reads_them() -> None:
    """A value without axes is broadcast in a register, not in memory; one that something else reads is made as well."""

    @wg.compile
    def f(x: Any, s: Any) -> Any:
        wide = wg.broadcast_to(s, x.shape)
        return wg.tanh(x * wide) + wide, wg.flip(wide, 0), wide

    x, s = wg.tensor(np.linspace(-1.0, 1.0, 3000).reshape(3, 1000)), wg.ones(())
    s64 = wg.tensor(np.float64(0.3))
    for scale in (s64, wg.tensor(np.float64(-2.0))):
        y, flipped, wide = f(x, scale)
        expected = np.broadcast_to(scale.numpy(), x.shape)
        assert y.numpy().tobytes() == (wg.tanh(x * scale) + scale).numpy().tobytes()
        np.testing.assert_array_equal(flipped.numpy(), expected)
        np.testing.assert_array_equal(wide.numpy(), expected)
    g = wg.grad(lambda s: f(x, s)[0].sum())(s64)
    np.testing.assert_allclose(g.numpy(), np.sum((1 - np.tanh(x.numpy() * 0.3) ** 2) * x.numpy() + 1))
    assert f(wg.ones((0, 5)), s)[0].shape == (0, 5)


def test_a_number_beside_a_sum_and_beside_the_elements() -> None:
    """One value, read once for the row that a full sum leaves and once for every element: two registers."""
    rng = np.random.default_rng(5)
    x, s = wg.asarray(rng.standard_normal((30, 400)).astype(np.float32)), wg.tensor(2.0)
    functions = [
        lambda x, s: (s * x.sum(), x * s),
        lambda x, s: (x * s, s * x.sum()),
        lambda x, s: (x - s * wg.sin(x), (x * x).mean() * s),
        lambda x, s: (s + x.sum(axis=1), x / s, wg.max(x, axis=1) - s),
        lambda x, s: ((s * x.sum(axis=1, keepdims=True)) * x, x + s),
    ]
    for f in functions:
        for got, expected in zip(wg.compile(f)(x, s), f(x, s)):
            np.testing.assert_array_equal(got.numpy(), expected.numpy())


@pytest.mark.parametrize("n", [3, 128, 500, 1024, 1500])
@pytest.mark.parametrize("rows", [1, 5, 300])
def test_what_repeats_with_the_rows(n: int, rows: int) -> None:
    """Operands that are broadcast over rows lie in memory once for all blocks, wherever the blocks begin."""
    rng = np.random.default_rng(n + rows)
    x, row, column, plane = (rng.standard_normal(s) for s in ((rows, 2, n), (n,), (rows, 1, 1), (2, n)))

    def elementwise(x: Any, row: Any, column: Any, plane: Any) -> Any:
        return (x + row) * plane + column * row

    def with_sums(x: Any, row: Any, column: Any, plane: Any) -> Any:
        return (x - x.sum(axis=-1, keepdims=True) * column) * row + plane

    tensors = [wg.tensor(a) for a in (x, row, column, plane)]
    for f in (elementwise, with_sums):
        expected = np.asarray(f(*tensors))  # op by op
        np.testing.assert_array_equal(np.asarray(wg.compile(f)(*tensors)), expected)


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_rows_without_columns_have_results(rows: int) -> None:
    def f(x: Any, z: Any) -> Any:
        return x.mean(axis=1, keepdims=True) + z, wg.exp(x.sum(axis=1)) * 2.0 + 1.0

    compiled = wg.compile(f)
    for columns in (2, 0):
        x, z = wg.ones((rows, columns), dtype=wg.float64), wg.asarray(np.arange(float(rows))[:, None])
        for got, expected in zip(compiled(x, z), f(x, z)):
            np.testing.assert_array_equal(got.numpy(), expected.numpy())
    assert np.isnan(compiled(x, z)[0].numpy()).all()


def layers(x: Any, w: Any, n: int) -> Any:
    for _ in range(n):
        x = wg.tanh(x @ w)
    return x


def residual_layers(x: Any, w: Any, n: int) -> Any:
    for _ in range(n):
        x = x + softmax(layer_norm(x) @ w) @ w
    return x


def hub_and_sum(x: Any, w: Any, n: int) -> Any:
    """One value that all read, one that gathers all."""
    hub = total = wg.exp(x)
    for k in range(n):
        total = total + wg.sin(hub * float(k)) @ w
    return total


def interleaved(x: Any, w: Any, n: int) -> Any:
    """Chains that do not depend on each other, side by side."""
    streams = [x + float(k) for k in range(8)]
    for _ in range(n):
        streams = [wg.tanh(y @ w) for y in streams]
    return wg.concat(streams, axis=0)


@pytest.mark.parametrize("f", [layers, residual_layers, hub_and_sum, interleaved])
def test_fusing_is_linear(f: Any) -> None:
    """What is looked at per instruction does not grow with the program."""

    def visits(n: int) -> float:
        program = simplify(traced(lambda x, w: f(x, w, n), (3, 3), (3, 3)))
        return fuse_counting(program)[1] / len(program.instructions)

    assert visits(160) <= 1.1 * visits(40) + 1


def test_a_group_moves_behind_what_its_new_member_reads() -> None:
    """An early group takes in a late instruction; what has read the group since stays behind it."""

    def f(x: Any, w: Any) -> Any:
        a = wg.exp(x)
        b = wg.flip(a, 0)  # reads the group
        c = x @ w  # does not
        return a * c, b @ w, wg.flip(b, 1)

    p = simplify(traced(f, (3, 3), (3, 3)))
    units = fuse(p)
    (group,) = [u for u in units if isinstance(u, Group)]
    assert [i.op.name for i in group.members] == ["exp", "mul"]
    made = set(p.inputs)
    for unit in units:
        for i in unit.members if isinstance(unit, Group) else [unit]:
            assert all(v in made for v in i.vars())
            made.update(i.outputs)
