"""What every test gets: modes as at the start, whatever an earlier test left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wengert import _core


@pytest.fixture(autouse=True)
def _clean_state() -> Iterator[None]:
    threads = _core.num_threads()
    yield
    _core.set_grad_enabled(True)
    _core.set_num_threads(threads)
