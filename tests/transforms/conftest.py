"""Every pass over programs has its result verified here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wengert.program import ir


@pytest.fixture(autouse=True)
def _verified_passes() -> Iterator[None]:
    before, ir.VERIFY = ir.VERIFY, True
    yield
    ir.VERIFY = before
