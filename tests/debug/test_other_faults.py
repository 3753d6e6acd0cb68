"""Faults that other instruments are meant for: each names the line that is at fault."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import wengert as wg
from tests.debug.faults.lines import line_at_fault

# ------------------------------------------------------------------------------ writing over what is needed


def overwritten(x):
    y = wg.from_dlpack(np.array([1.0, 2.0, 3.0]))  # its memory is NumPy's: nothing of it can be kept
    loss = (wg.exp(x) * y).sum()
    y *= 2.0  # fault
    return loss


def overwritten_view(x):
    y = wg.from_dlpack(np.array([1.0, 2.0, 3.0]))
    loss = (x * y).sum()
    row = y[:1]
    row[:] = 0.0  # fault
    return loss


class _Module(wg.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.weight, self.f = wg.Parameter(wg.tensor([1.0, 2.0, 3.0], dtype=wg.float64)), f

    def forward(self):
        return self.f(self.weight)


@pytest.mark.parametrize("f", [overwritten, overwritten_view])
@pytest.mark.parametrize("in_module", [False, True])
def test_what_was_overwritten_is_named_with_both_lines(f, in_module):
    loss = _Module(f)() if in_module else f(wg.tensor([1.0, 2.0, 3.0], dtype=wg.float64, requires_grad=True))
    with pytest.raises(wg.InPlaceError) as caught:
        loss.backward()
    assert line_at_fault(f) in str(caught.value)
    assert "saved at" in str(caught.value)


def a_parameter_that_is_written_to(x):
    x += 1.0  # fault
    return x.sum()


def test_a_leaf_is_not_written_to():
    with pytest.raises(wg.InPlaceError, match="no_grad"):
        a_parameter_that_is_written_to(wg.ones(3, requires_grad=True))


# --------------------------------------------------------------------------------------------------- leaks


def losses_that_are_kept(x, steps):
    total = 0.0
    for _ in range(steps):
        total = total + (wg.tanh(x) * 2.0).sum()  # fault
    return total


def hidden_states_that_are_kept(x, steps):
    state = wg.zeros_like(x)
    for _ in range(steps):
        state = wg.tanh(state + x)  # fault
    return state


@pytest.mark.parametrize("f", [losses_that_are_kept, hidden_states_that_are_kept])
def test_the_line_that_keeps_memory_is_named(f):
    x = wg.ones(1000, requires_grad=True)
    kept = f(x, 50)
    by_line = wg.memory_stats().by_line
    worst = max(by_line, key=by_line.get)
    assert line_at_fault(f).endswith(worst)
    assert by_line[worst] >= 49 * 4000
    del kept


def test_a_cycle_of_a_hook_and_its_tensor_is_collected():
    gc.collect()
    before = wg.memory_stats().live_bytes
    for _ in range(20):
        x = wg.ones(10_000, requires_grad=True)
        y = x * 2.0
        y.register_hook(lambda g, y=y: g * y.sum())
        del x, y
    gc.collect()
    assert wg.memory_stats().live_bytes - before < 40_000


# ---------------------------------------------------------------------------------- accidental broadcasts


def test_a_broadcast_by_accident_shows_in_the_recorded_program():
    prediction, target = wg.ones((8, 1)), wg.ones(8)
    with wg.GradientTape() as tape:
        loss = ((prediction - target) ** 2).mean()
    entry = next(e for e in tape.entries if e.op == "sub")
    assert entry.outputs[0].shape == (8, 8)
    assert "test_other_faults.py" in entry.line
    assert "(8, 8)" in str(tape.program()) or "[8, 8]" in str(tape.program())
    assert loss.item() == 0.0


# ------------------------------------------------------------------------------------------ custom operations


class ForgetsToScale(wg.CustomOp):
    def forward(self, x):
        return 3.0 * x

    def backward(self, y_bar, x):
        return y_bar


class WritesToItsInput(wg.CustomOp):
    def forward(self, x):
        x *= 2.0
        return x + 1.0

    def backward(self, y_bar, x):
        return 2.0 * y_bar


class IsNotLinear(wg.CustomOp):
    def forward(self, x):
        return x * x

    def backward(self, y_bar, x):
        return 2.0 * x * y_bar * y_bar


class DrawsNumbers(wg.CustomOp):
    def forward(self, x):
        return x + wg.randn(*x.shape, dtype=x.dtype, generator=_draws)

    def backward(self, y_bar, x):
        return y_bar


_draws = wg.Generator(0)


@pytest.mark.parametrize("op", [ForgetsToScale, WritesToItsInput, IsNotLinear, DrawsNumbers])
def test_what_is_wrong_with_a_custom_operation(op):
    report = wg.check_custom_op(op(), wg.tensor([0.5, 1.5, -2.0], dtype=wg.float64))
    assert report.verdict == "bug"
    assert report.problems or report.worst.verdict == "bug"
