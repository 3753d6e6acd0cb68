"""How results of benchmarks look in notebooks: a table, with the spread of each as a strip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wengert.tensors.html import escaped

if TYPE_CHECKING:
    from wengert.debug.benchmark_result import BenchmarkResult

_WIDTH, _HEIGHT = 220, 18  # of a strip, in pixels


def results_html(results: Sequence[BenchmarkResult]) -> str:
    """A row for each result; the strips have one scale, from 0 to the longest 95th percentile."""
    most = max((r.p95 for r in results), default=0.0) or 1.0
    head = ["benchmark", "median", "95 % interval", "p95", "samples", "calls/s", "peak", ""]
    rows = "".join(_row(r, most) for r in results)
    return (
        f"<table><thead><tr>{''.join(f'<th>{h}</th>' for h in head)}</tr></thead><tbody>{rows}</tbody></table>"
        f"<small>strips: from the best to the 95th percentile, the median as a tick; 0 to {most:.3g} ms</small>"
    )


def _row(r: BenchmarkResult, most: float) -> str:
    interval = "" if r.interval is None else f"{r.interval[0]:.4g} to {r.interval[1]:.4g}"
    throughput = "" if r.throughput_ops_per_sec is None else f"{r.throughput_ops_per_sec:,.4g}"
    peak = "" if r.peak_bytes is None else f"{r.peak_bytes / 2**20:.3g} MB"
    cells = [escaped(r.name), f"{r.median:.4g} ms", interval, f"{r.p95:.4g} ms", str(len(r.samples)), throughput, peak]
    return f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}<td>{_strip(r, most)}</td></tr>"


def _strip(r: BenchmarkResult, most: float) -> str:
    best, median, p95 = (min(v / most, 1.0) * (_WIDTH - 4) + 2 for v in (r.best, r.median, r.p95))
    middle = _HEIGHT / 2
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="best {r.best:.4g} ms, median {r.median:.4g} ms">'
        f'<line x1="2" x2="{_WIDTH - 2}" y1="{middle}" y2="{middle}" stroke="currentColor" stroke-opacity="0.15"/>'
        f'<rect x="{best:.1f}" y="{middle - 4}" width="{max(p95 - best, 1):.1f}" height="8" rx="2" fill="#3b78e7" '
        f'fill-opacity="0.45"/><rect x="{median - 1:.1f}" y="1" width="2" height="{_HEIGHT - 2}" fill="#e07b1f"/></svg>'
    )
