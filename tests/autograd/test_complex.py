"""Complex tensors: gradients by PyTorch's convention, dL/dRe z + i dL/dIm z, in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.dtypes import as_dtype
from wengert.ops import OPS
from wengert.passes.derive import derive
from wengert.program.ir import Instruction, Program, Type, Var, infer


def _z() -> Any:
    return wg.tensor(np.array([1 + 2j, 3 - 1j]), requires_grad=True)


def test_products() -> None:
    z = _z()
    seed = np.array([1 + 0j, 2 + 1j])
    grads = (z * z).backward(wg.tensor(seed))
    np.testing.assert_allclose(grads[z].numpy(), seed * np.conj(2 * z.numpy()))


def test_squared_size() -> None:
    z = _z()
    grads = (z * wg.conj(z)).real.sum().backward()
    np.testing.assert_allclose(grads[z].numpy(), 2 * z.numpy())


def test_without_a_seed_only_real_numbers_have_gradients() -> None:
    z = _z()
    with pytest.raises(wg.GradientError, match=r"complex128\(\).*real\(y\)"):
        z.sum().backward()
    with pytest.raises(wg.GradientError, match="grad: the tensor is complex128"):
        wg.grad(lambda x: (x * x).sum())(z.detach())


def test_a_promoted_real_operand_has_a_real_gradient() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    w = wg.tensor(np.array([1 + 1j, 2 - 3j], np.complex64))
    y = x * w
    assert y.dtype == wg.complex64
    grads = y.backward(wg.tensor(np.array([1j, 1 + 2j], np.complex64)))
    assert grads[x].dtype == wg.float32
    np.testing.assert_allclose(grads[x].numpy(), (np.array([1j, 1 + 2j]) * np.conj(w.numpy())).real)
    (g,) = wg.grad_of((x * 2j).imag.sum(), x)
    assert g.tolist() == [2.0, 2.0]


def test_size_and_angle_at_zero() -> None:
    z = wg.tensor(np.array([0j, 3 + 4j]), requires_grad=True)
    np.testing.assert_allclose(wg.abs(z).sum().backward()[z].numpy(), [0, 0.6 + 0.8j])
    np.testing.assert_allclose(wg.angle(z).sum().backward()[z].numpy(), [0, (-4 + 3j) / 25])
    np.testing.assert_array_equal(
        wg.angle(wg.tensor([-1.0, 0.0, 2.0, np.nan])).numpy(), np.float32([np.pi, 0, 0, np.nan])
    )


def test_matrix_products() -> None:
    rng = np.random.default_rng(0)
    a, b, seed = (rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in [(3, 4), (4, 5), (3, 5)])
    x, y = wg.tensor(a, requires_grad=True), wg.tensor(b, requires_grad=True)
    grads = (x @ y).backward(wg.tensor(seed))
    np.testing.assert_allclose(grads[x].numpy(), seed @ b.conj().T)
    np.testing.assert_allclose(grads[y].numpy(), a.conj().T @ seed)


def test_real_tensors_pay_nothing_for_conjugation() -> None:
    x = wg.tensor([1.0, 2.0])
    assert wg.conj(x) is x
    assert wg.real(x) is x
    assert wg.imag(x).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_conjugation_is_an_instruction_for_complex_numbers_only(dtype: str) -> None:
    conjugates = []
    for name, attrs in (("mul", ()), ("div", ()), ("matmul", (0, 0))):
        variables = [Var(Type(as_dtype(dtype).code, (3, 3))) for _ in range(2)]
        outputs = tuple(Var(t) for t in infer(OPS[name], variables, attrs))
        program = Program(variables, [Instruction(OPS[name], tuple(variables), attrs, outputs)], list(outputs))
        derivation = derive(program, 3, name)
        used = [i.op.name for p in (derivation.forward, derivation.vjp) for i in p.instructions]
        conjugates.append(used.count("conj"))
        assert not {"real", "imag", "make_complex", "cast"} & set(used)
    assert conjugates == [0, 0, 0] if dtype == "float64" else all(conjugates)


def test_complex_to_real_is_never_silent() -> None:
    z = _z().detach()
    with pytest.raises(wg.DTypeError, match=r"complex128\(2,\) to float64 would drop the imaginary part"):
        z.astype(wg.float64)
    with pytest.raises(TypeError, match="real"):
        float(z[0])
    x = wg.ones((2,))
    with pytest.raises(wg.DTypeError, match="complex64"):
        x += 1j
    with pytest.raises(wg.DTypeError, match="drop the imaginary part"):
        x[0] = z[0]
    with pytest.raises(wg.DTypeError, match="does not fit float32"):
        wg.full((2,), 1j, dtype="float32")
    assert z.astype(wg.bool_).tolist() == [True, True]
    assert complex(z[0]) == 1 + 2j
    assert bool(wg.tensor(1j))
    assert complex(wg.tensor(2.5)) == 2.5


def test_python_numbers_are_weak() -> None:
    assert (wg.tensor([1.0]) * 1j).dtype == wg.complex64
    assert (wg.tensor([1.0], dtype="float64") + 1j).dtype == wg.complex128
    assert (wg.tensor([1 + 1j]) * 2.0).dtype == wg.complex64
    assert (wg.tensor([1]) + 1j).dtype == wg.complex64
    assert wg.full((2,), 1 + 2j).tolist() == [1 + 2j] * 2


def test_compiled() -> None:
    @wg.compile
    def f(x: Any) -> Any:
        return wg.where(wg.abs(x) > 3.0, 2j, x * (1 + 1j) + wg.full(x.shape, 1j, dtype="complex128"))

    z = _z().detach()
    np.testing.assert_allclose(f(z).numpy(), [(1 + 2j) * (1 + 1j) + 1j, 2j])

    @wg.compile
    def constant(x: Any) -> Any:
        return x, 1j * wg.ones((2,), dtype="complex64")

    assert constant(z)[1].tolist() == [1j, 1j]


def test_moments() -> None:
    a = np.array([1 + 2j, 3 - 1j, 2j])
    z = wg.tensor(a)
    np.testing.assert_allclose(wg.mean(z).item(), a.mean())
    np.testing.assert_allclose(wg.var(z).item(), a.var())
    np.testing.assert_allclose(wg.std(z, correction=1).item(), a.std(ddof=1))
    np.testing.assert_allclose(wg.norm(z).item(), np.linalg.norm(a))
    assert wg.var(z).dtype == wg.norm(z, ord=1).dtype == wg.float64


def test_normal_numbers_have_variance_one() -> None:
    z = wg.randn(200_000, dtype="complex64", generator=wg.Generator(3)).numpy()
    np.testing.assert_allclose(np.mean(np.abs(z) ** 2), 1.0, rtol=0.02)
    np.testing.assert_allclose([z.real.var(), z.imag.var()], [0.5, 0.5], rtol=0.02)
    assert abs(np.mean(z.real * z.imag)) < 0.01
    g = wg.Generator(3)
    first, second = (wg.randn(5, dtype="complex128", generator=g).numpy() for _ in range(2))
    assert not np.isin(first.view(np.float64), second.view(np.float64)).any()
    with pytest.raises(wg.DTypeError, match="real floating"):
        wg.rand(3, dtype="complex64")


def test_branch_cuts() -> None:
    """On a cut the sign of the zero part decides the side, of the value and of the derivative."""
    for re in (-2.5, -0.3, 0.4):
        for im in (0.0, -0.0):
            z = wg.tensor(np.array(complex(re, im)), requires_grad=True)
            y = wg.acosh(z)
            side = complex(re, np.copysign(1e-13, im))
            np.testing.assert_allclose(y.item(), np.arccosh(side), atol=1e-6)
            slope = np.conj(y.backward(wg.tensor(1 + 0j, dtype="complex128"))[z].item())
            np.testing.assert_allclose(slope, 1 / (np.sqrt(side - 1) * np.sqrt(side + 1)), atol=1e-6)


def test_extreme_sizes() -> None:
    a = np.array(
        [3e200 + 4e200j, 3e-200 + 4e-200j, 5e-324j, 1.7e308 + 1.7e308j, complex(np.inf, np.nan), complex(0, np.nan)]
    )
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(wg.abs(wg.tensor(a)).numpy(), np.hypot(a.real, a.imag), rtol=1e-15)
    b = np.array([3e38 + 4e-38j, 1e-45j, complex(-np.inf, 2)], np.complex64)
    np.testing.assert_allclose(wg.abs(wg.tensor(b)).numpy(), np.abs(b), rtol=1e-7)
    np.testing.assert_allclose(wg.sign(wg.tensor(b)).numpy(), [1, 1j, -1], atol=1e-7)
    np.testing.assert_allclose(wg.sign(wg.tensor(a[:4])).numpy(), [0.6 + 0.8j, 0.6 + 0.8j, 1j, (1 + 1j) / np.sqrt(2)])


_SPECIAL = (-np.inf, -2.0, -0.0, 0.0, 1.0, np.inf, np.nan)


@pytest.mark.parametrize(
    ("name", "reference"),
    [(n, n) for n in ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "log1p")]
    + [(f"a{n}", f"arc{n}") for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")],
)
def test_special_values_are_those_of_c99(name: str, reference: str) -> None:
    z = np.array([complex(a, b) for a in _SPECIAL for b in _SPECIAL])
    got = getattr(wg, name)(wg.tensor(z)).numpy()
    with np.errstate(all="ignore"):
        expected = getattr(np, reference)(z)
    if name == "tanh":  # the array API's table: the sign of the zero is that of y, not of sin 2y
        end = np.isinf(z.real) & np.isfinite(z.imag)
        expected.imag[end] = np.copysign(0.0, z.imag[end])
    for part in (np.real, np.imag):
        known = ~np.isnan(part(expected))
        np.testing.assert_array_equal(np.isnan(part(got)), ~known)
        np.testing.assert_array_equal(np.signbit(part(got))[known], np.signbit(part(expected))[known])
        np.testing.assert_allclose(part(got)[known], part(expected)[known], rtol=1e-14)


def test_expm1_of_special_values() -> None:
    """Where NumPy gives NaN, the array API's table does not."""
    z = np.array([complex(-np.inf, np.inf), complex(-np.inf, np.nan), complex(np.inf, np.nan), complex(np.inf, 0), -0j])
    got = wg.expm1(wg.tensor(z)).numpy()
    np.testing.assert_array_equal(got.real, [-1, -1, np.inf, np.inf, 0])
    np.testing.assert_array_equal(got.imag, [0, 0, np.nan, 0, 0])
    np.testing.assert_allclose(wg.expm1(wg.tensor(np.array(1e-12 + 1e-12j))).item(), 1e-12 + 1e-12j, rtol=1e-11)
    np.testing.assert_allclose(wg.log1p(wg.tensor(np.array(1e-12 - 1e-12j))).item(), 1e-12 - 1e-12j, rtol=1e-11)


