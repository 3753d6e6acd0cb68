"""LSTM and GRU layers: the cell applied step by step, derivatives, bits, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from tests.tolerances import AGREEMENT, FIRST_ORDER, assert_near, assert_same
from wengert.errors import ArgumentError, ShapeError

LAYERS = [wg.nn.LSTM, wg.nn.GRU]


def by_cells(layer: Any, x: Any) -> Any:
    """h of all steps, by `lstm_cell` and `gru_cell`."""
    weights = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]
    h: Any = wg.zeros((x.shape[1], layer.hidden_size), dtype=x.dtype)
    c, hs = h, []
    for t in range(x.shape[0]):
        if isinstance(layer, wg.nn.LSTM):
            h, c = wg.lstm_cell(x[t], (h, c), *weights)
        else:
            h = wg.gru_cell(x[t], h, *weights)
        hs.append(h)
    return wg.stack(hs, axis=0)


# Rows and columns that fill register tiles, and that leave every kind of rest.
@pytest.mark.parametrize(("batch", "hidden"), [(20, 4), (1, 1), (7, 11), (33, 16), (5, 21), (2, 40)])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_is_its_cell_step_by_step(kind: Any, batch: int, hidden: int) -> None:
    layer = kind(3, hidden, dtype="float64")
    x = wg.tensor(np.random.default_rng(0).standard_normal((5, batch, 3)), requires_grad=True)
    y, z = layer(x)[0], by_cells(layer, x)
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-12, atol=1e-14)
    seed = wg.asarray(fd.seeds([y.shape])[0])
    a, b = y.backward(seed), z.backward(seed)
    for p in (x, *layer.parameters()):
        assert_near(a[p].numpy(), b[p].numpy(), AGREEMENT)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", LAYERS)
def test_gates_saturate(kind: Any, dtype: str) -> None:
    far = [0.0, 30.0, 86.0, 87.5, 88.5, 89.5, 120.0, 709.0, 711.0, 800.0, 1e30, np.inf]
    x = wg.tensor(np.array([*far, *(-np.array(far)), np.nan]).astype(dtype)).reshape((1, -1, 1))
    layer = kind(1, 1, dtype=dtype)
    layer.load_state_dict({k: np.full(p.shape, p.ndim == 2, dtype) for k, p in layer.named_parameters()})
    tiny = np.finfo(dtype).tiny
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            layer(x)[0].detach().numpy(),
            by_cells(layer, x).detach().numpy(),
            rtol=10 * np.finfo(dtype).eps,
            atol=tiny,  # a gate below the normal numbers may be zero
        )


@pytest.mark.parametrize("kind", LAYERS)
def test_forward_mode_and_second_order(kind: Any) -> None:
    layer = kind(2, 3, dtype="float64")
    params = {k: p.detach() for k, p in layer.named_parameters()}
    x = np.random.default_rng(1).standard_normal((4, 2, 2))

    def f(z: Any) -> Any:
        return wg.nn.functional_call(layer, params, z)[0]

    (dot,), (other,) = fd.seeds([x.shape]), fd.seeds([x.shape], 2)
    y, y_dot = wg.jvp(f, (wg.asarray(x),), (wg.asarray(dot),))
    assert_near(y_dot.numpy(), fd.directional(lambda z: f(wg.asarray(z)).numpy(), [x], [dot]), FIRST_ORDER)
    (bar,) = fd.seeds([y.shape], 3)

    def gradient(z: Any) -> Any:
        return wg.vjp(f, z)[1](wg.asarray(bar))[0]

    forward = wg.jvp(gradient, (wg.asarray(x),), (wg.asarray(other),))[1].numpy()
    reverse = wg.vjp(gradient, wg.asarray(x))[1](wg.asarray(other))[0].numpy()
    assert_near(reverse, forward, AGREEMENT)
    numeric = fd.directional(lambda z: gradient(wg.asarray(z)).numpy(), [x], [other])
    assert_near(forward, numeric, FIRST_ORDER)


# Few rows have their input's share made ahead where there are threads for it.
@pytest.mark.parametrize(("batch", "width"), [(70, 8), (5, 150)])
@pytest.mark.parametrize("kind", LAYERS)
def test_bits_do_not_depend_on_threads(kind: Any, batch: int, width: int) -> None:
    layer, x = kind(width, 16), wg.randn(20, batch, width, requires_grad=True)
    before, results = wg.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            wg.set_num_threads(n)
            y = layer(x)[0]
            grads = y.backward(y.detach())
            results.append([y.detach().numpy(), *(grads[p].numpy() for p in (x, *layer.parameters()))])
    finally:
        wg.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert_same(a, b)


@pytest.mark.parametrize("kind", LAYERS)
def test_dropout_is_between_layers_and_while_training_only(kind: Any) -> None:
    layer, x = kind(3, 4, num_layers=2, dropout=0.9), wg.randn(6, 5, 3)
    assert (layer(x)[0].detach().numpy() != layer(x)[0].detach().numpy()).any()
    layer.eval()
    assert_same(layer(x)[0].detach().numpy(), layer(x)[0].detach().numpy())
    single = kind(3, 4, dropout=0.9)
    assert_same(single(x)[0].detach().numpy(), single(x)[0].detach().numpy())


@pytest.mark.parametrize("kind", LAYERS)
def test_half_precision(kind: Any) -> None:
    layer, x = kind(3, 4), wg.randn(6, 5, 3)
    expected = layer(x)[0].detach().numpy()
    y = layer.to(wg.bfloat16)(x.astype(wg.bfloat16))[0]
    assert y.dtype == wg.bfloat16
    np.testing.assert_allclose(y.detach().astype("float32").numpy(), expected, atol=0.03)


def test_a_layer_learns() -> None:
    """The sum of a sequence of ±1 has a sign: the last hidden state is to know it."""
    wg.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (9, 128, 1)).astype("float32")
    target = (x.sum(0)[:, 0] > 0).astype("int64")
    layer, head = wg.nn.LSTM(1, 16), wg.nn.Linear(16, 2)
    optimizer = wg.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.02)
    for _ in range(60):
        _, (h, _c) = layer(wg.asarray(x))
        loss = wg.cross_entropy(head(h[0]), target)
        optimizer.step(loss.backward())
    assert loss.item() < 0.1


def test_errors() -> None:
    lstm = wg.nn.LSTM(3, 4)
    with pytest.raises(ShapeError, match=r"LSTM: x must be \(steps, batch, input\).*input_size 3"):
        lstm(wg.ones((5, 2, 2)))
    with pytest.raises(ShapeError, match=r"state must have shape \(1, 2, 4\)"):
        lstm(wg.ones((5, 2, 3)), (wg.ones((1, 3, 4)), wg.ones((1, 2, 4))))
    with pytest.raises(ShapeError, match="at least one step"):
        lstm(wg.ones((0, 2, 3)))
    with pytest.raises(ArgumentError, match="num_layers=0"):
        wg.nn.GRU(3, 4, num_layers=0)
    with pytest.raises(ShapeError, match="gru_cell.*3 hidden"):
        wg.gru_cell(np.ones((2, 3)), np.ones((2, 4)), np.ones((8, 3)), np.ones((12, 4)))
    with pytest.raises(ShapeError, match="lstm_cell"):
        wg.lstm_cell(np.ones((2, 3)), (np.ones((2, 4)), np.ones((3, 4))), np.ones((16, 3)), np.ones((16, 4)))


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_a_simple_network_is_its_cell_step_by_step(nonlinearity: str) -> None:
    layer = wg.nn.RNN(3, 4, nonlinearity=nonlinearity, dtype="float64")
    cell = wg.nn.RNNCell(3, 4, nonlinearity=nonlinearity, dtype="float64")
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    x = wg.tensor(np.random.default_rng(0).standard_normal((5, 2, 3)), requires_grad=True)
    h, hs = None, []
    for t in range(5):
        h = cell(x[t], h)
        hs.append(h)
    y, last = layer(x)
    np.testing.assert_allclose(y.detach().numpy(), wg.stack(hs).detach().numpy(), rtol=1e-13)
    assert last[0].tolist() == y[-1].tolist()
    w = {k: p.detach().numpy() for k, p in cell.named_parameters()}
    state = np.zeros((2, 4))
    for t in range(5):
        z = x.detach().numpy()[t] @ w["weight_ih"].T + w["bias_ih"] + state @ w["weight_hh"].T + w["bias_hh"]
        state = np.tanh(z) if nonlinearity == "tanh" else np.maximum(z, 0)
    np.testing.assert_allclose(y[-1].detach().numpy(), state, rtol=1e-12)
    layer.requires_grad_(False)
    fd.check(lambda x: layer(x)[0], x.detach().numpy()[:3, :1])


@pytest.mark.parametrize("kind", [wg.nn.LSTMCell, wg.nn.GRUCell, wg.nn.RNNCell])
def test_cells_take_a_batch_or_none(kind: Any) -> None:
    cell = kind(3, 4)
    x = wg.ones((2, 3))
    first = lambda made: made[0] if isinstance(made, tuple) else made
    together, alone = first(cell(x)), first(cell(x[0]))
    np.testing.assert_allclose(together[0].detach().numpy(), alone.detach().numpy(), rtol=1e-6)
    state = cell(x)
    assert first(cell(x, state)).shape == (2, 4)
    with pytest.raises(ShapeError, match="_cell: x is"):
        cell(wg.ones((2, 5)))
    with pytest.raises(ArgumentError, match="sizes must be positive"):
        kind(0, 4)


def test_other_nonlinearities_are_refused() -> None:
    for make in (wg.nn.RNN, wg.nn.RNNCell):
        with pytest.raises(ArgumentError, match="'tanh' or 'relu', got 'gelu'"):
            make(2, 2, nonlinearity="gelu")
