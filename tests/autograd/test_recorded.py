"""Programs and entries of tapes."""

from __future__ import annotations

from typing import Any

import wengert as wg


def test_results_are_what_is_not_used_again() -> None:
    x = wg.ones((3,))
    with wg.GradientTape() as tape:
        a = x * 2.0
        wg.gelu(a), a.sum()
    program = tape.program()
    program.verify()
    assert [str(o.type) for o in program.outputs] == ["float32[3]", "float32[]"]


def test_entries() -> None:
    x = wg.tensor([1.0, 2.0])
    with wg.GradientTape(persistent=True) as tape:
        y = wg.exp(x)
        y.sum()
    exp, total = tape.entries
    assert (exp.op, total.op) == ("exp", "sum")
    assert [str(t) for t in exp.inputs + exp.outputs + total.outputs] == ["float32[2]", "float32[2]", "float32[]"]
    assert [s.tolist() for s in exp.saved] == [y.tolist()] and total.saved == ()
    assert "test_recorded.py" in exp.line and "exp(float32[2]) -> float32[2] at" in repr(exp)


def test_entries_of_custom_ops_and_of_what_was_freed() -> None:
    class Twice(wg.CustomOp):
        def forward(self, x: Any) -> Any:
            return 2.0 * x

        def backward(self, y_bar: Any, x: Any) -> Any:
            return 2.0 * y_bar

    x = wg.tensor([1.0, 2.0])
    with wg.GradientTape() as tape:
        y = wg.exp(Twice()(x)).sum()
    entries = tape.entries
    assert [e.op for e in entries][-2:] == ["exp", "sum"]
    assert [str(t) for e in entries for t in e.outputs] == ["float32[2]", "float32[2]", "float32[]"]
    tape.gradient(y, x)
    assert all(e.saved == () for e in entries)
