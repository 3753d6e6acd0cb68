"""A transformer that writes, character by character: `python examples/char_transformer.py`.

It learns from a text that comes with Python: the language reference in `pydoc_data.topics`. Prints the cross-entropy on a
part that it was not trained on, in bits per character (counting single letters alone would give about 4.4), and a sample.
With more time it writes better: `--steps 3000 --width 128 --blocks 4` reaches less than 2 bits.
"""

from __future__ import annotations

import argparse
import math
from pydoc_data.topics import topics

import numpy as np
from rich.progress import track

import wengert as wg
from wengert import nn, optim


class Writer(nn.Module):
    """Embeddings of characters and positions, causal blocks, and logits of the next character."""

    def __init__(self, characters: int, length: int, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.length = length
        self.character = nn.Embedding(characters, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation="gelu", norm_first=True, batch_first=True
            )
            for _ in range(blocks)
        )
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, characters)

    def forward(self, text: wg.Tensor) -> wg.Tensor:
        """(batch, time) of characters → (batch, time, characters) of logits."""
        x = self.character(text) + self.position(wg.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x, is_causal=True)
        logits: wg.Tensor = self.logits(self.norm(x))
        return logits


def encode() -> tuple[np.ndarray, str]:
    """The text as numbers, and the alphabet."""
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = "".join(sorted(set(text)))
    return np.array([alphabet.index(c) for c in text]), alphabet


def sample(rng: np.random.Generator, text: np.ndarray, batch: int, length: int) -> tuple[wg.Tensor, wg.Tensor]:
    """Random windows, and the same windows one character later."""
    starts = rng.integers(0, len(text) - length - 1, (batch, 1)) + np.arange(length)
    return wg.asarray(text[starts]), wg.asarray(text[starts + 1])


def loss_of(net: Writer, x: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
    """Cross-entropy of the next character, in nats."""
    logits = net(x)
    return wg.cross_entropy(logits.reshape(-1, logits.shape[-1]), t.reshape(-1))


def train(
    steps: int = 600,
    batch: int = 12,
    length: int = 48,
    width: int = 64,
    blocks: int = 2,
    seed: int = 0,
    precision: str = "float32",
) -> tuple[float, Writer, str]:
    """Bits per character on the last tenth of the text, the network, and the alphabet."""
    wg.manual_seed(seed)
    rng = np.random.default_rng(seed)
    text, alphabet = encode()
    learned, held_out = np.split(text, [9 * len(text) // 10])
    net = Writer(len(alphabet), length, width, heads=4, blocks=blocks)
    optimizer = optim.AdamW(net.parameters(), lr=8e-3, weight_decay=0.01)
    schedule = optim.Scheduler(optimizer, optim.schedules.warmup_cosine(steps // 10, steps))
    half = precision != "float32"
    scaler = wg.GradScaler(loss_scaler=None if precision == "float16" else wg.StaticLossScaler(1.0))
    for _ in track(range(steps), description="reading"):
        with wg.autocast(precision if half else "bfloat16", enabled=half):
            loss = loss_of(net, *sample(rng, learned, batch, length))
        grads = scaler.unscale_(scaler.scale(loss).backward())
        wg.clip_grad_norm(grads, 1.0)
        scaler.step(optimizer, grads)
        scaler.update()
        schedule.step()
    net.eval()
    with wg.no_grad():
        nats = np.mean([loss_of(net, *sample(rng, held_out, batch, length)).item() for _ in range(20)])
    return float(nats) / math.log(2), net, alphabet


def write(net: Writer, alphabet: str, characters: int, seed: int = 0) -> str:
    """A text of the network's own, one character after the other."""
    rng = np.random.default_rng(seed)
    text = [alphabet.index("\n")]
    with wg.no_grad():
        for _ in range(characters):
            logits = net(wg.asarray(np.array([text[-net.length :]])))[0, -1]
            text.append(int(rng.choice(len(alphabet), p=wg.softmax(logits.astype(wg.float64), -1).numpy())))
    return "".join(alphabet[c] for c in text)


def main() -> None:
    """Read the options, train, print the measure and a sample."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600, help="of AdamW (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="numbers per character (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=2, help="of attention (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and text windows (default: %(default)s)")
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="of matrix products and attention (default: %(default)s)",
    )
    options = parser.parse_args()
    bits, net, alphabet = train(
        options.steps, width=options.width, blocks=options.blocks, seed=options.seed, precision=options.precision
    )
    print(write(net, alphabet, 400))
    print(f"-- {bits:.3f} bits per character of text it has not seen; counting single letters alone would give 4.4")


if __name__ == "__main__":
    main()
