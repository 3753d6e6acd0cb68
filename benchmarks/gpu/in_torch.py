"""PyTorch on a GPU: eager, and by torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu import shapes
from benchmarks.gpu.shapes import Sizes
from benchmarks.workloads import networks

Call = Callable[[], Any]


class Library:
    """Tensors on a device."""

    name = "PyTorch eager"
    compiles = False

    def __init__(self, device: str, sizes: Sizes) -> None:
        self.device, self.sizes = device, sizes

    def wait(self, result: Any) -> None:
        """Until what was started is done."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def array(self, a: Any) -> Any:
        """On the device."""
        return torch.tensor(a, device=self.device)

    def eager_op(self, a: Any, b: Any) -> Call | None:
        """One op."""
        a, b = self.array(a), self.array(b)
        return None if self.compiles else lambda: a * b

    def recorded_op(self, a: Any, b: Any) -> Call | None:
        """One op, recorded."""
        a, b = self.array(a).requires_grad_(), self.array(b)
        return None if self.compiles else lambda: a * b

    def copy(self, a: Any) -> Call | None:
        """What memory can do."""
        a = self.array(a)
        return None if self.compiles else lambda: a.clone()

    def _made(self, f: Any) -> Any:
        return torch.compile(f) if self.compiles else f

    def chain(self, x: Any, w: Any, b: Any) -> Call:
        """tanh(x w + b)."""
        x, w, b = map(self.array, (x, w, b))
        f = self._made(lambda x, w, b: torch.tanh(x * w + b))
        return lambda: f(x, w, b)

    def softmax(self, x: Any, y_bar: Any) -> Call:
        """Of rows; with a cotangent, forward and backward."""
        return self._rows(lambda x: torch.softmax(x, -1), x, y_bar)

    def layer_norm(self, x: Any, y_bar: Any, w: Any, b: Any) -> Call:
        """Of rows; with a cotangent, forward and backward."""
        norm = torch.nn.functional.layer_norm
        return self._rows(lambda x, w, b: norm(x, (x.shape[-1],), w, b), x, y_bar, w, b)

    def attention(self, q: Any, k: Any, v: Any, y_bar: Any, precision: str) -> Call:
        """Causal; with a cotangent, forward and backward."""
        f = lambda *o: torch.nn.functional.scaled_dot_product_attention(*o, is_causal=True)
        return self._rows(f, q, y_bar, k, v, precision=precision)

    def _rows(self, f: Any, x: Any, y_bar: Any, *more: Any, precision: str = "float32") -> Call:
        dtype = getattr(torch, precision)
        operands = [self.array(a).to(dtype) for a in (x, *more)]
        f = self._made(f)
        if y_bar is None:
            return lambda: f(*operands)
        leaves = [t.requires_grad_() for t in operands]
        seed = self.array(y_bar).to(dtype)

        def both() -> Any:
            for t in leaves:
                t.grad = None
            f(*leaves).backward(seed)

        return both

    def step(self, kind: str, widths: list[int], n: int, precision: str, compiled: bool) -> Call | None:
        """A training step with Adam; the loss."""
        if compiled != self.compiles:
            return None
        nn = torch.nn
        if kind == "mlp":
            net = shapes.perceptron(nn, widths)
        elif kind == "cnn":
            net = shapes.cnn(nn)
        elif kind == "lstm":
            net = shapes.reader(nn, self.sizes)
        else:
            attention = nn.functional.scaled_dot_product_attention
            net = shapes.writer(nn, lambda q, k, v: attention(q, k, v, is_causal=True), self.sizes)
        drawn = networks.weights({k: tuple(p.shape) for k, p in net.named_parameters()})
        net.load_state_dict({k: torch.tensor(a) for k, a in drawn.items()}, strict=False)
        net.to(self.device)
        adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=self.device != "cpu")
        x, t = (self.array(a) for a in shapes.batch(kind, self.sizes, widths, n))

        def loss_of(x: Any, t: Any) -> Any:
            with torch.autocast(self.device, torch.bfloat16, enabled=precision == "bfloat16"):
                return nn.functional.cross_entropy(net(x), t)

        loss_of = self._made(loss_of)

        def step() -> Any:
            adam.zero_grad()
            loss = loss_of(x, t)
            loss.backward()
            adam.step()
            return loss.detach()

        return step


class Compiled(Library):
    """The same by torch.compile."""

    name = "torch.compile"
    compiles = True
