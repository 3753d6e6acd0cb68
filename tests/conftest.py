"""What every test gets: modes as at the start, whatever an earlier test left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from wengert import _core


@pytest.fixture(autouse=True)
def _clean_state() -> Iterator[None]:
    threads = _core.num_threads()
    yield
    _core.set_grad_enabled(True)
    _core.set_num_threads(threads)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With WENGERT_TIER=generated: how many programs were generated, and why others were not."""
    if os.environ.get("WENGERT_TIER") != "generated":
        return
    counters = _core.tier_counters()
    terminalreporter.write_line(f"generated code: {counters['programs']} programs, {counters['runs']} runs")
    for reason, n in sorted(counters["refused"].items(), key=lambda r: -r[1]):
        terminalreporter.write_line(f"  the executor ran {n}: {reason}")
