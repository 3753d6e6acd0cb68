"""Running modules of the tests with a GPU played by the CPU (driver.cpp), and what they share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cuda.emulation import COMPILER, CORE

HERE = Path(__file__).parent


def run_with_emulated_gpu(folder: Path, module: str, *arguments: str, **variables: str) -> None:
    """Run a module of the tests. Compiling its kernels takes most of the time; those in the folder are used again.

    `variables`, of the environment: WENGERT_EMULATED_GPUS, _MB (of memory), _VERSION (of the driver), _WITHOUT (a library).
    """
    assert COMPILER
    wheel = folder / "nvidia" / "cu13" / "lib"  # as NVIDIA's wheels lie in site-packages, and before those
    driver = folder / "libcuda.so.1"
    if not driver.exists():
        wheel.mkdir(parents=True)
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w"]
        subprocess.run([COMPILER, *options, str(HERE / "driver.cpp"), "-o", str(driver), "-ldl"], check=True)
        for name in ("libnvrtc", "libcublasLt"):
            if name != variables.get("WENGERT_EMULATED_WITHOUT"):
                (wheel / f"{name}.so.13").symlink_to(driver)
    compiling = "-std=c++20 -O0 -w -shared -fPIC -ffp-contract=off -fno-math-errno -DWENGERT_DEVICE_CODE"
    compiling += f" -DWENGERT_ISA_NAMESPACE=device -I{HERE} -I{CORE / 'kernels'} -I{CORE / 'cuda'}"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join([str(folder), str(HERE / "played_cupy"), str(CORE.parent)]),
        "WENGERT_CACHE_DIR": str(folder),
        "WENGERT_EMULATED_FOLDER": str(folder),
        "WENGERT_EMULATED_COMPILER": f"{COMPILER} {compiling}",
        **variables,
    }
    command = [sys.executable, "-m", f"tests.cuda.{module}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def raises(kind: type[Exception], text: str, f: Callable[[], object]) -> None:
    try:
        f()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}: {text}")
