import copy
import pickle
from typing import Any

import numpy as np
import pytest

import wengert as wg


def test_shapes_and_dtypes():
    assert wg.randn(5, 3).shape == wg.randn((5, 3)).shape == wg.rand([5, 3]).shape == (5, 3)
    assert wg.randn().shape == ()
    assert wg.rand(0, 3).shape == (0, 3)
    assert wg.randn(2).dtype == wg.float32
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        assert wg.rand(4, dtype=dtype).dtype == dtype
    x = wg.randn(3, requires_grad=True, std=0.1, mean=1.0)
    assert x.requires_grad
    assert x.is_leaf


def test_seeds():
    wg.manual_seed(1)
    a, b = wg.randn(7).tolist(), wg.randn(7).tolist()
    wg.manual_seed(1)
    assert wg.randn(7).tolist() == a
    assert wg.randn(7).tolist() == b
    assert a != b
    g = wg.Generator(seed=1)
    assert wg.randn(7, generator=g).tolist() == a
    assert wg.randn(7, generator=wg.Generator(seed=2)).tolist() != a
    others = [wg.randn(3, generator=wg.Generator(seed=s)).tolist() for s in (-1, 2**40)]
    assert others[0] != others[1]


def test_draws_do_not_overlap():
    g = wg.Generator(seed=0)
    whole = wg.rand(12, generator=wg.Generator(seed=0)).tolist()
    assert [v for _ in range(3) for v in wg.rand(4, generator=g).tolist()] == whole
    g = wg.Generator(seed=0)
    seen = [v for n in (1, 3, 5, 2) for v in wg.rand(n, generator=g, dtype="float64").tolist()]
    assert len(set(seen)) == len(seen)


def test_state():
    g = wg.Generator(seed=5)
    wg.rand(3, generator=g)
    state = g.get_state()
    a = wg.rand(3, generator=g).tolist()
    g.set_state(state)
    assert wg.rand(3, generator=g).tolist() == a
    other = wg.Generator()
    other.set_state(state)
    assert wg.rand(3, generator=other).tolist() == a
    g.set_state(state)
    assert wg.rand(3, generator=pickle.loads(pickle.dumps(g))).tolist() == a
    assert wg.rand(3, generator=copy.deepcopy(g)).tolist() == a
    assert "seed=5" in repr(g)


def test_distributions():
    g = wg.Generator(seed=0)
    x = wg.randn(200_000, mean=2.0, std=3.0, generator=g).numpy()
    assert abs(x.mean() - 2) < 0.03
    assert abs(x.std() - 3) < 0.03
    u = wg.uniform(-1.0, 3.0, (200_000,), generator=g).numpy()
    assert u.min() >= -1
    assert u.max() < 3
    assert abs(u.mean() - 1) < 0.02
    i = wg.randint(-2, 3, (100_000,), generator=g).numpy()
    assert np.bincount(i + 2).min() > 19_000
    b = wg.bernoulli(0.3, (100_000,), generator=g)
    assert abs(b.mean().item() - 0.3) < 0.01
    p = wg.bernoulli(wg.tensor([0.0, 1.0]))
    assert p.tolist() == [0.0, 1.0]
    assert sorted(wg.permutation(50, generator=g).tolist()) == list(range(50))
    assert wg.normal(1.0, 0.0, (2,)).tolist() == [1.0, 1.0]


def test_randint_signatures():
    assert wg.randint(10, (3, 2)).shape == (3, 2)
    assert wg.randint(0, 10, (3, 2)).shape == (3, 2)
    assert wg.randint(5).shape == ()
    assert wg.randint(0, 2, (4,), dtype="uint8").dtype == wg.uint8


def test_reparameterised():
    mean = wg.zeros((3,), requires_grad=True)
    std = wg.ones((3,), requires_grad=True)
    g = wg.Generator(seed=0)
    z = wg.randn(3, generator=wg.Generator(seed=0))
    y = wg.randn(3, mean=mean, std=std, generator=g)
    y.sum().backward()
    assert mean.grad.tolist() == [1.0] * 3
    assert std.grad.tolist() == z.tolist()


def test_threads_draw_different_numbers():
    from concurrent.futures import ThreadPoolExecutor

    g = wg.Generator(seed=0)
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda _: wg.rand(8, generator=g, dtype="float64").tolist(), range(100)))
    assert len({v for d in draws for v in d}) == 800


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: wg.randint(3, 3, (2,)), ValueError, "low"),
        (lambda: wg.randn(2, dtype="int64"), TypeError, "randn"),
        (lambda: wg.randn(-1), ValueError, "negative"),
        (lambda: wg.bernoulli(1.3), ValueError, "bernoulli: probabilities must be between 0 and 1, got 1.3"),
        (lambda: wg.bernoulli(wg.tensor([[0.5, -0.25]])), ValueError, "got -0.25"),
        (lambda: wg.bernoulli(float("nan"), (2,)), ValueError, "got nan"),
        (lambda: wg.permutation(-1), ValueError, "permutation"),
        (lambda: wg.randn(2, device="cuda"), RuntimeError, "cuda"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_generator_is_one_of_ours() -> None:
    with pytest.raises(TypeError, match=r"randn: generator must be a wengert\.Generator, got int"):
        wg.randn(2, generator=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [2.5, "3", (2, 1.5), None])
def test_a_shape_is_of_integers(shape: Any) -> None:
    for make in (wg.randn, wg.zeros):
        with pytest.raises(TypeError, match="a shape must be an integer or a sequence of integers, got"):
            make(shape)
