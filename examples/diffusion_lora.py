"""A diffusion model of digits, then fine-tuned with LoRA: `python examples/diffusion_lora.py`.

A network learns to predict the noise in noisy images at every timestep (J. Ho et al., 2020). Then its weights are frozen,
small adapters are added (E. Hu et al., 2021), and only these are trained, on zeros alone. Prints the noise prediction's mean
squared error on zeros before and after, and how much of the network was trained.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.datasets import load_digits

import wengert as wg
from wengert import nn, optim

TIMES = 100
BETAS = np.linspace(1e-3, 0.08, TIMES, dtype=np.float32)
KEPT = np.cumprod(1 - BETAS)  # how much of the image is left at each timestep


class Denoiser(nn.Module):
    """Predicts the noise in an image of 64 pixels at a timestep."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.time = nn.Embedding(TIMES, width)
        self.enter = nn.Linear(64, width)
        self.middle = nn.Linear(width, width)
        self.again = nn.Linear(width, width)
        self.leave = nn.Linear(width, 64)

    def forward(self, x: wg.Tensor, time: wg.Tensor) -> wg.Tensor:
        """The predicted noise."""
        when = self.time(time)
        h = wg.silu(self.enter(x) + when)
        h = h + wg.silu(self.middle(h) + when)
        h = h + wg.silu(self.again(h))
        noise: wg.Tensor = self.leave(h)
        return noise


def loss_of(net: Denoiser, images: np.ndarray, rng: np.random.Generator) -> wg.Tensor:
    """Add noise for random timesteps; the mean squared error of what the network says it was."""
    time = rng.integers(0, TIMES, len(images))
    noise = rng.standard_normal(images.shape, dtype=np.float32)
    kept = KEPT[time, None]
    noisy = np.sqrt(kept) * images + np.sqrt(1 - kept) * noise
    return wg.mse_loss(net(wg.asarray(noisy), wg.asarray(time)), wg.asarray(noise))


def fit(net: Denoiser, images: np.ndarray, steps: int, lr: float, rng: np.random.Generator, what: str) -> None:
    """Train what is to be trained."""
    optimizer = optim.Adam([p for p in net.parameters() if p.requires_grad], lr=lr)
    schedule = optim.Scheduler(optimizer, optim.schedules.cosine(steps))
    for _ in track(range(steps), description=what):
        optimizer.step(loss_of(net, images[rng.integers(0, len(images), 128)], rng).backward())
        schedule.step()


def error(net: Denoiser, images: np.ndarray) -> float:
    """The mean loss over many timesteps and noises, the same in every call."""
    rng = np.random.default_rng(123)
    with wg.no_grad():
        return float(np.mean([loss_of(net, images, rng).item() for _ in range(50)]))


def sample(net: Denoiser, n: int, rng: np.random.Generator) -> np.ndarray:
    """New images: from pure noise, backwards through all timesteps."""
    x = rng.standard_normal((n, 64), dtype=np.float32)
    with wg.no_grad():
        for k in reversed(range(TIMES)):
            noise = net(wg.asarray(x), wg.full((n,), k, dtype=wg.int64)).numpy()
            x = (x - BETAS[k] / np.sqrt(1 - KEPT[k]) * noise) / np.sqrt(1 - BETAS[k])
            if k:
                x = x + np.sqrt(BETAS[k]) * rng.standard_normal(x.shape, dtype=np.float32)
    return x


def train(steps: int = 2000, tuning: int = 500, width: int = 192, rank: int = 4, seed: int = 0) -> dict[str, Any]:
    """Errors on zeros before and after fine-tuning, and the share of the parameters that it trained."""
    wg.manual_seed(seed)
    rng = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    images = (images / 8.0 - 1.0).astype(np.float32)
    zeros = images[labels == 0]
    tuned_on, tested_on = zeros[:100], zeros[100:]
    net = Denoiser(width)
    fit(net, images[labels != 0], steps, 2e-3, rng, "training")
    before = error(net, tested_on)
    frozen = {k: p.numpy().copy() for k, p in net.named_parameters()}
    nn.lora.apply(net, rank=rank, alpha=2.0 * rank, targets=["enter", "middle", "again", "leave"])
    fit(net, tuned_on, tuning, 3e-3, rng, "fine-tuning")
    adapters = sum(p.size for p in net.parameters() if p.requires_grad)
    after = error(net, tested_on)
    nn.lora.merge(net)
    assert np.array_equal(net.time.weight.numpy(), frozen["time.weight"]), "a frozen weight has changed"
    net_zeros = sample(net, 64, rng)
    return {
        "before": before,
        "after": after,
        "trained": adapters / sum(map(np.size, frozen.values())),
        "images": net_zeros,
    }


def save(images: np.ndarray, path: Path) -> None:
    """Sixty-four images as one picture."""
    import matplotlib.image

    path.parent.mkdir(parents=True, exist_ok=True)
    tiles = np.pad(images.reshape(8, 8, 8, 8), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-1)
    grid = tiles.transpose(0, 2, 1, 3).reshape(80, 80).repeat(6, axis=0).repeat(6, axis=1)
    matplotlib.image.imsave(path, grid, cmap="gray_r", vmin=-1, vmax=1)


def main() -> None:
    """Read the options, train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=2000, help="of training on all digits but zeros (default: %(default)s)"
    )
    parser.add_argument("--tuning", type=int, default=500, help="steps of fine-tuning on zeros (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, images and noise (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("demo/zeros.png"), help="new zeros (default: %(default)s)")
    options = parser.parse_args()
    result = train(options.steps, options.tuning, seed=options.seed)
    save(result["images"], options.out)
    print(f"wrote {options.out}: zeros that nobody has written")
    print(
        f"error on zeros {result['before']:.4f} before fine-tuning, {result['after']:.4f} after; "
        f"{result['trained']:.1%} of the parameters were trained for that"
    )


if __name__ == "__main__":
    main()
