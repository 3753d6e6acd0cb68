"""The page of a profile: one HTML file that needs no other and loads nothing."""

from __future__ import annotations

import json
import re
from html import escape
from importlib import resources
from typing import Any


def page(data: dict[str, Any]) -> str:
    """The page that shows this data."""
    parts = {
        "title": escape(data["title"]),
        "when": escape(data["when"]),
        "style": _text("report.css"),
        "script": _text("report_tape.js") + _text("report.js"),
        "data": _embedded(data),
    }
    return re.sub(r"\[\[(\w+)\]\]", lambda found: parts[found[1]], _text("report.html"))


def _text(name: str) -> str:
    return resources.files("wengert.profiling").joinpath(name).read_text(encoding="utf-8")


def _embedded(data: dict[str, Any]) -> str:
    """JSON inside of a script element: no sign in it can end the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
