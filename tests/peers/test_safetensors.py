"""Files exchanged with PyTorch users: their reader on our files, their files here, weights that compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
theirs: Any = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_both_ways(name: str, tmp_path: Path) -> None:
    t = torch.arange(-3, 3).reshape(2, 3).to(getattr(torch, name))
    theirs.save_file({"t": t}, tmp_path / "theirs")
    loaded = wg.load(tmp_path / "theirs")["t"]
    assert loaded.dtype.name == name and loaded.shape == (2, 3)
    wg.save(tmp_path / "ours", {"t": loaded, "nested": {"n": 3}})
    again = theirs.load_file(tmp_path / "ours")["t"]
    assert again.dtype == t.dtype and torch.equal(again, t)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_numbers_are_pairs_for_others(name: str, tmp_path: Path) -> None:
    t = wg.tensor(np.array([1 + 2j, -3j])).astype(name)
    wg.save(tmp_path / "ours", {"t": t})
    read = torch.view_as_complex(theirs.load_file(tmp_path / "ours")["t"])
    np.testing.assert_array_equal(read.numpy(), t.numpy())


def test_weights_of_a_model_with_a_key_map(tmp_path: Path) -> None:
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.head = torch.nn.Linear(5, 7), torch.nn.Linear(7, 2)

        def forward(self, x: Any) -> Any:
            return self.head(torch.tanh(self.hidden(x)))

    source, net = Net(), nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
    theirs.save_file(source.state_dict(), tmp_path / "theirs")
    names = {"hidden": "0", "head": "2"}
    rename = lambda key: f"{names[key.split('.')[0]]}.{key.split('.')[1]}"
    net.load_state_dict(wg.load(tmp_path / "theirs", key_map=rename))
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    np.testing.assert_allclose(
        net(wg.tensor(x)).detach().numpy(), source(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )
