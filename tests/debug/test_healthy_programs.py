"""No false alarms: programs in which nothing is wrong, though some of them compute with infinities."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import wengert as wg
from wengert.profiling.findings import findings

ROOT = Path(__file__).parents[2]
MODES = ("full", "light")


def _net():
    return wg.nn.Sequential(
        wg.nn.Linear(4, 8), wg.nn.ReLU(), wg.nn.BatchNorm1d(8), wg.nn.Dropout(0.5), wg.nn.Linear(8, 3)
    )


def _train(net, loss_of, optimizer=wg.optim.Adam, steps=3):
    chosen = optimizer(net.parameters(), lr=0.01)
    for _ in range(steps):
        chosen.step(loss_of(net).backward())


def classifier():
    x, t = wg.randn(16, 4), wg.randint(0, 3, (16,))
    _train(_net(), lambda net: wg.cross_entropy(net(x), t))


def compiled_step():
    net = _net()
    optimizer = wg.optim.Adam(net.parameters(), lr=0.01)

    @wg.compile
    def step(x, t):
        optimizer.zero_grad()
        loss = wg.cross_entropy(net(x), t)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(wg.randn(16, 4), wg.randint(0, 3, (16,)))


def attention_with_a_causal_mask():
    scores = wg.randn(2, 5, 5, requires_grad=True)
    mask = wg.tril(wg.ones((5, 5))) > 0
    weights = wg.softmax(wg.where(mask, scores, -wg.inf))
    (weights @ wg.randn(2, 5, 3)).sum().backward()


def padded_sequences():
    x = wg.randn(3, 6, requires_grad=True)
    lengths = wg.tensor([2, 6, 4])
    inside = wg.arange(6)[None, :] < lengths[:, None]
    highest = wg.where(inside, x, -wg.inf).max(axis=1)
    highest.sum().backward()


def logarithm_where_it_is_defined():
    x = wg.tensor([0.0, -1.0, 2.0], requires_grad=True)
    wg.where(x > 0, wg.log(x), 0.0).sum().backward()


def quotient_where_it_is_defined():
    s, n = wg.randn(4, requires_grad=True), wg.tensor([0.0, 1.0, 2.0, 0.0])
    wg.where(n == 0, 0.0, s / n).sum().backward()


def entropy_with_zeros():
    p = wg.tensor([0.0, 0.5, 0.5], requires_grad=True)
    (-wg.where(p > 0, p * wg.log(p), 0.0)).sum().backward()


def loss_scaling():
    net = wg.nn.Linear(4, 1)
    scaler = wg.GradScaler(init_scale=1024.0)
    optimizer = wg.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        loss = (net(wg.randn(8, 4)) ** 2).mean()
        grads = scaler.scale(loss).backward()
        scaler.step(optimizer, grads)
        scaler.update()


def half_precision():
    x = wg.randn(32, dtype=wg.float16, requires_grad=True)
    (wg.softmax(x) * wg.tanh(x)).sum().backward()


def a_recurrent_network():
    net = wg.nn.LSTM(3, 5)
    out, _ = net(wg.randn(7, 2, 3))
    out.sum().backward()


def second_order():
    x = wg.randn(4)
    wg.hessian(lambda z: (z**3).sum() + wg.logsumexp(z))(x)


def jacobians_and_batches():
    f = lambda z: wg.tanh(z @ wg.ones((4, 2)))
    wg.jacobian(f)(wg.randn(4))
    wg.vmap(wg.grad(lambda z: f(z).sum()))(wg.randn(5, 4))


def forward_mode():
    wg.jvp(lambda z: wg.sqrt(z).sum(), (wg.ones(3),), (wg.ones(3),))


def checkpoints():
    w = wg.Parameter.randn((4, 4))
    wg.checkpoint(lambda h: wg.tanh(h @ w), wg.randn(2, 4)).sum().backward()


def a_loop():
    w = wg.Parameter.randn((4,))
    carry, _ = wg.scan(lambda c, x: (wg.tanh(c * w + x), c), wg.zeros(4), wg.randn(6, 4))
    carry.sum().backward()


def a_tape():
    x = wg.randn(3)
    with wg.GradientTape() as tape:
        y = wg.where(x > 0, wg.log(abs(x)), x).sum()
    tape.gradient(y, x)


def smallest_distance():
    points = wg.randn(6, 2, requires_grad=True)
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    apart = wg.where(wg.eye(6) > 0, wg.inf, squares).min(axis=1)
    apart.sum().backward()


def gradients_that_are_clipped():
    net = _net()
    loss = net(wg.randn(16, 4)).sum()
    grads = loss.backward()
    wg.clip_grad_norm(grads, 1.0)


def distributions():
    loc = wg.zeros(3, requires_grad=True)
    d = wg.stats.Normal(loc, wg.ones(3))
    (d.log_prob(wg.randn(5, 3)).mean() + d.entropy().sum()).backward()


def solving():
    a = wg.eye(3) * 2.0 + 0.1 * wg.randn(3, 3)
    a.requires_grad = True
    wg.linalg.solve(a, wg.ones((3, 1))).sum().backward()


PROGRAMS = [
    classifier, compiled_step, attention_with_a_causal_mask, padded_sequences, logarithm_where_it_is_defined,
    quotient_where_it_is_defined, entropy_with_zeros, loss_scaling, half_precision, a_recurrent_network, second_order,
    jacobians_and_batches, forward_mode, checkpoints, a_loop, a_tape, smallest_distance, gradients_that_are_clipped,
    distributions, solving,
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_is_reported(program, mode):
    wg.manual_seed(0)
    with wg.detect_anomaly(mode):
        program()


def _blocks(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    return "".join(re.findall(r"^```python\n(.*?)^```\n", text, re.DOTALL | re.MULTILINE))


TUTORIAL = ["README.md", *(f"docs/tutorial/{name}.md" for name in ("1-a-network", "2-gradients", "3-training"))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("document", TUTORIAL)
def test_the_tutorial(document, mode, capsys):
    with wg.detect_anomaly(mode):
        exec(compile(_blocks(document), document, "exec"), {"__name__": "tutorial"})
    assert capsys.readouterr().out


# The examples at small sizes: name, function, arguments.
EXAMPLES = [
    ("fit", "fit", {}),
    ("digits_mlp", "train", {"epochs": 1}),
    ("char_transformer", "train", {"steps": 20, "batch": 2, "length": 8, "width": 16, "blocks": 1}),
    ("physics_informed", "train", {"steps": 5}),
    ("gradient_penalty", "train", {"steps": 5}),
    ("meta_learning", "train", {"rounds": 3, "batch": 2}),
    ("bilevel", "tune", {"steps": 2}),
    ("uncertainty", "propagate", {"samples": 100}),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "function", "arguments"), EXAMPLES)
def test_examples(name, function, arguments, mode, capsys):
    pytest.importorskip("sklearn", reason="the examples learn from scikit-learn's data")
    pytest.importorskip("rich", reason="the examples show their progress")
    from tests.test_examples import load

    run = getattr(load(name), function)
    with wg.detect_anomaly(mode):
        run(**arguments)


def test_results_have_the_same_bits_inside():
    wg.manual_seed(1)
    net, x = _net(), wg.randn(16, 4)
    net.eval()
    net(x).sum().backward()
    expected = [p.grad.numpy().copy() for p in net.parameters()]
    for mode in MODES:
        net.zero_grad()
        with wg.detect_anomaly(mode):
            net(x).sum().backward()
        for p, e in zip(net.parameters(), expected, strict=True):
            np.testing.assert_array_equal(p.grad.numpy(), e)


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_stands_out_in_a_profile(program):
    wg.manual_seed(0)
    program()  # what is derived the first time
    with wg.profile() as p:
        program()
    # On a busy machine an op that runs once can wait for long, which nothing tells from being slow.
    assert not [f for f in findings(p) if "of what the machine can do" not in f.text]
