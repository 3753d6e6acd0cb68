"""Learning to learn from ten points: `python examples/meta_learning.py`.

A task is a sine wave of unknown amplitude and phase, seen at ten points. The initial weights of a network are trained so
that a few steps of gradient descent on those ten points suffice (C. Finn et al., 2017, section 5.1). The meta-gradient goes
through the optimizer's own steps: the loss holds gradients, and is differentiated again.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.progress import track

import wengert as wg
from wengert import nn, optim

Task = tuple[wg.Tensor, wg.Tensor, wg.Tensor, wg.Tensor]
Weights = dict[str, wg.Tensor]


def draw(rng: np.random.Generator, points: int = 10, tests: int = 50) -> Task:
    """A wave at points to learn from, and at others to test on."""
    amplitude, phase = rng.uniform(0.1, 5.0), rng.uniform(0.0, np.pi)

    def wave(n: int) -> tuple[wg.Tensor, wg.Tensor]:
        x = rng.uniform(-5.0, 5.0, (n, 1)).astype(np.float32)
        return wg.asarray(x), wg.asarray((amplitude * np.sin(x + phase)).astype(np.float32))

    return *wave(points), *wave(tests)


def adapt(net: nn.Module, weights: Weights, x: wg.Tensor, y: wg.Tensor, steps: int, lr: float) -> Weights:
    """The weights after some steps of gradient descent: a differentiable function of the weights before."""
    state = optim.SGD.init(weights)
    for _ in range(steps):
        grads = wg.grad(lambda w: wg.mse_loss(nn.functional_call(net, w, x), y))(weights)
        weights, state = optim.SGD.update(weights, grads, state, lr=lr)
    return weights


def error(net: nn.Module, weights: Weights, task: Task, steps: int, lr: float) -> wg.Tensor:
    """The mean squared error at the points that were not learned from, after adapting."""
    x, y, x_test, y_test = task
    return wg.mse_loss(nn.functional_call(net, adapt(net, weights, x, y, steps, lr), x_test), y_test)


def train(rounds: int = 2000, batch: int = 8, steps: int = 3, lr: float = 0.02, seed: int = 0) -> tuple[float, float]:
    """Errors on new waves after adapting: from random weights, and from the meta-learned ones."""
    wg.manual_seed(seed)
    rng = np.random.default_rng(seed)
    net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
    weights: Weights = {k: p.detach().clone() for k, p in net.named_parameters()}

    @wg.compile  # traced once for all tasks
    def adapted_error(weights: Weights, task: Task) -> wg.Tensor:
        return error(net, weights, task, steps, lr)

    def meta_loss(weights: Weights, tasks: list[Task]) -> wg.Tensor:
        return wg.stack([adapted_error(weights, task) for task in tasks]).mean()

    new = [draw(rng) for _ in range(100)]
    before = meta_loss(weights, new).item()

    state = optim.Adam.init(weights)
    for _ in track(range(rounds), description="learning to learn"):
        grads = wg.grad(meta_loss)(weights, [draw(rng) for _ in range(batch)])
        weights, state = optim.Adam.update(weights, grads, state, lr=2e-3)
    return before, meta_loss(weights, new).item()


def main() -> None:
    """Read the options, train, print both errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=2000, help="of meta-training, eight tasks each (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and tasks (default: %(default)s)")
    before, after = train(**vars(parser.parse_args()))
    print(
        f"mean squared error after three steps on ten points: {before:.3f} from random weights, {after:.3f} meta-learned"
    )


if __name__ == "__main__":
    main()
