"""Derivatives against numbers: whether a rule is wrong, a function has a kink, or its values are noise.

A direction through all elements of an input is probed first. What disagrees there is halved until one element is left,
so that the element is found with a logarithmic number of probes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.debug.deadline import deadline
from wengert.debug.gradient_problem import Array, GradientProblem, Problem, difference
from wengert.debug.gradient_report import Finding, GradientReport, Verdict
from wengert.debug.numerical import UNKNOWN, Slope, differentiate
from wengert.debug.suspects import suspects
from wengert.dtypes import finfo
from wengert.errors import ArgumentError, GradientError
from wengert.tensors.random import default_generator

_FLAT = 1e-6  # relative to the input: steps of such a width are no rounding errors
_PROBES = 2  # directions for each input
_MOST_RESULTS = 64  # that are looked at one by one, where the input's element is known
_ROUNDS = 24  # of looking for further elements, beside kinks that were found
# By the width of the dtype: relative differences that are none, and error bars that leave everything open.
_RTOL = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "complex64": 1e-4}
_USELESS = {"float16": 0.2, "bfloat16": 0.4, "float32": 1e-2, "complex64": 1e-2}


def check_gradients(
    f: Callable[..., Any],
    *inputs: Any,
    eps: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    second_order: bool = True,
    full: bool = False,
    seed: int = 0,
    time_limit: float | None = 60.0,
) -> GradientReport:
    """Compare the derivatives of f with numerical ones: reverse and forward mode, first and second order.

    - `inputs`: the arguments of f: tensors, arrays, numbers, and containers of them. Derivatives are checked with
      respect to all that are floating-point or complex. f returns a tensor or a container of tensors.
    - `eps`: the largest step, relative to the input; by default the steps follow from the measured noise of f's
      values.
    - `rtol`, `atol`: what difference to allow beyond the error bar of the numerical derivative: rtol·|derivative| +
      atol.
    - `second_order`: whether to check second derivatives.
    - `full`: check every element of the inputs for every result, instead of random directions.
    - `seed`: of the random directions.
    - `time_limit`: in seconds, for functions that do not return.

    A wrong gradient is reported, not raised: `report.verdict` is "ok", "bug", "kink" (the derivatives from both sides
    differ, so there is none) or "noise" (the values are too inexact to tell). `bool(report)` is True for "ok", and
    `print(report)` says where the difference is, and how large.

    >>> import wengert as wg
    >>> x = wg.tensor([0.3, -1.2, 2.0])
    >>> bool(check_gradients(lambda x: (x * wg.sin(x)).sum(), x))
    True
    >>> check_gradients(lambda x: abs(x - 2.0).sum(), x).verdict
    'kink'
    >>> @wg.custom_op
    ... def cube(x):
    ...     return x * x * x
    >>> @cube.defvjp
    ... def _(y_bar, y, x):
    ...     return 2 * x**2 * y_bar
    >>> report = check_gradients(cube, x)
    >>> report.verdict, report.worst_index
    ('bug', (2,))
    """
    name = getattr(f, "__name__", type(f).__name__)
    state = default_generator.get_state()
    try:
        with deadline(time_limit, f"check_gradients: {name}"):
            return _Check(f, inputs, name, eps, rtol, atol, seed).run(second_order, full)
    finally:
        default_generator.set_state(state)


class NumericalChecker:
    """Checks of gradients with settings of one's own; `check_gradients` says what they mean.

    >>> import wengert as wg
    >>> x = wg.tensor([1.0, 2.0], dtype=wg.float64)
    >>> r = NumericalChecker().check_gradient_central(lambda x: (x**3).sum(), x)
    >>> r.is_valid, r.max_error < 1e-8
    (True, True)
    """

    def __init__(
        self,
        eps: float | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        time_limit: float | None = 60.0,
    ) -> None:
        self.eps, self.rtol, self.atol, self.time_limit = eps, rtol, atol, time_limit

    def _settings(self) -> dict[str, Any]:
        return {"eps": self.eps, "rtol": self.rtol, "atol": self.atol, "time_limit": self.time_limit}

    def check_gradient_central(self, f: Callable[[Tensor], Tensor], x: Any) -> GradientReport:
        """The gradient of f with respect to each element of x, against central differences."""
        return check_gradients(f, x, second_order=False, full=True, **self._settings())

    def check_jacobian(self, f: Callable[..., Any], *inputs: Any) -> GradientReport:
        """Each element of the Jacobian, in both modes."""
        return check_gradients(f, *inputs, second_order=False, full=True, **self._settings())

    def check_second_order(self, f: Callable[..., Any], *inputs: Any) -> GradientReport:
        """First and second derivatives along random directions."""
        return check_gradients(f, *inputs, **self._settings())


class _Line:
    """f along one direction of one input; each point is evaluated once."""

    def __init__(self, problem: Problem, which: int, direction: Array) -> None:
        self.problem, self.which, self.direction = problem, which, direction
        self._known: dict[float, tuple[list[Array], Array] | None] = {}

    def at(self, t: float) -> tuple[list[Array], Array] | None:
        """The results at t, and by how much the input has really moved; None where f fails."""
        if t not in self._known:
            points = list(self.problem.points)
            start = points[self.which]
            rounded = self.problem.rounded(self.which, start + t * self.direction)
            points[self.which] = rounded
            try:
                found = self.problem.values(points)
            except Exception:
                if t == 0.0:
                    raise
                self._known[t] = None
            else:
                moved = self.direction != 0  # what does not move may be infinite
                self._known[t] = (found, np.where(moved, rounded, 0.0) - np.where(moved, start, 0.0))
        return self._known[t]


class _Check:
    def __init__(
        self,
        f: Callable[..., Any],
        inputs: Sequence[Any],
        name: str,
        eps: float | None,
        rtol: float | None,
        atol: float | None,
        seed: int,
    ) -> None:
        _require_positive(eps=eps, rtol=rtol, atol=atol)
        self.problem: Problem = Problem(f, inputs, "check_gradients")
        self.problems = [self.problem]  # of each order
        self.name, self.eps, self.rtol, self.atol = name, eps, rtol, atol or 0.0
        self.rng = np.random.default_rng([17, seed])
        self.findings: list[Finding] = []
        self.notes: list[str] = []

    def run(self, second_order: bool, full: bool) -> GradientReport:
        first, again = self.problem.values(self.problem.points), self.problem.values(self.problem.points)
        differs = difference(first, again)
        if not differs:
            try:
                self._run(first, second_order, full)
            except Exception:
                differs = max(p.differs() for p in self.problems)
                if not differs:
                    raise
            if not differs and any(f.verdict in ("bug", "kink") for f in self.findings):
                differs = max(p.differs() for p in self.problems)  # now and then, perhaps
        if differs:
            self._refuse_random(differs)
        if any(f.verdict == "bug" for f in self.findings):
            self.notes += suspects(self.problem)
        return GradientReport(tuple(self.findings), tuple(self.notes), self.name)

    def _run(self, first: list[Array], second_order: bool, full: bool) -> None:
        if full:
            self._check_each(self.problem, first)
            return
        seeds = self._seeds(first)
        self._check(self.problem, first, seeds)
        if second_order and not any(f.verdict == "bug" for f in self.findings):
            self._check_second(seeds)

    def _refuse_random(self, differs: float) -> None:
        why = f"the function is not deterministic: two calls with the same inputs differ by {differs:.3g}"
        label = self.problem.labels[0]
        nan = math.nan
        self.findings = [Finding("noise", "reverse", 1, label, None, "", nan, nan, math.inf, nan, nan, why)]

    def _check_second(self, seeds: list[Array]) -> None:
        problem = GradientProblem(self.problem, seeds)
        self.problems.append(problem)
        try:
            first = problem.values(problem.points)
            self._check(problem, first, self._seeds(first))
        except GradientError as e:
            self.notes.append(f"second order is not available: {e}")

    def _seeds(self, results: list[Array]) -> list[Array]:
        """Random cotangents, of such a size that results of different magnitudes count alike; 1 of a single number."""
        if len(results) == 1 and results[0].size == 1 and results[0].dtype.kind == "f":
            return [np.ones_like(results[0])]
        made = []
        for y in results:
            size = float(np.sqrt(np.mean(np.abs(y) ** 2))) if y.size else 1.0
            size = size if 0 < size < math.inf else 1.0
            made.append(self._random(y) / size)
        return made

    def _random(self, like: Array) -> Array:
        u = self.rng.uniform(0.5, 1.5, like.shape) * self.rng.choice([-1.0, 1.0], like.shape)
        return np.asarray(u * np.exp(2j * np.pi * self.rng.random(like.shape)) if like.dtype.kind == "c" else u)

    def _scales(self, x: Array) -> Array:
        """How far each element may move: by the geometric mean of itself and the largest one. Infinite ones, such as those
        of a mask, stay."""
        finite = np.isfinite(x)
        sizes = np.abs(np.where(finite, x, 0.0))
        most = float(np.max(sizes, initial=0.0))
        if most == 0.0:
            return finite.astype(float)
        return np.where(sizes > 0, np.sqrt(sizes) * math.sqrt(most), 0.1 * most * finite)

    # ------------------------------------------------------------------------------------------------ directions

    def _check(self, problem: Problem, results: list[Array], seeds: list[Array]) -> None:
        gradients = problem.pull(seeds)
        for k, x in enumerate(problem.points):
            if not x.size:
                continue
            for _ in range(_PROBES):
                direction = self._random(x) * self._scales(x)
                found = self._probe(problem, k, direction, seeds, gradients[k])
                if found.verdict == "ok":
                    self.findings.append(found)
                else:
                    self.findings += self._located(problem, k, direction, seeds, gradients[k], found)
                    break
            self._check_forward(problem, k, seeds, gradients[k])

    def _check_forward(self, problem: Problem, k: int, seeds: list[Array], gradient: Array) -> None:
        """Forward mode against reverse mode, which was compared with numbers; where they differ, against numbers, too."""
        direction = self._random(problem.points[k]) * self._scales(problem.points[k])
        dots = [np.zeros_like(x) for x in problem.points]
        dots[k] = direction
        try:
            pushed = _inner(seeds, problem.push(dots))
        except GradientError as e:
            note = f"forward mode is not available{'' if problem.order == 1 else ' at second order'}: {e}"
            if note not in self.notes:
                self.notes.append(note)
            return
        gradient = np.where(direction != 0, gradient, 0.0)
        pulled = _inner([gradient], [direction])
        size = float(np.sum(np.abs(gradient) * np.abs(direction)))
        rtol = self._rtol(problem)
        if abs(pushed - pulled) <= rtol * size + self.atol or (math.isnan(pushed) and math.isnan(pulled)):
            self.findings.append(
                Finding("ok", "forward", problem.order, problem.labels[k], None, "", pushed, pulled, 0.0,
                        pulled, pulled, "agrees with reverse mode")
            )  # fmt: skip
            return
        shift = pushed - pulled  # ψ′ as the forward derivative says
        found = self._probe(problem, k, direction, seeds, gradient, shift)
        self.findings.append(replace(found, mode="forward"))

    def _rtol(self, problem: Problem) -> float:
        if self.rtol is not None:
            return self.rtol
        return max(_RTOL.get(d.name, 1e-7) for d in (*problem.dtypes, *problem.result_dtypes))

    def _located(
        self, problem: Problem, k: int, direction: Array, seeds: list[Array], gradient: Array, found: Finding
    ) -> list[Finding]:
        """The elements behind a disagreement: all kinks up to a number, but the first bug ends the search."""
        located: list[Finding] = []
        remaining = direction.copy()
        for _ in range(_ROUNDS):
            where, one, additive = self._halved(problem, k, remaining, seeds, gradient, found)
            if where is not None:
                one = self._of_output(problem, k, where, remaining, one)
            kinked = (found.kinked or not additive) and not one.kinked
            if one.verdict == "bug" and kinked and not self._persists(problem, k):
                one = replace(
                    found, verdict="kink", why="the function has no derivative here, but the rule has one nearby"
                )
            located.append(one)
            if one.verdict != "kink" or where is None:
                break
            remaining.flat[where] = 0.0
            if not remaining.any():
                break
            found = self._probe(problem, k, remaining, seeds, gradient)
            if found.verdict == "ok":
                break
        return located

    def _persists(self, problem: Problem, k: int) -> bool:
        """Whether the derivative is also wrong at a point nearby, where there is no kink."""
        nearby = problem.moved([1e-3 * self._random(x) * self._scales(x) for x in problem.points])
        results = nearby.values(nearby.points)
        seeds = self._seeds(results)
        direction = self._random(nearby.points[k]) * self._scales(nearby.points[k])
        return self._probe(nearby, k, direction, seeds, nearby.pull(seeds)[k]).verdict == "bug"

    def _halved(
        self, problem: Problem, k: int, direction: Array, seeds: list[Array], gradient: Array, found: Finding
    ) -> tuple[int | None, Finding, bool]:
        """The element with the disagreement, and whether derivatives along parts of the direction add up to the whole."""
        elements, additive = np.flatnonzero(direction), True
        while len(elements) > 1:
            middle = len(elements) // 2
            halves = []
            for part in (elements[:middle], elements[middle:]):
                d = np.zeros_like(direction)
                d.flat[part] = direction.flat[part]
                halves.append((part, self._probe(problem, k, d, seeds, gradient)))
            (_, a), (_, b) = halves
            bars = found.error_bar + a.error_bar + b.error_bar
            size = abs(found.numerical) + abs(a.numerical) + abs(b.numerical)
            additive &= not abs(found.numerical - a.numerical - b.numerical) > 2 * bars + 1e-3 * size
            bad = [(part, p) for part, p in halves if p.verdict != "ok"]
            if not bad:
                return None, _inconclusive(found), additive
            elements, found = min(bad, key=lambda h: (("bug", "kink", "noise").index(h[1].verdict), -h[1].error))
        return int(elements[0]), self._by_element(problem, k, int(elements[0]), direction, found), additive

    def _of_output(self, problem: Problem, k: int, element: int, direction: Array, found: Finding) -> Finding:
        """The same for the one result whose derivative disagrees most, where there are not too many to look at."""
        results = problem.values(problem.points)
        if not 1 < sum(y.size for y in results) <= _MOST_RESULTS:
            return found
        alone = np.zeros_like(direction)
        alone.flat[element] = direction.flat[element]
        line = _Line(problem, k, alone)
        each = []
        for output, seeds in _units(results):
            one = replace(self._probe_line(line, seeds, problem.pull(seeds)[k]), output=output)
            if one.verdict == found.verdict:
                each.append(self._by_element(problem, k, element, direction, one))
        return max(each, key=lambda f: f.error, default=found)

    def _by_element(self, problem: Problem, k: int, element: int, direction: Array, found: Finding) -> Finding:
        """A finding along one element, as a derivative with respect to that element."""
        x = problem.points[k]
        index = tuple(int(i) for i in np.unravel_index(element, x.shape))
        by = abs(complex(direction.flat[element]))
        if direction.dtype.kind != "c" and direction.flat[element] < 0:
            found = replace(found, left=found.right, right=found.left)
            by = -by
        return _rescaled(replace(found, index=index), by)

    # ------------------------------------------------------------------------------------------------ each element

    def _check_each(self, problem: Problem, results: list[Array]) -> None:
        """Every element of the Jacobian: columns from numbers and forward mode, rows from reverse mode."""
        units = [(output, seeds, problem.pull(seeds)) for output, seeds in _units(results)]
        for k, x in enumerate(problem.points):
            scales = self._scales(x)
            for element in np.flatnonzero(scales).tolist():
                for unit in (1.0, 1j) if x.dtype.kind == "c" else (1.0,):
                    direction = np.zeros_like(x)
                    direction.flat[element] = unit * scales.flat[element]
                    self._check_column(problem, k, element, direction, units)

    def _check_column(
        self,
        problem: Problem,
        k: int,
        element: int,
        direction: Array,
        units: list[tuple[str, list[Array], list[Array]]],
    ) -> None:
        line = _Line(problem, k, direction)
        dots = [np.zeros_like(x) for x in problem.points]
        dots[k] = direction
        pushed: list[Array] | None
        try:
            pushed = problem.push(dots)
        except GradientError as e:
            pushed = None
            note = f"forward mode is not available: {e}"
            if note not in self.notes:
                self.notes.append(note)
        for output, seeds, gradients in units:
            found = replace(self._probe_line(line, seeds, gradients[k]), output=output)
            self.findings.append(self._by_element(problem, k, element, direction, found))
            if pushed is not None:
                shift = _inner(seeds, pushed) - _inner([np.where(direction != 0, gradients[k], 0.0)], [direction])
                forward = replace(self._probe_line(line, seeds, gradients[k], shift), output=output, mode="forward")
                self.findings.append(self._by_element(problem, k, element, direction, forward))

    # ------------------------------------------------------------------------------------------------ one comparison

    def _probe(
        self, problem: Problem, k: int, direction: Array, seeds: list[Array], gradient: Array, shift: float = 0.0
    ) -> Finding:
        return self._probe_line(_Line(problem, k, direction), seeds, gradient, shift)

    def _probe_line(self, line: _Line, seeds: list[Array], gradient: Array, shift: float = 0.0) -> Finding:
        """ψ(t) = Σ seeds·(f(x_t) − f(x)) − ⟨gradient, x_t − x⟩ has the derivative 0 at 0 if the gradient is right.

        x_t is rounded to the input's dtype, and ψ takes the step that was really made. `shift` is by how much another
        derivative than the gradient's is to be compared.
        """
        problem, _k = line.problem, line.which
        at_zero = line.at(0.0)
        assert at_zero is not None
        base = at_zero[0]
        moved = line.direction != 0
        known = bool(np.all(np.isfinite(gradient[moved])))
        linear = np.where(moved, gradient, 0.0) if known else np.zeros_like(gradient)

        def phi(t: float) -> float:
            point = line.at(t)
            if point is None or any(y.shape != b.shape for y, b in zip(point[0], base)):
                return math.nan
            return _inner(seeds, [y - b for y, b in zip(point[0], base)])

        def psi(t: float) -> float:
            value, point = phi(t), line.at(t)
            return value if point is None else value - _inner([linear], [point[1]]) - t * shift

        if not all(np.all(np.isfinite(y)) for y in base):
            return self._finding(line, "noise", math.nan, UNKNOWN, "the value itself is not finite")
        size = sum(float(np.sum(np.abs(s) * np.abs(y))) for s, y in zip(seeds, base))
        precision = max(float(finfo(d).eps) for d in problem.dtypes)
        analytic = _inner([linear], [line.direction]) + shift if known else math.nan
        typical = float(np.sum(np.abs(linear) * np.abs(line.direction))) + abs(shift)
        with np.errstate(all="ignore"):
            slope = differentiate(
                psi,
                values=phi,
                first=0.4 if self.eps is None else self.eps,
                noise_step=16 * precision,
                floor=0.5 * float(np.finfo(np.float64).eps) * size,
                rungs=16 if self.eps is None else 5,
                enough=1e-3 * typical,
            )
        typical = max(typical, abs(slope.value) if math.isfinite(slope.value) else 0.0, 1e-3 * (size + slope.spread))
        if slope.flat > _FLAT and analytic == 0.0:
            slope = replace(slope, value=0.0, error=0.0)  # noise was found farther away
        rtol = self._rtol(problem)
        if self.rtol is None and size:
            rtol += 8 * slope.noise / size  # what is computed with such errors has derivatives with such errors
        verdict, why = self._judge(slope, analytic, typical, rtol, _useless(problem))
        found = self._finding(line, verdict, analytic, slope, why)
        return replace(found, kinked=_is_kinked(slope, typical, rtol * typical + self.atol))

    def _finding(self, line: _Line, verdict: Verdict, analytic: float, slope: Slope, why: str) -> Finding:
        start = 0.0 if math.isnan(analytic) else analytic
        return Finding(
            verdict, "reverse", line.problem.order, line.problem.labels[line.which], None, "", analytic,
            start + slope.value, slope.error, start + slope.left, start + slope.right, why,
        )  # fmt: skip

    def _judge(self, s: Slope, analytic: float, typical: float, rtol: float, useless: float) -> tuple[Verdict, str]:
        """What a derivative ψ′(0) means that should be 0."""
        tolerance = rtol * typical + self.atol
        kinked = _is_kinked(s, typical, tolerance)
        if math.isnan(analytic):
            if kinked or s.torn or not math.isfinite(s.error):
                return "kink", "there is no finite derivative, and the one that was computed is not finite"
            return "bug", "the derivative is not finite, although the function is smooth here"
        if s.torn:
            return "kink", "the function jumps, ends or is vertical here"
        if abs(s.value) <= tolerance + s.error and math.isfinite(s.error):
            if kinked:
                return "kink", "the derivatives of the two sides differ"
            if s.error > useless * typical:
                return "noise", f"values have an error of about {s.noise:.1e}, too much for a numerical derivative"
            return "ok", "agrees with numbers"
        if kinked:
            low, high = sorted((s.left, s.right))
            if low - 2 * s.side_error - tolerance <= 0 <= high + 2 * s.side_error + tolerance:
                return "kink", "the derivatives of the two sides differ"
            return "bug", "the derivatives of the two sides differ, and it is not between them"
        if not math.isfinite(s.value):
            return "noise", "values nearby overflow, or are too inexact for any numerical derivative"
        if s.error > 0.5 * typical and abs(s.value) < 4 * s.error:
            return "noise", f"values have an error of about {s.noise:.1e}, too much for a numerical derivative"
        return "bug", "the derivative is not that of the function"


def _is_kinked(s: Slope, typical: float, tolerance: float) -> bool:
    return s.torn or s.jump > 4 * s.side_error + max(tolerance, 1e-4 * typical)


def _units(results: list[Array]) -> Iterator[tuple[str, list[Array]]]:
    """A name and a seed for each element of the results."""
    for j, y in enumerate(results):
        name = "output" if len(results) == 1 else f"output {j}"
        for i in np.ndindex(*y.shape):
            seeds = [np.zeros_like(y) for y in results]
            seeds[j][i] = 1.0
            index = f"[{', '.join(map(str, i))}]" if i else ""
            yield ("" if y.size == len(results) == 1 else f"{name}{index}"), seeds


def _useless(problem: Problem) -> float:
    return max(_USELESS.get(d.name, 1e-3) for d in (*problem.dtypes, *problem.result_dtypes))


def _require_positive(**settings: Any) -> None:
    for name, value in settings.items():
        if value is None:
            continue
        if not isinstance(value, (int, float)) or not (0 < value < math.inf or (value == 0 and name != "eps")):
            raise ArgumentError(
                f"check_gradients: {name} must be {'positive' if name == 'eps' else 'at least 0'}, got {value!r}"
            )


def _inner(a: Sequence[Array], b: Sequence[Array]) -> float:
    """⟨a, b⟩ of real numbers; complex ones are pairs of them."""
    with np.errstate(all="ignore"):
        return float(sum(np.sum((np.conj(x) * y).real) for x, y in zip(a, b)))


def _rescaled(f: Finding, by: float) -> Finding:
    analytic, numerical, bar = f.analytic / by, f.numerical / by, f.error_bar / abs(by)
    left, right = f.left / by, f.right / by
    why = f.why
    if f.verdict == "kink" and math.isfinite(left) and math.isfinite(right):
        why += f": {left:.6g} below and {right:.6g} above; it says {analytic:.6g}"
    elif f.verdict == "bug":
        why += f": it says {analytic:.8g}, numbers {numerical:.8g} ± {bar:.1g}"
    return replace(f, analytic=analytic, numerical=numerical, error_bar=bar, left=left, right=right, why=why)


def _inconclusive(f: Finding) -> Finding:
    """A disagreement along many elements that no half of them has alone."""
    if f.verdict == "bug" and f.error <= 10 * f.error_bar:
        return replace(f, verdict="noise", why="the disagreement is within what noise may do")
    if f.verdict == "bug":
        return replace(f, why=f"{f.why}: along a direction it says {f.analytic:.8g}, numbers {f.numerical:.8g}")
    return f


__all__ = ["NumericalChecker", "check_gradients"]
