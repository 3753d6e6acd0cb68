"""A GPU played by the CPU: what the device does between Python and the driver, graphs above all, without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cuda.emulated_gpu import run_with_emulated_gpu
from tests.cuda.emulation import COMPILER, numbered
from wengert import _core, cuda
from wengert.errors import DeviceError

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler on this machine")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `emulated_programs`; the folder with the kernels that it needed."""
    folder = tmp_path_factory.mktemp("emulated")
    run_with_emulated_gpu(folder, "emulated_programs")
    return folder


PARTS = [
    "sorting",
    "indexing",
    "convolving",
    "recurring",
    "attending",
    "attending_by_warps",
    "summing",
    "multiplying",
    "classifying",
    "resampling",
    "drawing",
    "series",
]


@pytest.mark.parametrize("part", PARTS)
def test_kernels_of_many_blocks(part: str, tmp_path: Path) -> None:
    """Beside the CPU, values and gradients; and NVRTC compiles them, where it is installed."""
    run_with_emulated_gpu(tmp_path, "emulated_kernels", part)
    if not why_no_compiler():
        compile_all(tmp_path)


def test_programs_are_graphs_and_stay_what_they_are(kernels: Path) -> None:
    """What is shown is asserted in `emulated_programs`."""
    assert list(kernels.glob("kernel_*.so"))


def test_kernels_compile(kernels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By NVRTC, as they are on a GPU."""
    if why := why_no_compiler():
        pytest.skip(why)
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path))
    joined, single = compile_all(kernels)
    assert joined > 3
    assert single > 40


def why_no_compiler() -> str:
    """What is missing of NVRTC; nothing where it is installed."""
    cuda.is_available()
    try:
        _core.cuda_compiler_version()
    except DeviceError as error:
        return str(error)
    return ""


def compile_all(folder: Path) -> tuple[int, int]:
    """Kernels of graphs and of series one by one, all others as one source; how many there are."""
    sources = []
    for path in folder.glob("kernel_*.cpp"):
        text = path.read_text().partition("\n")[2].partition('extern "C" size_t')[0]
        sources.append(text)
    joined = [s for s in sources if "kernel_0(" in s]
    single = [s for s in sources if "kernel_0(" not in s]
    slow = [s for s in single if "device_series.h" in s]  # together they would take minutes
    single = [s for s in single if "device_series.h" not in s]
    includes = {line for s in single for line in s.splitlines() if line.startswith("#include")}
    together = "\n".join([*sorted(includes), "using namespace wengert;", "using namespace wengert::device;"])
    together += "\n" + "\n".join(numbered(s, k) for k, s in enumerate(single))
    for source in [*joined, *slow, together]:
        assert _core.cuda_machine_code(source, 90)[:4] == b"\x7fELF"
    return len(joined), len(single)
