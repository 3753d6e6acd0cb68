"""Long, wide, interrupted, forked, threaded, absurd: the process stays usable and its memory flat."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core

SANITIZED = bool(os.environ.get("WENGERT_SANITIZED"))


def live() -> int:
    gc.collect()
    return int(_core.memory_stats()["live_bytes"])


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---------------------------------------------------------------------------------------------- depth and length

LONG = 100_000 if SANITIZED else 1_000_000


def test_a_chain_of_a_million_ops() -> None:
    before = live()
    x = wg.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(LONG):
        y = y + 1.0
    assert y.backward()[x].item() == 1.0
    del y
    x.grad = None
    assert live() - before < 1000
    del x
    assert live() == before


def test_a_long_chain_is_dropped_without_backward() -> None:
    before = live()
    x = wg.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(LONG):
        y = y * 1.0
    del y
    del x
    assert live() == before


def test_a_long_chain_on_a_tape() -> None:
    before = live()
    x = wg.tensor(0.5, dtype=wg.float64)
    with wg.GradientTape() as tape:
        y = x
        for _ in range(50_000):
            y = y * 1.00001
    assert tape.gradient(y, x).item() == pytest.approx(1.00001**50_000)
    del x, y, tape
    assert live() == before


def test_a_long_chain_differentiated_twice() -> None:
    x = wg.tensor(0.5, dtype=wg.float64, requires_grad=True)
    y = x
    for _ in range(5_000):
        y = wg.sin(y) * 1.0001
    (g,) = wg.grad_of(y, x, create_graph=True)
    (h,) = wg.grad_of(g, x)
    assert np.isfinite(h.item())
    del y, g, h


def test_a_wide_sum() -> None:
    xs = [wg.tensor(float(k), requires_grad=True) for k in range(20_000)]
    total = wg.tensor(0.0)
    for x in xs:
        total = total + x * x
    grads = total.backward()
    assert len(grads) == 20_000
    assert grads[xs[123]].item() == 246.0


def test_concat_of_many() -> None:
    xs = [wg.tensor([float(k)], requires_grad=True) for k in range(2_000)]
    y = wg.concat(xs)
    grads = (y * y).sum().backward()
    assert grads[xs[77]].tolist() == [154.0]


def test_more_operands_than_a_word_has_bits() -> None:
    """No gradient is dropped, however many operands an op or a compiled function has."""
    ps = [wg.tensor([float(k)], requires_grad=True) for k in range(150)]
    f = wg.compile(lambda *given: sum((p * p).sum() for p in given))
    captured = wg.compile(lambda x: sum((p * p * x).sum() for p in ps))
    for y in ((wg.stack(ps) ** 2).sum(), (wg.concat(ps) ** 2).sum(), f(*ps), captured(wg.ones(()))):
        grads = y.backward()
        assert [grads[p].item() for p in ps] == [2.0 * k for k in range(150)]
    assert [g.item() for g in wg.grad(lambda q: f(*q))(ps)] == [2.0 * k for k in range(150)]
    assert wg.jvp(lambda *q: wg.concat(q).sum(), tuple(ps), tuple(wg.ones_like(p) for p in ps))[1].item() == 150.0


def test_memory_is_flat_over_training_steps() -> None:
    rng = np.random.default_rng(0)
    x, t = wg.asarray(rng.standard_normal((4, 3)).astype(np.float32)), wg.ones((4, 2))
    w = wg.tensor(rng.standard_normal((3, 2)).astype(np.float32), requires_grad=True)

    def steps(n: int) -> None:
        for _ in range(n):
            d = wg.tanh(x @ w) - t
            g = (d * d).mean().backward()[w]
            with wg.no_grad():
                w.add_(g * -0.01)
            w.grad = None

    steps(500)
    before, before_resident = live(), resident()
    steps(2_000 if SANITIZED else 20_000)
    assert live() == before
    assert resident() - before_resident < 8 << 20


@pytest.mark.skipif(SANITIZED, reason="the sanitizer keeps freed memory for a while")
def test_a_long_graph_gives_its_memory_back() -> None:
    n = 200_000

    def chain() -> wg.Tensor:
        y = wg.ones((4,), requires_grad=True)
        for _ in range(n):
            y = y * y
        return y

    _core.empty_pool()
    before = resident()
    y = chain()
    grown = resident() - before
    del y
    _core.empty_pool()
    left = resident() - before
    assert left < grown / 4, (left, grown)
    y = chain()  # what was given back is not used any more
    assert len(y.sum().backward()) == 1


def test_memory_is_flat_over_every_kind_of_step() -> None:
    """Tapes, hooks, maps, second order, compiled functions, custom ops: none keeps anything."""

    class Twice(wg.CustomOp):
        def forward(self, x: Any) -> Any:
            return x * 2

        def backward(self, y_bar: Any, x: Any) -> Any:
            return y_bar * 2

    f = wg.compile(lambda z: (wg.softmax(z) * z).sum())
    x = wg.tensor(np.linspace(0, 1, 50), requires_grad=True)

    def step() -> None:
        with wg.GradientTape() as tape:
            y = f(x * 2.0)
        tape.gradient(y, x)
        h = wg.sin(x)
        h.retain_grad()
        handle = x.register_hook(lambda g: g * 1.0)
        (h * h).sum().backward()
        handle.remove()
        x.grad = None
        wg.hvp(lambda z: (z**3).sum(), x.detach(), wg.ones_like(x.detach()))
        (g,) = wg.grad_of(f(x), x, create_graph=True)
        wg.grad_of(g.sum(), x)
        Twice()(x).sum().backward()
        x.grad = None
        view = (x * 1.0)[::2]
        view *= 2.0
        view.sum().backward()
        x.grad = None
        with pytest.raises(wg.ShapeError):
            x + wg.ones(7)

    for _ in range(20):
        step()
    before = live()
    for _ in range(100):
        step()
    assert live() == before


# ------------------------------------------------------------------------------------------------------- threads


def run_threads(work: Any, n: int = 10) -> None:
    failures: list[BaseException] = []

    def guarded(k: int) -> None:
        try:
            work(k)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


def test_ten_threads_each_with_its_own_tape() -> None:
    shared = wg.tensor(np.linspace(0.1, 1.0, 20))

    def work(k: int) -> None:
        for _ in range(30):
            x = wg.tensor(np.full(20, k + 1.0))
            with wg.GradientTape() as tape:
                y = (x * x * shared).sum() * (k + 1.0)
            gx, gs = tape.gradient(y, [x, shared])
            np.testing.assert_allclose(gx.numpy(), 2 * (k + 1.0) ** 2 * shared.numpy())
            np.testing.assert_allclose(gs.numpy(), np.full(20, (k + 1.0) ** 3))

    run_threads(work)


def test_ten_threads_with_their_own_graphs() -> None:
    def work(k: int) -> None:
        for _ in range(30):
            x = wg.tensor(np.full((8, 8), k + 1.0), requires_grad=True)
            (wg.tanh(x @ x) * x).sum().backward()
            expected = wg.grad(lambda z: (wg.tanh(z @ z) * z).sum())(x.detach()).numpy()
            np.testing.assert_allclose(x.grad.numpy(), expected)

    run_threads(work)


def test_threads_share_a_leaf() -> None:
    """Gradients of one parameter from several threads: all of them arrive."""
    w = wg.tensor(np.zeros(100), requires_grad=True)

    def work(k: int) -> None:
        for _ in range(20):
            grads = (w * float(k)).sum().backward(inputs=[w])
            np.testing.assert_array_equal(grads[w].numpy(), np.full(100, float(k)))

    run_threads(work, 6)


def test_a_graph_of_another_thread() -> None:
    """Recorded in a thread that has ended, differentiated and freed here."""
    made: dict[str, Any] = {}

    def work() -> None:
        made["x"] = wg.tensor(np.ones(10), requires_grad=True)
        made["y"] = (wg.sin(made["x"]) * 2.0).sum()
        made["dropped"] = wg.exp(made["x"]).sum()

    t = threading.Thread(target=work)
    t.start()
    t.join()
    del made["dropped"]
    np.testing.assert_allclose(made["y"].backward()[made["x"]].numpy(), 2 * np.cos(np.ones(10)))
    made.clear()
    wg.autograd.clear()


def test_first_derivations_race() -> None:
    """Ten threads meet the same new signature at once."""
    code = """
