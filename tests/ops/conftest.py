"""WENGERT_COVERAGE=path writes the table of `wengert ops` from the results of this folder's tests (`make coverage`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_results: dict[str, bool] = {}


def pytest_runtest_logreport(report: Any) -> None:
    """Remember what passed; with several workers, their reports arrive here too."""
    if report.when == "call" or report.failed:
        _results[report.nodeid] = report.passed


def pytest_sessionfinish(session: Any) -> None:
    """Write the table, once."""
    path = os.environ.get("WENGERT_COVERAGE")
    if path and not hasattr(session.config, "workerinput"):
        from tests.ops.coverage import write

        holes = write(Path(path), _results)
        if holes:
            print("\ncells of the coverage table without a test and without a reason:", *holes, sep="\n  ")
            session.exitstatus = 1
