"""How long each kernel of a training step takes: `ncu ... python -m benchmarks.gpu.kernels transformer bfloat16`.

`tools/gpu.sh kernels` runs it under NVIDIA's profiler, which runs kernels one at a time, and shows a table of its report:
`python -m benchmarks.gpu.kernels --table report.csv`.
"""

from __future__ import annotations

import csv
import ctypes
import sys
from collections import defaultdict
from pathlib import Path

import wengert as wg
from benchmarks.gpu import shapes
from benchmarks.gpu.in_wengert import Library

WIDTHS = {"small": ([64, 64, 64, 10], 32), "mlp": ([784, 1024, 1024, 10], 128)}
WARM_UP = 6


def one_step(kind: str, precision: str) -> None:
    """Runs a compiled step until it is a graph, and once more for the profiler."""
    widths, n = WIDTHS.get(kind, ([], 0))
    library = Library("cuda", shapes.MEASURED)
    step = library.step("mlp" if widths else kind, widths, n, precision, compiled=True)
    for _ in range(WARM_UP):
        library.wait(step())
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuProfilerStart()
    library.wait(step())
    driver.cuProfilerStop()


def table(report: Path) -> None:
    """Prints kernels of a report in CSV, the longest together first."""
    lines = report.read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith('"ID"'))
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in csv.DictReader(lines[first:]):
        if row["Metric Name"] == "gpu__time_duration.sum":
            scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3}[row["Metric Unit"]]
            launch = f"{row['Grid Size']}{row['Block Size']}".replace(" ", "")
            times[row["Kernel Name"], launch].append(float(row["Metric Value"].replace(",", "")) * scale)
    everything = sum(map(sum, times.values()))
    print(f"{sum(map(len, times.values()))} kernels, {everything:.1f} µs when each runs alone")
    for (name, launch), each in sorted(times.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(each):9.1f} µs {len(each):4d} × {min(each):8.2f}–{max(each):8.2f}  {launch:28s} {name[:110]}")


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table(Path(sys.argv[2]))
    else:
        print(wg.cuda.get_device_name(), *sys.argv[1:])
        one_step(*sys.argv[1:3])
