"""A function as the gradient checker sees it: of a list of tensors, with a list of tensors for results."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wengert import _core, tree
from wengert._core import Tensor
from wengert.autograd.reverse import grad_of
from wengert.debug.fingerprint import places
from wengert.dtypes import ALL as DTYPES
from wengert.dtypes import DType, float64
from wengert.errors import ArgumentError
from wengert.modes import enable_grad
from wengert.tensors.conversion import asarray, tensor
from wengert.tensors.numpy import data
from wengert.tensors.random import default_generator
from wengert.transforms.functional import jvp, vjp

Array = np.ndarray[Any, Any]


def wide(x: Tensor) -> Array:
    """The numbers of a tensor, in double precision."""
    a = data(x.detach())
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


_MOST_RECENT, _MOST_NUMBERS = 48, 1 << 22  # evaluations that are remembered, and numbers in all of their points


def difference(a: Sequence[Array], b: Sequence[Array]) -> float:
    """By how much two lists of results differ; 0 if they are equal to the bit."""
    most = 0.0
    for x, y in zip(a, b):
        if x.shape != y.shape:
            return math.inf
        if not np.array_equal(x, y, equal_nan=True):
            most = max(most, float(np.nanmax(np.abs(x - y), initial=0.0)) or math.inf)
    return most


class Problem:
    """f, at some inputs. What it draws at random is the same in every evaluation."""

    order = 1

    def __init__(self, f: Callable[..., Any], inputs: Sequence[Any], what: str) -> None:
        if not callable(f):
            raise ArgumentError(f"{what}: takes a function, got {type(f).__name__}")
        self.f, self.what = f, what
        leaves, self._structure = tree.flatten(inputs)
        leaves = [_converted(x) for x in leaves]
        labels = [f"input {place[1:].replace(']', '', 1)}" for place, _ in places(tuple(inputs))]
        self._leaves = leaves
        self.checked = [k for k, x in enumerate(leaves) if isinstance(x, Tensor) and x.dtype.is_inexact]
        if not self.checked:
            raise ArgumentError(f"{what}: none of the inputs is a floating tensor; there is no derivative to check")
        self.labels = [labels[k] if len(labels) == len(leaves) else f"input {k}" for k in self.checked]
        self.dtypes = [leaves[k].dtype for k in self.checked]
        self.points = [wide(leaves[k]) for k in self.checked]
        for label, x in zip(self.labels, self.points):
            if np.isnan(x).any():
                raise ArgumentError(f"{what}: {label} has NaN in it, where nothing has a derivative")
        self.result_dtypes: list[DType] = []
        self._generator = default_generator.get_state()
        room = _MOST_NUMBERS // max(sum(x.size for x in self.points), 1)
        # The latest evaluations: points and results.
        self.recent: deque[tuple[list[Array], list[Array]]] = deque(maxlen=min(max(room, 4), _MOST_RECENT))

    def tensors(self, arrays: Sequence[Array], requires_grad: bool = False) -> list[Tensor]:
        """New tensors of the inputs' dtypes."""
        made = [tensor(a, dtype=d) for a, d in zip(arrays, self.dtypes)]
        for x in made:
            x.requires_grad = requires_grad
        return made

    def moved(self, by: Sequence[Array]) -> Problem:
        """The same function at another point."""
        other = copy.copy(self)
        other.points = [self.rounded(k, x + d) for k, (x, d) in enumerate(zip(self.points, by))]
        return other

    def rounded(self, k: int, array: Array) -> Array:
        """Numbers as input k can hold them."""
        return wide(tensor(array, dtype=self.dtypes[k]))

    def __call__(self, *xs: Any) -> list[Any]:
        """The floating results on tensors of any kind."""
        leaves = list(self._leaves)
        for k, x in zip(self.checked, xs):
            leaves[k] = x
        default_generator.set_state(self._generator)
        result = self.f(*tree.unflatten(self._structure, leaves))
        found = [y for y in tree.leaves(result) if isinstance(y, Tensor) and y.dtype.is_inexact]
        if not found:
            given = type(result).__name__ if result is not None else "None"
            raise ArgumentError(
                f"{self.what}: the function returned {given}, with no floating tensor in it; return the tensor to "
                "differentiate, or containers of such"
            )
        self.result_dtypes = [y.dtype for y in found]
        return found

    def values(self, arrays: Sequence[Array]) -> list[Array]:
        """The results as numbers, at these points."""
        found = [wide(y) for y in self(*self.tensors(arrays))]
        self.recent.append((list(arrays), found))
        return found

    def differs(self) -> float:
        """By how much results differ when the function is evaluated again where it was evaluated last; 0 if they do not."""
        return max((difference(before, self.values(arrays)) for arrays, before in list(self.recent)), default=0.0)

    def pull(self, seeds: Sequence[Array]) -> list[Array]:
        """Reverse mode: the gradient of Σ seeds·results with respect to each input."""
        xs = self.tensors(self.points, requires_grad=True)
        with enable_grad():
            ys = self(*xs)
            return [_numbers(g, x) for g, x in zip(_gradients(ys, xs, seeds, record=False), xs)]

    def push(self, x_dots: Sequence[Array]) -> list[Array]:
        """Forward mode: the tangents of the results."""
        xs = tuple(self.tensors(self.points))
        dots = tuple(tensor(d, dtype=x.dtype) for d, x in zip(x_dots, xs))
        with _quiet():
            ys, y_dots = jvp(lambda *xs: tuple(self(*xs)), xs, dots)
        return [_numbers(d, y) for d, y in zip(y_dots, ys)]


