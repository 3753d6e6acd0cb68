"""The result of a backward pass: gradients by tensor."""

from __future__ import annotations

import copy
import functools
import math
import sys
from collections.abc import Iterator
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.gradient_norm import norm
from wengert.errors import ShapeError
from wengert.program.trace import Tracer
from wengert.tensors.conversion import asarray
from wengert.tensors.html import table

MOST_SHOWN = 30


class GradientMap:
    """The gradients that `backward` returns: a mapping from tensors (or their ids) to gradients.

    `grads[x]` raises KeyError if there is no gradient for x, `grads.get(x)` returns None, and `explain(grads, x)`
    says why. Optimizers and `clip_grad_norm` take the map as it is. Ids count the tensors of one process, so a
    pickled map belongs to the process that made the tensors and to those forked from it.

    >>> import wengert as wg
    >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
    >>> grads = (x * x).sum().backward()
    >>> grads[x].tolist()
    [2.0, 4.0]
    """

    __slots__ = ("_gradients", "_roots")

    def __init__(self) -> None:
        self._gradients: dict[int, Tensor] = {}
        self._roots: list[Any] = []  # nodes that were differentiated, for `explain`

    @classmethod
    def of(cls, gradients: dict[int, Tensor], root: Any) -> GradientMap:
        """The map that a backward pass from `root` gives."""
        made = cls.__new__(cls)
        made._gradients = gradients
        made._roots = [root]
        return made

    def __copy__(self) -> GradientMap:
        made = GradientMap()
        made._gradients, made._roots = dict(self._gradients), list(self._roots)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> GradientMap:
        made = self.__copy__()
        made._gradients = copy.deepcopy(self._gradients, memo)
        return made

    def __reduce__(self) -> Any:
        return _restored, (self._gradients,)

    @staticmethod
    def _key(x: Tensor | int) -> int:
        if isinstance(x, int):
            return x
        if not isinstance(x, Tensor):
            raise TypeError(f"GradientMap: the key must be a tensor or a tensor's id, got {type(x).__name__}")
        return int(x.id)

    @staticmethod
    def _checked(x: Tensor | int, gradient: Any) -> Tensor:
        """The gradient as a tensor, checked against x unless x is just an id."""
        g = gradient if isinstance(gradient, Tensor) else asarray(gradient)
        if isinstance(x, Tensor) and tuple(g.shape) != tuple(x.shape):
            raise ShapeError(
                f"GradientMap: a gradient of shape {tuple(g.shape)} does not fit a tensor of shape {tuple(x.shape)}"
            )
        return g

    def __getitem__(self, x: Tensor | int) -> Tensor:
        try:
            return self._gradients[self._key(x)]
        except KeyError:
            raise KeyError(
                "no gradient for this tensor: the differentiated value does not depend on it, or it was not recorded. "
                "wengert.explain(grads, x) says where the path ends"
            ) from None

    def __setitem__(self, x: Tensor | int, gradient: Tensor) -> None:
        """Set the gradient of a tensor, in place of one that is there."""
        self._gradients[self._key(x)] = self._checked(x, gradient)

    insert = __setitem__

    def get(self, x: Tensor | int, default: Any = None) -> Any:
        """The gradient of x, or `default` if there is none."""
        return self._gradients.get(self._key(x), default)

    def accumulate(self, x: Tensor | int | GradientMap, gradient: Tensor | None = None) -> None:
        """Add a gradient to the one that is there; or a whole map to this one."""
        if isinstance(x, GradientMap):
            for key, g in x._gradients.items():
                self.accumulate(key, g)
            return
        if gradient is None:
            raise TypeError("accumulate(x, gradient): the gradient is missing")
        key, gradient = self._key(x), self._checked(x, gradient)
        known = self._gradients.get(key)
        self._gradients[key] = gradient if known is None else known + gradient

    def items(self) -> Iterator[tuple[int, Tensor]]:
        """(tensor id, gradient) pairs."""
        return iter(self._gradients.items())

    def keys(self) -> Iterator[int]:
        """Tensor ids."""
        return iter(self._gradients)

    def values(self) -> Iterator[Tensor]:
        """Gradients."""
        return iter(self._gradients.values())

    def __contains__(self, x: Tensor | int) -> bool:
        return self._key(x) in self._gradients

    def __len__(self) -> int:
        return len(self._gradients)

    def __iter__(self) -> Iterator[int]:
        return iter(self._gradients)

    def scale_(self, factor: float) -> GradientMap:
        """Multiply every gradient by a number."""
        if not hasattr(factor, "__float__"):
            raise TypeError(f"GradientMap.scale_: the factor must be a number, got {type(factor).__name__}")
        for key, g in self._gradients.items():
            self._gradients[key] = g * factor
        return self

    def global_norm(self) -> Any:
        """√(Σ |g|²) over all gradients, in float64: a number, and inside a compiled function a tensor without axes."""
        if any(isinstance(g, Tracer) for g in self._gradients.values()):
            return norm([g.detach() for g in self._gradients.values()])
        return math.hypot(*(_norm(g) for g in self._gradients.values()))

    def all_finite(self) -> Any:
        """Whether no gradient holds an infinity or NaN: a bool, and inside a compiled function a tensor without axes."""
        found = [_core.ops["isfinite"](g).all() for g in self._gradients.values()]
        if any(isinstance(x, Tracer) for x in found):
            return functools.reduce(_core.ops["logical_and"], found)
        return all(map(bool, found))

    def _rows(self, names: dict[int, str]) -> list[tuple[str, str, str]]:
        """Name, type and norm of the first gradients."""
        shown = list(self._gradients.items())[:MOST_SHOWN]
        return [
            (
                names.get(k, f"tensor {k}"),
                f"{g.dtype.name}{tuple(g.shape)}",
                f"{_norm(g):.4g}" if g._plain else "traced",
            )
            for k, g in shown
        ]

    def _title(self) -> str:
        n = len(self._gradients)
        total = f", norm {self.global_norm():.4g}" if n and all(g._plain for g in self.values()) else ""
        return f"GradientMap of {n} gradient{'' if n == 1 else 's'}{total}"

    def __repr__(self) -> str:
        rows = self._rows(names_in(sys._getframe(1)))
        widths = [max((len(r[i]) for r in rows), default=0) for i in (0, 1)]
        lines = [f"  {name:<{widths[0]}}  {kind:<{widths[1]}}  norm {norm}" for name, kind, norm in rows]
        return "\n".join([self._title(), *lines, *self._rest()])

    def _repr_html_(self) -> str:
        rows = self._rows(names_in(sys._getframe(1)))
        return table(["gradient of", "type", "norm"], rows, "; ".join([self._title(), *map(str.strip, self._rest())]))

    def _rest(self) -> list[str]:
        hidden = len(self._gradients) - MOST_SHOWN
        return [f"  and {hidden} more"] if hidden > 0 else []


def names_in(frame: Any) -> dict[int, str]:
    """Names of tensors in the scope where a map is printed and in the main module: variables, and parameters of networks."""
    found: dict[int, str] = {}
    main = sys.modules.get("__main__")
    for variables in (frame.f_locals, frame.f_globals, vars(main) if main else {}):
        for name, value in list(variables.items()):
            if name.startswith("_"):
                continue
            if isinstance(value, Tensor):
                found.setdefault(value.id, name)
            elif not isinstance(value, type) and hasattr(type(value), "named_parameters"):
                for inner, p in value.named_parameters():
                    found.setdefault(p.id, f"{name}.{inner}")
    return found


def _norm(g: Tensor) -> float:
    wide = abs(g.detach()).astype("float64")
    return math.sqrt(float((wide * wide).sum()))


def _restored(gradients: dict[int, Tensor]) -> GradientMap:
    made = GradientMap()
    made._gradients = gradients
    return made
