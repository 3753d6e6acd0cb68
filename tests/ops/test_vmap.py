"""Every op under `vmap`: its batch rule gives what a loop over the examples gives, and so do its derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.ops.sampling import (
    TESTED_ELSEWHERE,
    array,
    call,
    cases,
    differentiable,
    make,
    outputs,
    takes_complex,
    tensor,
)
from tests.tolerances import AGREEMENT, assert_near
from wengert.dtypes import as_dtype
from wengert.ops import OPS
from wengert.passes.batch import apply_rule, draws
from wengert.registry.record import Op
from wengert.registry.samples import Sample
from wengert.transforms.functional import jvp, vjp
from wengert.transforms.vmap import vmap

N = 3


def _examples(op: Op, sample: Sample) -> list[list[Any]]:
    """The sample's arrays, and others of its kind; literal numbers and sorted vectors are the same for all."""
    return [make(sample, "float64", op.name, extra) for extra in range(N)]


def _variants(n: int) -> list[tuple[bool, ...]]:
    """Which operands have examples: all, each alone, all but each."""
    alone = [tuple(k == j for k in range(n)) for j in range(n)]
    others = [tuple(k != j for k in range(n)) for j in range(n)]
    return list(dict.fromkeys([(True,) * n, *alone, *(v for v in others if any(v))]))


def _arguments(examples: list[list[Any]], mapped: tuple[bool, ...], last: bool) -> tuple[list[Any], tuple[Any, ...]]:
    """Operands and their in_axes: examples stacked along the first axis, or the last."""
    axis = -1 if last else 0
    given = [np.stack([e[k] for e in examples], axis) if m else examples[0][k] for k, m in enumerate(mapped)]
    return [tensor(a) for a in given], tuple(axis if m else None for m in mapped)


def _of_example(examples: list[list[Any]], mapped: tuple[bool, ...], i: int) -> list[Any]:
    return [tensor(examples[i if m else 0][k]) for k, m in enumerate(mapped)]


# Ops that sum in another order when examples are computed together, and why.
REORDERED = {
    **dict.fromkeys(["sum", "prod"], "several axes are reduced in another order"),
    **dict.fromkeys(
        ["matmul", "conv", "conv_transpose", "conv_kernel", "conv_bias"],
        "one product of all examples is cut into other tiles",
    ),
    **dict.fromkeys(
        [f"{cell}{part}" for cell in ("lstm", "gru") for part in ("", "_tangent", "_cotangent")],
        "with weights of its own, an example is run step by step",
    ),
}


def _assert_same(op: Op, got: Any, expected: Any, what: str) -> None:
    if op.name in REORDERED:
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12, err_msg=what)
    else:
        np.testing.assert_array_equal(got, expected, err_msg=what)


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, sample: op.n_inputs != 0 and not draws(op, sample.attrs)))
def test_vmap_is_the_loop(op: Op, sample: Sample) -> None:
    """For every choice of operands with examples, along the first axis and the last."""
    examples = _examples(op, sample)
    for mapped, last in itertools.product(_variants(len(examples[0])), (False, True)):
        operands, axes = _arguments(examples, mapped, last)
        got = vmap(lambda *xs: outputs(op, xs, sample.attrs), axes)(*operands)
        loop = [outputs(op, _of_example(examples, mapped, i), sample.attrs) for i in range(N)]
        for k, y in enumerate(got):
            expected = np.stack([array(ys[k]) for ys in loop])
            assert y.dtype == loop[0][k].dtype
            _assert_same(op, array(y), expected, f"output {k}, examples in {mapped}, last axis: {last}")


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize(("op", "sample"), cases(lambda op, sample: op.n_inputs != 0 and not draws(op, sample.attrs)))
def test_vmap_of_few_examples(op: Op, sample: Sample, n: int) -> None:
    """None, and one: sizes that broadcast, and that may be no size at all to a kernel."""
    arrays = make(sample, "float64", op.name)
    alone = outputs(op, [tensor(a) for a in arrays], sample.attrs)
    for mapped in _variants(len(arrays)):
        given = [np.broadcast_to(a, (n, *a.shape)).copy() if m else a for a, m in zip(arrays, mapped)]
        axes = tuple(0 if m else None for m in mapped)
        got = vmap(lambda *xs: outputs(op, xs, sample.attrs), axes)(*map(tensor, given))
        for y, expected in zip(got, alone):
            assert (y.shape, y.dtype) == ((n, *expected.shape), expected.dtype)
            np.testing.assert_allclose(array(y), np.stack([array(expected)] * n) if n else array(y), 1e-12, 1e-12)


