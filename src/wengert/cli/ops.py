"""Which tests every op passes: values, derivatives, compilation, dtypes; and whether it runs on GPUs.

The table is `coverage.json` beside this file. `make coverage` writes it from the results of the tests of the registry.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("coverage.json")
COLUMNS = ("value", "jvp", "vjp", "second order", "vmap", "compiled", "float16", "complex")
SHOWN = (*COLUMNS, "CUDA")  # of which the core knows the last one itself
# What a cell says is its first word; the rest is the reason.
_MARKS = {"yes": "✓", "zero": "0", "elsewhere": "✓", "no": "·", "failed": "✗", "untested": "?"}
_PLAIN = {"yes": "yes", "zero": "zero", "elsewhere": "yes", "no": "-", "failed": "FAIL", "untested": "?"}


EXAMPLES = """\
examples:
  wengert ops                all ops, with marks
  wengert ops tanh argmax    these, with the reasons of what is missing
  wengert ops --holes        only ops that lack something
  wengert ops --json         the table for programs

exit status: 0, or 1 if there is no such op.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which ops, and how the table looks."""
    parser.epilog = EXAMPLES
    parser.add_argument("names", nargs="*", help="ops to show, with the reasons of their holes (default: all)")
    parser.add_argument("--holes", action="store_true", help="only ops that lack something, with the reasons")
    parser.add_argument("--plain", action="store_true", help="words instead of marks")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    parser.set_defaults(run=run)


def load() -> dict[str, dict[str, str]]:
    """The table by op, with ops that it does not know yet as untested."""
    from wengert.registry.record import OPS

    rows: dict[str, dict[str, str]] = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    new = "untested: newer than the table; make coverage"
    return {name: rows.get(name, dict.fromkeys(COLUMNS, new)) | {"CUDA": on_gpus(name)} for name in sorted(OPS)}


_BY_STRIDES = ("permute", "broadcast_to", "slice", "stop_gradient")
_BY_THE_HOST = ("to_device", "size_scalar")


def on_gpus(name: str) -> str:
    """The cell of an op for GPUs.

    >>> on_gpus("tanh"), on_gpus("permute"), on_gpus("svd"), on_gpus("random_gamma")
    ('yes', 'yes', 'yes: by CuPy, where it is installed', 'yes')
    """
    from wengert import _core
    from wengert.cuda.cupy_kernels import KERNELS
    from wengert.registry.record import OPS

    if OPS[name].elementwise or name in _BY_STRIDES or name in _BY_THE_HOST:
        return "yes"
    if name in KERNELS:
        return "yes: by CuPy, where it is installed"
    return "yes" if _core.cuda_has_kernel(name) else "no: has no CUDA kernel, and raises"


def status(cell: str) -> str:
    """The first word of a cell.

    >>> status("no: takes integers")
    'no'
    """
    return cell.partition(":")[0]


def reason(cell: str) -> str:
    """The text of a cell after its first word.

    >>> reason("no: takes integers")
    'takes integers'
    """
    return cell.partition(":")[2].strip()


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    rows = load()
    unknown = [name for name in options.names if name not in rows]
    if unknown:
        print(f"wengert ops: there is no op {', '.join(unknown)}; wengert ops lists them all", file=sys.stderr)
        return 1
    if options.names:
        rows = {name: rows[name] for name in options.names}
    if options.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    if options.holes:
        rows = {n: r for n, r in rows.items() if any(status(r[c]) not in ("yes", "zero") for c in SHOWN)}
    plain = options.plain or not _can_print_marks()
    _print(rows, _PLAIN if plain else _MARKS)
    if options.names or options.holes:
        _print_reasons(rows)
    _print_summary(rows, plain)
    return 0


def _can_print_marks() -> bool:
    try:
        "".join(_MARKS.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _print(rows: dict[str, dict[str, str]], marks: dict[str, str]) -> None:
    width = max(map(len, (*rows, "op")))
    print("  ".join([f"{'op':<{width}}", *SHOWN]))
    for name, row in rows.items():
        cells = (f"{marks[status(row[c])]:^{len(c)}}" for c in SHOWN)
        print("  ".join([f"{name:<{width}}", *cells]).rstrip())


def _print_reasons(rows: dict[str, dict[str, str]]) -> None:
    by_reason: dict[str, dict[str, list[str]]] = {}
    for name, row in rows.items():
        for c in SHOWN:
            if reason(row[c]):
                by_reason.setdefault(reason(row[c]), {}).setdefault(name, []).append(c)
    for why, cells in by_reason.items():
        shown = [f"{name} ({', '.join(columns)})" for name, columns in cells.items()]
        rest = f", and {len(shown) - 6} more" if len(shown) > 6 else ""
        print(f"\n{why}:\n  {', '.join(shown[:6])}{rest}")


def _print_summary(rows: dict[str, dict[str, str]], plain: bool) -> None:
    def count(*words: str) -> dict[str, int]:
        return {c: sum(status(r[c]) in words for r in rows.values()) for c in SHOWN}

    covered: dict[str, Any] = count("yes", "zero", "elsewhere")
    print(f"\n{len(rows)} ops; " + ", ".join(f"{c} {covered[c]}" for c in SHOWN))
    if not plain:
        print(
            "✓ tested, 0 tested: the derivative is zero, · not there (wengert ops NAME says why), ✗ failed, ? not yet run"
        )
