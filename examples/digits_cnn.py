"""A convolutional network on handwritten digits: `python examples/digits_cnn.py`, or `make demo`.

Prints the test accuracy and seconds per epoch, and writes learning curves and the confusion matrix as PNG, and both in one
page: demo/report.html.
"""

from __future__ import annotations

import argparse
import base64
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
        classes = net(x).argmax(axis=1).numpy()
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


def report(folder: Path, history: History, true: np.ndarray, predicted: np.ndarray) -> Path:
    """Pictures of how it learned and of what it confuses, and a page with both."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.semilogy(history["loss"])
    left.set(title="training loss", xlabel="epoch")
    right.plot(history["accuracy"])
    right.set(title="test accuracy", xlabel="epoch")
    figure.savefig(folder / "curves.png", dpi=120)
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (true, predicted), 1)
    figure, axes = pyplot.subplots(figsize=(4.6, 4.2), layout="constrained")
    axes.imshow(np.log1p(counts), cmap="Blues")
    for i, j in zip(*np.nonzero(counts)):
        axes.text(j, i, counts[i, j], ha="center", va="center", color="white" if i == j else "black")
    axes.set(title="confusion matrix", xlabel="predicted", ylabel="true", xticks=range(10), yticks=range(10))
    figure.savefig(folder / "confusion.png", dpi=120)
    pyplot.close("all")
    pictures = "".join(
        f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode((folder / name).read_bytes()).decode()}">'
        for name in ("curves.png", "confusion.png")
    )
    page = folder / "report.html"
    page.write_text(
        '<!doctype html><meta charset="utf-8"><title>Digits</title><style>body{font-family:sans-serif;margin:2em}</style>'
        f"<h1>Handwritten digits</h1><p>Test accuracy {history['accuracy'][-1]:.4f} after {len(history['loss'])} epochs of "
        f"{np.mean(history['seconds']):.3f} seconds.</p>{pictures}\n"
    )
    return page


def main() -> None:
    """Read the options, train, print and draw what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the report")
    options = parser.parse_args()
    history, true, predicted = train(options.epochs, options.batch, options.seed)
    seconds = float(np.mean(history["seconds"]))
    print(f"test accuracy {history['accuracy'][-1]:.4f}, {seconds:.4f} seconds per epoch")
    print(f"report: {report(options.out, history, true, predicted)}")


if __name__ == "__main__":
    main()
