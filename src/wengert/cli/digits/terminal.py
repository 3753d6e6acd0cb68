"""The demo's output on the terminal, at any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from wengert.cli.digits.training import NEXT, Array, Digits, Layer, Report, Result, Run

WIDE = 72  # columns from which there is room for a progress bar
TILE = 10  # columns of an image with its caption
_EIGHTHS = " ▁▂▃▄▅▆▇█"


class Screen:
    """Shows the parts of the demonstration in their order."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)

    def show_model(self, layers: Sequence[Layer], digits: Digits) -> None:
        """The model and its data."""
        self.console.rule("handwritten digits")
        self.console.print(
            f"{len(digits.images):,} images of 8×8 pixels to train on, {len(digits.test_images)} others to test on"
        )
        table = Table("layer", "output", box=None, pad_edge=False, show_footer=True)
        table.columns[0].no_wrap = True
        table.columns[0].max_width = max(8, self.console.width - 24)  # the numbers stay whole
        table.columns[0].footer = "total"
        table.add_column("parameters", justify="right", footer=f"{sum(la.parameters for la in layers):,}")
        for layer in layers:
            table.add_row(layer.name, layer.output, f"{layer.parameters:,}" if layer.parameters else "")
        self.console.print(table)

    @contextmanager
    def progress(self, library: str, epochs: int) -> Iterator[Report]:
        """A line that grows with the training; gives the function to call after every epoch."""
        state = TextColumn("loss {task.fields[loss]:.4f}, test {task.fields[accuracy]:.1%}")
        columns: list[ProgressColumn] = [TextColumn(library), MofNCompleteColumn(), state]
        if self.console.width >= WIDE:
            columns[2:2] = [BarColumn(), TimeElapsedColumn()]
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task("", total=epochs, loss=float("nan"), accuracy=float("nan"))

            def report(run: Run) -> None:
                progress.update(task, advance=1, loss=run.losses[-1], accuracy=run.accuracies[-1])

            yield report

    def show_result(self, result: Result) -> None:
        """Curves, samples, mistakes, times."""
        ours = result.runs[0]
        self.console.rule("training loss")
        self._show_chart(ours.losses, logarithmic=True)
        self.console.rule("test accuracy")
        self._show_chart(ours.accuracies)
        tiles = max(1, (self.console.width + 1) // (TILE + 1))
        self.console.rule("test images")
        self.console.print("Each with its prediction, and how certain that is:")
        self._show_images(result, range(2 * tiles))
        self.console.rule("the hardest")
        self.console.print(f"{result.mistakes} of {len(result.predicted)} test images were misread (true → predicted):")
        self._show_images(result, result.hardest[: tiles if result.mistakes <= tiles else 2 * tiles])
        self.console.rule("time")
        self.console.print(_times(result.runs))
        if len(result.runs) == 1:
            self.console.print("If PyTorch is installed (pip install torch), the demo times it as well.", style="dim")

    def close(self, result: Result, page: Path) -> None:
        """The two numbers that matter, the place of the report, and what to try next."""
        self.console.print(f"report: {page}", soft_wrap=True)
        for what, command in NEXT:
            self.console.print(f"next: {command}  [dim]{what}[/dim]", soft_wrap=True)
        self.console.print(
            f"test accuracy {result.accuracy:.4f}, {result.runs[0].seconds_per_epoch:.4f} seconds per epoch",
            soft_wrap=True,
        )

    def _show_chart(self, values: Sequence[float], logarithmic: bool = False) -> None:
        lines = chart(values, min(self.console.width - 9, 72), logarithmic=logarithmic)
        self.console.print(Text("\n".join(lines)))

    def _show_images(self, result: Result, chosen: Sequence[int]) -> None:
        coloured = self.console.color_system is not None
        tiles: list[RenderableType] = []
        for k in chosen:
            predicted, true = int(result.predicted[k]), int(result.digits.test_labels[k])
            caption = Text(f"{predicted} {result.certainty[k]:.0%}", "green")
            if predicted != true:
                caption = Text(f"{true} → {predicted} {result.certainty[k]:.0%}", "red")
            tiles.append(Group(image(result.digits.test_images[k, 0], coloured), caption, ""))
        self.console.print(Columns(tiles, width=TILE))


def _times(runs: Sequence[Run]) -> Table:
    table = Table("library", box=None, pad_edge=False)
    table.add_column("per epoch", justify="right")
    table.add_column("epochs", justify="right")
    table.add_column("accuracy", justify="right")
    for run in runs:
        table.add_row(
            run.library,
            f"{run.seconds_per_epoch * 1e3:.0f} ms",
            str(len(run.losses)),
            f"{run.accuracies[-1]:.1%}",
        )
    return table


def image(pixels: Array, coloured: bool) -> Text:
    """An image in half as many lines as it has rows: each character is two pixels, one above the other.

    >>> print(image(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), coloured=False))
    ▀▄█
    """
    text = Text()
    for upper, lower in zip(pixels[::2], pixels[1::2]):
        for a, b in zip(upper, lower):
            if coloured:
                text.append("▀", f"{_grey(a)} on {_grey(b)}")
            else:
                text.append(" ▄▀█"[2 * (a >= 0.4) + (b >= 0.4)])
        text.append("\n")
    text.right_crop()
    return text


def _grey(ink: float) -> str:
    level = round(30 + 225 * float(ink))
    return f"rgb({level},{level},{level})"


def chart(values: Sequence[float], width: int, height: int = 4, logarithmic: bool = False) -> list[str]:
    """Bars of a series, at most so wide, with its largest and its smallest value at the left.

    >>> print("\\n".join(chart([1.0, 2.0, 3.0], width=6, height=2)))
      3.000   ▁▁██
      1.000 ▁▁████
    """
    series = np.log(np.maximum(values, 1e-12)) if logarithmic else np.asarray(values, dtype=float)
    low, high = float(series.min()), float(series.max())
    width = max(1, width)
    columns = len(series) * max(1, width // len(series)) if len(series) <= width else width
    places = np.arange(columns) * len(series) // columns
    levels = 1 + np.round((series[places] - low) / ((high - low) or 1.0) * (8 * height - 1)).astype(int)
    rows = ["".join(_EIGHTHS[int(np.clip(v - 8 * k, 0, 8))] for v in levels) for k in reversed(range(height))]
    labels = [f"{max(values):7.3f}", *[" " * 7] * (height - 2), f"{min(values):7.3f}"]
    return [f"{label} {row}".rstrip() for label, row in zip(labels, rows)]
