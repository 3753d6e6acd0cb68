"""What is said on machines with and without a GPU."""

from __future__ import annotations

import pytest

import wengert as wg
from wengert.errors import DeviceError


def test_availability_and_count_agree() -> None:
    assert wg.cuda.is_available() == (wg.cuda.device_count() > 0)


@pytest.mark.skipif(wg.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_so() -> None:
    with pytest.raises(DeviceError, match="cuda: .*(driver|GPU)"):
        wg.cuda.require()
