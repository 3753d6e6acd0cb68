"""A GPU played by the CPU: what the device does between Python and the driver, graphs above all, without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda.emulation import COMPILER, CORE

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler on this machine")
HERE = Path(__file__).parent

SCRIPT = """
import numpy as np
import wengert as wg
from wengert import _core

assert wg.cuda.is_available() and wg.cuda.get_device_name() == "emulated GPU"
number = wg.cuda.device_number(0)


def train(device):
    wg.manual_seed(0)
    net = wg.nn.Linear(6, 3).to(device)
    adam = wg.optim.Adam(net.parameters(), lr=0.1)

    @wg.compile
    def step(x, t):
        adam.zero_grad()
        loss = ((net(x) - t) ** 2).mean()
        loss.backward()
        adam.step()
        return loss

    g = wg.Generator(seed=1)
    batches = [(wg.randn(4, 6, generator=g), wg.randn(4, 3, generator=g)) for _ in range(6)]
    losses = [step(x.to(device), t.to(device)) for x, t in batches]  # batches lie at different addresses
    return [loss.item() for loss in losses], net.weight.detach().cpu().numpy()


expected, weight = train("cpu")
before = _core.cuda_counters(number)
losses, weight_there = train("cuda")
after = _core.cuda_counters(number)
np.testing.assert_allclose(losses, expected, rtol=1e-5)
np.testing.assert_allclose(weight_there, weight, rtol=1e-4, atol=1e-6)
print({k: after[k] - before[k] for k in after}, _core.cuda_code_counters())
assert after["graphs"] - before["graphs"] == 5  # the first call runs step by step
"""


def test_a_training_step_is_one_graph(tmp_path: Path) -> None:
    """Losses and weights are those of the CPU, with inputs at new addresses and a step count that goes on."""
    assert COMPILER
    wheel = tmp_path / "nvidia" / "cu13" / "lib"  # as NVIDIA's wheels lie in site-packages, and before those
    wheel.mkdir(parents=True)
    subprocess.run(
        [
            COMPILER,
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            "-w",
            str(HERE / "driver.cpp"),
            "-o",
            str(tmp_path / "libcuda.so.1"),
            "-ldl",
        ],
        check=True,
    )
    (wheel / "libnvrtc.so.13").symlink_to(tmp_path / "libcuda.so.1")
    options = "-std=c++20 -O0 -w -shared -fPIC -ffp-contract=off -fno-math-errno -DWENGERT_DEVICE_CODE"
    options += f" -DWENGERT_ISA_NAMESPACE=device -I{HERE} -I{CORE / 'kernels'} -I{CORE / 'cuda'}"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
        "WENGERT_CACHE_DIR": str(tmp_path),
        "WENGERT_EMULATED_FOLDER": str(tmp_path),
        "WENGERT_EMULATED_COMPILER": f"{COMPILER} {options}",
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
