"""Two runs of a function, compared bit by bit: where the second first differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert._core import Tensor
from wengert.autograd.tape import GradientTape
from wengert.debug.fingerprint import fingerprint, places
from wengert.tensors.random import default_generator


def compare_runs(f: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Run f(*args, **kwargs) twice, and return None if all bits agree, otherwise a text that names the first
    difference.

    Both runs start from the same state of the default generator, which is left as after one run. Compared are the
    operations of both runs in order, what each keeps for its derivative, and then the results.

    >>> import wengert as wg
    >>> x = wg.ones((3,))
    >>> compare_runs(lambda: wg.sin(wg.dropout(x, 0.5)))
    >>> noise = wg.Generator(0)  # goes on in the second run
    >>> text = compare_runs(lambda: wg.sin(x * wg.randn(3, generator=noise)).sum())
    >>> print(text.split(" at ")[0])
    operation 2 of 4, mul
    """
    state = default_generator.get_state()
    first = _Run(f, args, kwargs)
    default_generator.set_state(state)
    second = _Run(f, args, kwargs)
    return first.difference(second)


class _Run:
    """What one run did: names, lines and fingerprints, and no tensors."""

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with GradientTape() as tape:
            result = f(*args, **kwargs)
        self.operations = [_operation(call) for call in tape._record.calls()]
        self.results = [(place, fingerprint(leaf), _type(leaf)) for place, leaf in places(result)]
        tape.reset()

    def difference(self, other: _Run) -> str | None:
        """Where the other run first differs."""
        n = len(self.operations)
        for k, (a, b) in enumerate(zip(self.operations, other.operations), 1):
            if a[:2] != b[:2]:
                return f"operation {k} of {n} is {b[0]} at {b[1]} in the second run, but {a[0]} at {a[1]} in the first"
            for (text, bits), (other_text, other_bits) in zip(a[2], b[2]):
                if (text, bits) != (other_text, other_bits):
                    what = f"{text} has other bits" if text == other_text else f"{text} became {other_text}"
                    return f"operation {k} of {n}, {a[0]} at {a[1]}: {what}"
        if n != len(other.operations):
            return f"the first run has {n} operations, the second {len(other.operations)}"
        for (place, bits, text), (_, other_bits, other_text) in zip(self.results, other.results):
            if (bits, text) != (other_bits, other_text):
                what = f"{text} has other bits" if text == other_text else f"{text} became {other_text}"
                return f"all {n} operations agree in what they keep, but the result{place} does not: {what}"
        if len(self.results) != len(other.results):
            return f"the first run returned {len(self.results)} values, the second {len(other.results)}"
        return None


def _operation(call: Any) -> tuple[str, str, list[tuple[str, str]]]:
    kept = [] if call.node is None or call.node.freed else [x.detach() for x in call.node.saved]
    read = [x.detach() for _, _, x, _ in call.operands if x is not None and _unchanged(call)]
    return call.name or "program", call.line, [(_type(x), fingerprint(x)) for x in (*kept, *read)]


def _unchanged(call: Any) -> bool:
    """Whether what a call read from outside is still what it was."""
    try:
        call.check_operands()
    except RuntimeError:
        return False
    return True


def _type(x: Any) -> str:
    return f"{x.dtype.name}{tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


__all__ = ["compare_runs"]
