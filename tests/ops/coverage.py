"""The coverage table: from results of tests to what is known of each op, and why the rest is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.ops.sampling import (
    TESTED_ELSEWHERE,
    WITHOUT_REFERENCE,
    dtypes_of,
    has_kind,
    make,
)
from wengert import _core
from wengert.cli.ops import COLUMNS
from wengert.dtypes import as_dtype
from wengert.ops import OPS
from wengert.registry.record import Op

_NODE = re.compile(r"::(?P<test>\w+)\[(?P<op>[^-\]]+)-\d+(-(?P<dtype>\w+))?\]$")
VMAP = ("test_vmap_is_the_loop", "test_vmap_of_first_order", "test_vmap_of_second_order")
STREAMS = "test_vmap_draws_from_a_stream_of_each_example"
RANDOM = ("random_uniform", "random_normal", "random_integers")
MADE = "elsewhere: test_creation_in_every_dtype"
# What the results by op and sample do not show.
EXPLAINED = {(op, c): MADE for op in ("full", "iota", "size_scalar") for c in ("float16", "complex")}
EXPLAINED |= {
    (op, "compiled"): "no: a compiled function would draw the same numbers in every call; it raises" for op in RANDOM
}
EXPLAINED |= {(op, "complex"): "no: it draws real numbers" for op in RANDOM}
EXPLAINED["pinv", "complex"] = "elsewhere: its cutoff stays real; complex matrices are tested in tests/linalg"


class Results:
    """What passed and what failed, by op, test and dtype."""

    def __init__(self, by_node: dict[str, bool]) -> None:
        self.cells: dict[tuple[str, str, str], bool] = {}
        for node, passed in by_node.items():
            m = _NODE.search(node)
            if m is None:
                continue
            for dtype in {m["dtype"] or "", "any"}:
                key = (m["op"], m["test"], dtype)
                self.cells[key] = self.cells.get(key, True) and passed

    def of(self, op: Op, test: str, dtype: str = "any") -> str:
        """yes, failed, or nothing if no such test ran."""
        passed = self.cells.get((op.name, test, dtype))
        return "" if passed is None else "yes" if passed else "failed"


def row(op: Op, results: Results) -> dict[str, str]:
    """The cells of one op."""
    cells = {
        "value": results.of(op, "test_value") or _value(op),
        "compiled": results.of(op, "test_compiled_call_has_the_same_bits") or _without_operands(op),
        "vmap": _vmap(op, results),
        "float16": _float16(op, results),
        "complex": _complex(op, results),
    }
    first = _derivative(op, results, "test_first_order")
    cells |= {"jvp": first, "vjp": first, "second order": _derivative(op, results, "test_second_order")}
    return {c: EXPLAINED.get((op.name, c), cells[c]) for c in COLUMNS}


def _vmap(op: Op, results: Results) -> str:
    """Without a loop over the examples: no op has one."""
    if op.vmap == "undefined":
        return "no: it has no operands, and makes the same for all examples"
    found = {results.of(op, test) for test in (*VMAP, STREAMS)} - {""}
    return "failed" if "failed" in found else "yes" if found else "untested"


def _value(op: Op) -> str:
    return f"elsewhere: {WITHOUT_REFERENCE[op.name]}" if op.name in WITHOUT_REFERENCE else "untested"


def _without_operands(op: Op) -> str:
    return (
        "elsewhere: it has no operands; tests/program compiles functions that make tensors" * (not op.n_inputs)
        or "untested"
    )


def _derivative(op: Op, results: Results, test: str) -> str:
    if op.n_inputs == 0:
        return "no: it has no operands"
    if not op.differentiable:
        return "no: its results are integers or truth values"
    if op.jvp == "zero":
        return results.of(op, "test_zero_derivatives_are_zeros").replace("yes", "zero") or "untested"
    if op.name in TESTED_ELSEWHERE:
        return f"elsewhere: {TESTED_ELSEWHERE[op.name]}"
    return results.of(op, test) or "untested"


def _float16(op: Op, results: Results) -> str:
    test = "test_narrow_dtypes" if op.differentiable and op.jvp != "zero" else "test_value"
    if any("float16" in dtypes_of(s) for s in op.samples if has_kind(s, "float")):
        return results.of(op, test) or results.of(op, "test_value") or _value(op)
    if any(a.form for s in op.samples for a in s.inputs):
        return "no: LAPACK has no half precision"
    return _value(op) if op.n_inputs == 0 else "no: it takes integers, truth values or complex numbers"


def _complex(op: Op, results: Results) -> str:
    derivative = results.of(op, "test_first_order", "complex128")
    if derivative:
        return derivative
    if any(has_kind(s, "complex") for s in op.samples):
        return results.of(op, "test_first_order") or results.of(op, "test_value") or _value(op)
    sample = next((s for s in op.samples if has_kind(s, "float")), None)
    if sample is None:
        return "no: it takes integers or truth values" if op.n_inputs else _value(op)
    types = [(as_dtype(a.dtype).code, a.shape) for a in make(sample, "complex128")]
    try:
        _core.infer(op.name, types, sample.attrs)
    except TypeError as e:
        return f"no: {_cause(str(e))}"
    return results.of(op, "test_value") or _value(op)


def _cause(message: str) -> str:
    """What an error says after the op's name and the dtypes that it got."""
    found = re.search(r"but (it is defined for [^;]*)", message)
    return found[1] if found else re.split(r", got |; ", message.partition(": ")[2])[0]


def write(path: Path, by_node: dict[str, bool]) -> list[str]:
    """The table as JSON; returns the cells that have no test and no reason."""
    results = Results(by_node)
    ops = {op.name: row(op, results) for op in sorted(OPS.values(), key=lambda op: op.name)}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(cells, ensure_ascii=False)}" for name, cells in ops.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")  # one op, one line
    return [f"{name}: {c}" for name, cells in ops.items() for c, cell in cells.items() if cell == "untested"]
