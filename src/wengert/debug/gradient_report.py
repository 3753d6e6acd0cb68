"""What a check of gradients found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from wengert.tensors.html import escaped

Verdict = Literal["ok", "bug", "kink", "noise"]
_WORST_FIRST: tuple[Verdict, ...] = ("bug", "kink", "noise", "ok")
_MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison of a derivative with numbers: along a direction, or by one element of one input."""

    verdict: Verdict
    mode: str  # "reverse" or "forward"
    order: int  # of the derivative
    place: str  # the input, as "input 0['w']"
    index: tuple[int, ...] | None  # of the element, where it was found
    output: str  # which element of which output, in a full check; else ""
    analytic: float
    numerical: float
    error_bar: float  # of the numerical derivative
    left: float
    right: float
    why: str
    kinked: bool = False  # the derivatives of the two sides differ

    @property
    def error(self) -> float:
        """How far the two derivatives are apart."""
        return abs(self.analytic - self.numerical)

    def __str__(self) -> str:
        where = self.place + (
            "" if self.index is None else f"[{', '.join(map(str, self.index))}]" if self.index else ""
        )
        order = "" if self.order == 1 else ", second order"
        of = f" of {self.output}" if self.output else ""
        return f"{self.verdict}: {self.mode} mode{order}, derivative{of} by {where}: {self.why}"


@dataclass(frozen=True, slots=True)
class GradientReport:
    """The verdict of a check, and what it rests on. It is true (`bool(report)`) if all derivatives agree with numbers.

    `verdict` is "ok"; "bug": a derivative is wrong; "kink": the function has no derivative there, since those of its two
    sides differ; or "noise": its values are too inexact to decide. `max_error` is the largest difference between a
    derivative and its number, and `worst_index` the element of `worst_input` where it is.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    name: str = "f"
    tolerance: float = 0.0
    problems: tuple[str, ...] = field(default=())  # other than of derivatives, of custom ops

    @property
    def verdict(self) -> Verdict:
        """The worst of all verdicts."""
        if self.problems:
            return "bug"
        return min((f.verdict for f in self.findings), key=_WORST_FIRST.index, default="ok")

    @property
    def is_valid(self) -> bool:
        """Whether every derivative that was checked agrees with numbers."""
        return self.verdict == "ok"

    def __bool__(self) -> bool:
        return self.is_valid

    @property
    def worst(self) -> Finding | None:
        """The finding with the worst verdict, and of these the largest error."""
        return min(self.findings, key=lambda f: (_WORST_FIRST.index(f.verdict), -_size(f.error)), default=None)

    @property
    def max_error(self) -> float:
        """The largest difference between a derivative and its number."""
        return max((_size(f.error) for f in self.findings), default=0.0)

    @property
    def worst_index(self) -> tuple[int, ...] | None:
        """The element of `worst_input` with the worst verdict; None where directions of many elements were compared."""
        return None if self.worst is None else self.worst.index

    @property
    def worst_input(self) -> str | None:
        """Which input the worst derivative is by."""
        return None if self.worst is None else self.worst.place

    def __str__(self) -> str:
        checked = sorted({(f.order, f.mode) for f in self.findings})
        what = ", ".join(f"{m} mode" + ("" if o == 1 else " (second order)") for o, m in checked)
        lines = [
            f"{self.verdict}: the derivatives of {self.name}; {len(self.findings)} comparisons in {what or 'no mode'}"
        ]
        bad = sorted(
            (f for f in self.findings if f.verdict != "ok"),
            key=lambda f: (_WORST_FIRST.index(f.verdict), -_size(f.error)),
        )
        lines += [f"  {p}" for p in self.problems]
        lines += [f"  {f}" for f in bad[:_MOST_SHOWN]]
        if len(bad) > _MOST_SHOWN:
            lines.append(f"  … and {len(bad) - _MOST_SHOWN} more")
        if not bad and self.findings:
            bar = max(f.error_bar for f in self.findings)
            lines.append(f"  largest difference {self.max_error:.3g}, largest error bar {bar:.3g}")
        return "\n".join([*lines, *(f"  note: {n}" for n in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escaped(str(self))}</pre>"


def _size(error: float) -> float:
    return math.inf if math.isnan(error) else error


__all__ = ["Finding", "GradientReport", "Verdict"]
