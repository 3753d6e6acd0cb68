"""Sparse Jacobians and Hessians: patterns, colourings, values."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.transforms.sparse_programs import CASES, Case, N, arrow, at, broyden_tridiagonal, laplacian, rosenbrock

sparse = pytest.importorskip("scipy.sparse", reason="sparse derivatives are matrices of SciPy")


def _dense(case: Case) -> Any:
    """The dense derivative, flattened."""
    blocks = (wg.hessian if case.what == "hessian" else wg.jacobian)(case.function)(case.point)
    xs = wg.tree.leaves(case.point)
    ys = wg.tree.leaves(case.function(case.point)) if case.what == "jacobian" else xs
    parts = iter(wg.tree.leaves(blocks))
    return np.block([[np.asarray(next(parts)).reshape(y.size, x.size) for x in xs] for y in ys])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_known_programs(case: Case) -> None:
    if case.what == "hessian":
        pattern = wg.hessian_sparsity(case.function, case.point)
        colouring = wg.colour(pattern, "symmetric")
        made = wg.hessian(case.function, sparse=True)(case.point)
    else:
        pattern = wg.jacobian_sparsity(case.function, case.point)
        colouring = wg.colour(pattern, "columns")
        made = wg.jacobian(case.function, sparse=True)(case.point)
    assert pattern.nnz == case.entries
    assert colouring.n_colours <= case.colours
    assert isinstance(made, sparse.csr_array) and made.nnz == case.entries
    assert made.indices.dtype == made.indptr.dtype == np.int32
    dense = _dense(case)
    np.testing.assert_allclose(made.toarray(), dense, rtol=1e-12, atol=1e-12 * np.abs(dense).max())
    assert np.count_nonzero(dense) == case.entries  # there are no others that the pattern could leave out


@pytest.mark.parametrize("kind", ["columns", "rows", "both"])
@pytest.mark.parametrize("case", [c for c in CASES.values() if c.what == "jacobian"], ids=lambda c: c.function.__name__)
def test_kinds_of_colourings_agree(case: Case, kind: str) -> None:
    colouring = wg.colour(wg.jacobian_sparsity(case.function, case.point), kind)
    made = wg.jacobian(case.function, sparsity=colouring)(case.point)
    np.testing.assert_allclose(made.toarray(), _dense(case), rtol=1e-12, atol=1e-12)
    assert (colouring.n_columns == 0) == (kind == "rows") or kind == "both"


def test_exact_numbers_of_colours() -> None:
    for name, count in (("Rosenbrock", 3), ("arrow", 2)):
        assert wg.colour(wg.hessian_sparsity(CASES[name].function, CASES[name].point), "symmetric").n_colours == count
    for name, count in (("tridiagonal", 3), ("bundle adjustment", 15), ("permutation", 1), ("block diagonal", 5)):
        assert wg.colour(wg.jacobian_sparsity(CASES[name].function, CASES[name].point), "columns").n_colours == count


def _arrow_jacobian(x: Any) -> Any:
    return wg.concat([wg.sum(x * x, keepdims=True), x[0] * x[1:]])


def test_rows_and_columns_together_take_fewer_passes() -> None:
    x = at(N)
    pattern = wg.jacobian_sparsity(_arrow_jacobian, x)
    assert wg.colour(pattern, "columns").n_colours == wg.colour(pattern, "rows").n_colours == N
    both = wg.colour(pattern, "auto")
    assert both.kind == "both" and (both.n_columns, both.n_rows) == (2, 1)
    made = wg.jacobian(_arrow_jacobian, sparse=True)(x)
    np.testing.assert_allclose(made.toarray(), np.asarray(wg.jacobian(_arrow_jacobian)(x)))


@pytest.mark.parametrize("seed", range(5))
def test_colourings_of_random_patterns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = (rng.random((23, 31)) < 0.12) * rng.uniform(1.0, 2.0, (23, 31))
    square = (rng.random((29, 29)) < 0.06) * rng.uniform(1.0, 2.0, (29, 29))
    square = square + square.T
    for kind in ("auto", "columns", "rows", "both"):
        assert np.array_equal(_recovered(wg.colour(matrix, kind), matrix), matrix)
    assert np.array_equal(_recovered(wg.colour(square, "symmetric"), square), square)


def _recovered(colouring: Any, matrix: Any) -> Any:
    forward, reverse = colouring.seeds(float)
    results = np.concatenate([(matrix @ forward.T).T.ravel(), (reverse @ matrix).ravel()])
    return colouring.sparsity.matrix(results[colouring.places]).toarray()


def test_hubs_do_not_take_long() -> None:
    n = 20_000
    pattern = wg.hessian_sparsity(arrow, wg.ones((n,)))
    assert wg.colour(pattern, "symmetric").n_colours <= 3


# --------------------------------------------------------------------------------------------------------------- copies


def _passes(f: Any, *args: Any) -> int:
    """How many passes there are, once the results are known to be right."""
    j = wg.jacobian(f, sparse=True)
    made = j(*args).toarray()
    expected = wg.jacobian(f, "forward", sparse=True)(*args).toarray()
    np.testing.assert_allclose(made, expected, rtol=1e-12, atol=1e-12)
    return int(j.func._plan(args, {}).passes.n_colours)


def test_residuals_with_copies_of_their_own_take_one_pass() -> None:
    for name, count in {
        "five-point Laplacian": 1, "tridiagonal": 1, "Broyden banded": 1, "Brusselator": 2, "bundle adjustment": 3,
        "block diagonal": 5, "permutation": 1,
    }.items():  # fmt: skip
        assert _passes(CASES[name].function, CASES[name].point) == count, name


def test_entries_from_several_copies_are_added_up() -> None:
    order, x = wg.tensor([0, 2, 1, 0]), at(4)
    assert _passes(lambda x: x * wg.sin(x[order]), x) == 1
    assert _passes(lambda x: x * x[order] * x[order[1]] * wg.flip(x), x) == 1
    orders = [wg.tensor([[0, 1, 2, 3], [3, 2, 1, 0]][k % 2]) for k in range(10)]
    assert _passes(lambda x: sum(wg.sin(x[i]) for i in orders), x) == 2  # five terms would be too many


def test_copies_beside_other_things() -> None:
    scale, x = wg.asarray(np.array([2.0, 3.0])), at(5)

    def f(x: Any, s: Any, i: Any) -> Any:
        padded = wg.pad(x, ((1, 0),))
        return {"a": padded[:-1] * x * s, "b": wg.stack([x[i], x[0] * scale]), "c": wg.tensor([1.0]), "d": x[1:]}

    i = wg.tensor([4, 4])
    assert _passes(f, x, wg.tensor(2.0), i) <= 5
    j = wg.jacobian(f, sparse=True)
    for other in ([4, 4], [0, 3]):
        made = j(x, 2.0, wg.tensor(other))
        dense = wg.jacobian(f)(x, 2.0, wg.tensor(other))
        np.testing.assert_allclose(
            made.toarray(), np.concatenate([np.asarray(b).reshape(-1, 5) for b in dense.values()])
        )


def test_copies_chosen_by_what_has_no_derivative() -> None:
    """Comparisons and stopped gradients have no derivative, and still change with the arguments."""
    x = at(5)
    assert _passes(lambda x: x[1:] * wg.stop_gradient(wg.exp(2 * x))[:-1].abs(), x) == 1
    assert _passes(lambda x: wg.where(2 * x[1:] > x[:-1], x[1:], x[:-1]) * x[1:], x) == 1
    pairs = lambda x: wg.logsumexp(wg.stack([x[1:], x[:-1] * 2.0], axis=1), axis=1)  # less its largest element
    assert _passes(pairs, x) == 1


# ------------------------------------------------------------------------------------------------------------ functions


def test_containers_and_several_arguments() -> None:
    def f(p: Any, scale: Any, power: int = 2) -> Any:
        return {"a": p["x"][1:] * p["y"], "b": scale * p["y"] ** power}

    p = {"x": at(4), "y": wg.asarray(np.float32([1.0, 2.0, 3.0]))}
    made = wg.jacobian(f, argnums=(0, 1), sparse=True)(p, wg.tensor(2.0), power=3)
    blocks = wg.jacobian(f, argnums=(0, 1))(p, wg.tensor(2.0), power=3)
    rows = [[*wg.tree.leaves(blocks[k][0]), blocks[k][1]] for k in ("a", "b")]
    dense = np.block([[np.asarray(b).reshape(3, -1) for b in row] for row in rows])
    np.testing.assert_allclose(made.toarray(), dense, rtol=1e-6)
    assert made.nnz == 3 + 3 + 3 + 3


def test_results_are_independent() -> None:
    h, x = wg.hessian(rosenbrock, sparse=True), at(N)
    a = h(x)
    before = a.toarray()
    b = h(2.0 * x)
    b.eliminate_zeros()
    b.data[:] = 0.0
    assert np.array_equal(a.toarray(), before) and np.array_equal(h(x).toarray(), before)


@pytest.mark.parametrize("chunk", [1, 2])
def test_in_chunks(chunk: int) -> None:
    x = at(N)
    made = wg.jacobian(broyden_tridiagonal, sparse=True, chunk=chunk)(x)
    np.testing.assert_allclose(made.toarray(), np.asarray(wg.jacobian(broyden_tridiagonal)(x)))


def test_float32_and_arrays() -> None:
    x = np.linspace(0.5, 1.0, 8, dtype=np.float32)
    made = wg.hessian(rosenbrock, sparse=True)(x)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made.toarray(), np.asarray(wg.hessian(rosenbrock)(wg.asarray(x))), rtol=1e-5)


def test_other_shapes_make_other_plans() -> None:
    h = wg.hessian(rosenbrock, sparse=True)
    assert [h(at(n)).shape for n in (3, 5, 3, 2)] == [(3, 3), (5, 5), (3, 3), (2, 2)]


def test_one_number_and_none() -> None:
    assert wg.jacobian(lambda x: x * x, sparse=True)(wg.tensor(3.0)).toarray().tolist() == [[6.0]]
    made = wg.jacobian(lambda x: wg.floor(x), sparse=True)(wg.tensor([1.5, 2.5]))
    assert made.shape == (2, 2) and made.nnz == 0


def test_compiled_functions_and_copies() -> None:
    x = at(6)
    h = wg.hessian(wg.compile(rosenbrock), sparse=True)
    np.testing.assert_allclose(h(x).toarray(), np.asarray(wg.hessian(rosenbrock)(x)))
    again = pickle.loads(pickle.dumps(wg.hessian(rosenbrock, sparse=True)))
    assert np.array_equal(again(x).toarray(), copy.deepcopy(h)(x).toarray())


def test_what_requires_gradients_gives_numbers() -> None:
    weight, x = wg.Parameter(at(3)), wg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for f in (lambda x: x * weight, lambda x: (x * weight)[::-1] * x):
        made = wg.jacobian(f, sparse=True)(x)
        np.testing.assert_allclose(made.toarray(), np.asarray(wg.jacobian(f)(x).detach()), rtol=1e-6)
    for mode in (wg.no_grad, wg.enable_grad):
        with mode():
            assert wg.hessian(rosenbrock, sparse=True)(x).nnz == 7
    with wg.GradientTape() as tape:
        assert wg.hessian(rosenbrock, sparse=True)(x).nnz == 7
    assert x.grad is None and tape is not None


# ------------------------------------------------------------------------------------------------- what patterns depend on


def test_indices_that_change() -> None:
    order = wg.tensor([2, 0, 1])
    closing = wg.jacobian(lambda x: x[order] * 2.0, sparse=True)
    given = wg.jacobian(lambda x, i: x[i] * 2.0, sparse=True)
    x = at(3)
    for i in ([2, 0, 1], [0, 1, 2], [1, 1, 1]):
        order[:] = wg.tensor(i)
        expected = 2.0 * np.eye(3)[i]
        assert np.array_equal(closing(x).toarray(), expected)
        assert np.array_equal(given(x, wg.tensor(i)).toarray(), expected)


def test_constants_that_change() -> None:
    shift = 1

    def f(x: Any) -> Any:
        return x[shift:] * x[: x.shape[0] - shift]

    j = wg.jacobian(f, sparse=True)
    for shift in (1, 2, 1):
        x = at(5)
        made = j(x)
        assert made.nnz == 2 * (5 - shift)
        np.testing.assert_allclose(made.toarray(), np.asarray(wg.jacobian(f)(x)))


def test_sorting_and_branches_depend_on_all_that_may_be() -> None:
    x = wg.tensor([3.0, 1.0, 2.0])
    assert wg.jacobian_sparsity(wg.sort, x).nnz == 9
    np.testing.assert_allclose(wg.jacobian(wg.sort, sparse=True)(x).toarray(), np.eye(3)[[1, 2, 0]])

    def branching(x: Any) -> Any:
        return wg.cond(x[0] > 0, lambda x: x * x, lambda x: x + x[0], x)

    pattern = wg.jacobian_sparsity(branching, x)
    assert pattern.nnz == 5 and (2, 0) in pattern and (0, 2) not in pattern


@pytest.mark.parametrize("turns", [5, 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_loops(turns: int, reverse: bool) -> None:
    def f(x: Any) -> Any:
        def turn(c: Any, y: Any) -> Any:
            return c * y, c + y

        return wg.scan(turn, x[0], x[1:], reverse=reverse)

    x = wg.asarray(np.linspace(0.9, 1.1, turns + 1))
    pattern = wg.jacobian_sparsity(f, x).matrix().toarray()
    dense = np.concatenate([np.asarray(b).reshape(-1, turns + 1) for b in wg.compile(wg.jacfwd(f))(x)])
    assert not (dense != 0)[~pattern].any()
    if turns == 5:
        assert np.array_equal(pattern, dense != 0)
    np.testing.assert_allclose(wg.jacobian(f, sparse=True)(x).toarray(), dense, rtol=1e-12, atol=1e-12)


def test_products_with_constants() -> None:
    tridiagonal = np.tri(6, k=1) * np.tri(6, k=1).T
    matrix = wg.asarray(tridiagonal)
    x = at(6)
    assert wg.jacobian_sparsity(lambda x: matrix @ x, x).nnz == 16
    assert wg.jacobian_sparsity(lambda x: x @ matrix * x[0], x).nnz == 16 + 4
    stored = sparse.csr_array(tridiagonal)
    j = wg.jacobian(lambda x: wg.sin(stored @ x), sparse=True)(x)
    assert j.nnz == 16
    np.testing.assert_allclose(j.toarray(), np.diag(np.cos(tridiagonal @ np.asarray(x))) @ tridiagonal, rtol=1e-12)


def test_custom_operations_depend_on_everything() -> None:
    @wg.custom_op
    def twice(x: Any) -> Any:
        return wg.asarray(2.0 * x.numpy())

    @twice.defjvp
    def _(x_dot: Any, y: Any, x: Any) -> Any:
        return 2.0 * x_dot

    x = at(3)
    assert wg.jacobian_sparsity(twice, x).nnz == 9
    assert np.array_equal(wg.jacobian(twice, sparse=True)(x).toarray(), 2.0 * np.eye(3))


# ---------------------------------------------------------------------------------------------------- patterns by users


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.coo_matrix, wg.Sparsity])
def test_patterns_that_are_given(make: Any) -> None:
    x = at(N)
    tridiagonal = np.tri(N, k=1) * np.tri(N, k=1).T
    made = wg.jacobian(broyden_tridiagonal, sparsity=make(tridiagonal), check=True)(x)
    np.testing.assert_allclose(made.toarray(), np.asarray(wg.jacobian(broyden_tridiagonal)(x)))


def test_functions_that_cannot_be_traced_take_a_pattern() -> None:
    def f(x: Any) -> Any:
        return x * x if x[0] > 0 else -x

    x = at(4)
    with pytest.raises(wg.TraceError, match="sparsity"):
        wg.jacobian(f, sparse=True)(x)
    assert np.array_equal(wg.jacobian(f, sparsity=np.eye(4))(x).toarray(), 2.0 * np.diag(np.asarray(x)))


@pytest.mark.parametrize("what", ["jacobian", "hessian"])
def test_a_pattern_that_lacks_an_entry(what: str) -> None:
    x = at(6)
    f = rosenbrock if what == "hessian" else broyden_tridiagonal
    diagonal = np.eye(6)
    with pytest.raises(wg.SparsityError, match=rf"{what}: the pattern lacks the entry \(0, 1\), which is -?\d"):
        getattr(wg, what)(f, sparsity=diagonal, check=True)(x)
    getattr(wg, what)(f, sparse=True, check=True)(x)


def test_dense_results_where_sparse_ones_are_more_work() -> None:
    x = at(N)
    assert isinstance(wg.hessian(lambda x: (x.sum() ** 2).sum(), sparse="auto")(x), wg.Tensor)
    assert isinstance(wg.hessian(rosenbrock, sparse="auto")(x), sparse.csr_array)
    assert isinstance(wg.jacobian(laplacian, sparse="auto")(at(7, 7)), sparse.csr_array)
    assert isinstance(wg.jacobian(wg.cumsum, sparse="auto")(x), wg.Tensor)


# --------------------------------------------------------------------------------------------------------------- errors


def test_nothing_is_differentiated_through_a_sparse_matrix() -> None:
    j, x = wg.jacobian(lambda x: x[1:] * x[:-1], sparse=True), at(4)
    j(x)  # what is known already is checked too
    with pytest.raises(
        wg.GradientError, match=r"through which there are no derivatives; use sparse=False, or x.detach\(\)"
    ):
        wg.grad(lambda x: wg.asarray(j(x).sum()) * x.sum())(x)
    for around in (lambda: wg.jvp(j, (x,), (x,)), lambda: wg.vmap(j)(wg.stack([x, x])), lambda: wg.compile(j)(x)):
        with pytest.raises(wg.TraceError, match="outside of what is traced or differentiated"):
            around()
    inside = wg.grad(lambda x: (wg.asarray(j(x.detach()).toarray()) @ x).sum())(x)
    np.testing.assert_allclose(inside.numpy(), j(x).toarray().sum(axis=0))


def test_what_is_wrong_is_said() -> None:
    x = at(4)
    with pytest.raises(wg.ArgumentError, match="sparse must be True, False or 'auto', got 'yes'"):
        wg.jacobian(wg.sin, sparse="yes")
    with pytest.raises(wg.ArgumentError, match="mode of a sparse Jacobian"):
        wg.jacobian(wg.sin, "mixed", sparse=True)
    with pytest.raises(wg.ArgumentError, match="kind must be one of"):
        wg.colour(np.eye(3), "star")
    with pytest.raises(wg.ArgumentError, match="not symmetric"):
        wg.colour(np.tri(3), "symmetric")
    with pytest.raises(wg.ArgumentError, match="a pattern must be a Sparsity"):
        wg.jacobian(wg.sin, sparsity="diagonal")
    with pytest.raises(wg.ShapeError, match="the pattern is 3 × 3, but there are 4 elements of the arguments"):
        wg.jacobian(wg.sin, sparsity=np.eye(3))(x)
    for mode in ("forward", "reverse"):
        with pytest.raises(wg.ShapeError, match="the pattern is 3 × 4, but there are 4 results"):
            wg.jacobian(wg.sin, mode, sparsity=np.eye(3, 4))(x)
    with pytest.raises(wg.DTypeError, match="real floating tensors, got complex"):
        wg.jacobian(wg.sin, sparse=True)(wg.tensor([1j]))
    with pytest.raises(wg.DTypeError, match="int64"):
        wg.jacobian(lambda i: i * 2, sparse=True)(wg.tensor([1]))
    with pytest.raises(wg.TraceError, match=r"outside of what is traced or differentiated"):
        wg.compile(wg.jacobian(wg.sin, sparse=True))(x)


@pytest.mark.parametrize("f", [lambda z: z * z, lambda z: z[1:] * z[:-1]], ids=["columns", "copies"])
@pytest.mark.parametrize("x", [wg.tensor([1j, 2.0, 3.0]), wg.tensor([1, 2, 3])], ids=["complex", "integers"])
def test_arguments_must_be_real_however_the_entries_are_found(f: Any, x: Any) -> None:
    with pytest.raises(wg.DTypeError, match="real floating tensors, got"):
        wg.jacobian(f, sparse=True)(x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: wg.exp(1j * x[1:]) * x[:-1],
        lambda x: wg.exp(1j * x.sum())[None],
        lambda x: (x[1:] * x[:-1], 1j * x[:2]),
    ],
    ids=["copies", "one row", "two results"],
)
def test_complex_results_keep_their_imaginary_parts(f: Any) -> None:
    x = wg.asarray(np.linspace(0.3, 1.7, 5))
    expected = np.concatenate([b.numpy().reshape(-1, 5) for b in wg.tree.leaves(wg.jacfwd(f)(x))])
    for mode in ("auto", "forward"):
        np.testing.assert_allclose(wg.jacobian(f, mode, sparse=True)(x).toarray(), expected, rtol=1e-12)
    with pytest.raises(wg.DTypeError, match=r'a result is complex128\(\d,\), .*use mode="forward"'):
        wg.jacobian(f, "reverse", sparse=True)(x)


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16])
def test_matrices_of_half_precision_are_of_single(dtype: Any) -> None:
    x = wg.tensor([1.0, 2.0, 3.0], dtype=dtype)
    found = wg.jacobian(lambda x: x[1:] * x[:-1], sparse=True, check=True)(x)
    assert found.dtype == np.float32
    with pytest.raises(wg.SparsityError, match=r"lacks the entry \(0, 1\), which is 1"):
        wg.jacobian(lambda x: x[1:] * x[:-1], sparsity=np.eye(2, 3), check=True)(x)
    assert found.toarray().tolist() == [[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]]


def test_matrices_of_results_without_derivatives_are_zeros() -> None:
    found = wg.jacobian(lambda x: x[1:] > x[:-1], sparse=True, check=True)(wg.ones((3,)))
    assert found.dtype == np.float32 and found.shape == (2, 3) and found.nnz == 0


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_rounding_errors_of_terms_that_cancel_are_no_wrong_rows(mode: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = wg.asarray(rng.normal(size=7))
        found = wg.jacobian(lambda x: wg.cumsum(wg.softmax(x)), mode, sparse=True, check=True)(x)
        np.testing.assert_allclose(found.toarray()[-1], 0.0, atol=1e-15)
    with pytest.raises(wg.SparsityError, match=r"lacks the entry \(0, 1\)"):
        wg.jacobian(lambda x: wg.cumsum(wg.softmax(x)), mode, sparsity=np.eye(7), check=True)(x)


def test_complex_results_are_checked_forward() -> None:
    x = wg.asarray(np.linspace(0.3, 1.7, 5))
    f = lambda x: 1j * x * wg.flip(x)
    found = wg.jacobian(f, "forward", sparse=True, check=True)(x)
    np.testing.assert_allclose(found.toarray(), wg.jacfwd(f)(x).numpy())
    with pytest.raises(wg.SparsityError, match=r"lacks the entry \(0, 4\), which is 0\+0.3j"):
        wg.jacobian(f, "forward", sparsity=np.eye(5), check=True)(x)


def test_patterns_that_are_not_sparse() -> None:
    x = wg.ones((30_000,))
    with pytest.raises(wg.SparsityError, match="it is not sparse"):
        wg.jacobian(lambda x: x * x.sum(), sparse=True)(x)
