"""The workloads in JAX, each one `jit`ted function with donated state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.workloads import Workload, data


def _loss(params: Any, x: Any, target: Any) -> Any:
    for i, (weight, bias) in enumerate(params):
        x = x @ weight.T + bias
        if i < len(params) - 1:
            x = jax.nn.relu(x)
    log_p = jax.nn.log_softmax(x)
    return -jnp.mean(jnp.take_along_axis(log_p, target[:, None], axis=1))


def _step(params: Any, m: Any, v: Any, t: Any, x: Any, target: Any) -> Any:
    loss, grads = jax.value_and_grad(_loss)(params, x, target)
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    rate, root = 1e-3 / (1 - 0.9**t), jnp.sqrt(1 - 0.999**t)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) / root + 1e-8), params, m, v)
    return params, m, v, t, loss


def mlp(sizes: tuple[int, ...], n: int) -> Workload:
    """One training step of a multilayer perceptron with ReLU, cross-entropy and Adam."""
    params = jax.tree.map(jnp.asarray, data.layers(sizes))
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    x, target = map(jnp.asarray, data.batch(sizes, n))
    compiled = jax.jit(_step, donate_argnums=(0, 1, 2, 3))
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
