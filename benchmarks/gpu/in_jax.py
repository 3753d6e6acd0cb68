"""JAX on a GPU, jitted, with donated state; products of float32 in full precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu import shapes
from benchmarks.gpu.shapes import Sizes
from benchmarks.workloads import in_jax, networks

Call = Callable[[], Any]


class Library:
    """Arrays on the default device, which is the GPU where there is one."""

    name = "JAX jit"

    def __init__(self, device: str, sizes: Sizes) -> None:
        jax.config.update("jax_default_matmul_precision", "highest")
        self.device, self.sizes = device, sizes

    def wait(self, result: Any) -> None:
        """Until what was started is done."""
        jax.block_until_ready(result)

    def array(self, a: Any) -> Any:
        """On the device."""
        return jnp.asarray(a)

    def eager_op(self, a: Any, b: Any) -> Call:
        """One op."""
        a, b = self.array(a), self.array(b)
        return lambda: a * b

    def recorded_op(self, a: Any, b: Any) -> None:
        """Nothing is recorded."""

    def copy(self, a: Any) -> Call:
        """What memory can do."""
        a = self.array(a)
        return lambda: jnp.copy(a)

    def chain(self, x: Any, w: Any, b: Any) -> Call:
        """tanh(x w + b)."""
        x, w, b = map(self.array, (x, w, b))
        f = jax.jit(lambda x, w, b: jnp.tanh(x * w + b))
        return lambda: f(x, w, b)

    def softmax(self, x: Any, y_bar: Any) -> Call:
        """Of rows; with a cotangent, forward and backward."""
        return self._rows(lambda x: jax.nn.softmax(x, -1), x, y_bar)

    def layer_norm(self, x: Any, y_bar: Any, w: Any, b: Any) -> Call:
        """Of rows; with a cotangent, forward and backward."""
        return self._rows(_normed, x, y_bar, w, b)

    def attention(self, q: Any, k: Any, v: Any, y_bar: Any, precision: str) -> Call:
        """Causal; with a cotangent, forward and backward. JAX wants heads behind positions."""
        fast = "cudnn" if self.device != "cpu" and precision == "bfloat16" else None
        f = lambda *o: jax.nn.dot_product_attention(*o, is_causal=True, implementation=fast)
        swapped = [None if a is None else a.swapaxes(1, 2) for a in (q, y_bar, k, v)]
        return self._rows(f, *swapped, precision=precision)

    def _rows(self, f: Any, x: Any, y_bar: Any, *more: Any, precision: str = "float32") -> Call:
        operands = [self.array(a).astype(precision) for a in (x, *more)]
        if y_bar is None:
            alone = jax.jit(f)
            return lambda: alone(*operands)
        both = jax.jit(lambda seed, *operands: jax.vjp(f, *operands)[1](seed))
        seed = self.array(y_bar).astype(precision)
        return lambda: both(seed, *operands)

    def step(self, kind: str, widths: list[int], n: int, precision: str, compiled: bool) -> Call | None:
        """A training step with Adam; the loss."""
        if not compiled:
            return None
        sizes = self.sizes
        net, logits = {
            "mlp": lambda: (shapes.perceptron(_Shapes, widths), _perceptron),
            "cnn": lambda: (None, in_jax._cnn),
            "lstm": lambda: (None, lambda p, x: _lstm(p, x, sizes)),
            "writer": lambda: (None, lambda p, x: _writer(p, x, sizes)),
        }[kind]()
        drawn = networks.weights(_shapes(kind, sizes, widths) if net is None else net.shapes())
        low = (
            (lambda p: jax.tree.map(lambda a: a.astype(jnp.bfloat16), p)) if precision == "bfloat16" else (lambda p: p)
        )

        def loss_of(params: Any, x: Any, t: Any) -> Any:
            made = logits(low(params), low(x) if x.dtype == jnp.float32 else x).astype(jnp.float32)
            return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(made), t[:, None], axis=1))

        def one_step(params: Any, m: Any, v: Any, k: Any, x: Any, t: Any) -> Any:
            loss, grads = jax.value_and_grad(loss_of)(params, x, t)
            k = k + 1
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
            rate, root = 1e-3 / (1 - 0.9**k), jnp.sqrt(1 - 0.999**k)
            params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) / root + 1e-8), params, m, v)
            return params, m, v, k, loss

        params = jax.tree.map(jnp.asarray, drawn)
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)
        state = [params, zeros(), zeros(), jnp.zeros(())]
        run = jax.jit(one_step, donate_argnums=(0, 1, 2, 3))
        x, t = (self.array(a) for a in shapes.batch(kind, sizes, widths, n))

        def step() -> Any:
            *state[:], loss = run(*state, x, t)
            return loss

        return step


def _shapes(kind: str, sizes: Sizes, widths: list[int]) -> dict[str, tuple[int, ...]]:
    """Of the weights, by the names that the other libraries give them: wengert's modules say them."""
    import wengert as wg

    if kind == "cnn":
        net = shapes.cnn(wg.nn)
    elif kind == "lstm":
        net = shapes.reader(wg.nn, sizes)
    else:
        net = shapes.writer(wg.nn, lambda q, k, v: v, sizes)
    return {k: tuple(p.shape) for k, p in net.named_parameters()}


