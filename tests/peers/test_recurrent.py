"""Cells and layers of LSTM, GRU and simple networks beside PyTorch, with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")


def _draw(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s) * 0.7 for s in shapes]


@pytest.mark.parametrize("biased", [False, True])
def test_lstm_cell(biased: bool) -> None:
    biases = [(12,), (12,)] if biased else []
    compare(
        lambda x, h, c, *w: wg.lstm_cell(x, (h, c), *w),
        torch=lambda x, h, c, *w: torch._VF.lstm_cell(x, (h, c), *w) if w[2:] else _torch_lstm_cell(x, h, c, *w),
        arrays=_draw((4, 5), (4, 3), (4, 3), (12, 5), (12, 3), *biases),
        lacks={"torch": ["jvp", "second order"]} if biased else None,  # PyTorch's fused cell has neither
    )


def _torch_lstm_cell(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any) -> Any:
    i, f, g, o = (x @ w_ih.T + h @ w_hh.T).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _torch_gru_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    (r, z, n), (p, q, m) = (x @ w_ih.T + b_ih).chunk(3, 1), (h @ w_hh.T + b_hh).chunk(3, 1)
    update = (z + q).sigmoid()
    return (1 - update) * (n + (r + p).sigmoid() * m).tanh() + update * h


def test_gru_cell() -> None:
    arrays = _draw((4, 5), (4, 3), (9, 5), (9, 3), (9,), (9,))
    compare(wg.gru_cell, torch=_torch_gru_cell, arrays=arrays)
    ours = wg.gru_cell(*arrays).numpy()
    theirs = torch._VF.gru_cell(*map(torch.tensor, arrays)).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def _pair(name: str, **options: Any) -> tuple[Any, Any]:
    """Our layer and PyTorch's, with PyTorch's weights loaded by name."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(5, 3, dtype=torch.float64, **options)
    ours = getattr(wg.nn, name)(5, 3, dtype="float64", **options)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


OPTIONS: list[dict[str, Any]] = [
    {},
    dict(batch_first=True),
    dict(bias=False),
    dict(num_layers=2),
    dict(bidirectional=True),
    dict(num_layers=2, bidirectional=True, batch_first=True),
]


def _flat(made: Any) -> list[Any]:
    y, state = made
    return [y, *(state if isinstance(state, tuple) else [state])]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_layer(name: str, options: dict[str, Any]) -> None:
    """Outputs, final states, and the gradients of input, initial state and all weights."""
    ours, theirs = _pair(name, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    x, h, c = _draw((20, 4, 5) if not options.get("batch_first") else (4, 20, 5), (rows, 4, 3), (rows, 4, 3))
    states = (h, c) if name == "LSTM" else (h,)
    mine = [wg.tensor(a, requires_grad=True) for a in (x, *states)]
    their = [torch.tensor(a, requires_grad=True) for a in (x, *states)]
    state = tuple(mine[1:]) if name == "LSTM" else mine[1]
    other = tuple(their[1:]) if name == "LSTM" else their[1]
    ys, zs = _flat(ours(mine[0], state)), _flat(theirs(their[0], other))
    rng = np.random.default_rng(7)
    for y, z in zip(ys, zs):
        np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-10, atol=1e-12)
    seeds = [rng.standard_normal(z.shape) for z in zs]
    wg.sum(wg.stack([(y * wg.asarray(s)).sum() for y, s in zip(ys, seeds)])).backward()
    sum((z * torch.tensor(s)).sum() for z, s in zip(zs, seeds)).backward()
    for a, b in zip(mine, their):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-11)
    for (key, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-11, err_msg=key)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_one_sequence_without_a_batch(name: str) -> None:
    ours, theirs = _pair(name)
    (x,) = _draw((6, 5))
    for y, z in zip(_flat(ours(wg.asarray(x))), _flat(theirs(torch.tensor(x)))):
        np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_first_weights_are_spread_as_pytorchs(name: str) -> None:
    wg.manual_seed(0)
    ours, theirs = getattr(wg.nn, name)(64, 100), getattr(torch.nn, name)(64, 100)
    for (key, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        assert np.abs(a.detach().numpy()).max() <= 0.1 + 1e-7, key
        assert a.detach().numpy().std() == pytest.approx(b.std().item(), rel=0.1), key
