"""The host's side of a GPU, without one: what is shared, streams, page-locked memory, several GPUs, other libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cuda.emulated_gpu import run_with_emulated_gpu
from tests.cuda.emulation import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler on this machine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the kernels, which the tests share."""
    return tmp_path_factory.mktemp("emulated")


def test_memory_is_shared_with_other_libraries(folder: Path) -> None:
    run_with_emulated_gpu(folder, "emulated_sharing")


def test_streams_and_events(folder: Path) -> None:
    run_with_emulated_gpu(folder, "emulated_streams")