import threading, numpy as np, wengert as wg
failures = []
barrier = threading.Barrier(10)
def work(k):
    try:
        barrier.wait()
        x = wg.tensor(np.linspace(0.1, 0.9, 12).reshape(3, 4), requires_grad=True)
        y = (wg.softmax(wg.cumprod(wg.tanh(x) + 1.0, axis=1)) * wg.gelu(x)).sum()
        g = y.backward()[x].numpy()
        h = wg.hvp(lambda z: (wg.layer_norm(z, (4,)) ** 3).sum(), x.detach(), wg.ones_like(x.detach()))
        results.append((g, h.numpy()))
    except BaseException as e:
        failures.append(repr(e))
results = []
threads = [threading.Thread(target=work, args=(k,)) for k in range(10)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not failures, failures
for g, h in results:
    np.testing.assert_array_equal(g, results[0][0]); np.testing.assert_array_equal(h, results[0][1])
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "fine", done.stderr[-2000:]


# -------------------------------------------------------------------------------------------- processes and signals


def in_child(code: str, timeout: float = 120) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout


def test_a_forked_child_computes_a_gradient() -> None:
    out = in_child("""
import os, numpy as np, wengert as wg
a = wg.tensor(np.ones((400, 400), np.float32), requires_grad=True)
(wg.tanh(a @ a)).sum().backward()          # worker threads and BLAS are up before the fork
loss = (a * a).sum()
pid = os.fork()
if pid == 0:
    try:
        b = wg.tensor(np.ones((400, 400), np.float32), requires_grad=True)
        g = (b @ b + wg.exp(b)).sum().backward()[b]
        inherited = loss.backward(inputs=[a])[a]
        ok = abs(g.numpy()[0, 0] - (800 + np.e)) < 1e-2 and inherited.numpy()[0, 0] == 2.0
        os._exit(0 if ok else 3)
    except BaseException:
        os._exit(4)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print(loss.backward(inputs=[a])[a].numpy()[0, 0])
""")
    assert out.strip() == "2.0"


def test_interrupting_a_long_backward() -> None:
    out = in_child("""
import signal, time, wengert as wg
x = wg.ones((1000,), requires_grad=True)
y = x
for _ in range(200_000):
    y = wg.sin(y)
y = y.sum()
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, but from a timer that needs no thread
signal.setitimer(signal.ITIMER_REAL, 0.1)
start = time.monotonic()
try:
    y.backward()
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start < 2.0)
else:
    print("finished", True)
assert x.grad is None or x.grad.shape == (1000,)
z = wg.tensor([3.0], requires_grad=True)
print((z * z).sum().backward()[z].tolist())
del y
print(wg.is_grad_enabled())
""")
    lines = out.split("\n")
    assert lines[0] == "interrupted True", lines
    assert lines[1] == "[6.0]" and lines[2] == "True"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler: a process that was started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupting_a_loop_of_ops() -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    x = wg.ones((100,), requires_grad=True)
    timer = threading.Timer(0.1, interrupt)

    # A function of its own: Python 3.13 does not count the jump back to a loop's beginning as a part of the `with` block.
    def repeat() -> None:
        y = x
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            y = wg.sin(y) * 1.0

    with pytest.raises(KeyboardInterrupt):
        timer.start()  # inside: on a busy machine it may be over before the loop begins
        repeat()
    timer.join()
    assert (x * x).sum().backward()[x].tolist() == [2.0] * 100


# Signals that come while one native call runs are one call of the handler if only its end answers them.
COUNTING = """
import signal, wengert as wg
from wengert import _core
calls = 0
def answer(*_):
    global calls
    calls += 1
    if calls == raise_at:
        raise KeyboardInterrupt
raise_at = 0
signal.signal(signal.SIGALRM, answer)
def interrupted(f, at=0):
    global calls, raise_at
    calls, raise_at = 0, at
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        f()
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return False
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_signals_are_answered_within_one_product(threads: int) -> None:
    out = in_child(
        COUNTING
        + f"""
wg.set_num_threads({threads})
a = wg.randn(3000, 3000, dtype="float64")  # some tenths of a second, on a fast machine, too
expected = a[:1] @ a
product = []
assert not interrupted(lambda: product.append(a @ a))
print(calls >= 3, bool(wg.allclose(product[0][:1], expected)))
print(interrupted(lambda: product.append(a @ a), at=2), len(product))
print(bool(wg.allclose((a @ a)[:1], expected)))
"""
    )
    assert out.split() == ["True", "True", "True", "1", "True"]


@pytest.mark.parametrize("tier", ["executor", "generated"])
def test_signals_are_answered_within_a_compiled_call(tier: str) -> None:
    out = in_child(
        COUNTING
        + f"_core.set_tier({tier!r})"
        + """
w = wg.randn(64, 64) * 0.1
def chain(x, w):
    for _ in range(300):
        x = wg.tanh(x @ w)
    return x
f = wg.compile(chain)
x = wg.randn(4096, 64)
expected = f(x, w)
steps = _core.run_counters()[0]
f(x, w)
steps = _core.run_counters()[0] - steps
before = _core.run_counters()[0]
while not interrupted(lambda: f(x, w), at=1):
    before = _core.run_counters()[0]
print(_core.run_counters()[0] - before < steps)
print(bool((f(x, w) == expected).all()))
"""
    )
    assert out.split() == ["True", "True"]


def test_a_compiled_call_that_changes_tensors_is_interrupted_before_it_does_or_not_at_all() -> None:
    out = in_child(
        COUNTING
        + """
state, count = wg.zeros((500, 500)), wg.zeros(())
@wg.compile
def f(x):
    y = x
    for _ in range(20):
        y = wg.tanh(y @ x)
    state.add_(1.0)
    count.add_(1.0)
    return y
x = wg.randn(500, 500) * 0.01
f(x)
done = 1
for k in range(20):
    done += not interrupted(lambda: f(x), at=1 + k % 3)
    assert (state == count).all(), "both or none"
    assert done <= count.item() <= done + 1  # the signal may come after the call, before Python has left it
    done = int(count.item())
print(done < 21)
"""
    )
    assert out.split() == ["True"]


@pytest.mark.parametrize("compiled", [False, True])
def test_an_interrupted_step_is_counted_if_it_was_made(compiled: bool) -> None:
    """The optimizer's count, the schedule and the averages go with the parameters."""
    out = in_child(
        COUNTING
        + f"""
w = wg.ones((700, 700), dtype="float64", requires_grad=True)
ones = wg.ones((700, 700), dtype="float64")
optimizer = wg.optim.Adam([w], lr=1e-3)
scheduler = wg.optim.Scheduler(optimizer, wg.optim.schedules.constant())
def step():
    w.grad = ones
    optimizer.step()
    if {compiled}:
        scheduler.step()
    return w[0, 0] * 1.0
f = wg.compile(step) if {compiled} else step
f()
stopped, live = 0, wg.memory_stats().live_bytes
while stopped < 8:
    stopped += interrupted(lambda: [f() for _ in range(1000)], at=1)
    steps = optimizer.state_dict()["state"][0]["step"]
    made = round((1.0 - w[0, 0].item()) / 1e-3)  # with a constant gradient each step is lr
    assert made == steps, (made, steps)
    assert not {compiled} or scheduler.steps == steps, (scheduler.steps, steps)
print("counted", wg.memory_stats().live_bytes - live)
"""
    )
    assert out.split() == ["counted", "0"]


def test_signals_are_answered_within_a_backward_of_large_products() -> None:
    out = in_child(
        COUNTING
        + """
wg.set_num_threads(1)
w = wg.randn(800, 800, dtype="float64", requires_grad=True)
def loss():
    y = w
    for _ in range(6):
        y = y @ w
    return y.sum()
y = loss()
assert not interrupted(lambda: y.backward())
print(calls >= 3)
expected, w.grad = w.grad, None
y = loss()
print(interrupted(lambda: y.backward(), at=2), w.grad is None, wg.is_grad_enabled())
loss().backward()
print(bool((w.grad == expected).all()))
"""
    )
    assert out.split() == ["True", "True", "True", "True", "True"]


def test_the_process_ends_while_a_daemon_thread_computes() -> None:
    out = in_child("""
import threading, time, wengert as wg
a = wg.randn(600, 600)
def work():
    while True:
        a @ a
class Slow:  # keeps the interpreter shutting down while products end
    def __del__(self, sleep=time.sleep):
        sleep(0.3)
slow = Slow()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
print("end")
""")
    assert out.split() == ["end"]


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "shape", [(2**62,), (2**40, 2**40), (2**63 - 1,), (10**6, 10**6, 10**6), (2**31, 2**31, 2)], ids=str
)
def test_absurd_sizes(shape: tuple[int, ...]) -> None:
    before = live()
    x = wg.ones((2,), requires_grad=True)
    for make in (wg.zeros, wg.ones, lambda s: wg.full(s, 1.5), wg.randn, wg.rand):
        with pytest.raises((MemoryError, OverflowError, wg.ShapeError)):
            make(shape)
    with pytest.raises((MemoryError, wg.WengertError, OverflowError)):
        wg.exp(wg.broadcast_to(wg.ones(()), shape))
    with pytest.raises((MemoryError, wg.WengertError, OverflowError)):
        wg.broadcast_to(x[0], shape) + 1.0
    assert (x * 2.0).sum().backward()[x].tolist() == [2.0, 2.0]
    del x
    assert live() == before


