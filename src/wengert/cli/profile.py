"""Run a script and report where its time and memory went: tables, an HTML page, a trace."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_EPILOG = """\
The script runs as with `python script.py args`, and its exit status becomes that of this command. If the script fails, the
profile is written all the same. Tables go to the error stream, so they do not mix with the script's output.

examples:
  wengert profile train.py --epochs 2             tables, and profile.html
  wengert profile --trace trace.json train.py     also a trace for ui.perfetto.dev
  wengert profile --inside -m package.train       look into compiled functions; run a module
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: what to write, and what to run."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "wengert profile [options] script.py [args …]"
    parser.add_argument(
        "--report", type=Path, default=Path("profile.html"), metavar="FILE", help="the page (default: %(default)s)"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="a trace for Perfetto and chrome://tracing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="totals, tables, memory and events as JSON")
    parser.add_argument("--inside", action="store_true", help="time every instruction of compiled functions")
    parser.add_argument("--max-events", type=int, default=None, metavar="N", help="keep at most N ops")
    parser.add_argument("--quiet", action="store_true", help="print no tables")
    parser.add_argument("-m", dest="module", action="store_true", help="what follows is the name of a module")
    parser.add_argument("script", help="the script, or with -m the module")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the script under the profiler, write, and return the script's exit status."""
    from wengert.profiling.session import MOST_EVENTS, profile

    if options.max_events is not None and options.max_events < 1:
        return _refuse(f"--max-events must be positive, got {options.max_events}")
    if not options.module and not Path(options.script).is_file():
        return _refuse(f"there is no script {options.script}")
    outputs = {k: getattr(options, k) for k in ("report", "trace", "json") if getattr(options, k) is not None}
    for name, path in outputs.items():
        if problem := _unwritable(path):
            return _refuse(f"cannot write the {name} to {path}: {problem}")
    with profile(inside=options.inside, max_events=options.max_events or MOST_EVENTS) as p:
        status = _run_script(options.script, options.args, options.module)
    write: dict[str, Callable[[Any], Any]] = {
        "report": lambda path: p.report(path, f"Profile of {Path(options.script).name}"),
        "trace": p.to_chrome_trace,
        "json": p.to_json,
    }
    if not options.quiet:
        print(f"\n{p}", file=sys.stderr)
    for name, path in outputs.items():
        try:
            write[name](path)
        except OSError as e:
            print(f"wengert profile: cannot write the {name} to {path}: {e.strerror or e}", file=sys.stderr)
            status = status or 1
        else:
            print(f"wengert profile: {name} written to {path}", file=sys.stderr)
    return status


def _refuse(why: str) -> int:
    print(f"wengert profile: {why}", file=sys.stderr)
    return 2


def _unwritable(path: Path) -> str:
    """Why nothing can be written there; empty if it can. Whatever is there stays as it is."""
    existed = path.exists()
    try:
        with path.open("ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as e:
        return e.strerror or str(e)
    return ""


def _run_script(script: str, arguments: list[str], module: bool) -> int:
    """Run it as Python would, and return the exit status that Python would have."""
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, "" if module else str(Path(script).resolve().parent))
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as e:
        return _status(e.code)
    except BaseException as e:
        _print_traceback(e, script if not module else "")
        return 130 if isinstance(e, KeyboardInterrupt) else 1
    finally:
        sys.argv, sys.path[:] = before
    return 0


def _status(code: Any) -> int:
    """The exit status for what was given to sys.exit."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _print_traceback(e: BaseException, script: str) -> None:
    """The traceback as the script alone would have it: without the frames that started it."""
    first = e.__traceback__
    while first is not None and not _of_script(first.tb_frame.f_code.co_filename, script):
        first = first.tb_next
    traceback.print_exception(e.with_traceback(first if first is not None else e.__traceback__))


def _of_script(file: str, script: str) -> bool:
    if script:
        return file == script
    return file != __file__ and "runpy" not in file
