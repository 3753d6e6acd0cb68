"""A training run that can be killed at any moment: `python resumable_run.py FOLDER STEPS`. Run again, it goes on.

Everything that decides the weights is in its checkpoints: model, optimizer, schedule, averages, data order, random numbers.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np

import wengert as wg
from wengert import nn, optim


def main(folder: str, steps: int) -> str:
    """Train up to `steps`, checkpointing every step; returns a digest of all weights, averages and moments."""
    wg.set_num_threads(1)
    wg.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(96, 8)).astype(np.float32)
    data = wg.data.batches(x, np.sin(x.sum(1, keepdims=True)), batch_size=16, shuffle=True, seed=1, prefetch=2)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    optimizer = optim.AdamW(net.named_parameters(), lr=1e-2)
    scheduler = optim.Scheduler(optimizer, optim.schedules.warmup_cosine(10, steps))
    ema = optim.EMA(net, decay=0.95, warmup=True)
    noise = optim.transforms.chain(optim.transforms.clip_norm(1.0), optim.transforms.noise(1e-4))
    parts = {"net": net, "optimizer": optimizer, "scheduler": scheduler, "ema": ema, "noise": noise, "data": data}

    def state() -> dict[str, Any]:
        return {**{name: part.state_dict() for name, part in parts.items()}, "random": wg.default_generator}

    checkpoints = wg.Checkpointer(folder, keep=2)
    done = 0
    found = checkpoints.load()
    if found is not None:
        done = found.step
        for name, part in parts.items():
            part.load_state_dict(found.state[name])
        wg.default_generator.set_state(found.state["random"].get_state())
    print(f"start {done}", flush=True)
    while done < steps:
        for inputs, targets in data:
            optimizer.step(noise(wg.mse_loss(net(inputs), targets).backward()))
            scheduler.step()
            ema.update()
            done += 1
            checkpoints.save(done, state())
            print(f"step {done}", flush=True)
            if done == steps:
                break
    digest = hashlib.sha256()
    for part in (net.state_dict(), ema.averages(), *optimizer.state_dict()["state"].values()):
        for t in part.values():
            digest.update(t.numpy().tobytes() if isinstance(t, wg.Tensor) else repr(t).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    print("end", main(sys.argv[1], int(sys.argv[2])), flush=True)
