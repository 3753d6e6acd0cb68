"""Custom operations among what was recorded, and where their rules are defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from wengert.autograd.custom import CustomOp


def call_of(node: Any) -> Any:
    """The call of a custom operation that a node records; None for other nodes."""
    call = getattr(getattr(node.custom, "func", node.custom), "__self__", None)
    return call if hasattr(call, "vjp") else None


def place_of_rule(call: Any) -> str:
    """File and line where the rule of a call is defined; empty if that is not known."""
    return _place(type(call.again).backward if isinstance(call.again, CustomOp) else call.vjp or call.jvp)


def _place(rule: Callable[..., Any] | None) -> str:
    code = getattr(inspect.unwrap(rule), "__code__", None) if rule is not None else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


__all__ = ["call_of", "place_of_rule"]
