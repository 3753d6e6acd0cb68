"""Compiled functions as Python objects: copies and pickles, what they return, what leaves them while they are traced."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


@wg.compile
def doubled(x: Any) -> Any:
    return x * 2


class Scaled(nn.Module):
    """Holds a compiled method."""

    def __init__(self) -> None:
        self.scale = wg.Parameter.ones((2,))
        self.run = wg.compile(self.forward)

    def forward(self, x: Any) -> Any:
        return x * self.scale


def test_a_function_is_copied_and_pickled_by_name() -> None:
    assert copy.copy(doubled) is copy.deepcopy(doubled) is pickle.loads(pickle.dumps(doubled)) is doubled
    assert pickle.loads(pickle.dumps(wg.softmax)) is wg.softmax


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_module_that_holds_a_compiled_method_is_duplicated(duplicate: Any) -> None:
    module = Scaled()
    module.run(wg.ones(2))
    other = duplicate(module)
    with wg.no_grad():
        other.scale.mul_(3.0)
    assert other.run(wg.ones(2)).tolist() == [3.0, 3.0]
    assert module.run(wg.ones(2)).tolist() == [1.0, 1.0]


def test_none_is_returned() -> None:
    total = wg.zeros(2)

    @wg.compile
    def add(x: Any) -> None:
        total.add_(x)

    assert add(wg.ones(2)) is None
    assert add(wg.ones(2)) is None
    assert total.tolist() == [2.0, 2.0]
    x = wg.ones(2, requires_grad=True)
    result = wg.compile(lambda x: {"y": x * 2, "rest": (None, x + 1, None)})(x)
    assert result["rest"][0] is result["rest"][2] is None
    assert (result["y"] * result["rest"][1]).sum().backward()[x].tolist() == [6.0, 6.0]
    assert wg.compile(lambda x: None)(x) is None
    y, y_dot = wg.jvp(lambda x: wg.compile(lambda x: [None, x * x])(x)[1], (x,), (wg.ones(2),))
    assert (y.tolist(), y_dot.tolist()) == ([1.0, 1.0], [2.0, 2.0])


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t + 1,
        lambda t: t.detach(),
        lambda t: t.numpy(),
        lambda t: t[0],
        lambda t: t.add_(1.0),
        wg.tensor,
        float,
        lambda t: wg.compile(lambda x: x + t)(wg.ones(3)),
        lambda t: wg.compile(lambda x: (x, t))(wg.ones(3)),
    ],
)
def test_a_tensor_kept_from_tracing_says_so(use: Any) -> None:
    kept = []

    @wg.compile
    def f(x: Any) -> Any:
        kept.append(x * 2)
        return x

    f(wg.ones(3))
    with pytest.raises(wg.TraceError, match="was kept from the tracing of a compiled function.*Return it.*in place"):
        use(kept[0])


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("full", lambda n: wg.zeros((n,))),
        ("iota", lambda n: wg.arange(n)),
        ("random numbers", lambda n: wg.randn((n,))),
        ("broadcast_to", lambda n: wg.broadcast_to(wg.ones(()), (n,))),
        ("reshape", lambda n: wg.reshape(wg.ones(3), (n,))),
        ("slice", lambda n: wg.ones(5)[:n]),
        ("size_scalar", lambda n: wg.ones(3) / n),
    ],
)
def test_a_size_kept_from_tracing_says_so(name: str, use: Any) -> None:
    kept = []
    wg.compile(lambda x: (kept.append(x.shape[0]), x)[1])(wg.ones(3))
    state = wg.default_generator.get_state()
    with pytest.raises(wg.TraceError, match=rf"{name}: a size was kept from the tracing .*Read the shape.*int\(size\)"):
        use(kept[0])
    assert wg.default_generator.get_state() == state


def test_errors_while_tracing_have_the_sizes() -> None:
    f = wg.compile(lambda x: x @ wg.ones((3, 2)))
    f(wg.ones((2, 3)))
    with pytest.raises(wg.ShapeError, match=r"n0_1") as error:
        f(wg.ones((2, 4)))
    assert error.value.__notes__ == ["while tracing <lambda>, where n0_0 = 2, n0_1 = 4"]


def test_a_leaf_is_not_made_inside() -> None:
    for make in (lambda x: wg.ones(3, requires_grad=True) * x, lambda x: wg.tensor(x, requires_grad=True)):
        with pytest.raises(wg.TraceError, match="cannot become a leaf; make leaves outside the compiled function"):
            wg.compile(make)(wg.ones(3))
    assert wg.compile(lambda x: wg.tensor(x, requires_grad=False))(wg.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_what_is_compiled_and_passed_is_checked() -> None:
    with pytest.raises(wg.ArgumentError, match="compile: takes a function, got int"):
        wg.compile(3)  # type: ignore[type-var]
    with pytest.raises(wg.TraceError, match="doubled: .*'numpy.ndarray'.*asarray"):
        doubled(np.ones(3))
    with pytest.raises(wg.TraceError, match="returns tensors, numbers, None and containers of them, not a str"):
        wg.compile(lambda x: str(x))(wg.ones(3))


def test_an_attribute_that_is_added_to_stays_the_same_tensor() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            self.count = wg.zeros(())

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x * self.count

    counter = Counter()
    count, f = counter.count, wg.compile(counter)
    assert [f(wg.ones(1)).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert counter.count is count and count.item() == 3.0
