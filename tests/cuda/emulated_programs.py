"""Run by test_emulated.py, with a GPU played by the CPU: programs as graphs against the CPU and against themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import wengert as wg
from benchmarks.gpu import in_wengert, shapes
from wengert import _core
from wengert.ops import OPS

NUMBER = wg.cuda.device_number(0)
RUNS = 5


def counted(work: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    """What it returns, and what it made the device do."""
    before = _core.cuda_counters(NUMBER)
    result = work()
    after = _core.cuda_counters(NUMBER)
    return result, {k: after[k] - before[k] for k in after}


def train(sizes: list[int], device: str, batch: int) -> tuple[list[float], list[dict[str, int]], Any]:
    """Losses, what each step did, and parameters with their gradients after the last one."""
    wg.manual_seed(0)
    layers: list[Any] = []
    for n, m in pairwise(sizes):
        layers += [wg.nn.Linear(n, m), wg.nn.ReLU()]
    net = wg.nn.Sequential(*layers[:-1]).to(device)
    adam = wg.optim.Adam(net.parameters(), lr=0.01)

    @wg.compile
    def step(x: Any, t: Any) -> Any:
        adam.zero_grad()
        loss = wg.cross_entropy(net(x), t)
        loss.backward()
        adam.step()
        return loss

    g = wg.Generator(seed=1)
    batches = [
        (wg.randn(batch, sizes[0], generator=g), wg.randint(0, sizes[-1], (batch,), generator=g)) for _ in range(RUNS)
    ]
    moved = [(x.to(device), t.to(device)) for x, t in batches]  # at different addresses
    losses, did = [], []
    for x, t in moved:
        if device == "cpu":
            losses.append(step(x, t))
        else:
            loss, counts = counted(lambda x=x, t=t: step(x, t))
            losses.append(loss)
            did.append(counts)
    found = [t.detach().cpu().numpy() for p in net.parameters() for t in (p, p.grad)]
    return [loss.item() for loss in losses], did, found


def same_training(sizes: list[int], most_nodes: int, copies_of_results: int, batch: int = 8) -> None:
    """Like the CPU; from the second step on one graph, without copies to or from the host, and without waiting."""
    losses, did, found = train(sizes, "cuda", batch)
    expected, _, found_here = train(sizes, "cpu", batch)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for a, b in zip(
        found, found_here, strict=True
    ):  # Adam divides gradients by their size, and tiny ones are all rounding
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=5e-5)
    assert [d["graphs"] for d in did] == [0, 1, 1, 1, 1], did
    assert did[1]["kernels"] <= most_nodes, did
    assert all(d["kernels"] == copies_of_results and d["copies"] == d["waits"] == 0 for d in did[2:]), did


def written_after_it_was_read(w: Any, x: Any) -> Any:
    y = x @ w
    z = wg.tanh(y) + y.sum(axis=0)
    w.sub_(0.1 * (x.T @ z))  # waits for all that read w
    return (x @ w).sum(axis=1), wg.softmax(z, axis=-1), y


def transposed_and_sliced(w: Any, x: Any) -> Any:
    y = x @ w
    a = wg.relu(y.T) + 1.0  # element by element, but not in the order of the product
    b = y[1:] * y[:-1]  # its neighbours
    y *= 2.0
    return a, b, y, wg.concat([y, b]).max(axis=0), wg.exp(0.1 * y) @ w.T


def residuals_and_norms(w: Any, x: Any) -> Any:
    h = x + wg.tanh(x @ w)
    low = wg.layer_norm(h, (12,)).astype("bfloat16")  # a cast behind a norm
    d = (low.astype("float32") * 2.0).reshape((4, 3, 12)) + h.reshape((4, 3, 12)) * x[0]  # in another shape
    m = wg.softmax(0.5 * d, axis=-1)  # rows behind elementwise work that is read again
    return (m + 1.0).astype("bfloat16"), d[1:], wg.layer_norm(d + m, (12,)).astype("float16"), (m * d).max(axis=0)


def derivatives_of_norms(w: Any, x: Any) -> Any:
    def loss(h: Any) -> Any:
        low = wg.layer_norm(h, (12,), weight=w[0], bias=w[1]).astype("bfloat16")
        return (wg.cumsum(low, axis=0).astype("float32") * x).sum() + (h * h).sum()

    # A cast before the derivative of the norm, and a sum and a cast behind it.
    bar = wg.grad(loss)(x + w)
    h = x - w
    again = wg.grad(lambda h: (wg.layer_norm(h, (12,)) * wg.cumsum(x, axis=1)).sum())(h)
    # The cotangent is the input of the norm as well, so it has to be in memory.
    own = wg.exp(0.3 * x)
    _, pull = wg.vjp(lambda h: wg.layer_norm(h, (12,), weight=w[0]), own)
    return bar, bar.astype("bfloat16"), again + 1.0, again, pull(own)[0]


def numbers_and_rows(w: Any, x: Any, scale: Any) -> Any:
    mean = x.mean(axis=-1, keepdims=True)
    h = (x - mean) * scale
    k = wg.argmax(h, axis=-1)
    return wg.take_along_axis(h, k[:, None], axis=1) * scale, (h @ w) * scale + 1.0, k, wg.ones(3) * scale


def graph_is_step_by_step(f: Callable[..., Any], scales: bool = False) -> None:
    """The same bits by a graph and launch by launch, in place and with results that are kept."""
    results = []
    for graphs in (True, False):
        _core.cuda_set_graphs(NUMBER, graphs)
        g = wg.Generator(seed=2)
        w = (0.3 * wg.randn(12, 12, generator=g)).to("cuda")
        xs = [wg.randn(12, 12, generator=g).to("cuda") for _ in range(RUNS)]
        run = wg.compile(f)
        made, counts = counted(lambda: [run(w, x, *([wg.tensor(1.5 + k)] if scales else [])) for k, x in enumerate(xs)])
        assert counts["graphs"] == (RUNS - 1 if graphs else 0), (f.__name__, counts)
        results.append([t.cpu().numpy() for r in [*made, [w]] for t in r])
    _core.cuda_set_graphs(NUMBER, True)
    for k, (a, b) in enumerate(zip(*results, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"{f.__name__}, result {k}")


def scans() -> None:
    """Of lines shorter and longer than a block, across and along memory, in both directions, with NaN and infinities."""
    rng = np.random.default_rng(4)
    for shape, axis in (((3, 700), 1), ((300, 2), 0), ((2, 5, 3), 1), ((2, 0), 1), ((0, 4), 1)):
        for dtype in ("float32", "bfloat16", "int8"):
            x = wg.tensor((3 * rng.normal(size=shape)).round(1).astype("float32")).astype(dtype)
            for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "linear_recurrence"):
                if name == "logcumsumexp" and dtype == "int8":
                    continue
                operands = [x / 4 if name == "cumprod" and dtype != "int8" else x] * (
                    2 if name == "linear_recurrence" else 1
                )
                if name == "linear_recurrence" and dtype != "int8":
                    operands[0] = wg.tanh(x)
                for reverse in (0, 1)[: 1 if name in ("cummax", "cummin") else 2]:
                    scan_is_that_of_the_cpu(name, operands, (axis, reverse)[: 1 if name in ("cummax", "cummin") else 2])
    odd = wg.tensor([[-np.inf, -np.inf, 1.0, np.inf, 2.0, np.nan, 0.0]], dtype="float32")
    for name in ("logcumsumexp", "cumsum"):
        scan_is_that_of_the_cpu(name, [odd], (1, 0))
    for name in ("cummax", "cummin"):
        scan_is_that_of_the_cpu(name, [odd], (1,))
    x, w = (wg.tensor(rng.normal(size=(4, 9))) for _ in range(2))
    for f in (lambda t: (wg.cumprod(t, axis=1) * w.to(t.device)).sum(), lambda t: (wg.cumsum(t, axis=0) ** 3).sum()):
        for derivative in (wg.grad(f), lambda t, f=f: wg.hvp(f, t, t)):
            np.testing.assert_allclose(derivative(x.to("cuda")).cpu().numpy(), derivative(x).numpy(), rtol=1e-12)


def scan_is_that_of_the_cpu(name: str, operands: list[Any], attrs: tuple[int, ...]) -> None:
    op = OPS[name]
    here, there = op(*operands, *attrs), op(*[t.to("cuda") for t in operands], *attrs)
    pairs = zip(there, here) if isinstance(here, tuple) else [(there, here)]
    for a, b in pairs:
        tolerance = {"float32": 1e-6, "bfloat16": 2e-2}.get(b.dtype.name, 0.0)
        wide = np.float64 if tolerance else np.int64
        got, wanted = (t.cpu().numpy().astype(wide) for t in (a, b))
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=f"{name} {b.dtype} {attrs}")


def draws() -> None:
    """Random numbers are those of the CPU."""
    for draw in (lambda **o: wg.randint(-5, 1000, (99,), **o), lambda **o: wg.rand(99, **o)):
        there, here = (draw(generator=wg.Generator(seed=3), **o) for o in ({"device": "cuda"}, {}))
        np.testing.assert_array_equal(there.cpu().numpy(), here.numpy())


def whole_networks() -> None:
    """Steps of a transformer, also in bfloat16, and of an LSTM: one graph each, like the CPU's."""
    for kind, precision, most_nodes in (("writer", "float32", 47), ("writer", "bfloat16", 60), ("lstm", "float32", 10)):
        losses = {}
        for device in ("cuda", "cpu"):
            step = in_wengert.Library(device, shapes.SMALL).step(kind, [], 0, precision, True)
            made, did = [], []
            for _ in range(4):
                loss, counts = counted(step)
                made.append(loss)
                did.append(counts)
            losses[device] = [loss.item() for loss in made]
            if device == "cuda":
                assert [d["graphs"] for d in did] == [0, 1, 1, 1], (kind, precision, did)
                assert did[1]["kernels"] <= most_nodes, (kind, precision, did)
                assert all(d["kernels"] == d["copies"] == d["waits"] == 0 for d in did[2:]), (kind, precision, did)
        tolerance = 1e-5 if precision == "float32" else 2e-3
        np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=tolerance)


