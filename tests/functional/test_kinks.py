"""docs/kinks.md, row by row: the value and the derivative that it states, in both modes."""

from __future__ import annotations

import numpy as np
import pytest

import wengert as wg
from tests.kinks import KINKS, rows

ROWS = rows()


def test_every_row_has_a_function_and_every_function_a_row() -> None:
    assert ROWS.keys() == KINKS.keys()


@pytest.mark.parametrize("name", KINKS)
def test_row(name: str) -> None:
    kink, row = KINKS[name], ROWS[name]
    x = wg.tensor(np.array(kink.at), requires_grad=True)
    y = kink.function(wg, x)
    np.testing.assert_allclose(np.atleast_1d(y.detach().numpy()), row.value, rtol=1e-5)
    g = y.sum().backward()[x].numpy()
    np.testing.assert_allclose(g, row.derivative, rtol=1e-5)
    columns = [
        wg.jvp(lambda z: kink.function(wg, z).sum(), (x.detach(),), (wg.asarray(e),))[1].item()
        for e in np.eye(len(kink.at))
    ]
    np.testing.assert_allclose(columns, g, rtol=1e-12, err_msg="forward mode")


@pytest.mark.parametrize("name", KINKS)
def test_row_inside_compile(name: str) -> None:
    kink, row = KINKS[name], ROWS[name]
    compiled = wg.compile(lambda z: kink.function(wg, z))
    x = wg.tensor(np.array(kink.at), requires_grad=True)
    g = compiled(x).sum().backward()[x].numpy()
    np.testing.assert_allclose(g, row.derivative, rtol=1e-5)


def test_hidden_rows_of_several() -> None:
    """A row of −∞ beside finite ones: nothing flows through it, and the others are as they are alone."""
    x = wg.tensor(np.array([[-np.inf, -np.inf], [0.0, 1.0]]), requires_grad=True)
    y = wg.logsumexp(x, axis=1)
    g = y.backward(wg.asarray(np.array([2.0, 3.0])))[x].numpy()
    assert y.detach().numpy()[0] == -np.inf and not g[0].any()
    np.testing.assert_allclose(g[1], 3.0 * np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum())


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_angles_of_tiny_and_huge_points(size: float) -> None:
    """The square of the length would under- or overflow."""
    a, b = (wg.tensor(np.array([v * size]), requires_grad=True) for v in (3.0, 4.0))
    grads = wg.atan2(a, b).sum().backward()
    np.testing.assert_allclose(grads[a].numpy() * size, [4.0 / 25.0], rtol=1e-14)
    np.testing.assert_allclose(grads[b].numpy() * size, [-3.0 / 25.0], rtol=1e-14)