@pytest.mark.skipif(SANITIZED, reason="the sanitizer's allocator has limits of its own")
def test_memory_that_is_not_there() -> None:
    """Sizes that are merely too large: a clean MemoryError, also in the middle of a product or a backward pass."""
    x = wg.ones((1 << 20, 1), requires_grad=True)
    with pytest.raises(MemoryError):
        x @ wg.ones((1, 1 << 22))
    with pytest.raises(MemoryError):
        (x + wg.ones((1, 1 << 22))).sum()
    assert x.sum().backward()[x].shape == (1 << 20, 1)


def test_negative_and_strange_shapes() -> None:
    for shape in ((-1,), (2, -3)):
        with pytest.raises(wg.ShapeError):
            wg.zeros(shape)
    for shape in ("text", (1.5,), (None,), ("a",)):
        with pytest.raises((TypeError, ValueError, wg.WengertError)):
            wg.zeros(shape)
    with pytest.raises((wg.WengertError, ValueError)):
        wg.zeros((1,) * 100)


def test_ranks_up_to_the_limit() -> None:
    for rank in range(9):
        try:
            x = wg.ones((1,) * rank, requires_grad=True)
        except wg.WengertError:
            assert rank >= 8
            return
        assert (x * 2.0).sum().backward()[x].shape == (1,) * rank


