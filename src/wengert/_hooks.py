"""Joins the core to Python: what it calls when an op is not plain, or a derivative is not known yet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from wengert import _core, errors
from wengert.program.trace import dispatch
from wengert.tensors.leaving import refuse_leaving
from wengert.tensors.operands import convert_operand


def _deriving(name: str) -> Callable[..., Any]:
    """A function of passes.variants, which is imported when something is derived for the first time."""

    def call(*arguments: Any) -> Any:
        from wengert.passes import variants

        return getattr(variants, name)(*arguments)

    return call


def install() -> None:
    """Register the hooks; once, at import."""
    _core.set_errors(errors.BY_KIND)
    _core.set_hooks(
        {
            "dispatch": dispatch,
            "convert_operand": convert_operand,
            "derive": _deriving("derive_op"),
            "push": _deriving("push_op"),
            "derive_again": _deriving("derive_again"),
            "push_again": _deriving("push_again"),
            "narrow": _deriving("narrow"),
            "refuse_leaving": refuse_leaving,
        }
    )


def attach_methods() -> None:
    """Give the Tensor type its methods; once, at import."""
    from wengert.autograd import reverse
    from wengert.methods import attach

    attach.install()
    reverse.attach()


def hide_frames() -> None:
    """Make lines of this package invisible to messages: users want to see their own."""
    for name, module in list(sys.modules.items()):
        if name == "wengert" or name.startswith("wengert."):
            # Not that of a named tuple, whose methods are of no file, or of another one.
            file = getattr(module, "__file__", None)
            code = next((c for c in _code_objects(module) if c is not None and c.co_filename == file), None)
            if code is not None:
                _core.add_internal_file(code.co_filename)


def _code_objects(module: Any) -> Iterator[Any]:
    """Code of the module's own functions and methods; one is enough, for they share their file name."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else [value]
        for member in members:
            yield getattr(member, "__code__", None)
