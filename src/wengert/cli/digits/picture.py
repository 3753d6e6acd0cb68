"""The demonstration's report as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import PercentFormatter

from wengert.cli.digits.training import Result

COLOURS = {"wengert": "#1b6ca8", "PyTorch": "#d9583b"}
RIGHT, WRONG = "#2e7d32", "#c62828"
SAMPLES, HARDEST = (3, 8), (2, 8)  # rows and columns of images
STYLE: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "axes.axisbelow": True,
}  # fmt: skip


def draw(result: Result, path: Path) -> None:
    """Write the picture: curves, time, model, samples, the hardest images, confusion matrix."""
    with matplotlib.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        figure: Any = Figure(figsize=(13, 9), layout=layout, facecolor="white")  # its types know no grid of subfigures
        upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.35), hspace=0.05)
        epochs = len(result.runs[0].losses)
        upper.suptitle(
            f"Handwritten digits: {result.accuracy:.1%} of {len(result.predicted)} test images read correctly "
            f"after {epochs} epochs of {result.runs[0].seconds_per_epoch * 1e3:.0f} ms",
            x=0.012, ha="left", fontsize=14, fontweight="bold",
        )  # fmt: skip
        curves, model = upper.subfigures(1, 2, width_ratios=(3, 1.2), wspace=0.04)
        _curves(curves, result)
        _model(model.subplots(), result)
        images, confusion = lower.subfigures(1, 2, width_ratios=(1.75, 1), wspace=0.03)
        samples, hardest = images.subfigures(2, 1, height_ratios=(SAMPLES[0], HARDEST[0] + 0.2))
        shown = range(min(SAMPLES[0] * SAMPLES[1], len(result.predicted)))
        _images(samples, result, shown, SAMPLES, "Test images, with predictions")
        title = f"The hardest ones: {result.mistakes} of {len(result.predicted)} misread (red, true → predicted)"
        _images(hardest, result, result.hardest, HARDEST, title)
        _confusion(confusion.subplots(), result)
        figure.savefig(path, dpi=130, bbox_inches="tight", pad_inches=0.2)


def _curves(figure: Any, result: Result) -> None:
    loss, accuracy, time = figure.subplots(1, 3, width_ratios=(2, 2, 1.1))
    for run in result.runs:
        epochs = np.arange(1, len(run.losses) + 1)
        colour = COLOURS[run.library]
        loss.semilogy(np.cumsum(run.seconds), run.losses, color=colour, label=run.library, marker=".", markersize=4)
        accuracy.plot(epochs, run.accuracies, color=colour, label=run.library, marker=".", markersize=4)
    loss.set(title="Training loss", xlabel="seconds of training")
    loss.set_xlim(left=0)
    accuracy.set(title="Test accuracy", xlabel="epoch")
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if len(result.runs) > 1:
        loss.legend(frameon=False)
    names = [run.library for run in result.runs]
    ms = [run.seconds_per_epoch * 1e3 for run in result.runs]
    bars = time.bar(names, ms, color=[COLOURS[n] for n in names], width=0.6)
    time.bar_label(bars, [f"{v:.0f} ms" for v in ms], padding=2)
    time.grid(False)
    time.set(title="Time per epoch", yticks=[], xlim=(-0.8, len(names) - 0.2), ylim=(0, 1.15 * max(ms)))
    time.spines["left"].set_visible(False)


def _model(axes: Axes, result: Result) -> None:
    axes.set(title="Model", xlim=(0, 1), ylim=(-len(result.layers) - 0.5, 0.9))
    axes.axis("off")
    rows = [(layer.name.partition("(")[0], layer.output, layer.parameters) for layer in result.layers]
    total = sum(n for *_, n in rows)
    for k, (name, shape, n) in enumerate([*rows, ("total", "", total)]):
        bold = "bold" if k == len(rows) else "normal"
        axes.text(0.0, -k, name, fontweight=bold)
        axes.text(0.62, -k, shape, ha="right", color="#555555")
        axes.text(1.0, -k, f"{n:,}" if n else "", ha="right", fontweight=bold)
    axes.text(0.62, 0.9, "output", ha="right", color="#999999", fontsize=8)
    axes.text(1.0, 0.9, "parameters", ha="right", color="#999999", fontsize=8)


def _images(figure: Any, result: Result, chosen: Sequence[int], grid: tuple[int, int], title: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    places = figure.subplots(*grid, squeeze=False).ravel()
    for axes in places:
        axes.axis("off")
    for axes, k in zip(places, chosen):
        predicted, true = int(result.predicted[k]), int(result.digits.test_labels[k])
        axes.imshow(result.digits.test_images[k, 0], cmap="gray_r", vmin=0, vmax=1)
        caption = f"{predicted}" if predicted == true else f"{true} → {predicted}"
        axes.set_title(
            f"{caption}  {result.certainty[k]:.0%}",
            fontsize=8, fontweight="normal", loc="center", pad=2, color=RIGHT if predicted == true else WRONG,
        )  # fmt: skip


def _confusion(axes: Axes, result: Result) -> None:
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (result.digits.test_labels, result.predicted), 1)
    axes.grid(False)
    axes.imshow(np.log1p(counts), cmap="Blues", vmax=1.25 * float(np.log1p(counts.max())))
    for i, j in zip(*np.nonzero(counts)):
        axes.text(j, i, str(counts[i, j]), ha="center", va="center", color="white" if i == j else WRONG)
    axes.set(title="Confusion matrix", xlabel="predicted", ylabel="true", xticks=range(10), yticks=range(10))
