"""The base of all optimizers: parameter groups, state, and the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.creation import asarray, tensor, zeros
from wengert.autograd.gradient_map import GradientMap
from wengert.dtypes import DType
from wengert.errors import ArgumentError, DTypeError, GradientError, ShapeError
from wengert.optim.update import Rule, state_dtype, update_program

Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
Group = dict[str, Any]


class _Cohort:
    """Parameters of one group and one dtype that have made the same number of steps: one native call updates them."""

    __slots__ = ("dtype", "parameters", "states", "steps")

    def __init__(self, dtype: DType, parameters: list[Tensor], states: list[list[Tensor]], steps: int) -> None:
        self.dtype = dtype
        self.parameters = parameters
        self.states = states
        self.steps = steps

    def split(self, chosen: Sequence[int]) -> _Cohort:
        """Take the parameters at these positions out, as a cohort of their own."""
        out = set(chosen)
        parameters, states = [self.parameters[k] for k in chosen], [self.states[k] for k in chosen]
        self.parameters = [p for k, p in enumerate(self.parameters) if k not in out]
        self.states = [s for k, s in enumerate(self.states) if k not in out]
        return _Cohort(self.dtype, parameters, states, self.steps)


class Optimizer:
    """Base class. A subclass names its state and its numbers, and gives the rule that updates one parameter.

    `params`: tensors, (name, tensor) pairs, or groups `{"params": [...], "lr": ...}` with options of their own.
    `param_groups` holds the options in force; changing them (a learning rate) takes effect at the next step.
    """

    slots: ClassVar[tuple[str, ...]] = ()  # names of the state tensors of a parameter

    def __init__(self, params: Parameters | None, **options: Any) -> None:
        self.defaults = options
        self.param_groups: list[Group] = []
        self._names: dict[int, str] = {}
        self._cohorts: list[list[_Cohort]] = []
        given = _as_list(params, type(self).__name__)
        if given and isinstance(given[0], dict):
            for group in given:
                self.add_param_group(group)
        else:
            self.add_param_group({"params": given})
            if params is not None and not given:
                raise ArgumentError(f"{type(self).__name__}: the list of parameters is empty")

    # ----------------------------------------------------------------------------------- what subclasses say

    def check(self, group: Group) -> None:
        """Raise if an option of the group makes no sense."""
        _check_positive(type(self).__name__, lr=group["lr"], weight_decay=group["weight_decay"])

    def rule(self, group: Group) -> Rule:
        """rule(p, g, *state, *numbers) → (p, *state), in wengert ops."""
        raise NotImplementedError(f"{type(self).__name__} does not define rule")

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The numbers that the rule takes at this step, which counts from 1."""
        raise NotImplementedError(f"{type(self).__name__} does not define numbers")

    # ------------------------------------------------------------------------------------------------ groups

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with options of their own."""
        name = type(self).__name__
        unknown = [k for k in group if k != "params" and k not in self.defaults]
        if unknown:
            raise ArgumentError(f"{name}: no option {', '.join(unknown)}; there are {', '.join(self.defaults)}")
        made: Group = {"params": [], **self.defaults, **{k: v for k, v in group.items() if k != "params"}}
        self.check(made)
        self.param_groups.append(made)
        self._cohorts.append([])
        for p in _as_list(group["params"], name):
            self._add(len(self.param_groups) - 1, p)

    def _add(self, k: int, named: Any) -> None:
        name, p = named if isinstance(named, tuple) else (None, named)
        who = type(self).__name__
        if not isinstance(p, Tensor):
            raise ArgumentError(f"{who}: parameters are tensors, got a {type(p).__name__}; pass net.parameters()")
        if p.id in self._names:
            raise ArgumentError(f"{who}: {self._names[p.id]} is given twice")
        label = f"{name or f'parameter {len(self._names)}'} {p.dtype.name}{tuple(p.shape)}"
        if not p.dtype.is_floating:
            raise DTypeError(f"{who}: {label} cannot be trained; only real floating tensors can")
        if not p.is_leaf:
            raise ArgumentError(f"{who}: {label} is the result of a recorded op; only leaves can be trained")
        self._names[p.id] = label
        self.param_groups[k]["params"].append(p)
        for cohort in self._cohorts[k]:
            if cohort.steps == 0 and cohort.dtype == p.dtype:
                cohort.parameters.append(p)
                cohort.states.append([])
                return
        self._cohorts[k].append(_Cohort(p.dtype, [p], [[]], 0))

    # -------------------------------------------------------------------------------------------------- steps

    def step(self, grads: GradientMap | None = None) -> None:
        """Update every parameter that has a gradient: in `.grad`, or in the map, whose `.grad`s it then clears.

        >>> import wengert as wg
        >>> p = wg.Parameter.ones((2,))
        >>> opt = wg.optim.SGD([p], lr=0.5)
        >>> grads = (p * p).sum().backward()
        >>> opt.step(grads)
        >>> p.tolist()
        [0.0, 0.0]
        """
        if grads is not None:
            self._step({key: g for key, g in grads.items() if key in self._names})
            self._clear(grads)
            return
        self._step(None)

    def apply_gradients(self, pairs: Iterable[tuple[Tensor, Any]]) -> None:
        """Update these parameters by these gradients; parameters that are new join the first group.

        >>> import wengert as wg
        >>> p = wg.Parameter.ones((2,))
        >>> wg.optim.SGD(lr=0.5).apply_gradients([(p, wg.ones((2,)))])
        >>> p.tolist()
        [0.5, 0.5]
        """
        given: dict[int, Tensor] = {}
        for p, g in pairs:
            if p.id not in self._names:
                self._add(0, p)
            g = asarray(g)
            if tuple(g.shape) != tuple(p.shape):
                raise ShapeError(
                    f"apply_gradients: a gradient of shape {tuple(g.shape)} does not fit {self._names[p.id]}"
                )
            given[p.id] = g if g.dtype == p.dtype else g.astype(p.dtype)
        self._step(given)

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def _clear(self, grads: GradientMap) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p in grads:
                    p.grad = None

    def _step(self, given: dict[int, Tensor] | None) -> None:
        updated = False
        for k, group in enumerate(self.param_groups):
            for cohort in tuple(self._cohorts[k]):
                gradients = None if given is None else [given.get(p.id) for p in cohort.parameters]
                if cohort.steps == 0 or not self._update(group, cohort, gradients):
                    updated |= self._update_part(k, cohort, gradients)
                else:
                    updated = True
        if not updated:
            raise GradientError(
                f"{type(self).__name__}.step: none of the {len(self._names)} parameters has a gradient "
                f"({_some(self._names.values())}); call backward() on a loss that depends on them first"
            )

    def _update(self, group: Group, cohort: _Cohort, gradients: list[Tensor | None] | None) -> bool:
        """Update all of the cohort; False, and nothing is changed, if a gradient is missing."""
        numbers = self.numbers(group, cohort.steps + 1)
        program = update_program(self.rule(group), cohort.dtype, len(self.slots), len(numbers))
        wide = state_dtype(cohort.dtype).code
        if _core.update_in_place(program, cohort.parameters, gradients, cohort.states, numbers, wide) is not None:
            return False
        cohort.steps += 1
        return True

    def _update_part(self, k: int, cohort: _Cohort, gradients: list[Tensor | None] | None) -> bool:
        """Update those of the cohort that have gradients; the others stay behind, as a cohort of their own."""
        found = [p.grad for p in cohort.parameters] if gradients is None else gradients
        missing = [i for i, g in enumerate(found) if g is None]
        if len(missing) == len(found):
            return False
        if missing:
            self._cohorts[k].append(cohort.split(missing))
        for p, state in zip(cohort.parameters, cohort.states):
            if not state:
                state += [zeros(p.shape, dtype=state_dtype(p.dtype), requires_grad=False) for _ in self.slots]
        return self._update(self.param_groups[k], cohort, [g for g in found if g is not None])

    # -------------------------------------------------------------------------------------------------- state

    def _find(self) -> dict[int, tuple[_Cohort, int]]:
        """Where each parameter is, by id."""
        return {
            p.id: (cohort, i)
            for cohorts in self._cohorts
            for cohort in cohorts
            for i, p in enumerate(cohort.parameters)
        }

    def state_dict(self) -> dict[str, Any]:
        """Options, steps and copies of the state, with parameters numbered in the order they were given."""
        places, state, groups, n = self._find(), {}, [], 0
        for group in self.param_groups:
            numbered = range(n, n + len(group["params"]))
            for number, p in zip(numbered, group["params"]):
                cohort, i = places[p.id]
                if cohort.steps:
                    copies = {name: tensor(t) for name, t in zip(self.slots, cohort.states[i])}
                    state[number] = {"step": cohort.steps, **copies}
            groups.append({**group, "params": list(numbered)})
            n = numbered.stop
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave. All that does not fit is named at once, and then nothing is loaded."""
        groups, kept = state["param_groups"], state["state"]
        sizes, own = [len(g["params"]) for g in groups], [len(g["params"]) for g in self.param_groups]
        if sizes != own:
            raise ArgumentError(
                f"load_state_dict: the state has groups of {sizes} parameters, this {type(self).__name__} of {own}"
            )
        problems = []
        for number, p in zip((i for g in groups for i in g["params"]), self._parameters()):
            for name in self.slots if number in kept else ():
                t = kept[number].get(name)
                if t is None:
                    problems.append(f"{self._names[p.id]}: {name} is missing")
                elif tuple(t.shape) != tuple(p.shape):
                    problems.append(f"{self._names[p.id]}: {name} has shape {tuple(t.shape)}")
        if problems:
            raise ArgumentError("load_state_dict: the state does not fit:\n  " + "\n  ".join(problems))
        for k, (group, loaded) in enumerate(zip(self.param_groups, groups)):
            group.update({name: v for name, v in loaded.items() if name != "params"})
            self._cohorts[k] = self._load_group(group["params"], [kept.get(i) for i in loaded["params"]])

    def _parameters(self) -> list[Tensor]:
        return [p for g in self.param_groups for p in g["params"]]

    def _load_group(self, parameters: list[Tensor], kept: list[Any]) -> list[_Cohort]:
        cohorts: dict[Any, _Cohort] = {}
        for p, entry in zip(parameters, kept):
            steps = entry["step"] if entry else 0
            wide = state_dtype(p.dtype)
            cohort = cohorts.setdefault((p.dtype, steps), _Cohort(p.dtype, [], [], steps))
            cohort.parameters.append(p)
            names = self.slots if entry else ()
            cohort.states.append([tensor(entry[n], dtype=wide, requires_grad=False) for n in names])
        return list(cohorts.values())

    def __repr__(self) -> str:
        lines = []
        for group in self.param_groups:
            options = ", ".join(f"{k}={v}" for k, v in group.items() if k != "params")
            lines.append(f"{type(self).__name__}({len(group['params'])} parameters, {options})")
        return "\n".join(lines)


def _as_list(params: Any, name: str) -> list[Any]:
    if params is None:
        return []
    if isinstance(params, (Tensor, str)) or not isinstance(params, Iterable):
        raise ArgumentError(
            f"{name}: parameters come as a list, got a {type(params).__name__}; pass net.parameters() or [p]"
        )
    return list(params.items() if hasattr(params, "items") else params)


def _check_positive(name: str, **options: float) -> None:
    for option, value in options.items():
        if not value >= 0.0:
            raise ArgumentError(f"{name}: {option} must not be negative, got {value}")


def _some(labels: Iterable[str], most: int = 6) -> str:
    known = list(labels)
    return ", ".join(known[:most]) + (f", and {len(known) - most} more" if len(known) > most else "")