class GradientProblem(Problem):
    """The gradient of another problem, Σ seeds·results by its inputs, as a function of these."""

    order = 2

    def __init__(self, of: Problem, seeds: Sequence[Array]) -> None:
        super().__init__(of.f, tree.unflatten(of._structure, of._leaves), of.what)
        self.labels, self._seeds = of.labels, seeds

    def values(self, arrays: Sequence[Array]) -> list[Array]:
        """The gradients, as numbers."""
        xs = self.tensors(arrays, requires_grad=True)
        with enable_grad():
            found = [_numbers(g, x) for g, x in zip(_gradients(self(*xs), xs, self._seeds, record=False), xs)]
        self.recent.append((list(arrays), found))
        return found

    def pull(self, seeds: Sequence[Array]) -> list[Array]:
        """Reverse over reverse."""
        xs = self.tensors(self.points, requires_grad=True)
        with enable_grad():
            first = _gradients(self(*xs), xs, self._seeds, record=True)
            pairs = [(g, s) for g, s in zip(first, seeds) if g is not None]
            second = _gradients([g for g, _ in pairs], xs, [s for _, s in pairs], record=False)
        return [_numbers(g, x) for g, x in zip(second, xs)]

    def push(self, x_dots: Sequence[Array]) -> list[Array]:
        """Forward over reverse."""
        xs = tuple(self.tensors(self.points))
        dots = tuple(tensor(d, dtype=x.dtype) for d, x in zip(x_dots, xs))

        def gradient(*xs: Any) -> Any:
            ys, pull = vjp(lambda *xs: tuple(self(*xs)), *xs)
            found = pull(tuple(tensor(s, dtype=y.dtype) for s, y in zip(self._seeds, ys)))
            return tuple(found)

        with _quiet():
            _, dots_of = jvp(gradient, xs, dots)
        return [_numbers(d, x) for d, x in zip(dots_of, xs)]


def _gradients(ys: Sequence[Tensor], xs: list[Tensor], seeds: Sequence[Array], record: bool) -> Sequence[Tensor | None]:
    recorded = [(y, tensor(s, dtype=y.dtype)) for y, s in zip(ys, seeds) if _core.node_of(y) is not None]
    if not recorded:
        return [None] * len(xs)
    return grad_of([y for y, _ in recorded], xs, [s for _, s in recorded], create_graph=record, allow_unused=True)


def _numbers(g: Tensor | None, x: Tensor) -> Array:
    return np.zeros_like(wide(x)) if g is None else wide(g)


def _converted(x: Any) -> Any:
    """Numbers and arrays of floats become tensors."""
    if isinstance(x, (float, complex)):
        return tensor(x, dtype=float64 if isinstance(x, float) else DTYPES[-1])
    if isinstance(x, np.ndarray) and x.dtype.kind in "fc":
        return asarray(x)
    return x


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning of a derivative that is zero: the check says so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not depend on the argument.*")
        yield


__all__ = ["Array", "GradientProblem", "Problem", "wide"]