def test_jacobians_agree_in_both_modes() -> None:
    z = wg.tensor(np.array([1 + 2j, 0.5 - 1j]))
    x = wg.tensor(np.array([1.0, -2.0]))
    slopes = wg.jacfwd(lambda v: v * v * v[0])(z).numpy()
    a, b = z.numpy()
    np.testing.assert_allclose(slopes, [[3 * a * a, 0], [b * b, 2 * a * b]])
    for f, at in [
        (lambda v: v * v * v[0], z),
        (lambda v: wg.abs(v) * wg.real(v[0]), z),
        (lambda v: wg.exp(1j * v) * v[0], x),
    ]:
        forward, reverse = wg.jacfwd(f)(at), wg.jacrev(f)(at)
        assert forward.dtype == reverse.dtype == wg.complex128
        np.testing.assert_allclose(forward.numpy(), reverse.numpy(), rtol=1e-13)
    np.testing.assert_allclose(
        wg.jacobian(lambda v: wg.abs(v).sum())(z).numpy(), wg.grad(lambda v: wg.abs(v).sum())(z).numpy()
    )
    with pytest.raises(wg.DTypeError, match="hessian: the argument is complex128"):
        wg.hessian(lambda v: wg.abs(v).sum())(z)


def test_second_order() -> None:
    """The Hessian of |z|^4 times v, by both orders of the modes and by differences of the gradient."""
    z, v = np.array([1 + 2j, 0.5 - 1j]), np.array([0.3 - 1j, 1 + 0.2j])

    def f(x: Any) -> Any:
        return (wg.abs(x) ** 4).sum()

    h = 1e-5
    difference = (wg.grad(f)(wg.tensor(z + h * v)).numpy() - wg.grad(f)(wg.tensor(z - h * v)).numpy()) / (2 * h)
    np.testing.assert_allclose(wg.hvp(f, wg.tensor(z), wg.tensor(v)).numpy(), difference, rtol=1e-7)
    x = wg.tensor(z, requires_grad=True)
    (g,) = wg.grad_of(f(x), x, create_graph=True)
    (twice,) = wg.grad_of(wg.real(wg.conj(g) * wg.tensor(v)).sum(), x)
    np.testing.assert_allclose(twice.numpy(), difference, rtol=1e-7)
    _, push = wg.linearize(wg.grad(f), wg.tensor(z))
    np.testing.assert_allclose(push(wg.tensor(v)).numpy(), difference, rtol=1e-7)


