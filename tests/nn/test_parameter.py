"""Parameters: tensors that are trained."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import wengert as wg


def test_parameter_is_a_tensor_that_requires_a_gradient() -> None:
    p = wg.Parameter(wg.tensor([1.0, 2.0]))
    assert isinstance(p, wg.Tensor) and p.requires_grad and p.is_leaf
    y = p * 3.0
    assert type(y) is wg.Tensor
    grads = y.sum().backward()
    assert grads[p].tolist() == [3.0, 3.0]
    assert grads.get(p.id) is not None
    assert p.grad.tolist() == [3.0, 3.0]
    p.zero_grad()
    assert p.grad is None


def test_parameter_owns_its_data() -> None:
    t = wg.tensor([1.0, 2.0])
    p = wg.Parameter(t)
    p.apply_update([1.0, 1.0])
    assert t.tolist() == [1.0, 2.0]
    assert p.tolist() == [2.0, 3.0]


def test_tensor_shares_memory_and_follows_updates() -> None:
    p = wg.Parameter.ones((3,))
    t = p.tensor
    assert type(t) is wg.Tensor and not t.requires_grad
    p.apply_update([1.0, 2.0, 3.0])
    assert t.tolist() == [2.0, 3.0, 4.0]


def test_made_of_random_numbers_zeros_and_ones() -> None:
    g = wg.Generator(seed=0)
    p = wg.Parameter.randn((1000, 20), mean=2.0, std=0.5, generator=g)
    assert p.shape == (1000, 20) and p.dtype == wg.float32
    assert abs(p.detach().mean().item() - 2.0) < 0.02
    assert abs(p.detach().std().item() - 0.5) < 0.02
    assert wg.Parameter.zeros((2, 2), dtype=wg.float64).dtype == wg.float64
    assert wg.Parameter.ones((2,)).tolist() == [1.0, 1.0]


def test_update_needs_a_gradient() -> None:
    p = wg.Parameter.ones((2, 3))
    with pytest.raises(wg.GradientError, match=r"\(2, 3\).*backward"):
        p.update(0.1)
    p.set_grad(np.ones((2, 3)))
    p.update(0.25)
    assert np.all(p.numpy() == 0.75)
    with pytest.raises(wg.ShapeError, match=r"\(4,\).*\(2, 3\)"):
        p.apply_update(np.ones(4))
    with pytest.raises(wg.ShapeError):
        p.set_grad(np.ones(4))


def test_integers_cannot_be_trained() -> None:
    with pytest.raises(wg.DTypeError, match="int64"):
        wg.Parameter([1, 2])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_are_parameters_of_their_own(duplicate: object) -> None:
    p = wg.Parameter([1.0, 2.0])
    q = duplicate(p)  # type: ignore[operator]
    assert type(q) is wg.Parameter and q.requires_grad and q.id != p.id
    q.apply_update([1.0, 1.0])
    assert p.tolist() == [1.0, 2.0] and q.tolist() == [2.0, 3.0]


def test_parameter_dict() -> None:
    w, b = wg.Parameter.ones((2, 3)), wg.Parameter.zeros((2,))
    d = wg.ParameterDict(weight=w)
    d["bias"] = b
    d.insert("c", wg.tensor([1.0]))
    assert d.get("weight") is w and d["bias"] is b and d.get("nothing") is None
    assert isinstance(d["c"], wg.Parameter)
    assert [name for name, _ in d.named_parameters()] == ["weight", "bias", "c"]
    assert [id(p) for p in d.parameters()[:2]] == [id(w), id(b)]
    assert "bias" in d and len(d) == 3 and list(d) == ["weight", "bias", "c"]
    with pytest.raises(KeyError, match="weight, bias, c"):
        d["nothing"]
    with pytest.raises(wg.ArgumentError, match="'x'.*int"):
        d["x"] = 3  # type: ignore[assignment]
    assert "weight: float32(2, 3)" in repr(d)
