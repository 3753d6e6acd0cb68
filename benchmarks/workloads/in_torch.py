"""The workloads in PyTorch, eager."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.workloads import Workload, data, networks


def _leaves(*arrays: Any) -> list[torch.Tensor]:
    return [torch.tensor(a, requires_grad=True) for a in arrays]


def multiply(n: int = 8) -> Workload:
    """One recorded product of n×n."""
    x, b, _ = _leaves(*data.operands(n, n))
    return Workload("x * b", {"x": x, "b": b}, lambda: (x * b).sum().item())


def chain() -> Workload:
    """x = tanh(x * b), over and over, forward and backward."""
    x, b = _leaves(*data.chain_operands())
    tanh = torch.tanh

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


def affine_tanh() -> Workload:
    """tanh(x * w + b) over a million floats, forward and backward."""
    x, w, b = _leaves(*data.operands(data.MILLION))
    seed = torch.ones(data.MILLION)

    def run() -> None:
        x.grad = w.grad = b.grad = None
        torch.tanh(x * w + b).backward(seed)

    def result() -> float:
        run()
        return w.grad.sum().item()

    return Workload("run()", {"run": run}, result)


def scalar_loop() -> Workload:
    """A loop over one number, with its gradient."""
    x = torch.tensor(0.5, requires_grad=True)

    def run() -> Any:
        x.grad, c = None, x
        for _ in range(data.TURNS):
            c = torch.sin(c) * 0.99 + 0.01 * c
        c.backward()
        return c

    return Workload("run()", {"run": run}, lambda: run().item())


def mlp(sizes: tuple[int, ...], n: int, **adam: Any) -> Workload:
    """One training step of a multilayer perceptron with ReLU, cross-entropy and Adam."""
    modules: list[Any] = []
    for weight, bias in data.layers(sizes):
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
        modules += [layer, torch.nn.ReLU()]
    net = torch.nn.Sequential(*modules[:-1])
    return _training(net, *data.batch(sizes, n), **adam)


def network(which: networks.Network, **adam: Any) -> Workload:
    """One training step of a network with cross-entropy and Adam."""
    net = which.build(torch.nn)
    shapes = {k: tuple(p.shape) for k, p in net.named_parameters()}
    net.load_state_dict({k: torch.tensor(a) for k, a in networks.weights(shapes).items()}, strict=False)
    return _training(net, *networks.batch(which), **adam)


def _training(net: Any, inputs: Any, targets: Any, **adam: Any) -> Workload:
    compiled = adam.pop("compiled", False)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, **adam)
    x, target = torch.tensor(inputs), torch.tensor(targets)

    def loss_of(x: Any, target: Any) -> Any:
        return torch.nn.functional.cross_entropy(net(x), target)

    if compiled:
        loss_of = torch.compile(loss_of)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, target)
        loss.backward()
        optimizer.step()
        return loss

    return Workload("step()", {"step": step}, lambda: [step().item() for _ in range(20)][-1])
