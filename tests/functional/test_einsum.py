"""Einstein's summation and products of other shapes, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.linalg.checking import check, real_and_complex

EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("i->i", [(3,)]),
    ("i->", [(3,)]),
    ("ij->ji", [(2, 3)]),
    ("ij", [(2, 3)]),
    ("ji", [(2, 3)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iij->j", [(3, 3, 2)]),
    ("iji->ij", [(3, 2, 3)]),
    ("iii->i", [(3, 3, 3)]),
    ("ijij->ij", [(2, 3, 2, 3)]),
    ("ij->", [(2, 3)]),
    ("ijk->j", [(2, 3, 4)]),
    (",->", [(), ()]),
    (",ij->ij", [(), (2, 3)]),
    ("i,i->", [(3,), (3,)]),
    ("i,i->i", [(3,), (3,)]),
    ("i,j->ij", [(3,), (2,)]),
    ("i,j->ji", [(3,), (2,)]),
    ("i,j->", [(3,), (2,)]),
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ij,kj->ki", [(2, 3), (4, 3)]),
    ("ij,ij->", [(2, 3), (2, 3)]),
    ("ij,ij->ij", [(2, 3), (2, 3)]),
    ("ij,jk->", [(2, 3), (3, 4)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bij,bjk->ikb", [(2, 3, 4), (2, 4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("ijk,kjl->il", [(2, 3, 4), (4, 3, 5)]),
    ("ii,i->i", [(3, 3), (3,)]),
    ("iij,jkk->ik", [(3, 3, 2), (2, 4, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("ij,jk,kl,lm->im", [(2, 3), (3, 4), (4, 2), (2, 3)]),
    ("i,j,k->ijk", [(2,), (3,), (4,)]),
    ("ij,i,j->", [(2, 3), (2,), (3,)]),
    ("ab,bc,ca->", [(2, 3), (3, 4), (4, 2)]),
    ("a,ab,abc->abc", [(2,), (2, 3), (2, 3, 4)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(6, 1, 3, 4), (2, 4, 5)]),
    ("...ij,jk", [(2, 3, 4), (4, 5)]),
    ("...i->...", [(2, 3, 4)]),
    ("i...->i...", [(2, 3, 4)]),
    ("i...->...", [(2, 3, 4)]),
    ("...", [(2, 3)]),
    ("...,...->...", [(3, 1), (1, 4)]),
    ("i...j,j...->i...", [(2, 3, 4), (4, 3)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("ij,jk->ik", [(2, 1), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    ("ij,jk->ik", [(0, 3), (3, 4)]),
    ("ij,jk->ik", [(1, 1), (1, 1)]),
    (" i j , j k -> k i ", [(2, 3), (3, 4)]),
    ("Ab,bC->AC", [(2, 3), (3, 4)]),
]
IDS = [f"{e} {s}" for e, s in EQUATIONS]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=IDS)
def test_einsum(equation: str, shapes: Any) -> None:
    for complex in (False, True):
        arrays = [real_and_complex(*s, number=k)[complex] for k, s in enumerate(shapes)]
        got = wg.einsum(equation, *(wg.asarray(a) for a in arrays)).numpy()
        expected = np.einsum(equation, *arrays)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-13)
        check(lambda *xs: wg.einsum(equation, *xs), *arrays)


def test_einsum_of_integers_and_lists() -> None:
    assert wg.einsum("ij,j->i", [[1, 2], [3, 4]], [1, 10]).tolist() == [21, 43]
    assert wg.einsum("i,i", wg.tensor([1, 2]), wg.tensor([0.5, 1.0])).item() == 2.5


def test_einsum_follows_sizes_inside_compiled_functions() -> None:
    f = wg.compile(lambda a, b, c: wg.einsum("bij,jk,bk->bi", a, b, c))
    for b, n in ((2, 3), (4, 5), (1, 2)):
        arrays = [real_and_complex(*s)[0] for s in ((b, 3, n), (n, 4), (b, 4))]
        got = f(*(wg.asarray(a) for a in arrays)).numpy()
        np.testing.assert_allclose(got, np.einsum("bij,jk,bk->bi", *arrays), rtol=1e-13)


def test_einsum_contracts_as_matrix_products() -> None:
    """A chain in the cheap order, as two products and nothing else that moves data."""
    f = wg.compile(lambda a, b, c: wg.einsum("ij,jk,kl->il", a, b, c))
    f(wg.ones((2, 50)), wg.ones((50, 60)), wg.ones((60, 70)))
    (report,) = f.report()
    assert (report.gemms, report.passes) == (2, 2)


@pytest.mark.parametrize(
    ("equation", "shapes", "error", "message"),
    [
        ("ij,jk->ik", [(2, 3)], wg.ArgumentError, "has 2 operand"),
        ("ij->ij", [(2, 3, 4)], wg.ShapeError, "names 2 axes, got 3"),
        ("ijk->ij", [(2, 3)], wg.ShapeError, "names 3 axes, got 2"),
        ("ij,jk->ik", [(2, 3), (4, 5)], wg.ShapeError, r"label 'j' of 'ij,jk->ik' has sizes 3 and 4"),
        ("ij->ik", [(2, 3)], wg.ArgumentError, "names k, which no operand has"),
        ("ij->ii", [(2, 3)], wg.ArgumentError, "repeats a label"),
        ("i1->i", [(2, 3)], wg.ArgumentError, "must consist of letters"),
        ("i..->i", [(2, 3)], wg.ArgumentError, "must consist of letters"),
        ("i->j->k", [(2,)], wg.ArgumentError, "must consist of letters"),
    ],
)
def test_einsum_refuses(equation: str, shapes: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=f"einsum: .*{message}"):
        wg.einsum(equation, *(wg.ones(s) for s in shapes))


def test_einsum_wants_the_equation_first() -> None:
    with pytest.raises(TypeError, match="the equation comes first"):
        wg.einsum(wg.ones((2,)), "i->i")  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------- products of other shapes


@pytest.mark.parametrize(
    ("a", "b"), [((2,), (3,)), ((2, 3), (3, 2)), ((2,), (3, 2)), ((2, 2, 2), (3,)), ((), (2, 2)), ((0,), (3,))]
)
def test_kron(a: Any, b: Any) -> None:
    x, y = real_and_complex(*a)[0], real_and_complex(*b, number=1)[1]
    np.testing.assert_allclose(wg.kron(wg.asarray(x), wg.asarray(y)).numpy(), np.kron(x, y))
    check(wg.kron, x, y)


@pytest.mark.parametrize(
    ("a", "b", "axis"), [((3,), (3,), -1), ((2, 3), (3,), -1), ((3, 2), (3, 2), 0), ((4, 1, 3), (2, 3), -1)]
)
def test_cross(a: Any, b: Any, axis: int) -> None:
    x, y = real_and_complex(*a)[0], real_and_complex(*b, number=1)[0]
    expected = np.cross(x, y, axis=axis) if axis else np.cross(x, y, axis=0)
    np.testing.assert_allclose(wg.cross(wg.asarray(x), wg.asarray(y), axis=axis).numpy(), expected, atol=1e-15)
    check(lambda p, q: wg.cross(p, q, axis=axis), x, y)


def test_cross_refuses() -> None:
    with pytest.raises(wg.ShapeError, match=r"cross: axis -1 must have 3 elements, got float32\(2,\)"):
        wg.cross(wg.ones((2,)), wg.ones((2,)))


def test_multi_dot() -> None:
    arrays = [real_and_complex(*s, number=k)[0] for k, s in enumerate([(4, 2), (2, 5), (5, 3), (3, 6)])]
    xs = [wg.asarray(a) for a in arrays]
    np.testing.assert_allclose(wg.linalg.multi_dot(xs).numpy(), np.linalg.multi_dot(arrays), rtol=1e-13)
    check(lambda *zs: wg.linalg.multi_dot(zs), *arrays)
    v, w = real_and_complex(4)[0], real_and_complex(6)[0]
    got = wg.linalg.multi_dot([wg.asarray(v), *xs, wg.asarray(w)])
    assert got.shape == ()
    np.testing.assert_allclose(got.item(), np.linalg.multi_dot([v, *arrays, w]))
    with pytest.raises(wg.ShapeError, match=r"multi_dot: float64\(4, 2\) and float64\(5, 3\) do not fit"):
        wg.linalg.multi_dot([xs[0], xs[2]])
    with pytest.raises(wg.ArgumentError, match="two operands or more"):
        wg.linalg.multi_dot([xs[0]])
