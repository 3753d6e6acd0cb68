"""Which precision ops run in, in every mode, and where their casts are made."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import wengert as wg

DTYPES = [wg.bfloat16, wg.float16]


def _array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _weights() -> tuple[Any, Any, Any]:
    return tuple(wg.tensor(_array(*s, seed=k), requires_grad=True) for k, s in enumerate([(5, 8), (8, 6), (6,)]))  # type: ignore[return-value]


def _layer(x: Any, w: Any, b: Any) -> Any:
    return wg.softmax(wg.tanh(x @ w) + b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_run_low_and_softmax_in_float32(dtype: Any) -> None:
    x, w, b = _weights()
    with wg.autocast(dtype):
        h = x @ w
        y = wg.tanh(h)
        p = wg.softmax(y)
    assert (h.dtype, y.dtype, p.dtype) == (dtype, dtype, wg.float32)
    with wg.no_grad():
        expected = x.astype(dtype) @ w.astype(dtype)
    assert wg.fingerprint(h.detach()) == wg.fingerprint(expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_mode_gives_the_same_bits(dtype: Any) -> None:
    x, w, b = _weights()
    seed = wg.tensor(_array(5, 6, seed=9))

    def run(f: Any) -> Any:
        with wg.autocast(dtype):
            y = f(x, w, b)
        return y.detach(), y.backward(seed)

    y, grads = run(_layer)
    assert [grads[t].dtype for t in (x, w, b)] == [wg.float32] * 3
    compiled = wg.compile(_layer)
    for f in (compiled, compiled, lambda *xs: wg.checkpoint(_layer, *xs)):
        again, other = run(f)
        assert wg.fingerprint((again, other)) == wg.fingerprint((y, grads))
    with wg.autocast(dtype), wg.GradientTape() as tape:
        again = _layer(x, w, b)
    found = tape.gradient(again, [x, w, b], seed)
    assert wg.fingerprint(found) == wg.fingerprint([grads[t] for t in (x, w, b)])


def test_static_graphs_have_the_casts_as_instructions() -> None:
    x, w, b = (t.detach() for t in _weights())
    with wg.autocast():
        eager = _layer(x, w, b)
        g = wg.Graph()
        traced = _layer(g.placeholder("x", (None, 8)), w, b)
    (y,) = g.run([traced], x=x)
    assert wg.fingerprint(y) == wg.fingerprint(eager)


def test_compiled_functions_know_the_mode_they_were_traced_in() -> None:
    x, w, _ = _weights()
    f = wg.compile(lambda x, w: x @ w)
    seen = [f(x, w).dtype]
    for config in (
        wg.AmpConfig(precision="bfloat16"),
        wg.AmpConfig(precision="float16"),
        wg.AmpConfig(keep_fp32_ops=["matmul"]),
    ):
        with wg.autocast(config):
            seen += [f(x, w).dtype, f(x, w).dtype]
    assert seen == [wg.float32, wg.bfloat16, wg.bfloat16, wg.float16, wg.float16, wg.float32, wg.float32]
    assert len(f.traces) == 4
    with wg.autocast(wg.AmpConfig(precision="bfloat16")):  # an equal policy is the same one
        f(x, w)
    assert len(f.traces) == 4 and f(x, w).dtype == wg.float32


def test_a_weight_is_cast_once_until_it_is_written_to() -> None:
    x, w, _ = _weights()
    w.requires_grad = False
    v = wg.Parameter(w)
    with wg.autocast(), wg.GradientTape() as tape:
        y = x @ v + x @ v
        y = y + x @ v
        with wg.no_grad():
            v += 1.0
        y = y + x @ v
    casts = [e for e in tape.entries if e.op == "cast" and e.outputs[0].dtype == wg.bfloat16.code]
    assert len(casts) == 3  # x, and v before and after
    again = (x @ (v - 1.0)) * 3 + x @ v
    np.testing.assert_allclose(y.detach().astype(wg.float32).numpy(), again.detach().numpy(), rtol=0.05, atol=0.3)


def test_casts_are_not_shared_between_recorded_and_unrecorded_uses() -> None:
    x, w, _ = _weights()
    with wg.autocast():
        with wg.no_grad():
            x @ w
        first = (x @ w).sum()
        assert first.backward()[w].dtype == wg.float32
        second = (x @ w).sum()  # what backward has freed is not used again
        assert second.backward()[w].dtype == wg.float32


def test_a_step_inside_the_context_is_seen() -> None:
    w = wg.Parameter(wg.ones((4, 4)))
    x = wg.ones((2, 4))
    opt = wg.optim.SGD([w], lr=0.25)
    with wg.autocast():
        losses = []
        for _ in range(3):
            loss = (x @ w).sum()
            losses.append(loss.item())
            opt.step(loss.backward())
    assert losses == [32.0, 16.0, 0.0]


def test_contexts_nest_and_are_left_by_exceptions() -> None:
    a = wg.ones((2, 2))
    assert wg.autocast_dtype() is None
    with wg.autocast(wg.float16):
        with wg.autocast(wg.bfloat16), pytest.raises(ZeroDivisionError):
            assert (a @ a).dtype == wg.bfloat16
            1 / 0
        assert wg.autocast_dtype() == wg.float16
        with wg.autocast(enabled=False):
            assert (a @ a).dtype == wg.float32
        with wg.no_autocast():
            assert (a @ a).dtype == wg.float32
        assert (a @ a).dtype == wg.float16
    assert (a @ a).dtype == wg.float32

    @wg.autocast(wg.bfloat16)
    def f(x: Any) -> Any:
        return x @ x

    assert f(a).dtype == wg.bfloat16 and (a @ a).dtype == wg.float32


def test_other_threads_are_left_alone() -> None:
    a, seen = wg.ones((2, 2)), []
    with wg.autocast():
        thread = threading.Thread(target=lambda: seen.append((a @ a).dtype))
        thread.start()
        thread.join()
    assert seen == [wg.float32]


def test_wide_operands_stay() -> None:
    a, b = wg.ones((2, 2), dtype=wg.float64), wg.ones((2, 2))
    z = wg.ones((2, 2), dtype=wg.complex64)
    with wg.autocast():
        assert (a @ b).dtype == (b @ a).dtype == wg.linear(a, b).dtype == wg.float64
        assert (z @ b).dtype == wg.complex64
        assert wg.exp(a).dtype == wg.float64


def test_mixed_operands_are_cast_once_and_not_back() -> None:
    x, w, _ = _weights()
    half = x.detach().astype(wg.bfloat16)
    kernel, image = wg.ones((2, 3, 3, 3), requires_grad=True), wg.ones((1, 3, 5, 5), dtype=wg.bfloat16)
    with wg.autocast(), wg.GradientTape() as tape:
        y = half @ w
        z = wg.conv2d(image, kernel)
        v = wg.ones((2, 5, 8), dtype=wg.bfloat16) @ w
    assert y.dtype == z.dtype == v.dtype == wg.bfloat16
    assert [str(e.outputs[0])[:8] for e in tape.entries if e.op == "cast"] == ["bfloat16"] * 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_the_library(dtype: Any) -> None:
    x = wg.tensor(_array(3, 4))
    half = x.astype(dtype)
    n = wg.tensor([0, 1, 2])
    low = {
        "linear": lambda: wg.linear(x, wg.ones((2, 4)), wg.ones((2,))),
        "einsum": lambda: wg.einsum("ij,kj->ik", x, x),
        "matmul": lambda: wg.matmul(wg.ones((2, 3, 4)), wg.ones((4, 5))),
        "attention": lambda: wg.scaled_dot_product_attention(x, x, x),
        "attention with dropout": lambda: wg.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        "conv1d": lambda: wg.conv1d(wg.ones((1, 2, 5)), wg.ones((3, 2, 2)), bias=wg.ones((3,))),
        "conv_transpose1d": lambda: wg.conv_transpose1d(wg.ones((1, 2, 5)), wg.ones((2, 3, 2)), bias=wg.ones((3,))),
        "lstm_cell": lambda: wg.lstm_cell(x, (wg.zeros((3, 2)),) * 2, wg.ones((8, 4)), wg.ones((8, 2)))[0],
        "gelu": lambda: wg.gelu(half),
        "silu": lambda: wg.silu(half),
        "relu": lambda: wg.relu(half),
        "dropout": lambda: wg.dropout(half, 0.5),
    }
    full = {
        "layer_norm": lambda: wg.layer_norm(half, 4),
        "rms_norm": lambda: wg.rms_norm(half, 4),
        "batch_norm": lambda: wg.batch_norm(half, wg.zeros((4,)), wg.ones((4,)), training=True),
        "softmax": lambda: wg.softmax(half),
        "log_softmax": lambda: wg.log_softmax(half, axis=0),
        "exp": lambda: wg.exp(half),
        "log": lambda: wg.log(half),
        "pow": lambda: half**3,
        "square": lambda: half**2,
        "sum": lambda: half.sum(),
        "cumsum": lambda: wg.cumsum(half, axis=0),
        "logsumexp": lambda: wg.logsumexp(half),
        "mse_loss": lambda: wg.mse_loss(half, half),
        "cross_entropy": lambda: wg.cross_entropy(half, n),
        "log_prob": lambda: wg.stats.Normal(0.0, 1.0).log_prob(half),
        "norm": lambda: wg.linalg.norm(half),
        "inv": lambda: wg.linalg.inv(half[:3, :3] + wg.eye(3)),
        "fft": lambda: wg.fft.rfft(half).real,
    }
    with wg.autocast(dtype):
        assert {k: f().dtype for k, f in low.items()} == dict.fromkeys(low, dtype)
        assert {k: f().dtype for k, f in full.items()} == dict.fromkeys(full, wg.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transformations(dtype: Any) -> None:
    x, w, b = (t.detach() for t in _weights())

    def f(x: Any) -> Any:
        return wg.logsumexp(wg.tanh(x @ w) + b).sum()

    plain = wg.grad(f)(x), wg.jvp(f, (x,), (x,))[1], wg.hvp(f, x, x), wg.vmap(f)(x)
    with wg.autocast(dtype):
        cast = wg.grad(f)(x), wg.jvp(f, (x,), (x,))[1], wg.hvp(f, x, x), wg.vmap(f)(x)
        twice = wg.grad(lambda x: (wg.grad(f)(x) * x).sum())(x)
    for a, c in zip(plain, cast):
        assert c.dtype == wg.float32
        np.testing.assert_allclose(c.numpy(), a.numpy(), rtol=0.1, atol=0.1)
    assert wg.fingerprint(twice) != wg.fingerprint(plain[0]) and twice.dtype == wg.float32


def test_rules_run_as_they_are_written() -> None:
    """The rule of an op that runs in float32 has products of its own, which are not cast."""
    a = wg.tensor(_array(4, 4) @ _array(4, 4).T + 4 * np.eye(4, dtype=np.float32))

    def f(a: Any) -> Any:
        return wg.linalg.cholesky(a).sum()

    plain = wg.jvp(f, (a,), (a,))[1], wg.grad(f)(a), wg.hvp(f, a, a)
    with wg.autocast():
        cast = wg.jvp(f, (a,), (a,))[1], wg.grad(f)(a), wg.hvp(f, a, a)
    assert wg.fingerprint(plain) == wg.fingerprint(cast)


@pytest.mark.parametrize("kind", ["compiled grad", "compiled backward", "mapped", "graph"])
def test_rules_run_as_they_are_written_in_traces(kind: str) -> None:
    """Sums of cotangents stay in half precision, as in eager execution, and hooks are cast as the user's code is."""
    a = wg.tensor(np.random.default_rng(0).standard_normal((3, 4)), dtype=wg.bfloat16)
    f = lambda x: wg.repeat((x - x[0]) * x[:, None], 3, axis=1).astype(wg.float32).sum()
    with wg.autocast():
        expected = wg.grad(f)(a)
        if kind == "compiled grad":
            made = wg.compile(wg.grad(f))(a)
        elif kind == "compiled backward":
            x = wg.tensor(a, requires_grad=True)
            seen = []
            x.register_hook(lambda g: seen.append(wg.exp(g).dtype))
            wg.compile(lambda: f(x).backward()[x])()
            assert seen == [wg.float32]
            made = x.grad
        elif kind == "mapped":
            made = wg.vmap(wg.grad(f))(a[None])[0]
        else:
            g = wg.Graph()
            x = g.placeholder("x", (3, 4), dtype=wg.bfloat16)
            (made,) = g.run(g.gradients(f(x), [x]), x=a)
    assert made.dtype == expected.dtype == wg.bfloat16
    assert wg.fingerprint(made) == wg.fingerprint(expected)


