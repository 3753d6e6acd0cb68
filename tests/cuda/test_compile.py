"""NVRTC compiles the kernels, where it is installed; no GPU is needed. Machine code is kept by content."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.cuda import chains
from tests.cuda.emulation import numbered, plan
from wengert import _core, cuda
from wengert.errors import DeviceError

cuda.is_available()
try:
    VERSION = _core.cuda_compiler_version()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)


def some_source() -> str:
    return next(plan(chain, shape).source for name, chain, shape, _ in chains.elementwise() if name == "tanh-float32")


def test_every_kernel_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path))
    made = itertools.chain(chains.elementwise(), chains.casts(), chains.reductions(), chains.chains(10))
    planned = {name: plan(chain, shape).source for name, chain, shape, _ in made}
    for name, source in planned.items():  # series, which together would take minutes
        if "device_series.h" in source and name.endswith(("-float64", "-complex128")):
            assert _core.cuda_machine_code(source, 90)[:4] == b"\x7fELF"
    sources = list(dict.fromkeys(s for s in planned.values() if "device_series.h" not in s))
    includes = {line for s in sources for line in s.splitlines() if line.startswith("#include")}
    head = "\n".join([*sorted(includes), "using namespace wengert;", "using namespace wengert::device;"])
    bodies = [numbered(s, k) for k, s in enumerate(sources)]
    assert _core.cuda_machine_code("\n".join([head, *bodies]), 90)[:4] == b"\x7fELF"


def test_code_is_read_from_the_cache_unless_it_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path))
    source = some_source()
    compiled, read = _core.cuda_code_counters()
    first = _core.cuda_machine_code(source, 90)
    assert _core.cuda_machine_code(source, 90) == first
    assert _core.cuda_code_counters() == (compiled + 1, read + 1)
    (file,) = (tmp_path / "cuda").iterdir()
    for damaged in (file.read_bytes()[:-40], file.read_bytes()[:-40] + b"x" * 40, b""):
        file.write_bytes(damaged)
        assert _core.cuda_machine_code(source, 90) == first
    assert _core.cuda_code_counters() == (compiled + 4, read + 1)


def test_an_architecture_has_code_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path))
    assert _core.cuda_machine_code(some_source(), 80) != _core.cuda_machine_code(some_source(), 90)


def test_errors_of_the_compiler_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WENGERT_CACHE_DIR", str(tmp_path))
    with pytest.raises(DeviceError, match="expected a declaration"):
        _core.cuda_machine_code("}", 90)
