"""wengert on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wengert as wg
from benchmarks.gpu import shapes
from benchmarks.gpu.shapes import Sizes
from benchmarks.workloads import networks
from wengert import _core

Call = Callable[[], Any]


class Library:
    """Tensors on a device."""

    name = "wengert"

    def __init__(self, device: str, sizes: Sizes) -> None:
        self.device, self.sizes = device, sizes

    def wait(self, result: Any) -> None:
        """Until what was started is done."""
        if self.device != "cpu":
            wg.cuda.synchronize()

    def array(self, a: Any) -> Any:
        """On the device."""
        return wg.tensor(a, device=self.device)

    def bare_launch(self) -> float | None:
        """Microseconds of the driver's call alone, for a kernel that does nothing."""
        return None if self.device == "cpu" else _core.cuda_time_launches(wg.cuda.device_number(0), 2000) * 1e6

    def eager_op(self, a: Any, b: Any) -> Call:
        """One op."""
        a, b = self.array(a), self.array(b)
        return lambda: a * b

    def recorded_op(self, a: Any, b: Any) -> Call:
        """One op, recorded."""
        a, b = self.array(a).requires_grad_(), self.array(b)
        return lambda: a * b

    def copy(self, a: Any) -> Call:
        """What memory can do."""
        a = self.array(a)
        return lambda: a.clone()

    def chain(self, x: Any, w: Any, b: Any) -> Call:
        """tanh(x w + b)."""
        x, w, b = map(self.array, (x, w, b))
        f = wg.compile(lambda x, w, b: wg.tanh(x * w + b))
        return lambda: f(x, w, b)

    def softmax(self, x: Any, y_bar: Any) -> Call:
        """Of rows; with a cotangent, forward and backward."""
        return self._rows(lambda x: wg.softmax(x, axis=-1), x, y_bar)

    def layer_norm(self, x: Any, y_bar: Any, w: Any, b: Any) -> Call:
        """Of rows; with a cotangent, forward and backward."""
        return self._rows(lambda x, w, b: wg.layer_norm(x, (x.shape[-1],), weight=w, bias=b), x, y_bar, w, b)

    def attention(self, q: Any, k: Any, v: Any, y_bar: Any, precision: str) -> Call:
        """Causal; with a cotangent, forward and backward."""
        f = lambda *o: wg.scaled_dot_product_attention(*o, is_causal=True)
        return self._rows(f, q, y_bar, k, v, precision=precision)

    def _rows(self, f: Any, x: Any, y_bar: Any, *more: Any, precision: str = "float32") -> Call:
        operands = [self.array(a).astype(precision) for a in (x, *more)]
        if y_bar is None:
            return lambda: f(*operands)
        leaves = [t.requires_grad_() for t in operands]
        seed = self.array(y_bar).astype(precision)

        def both() -> Any:
            for t in leaves:
                t.grad = None
            f(*leaves).backward(seed)

        return both

    def step(self, kind: str, widths: list[int], n: int, precision: str, compiled: bool) -> Call:
        """A training step with Adam; the loss."""
        if kind == "mlp":
            net = shapes.perceptron(wg.nn, widths)
        elif kind == "cnn":
            net = shapes.cnn(wg.nn)
        elif kind == "lstm":
            net = shapes.reader(wg.nn, self.sizes)
        else:
            attention = lambda q, k, v: wg.scaled_dot_product_attention(q, k, v, is_causal=True)
            net = shapes.writer(wg.nn, attention, self.sizes)
        drawn = networks.weights({k: tuple(p.shape) for k, p in net.named_parameters()})
        net.load_state_dict(drawn, strict=False)
        net.to(self.device)
        adam = wg.optim.Adam(net.parameters(), lr=1e-3)
        x, t = (self.array(a) for a in shapes.batch(kind, self.sizes, widths, n))

        def step(x: Any, t: Any) -> Any:
            adam.zero_grad()
            with wg.amp.autocast("bfloat16", enabled=precision == "bfloat16"):
                loss = wg.cross_entropy(net(x), t)
            loss.backward()
            adam.step()
            return loss

        run = wg.compile(step) if compiled else step
        return lambda: run(x, t)