def test_attributes_and_the_adjoint() -> None:
    z = wg.tensor(np.array([[1 + 2j, 3j], [0, 4.0]]))
    assert z.real.tolist() == [[1.0, 0.0], [0.0, 4.0]]
    assert z.imag.tolist() == [[2.0, 3.0], [0.0, 0.0]]
    np.testing.assert_array_equal(z.mH.numpy(), z.numpy().conj().T)
    x = wg.tensor([[1.0, 2.0]])
    assert x.real is x
    assert x.mH.tolist() == [[1.0], [2.0]]


def test_losses_are_real() -> None:
    z = _z()
    loss = wg.mse_loss(z, wg.zeros((2,), dtype="complex128"))
    assert loss.dtype == wg.float64
    np.testing.assert_allclose(loss.item(), np.mean(np.abs(z.numpy()) ** 2))
    np.testing.assert_allclose(loss.backward()[z].numpy(), z.numpy())


def test_arrays_do_not_lose_their_imaginary_part() -> None:
    for data in ([1j], np.array([1j]), np.complex64(1j)):
        with pytest.raises(wg.DTypeError, match="would drop the imaginary part"):
            wg.asarray(data, dtype="float32")


def test_errors_name_sizes_and_the_remedy() -> None:
    with pytest.raises(wg.DTypeError, match=r"max: complex numbers are not ordered, got complex128\(2,\)"):
        wg.max(_z())
    with pytest.raises(wg.DTypeError, match=r"floor: got complex128.*take real\(x\), imag\(x\) or abs\(x\) first"):
        wg.floor(_z())
