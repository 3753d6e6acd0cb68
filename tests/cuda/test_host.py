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


def test_page_locked_memory_and_copies_in_the_background(folder: Path) -> None:
    run_with_emulated_gpu(folder, "emulated_host_memory")


def test_ops_that_cupy_computes(folder: Path) -> None:
    run_with_emulated_gpu(folder, "emulated_libraries")


def test_two_gpus(folder: Path) -> None:
    run_with_emulated_gpu(folder, "emulated_gpus", WENGERT_EMULATED_GPUS="2")


@pytest.mark.parametrize(
    ("case", "variables"),
    [
        ("old_driver", {"WENGERT_EMULATED_VERSION": "11080"}),
        ("no_gpu", {"WENGERT_EMULATED_GPUS": "0"}),
        ("out_of_memory", {"WENGERT_EMULATED_MB": "64"}),
        ("after_a_fork", {}),
    ],
)
def test_failures_are_explained(folder: Path, case: str, variables: dict[str, str]) -> None:
    run_with_emulated_gpu(folder, "emulated_failures", case, **variables)


@pytest.mark.parametrize("how", [(), ("waited for",)])
def test_a_kernel_that_fails_is_named(folder: Path, how: tuple[str, ...]) -> None:
    run_with_emulated_gpu(folder, "emulated_failures", "kernel_fails", *how, WENGERT_EMULATED_FAILURE="tanh")


def test_memory_anomalies_and_determinism(folder: Path) -> None:
    run_with_emulated_gpu(folder, "emulated_memory")


@pytest.mark.parametrize(("case", "library"), [("no_compiler", "libnvrtc"), ("no_products", "libcublasLt")])
def test_missing_libraries_are_named(tmp_path: Path, case: str, library: str) -> None:
    run_with_emulated_gpu(tmp_path, "emulated_failures", case, WENGERT_EMULATED_WITHOUT=library)


def test_profiles_have_times_of_the_gpu(folder: Path) -> None:
    run_with_emulated_gpu(folder, "emulated_profile")
