"""The miniature of the engine: it is as short as it says, prints what its page says, and agrees with the library."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import wengert as wg

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "docs" / "in_200_lines.py"


@pytest.fixture(scope="module")
def mini() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(SOURCE)))


def test_it_is_short_and_prints_what_its_page_says() -> None:
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) <= 200
    done = subprocess.run([sys.executable, str(SOURCE)], capture_output=True, encoding="utf-8", check=True)
    assert f"```text\n{done.stdout}```" in (ROOT / "docs/in_200_lines.md").read_text(encoding="utf-8")


def test_a_network_as_the_library_has_it(mini: SimpleNamespace) -> None:
    rng = np.random.default_rng(0)
    x, w, b, v = (rng.normal(size=s) for s in ((5, 3), (3, 4), (4,), (4, 1)))
    for k in range(4):
        rest = [x, w, b, v]

        def network(m, p, k=k, rest=rest):
            a = [*rest[:k], p, *rest[k + 1 :]]
            h = m.tanh(a[0] @ a[1] + a[2])
            return m.exp(m.sin(h @ a[3]))

        ours = wg.grad(lambda p: network(wg, p).sum())(wg.asarray(rest[k]))
        np.testing.assert_allclose(mini.grad(lambda p: mini.total(network(mini, p)))(rest[k]), ours.numpy(), rtol=1e-12)


def test_forward_mode_and_nesting(mini: SimpleNamespace) -> None:
    x, v = np.array([0.3, -1.2]), np.array([1.0, 0.5])
    f = lambda x: mini.sin(x) * x / (mini.exp(x) + 1.0)
    g = lambda x: wg.sin(x) * x / (wg.exp(x) + 1.0)
    y, y_dot = mini.jvp(f, [x], [v])
    expected = wg.jvp(g, (wg.asarray(x),), (wg.asarray(v),))
    np.testing.assert_allclose([y, y_dot], [t.numpy() for t in expected], rtol=1e-12)
    hvp = mini.grad(lambda x: mini.total(mini.grad(lambda x: mini.total(f(x)))(x) * v))(x)
    np.testing.assert_allclose(hvp, wg.hvp(lambda x: g(x).sum(), wg.asarray(x), wg.asarray(v)).numpy(), rtol=1e-10)


def test_levels_are_not_confused(mini: SimpleNamespace) -> None:
    """d/dx of x · d/dy (x + y) is 1, and not 2."""
    assert mini.grad(lambda x: x * mini.grad(lambda y: x + y)(2.0))(3.0) == 1.0