def test_nan_and_infinity_flow() -> None:
    x = wg.tensor([np.nan, np.inf, -np.inf, 0.0, 1.0], dtype=wg.float64, requires_grad=True)
    for f in (wg.exp, wg.tanh, wg.sin, wg.sqrt, wg.log, wg.relu, wg.sigmoid, wg.abs, wg.softmax):
        y = f(x)
        grads = y.backward(wg.ones_like(y.detach()))
        assert grads[x].shape == (5,)
        x.grad = None
    np.testing.assert_array_equal(wg.relu(x).detach().numpy(), [np.nan, np.inf, 0.0, 0.0, 1.0])


def test_errors_name_op_shapes_and_dtypes() -> None:
    a, b = wg.ones((2, 3)), wg.ones((4, 5), dtype=wg.float64)
    with pytest.raises(wg.ShapeError) as caught:
        a @ b
    assert "matmul" in str(caught.value) and "(2, 3)" in str(caught.value) and "(4, 5)" in str(caught.value)
    with pytest.raises(wg.ShapeError, match=r"\(2, 3\).*\(4, 5\)"):
        a + b
    with pytest.raises(IndexError, match="7"):
        a[7]
    with pytest.raises(IndexError):
        a[:, 3]
    with pytest.raises(IndexError):
        a[wg.tensor([0, 9])]
    with pytest.raises(IndexError):
        a[0, 0, 0]
    with pytest.raises(wg.WengertError):
        a.sum(axis=2)
    with pytest.raises(wg.WengertError):
        a.reshape((5,))
    for error in (
        wg.ShapeError,
        wg.DTypeError,
        wg.GradientError,
        wg.InPlaceError,
        wg.TapeConsumedError,
        wg.BudgetError,
    ):
        assert issubclass(error, wg.WengertError)
    assert issubclass(wg.ShapeError, ValueError) and issubclass(wg.DTypeError, TypeError)
    assert issubclass(wg.GradientError, RuntimeError) and issubclass(wg.BudgetError, MemoryError)
