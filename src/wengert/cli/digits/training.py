"""The demonstration's data, network and training."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import wengert as wg
from wengert import nn, optim

RATE, DECAY = 3e-3, 1e-3
# What to try after the demonstration: a reason, and where to go.
NEXT = (
    ("the same task, step by step (make docs builds the site)", "docs/tutorial/1-a-network.md"),
    ("the network in a file that you can change", "examples/digits_cnn.py"),
)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Digits:
    """Images of 1×8×8 between 0 and 1, and what they show."""

    images: Array
    labels: Array
    test_images: Array
    test_labels: Array


@dataclass
class Run:
    """One training, epoch by epoch."""

    library: str
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def seconds_per_epoch(self) -> float:
        """The mean time of an epoch, tests not included."""
        return float(np.mean(self.seconds))


Report = Callable[[Run], None]  # called after every epoch


@dataclass(frozen=True)
class Layer:
    """One line of the model's description."""

    name: str
    output: str
    parameters: int


@dataclass(frozen=True)
class Result:
    """All that the report shows. The first run is ours."""

    runs: list[Run]
    layers: list[Layer]
    digits: Digits
    predicted: Array  # a class for each test image
    certainty: Array  # and its probability

    @property
    def accuracy(self) -> float:
        """The fraction of the test images that are read correctly."""
        return float(np.mean(self.predicted == self.digits.test_labels))

    @property
    def mistakes(self) -> int:
        """How many test images were read wrong."""
        return int(np.sum(self.predicted != self.digits.test_labels))

    @property
    def hardest(self) -> list[int]:
        """The test images: those read wrong, the most certain first; then the others, the least certain first."""
        right = self.predicted == self.digits.test_labels
        order: list[int] = np.lexsort((np.where(right, self.certainty, -self.certainty), right)).tolist()
        return order


def load(seed: int) -> Digits:
    """scikit-learn's 1,797 handwritten digits: three quarters to learn from, one quarter to test on."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    x = (images[order] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    t = labels[order].astype(np.int64)
    n = 3 * len(x) // 4
    return Digits(x[:n], t[:n], x[n:], t[n:])


def build(modules: Any) -> Any:
    """Two blocks of convolution, batch norm, ReLU and pooling, and a linear layer: in our `nn` or in PyTorch's."""
    return modules.Sequential(
        modules.Conv2d(1, 16, 3, padding=1),
        modules.BatchNorm2d(16),
        modules.ReLU(),
        modules.MaxPool2d(2),
        modules.Conv2d(16, 32, 3, padding=1),
        modules.BatchNorm2d(32),
        modules.ReLU(),
        modules.MaxPool2d(2),
        modules.Flatten(),
        modules.Dropout(0.2),
        modules.Linear(128, 10),
    )


def network(seed: int) -> nn.Sequential:
    """The network with its initial weights."""
    wg.manual_seed(seed)
    net: nn.Sequential = build(nn)
    return net


def layers(net: nn.Sequential, digits: Digits) -> list[Layer]:
    """Each layer with the shape that one image has after it."""
    found = []
    x = wg.tensor(digits.test_images[:1])
    net.eval()
    with wg.no_grad():
        for _, layer in net.named_children():
            x = layer(x)
            shape = "×".join(map(str, x.shape[1:]))
            found.append(Layer(_name(layer), shape, sum(p.size for p in layer.parameters())))
    net.train()
    return found


def _name(layer: nn.Module) -> str:
    return repr(layer).partition("  #")[0]


def train(net: nn.Sequential, digits: Digits, epochs: int, batch: int, seed: int, report: Report) -> Run:
    """Train for so many passes over the images; AdamW, with a learning rate that falls as half a cosine."""
    run = Run("wengert")
    x, t = wg.tensor(digits.images), wg.tensor(digits.labels)
    optimizer = optim.AdamW(net.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = optim.Scheduler(optimizer, optim.schedules.cosine(epochs))
    batches = wg.data.batches(x, t, batch_size=batch, shuffle=True, seed=seed)
    for _ in range(epochs):
        start, total = time.perf_counter(), 0.0
        for images, labels in batches:
            loss = wg.cross_entropy(net(images), labels)
            optimizer.step(loss.backward())
            total += loss.item() * len(images)
        schedule.step()
        run.seconds.append(time.perf_counter() - start)
        run.losses.append(total / len(x))
        run.accuracies.append(float(np.mean(predict(net, digits.test_images)[0] == digits.test_labels)))
        report(run)
    return run


def predict(net: nn.Sequential, images: Array) -> tuple[Array, Array]:
    """The most likely classes, and how likely they are."""
    net.eval()
    with wg.no_grad():
        probabilities = wg.softmax(net(wg.tensor(images)), axis=1)
        classes, certainty = probabilities.argmax(axis=1).numpy(), probabilities.max(axis=1).numpy()
    net.train()
    return classes, certainty
