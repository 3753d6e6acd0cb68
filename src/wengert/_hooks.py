"""Joins the core to Python: what it calls when an op is not plain, or a derivative is not known yet."""

from __future__ import annotations

from wengert import _core, errors
from wengert.passes import joining, variants
from wengert.program.trace import dispatch
from wengert.tensors.leaving import refuse_leaving
from wengert.tensors.operands import convert_operand


def install() -> None:
    """Register the hooks; once, at import."""
    _core.set_errors(errors.BY_KIND)
    _core.set_hooks(
        {
            "dispatch": dispatch,
            "convert_operand": convert_operand,
            "derive": variants.derive_op,
            "push": variants.push_op,
            "derive_again": variants.derive_again,
            "push_again": variants.push_again,
            "narrow": variants.narrow,
            "partial": variants.partial,
            "join": joining.join,
            "refuse_leaving": refuse_leaving,
        }
    )
