"""What gradients look like, layer by layer: norms, update ratios, dead units."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from wengert import _core
from wengert.autograd.gradient_map import GradientMap


class Row(NamedTuple):
    """One parameter: norms of weights, gradient and last update, and how much of the gradient is zero or not finite."""

    name: str
    shape: tuple[int, ...]
    weight_norm: float
    gradient_norm: float  # NaN if no gradient reached it
    largest: float
    update_ratio: float  # ‖update‖ / ‖weight‖; NaN until `watch_step` has seen one
    dead: float  # the part of the units (along axis 0) whose gradient is zero throughout
    not_finite: int


class GradientStatistics:
    """Looks at the gradients and updates of a module.

    >>> import wengert as wg
    >>> net = wg.nn.Linear(3, 2)
    >>> opt, statistics = wg.optim.SGD(net.parameters(), lr=0.1), GradientStatistics(net)
    >>> grads = net(wg.ones((4, 3))).sum().backward()
    >>> with statistics.watch_step():
    ...     opt.step()
    >>> rows = statistics.collect(grads)
    >>> rows[1].name, rows[1].gradient_norm, rows[1].dead
    ('bias', 5.65..., 0.0)
    """

    def __init__(self, net: Any) -> None:
        self._named = list(net.named_parameters())
        self._updates: dict[str, float] = {}

    @contextlib.contextmanager
    def watch_step(self) -> Iterator[None]:
        """Inside, the optimizer makes its step, and the size of every update is measured."""
        before = {name: _core.copy(p.detach()) for name, p in self._named}
        yield
        for name, p in self._named:
            self._updates[name] = _norm(_array(p) - _array(before[name]))

    def collect(self, grads: GradientMap | None = None) -> list[Row]:
        """One row per parameter; gradients from the map, or from `.grad`."""
        return [self._row(name, p, p.grad if grads is None else grads.get(p)) for name, p in self._named]

    def _row(self, name: str, p: Any, g: Any) -> Row:
        weight = _norm(_array(p))
        ratio = self._updates.get(name, math.nan) / weight if weight else math.nan
        if g is None:
            return Row(name, tuple(p.shape), weight, math.nan, math.nan, ratio, math.nan, 0)
        a = _array(g)
        units = a.reshape(a.shape[0], -1) if a.ndim else a.reshape(1, 1)
        dead = float((~units.any(axis=1)).mean()) if units.size else 0.0
        largest = float(np.abs(a).max()) if a.size else 0.0
        return Row(name, a.shape, weight, _norm(a), largest, ratio, dead, int((~np.isfinite(a)).sum()))

    def print(self, grads: GradientMap | None = None) -> None:
        """A table of all rows: with `rich` if it is installed, else plain."""
        rows = self.collect(grads)
        titles = ("parameter", "shape", "‖w‖", "‖g‖", "max |g|", "‖Δw‖/‖w‖", "dead units", "not finite")
        cells = [_cells(row) for row in rows]
        if importlib.util.find_spec("rich") is not None:
            from rich.console import Console
            from rich.table import Table

            table = Table(*titles)
            for row in cells:
                table.add_row(*row)
            Console().print(table)
            return
        widths = [max(len(r[k]) for r in (titles, *cells)) for k in range(len(titles))]
        for row in (titles, *cells):
            print("  ".join(text.ljust(w) for text, w in zip(row, widths)).rstrip())


def _array(x: Any) -> Any:
    return _core.copy(x.detach()).astype("float64").numpy()


def _norm(a: Any) -> float:
    """Without the products of NumPy's BLAS: its threads compete with ours."""
    largest = float(np.abs(a).max(initial=0.0))
    return largest * math.sqrt(float(np.square(a / largest).sum())) if 0.0 < largest < math.inf else largest


def _cells(row: Row) -> tuple[str, ...]:
    def number(x: float) -> str:
        return "none" if math.isnan(x) else f"{x:.3g}"

    dead = "" if math.isnan(row.dead) or not row.dead else f"{row.dead:.0%}"
    numbers = (row.weight_norm, row.gradient_norm, row.largest, row.update_ratio)
    return row.name, str(row.shape), *map(number, numbers), dead, str(row.not_finite or "")
