"""Check the derivatives of a function against numerical ones.

Reverse and forward mode, first and second order. The verdict is one word. ok: all of them agree. bug: a derivative is wrong.
kink: there is no derivative here, because those from the two sides differ. noise: the values are too inexact to tell.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from typing import Any

from wengert.cli.style import coloured, progress
from wengert.cli.target import TargetError, load

EXAMPLES = """\
examples:
  wengert check model:loss --shape 8,3 --shape 3        two inputs of random numbers, 8×3 and 3
  wengert check ops.py:my_op --inputs ops.py:samples    inputs from a function that returns them in a tuple
  wengert check model:loss --shape 5 --dtype float32    in single precision: the tolerance follows
  wengert check model:loss --shape 5 --full --json      each element of the Jacobian; the report for a program

For an operation made with wg.custom_op or wg.CustomOp, the requirements on its rule are checked, too.

exit status:
  0  all derivatives agree with numbers
  1  a derivative is wrong
  2  it could not be checked: no such function, wrong inputs, an exception, no floating result, too long
  3  undecided: a kink, or noise
"""
STATUS = {"ok": 0, "bug": 1, "kink": 3, "noise": 3}
_COLOURS = {"ok": "green", "bug": "red", "kink": "yellow", "noise": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which function, at which inputs, how."""
    parser.epilog = EXAMPLES
    parser.add_argument("function", help="what is checked, as module:function or file.py:function")
    parser.add_argument(
        "--shape", action="append", default=[], metavar="N,M,…",
        help="the shape of an input of random numbers, once for each; () or nothing for a number (default: 3 for each)",
    )  # fmt: skip
    parser.add_argument("--inputs", metavar="MODULE:FUNCTION", help="a function that returns the inputs, or the inputs")
    parser.add_argument("--dtype", default="float64", help="of random inputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs and directions (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="each element of the Jacobian, instead of directions")
    parser.add_argument("--first-order", action="store_true", help="leave second derivatives out")
    parser.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="seconds until it is stopped (default: %(default)g)"
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check, print, and say by the exit status what was found."""
    from wengert.errors import WengertError

    try:
        f = load(options.function)
        if isinstance(f, type):
            f = f()  # an operation or a module that needs nothing to be made
        if not callable(f):
            raise TargetError(f"{options.function} is of type {type(f).__name__}, not a function")
        inputs = _inputs(f, options)
        progress(f"checking {options.function} …")
        report = _report(f, inputs, options)
    except TargetError as e:
        return _fail(options, str(e))
    except WengertError as e:
        return _fail(options, str(e))
    except Exception as e:
        return _fail(options, f"{options.function} raised {type(e).__name__}: {e}")
    finally:
        progress("")
    if options.json:
        print(json.dumps(_as_dict(report), indent=1))
    else:
        first, _, rest = str(report).partition(":")
        print(f"{coloured(first, _COLOURS[report.verdict])}:{rest}")
    return STATUS[report.verdict]


def _fail(options: argparse.Namespace, message: str) -> int:
    if options.json:
        print(json.dumps({"verdict": None, "error": message}, indent=1))
    print(f"wengert check: {message}", file=sys.stderr)
    return 2


def _report(f: Any, inputs: tuple[Any, ...], options: argparse.Namespace) -> Any:
    from wengert.autograd.custom import CustomOp
    from wengert.debug.custom_op_check import check_custom_op
    from wengert.debug.gradient_check import check_gradients

    if isinstance(f, CustomOp) or hasattr(f, "defvjp"):
        return check_custom_op(f, *inputs, time_limit=options.time_limit)
    return check_gradients(
        f,
        *inputs,
        second_order=not options.first_order,
        full=options.full,
        seed=options.seed,
        time_limit=options.time_limit,
    )


def _inputs(f: Any, options: argparse.Namespace) -> tuple[Any, ...]:
    if options.inputs:
        if options.shape:
            raise TargetError("--shape and --inputs both say what the inputs are; give one of them")
        found = load(options.inputs)
        found = found() if callable(found) else found
        return found if isinstance(found, tuple) else (found,)
    import wengert as wg

    dtype = getattr(wg, options.dtype, None)
    if not isinstance(dtype, wg.DType) or not dtype.is_inexact:
        raise TargetError(f"--dtype must be a floating or complex dtype, got {options.dtype!r}")
    generator = wg.Generator(options.seed)
    shapes = [_shape(text) for text in options.shape] or [(3,)] * _arity(f)
    return tuple(wg.randn(*shape, dtype=dtype, generator=generator) for shape in shapes)


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(n) for n in text.strip("()[] ").split(",") if n.strip())
    except ValueError:
        shape = (-1,)
    if any(n < 0 for n in shape):
        raise TargetError(f"--shape takes sizes such as 8,3; got {text!r}")
    return shape


def _arity(f: Any) -> int:
    try:
        parameters = inspect.signature(getattr(f, "forward", f)).parameters.values()
    except (TypeError, ValueError):
        raise TargetError("the number of inputs is not known; give a --shape for each, or --inputs") from None
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if not required:
        raise TargetError("the number of inputs is not known; give a --shape for each, or --inputs")
    return len(required)


def _as_dict(report: Any) -> dict[str, Any]:
    """The report, with infinities and NaN as text: JSON has none."""
    worst = report.worst
    return {
        "function": report.name,
        "verdict": report.verdict,
        "max_error": _number(report.max_error),
        "worst_input": report.worst_input,
        "worst_index": None if worst is None or worst.index is None else list(worst.index),
        "problems": list(report.problems),
        "findings": [
            {
                "verdict": f.verdict,
                "mode": f.mode,
                "order": f.order,
                "input": f.place,
                "index": None if f.index is None else list(f.index),
                "analytic": _number(f.analytic),
                "numerical": _number(f.numerical),
                "error_bar": _number(f.error_bar),
                "why": f.why,
            }
            for f in report.findings
        ],
        "notes": list(report.notes),
    }


def _number(x: Any) -> Any:
    if isinstance(x, complex):
        return [_number(x.real), _number(x.imag)]
    return float(x) if abs(x) < float("inf") else str(x)
