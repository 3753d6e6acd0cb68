"""The ten-line fit: `python examples/fit.py` finds amplitude, frequency, phase and decay of a noisy oscillation."""

from __future__ import annotations

import wengert as wg

wg.manual_seed(0)
t = wg.linspace(0.0, 10.0, 200)
y = 2.0 * wg.exp(-0.3 * t) * wg.sin(1.7 * t + 0.4) + 0.05 * wg.randn(200)
p = wg.tensor([1.0, 0.1, 1.5, 0.0], requires_grad=True)  # amplitude, decay, frequency, phase
optimizer = wg.optim.Adam([p], lr=0.05)
for _ in range(400):
    loss = wg.mse_loss(p[0] * wg.exp(-p[1] * t) * wg.sin(p[2] * t + p[3]), y)
    optimizer.step(loss.backward())
print("fitted", [round(v, 3) for v in p.tolist()], "true [2.0, 0.3, 1.7, 0.4], loss", round(loss.item(), 5))
