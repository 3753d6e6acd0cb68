"""What half precision costs and saves: `python -m benchmarks.precision`.

The character transformer of the examples, trained for 200 steps in float32, in bfloat16 autocast, and in float16 autocast
with dynamic loss scaling, from the same weights on the same text: the loss at the end (the mean over the last 20 steps, in
nats), the bytes that backward keeps, and the time of a step. Prints a table, and writes
benchmarks/results/precision.json and precision.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WENGERT_NUM_THREADS", "1")

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import ForeignLoad, Row

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

STEPS, LAST, BATCH, LENGTH, WIDTH, HEADS, BLOCKS = 200, 20, 12, 48, 64, 4, 2
NORMS = ", norms too"  # in half precision
PRECISIONS = ("float32", "bfloat16", f"bfloat16{NORMS}", "float16", f"float16{NORMS}")
HOW = (
    "Each precision is trained by itself; the loss is the mean of the last 20 of 200 steps, saved bytes are what backward "
    "keeps after a forward pass (without parameters and what is cast again from them). Saved activations are these without "
    "what every precision keeps for each row: classes, logarithms of sums, means and variances. Times are medians of the "
    "processor time of all steps, on one thread."
)


def kept_for_rows() -> int:
    """Bytes of numbers that are kept for each position of the text, in every precision."""
    rows = BATCH * LENGTH
    indices = 2 * rows + LENGTH  # characters, the next ones, and positions
    norms, attention, cross_entropy = 2 * (2 * BLOCKS + 1), BLOCKS * HEADS, 2
    return 8 * indices + 4 * rows * (norms + attention + cross_entropy)


def trained(precision: str) -> tuple[float, int, float, int]:
    """The loss at the end, saved bytes, seconds of a step, and how many steps were skipped."""
    import char_transformer as example

    wg.manual_seed(0)
    rng = np.random.default_rng(0)
    text, alphabet = example.encode()
    net = example.Writer(len(alphabet), LENGTH, WIDTH, heads=HEADS, blocks=BLOCKS)
    optimizer = wg.optim.AdamW(net.parameters(), lr=8e-3, weight_decay=0.01)
    schedule = wg.optim.Scheduler(optimizer, wg.optim.schedules.warmup_cosine(STEPS // 10, STEPS))
    dtype = precision.removesuffix(NORMS)
    config = wg.AmpConfig(
        precision="float16" if dtype == "float32" else dtype,
        enabled=dtype != "float32",
        autocast_ops=["layer_norm"] if precision.endswith(NORMS) else [],
    )
    scaler = wg.GradScaler(loss_scaler=None if dtype == "float16" else wg.StaticLossScaler(1.0))
    losses, times, saved = [], [], 0
    for _ in range(STEPS):
        batch = example.sample(rng, text, BATCH, LENGTH)
        start = time.process_time()
        with wg.autocast(config):
            loss = example.loss_of(net, *batch)
        saved = wg.memory_stats().saved_bytes
        grads = scaler.unscale_(scaler.scale(loss).backward())
        wg.clip_grad_norm(grads, 1.0)
        scaler.step(optimizer, grads)
        scaler.update()
        schedule.step()
        times.append(time.process_time() - start)
        losses.append(loss.item())
    return float(np.mean(losses[-LAST:])), saved, float(np.median(times)), scaler.skipped_steps


def _rows(precision: str, base: dict[str, Any]) -> list[Row]:
    load = ForeignLoad().start()
    loss, saved, seconds, skipped = trained(precision)
    busy = load.stop()
    note = f"{skipped} steps skipped" if precision.startswith("float16") else ""
    if precision == "float32":
        base.update(loss=loss, saved=saved, seconds=seconds)
        return [
            Row("loss, float32", "nats", {"wengert": loss}),
            Row("saved bytes, float32", "MB", {"wengert": saved / 2**20}),
            Row("saved activations, float32", "MB", {"wengert": (saved - kept_for_rows()) / 2**20}),
            Row("step, float32", "ms", {"wengert": seconds * 1e3}, foreign_load=busy),
        ]
    ratio = {name: now / then for name, now, then in (("loss", loss, base["loss"]), ("saved", saved, base["saved"]))}
    activations, activations_before = saved - kept_for_rows(), base["saved"] - kept_for_rows()
    return [
        Row(
            f"loss, {precision}", "nats", {"wengert": loss, "float32": base["loss"]}, ratios={"float32": 1 / ratio["loss"]},
            goal="within 2 % of float32", met=abs(ratio["loss"] - 1) <= 0.02,
            note=f"{100 * (ratio['loss'] - 1):+.2f} %" + (f", {note}" if note else ""),
        ),
        Row(
            f"saved bytes, {precision}", "MB", {"wengert": saved / 2**20, "float32": base["saved"] / 2**20},
            ratios={"float32": 1 / ratio["saved"]}, note=f"{ratio['saved']:.3f} of float32",
        ),
        Row(
            f"saved activations, {precision}", "MB", {"wengert": activations / 2**20, "float32": activations_before / 2**20},
            ratios={"float32": activations_before / activations}, goal="≤ 0.5 of float32",
            met=activations <= 0.5 * activations_before, note=f"{activations / activations_before:.3f} of float32",
        ),
        Row(
            f"step, {precision}", "ms", {"wengert": seconds * 1e3, "float32": base["seconds"] * 1e3},
            ratios={"float32": base["seconds"] / seconds}, foreign_load=busy,
        ),
    ]  # fmt: skip


def main() -> None:
    """Train in each precision; the first is the base of the others."""
    options = command_line.parse("benchmarks.precision", str(__doc__), PRECISIONS, rounds=1)
    base: dict[str, Any] = {}
    names = dict.fromkeys(["float32", *options.rows])
    rows = [row for precision in names for row in _rows(precision, base)]
    measure.show(rows)
    if not options.dry:
        measure.write("precision", "Half precision", rows, measure.machine(measure.versions()), HOW)


if __name__ == "__main__":
    main()
