"""NumPy functions on tensors: NumPy itself on arrays is the judge of values, and finite differences of it of gradients."""

from __future__ import annotations

import inspect
import math
import operator

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import gradient, seeds_like

RNG = np.random.default_rng(3)
M = RNG.uniform(-2, 2, (3, 4))
P = RNG.uniform(0.3, 2.5, (3, 4))
V = RNG.uniform(-2, 2, 4)
S = RNG.uniform(-1, 1, (3, 3)) + 3 * np.eye(3)
UNIT = RNG.uniform(-0.9, 0.9, (3, 4))

# name, the call, its arrays
UNARY = ["sin", "cos", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "square", "absolute", "fabs", "negative",
         "positive", "arctan", "arcsinh", "cbrt", "deg2rad", "rad2deg", "degrees", "radians", "sign", "floor",
         "ceil", "trunc", "rint", "conjugate"]  # fmt: skip
POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "reciprocal"]
BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "maximum", "minimum", "fmax", "fmin",
          "hypot", "arctan2", "logaddexp", "logaddexp2", "copysign", "heaviside"]  # fmt: skip
TRUTH = [
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
]

CASES = {
    **{n: (getattr(np, n), (M,)) for n in UNARY},
    **{n: (getattr(np, n), (P,)) for n in POSITIVE},
    **{n: (getattr(np, n), (UNIT,)) for n in ("arcsin", "arccos", "arctanh", "tan")},
    "arccosh": (np.arccosh, (P + 1.2,)),
    **{n: (getattr(np, n), (M, P)) for n in BINARY},
    **{n + " broadcast": (getattr(np, n), (M, V)) for n in BINARY},
    "power": (np.power, (P, M)),
    "float_power": (np.float_power, (P, M)),
    "matmul": (np.matmul, (M, M.T)),
    "matvec": (np.matvec, (M, V)) if hasattr(np, "matvec") else (np.matmul, (M, V)),
    "vecdot": (np.vecdot, (M, P)),
    "sum": (np.sum, (M,)),
    "sum axis": (lambda x: np.sum(x, axis=0, keepdims=True), (M,)),
    "sum positional": (lambda x: np.sum(x, 1), (M,)),
    "sum where": (lambda x: np.sum(x, axis=0, where=M > 0), (M,)),
    "sum initial": (lambda x: np.sum(x, initial=2.5), (M,)),
    "prod": (lambda x: np.prod(x, axis=1), (M,)),
    "max": (lambda x: np.max(x, axis=1), (M,)),
    "amin": (lambda x: np.amin(x, axis=0, keepdims=True), (M,)),
    "max initial": (lambda x: np.max(x, axis=0, initial=0.1), (M,)),
    "mean": (lambda x: np.mean(x, axis=(0, 1)), (M,)),
    "var": (lambda x: np.var(x, axis=0, ddof=1), (M,)),
    "std": (lambda x: np.std(x, axis=1, keepdims=True), (M,)),
    "ptp": (lambda x: np.ptp(x, axis=0), (M,)),
    "average": (lambda x, w: np.average(x, axis=1, weights=w), (M, P)),
    "average vector": (lambda x, w: np.average(x, axis=1, weights=w), (M, P[0])),
    "cumsum": (np.cumsum, (M,)),
    "cumprod": (lambda x: np.cumprod(x, axis=1), (M,)),
    "nansum": (lambda x: np.nansum(x, axis=0), (M,)),
    "trace": (np.trace, (S,)),
    "diagonal": (lambda x: np.diagonal(x, 1), (S,)),
    "add.reduce": (np.add.reduce, (M,)),
    "add.reduce all": (lambda x: np.add.reduce(x, axis=None), (M,)),
    "maximum.reduce": (lambda x: np.maximum.reduce(x, axis=1), (M,)),
    "logaddexp.reduce": (lambda x: np.logaddexp.reduce(x, axis=1), (M,)),
    "add.accumulate": (np.add.accumulate, (M,)),
    "multiply.accumulate": (lambda x: np.multiply.accumulate(x, axis=1), (M,)),
    "multiply.outer": (np.multiply.outer, (V, M)),
    "subtract.outer": (np.subtract.outer, (V, V * 2)),
    "reshape": (lambda x: np.reshape(x, (2, -1)), (M,)),
    "ravel": (np.ravel, (M,)),
    "transpose": (np.transpose, (M,)),
    "transpose axes": (lambda x: np.transpose(x, (1, 0)), (M,)),
    "swapaxes": (lambda x: np.swapaxes(x, 0, 1), (M,)),
    "moveaxis": (lambda x: np.moveaxis(x, 0, 1), (M,)),
    "expand_dims": (lambda x: np.expand_dims(x, (0, 2)), (M,)),
    "squeeze": (lambda x: np.squeeze(x[None], axis=0), (M,)),
    "broadcast_to": (lambda x: np.broadcast_to(x, (2, 3, 4)), (M,)),
    "concatenate": (lambda x, y: np.concatenate([x, y, M], axis=0), (M, P)),
    "concatenate flat": (lambda x, y: np.concatenate((x, y), axis=None), (M, P)),
    "stack": (lambda x, y: np.stack([x, y], axis=1), (M, P)),
    "vstack": (lambda x, y: np.vstack([x, y]), (M, V)),
    "hstack": (lambda x, y: np.hstack([x, y]), (M, P)),
    "dstack": (lambda x, y: np.dstack([x, y]), (M, P)),
    "column_stack": (lambda x, y: np.column_stack([x, y]), (V, P[0])),
    "append": (lambda x, y: np.append(x, y), (M, V)),
    "split": (lambda x: np.split(x, 2, axis=1)[1], (M,)),
    "array_split": (lambda x: np.array_split(x, 3, axis=1)[0], (M,)),
    "flip": (np.flip, (M,)),
    "fliplr": (np.fliplr, (M,)),
    "flipud": (np.flipud, (M,)),
    "rot90": (np.rot90, (M,)),
    "rot90 back": (lambda x: np.rot90(x, -1), (M,)),
    "roll": (lambda x: np.roll(x, 1, axis=1), (M,)),
    "tile": (lambda x: np.tile(x, (2, 1)), (M,)),
    "repeat": (lambda x: np.repeat(x, 2, axis=1), (M,)),
    "pad": (lambda x: np.pad(x, ((1, 0), (0, 2))), (M,)),
    "pad value": (lambda x: np.pad(x, 1, constant_values=3.0), (M,)),
    "pad symmetric": (lambda x: np.pad(x, 2, mode="symmetric"), (M,)),
    "pad edge": (lambda x: np.pad(x, 1, mode="edge"), (M,)),
    "tril": (np.tril, (M,)),
    "triu": (lambda x: np.triu(x, 1), (M,)),
    "diag": (np.diag, (V,)),
    "atleast_2d": (np.atleast_2d, (V,)),
    "copy": (np.copy, (M,)),
    "where": (lambda x, y: np.where(M > 0, x, y), (M, P)),
    "clip": (lambda x: np.clip(x, -1.0, 1.0), (M,)),
    "clip one side": (lambda x: np.clip(x, None, 1.0), (M,)),
    "nan_to_num": (np.nan_to_num, (M,)),
    "sinc": (np.sinc, (M,)),
    "dot": (np.dot, (M, V)),
    "dot matrices": (np.dot, (M, M.T)),
    "inner": (np.inner, (M, V)),
    "vdot": (np.vdot, (M, P)),
    "outer": (np.outer, (M, V)),
    "tensordot": (lambda x, y: np.tensordot(x, y, axes=((1,), (1,))), (M, P)),
    "take": (lambda x: np.take(x, [2, 0, 2], axis=1), (M,)),
    "take flat": (lambda x: np.take(x, [[5, 0], [1, 1]]), (M,)),
    "take_along_axis": (lambda x: np.take_along_axis(x, np.argsort(M, 1), axis=1), (M,)),
    "meshgrid": (lambda x, y: np.multiply(*np.meshgrid(x, y)), (V, P[0])),
    "median": (lambda x: np.median(x, axis=1), (M,)),
    "quantile": (lambda x: np.quantile(x, 0.3, axis=1), (M,)),
    "percentile": (lambda x: np.percentile(x, 30, axis=1), (M,)),
    "diff": (lambda x: np.diff(x, axis=1), (M,)),
    "sort": (lambda x: np.sort(x, axis=1), (M,)),
    "sort flat": (lambda x: np.sort(x, axis=None), (M,)),
    "einsum": (lambda x, y: np.einsum("ij,kj->ik", x, y), (M, P)),
    "kron": (np.kron, (M, V)),
    "cross": (np.cross, (M[:, :3], P[:, :3])),
    "multi_dot": (lambda x, y, z: np.linalg.multi_dot([x, y, z]), (V, M.T, P)),
    "linalg.norm": (np.linalg.norm, (M,)),
    "linalg.norm axis": (lambda x: np.linalg.norm(x, axis=1, keepdims=True), (M,)),
    "linalg.norm nuc": (lambda x: np.linalg.norm(x, "nuc"), (M,)),
    "linalg.norm 1": (lambda x: np.linalg.norm(x, 1, axis=(0, 1)), (M,)),
    "linalg.det": (np.linalg.det, (S,)),
    "linalg.slogdet": (lambda x: np.linalg.slogdet(x)[1], (S,)),
    "linalg.inv": (np.linalg.inv, (S,)),
    "linalg.pinv": (np.linalg.pinv, (M,)),
    "linalg.solve": (np.linalg.solve, (S, M)),
    "linalg.cholesky": (lambda x: np.linalg.cholesky(x @ x.T + np.eye(3)), (S,)),
    "linalg.svd": (lambda x: np.linalg.svd(x, compute_uv=False), (M,)),
    "linalg.eigvalsh": (lambda x: np.linalg.eigvalsh(x + x.T), (S,)),
    "linalg.eigvalsh upper": (lambda x: np.linalg.eigvalsh(x + x.T, UPLO="U"), (S,)),
    "linalg.eigh upper": (lambda x: np.abs(np.linalg.eigh(x + x.T, "U")[1]), (S,)),
    "gradient": (lambda x: np.gradient(x)[1], (M,)),
    "angle": (np.angle, (M,)),
    "linalg.matrix_power": (lambda x: np.linalg.matrix_power(x, 3), (S,)),
    "fft.fft": (lambda x: np.abs(np.fft.fft(x)), (M,)),
    "fft.rfft": (lambda x: np.real(np.fft.rfft(x, axis=0)), (M,)),
    "fft.irfft": (lambda x: np.fft.irfft(np.fft.rfft(x) * 2.0), (M,)),
    "fft.fft2": (lambda x: np.imag(np.fft.fft2(x)), (M,)),
    "fft.fftshift": (lambda x: np.fft.fftshift(x), (M,)),
    "operators": (lambda x, y: (2.0 - x) * (y + 1) / (3.0 + x**2), (M, P)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    f, arrays = CASES[name]
    tensors = [wg.tensor(a, requires_grad=True) for a in arrays]
    expected, y = np.asarray(f(*arrays)), f(*tensors)
    assert isinstance(y, wg.Tensor)
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12, atol=1e-13)
    (seed,) = seeds_like([expected])
    grads = (y * wg.asarray(seed)).sum().backward()
    for t, g in zip(tensors, gradient(lambda *xs: np.sum(seed * f(*xs)), arrays)):
        np.testing.assert_allclose(grads[t].numpy(), g, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_forward_mode(name):
    f, arrays = CASES[name]
    dots = seeds_like(arrays, 1)
    y, y_dot = wg.jvp(f, tuple(map(wg.asarray, arrays)), tuple(map(wg.asarray, dots)))
    (seed,) = seeds_like([np.asarray(f(*arrays))])
    gradients = gradient(lambda *xs: np.sum(seed * f(*xs)), arrays)
    along = sum(np.sum(g * d) for g, d in zip(gradients, dots))
    np.testing.assert_allclose(np.sum(seed * y_dot.numpy()), along, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", TRUTH)
def test_comparisons(name):
    f = getattr(np, name)
    y = f(wg.asarray(M > 0 if "logical" in name else M), P > 1 if "logical" in name else P)
    assert isinstance(y, wg.Tensor)
    assert y.dtype == wg.bool_
    np.testing.assert_array_equal(y.numpy(), f(M > 0 if "logical" in name else M, P > 1 if "logical" in name else P))


ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("f", [*ARITHMETIC, *COMPARISONS])
@pytest.mark.parametrize("left", [P, P.astype(np.float32), np.float64(1.5), np.int64(2), np.float32(0.7)], ids=repr)
def test_a_numpy_operand_on_the_left(f, left):
    x = wg.tensor(P[::-1] + 0.1, requires_grad=True)
    y = f(left, x)
    assert isinstance(y, wg.Tensor)
    np.testing.assert_allclose(y.detach().numpy(), f(left, x.detach().numpy()), rtol=1e-14)
    assert y.requires_grad == (f in ARITHMETIC)


@pytest.mark.parametrize("f", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_an_integer_array_on_the_left(f):
    a, b = np.array([1, 6, 12]), np.array([3, 2, 1])
    y = f(a, wg.asarray(b))
    assert isinstance(y, wg.Tensor)
    assert y.tolist() == f(a, b).tolist()


def test_scalars_of_numpy_are_weak():
    x = wg.tensor([1.0, 2.0])
    for scalar in (np.float64(2.0), np.int64(3), np.float32(1.0), np.bool_(True)):
        assert np.multiply(x, scalar).dtype == (scalar * x).dtype == np.add(scalar, x).dtype == wg.float32
    assert np.add(np.array(1.0), x).dtype == wg.float64  # an array is an array, with axes or without


def test_several_results():
    x = wg.asarray(M)
    whole, rest = np.divmod(x, 0.7)
    np.testing.assert_allclose(whole.numpy(), M // 0.7)
    np.testing.assert_allclose(rest.numpy(), M % 0.7)
    fraction, whole = np.modf(wg.tensor([2.5, -2.5, np.inf]))
    assert fraction.tolist() == [0.5, -0.5, 0.0]
    assert whole.tolist() == [2.0, -2.0, np.inf]


def test_out():
    x, out = wg.asarray(M), wg.zeros((3, 4), dtype="float64")
    assert np.exp(x, out=out) is out
    np.testing.assert_allclose(out.numpy(), np.exp(M))
    array = np.zeros(4)
    assert np.sum(x, axis=0, out=array) is array
    np.testing.assert_allclose(array, M.sum(0))
    array += wg.asarray(V)
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array, M.sum(0) + V)
    with pytest.raises(TypeError, match="a = a \\+ t"):
        array += wg.tensor(V, requires_grad=True)


def test_dtype_argument():
    x = wg.tensor([1.0, 2.0])
    assert np.add(x, 1.0, dtype=np.float64).dtype == wg.float64
    assert np.sum(x, dtype=np.float64).dtype == np.var(x, dtype=np.float64).dtype == wg.float64
    assert np.concatenate([x, x], dtype=np.float64).dtype == wg.float64
    assert np.zeros_like(x).dtype == wg.float32
    assert np.full_like(x, 7, dtype=int).tolist() == [7, 7]


def test_questions_about_data():
    x = wg.asarray(M)
    assert np.shape(x) == (3, 4)
    assert np.ndim(x) == 2
    assert np.size(x, 1) == 4
    assert np.array_equal(x, M)
    assert np.allclose(x, M + 1e-12)
    assert np.shares_memory(x, M)
    assert np.result_type(x, wg.float32) == wg.float64
    target = np.zeros((3, 4))
    np.copyto(target, x)
    np.testing.assert_array_equal(target, M)


def test_kinds_of_numbers():
    z, x = np.array([1 + 2j, 3, -1j]), np.array([1.0, math.inf, -math.inf, math.nan])
    for f in (np.iscomplex, np.isreal):
        assert f(wg.asarray(z)).tolist() == f(z).tolist()
        assert f(wg.asarray(x)).tolist() == f(x).tolist()
    for f in (np.isposinf, np.isneginf):
        assert f(wg.asarray(x)).tolist() == f(x).tolist()
    assert np.angle(wg.asarray(x)).dtype == wg.float64
    assert isinstance(np.gradient(wg.asarray(M)), tuple)


def test_columns_of_plots_are_data():
    x, nothing = np.broadcast_arrays(wg.asarray(V), None)
    assert isinstance(x, np.ndarray)
    assert nothing.shape == (4,)


def test_inside_compiled_functions():
    @wg.compile
    def f(x, w):
        return np.sum(np.tanh(x @ w) * np.float64(2.0), axis=0)

    x, w = wg.tensor(M), wg.tensor(M.T, requires_grad=True)
    y = f(x, w)
    np.testing.assert_allclose(y.detach().numpy(), 2 * np.tanh(M @ M.T).sum(0), rtol=1e-12)
    assert np.all(np.isfinite(y.sum().backward()[w]))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda t: np.spacing(t), "np.spacing"),
        (lambda t: np.unwrap(t), "np.unwrap"),
        (lambda t: np.multiply.at(t, [0], 1.0), "np.multiply.at"),
        (lambda t: np.add.reduceat(t, [0]), "np.add.reduceat"),
        (lambda t: np.subtract.reduce(t), "np.subtract.reduce"),
        (lambda t: np.linalg.tensorinv(t), "np.linalg.tensorinv"),
        (lambda t: np.lib.stride_tricks.sliding_window_view(t, 2), "sliding_window_view"),
    ],
)
def test_functions_that_are_not_there(call, name):
    with pytest.raises(TypeError, match=name) as e:
        call(wg.tensor(V))
    assert "t.detach().numpy()" in str(e.value)


def test_options_without_counterpart():
    x = wg.tensor(V)
    with pytest.raises(TypeError, match="wg.where"):
        np.exp(x, where=V > 0)
    with pytest.raises(TypeError, match="np.reshape: order='F'"):
        np.reshape(x, (2, 2), order="F")
    with pytest.raises(TypeError, match="mode='wrap'"):
        np.take(x, [9], mode="wrap")
    with pytest.raises(ValueError, match="initial"):
        np.max(x, where=V > 0)
    with pytest.raises(TypeError, match="np.copy: order='F'"):
        np.copy(x, order="F")


def test_every_entry_of_the_table_is_a_function_of_numpy():
    from wengert.interop.numpy_functions import registry, table

    for name in (
        *table._FUNCTIONS,
        *registry.FUNCTIONS,
        *registry.DATA_ONLY,
        *table._REDUCTIONS,
    ):
        found = np
        for part in name.split("."):
            found = getattr(found, part, None)
        assert found is not None or name in ("unstack", "row_stack", "cumulative_sum", "cumulative_prod"), name
    both = set(table._FUNCTIONS) & set(registry.FUNCTIONS)
    assert not both


def test_every_entry_of_the_table_is_a_function_of_ours_with_these_parameters():
    from wengert.interop.numpy_functions import table

    missing = [n for n in (*table._UFUNCS, *table._REDUCE, *table._ACCUMULATE) if table.ufunc(n) is None]
    assert not missing
    for name, entry in table._FUNCTIONS.items():
        path, _, parameters = entry.partition(":")
        target = table.ours(path)
        assert target is not None, name
        keywords = [n.split("=")[-1] for n in parameters.partition("|")[2].split()]
        known = set() if not keywords else set(inspect.signature(target).parameters)
        unknown = [k for k in keywords if k not in known and k not in table._IDLE and k not in table.OPTIONAL]
        assert not unknown, (name, unknown)