class _Shapes:
    """An `nn` of the two modules of a perceptron that knows shapes only."""

    def __init__(self, *layers: Any) -> None:
        self.layers = layers

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """By name."""
        made = {}
        for k, layer in enumerate(self.layers):
            if layer is not None:
                made[f"{k}.weight"], made[f"{k}.bias"] = (layer[1], layer[0]), (layer[1],)
        return made

    @staticmethod
    def Linear(n: int, m: int) -> tuple[int, int]:
        """A layer with a weight and a bias."""
        return n, m

    @staticmethod
    def ReLU() -> None:
        """A layer without weights."""


_Shapes.Sequential = _Shapes  # type: ignore[attr-defined]


def _perceptron(p: Any, x: Any) -> Any:
    names = sorted({int(k.split(".")[0]) for k in p})
    for k in names:
        x = x @ p[f"{k}.weight"].T + p[f"{k}.bias"]
        x = x if k == names[-1] else jax.nn.relu(x)
    return x


def _normed(x: Any, w: Any, b: Any) -> Any:
    wide = x.astype(jnp.float32)
    mean, var = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(var + 1e-5)).astype(x.dtype) * w + b


def _linear(p: Any, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _writer(p: Any, x: Any, sizes: Sizes) -> Any:
    blocks, width, heads, letters, n, time = sizes.writer
    x = p["letters.weight"][x] + p["places.weight"]
    for k in range(blocks):
        name = f"blocks.{k}."
        normed = _normed(x, p[f"{name}norm1.weight"], p[f"{name}norm1.bias"])
        h = _linear(p, f"{name}into", normed).reshape(n, time, 3, heads, -1)
        fast = "cudnn" if x.dtype == jnp.bfloat16 and jax.default_backend() == "gpu" else None
        y = jax.nn.dot_product_attention(h[:, :, 0], h[:, :, 1], h[:, :, 2], is_causal=True, implementation=fast)
        x = x + _linear(p, f"{name}out", y.reshape(n, time, width))
        normed = _normed(x, p[f"{name}norm2.weight"], p[f"{name}norm2.bias"])
        x = x + _linear(p, f"{name}down", jax.nn.gelu(_linear(p, f"{name}up", normed), approximate=False))
    return _linear(p, "logits", _normed(x, p["norm.weight"], p["norm.bias"])).reshape(-1, letters)


def _lstm(p: Any, x: Any, sizes: Sizes) -> Any:
    entering = x @ p["cells.weight_ih_l0"].T + p["cells.bias_ih_l0"] + p["cells.bias_hh_l0"]

    def cell(carry: Any, g: Any) -> Any:
        h, c = carry
        i, f, z, o = jnp.split(g + h @ p["cells.weight_hh_l0"].T, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(z)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    start = jnp.zeros((len(x), sizes.sequences[3]), x.dtype)
    (h, _), _ = jax.lax.scan(cell, (start, start), entering.swapaxes(0, 1))
    return _linear(p, "logits", h)
