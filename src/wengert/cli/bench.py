"""Time functions, and compare them with each other and with a baseline.

Without arguments, it times some of the library's own: an eager op, a fused function, a matrix product, a training step.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from wengert.cli.style import coloured, progress
from wengert.cli.target import TargetError, load

EXAMPLES = """\
examples:
  wengert bench                                    how fast this installation is
  wengert bench model:step                         a function of no arguments: median, percentiles, peak memory
  wengert bench model:old model:new                both in turns, and whether they differ beyond chance
  wengert bench model:step --save base.json        keep the result as a baseline
  wengert bench model:step --baseline base.json    exit status 1 if it has become slower by more than 10 %

exit status:
  0  measured; nothing is slower than the baseline
  1  something is slower than the baseline, beyond the tolerance and chance
  2  it could not be measured or compared: no such function, an exception, a file that cannot be read or written, a
     baseline of other functions
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which functions, how often, compared with what."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "functions", nargs="*", help="functions of no arguments, as module:function or file.py:function"
    )
    parser.add_argument("--iterations", type=int, default=100, help="samples of each (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=10, help="calls that are not measured (default: %(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write the results as JSON: a baseline")
    parser.add_argument("--baseline", metavar="FILE", help="compare with results that --save has written")
    parser.add_argument(
        "--tolerance", type=float, default=0.1, help="how much slower counts, as a fraction (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="the results as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, print, and say by the exit status whether something has become slower."""
    from wengert.debug.benchmark import BenchmarkConfig, PerformanceBenchmark
    from wengert.errors import WengertError

    try:
        functions = {name: _function(name) for name in options.functions} or _own()
        b = PerformanceBenchmark(BenchmarkConfig(num_warmup=options.warmup, num_iterations=options.iterations))
        if len(functions) == 2:
            progress("measuring in turns …")
            b.run_in_turns(functions)
        else:
            for k, (name, f) in enumerate(functions.items()):
                progress(f"measuring {name} ({k + 1} of {len(functions)}) …")
                b.run(name, f)
        progress("")
        comparison = b.compare(*functions) if len(functions) == 2 else None
        report = None if options.baseline is None else b.check_regression(options.baseline, tolerance=options.tolerance)
        if report is not None and not report.comparisons:
            raise TargetError(
                f"nothing to compare: {options.baseline} has only {', '.join(report.missing) or 'no results'}"
            )
        if options.save:
            b.save(options.save)
    except (TargetError, WengertError) as e:
        progress("")
        print(f"wengert bench: {e}", file=sys.stderr)
        return 2
    except Exception as e:
        progress("")
        print(f"wengert bench: a function raised {type(e).__name__}: {e}", file=sys.stderr)
        return 2
    _print(options, b, comparison, report)
    return 0 if report is None or report else 1


def _print(options: argparse.Namespace, b: Any, comparison: Any, report: Any) -> None:
    if options.json:
        content = {
            "results": [r.as_dict() for r in b.results.values()],
            "comparison": None if comparison is None else {**_fields(comparison), "statement": str(comparison)},
            "regressions": None
            if report is None
            else [{**_fields(c), "statement": str(c)} for c in report.regressions],
        }
        print(json.dumps(content, indent=1))
        return
    print(b)
    if comparison is not None:
        print(coloured(str(comparison), "bold"))
    if report is not None:
        print(coloured(str(report), "green" if report else "red"))


def _fields(c: Any) -> dict[str, Any]:
    found = {k: getattr(c, k) for k in ("first", "second", "ratio", "low", "high", "p", "different", "in_turns")}
    return {k: str(v) if isinstance(v, float) and not abs(v) < float("inf") else v for k, v in found.items()}


def _function(name: str) -> Callable[[], Any]:
    f = load(name)
    if not callable(f):
        raise TargetError(f"{name} is of type {type(f).__name__}, not a function")
    return f  # type: ignore[no-any-return]


def _own() -> dict[str, Callable[[], Any]]:
    """A few things that people do."""
    import wengert as wg

    small, large = wg.randn(8, 8, requires_grad=True), wg.randn(512, 512)
    fused: Any = wg.compile(lambda x: wg.tanh(x * 2.0 + 1.0) * wg.sigmoid(x))
    net = wg.nn.Sequential(wg.nn.Linear(64, 64), wg.nn.ReLU(), wg.nn.Linear(64, 10))
    optimizer = wg.optim.Adam(net.parameters(), lr=1e-3)
    x, t = wg.randn(32, 64), wg.randint(0, 10, (32,))

    def step() -> None:
        loss = wg.cross_entropy(net(x), t)
        optimizer.step(loss.backward())

    return {
        "eager op with gradient, 8×8": lambda: (small * small).sum().backward(),
        "fused function, 512×512": lambda: fused(large),
        "matrix product, 512×512": lambda: large @ large,
        "training step, MLP 64-64-10": step,
    }
