"""Complex tensors hold data; products of them refuse to be differentiated rather than give a wrong gradient."""

from __future__ import annotations

import numpy as np
import pytest

import wengert as wg


def test_products_refuse() -> None:
    z = wg.tensor(np.array([1 + 2j, 3 - 1j]), requires_grad=True)
    plain = z.detach()
    np.testing.assert_allclose((plain * plain).numpy(), z.numpy() ** 2)
    with pytest.raises(wg.GradientError, match="complex128"):
        z * z


def test_sums_are_linear() -> None:
    z = wg.tensor(np.array([1 + 2j, 3 - 1j]), requires_grad=True)
    grads = (z + z).backward(wg.tensor(np.array([1 + 0j, 2 + 1j])))
    np.testing.assert_allclose(grads[z].numpy(), [2, 4 + 2j])
