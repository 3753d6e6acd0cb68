"""Programs run by the executor, whatever WENGERT_TIER says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wengert import _core


@pytest.fixture
def executor() -> Iterator[None]:
    """For tests of what the executor does in steps, which generated code does not count."""
    before = _core.set_tier("executor")
    yield
    _core.set_tier(before)