def test_backward_inside_the_context() -> None:
    @wg.custom_op(pure=True)
    def twice(x: Any) -> Any:
        return x @ x

    @twice.defvjp
    def _(y_bar: Any, y: Any, x: Any) -> Any:
        assert (x @ x).dtype == wg.float32
        return y_bar @ x.T + x.T @ y_bar

    x = wg.tensor(_array(3, 3), requires_grad=True)
    with wg.autocast():
        grads = twice(x).sum().backward()
    assert grads[x].dtype == wg.float32


def test_regions_that_run_again_later_are_cast_as_before() -> None:
    x, w, _ = _weights()
    with wg.autocast():
        x @ w  # the cast of w that is known here is not the region's
        plain = wg.tanh(wg.linear(x, w.T)).sum().backward()
        y = wg.checkpoint(lambda x: wg.tanh(x @ w), x).sum()
    grads = y.backward()
    assert wg.fingerprint([grads[t] for t in (x, w)]) == wg.fingerprint([plain[t] for t in (x, w)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_saved_bytes_halve(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    weights = [wg.tensor(rng.standard_normal((256, 256)).astype(np.float32) / 16, requires_grad=True) for _ in range(6)]
    x = wg.tensor(rng.standard_normal((512, 256)).astype(np.float32))

    def saved() -> int:
        h = x
        for w in weights:
            h = wg.gelu(h @ w)
        return wg.memory_stats().saved_bytes if h is not None else 0

    before = saved()
    with wg.autocast(dtype):
        weight_casts = sum(w.size * 2 for w in weights)
        after = saved() - weight_casts
    assert after <= 0.52 * before


# ---------------------------------------------------------------------------------------------------- what is kept


def _product(x: Any, w: Any) -> Any:
    return wg.tanh(x @ w).sum()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_casts_of_weights_are_not_kept_but_made_again(precision: str) -> None:
    wg.manual_seed(0)
    x, w = wg.randn(4, 256, requires_grad=True), wg.Parameter.randn((256, 256))
    dtype = getattr(wg, precision)
    expected = _product(x.astype(dtype), w.astype(dtype)).backward()
    bits = [wg.fingerprint(expected[v]) for v in (x, w)]
    x.grad = w.grad = None
    del expected
    before = wg.memory_stats()
    with wg.autocast(precision):
        loss = _product(x, w)
    after = wg.memory_stats()
    assert (
        after.saved_bytes - before.saved_bytes < w.nbytes // 4 and after.live_bytes - before.live_bytes < w.nbytes // 4
    )
    grads = loss.backward()
    assert [wg.fingerprint(grads[v]) for v in (x, w)] == bits
    assert wg.memory_stats().recomputed > before.recomputed


def test_what_was_half_already_is_kept_in_half() -> None:
    x, w = wg.randn(64, 64, requires_grad=True), wg.Parameter.randn((64, 64))
    with wg.autocast():
        y = x @ w
        before = wg.memory_stats().saved_bytes
        loss = wg.exp(y).sum() + wg.log(y * y + 1).sum()  # in float32
        kept = wg.memory_stats().saved_bytes - before
    assert loss.dtype == wg.float32
    assert kept < 3.5 * y.size * 4
    loss.backward()


def test_attention_keeps_its_result_in_half() -> None:
    q = wg.randn(2, 4, 64, 32, requires_grad=True)
    kept = {}
    for dtype in (wg.float32, wg.bfloat16):
        x = q.astype(dtype)
        before = wg.memory_stats().saved_bytes
        y = wg.scaled_dot_product_attention(x, x, x)
        kept[dtype] = wg.memory_stats().saved_bytes - before
        y.sum().backward()
        del y
    rows = 2 * 4 * 64 * 4  # a logarithm for each, in float32
    assert kept[wg.bfloat16] - rows <= 0.5 * (kept[wg.float32] - rows)


# Large queries make large scores, whose logarithms 16 bits would not hold: gradients would be wrong by 4 %.
@pytest.mark.parametrize(("size", "tolerance"), [(1.0, 3e-3), (8.0, 7e-3)])
def test_gradients_of_attention_in_half_are_those_in_float32(size: float, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    arrays = [wg.tensor(rng.standard_normal((2, 3, 40, 16)).astype("f4")).astype(wg.bfloat16) for _ in range(4)]
    bar, *operands = arrays
    operands[0] = operands[0] * size

    def pulled(dtype: Any) -> list[Any]:
        xs = [x.astype(dtype) for x in operands]
        _, pull = wg.vjp(lambda q, k, v: wg.scaled_dot_product_attention(q, k, v, is_causal=True), *xs)
        return [np.asarray(g.astype(wg.float32)) for g in pull(bar.astype(dtype))]

    # The result and each gradient are rounded once, by 2⁻⁹ of an element at most; where few keys are seen, the cotangents
    # of scores are small differences with the result.
    for low, exact in zip(pulled(wg.bfloat16), pulled(wg.float32)):
        assert np.linalg.norm(low - exact) <= tolerance * np.linalg.norm(exact)


def test_cross_entropy_keeps_logits_alone() -> None:
    """And two numbers a row, and the classes."""
    logits, classes = wg.randn(256, 100, requires_grad=True), wg.zeros(256, dtype=wg.int64)
    for dtype, cast in ((wg.float32, False), (wg.bfloat16, True)):
        with wg.autocast(enabled=cast):
            x = logits.astype(dtype)
            before = wg.memory_stats().saved_bytes
            loss = wg.cross_entropy(x, classes)
            del x
        kept = wg.memory_stats().saved_bytes - before
        assert kept <= logits.size * dtype.itemsize + 256 * (3 * 4 + 2 * 8 + 1)
        loss.backward()


def test_a_weight_that_is_written_to_meanwhile_is_cast_as_it_was() -> None:
    wg.manual_seed(0)
    x, w = wg.randn(4, 64, requires_grad=True), wg.Parameter.randn((64, 64))
    with wg.autocast():
        loss = _product(x, w)
    expected = _product(x.astype(wg.bfloat16), w.astype(wg.bfloat16)).backward()
    bits = [wg.fingerprint(expected[v]) for v in (x, w)]
    x.grad = w.grad = None
    with wg.no_grad():
        w.mul_(2.0)
    grads = loss.backward()
    assert [wg.fingerprint(grads[v]) for v in (x, w)] == bits


def test_casts_that_come_back_have_second_derivatives() -> None:
    wg.manual_seed(0)
    x, w = wg.randn(8, 64, requires_grad=True), wg.Parameter.randn((64, 64))

    def penalty(cast: bool) -> Any:
        with wg.autocast(enabled=cast):
            loss = _product(x, w) if cast else _product(x.astype(wg.bfloat16), w.astype(wg.bfloat16))
        (g,) = wg.grad_of(loss, [x], create_graph=True)
        return (g * g).sum().backward()

    found = []
    for cast in (True, False):
        grads = penalty(cast)
        found.append([wg.fingerprint(grads[v]) for v in (x, w)])
        x.grad = w.grad = None
    assert found[0] == found[1]


def test_casts_of_shared_memory_are_kept() -> None:
    array = np.ones((64, 64), "f4")
    w, x = wg.asarray(array), wg.ones((4, 64), requires_grad=True)
    w.requires_grad = True
    with wg.autocast():
        loss = _product(x, w)
    array[:] = 7.0  # unseen: what was read is kept
    assert loss.backward()[x].tolist()[0][0] == pytest.approx(64 * (1 - np.tanh(64.0) ** 2), abs=1e-6)
