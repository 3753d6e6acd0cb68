"""Errors and warnings for handing numbers to Python or NumPy, where a derivative would be lost."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NoReturn

from wengert import _core
from wengert.errors import CustomOpError, GradientError
from wengert.user_line import user_line, warn_user

running_rule = threading.local()  # .name: the custom op whose rule is running to be differentiated or transposed

_REMEDIES = {
    "numpy": "wg.sin(x) or np.sin(x) on the tensor itself; wg.stack or wg.tensor([x, y]) instead of np.array([x, y])",
    "float": "wg.sin(x) instead of math.sin(x)",
}
_NEW_LEAF = "leave requires_grad out, to make a copy that is differentiated"


class numbers_kept:
    """A scope in which numbers that depend on these tensors may not leave: they are being differentiated with respect to."""

    def __init__(self, sources: Iterable[Any]) -> None:
        self._sources = [x for x in sources if isinstance(x, _core.Tensor)]

    def __enter__(self) -> None:
        _core.enter_transformation(self._sources)

    def __exit__(self, *exc: object) -> None:
        _core.leave_transformation()


def refuse_leaving(x: Any, what: str, inside: bool) -> NoReturn:
    """Raise for a tensor whose numbers must not leave.

    `what` is what was called: item, float, numpy, ...; `inside`: what a transformation differentiates by is behind it,
    and not just a graph for a later `backward`.
    """
    tensor = f"{x.dtype.name}{tuple(x.shape)}"
    rule = getattr(running_rule, "name", None)
    if rule is not None:
        raise CustomOpError(
            f"{rule}: its rule is being differentiated or transposed, but takes the numbers of {tensor} out of wengert "
            f"({what}), where nothing is recorded; write the rule in wengert ops"
        )
    if not inside:
        raise GradientError(
            f"{what}: {tensor}, used at {user_line()}, has a history of recorded ops, which would be lost outside of "
            "wengert; use x.detach().numpy() for the numbers alone"
        )
    remedy = _NEW_LEAF if what == "tensor" else f"use functions of wengert ({_REMEDIES.get(what, _REMEDIES['float'])})"
    raise GradientError(
        f"{what}: {tensor}, used at {user_line()}, depends on what is being differentiated by, and outside of wengert "
        f"its derivative would be lost; {remedy}, or x.detach() first where no derivative is wanted"
    )


def warn_of_independence(what: str) -> None:
    """Warn, once per line of the user, that a derivative is zero because the result does not depend on the argument."""
    warn_user(
        f"{what}: the result does not depend on the argument, so its derivative is zero; if it should depend, look for a "
        "detach(), a no_grad() or a value that was computed outside of the function"
    )
