"""Adam and AdamW."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from wengert._core import Tensor
from wengert.autograd.creation import asarray, zeros
from wengert.dtypes import float64
from wengert.errors import ArgumentError
from wengert.functional.arguments import as_dtype_of, native
from wengert.optim.optimizer import Group, Optimizer, Parameters, _check_positive
from wengert.optim.update import Rule, state_dtype
from wengert.program.compile import composite
from wengert.program.tree import flatten, tree_map, unflatten

_sqrt, _square, _expm1 = native("sqrt"), native("square"), native("expm1")


@dataclass(frozen=True, slots=True)
class AdamConfig:
    """Options of Adam and AdamW: `Adam(params, config=AdamConfig(lr=1e-3))`.

    >>> AdamConfig(lr=3e-4).betas
    (0.9, 0.999)
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0


# With ŝ = lr √(1 − β₂ᵗ) / (1 − β₁ᵗ) and ε̂ = eps √(1 − β₂ᵗ), the paper's lr m̂ / (√v̂ + eps) is ŝ m / (√v + ε̂).
def _adam(p: Any, g: Any, m: Any, v: Any, gain1: Any, keep2: Any, gain2: Any, rate: Any, floor: Any) -> tuple[Any, ...]:
    m = m + (g - m) * gain1
    v = v * keep2 + _square(g) * gain2
    return p - m * rate / (_sqrt(v) + floor), m, v


def _adam_with_penalty(p: Any, g: Any, m: Any, v: Any, *numbers: Any) -> tuple[Any, ...]:
    *others, decay = numbers
    return _adam(p, g + p * decay, m, v, *others)


def _adam_with_decay(p: Any, g: Any, m: Any, v: Any, *numbers: Any) -> tuple[Any, ...]:
    *others, keep = numbers
    return _adam(p * keep, g, m, v, *others)


class Adam(Optimizer):
    """m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², p ← p − lr m̂ / (√v̂ + eps) (Kingma & Ba, 2015).

    m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) at step t. `weight_decay` λ adds λ p to the gradient.

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = Adam([p], lr=0.1)
    >>> _ = (p * p).sum().backward()
    >>> opt.step()
    >>> p.tolist()
    [0.8999..., 0.8999...]
    """

    slots: ClassVar[tuple[str, ...]] = ("m", "v")
    _default: ClassVar[AdamConfig] = AdamConfig()
    _rules: ClassVar[tuple[Rule, Rule]] = (_adam, _adam_with_penalty)

    def __init__(
        self,
        params: Parameters | None = None,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        *,
        config: AdamConfig | None = None,
    ) -> None:
        base = config or self._default
        super().__init__(
            params,
            lr=base.lr if lr is None else lr,
            betas=base.betas if betas is None else tuple(betas),
            eps=base.eps if eps is None else eps,
            weight_decay=base.weight_decay if weight_decay is None else weight_decay,
        )

    def check(self, group: Group) -> None:
        """Raise if an option of the group makes no sense."""
        super().check(group)
        _check_positive(type(self).__name__, eps=group["eps"])
        if len(group["betas"]) != 2 or not all(0.0 <= b < 1.0 for b in group["betas"]):
            raise ArgumentError(f"{type(self).__name__}: betas are two numbers in [0, 1), got {group['betas']}")

    def rule(self, group: Group) -> Rule:
        """Adam, with weight decay if there is any."""
        return self._rules[bool(group["weight_decay"])]

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """1 − β₁, β₂, 1 − β₂, ŝ, ε̂, and what weight decay needs."""
        lr, (b1, b2), decay = group["lr"], group["betas"], group["weight_decay"]
        root = math.sqrt(1.0 - b2**step)
        numbers = (1.0 - b1, b2, 1.0 - b2, lr * root / (1.0 - b1**step), group["eps"] * root)
        return (*numbers, self._decay(lr, decay)) if decay else numbers

    @staticmethod
    def _decay(lr: Any, weight_decay: float) -> Any:
        return weight_decay

    # -------------------------------------------------------------------------------------------- pure form

    @classmethod
    def init(cls, params: Any) -> dict[str, Any]:
        """The state for parameters in any nested containers: the step count, m and v.

        >>> import wengert as wg
        >>> sorted(Adam.init({"w": wg.ones((3,))}))
        ['m', 'step', 'v']
        """

        def start(p: Tensor) -> Tensor:
            return zeros(p.shape, dtype=state_dtype(p.dtype))

        return {"step": zeros((), dtype=float64), "m": tree_map(start, params), "v": tree_map(start, params)}

    @classmethod
    def update(
        cls,
        params: Any,
        grads: Any,
        state: dict[str, Any],
        *,
        lr: Any = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """One step without side effects: new parameters and a new state. `lr` may be a tensor; gradients flow through all.

        >>> import wengert as wg
        >>> params = {"w": wg.ones((2,))}
        >>> state = Adam.init(params)
        >>> params, state = Adam.update(params, {"w": wg.ones((2,))}, state, lr=0.5)
        >>> params["w"].tolist(), state["step"].item()
        ([0.5, 0.5], 1.0)
        """
        base = cls._default
        b1, b2 = base.betas if betas is None else betas
        decay = base.weight_decay if weight_decay is None else weight_decay
        # Tensors, in double precision: then neither the rate nor the step count is a constant of a trace.
        rate, step = asarray(base.lr if lr is None else lr, dtype=float64), state["step"] + 1.0
        root = _sqrt(_bias(b2, step))
        floor = root * (base.eps if eps is None else eps)
        numbers = [1.0 - b1, b2, 1.0 - b2, rate * root / _bias(b1, step), floor]
        numbers += [cls._decay(rate, decay)] if decay else []
        rule = _compiled(cls._rules[bool(decay)])

        def one(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
            wide = state_dtype(p.dtype)
            given = [as_dtype_of(x, wide) if isinstance(x, Tensor) else x for x in numbers]
            new_p, m, v = rule(as_dtype_of(p, wide), as_dtype_of(g, wide), m, v, *given)
            return as_dtype_of(new_p, p.dtype), m, v

        ps, structure = flatten(params)
        others = [flatten(t)[0] for t in (grads, state["m"], state["v"])]
        if any(len(leaves) != len(ps) for leaves in others):
            raise ArgumentError(
                f"{cls.__name__}.update: {len(ps)} parameters, but gradients and state for {[len(x) for x in others]}"
            )
        new = [one(*leaves) for leaves in zip(ps, *others)]
        new_params, m, v = (unflatten(structure, [r[k] for r in new]) for k in range(3))
        return new_params, {"step": step, "m": m, "v": v}


def _bias(beta: float, step: Any) -> Any:
    """1 − βᵗ, in a form that keeps its digits while βᵗ is near 1."""
    return -_expm1(step * math.log(beta)) if beta else 1.0


_compiled = functools.cache(composite)


class AdamW(Adam):
    """Adam with decoupled weight decay: p ← (1 − lr λ) p before the step (Loshchilov & Hutter, 2019). λ is 0.01 by default.

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = AdamW([p], lr=0.1, weight_decay=0.5)
    >>> p.set_grad([0.0, 0.0])
    >>> opt.step()
    >>> p.tolist()
    [0.94999..., 0.94999...]
    """

    _default: ClassVar[AdamConfig] = AdamConfig(weight_decay=0.01)
    _rules: ClassVar[tuple[Rule, Rule]] = (_adam, _adam_with_decay)

    @staticmethod
    def _decay(lr: Any, weight_decay: float) -> Any:
        return 1.0 - lr * weight_decay
