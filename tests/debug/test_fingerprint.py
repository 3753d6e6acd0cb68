"""Fingerprints see every bit and nothing else; comparisons of runs name the first operation that differs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import wengert as wg


def test_equal_bits_have_equal_fingerprints():
    x = wg.randn(5, 6)
    assert wg.fingerprint(x) == wg.fingerprint(x.clone())
    assert wg.fingerprint(x.T) == wg.fingerprint(wg.tensor(np.ascontiguousarray(x.numpy().T)))
    assert wg.fingerprint(wg.tensor([1.0, 2.0])) == wg.fingerprint(np.array([1.0, 2.0], np.float32))
    assert wg.fingerprint(np.array([1, 2], ">i4")) == wg.fingerprint(np.array([1, 2], "<i4"))


BASE = {"w": wg.tensor([1.0, 2.0]), "n": 3}


@pytest.mark.parametrize(
    "other",
    [
        {"w": wg.tensor([1.0, np.nextafter(np.float32(2), np.float32(3))]), "n": 3},
        {"w": wg.tensor([2.0, 1.0]), "n": 3},
        {"w": wg.tensor([[1.0, 2.0]]), "n": 3},
        {"w": wg.tensor([1.0, 2.0], dtype=wg.float64), "n": 3},
        {"w": wg.tensor([1.0, 2.0]), "n": 4},
        {"w": wg.tensor([1.0, 2.0]), "n": 3.0},
        {"w": wg.tensor([1.0, 2.0]), "m": 3},
        {"w": wg.tensor([1.0, 2.0]), "n": 3, "e": []},
        {"w": [wg.tensor([1.0, 2.0])], "n": 3},
    ],
)
def test_every_difference_counts(other):
    assert wg.fingerprint(BASE) != wg.fingerprint(other)


def test_signs_of_zero_empty_tensors_and_empty_containers():
    kinds = [wg.zeros(()), -wg.zeros(()), wg.zeros((0, 2)), wg.zeros((2, 0)), [], (), {}, None, "", b"", 0, False]
    assert len({wg.fingerprint(k) for k in kinds}) == len(kinds)


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16, wg.float64, wg.complex64, wg.int8, wg.bool_])
def test_dtypes(dtype):
    a, b = wg.tensor([0, 1], dtype=dtype), wg.tensor([1, 0], dtype=dtype)
    assert wg.fingerprint(a) == wg.fingerprint(a.clone()) != wg.fingerprint(b)


def test_recorded_tensors_modules_optimizers_maps_and_generators():
    net = wg.nn.Linear(3, 2)
    opt = wg.optim.Adam(net.parameters())
    before = wg.fingerprint(net), wg.fingerprint(opt), wg.fingerprint(wg.default_generator)
    assert before == (wg.fingerprint(net), wg.fingerprint(opt), wg.fingerprint(wg.default_generator))
    assert wg.fingerprint(net) == wg.fingerprint(net.state_dict())
    y = net(wg.ones((1, 3))).sum()
    assert wg.fingerprint(y) == wg.fingerprint(y.detach())
    first, second = y.backward(retain_graph=True), y.backward()
    assert wg.fingerprint(first) == wg.fingerprint(second) != wg.fingerprint(first.scale_(2.0))
    opt.step(second)
    wg.rand(1)
    after = wg.fingerprint(net), wg.fingerprint(opt), wg.fingerprint(wg.default_generator)
    assert all(a != b for a, b in zip(before, after))


def test_dataclasses_by_field():
    @dataclass
    class Pair:
        a: wg.Tensor
        b: int

    assert wg.fingerprint(Pair(wg.ones(()), 1)) != wg.fingerprint(Pair(wg.ones(()), 2))


def test_another_process_finds_the_same():
    code = "import wengert as wg; wg.manual_seed(3); print(wg.fingerprint({'x': wg.randn(1000), 'k': [1, None]}))"
    wg.manual_seed(3)
    here = wg.fingerprint({"x": wg.randn(1000), "k": [1, None]})
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert here == there and len(here) == 19


def test_the_gradients_of_a_checkpoint_and_of_other_numbers_of_threads_are_the_same_bits():
    x, w = wg.randn(200, 300, requires_grad=True), wg.randn(300, 300, requires_grad=True)
    f = lambda x, w: wg.softmax(wg.tanh(x @ w)) * wg.sigmoid(x)
    threads = wg.get_num_threads()
    found = set()
    try:
        for n in (1, 2, 4):
            wg.set_num_threads(n)
            found |= {wg.fingerprint(f(x, w).sum().backward()), wg.fingerprint(wg.checkpoint(f, x, w).sum().backward())}
    finally:
        wg.set_num_threads(threads)
    assert len(found) == 1


def test_what_has_no_fingerprint():
    with pytest.raises(wg.ArgumentError, match=r"fingerprint: \['a'\]\[0\] is of type object"):
        wg.fingerprint({"a": [object()]})
    with pytest.raises(wg.ArgumentError, match="which holds no data of its own"):
        wg.jvp(lambda x: wg.fingerprint(x), (wg.ones(()),), (wg.ones(()),))


# ------------------------------------------------------------------------------------------------------ two runs


def test_equal_runs():
    x, w = wg.randn(4, 4), wg.randn(4, 4, requires_grad=True)
    state = wg.default_generator.get_state()
    assert wg.compare_runs(lambda: (wg.dropout(wg.tanh(x @ w), 0.5) + wg.rand(4)).sum()) is None
    assert wg.default_generator.get_state() != state
    assert wg.compare_runs(lambda a, *, b: a @ b, x, b=w) is None


def test_the_first_operation_that_differs_is_named():
    x = wg.ones((3,))
    calls = []

    def f():
        calls.append(1)
        h = wg.sin(x)
        h = h * float(len(calls))
        return wg.exp(h).sum()

    line = f.__code__.co_firstlineno + 3
    text = wg.compare_runs(f)
    assert text is not None
    assert text.startswith("operation 2 of 4, mul at ")
    assert text.endswith(f"test_fingerprint.py:{line}: float32(3,) has other bits")


def changing(first, second):
    runs = iter((first, second))
    return wg.compare_runs(lambda: next(runs)(wg.ones((3,))))


def test_other_operations_shapes_results_and_structures():
    assert "operation 2 of 2 is cos at" in changing(wg.sin, wg.cos)
    assert "the result['a'] does not: int became str" in changing(lambda x: {"a": 1}, lambda x: {"a": "1"})
    assert "does not: int64(2,) has other bits" in changing(lambda x: wg.tensor([1, 2]), lambda x: wg.tensor([1, 3]))
    assert "returned 1 values, the second 2" in changing(lambda x: (1,), lambda x: (1, 2))
    sizes = iter((3, 2))
    assert "float32(3,) became float32(2,)" in wg.compare_runs(lambda: wg.exp(wg.ones((next(sizes),))))
    repeats = iter((1, 2))
    text = wg.compare_runs(lambda: [wg.sin(wg.ones(())) for _ in range(next(repeats))])
    assert text == "the first run has 2 operations, the second 4"