def _complex(op: Op, sample: Sample) -> bool:
    return op.n_inputs != 0 and not draws(op, sample.attrs) and takes_complex(op, sample)


@pytest.mark.parametrize(("op", "sample"), cases(_complex))
def test_vmap_of_complex_examples(op: Op, sample: Sample) -> None:
    examples = [make(sample, "complex128", op.name, extra) for extra in range(N)]
    got = vmap(lambda *xs: outputs(op, xs, sample.attrs))(*(tensor(np.stack(column)) for column in zip(*examples)))
    for k, y in enumerate(got):
        loop = [array(outputs(op, [tensor(a) for a in e], sample.attrs)[k]) for e in examples]
        _assert_same(op, array(y), np.stack(loop), f"output {k}")


# --------------------------------------------------------------------------------------------------- derivatives


class _Case:
    """An op at a sample: its examples, and random tangents and cotangents of each."""

    def __init__(self, op: Op, sample: Sample) -> None:
        self.op, self.attrs = op, sample.attrs
        self.examples = _examples(op, sample)
        self.floating = [k for k, a in enumerate(self.examples[0]) if as_dtype(a.dtype).is_inexact]
        y = array(self.of([tensor(a) for a in self.examples[0]]))
        rng = np.random.default_rng(5)
        self.tangents = [[_normal(rng, e[k]) for k in self.floating] for e in self.examples]
        self.cotangents = [_normal(rng, y) for _ in range(N)]

    def of(self, xs: Sequence[Any]) -> Any:
        return call(self.op, xs, self.attrs)

    def by_floating(self, inputs: Sequence[Any]) -> Any:
        """A function of the floating inputs alone."""

        def f(*xs: Any) -> Any:
            given = list(inputs)
            for k, x in zip(self.floating, xs):
                given[k] = x
            return self.of(given)

        return f

    def split(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """The function, the floating inputs, their tangents and the cotangent, of what one call is given."""
        n = len(self.examples[0])
        inputs, x_dots, y_bar = given[:n], given[n:-1], given[-1]
        return self.by_floating(inputs), tuple(inputs[k] for k in self.floating), x_dots, y_bar

    def stacked(self, mapped: tuple[bool, ...], last: bool) -> tuple[list[Any], tuple[Any, ...]]:
        """All that examples are given, and its in_axes: operands that are not mapped are those of the first example."""
        columns = zip(*(self._given(i, mapped) for i in range(N)))
        which = (*mapped, *[True] * (len(self.floating) + 1))
        axis = -1 if last else 0
        given = [tensor(np.stack(c, axis) if m else c[0]) for c, m in zip(columns, which)]
        return given, tuple(axis if m else None for m in which)

    def loop(self, f: Any, mapped: tuple[bool, ...]) -> list[Any]:
        """The results of f, of each example on its own."""
        made = [f(*map(tensor, self._given(i, mapped))) for i in range(N)]
        return [np.stack([array(x) for x in column]) for column in zip(*made)]

    def _given(self, i: int, mapped: tuple[bool, ...]) -> list[Any]:
        operands = [self.examples[i if m else 0][k] for k, m in enumerate(mapped)]
        return [*operands, *self.tangents[i], self.cotangents[i]]

    def variants(self) -> list[tuple[tuple[bool, ...], bool]]:
        """Which operands have examples, and whether along the last axis."""
        every, *others = _variants(len(self.examples[0]))
        return [(every, False), (every, True), *((v, k % 2 == 1) for k, v in enumerate(others))]


def _normal(rng: np.random.Generator, like: Any) -> Any:
    x = rng.normal(size=like.shape)
    return (x + 1j * rng.normal(size=like.shape) if np.iscomplexobj(like) else x).astype(like.dtype)


def _differentiable(op: Op, sample: Sample) -> bool:
    tested = op.jvp != "zero" and op.name not in TESTED_ELSEWHERE
    return tested and differentiable(op, sample) and not draws(op, sample.attrs)


@pytest.mark.parametrize(("op", "sample"), cases(_differentiable))
def test_vmap_of_first_order(op: Op, sample: Sample) -> None:
    """Forward and reverse mode inside of vmap, for every choice of operands with examples, and outside."""
    case = _Case(op, sample)
    every = (True,) * len(case.examples[0])

    def derivatives(*given: Any) -> tuple[Any, ...]:
        f, xs, x_dots, y_bar = case.split(given)
        return (jvp(f, xs, x_dots)[1], *vjp(f, *xs)[1](y_bar))

    for mapped_operands, last in case.variants():
        given, axes = case.stacked(mapped_operands, last)
        for got, e in zip(vmap(derivatives, axes)(*given), case.loop(derivatives, mapped_operands)):
            assert_near(array(got), e, AGREEMENT, f"inside, examples in {mapped_operands}, last axis: {last}")

    expected, given = case.loop(derivatives, every), case.stacked(every, False)[0]
    inputs = given[: len(case.examples[0])]

    def mapped(*xs: Any) -> Any:
        full = list(inputs)
        for k, x in zip(case.floating, xs):
            full[k] = x
        return vmap(lambda *each: case.of(each))(*full)

    xs, x_dots, y_bar = tuple(inputs[k] for k in case.floating), tuple(given[len(inputs) : -1]), given[-1]
    outside = (jvp(mapped, xs, x_dots)[1], *vjp(mapped, *xs)[1](y_bar))
    for got, e in zip(outside, expected):
        assert_near(array(got), e, AGREEMENT, "outside")


@pytest.mark.parametrize(
    ("op", "sample"),
    cases(lambda op, sample: _differentiable(op, sample) and sample is op.samples[0] and sample.second),
)
def test_vmap_of_second_order(op: Op, sample: Sample) -> None:
    """Forward over reverse mode, inside of vmap, for every choice of operands with examples."""
    case = _Case(op, sample)

    def products(*given: Any) -> tuple[Any, ...]:
        f, xs, x_dots, y_bar = case.split(given)
        return tuple(jvp(lambda *zs: vjp(f, *zs)[1](y_bar), xs, x_dots)[1])

    few = None if len(case.examples[0]) <= 3 else 3  # of recurrent cells each takes seconds
    for mapped, last in case.variants()[:few]:
        given, axes = case.stacked(mapped, last)
        for got, e in zip(vmap(products, axes)(*given), case.loop(products, mapped)):
            assert_near(array(got), e, AGREEMENT, f"examples in {mapped}, last axis: {last}")


# ------------------------------------------------------------------------------------------------------ random numbers


@pytest.mark.parametrize(("op", "sample"), cases(lambda op, sample: draws(op, sample.attrs)))
def test_vmap_draws_from_a_stream_of_each_example(op: Op, sample: Sample) -> None:
    """The first example draws what it draws alone; the others something else; none depends on how many there are."""
    inputs = [tensor(a) for a in make(sample, "float64", op.name)]
    alone = outputs(op, inputs, sample.attrs) if inputs else (op(*sample.attrs),)
    wide = apply_rule(op, 3, [False] * len(inputs), inputs, sample.attrs)
    narrow = apply_rule(op, 2, [False] * len(inputs), inputs, sample.attrs)
    for first, y, fewer in zip(alone, *((made,) if op.n_outputs == 1 else made for made in (wide, narrow))):
        if op.name not in (
            "attention_tangent",
            "attention_cotangent",
        ):  # the sample's o and lse are not those of its q and k
            np.testing.assert_allclose(array(y)[0], array(first), rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(array(y)[:2], array(fewer))


def test_every_op_has_a_batch_rule() -> None:
    """But for those without operands, which make the same for all examples; none loops over them."""
    missing = [op.name for op in OPS.values() if op.vmap == "undefined"]
    assert missing == ["full", "iota", "size_scalar"]
