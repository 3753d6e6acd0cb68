"""The workloads in JAX, each one `jit`ted function with donated state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.workloads import Workload, data, networks


def _cross_entropy(logits: Any, target: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), target[:, None], axis=1))


def _perceptron(params: Any, x: Any) -> Any:
    for i, (weight, bias) in enumerate(params):
        x = x @ weight.T + bias
        if i < len(params) - 1:
            x = jax.nn.relu(x)
    return x


def chain() -> Workload:
    """x = tanh(x * b), over and over, forward and backward."""

    def f(x: Any, b: Any) -> Any:
        for _ in range(data.CHAIN):
            x = jnp.tanh(x * b)
        return x.sum()

    both = jax.jit(jax.grad(f, (0, 1)))
    x, b = map(jnp.asarray, data.chain_operands())
    names = {"both": both, "x": x, "b": b, "jax": jax}
    return Workload("jax.block_until_ready(both(x, b))", names, lambda: both(x, b)[1].sum().item())


def scalar_loop() -> Workload:
    """A loop over one number, with its gradient."""

    def f(c: Any) -> Any:
        return jax.lax.fori_loop(0, data.TURNS, lambda i, c: jnp.sin(c) * 0.99 + 0.01 * c, c)

    both = jax.jit(jax.value_and_grad(f))
    x = jnp.float32(0.5)
    return Workload("jax.block_until_ready(both(x))", {"both": both, "x": x, "jax": jax}, lambda: both(x)[0].item())


def mlp(sizes: tuple[int, ...], n: int) -> Workload:
    """One training step of a multilayer perceptron with ReLU, cross-entropy and Adam."""
    return _training(_perceptron, data.layers(sizes), *data.batch(sizes, n))


def _training(logits: Callable[[Any, Any], Any], weights: Any, inputs: Any, targets: Any) -> Workload:
    def one_step(params: Any, m: Any, v: Any, t: Any, x: Any, target: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: _cross_entropy(logits(p, x), target))(params)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        rate, root = 1e-3 / (1 - 0.9**t), jnp.sqrt(1 - 0.999**t)
        params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) / root + 1e-8), params, m, v)
        return params, m, v, t, loss

    params = jax.tree.map(jnp.asarray, weights)
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    x, target = jnp.asarray(inputs), jnp.asarray(targets)
    compiled = jax.jit(one_step, donate_argnums=(0, 1, 2, 3))
    state = [params, zeros(), zeros(), jnp.zeros(())]

    def step() -> Any:
        *state[:], loss = compiled(*state, x, target)
        return loss

    return Workload(
        "step()",
        {"step": step},
        lambda: [step().item() for _ in range(20)][-1],
        lambda: jax.block_until_ready(state),
    )


# ---------------------------------------------------------------------------------- networks, by PyTorch's weight names


def network(which: networks.Network, shapes: dict[str, tuple[int, ...]]) -> Workload:
    """One training step of a network with cross-entropy and Adam; `shapes` are those of its weights."""
    logits = {"CNN": _cnn, "transformer": _transformer, "LSTM": _lstm}[which.name.split(",")[0]]
    return _training(logits, networks.weights(shapes), *networks.batch(which))


def _cnn(p: Any, x: Any) -> Any:
    for conv, norm in (("0", "1"), ("4", "5")):
        x = jax.lax.conv_general_dilated(x, p[f"{conv}.weight"], (1, 1), "SAME") + p[f"{conv}.bias"][:, None, None]
        mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        scale, shift = (p[f"{norm}.{k}"][:, None, None] for k in ("weight", "bias"))
        x = jax.nn.relu((x - mean) * jax.lax.rsqrt(var + 1e-5) * scale + shift)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return x.reshape(len(x), -1) @ p["9.weight"].T + p["9.bias"]


def _layer_norm(p: Any, name: str, x: Any) -> Any:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def _linear(p: Any, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _transformer(p: Any, x: Any) -> Any:
    x = p["letters.weight"][x]
    n, time, width = x.shape
    for k in range(networks.BLOCKS):
        name = f"blocks.{k}"
        h = _layer_norm(p, f"{name}.norm1", x) @ p[f"{name}.self_attn.in_proj_weight"].T
        h = (h + p[f"{name}.self_attn.in_proj_bias"]).reshape(n, time, 3, networks.HEADS, -1)
        mixed = jax.nn.dot_product_attention(h[:, :, 0], h[:, :, 1], h[:, :, 2])
        x = x + _linear(p, f"{name}.self_attn.out_proj", mixed.reshape(n, time, width))
        h = jax.nn.gelu(_linear(p, f"{name}.linear1", _layer_norm(p, f"{name}.norm2", x)), approximate=False)
        x = x + _linear(p, f"{name}.linear2", h)
    return _linear(p, "logits", _layer_norm(p, "norm", x)).reshape(n * time, -1)


def _lstm(p: Any, x: Any) -> Any:
    entering = x @ p["cells.weight_ih_l0"].T + p["cells.bias_ih_l0"] + p["cells.bias_hh_l0"]

    def cell(carry: Any, g: Any) -> Any:
        h, c = carry
        i, f, z, o = jnp.split(g + h @ p["cells.weight_hh_l0"].T, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(z)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    start = jnp.zeros((len(x), networks.HIDDEN))
    (h, _), _ = jax.lax.scan(cell, (start, start), entering.swapaxes(0, 1))
    return _linear(p, "logits", h)
