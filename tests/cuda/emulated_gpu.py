"""Running modules of the tests with a GPU played by the CPU (driver.cpp), without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cuda.emulation import COMPILER, CORE

HERE = Path(__file__).parent


def run_with_emulated_gpu(folder: Path, module: str, *arguments: str, **variables: str) -> None:
    """Run a module of the tests. Compiling its kernels takes most of the time; those in the folder are used again."""
    assert COMPILER
    wheel = folder / "nvidia" / "cu13" / "lib"  # as NVIDIA's wheels lie in site-packages, and before those
    driver = folder / "libcuda.so.1"
    if not driver.exists():
        wheel.mkdir(parents=True)
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w"]
        subprocess.run([COMPILER, *options, str(HERE / "driver.cpp"), "-o", str(driver), "-ldl"], check=True)
        for name in ("libnvrtc.so.13", "libcublasLt.so.13"):
            (wheel / name).symlink_to(driver)
    compiling = "-std=c++20 -O0 -w -shared -fPIC -ffp-contract=off -fno-math-errno -DWENGERT_DEVICE_CODE"
    compiling += f" -DWENGERT_ISA_NAMESPACE=device -I{HERE} -I{CORE / 'kernels'} -I{CORE / 'cuda'}"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join([str(folder), str(CORE.parent)]),
        "WENGERT_CACHE_DIR": str(folder),
        "WENGERT_EMULATED_FOLDER": str(folder),
        "WENGERT_EMULATED_COMPILER": f"{COMPILER} {compiling}",
        **variables,
    }
    command = [sys.executable, "-m", f"tests.cuda.{module}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
