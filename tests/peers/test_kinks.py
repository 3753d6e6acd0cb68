"""The columns of docs/kinks.md that say what PyTorch and JAX do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kinks import KINKS, numbers, rows

ROWS = rows()


@pytest.mark.parametrize("name", [n for n in KINKS if ROWS[n].torch != "–"])
def test_torch(name: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
    kink = KINKS[name]
    x = torch.tensor(kink.at, dtype=torch.float64, requires_grad=True)
    y = (kink.torch or kink.function)(torch, x)
    y.sum().backward()
    np.testing.assert_allclose(np.atleast_1d(y.detach().numpy()), ROWS[name].value, rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), numbers(ROWS[name].torch), rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in KINKS if ROWS[n].jax != "–"])
def test_jax(name: str) -> None:
    jax: Any = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    kink = KINKS[name]
    f = kink.jax or kink.function
    g = jax.grad(lambda z: f(jax.numpy, z).sum())(jax.numpy.asarray(kink.at, dtype=float))
    np.testing.assert_allclose(np.asarray(g), numbers(ROWS[name].jax), rtol=1e-5)
