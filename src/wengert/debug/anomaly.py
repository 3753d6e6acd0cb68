"""`detect_anomaly`: which operation made the first infinity or NaN that reaches a loss, a gradient or a result."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from wengert import _core
from wengert._core import Tensor
from wengert.debug.anomaly_record import Pair, Record, records_of
from wengert.debug.elements import described, first_bad, numbers, written
from wengert.debug.recorded_values import first_bad_node
from wengert.errors import AnomalyError, ArgumentError

F = TypeVar("F", bound=Callable[..., Any])

_MODES = {"light": 1, "full": 2}  # as core/anomaly.h: Checks
_MOST_RECORDS = 1 << 14
_MOST_STEPS = 12  # of a chain that are shown


class _Log:
    """What the core tells of results that are not finite; the latest of them."""

    def __init__(self) -> None:
        self.records: OrderedDict[int, Record] = OrderedDict()
        self.unread: dict[int, None] = {}  # results of forward calls that no call has read

    def found(self, name: str, node: Any, ins: Sequence[Pair | None], outs: Sequence[Pair | None]) -> None:
        """A call gave something that is not finite; `node`: of what it is the derivative of."""
        made = records_of(name, node, ins, outs)
        self.records.update(made)
        if node is None:
            self.unread.update(dict.fromkeys(made))
        while len(self.records) > _MOST_RECORDS:
            self.unread.pop(self.records.popitem(last=False)[0], None)

    def read(self, number: int) -> None:
        """A call has read this result."""
        self.unread.pop(number, None)

    def bad_loss(self, loss: Tensor, number: int, node: Any) -> None:
        """Backward is to start from a loss that is not finite."""
        what = f"the loss is {written(numbers(loss).reshape(-1)[0].item())}"
        self.unread.clear()
        if number in self.records:
            raise self._error(what, number, "the loss")
        raise _error_of(what, first_bad_node(node), [])

    def bad_gradient(self, node: Any, gradient: Tensor, number: int) -> None:
        """A gradient that leaves the backward pass is not finite."""
        self.unread.clear()
        index = first_bad(array := numbers(gradient))
        value = "not finite" if index is None else f"{written(array[index].item())} at {index}"
        what = f"the gradient of a tensor {described(gradient)} is {value}"
        if number in self.records:
            raise self._error(what, number, "the gradient")
        raise AnomalyError(f"{what}: it is so in the gradient that backward() was given", op="backward", line=node.line)

    def at_exit(self) -> None:
        """Results that nobody used and that are not finite are what the block has computed."""
        for number in self.unread:
            if (record := self.records[number]).sources or record.is_origin or record.is_nan:
                raise self._error(f"a result {record.shape} has {written(record.value)}", number, "the result")

    def _error(self, what: str, number: int, end: str) -> AnomalyError:
        chain = [self.records[number]]
        seen = {number}
        while True:
            following = [k for k in chain[-1].sources if k in self.records and k not in seen]
            if not following:
                break
            seen.add(following[0])
            chain.append(self.records[following[0]])
        return _error_of(what, _first(chain), [*(r.step() for r in reversed(chain)), end])


def _first(chain: list[Record]) -> Record:
    """The first call that is to blame, of a chain from the last to the first."""
    if not chain[-1].excused:
        return chain[-1]
    # It begins with infinities that were asked for, such as those of a mask: what counts is where they became NaN.
    nans = [r for r in chain if r.is_nan]
    return nans[-1] if nans else chain[-1]


def _error_of(what: str, first: Record, chain: list[str]) -> AnomalyError:
    lines = [_headline(what, first)]
    if first.outside and not first.excused:
        lines.append(f"  no operation made it: it was in {first.outside[0]} already")
    elif not first.unsure:
        lines.append(f"  element {first.index} of {first.shape} is {written(first.value)}")
    lines += [f"    {o}" for o in first.operands]
    shown = _joined(chain)
    if len(shown) > _MOST_STEPS:
        shown = [*shown[: _MOST_STEPS // 2], f"… {len(shown) - _MOST_STEPS} more …", *shown[-_MOST_STEPS // 2 :]]
    if len(chain) > 1:
        lines.append("  on its way: " + "\n    → ".join(shown))
    return AnomalyError(
        "\n".join(lines),
        op=first.op,
        line=first.line,
        index=first.index,
        backward=first.backward,
        operands=first.operands,
        chain=chain,
    )


def _joined(chain: list[str]) -> list[str]:
    """Steps, where those that come again at once, as in a loop, are one."""
    runs = [(step, len(list(same))) for step, same in itertools.groupby(chain)]
    return [step if n == 1 else f"{step}, {n} times" for step, n in runs]


def _headline(what: str, first: Record) -> str:
    if first.unsure:
        return (
            f"{what}; it became so in {first.name()} at {first.line}, or before: what the recorded operations keep for "
            "backward is finite. detect_anomaly(mode='full') around the forward pass will name the operation"
        )
    verb = "made" if not first.outside or first.excused else "read"
    return f"{what}; {first.name()} {verb} the first {'NaN' if first.is_nan else 'infinity'}, at {first.line}"


class detect_anomaly:
    """Raise `AnomalyError` at the first infinity or NaN that reaches a loss, a gradient or a result.

    The error names the operation that made it (`.op`), whether that was in the backward pass (`.backward`), the
    element (`.index`), the source line (`.line`), the operands there (`.operands`), and the calls from there to the
    loss or the gradient (`.chain`). Values that never get there are not reported, such as the infinities of a mask or
    the branch that `where` does not take.

    - `mode="full"` checks every result, and runs compiled functions operation by operation, so that it can name their
      lines. It takes several times as long.
    - `mode="light"` checks losses and gradients alone, which costs next to nothing, and searches the recorded
      operations if one of them is bad. To be able to, it keeps what `backward` would free until `backward` ends. If
      what was kept is not enough, it names the first operation that is known to be affected. On a GPU it waits for the
      loss and for each gradient.

    Use it as a context manager or as a decorator; it applies to the current thread.

    >>> import wengert as wg
    >>> x = wg.tensor([4.0, 0.0], requires_grad=True)
    >>> with detect_anomaly():
    ...     wg.sqrt(x).sum().backward()
    Traceback (most recent call last):
    wengert.errors.AnomalyError: the gradient of a tensor float32(2,) is inf at (1,); the derivative of sqrt made...
    """

    def __new__(cls, mode: Any = "full") -> Any:
        made = super().__new__(cls)
        if not callable(mode):
            return made
        made.__init__()  # type: ignore[misc]
        return made(mode)  # @detect_anomaly without parentheses

    def __init__(self, mode: str = "full") -> None:
        if mode not in _MODES:
            raise ArgumentError(f"detect_anomaly: mode is 'full' or 'light', got {mode!r}")
        self._mode = mode
        self._before: list[tuple[int, Any]] = []

    def __enter__(self) -> None:
        self._log = _Log()
        self._before.append(_core.set_checks(_MODES[self._mode], self._log))
        if self._mode == "full":
            _core.cuda_wait_for_ops(True)  # an error of a kernel is raised by its operation

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, traceback: Any) -> None:
        log = self._log
        _core.set_checks(*self._before.pop())
        if self._mode == "full":
            _core.cuda_wait_for_ops(False)
        if kind is None and self._mode == "full":
            log.at_exit()

    def __call__(self, f: F) -> F:
        runs_later = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        if any(test(f) for test in runs_later):
            raise ArgumentError(
                "detect_anomaly: does not decorate generators and coroutines, which run after the call; use it as a context "
                "manager inside"
            )

        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self._mode):
                return f(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


__all__ = ["detect_anomaly"]
