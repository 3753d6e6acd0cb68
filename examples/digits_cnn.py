"""A convolutional network on handwritten digits: `python examples/digits_cnn.py`.

Prints the test accuracy and the seconds per epoch, and draws the learning curves and the confusion matrix. `wengert demo`
trains the same network and reports at length.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits

import wengert as wg
from wengert import nn, optim

History = dict[str, list[float]]


def load(seed: int) -> tuple[wg.Tensor, wg.Tensor, wg.Tensor, wg.Tensor]:
    """1,797 images of 1×8×8: three quarters to train on, one quarter to test on."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    x = (images[order] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    t = labels[order].astype(np.int64)
    n = 3 * len(x) // 4
    return wg.tensor(x[:n]), wg.tensor(t[:n]), wg.tensor(x[n:]), wg.tensor(t[n:])


def network() -> nn.Module:
    """Two blocks of convolution, batch norm, ReLU and pooling, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )


def predict(net: nn.Module, x: wg.Tensor) -> np.ndarray:
    """The most likely classes."""
    net.eval()
    with wg.no_grad():
        classes: np.ndarray = net(x).argmax(axis=1).numpy()
    net.train()
    return classes


def train(epochs: int = 25, batch: int = 32, seed: int = 0) -> tuple[History, np.ndarray, np.ndarray]:
    """The losses and accuracies of every epoch; the true and the predicted classes of the test images."""
    wg.manual_seed(seed)
    x, t, x_test, t_test = load(seed)
    net, console = network(), Console()
    optimizer = optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = optim.Scheduler(optimizer, optim.schedules.cosine(epochs))
    console.print(net, highlight=False)
    history: History = {"loss": [], "accuracy": [], "seconds": []}
    state = TextColumn("loss {task.fields[loss]:.4f}, test accuracy {task.fields[accuracy]:.4f}")
    columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), state)
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=epochs, loss=float("nan"), accuracy=float("nan"))
        for _ in range(epochs):
            start, total = time.perf_counter(), 0.0
            for images, labels in wg.data.batches(x, t, batch_size=batch, shuffle=True):
                loss = wg.cross_entropy(net(images), labels)
                optimizer.step(loss.backward())
                total += loss.item() * len(images)
            schedule.step()
            history["seconds"].append(time.perf_counter() - start)
            history["loss"].append(total / len(x))
            history["accuracy"].append(float(np.mean(predict(net, x_test) == t_test.numpy())))
            progress.update(task, advance=1, loss=history["loss"][-1], accuracy=history["accuracy"][-1])
    return history, t_test.numpy(), predict(net, x_test)


def draw(path: Path, history: History, true: np.ndarray, predicted: np.ndarray) -> None:
    """How it learned, and what it confuses."""
    from matplotlib.figure import Figure

    counts = np.zeros((10, 10), int)
    np.add.at(counts, (true, predicted), 1)
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    loss, accuracy, confusion = figure.subplots(1, 3)
    loss.semilogy(history["loss"])
    loss.set(title="training loss", xlabel="epoch")
    accuracy.plot(history["accuracy"])
    accuracy.set(title="test accuracy", xlabel="epoch")
    confusion.imshow(np.log1p(counts), cmap="Blues")
    for i, j in zip(*np.nonzero(counts)):
        confusion.text(j, i, counts[i, j], ha="center", va="center", color="white" if i == j else "black")
    confusion.set(title="test images", xlabel="predicted", ylabel="true", xticks=range(10), yticks=range(10))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Read the options, train, print and draw what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=25, help="passes over the images (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images per step (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("demo/digits_cnn.png"), help="picture (default: %(default)s)")
    options = parser.parse_args()
    history, true, predicted = train(options.epochs, options.batch, options.seed)
    draw(options.out, history, true, predicted)
    print(f"wrote {options.out}")
    print(f"test accuracy {history['accuracy'][-1]:.4f}, {np.mean(history['seconds']):.4f} seconds per epoch")


if __name__ == "__main__":
    main()
