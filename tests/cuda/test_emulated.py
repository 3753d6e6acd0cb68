"""A GPU played by the CPU: what the device does between Python and the driver, graphs above all, without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda.emulation import COMPILER, CORE, numbered
from wengert import _core, cuda
from wengert.errors import DeviceError

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler on this machine")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `emulated_programs`; the folder with the kernels that it needed. Compiling each of them takes most of the time."""
    folder = tmp_path_factory.mktemp("emulated")
    assert COMPILER
    wheel = folder / "nvidia" / "cu13" / "lib"  # as NVIDIA's wheels lie in site-packages, and before those
    wheel.mkdir(parents=True)
    driver = folder / "libcuda.so.1"
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
    }
    command = [sys.executable, "-m", "tests.cuda.emulated_programs"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder


def test_programs_are_graphs_and_stay_what_they_are(kernels: Path) -> None:
    """What is shown is asserted in `emulated_programs`."""
    assert list(kernels.glob("kernel_*.so"))


def test_kernels_compile(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By NVRTC, as they are on a GPU: those of graphs one by one, all others as one source."""
    cuda.is_available()
    try:
        _core.cuda_compiler_version()
    except DeviceError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path))
    sources = []
    for path in kernels.glob("kernel_*.cpp"):
        text = path.read_text().partition("\n")[2].partition('extern "C" size_t')[0]
        sources.append(text)
    joined = [s for s in sources if "kernel_0(" in s]
    single = [s for s in sources if "kernel_0(" not in s]
    assert len(joined) > 3
    assert len(single) > 40
    includes = {line for s in single for line in s.splitlines() if line.startswith("#include")}
    together = "\n".join([*sorted(includes), "using namespace wengert;", "using namespace wengert::device;"])
    together += "\n" + "\n".join(numbered(s, k) for k, s in enumerate(single))
    for source in [*joined, together]:
        assert _core.cuda_machine_code(source, 90)[:4] == b"\x7fELF"
