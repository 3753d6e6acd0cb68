"""The workloads in wengert."""

from __future__ import annotations

from typing import Any

import wengert as wg
from benchmarks.workloads import Workload, data, networks


def _leaves(*arrays: Any) -> list[wg.Tensor]:
    return [wg.tensor(a, requires_grad=True) for a in arrays]


def multiply(n: int = 8) -> Workload:
    """One recorded product of n×n."""
    x, b, _ = _leaves(*data.operands(n, n))
    return Workload("x * b", {"x": x, "b": b}, lambda: (x * b).sum().item())


def chain() -> Workload:
    """x = tanh(x * b), over and over, forward and backward."""
    x, b, _ = _leaves(*data.operands(8, 8))
    tanh = wg.tanh

    def run() -> Any:
        y = x
        for _ in range(data.CHAIN):
            y = tanh(y * b)
        x.grad = b.grad = None
        return y.sum().backward()

    def result() -> float:
        run()
        return b.grad.sum().item()

    return Workload("run()", {"run": run}, result)


def affine_tanh(compiled: bool = False) -> Workload:
    """tanh(x * w + b) over a million floats, forward and backward."""
    x, w, b = _leaves(*data.operands(data.MILLION))
    seed = wg.ones(data.MILLION)

    def f(x: Any, w: Any, b: Any) -> Any:
        return wg.tanh(x * w + b)

    if compiled:
        f = wg.compile(f)

    def run() -> None:
        x.grad = w.grad = b.grad = None
        f(x, w, b).backward(seed)

    def result() -> float:
        run()
        return w.grad.sum().item()

    return Workload("run()", {"run": run}, result)


def mlp(sizes: tuple[int, ...], n: int, compiled: bool = False) -> Workload:
    """One training step of a multilayer perceptron with ReLU, cross-entropy and Adam."""
    modules: list[Any] = []
    for weight, bias in data.layers(sizes):
        layer = wg.nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": bias})
        modules += [layer, wg.nn.ReLU()]
    net = wg.nn.Sequential(*modules[:-1])
    return _training(net, *data.batch(sizes, n), compiled)


def network(which: networks.Network) -> Workload:
    """One training step of a network with cross-entropy and Adam."""
    net = which.build(wg.nn)
    shapes = {k: tuple(p.shape) for k, p in net.named_parameters()}
    net.load_state_dict(networks.weights(shapes), strict=False)
    return _training(net, *networks.batch(which))


def _training(net: Any, inputs: Any, targets: Any, compiled: bool = False) -> Workload:
    optimizer = wg.optim.Adam(net.parameters(), lr=1e-3)
    x, target = wg.tensor(inputs), wg.tensor(targets)

    def step() -> Any:
        optimizer.zero_grad()
        loss = wg.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        return loss

    @wg.compile
    def compiled_step(x: Any, target: Any) -> Any:
        loss = wg.cross_entropy(net(x), target)
        optimizer.step(loss.backward())
        return loss

    if compiled:
        names = {"step": compiled_step, "x": x, "target": target}
        return Workload("step(x, target)", names, lambda: [compiled_step(x, target).item() for _ in range(20)][-1])
    return Workload("step()", {"step": step}, lambda: [step().item() for _ in range(20)][-1])
