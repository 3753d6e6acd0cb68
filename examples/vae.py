"""A variational autoencoder of handwritten digits: `python examples/vae.py`.

The encoder outputs a normal distribution over a few hidden numbers, the decoder the probability that each pixel is ink;
both are trained to raise the evidence lower bound (D. Kingma and M. Welling, 2014). The sample of the hidden numbers is
written as mean + deviation × noise, so that gradients pass through it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.progress import track
from sklearn.datasets import load_digits

import wengert as wg
from wengert import nn, optim


class Autoencoder(nn.Module):
    """64 pixels → hidden numbers → 64 pixels."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, 2 * hidden))
        self.decoder = nn.Sequential(nn.Linear(hidden, width), nn.SiLU(), nn.Linear(width, 64))

    def forward(self, x: wg.Tensor) -> tuple[wg.Tensor, wg.Tensor, wg.Tensor]:
        """Logits of the pixels, and mean and logarithm of the variance of the hidden numbers."""
        mean, log_variance = wg.split(self.encoder(x), 2, axis=1)
        hidden = mean + wg.exp(0.5 * log_variance) * wg.randn(*mean.shape)
        return self.decoder(hidden), mean, log_variance


def bound(net: Autoencoder, x: wg.Tensor) -> wg.Tensor:
    """The negative evidence lower bound, in nats per image."""
    logits, mean, log_variance = net(x)
    ink = wg.bce_with_logits(logits, x, reduction="sum")
    divergence = 0.5 * (wg.exp(log_variance) + mean**2 - 1 - log_variance).sum()
    bound: wg.Tensor = (ink + divergence) / len(x)
    return bound


def train(epochs: int = 60, batch: int = 64, hidden: int = 8, seed: int = 0) -> tuple[float, Autoencoder]:
    """The bound on images that were not trained on, and the network."""
    wg.manual_seed(seed)
    images = wg.asarray((load_digits().data / 16.0).astype(np.float32)[np.random.default_rng(seed).permutation(1797)])
    x, x_test = images[:1400], images[1400:]
    net = Autoencoder(hidden, 128)
    optimizer = optim.Adam(net.parameters(), lr=2e-3)
    for _ in track(range(epochs), description="training"):
        for chosen in wg.data.batches(x, batch_size=batch, shuffle=True):
            optimizer.step(bound(net, chosen).backward())
    with wg.no_grad():
        return float(np.mean([bound(net, x_test).item() for _ in range(10)])), net


def save_samples(net: Autoencoder, path: Path, hidden: int = 8) -> None:
    """Sixty-four new digits, as a picture."""
    import matplotlib.image

    with wg.no_grad():
        pixels = wg.sigmoid(net.decoder(wg.randn(64, hidden))).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    tiles = np.pad(pixels.reshape(8, 8, 8, 8), ((0, 0), (0, 0), (1, 1), (1, 1)))
    grid = tiles.transpose(0, 2, 1, 3).reshape(80, 80).repeat(6, axis=0).repeat(6, axis=1)
    matplotlib.image.imsave(path, grid, cmap="gray_r", vmin=0, vmax=1)


def main() -> None:
    """Read the options, train, print the bound, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60, help="passes over the images (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("demo/vae.png"), help="new digits (default: %(default)s)")
    options = parser.parse_args()
    reached, net = train(options.epochs, seed=options.seed)
    save_samples(net, options.out)
    print(f"wrote {options.out}: digits that nobody has written")
    print(f"negative evidence lower bound on test images {reached:.2f} nats; without hidden numbers it is 31.6")


if __name__ == "__main__":
    main()
