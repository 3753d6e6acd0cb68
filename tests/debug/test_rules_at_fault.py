"""Wrong derivatives: the checker says so, and names the rule or the line."""

from __future__ import annotations

import pytest

import wengert as wg
from tests.debug.faults.lines import line_at_fault
from tests.debug.faults.rules import RULES

X = wg.tensor([0.3, -1.2, 2.0, 0.7], dtype=wg.float64)


class _Module(wg.nn.Module):
    def __init__(self, f):
        self.scale, self.f = wg.Parameter(wg.ones(4, dtype=wg.float64)), f

    def forward(self, x):
        return self.f(x * self.scale)


WAYS = {"plain": lambda f: f, "module": lambda f: _Module(f), "compiled": wg.compile}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RULES)
def test_the_rule_is_named(name, way):
    f, at = RULES[name]
    report = wg.check_gradients(WAYS[way](f), X)
    assert report.verdict == "bug", report
    assert line_at_fault(at) in str(report), report


@pytest.mark.parametrize("name", RULES)
def test_in_the_second_order_alone(name):
    """Backward alone: the function is the gradient of something else."""
    f, at = RULES[name]

    def g(x):
        return f(wg.grad(lambda z: (z**3).sum())(x) * 0.1)

    report = wg.check_gradients(g, X, second_order=False)
    assert report.verdict == "bug", report
    assert line_at_fault(at) in str(report), report


def test_right_derivatives_have_no_suspects():
    right = wg.custom_op(lambda x: x * x)
    right.defvjp(lambda y_bar, y, x: 2.0 * x * y_bar)
    report = wg.check_gradients(lambda x: right(x).sum() + x.detach().sum() * 0.0, X)
    assert report.verdict == "ok"
    assert "on the way" not in str(report)
