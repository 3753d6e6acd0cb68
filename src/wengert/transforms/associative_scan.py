"""Prefixes under an associative function, in logarithmic depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert import tree
from wengert.errors import ArgumentError, AxisError, ShapeError
from wengert.functional.joining import concat, flip, stack
from wengert.transforms.regions import require_callable, types_of
from wengert.transforms.turns import as_tensor, require_same_carry


def associative_scan(fn: Callable[[Any, Any], Any], xs: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Compute all prefixes x₀, x₀∘x₁, x₀∘x₁∘x₂, … along an axis, where fn(a, b) = a∘b is associative.

    - `fn`: gets two slices of `xs` with many elements along the axis, combines each element of a with the one of b at
      the same place, and returns the same structure, shapes and dtypes.
    - `xs`: a tensor or a container of tensors with the same size along `axis`.
    - `reverse`: begin at the end: xₙ₋₁, xₙ₋₁∘xₙ₋₂, …, each at the place of its last element.

    n elements need about 2·log₂ n calls of fn, where a loop needs n (Blelloch, 1990): for linear recurrences,
    products of matrices and compositions of functions, on any device. Inside `compile` each size is traced
    separately.

    >>> import wengert as wg
    >>> def compose(f, g):  # x ↦ a·x + b, first f and then g
    ...     return f[0] * g[0], g[0] * f[1] + g[1]
    >>> a, b = wg.tensor([0.5, 0.5, 0.5]), wg.tensor([1.0, 1.0, 1.0])
    >>> associative_scan(compose, (a, b))[1].tolist()  # y = a·y + b
    [1.0, 1.5, 1.75]
    """
    require_callable("associative_scan", {"fn": fn})
    leaves, structure = tree.flatten(xs)
    leaves = [as_tensor("associative_scan", "xs", x) for x in leaves]
    if not leaves:
        raise ArgumentError("associative_scan: xs must hold at least one tensor")
    axes = [_own_axis(axis, x.ndim) for x in leaves]
    sizes = [int(x.shape[a]) for x, a in zip(leaves, axes)]
    if len(set(sizes)) > 1:
        raise ShapeError(f"associative_scan: xs must have the same size along axis {axis}, got {sizes}")
    prefixes = _Prefixes(fn, structure, axes)
    if reverse:
        leaves = [flip(x, axis=a) for x, a in zip(leaves, axes)]
    made = prefixes.of(leaves)
    if reverse:
        made = [flip(x, axis=a) for x, a in zip(made, axes)]
    return tree.unflatten(structure, made)


def _own_axis(axis: int, ndim: int) -> int:
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise ArgumentError(f"associative_scan: axis must be an integer, got {axis!r}")
    if not -ndim <= axis < ndim:
        raise AxisError(f"associative_scan: axis {axis} is out of range for a tensor of {ndim} axes")
    return axis % ndim


class _Prefixes:
    def __init__(self, fn: Callable[[Any, Any], Any], structure: Any, axes: list[int]) -> None:
        self.fn, self.structure, self.axes = fn, structure, axes

    def of(self, xs: list[Any]) -> list[Any]:
        """The prefixes at odd positions are those of the combined pairs; each of the others takes one more combination."""
        n = int(xs[0].shape[self.axes[0]])
        if n < 2:
            return [x.clone() for x in xs]  # copies, because the caller may write to the arguments
        odd = self.of(self._combined(self._part(xs, 0, n - 1, 2), self._part(xs, 1, n, 2)))
        before = self._part(odd, 0, (n - 1) // 2, 1)
        even = self._part(xs, 0, 1, 1)
        if n > 2:
            rest = self._combined(before, self._part(xs, 2, n, 2))
            even = [concat([a, b], axis=k) for a, b, k in zip(even, rest, self.axes)]
        return [_interleaved(a, b, k) for a, b, k in zip(even, odd, self.axes)]

    def _part(self, xs: list[Any], first: int, end: int, step: int) -> list[Any]:
        return [x[(*(slice(None),) * k, slice(first, end, step))] for x, k in zip(xs, self.axes)]

    def _combined(self, a: list[Any], b: list[Any]) -> list[Any]:
        leaves, structure = tree.flatten(self.fn(*(tree.unflatten(self.structure, list(x)) for x in (a, b))))
        made = [as_tensor("associative_scan", "what fn returns", y) for y in leaves]
        require_same_carry("associative_scan", types_of(a), types_of(made), (self.structure, structure), "xs", "fn")
        return made


def _interleaved(even: Any, odd: Any, axis: int) -> Any:
    n = int(odd.shape[axis])
    whole = (*(slice(None),) * axis, slice(0, n))
    pairs = stack([even[whole], odd], axis=axis + 1)
    made = pairs.reshape(*even.shape[:axis], 2 * n, *even.shape[axis + 1 :])
    if int(even.shape[axis]) == n:
        return made
    return concat([made, even[(*(slice(None),) * axis, slice(n, n + 1))]], axis=axis)


__all__ = ["associative_scan"]
