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


def chain(compiled: bool = False) -> Workload:
    """x = tanh(x * b), over and over, forward and backward."""
    x, b = _leaves(*data.chain_operands())
    tanh = wg.tanh

    def run() -> Any:
        y = x
        for _ in range(data.CHAIN):
            y = tanh(y * b)
        x.grad = b.grad = None
        return y.sum().backward()

    if compiled:
        both = wg.compile(wg.grad(lambda x, b: _tanh_chain(x, b).sum(), (0, 1)))
        x, b = x.detach(), b.detach()
        return Workload("both(x, b)", {"both": both, "x": x, "b": b}, lambda: both(x, b)[1].sum().item())

    def result() -> float:
        run()
        return b.grad.sum().item()

    return Workload("run()", {"run": run}, result)


def _tanh_chain(y: Any, b: Any) -> Any:
    for _ in range(data.CHAIN):
        y = wg.tanh(y * b)
    return y


def scalar_loop() -> Workload:
    """A loop over one number, with its gradient."""

    def f(c: Any) -> Any:
        return wg.fori_loop(0, data.TURNS, lambda i, c: wg.sin(c) * 0.99 + 0.01 * c, c)

    both = wg.compile(wg.value_and_grad(f))
    x = wg.tensor(0.5)
    return Workload("both(x)", {"both": both, "x": x}, lambda: both(x)[0].item())


def nested_loops() -> Workload:
    """A while loop inside a gradient inside a while loop: descent on a function that iterates itself."""

    def energy(x: Any) -> Any:
        y = wg.while_loop(lambda y: (y * y).sum() < 10.0, lambda y: 1.2 * y + 0.1 * wg.sin(y), x)
        return ((y - 1.0) ** 2).sum()

    def descend(x: Any) -> Any:
        body = lambda c: (c[0] - 0.01 * wg.grad(energy)(c[0]), c[1] + 1)
        return wg.while_loop(lambda c: c[1] < data.DESCENTS, body, (x, 0))[0].sum()

    run = wg.compile(descend)
    x = wg.tensor(data.operands(8)[0])
    return Workload("run(x)", {"run": run, "x": x}, lambda: run(x).item())


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


def network(which: networks.Network, compiled: bool = False) -> Workload:
    """One training step of a network with cross-entropy and Adam."""
    net = which.build(wg.nn)
    shapes = {k: tuple(p.shape) for k, p in net.named_parameters()}
    net.load_state_dict(networks.weights(shapes), strict=False)
    return _training(net, *networks.batch(which), compiled)


def _training(net: Any, inputs: Any, targets: Any, compiled: bool = False) -> Workload:
    optimizer = wg.optim.Adam(net.parameters(), lr=1e-3)
    x, target = wg.tensor(inputs), wg.tensor(targets)

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = wg.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        return loss

    run = wg.compile(step) if compiled else step
    names = {"step": run, "x": x, "target": target}
    return Workload("step(x, target)", names, lambda: [run(x, target).item() for _ in range(20)][-1])