def with_dropout_is_a_graph() -> None:
    """Steps that draw random numbers are graphs, too, and draw others in every run: those that the CPU draws."""
    results, did = {}, []
    for device in ("cuda", "cpu"):
        wg.manual_seed(7)
        w = wg.Parameter(wg.randn(12, 12, generator=wg.Generator(seed=1)).to(device))
        sgd = wg.optim.SGD([w], lr=0.1)
        q = (0.3 * wg.randn(2, 6, 12, generator=wg.Generator(seed=2))).to(device)

        @wg.compile
        def step(x: Any, w: Any = w, sgd: Any = sgd) -> Any:
            sgd.zero_grad()
            h = wg.dropout(wg.tanh(x @ w), 0.4)
            a = wg.scaled_dot_product_attention(h, h, x, dropout_p=0.3, is_causal=True)
            loss = ((a + 0.1 * wg.randn(*a.shape, device=a.device)) ** 2).mean()
            loss.backward()
            sgd.step()
            return loss, h

        made = []
        for _ in range(RUNS):
            y, counts = counted(lambda: step(q))
            made.append(y)
            if device == "cuda":
                did.append(counts)
        results[device] = [t.detach().cpu().numpy() for y in made for t in y] + [w.detach().cpu().numpy()]
    for a, b in zip(results["cuda"], results["cpu"], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert len({a.tobytes() for a in results["cuda"][1:-1:2]}) == RUNS
    assert [d["graphs"] for d in did] == [0, 1, 1, 1, 1], did
    assert all(d["kernels"] == d["copies"] == d["waits"] == 0 for d in did[2:]), did


def eager_steps_do_not_wait() -> None:
    """Forward, backward and the optimizer, called one by one: nothing goes to the host or comes from it."""
    net = wg.nn.Sequential(wg.nn.Linear(6, 8), wg.nn.Tanh(), wg.nn.Linear(8, 2)).to("cuda")
    adam = wg.optim.Adam(net.parameters(), lr=0.01)
    x, y = wg.randn(5, 6, device="cuda"), wg.randn(5, 2, device="cuda")

    def step() -> None:
        adam.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        adam.step()

    step()
    for _ in range(4):
        _, did = counted(step)
        assert did["copies"] == did["waits"] == 0, did


def a_forked_child_is_told() -> None:
    """What was opened before a fork cannot be used behind it: an error, and the parent goes on."""
    x = wg.ones(3, device="cuda")
    child = os.fork()
    if child == 0:
        try:
            x + 1.0
        except wg.errors.DeviceError as error:
            os._exit(0 if "spawn" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (x + 1.0).tolist() == [2.0, 2.0, 2.0]


def main() -> None:
    assert wg.cuda.is_available()
    assert (wg.cuda.get_device_name() == "emulated GPU") == ("WENGERT_EMULATED_FOLDER" in os.environ)
    scans()
    draws()
    same_training([16, 16, 16, 5], most_nodes=7, copies_of_results=0)
    same_training(
        [160, 256, 3], most_nodes=14, copies_of_results=1, batch=64
    )  # a product of the library gives a gradient
    graph_is_step_by_step(written_after_it_was_read)
    graph_is_step_by_step(transposed_and_sliced)
    graph_is_step_by_step(residuals_and_norms)
    graph_is_step_by_step(derivatives_of_norms)
    graph_is_step_by_step(numbers_and_rows, scales=True)
    with_dropout_is_a_graph()
    whole_networks()
    eager_steps_do_not_wait()
    a_forked_child_is_told()


if __name__ == "__main__":
    main()
