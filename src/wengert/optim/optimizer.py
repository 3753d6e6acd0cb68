"""The base of all optimizers: parameter groups, state, and the step."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.dtypes import DType
from wengert.errors import ArgumentError, DTypeError, GradientError, ShapeError
from wengert.modes import no_grad
from wengert.nn.parameter import Parameter, reset_grads
from wengert.optim import stateless
from wengert.optim.update import Rule, state_dtype, update_program
from wengert.optim.update_batch import Plan, UpdateBatch
from wengert.program.call_trace import CallTrace, call_trace
from wengert.program.trace import Tracer, untraced
from wengert.tensors.conversion import asarray, tensor
from wengert.tensors.creation import full
from wengert.tensors.device import device_of, like

Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
Group = dict[str, Any]
Options = Mapping[str, Any]


class Optimizer:
    """Base class of optimizers. A subclass has a `Config` of options, and a rule, in wengert operations, that updates
    one parameter.

    - `params`: tensors, (name, tensor) pairs, or groups `{"params": [...], "lr": ...}` with their own options.
    - `config`: the options as an object, instead of by name.

    `param_groups` holds the options in force; changing one (a learning rate, say) takes effect at the next step.
    `step`, which updates in place, and the pure `update` run the same rule. Copies and pickles hold copies of the
    parameters, so copy a network together with its optimizer: `copy.deepcopy((net, opt))`.

    >>> import wengert as wg
    >>> p = wg.Parameter(wg.tensor([1.0, 2.0]))
    >>> opt = wg.optim.SGD([p], lr=0.5)
    >>> isinstance(opt, Optimizer), opt.param_groups[0]["lr"]
    (True, 0.5)
    >>> opt.step((p * p).sum().backward())
    >>> p.tolist()
    [0.0, 0.0]
    """

    Config: ClassVar[type[Any]]
    elementwise: ClassVar[bool] = True  # False: the rule looks at a whole tensor, not at one element

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if hasattr(cls, "Config"):
            cls.__signature__ = _signature(cls.Config)  # type: ignore[attr-defined]

    def __init__(self, params: Any = None, *values: Any, config: Any = None, **options: Any) -> None:
        """Options by position or name, in the order of the Config, which alone defines them; None stands for its value."""
        given = self._named(values, options)
        if dataclasses.is_dataclass(params):  # Adam(AdamConfig(...)): to be given pairs
            if config is not None:
                raise ArgumentError(f"{type(self).__name__}: config is given twice")
            params, config = None, params
        if config is not None and not isinstance(config, self.Config):
            raise ArgumentError(
                f"{type(self).__name__}: config must be of type {self.Config.__name__}, got {type(config).__name__}"
            )
        chosen = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if v is not None}
        self.defaults = {**_fields(config or self.Config()), **chosen}
        self.param_groups: list[Group] = []
        self._names: dict[int, str] = {}
        self._update_batches: list[list[UpdateBatch]] = []
        listed = _as_list(params, type(self).__name__)
        if listed and isinstance(listed[0], dict):
            for group in listed:
                self.add_param_group(group)
        else:
            self.add_param_group({"params": listed})
            if params is not None and not listed:
                raise ArgumentError(f"{type(self).__name__}: the list of parameters is empty")

    @classmethod
    def _named(cls, values: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """Options by name, of those that were given by position and by name."""
        fields = dataclasses.fields(cls.Config)
        by_position = [f.name for f in fields if not f.kw_only]
        names = ", ".join(f.name for f in fields)
        if len(values) > len(by_position):
            raise TypeError(f"{cls.__name__} takes {len(by_position)} options by position, got {len(values)}: {names}")
        named = dict(zip(by_position, values))
        for name in options:
            if name in named:
                raise TypeError(f"{cls.__name__}: {name} is given by position and by name")
            if not any(f.name == name for f in fields):
                raise TypeError(f"{cls.__name__} has no option {name!r}; it has {names}")
        return {**named, **options}

    # ----------------------------------------------------------------------------------- what subclasses say

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense. What options of the same name have in common is checked here."""
        for name, value in options.items():
            if name in _NOT_NEGATIVE and value is not None and not isinstance(value, tuple):
                check_positive(cls.__name__, **{name: value})
            elif name in _FRACTIONS:
                check_fraction(cls.__name__, **{name: value})
            elif name == "betas":
                check_betas(cls.__name__, value)

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """The state of a parameter: names, and what each starts from."""
        return {}

    @classmethod
    def state_shapes(cls, options: Options, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The shapes of the state of a parameter of this shape."""
        return (shape,) * len(cls.slots(options))

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """rule(p, g, *state, *scalars) → (p, *state), in wengert ops. Equal options give the same object."""
        raise NotImplementedError(f"{cls.__name__} does not define rule")

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """The scalars that the rule takes at this step, counted from 1; in the pure form `lr` and `step` are tensors."""
        raise NotImplementedError(f"{cls.__name__} does not define scalars")

    # ------------------------------------------------------------------------------------------------ groups

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with their own options.

        >>> import wengert as wg
        >>> opt = wg.optim.SGD([wg.Parameter.ones((2,))], lr=0.1)
        >>> opt.add_param_group({"params": [wg.Parameter.ones((2,))], "lr": 1.0})
        >>> [g["lr"] for g in opt.param_groups]
        [0.1, 1.0]
        """
        name = type(self).__name__
        unknown = [k for k in group if k != "params" and k not in self.defaults]
        if unknown:
            raise ArgumentError(f"{name}: no option {', '.join(unknown)}; there are {', '.join(self.defaults)}")
        made: Group = {"params": [], **self.defaults, **{k: v for k, v in group.items() if k != "params"}}
        self.check(made)
        self.param_groups.append(made)
        self._update_batches.append([])
        for p in _as_list(group["params"], name):
            self._add(len(self.param_groups) - 1, p)

    def _add(self, k: int, named: Any) -> None:
        name, p = named if isinstance(named, tuple) else (None, named)
        p = _trained(p)
        who = type(self).__name__
        if not isinstance(p, Tensor):
            raise ArgumentError(f"{who}: parameters must be tensors, got {type(p).__name__}; pass net.parameters()")
        if p.id in self._names:
            raise ArgumentError(f"{who}: {self._names[p.id]} is given twice")
        label = f"{name or f'parameter {len(self._names)}'} {p.dtype.name}{tuple(p.shape)}"
        if not p.dtype.is_floating:
            raise DTypeError(f"{who}: {label} cannot be trained; only real floating tensors can")
        if not p.is_leaf:
            raise ArgumentError(f"{who}: {label} is the result of a recorded op; only leaves can be trained")
        self._names[p.id] = label
        self.param_groups[k]["params"].append(p)
        for update_batch in self._update_batches[k]:
            if update_batch.steps == 0 and update_batch.dtype == p.dtype:
                update_batch.parameters.append(p)
                update_batch.states.append([])
                return
        self._update_batches[k].append(UpdateBatch(p.dtype, [p], [[]], 0))

    # -------------------------------------------------------------------------------------------------- steps

    def step(self, grads: Any = None) -> Any:
        """Update every parameter that has a gradient.

        - `grads`: by default, the gradients in `.grad`. The map that `backward` returns is used instead if given, and
          the `.grad` of its tensors is cleared. Also accepted: (parameter, gradient) pairs, and a list with one
          gradient, or None, per parameter in the order in which the parameters were given.

        >>> import wengert as wg
        >>> p = wg.Parameter.ones((2,))
        >>> opt = wg.optim.SGD([p], lr=0.5)
        >>> grads = (p * p).sum().backward()
        >>> opt.step(grads)
        >>> p.tolist()
        [0.0, 0.0]
        """
        if grads is None:
            self._step(None)
        elif isinstance(grads, GradientMap):
            self._step({key: g for key, g in grads.items() if key in self._names})
            for p in self._parameters():
                if p in grads:
                    p.grad = None
        else:
            self._step(self._by_id(self._paired(grads), "step"))

    def _paired(self, grads: Any) -> list[Any]:
        """(parameter, gradient) pairs: these, or of gradients in the order of the parameters."""
        who = f"{type(self).__name__}.step"
        if isinstance(grads, (Tensor, Mapping, str)) or not isinstance(grads, Iterable):
            raise ArgumentError(
                f"{who}: takes the map that backward() returns, (parameter, gradient) pairs, a list with one gradient per "
                f"parameter, or nothing, got {type(grads).__name__}"
            )
        given, parameters = list(grads), self._parameters()
        if given and all(isinstance(x, tuple) and len(x) == 2 for x in given):
            return given
        if len(given) != len(parameters):
            raise ArgumentError(
                f"{who}: {len(given)} gradients for {len(parameters)} parameters ({_some(self._names.values())}); a list "
                "has one for each, in their order, None where there is none"
            )
        return [(p, g) for p, g in zip(parameters, given) if g is not None]

    def apply_gradients(self, pairs: Iterable[tuple[Tensor, Any]]) -> None:
        """Update these parameters by these gradients; parameters that are new join the first group.

        >>> import wengert as wg
        >>> p = wg.Parameter.ones((2,))
        >>> wg.optim.SGD(lr=0.5).apply_gradients([(p, wg.ones((2,)))])
        >>> p.tolist()
        [0.5, 0.5]
        """
        self._step(self._by_id(pairs, "apply_gradients"))

    def _by_id(self, pairs: Iterable[Any], who: str) -> dict[int, Tensor]:
        """Gradients that fit, by the id of their parameter; nothing has changed if one does not."""
        listed = [
            (_trained(pair[0]), *pair[1:]) if isinstance(pair, (tuple, list)) and pair else pair for pair in pairs
        ]
        for pair in listed:
            self._check_pair(pair, who)
        given: dict[int, Tensor] = {}
        for p, g in listed:
            if p.id not in self._names:
                self._add(0, p)
            if g is None:
                raise GradientError(
                    f"{who}: {self._names[p.id]} has no gradient (None): the loss does not depend on it, or "
                    "backward has not run. Leave this pair out; wengert.explain(grads, parameter) says where its path ends"
                )
            g = asarray(g)
            if tuple(g.shape) != tuple(p.shape):
                raise ShapeError(f"{who}: a gradient of shape {tuple(g.shape)} does not fit {self._names[p.id]}")
            given[p.id] = g if g.dtype == p.dtype else g.astype(p.dtype)
        return given

    def _check_pair(self, pair: Any, who: str) -> None:
        """Raise unless the first of the pair is a parameter: a gradient must not be trained in its place."""
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError(f"{who}: takes (parameter, gradient) pairs, got {type(pair).__name__}")
        p, g = pair
        if self._is_parameter(p):
            return
        given = f"{p.dtype.name}{tuple(p.shape)}" if isinstance(p, Tensor) else f"of type {type(p).__name__}"
        if self._is_parameter(g):
            raise ArgumentError(
                f"{who}: pairs must be (parameter, gradient), but the first of a pair is {given}, and the second is a "
                "parameter. For zip(grads, params), as in Keras, write zip(params, grads)"
            )
        raise ArgumentError(
            f"{who}: the first of a pair is {given}, which is not a parameter of this {type(self).__name__} nor a "
            f"wengert.Parameter, and does not require a gradient; pass it to {type(self).__name__}([...]) to train it"
        )

    def _is_parameter(self, x: Any) -> bool:
        return isinstance(x, Tensor) and (
            x.id in self._names or isinstance(x, Parameter) or (x.requires_grad and x.is_leaf)
        )

    def compute_update(self, p: Tensor, gradient: Any) -> Tensor:
        """What a step with this gradient adds to the parameter, for `p.apply_update`. The optimizer's state takes the
        step; the parameter stays as it is.

        >>> import wengert as wg
        >>> p = wg.Parameter.ones((2,))
        >>> update = wg.optim.SGD([p], lr=0.5).compute_update(p, wg.ones((2,)))
        >>> update.tolist(), p.tolist()
        ([-0.5, -0.5], [1.0, 1.0])
        """
        given = self._by_id([(p, gradient)], "compute_update")
        before = tensor(p.detach())
        self._step(given)
        with no_grad():
            update = p.detach() - before
            p._assign(before, "compute_update")
        return update

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters: `.grad` is None again, or zeros where one was with `set_to_none=False`."""
        reset_grads(self._parameters(), set_to_none)

    def _step(self, given: dict[int, Tensor] | None) -> None:
        updated = False
        for k, update_batches in enumerate(self._update_batches):
            for update_batch in tuple(update_batches):
                gradients = (
                    None if given is None else [_in_dtype_of(p, given.get(p.id)) for p in update_batch.parameters]
                )
                if update_batch.steps == 0 or not self._update(k, update_batch, gradients):
                    updated |= self._update_part(k, update_batch, gradients)
                else:
                    updated = True
        if not updated:
            raise GradientError(
                f"{type(self).__name__}.step: no gradient reached any of the {len(self._names)} parameters "
                f"({_some(self._names.values())}); call backward() on a loss that depends on them first"
            )

    def _update(self, k: int, update_batch: UpdateBatch, gradients: list[Tensor | None] | None) -> bool:
        """Update all of the update_batch, of group k; False, and nothing is changed, if a gradient is missing."""
        options = _options(self.param_groups[k])
        trace = call_trace()
        if trace is not None:
            return self._update_in_trace(trace, k, update_batch, gradients)
        scalars = self.scalars(options, update_batch.steps + 1)
        plan, now = update_batch.plan, list(options.values())
        if plan is None or plan.options != now:
            plan = self._plan(options, update_batch, len(scalars))
            update_batch.plan = plan if _unchangeable(options) else None
        return update_batch.run(plan, gradients, scalars)

    def _update_in_trace(self, trace: CallTrace, k: int, update_batch: UpdateBatch, gradients: Any) -> bool:
        """`_update` in every call of the function that is traced, with the learning rate and the count of that call.

        Where another state was loaded since, or an option other than the learning rate was changed, the function is traced
        anew.
        """
        found: list[Any] = [p.grad for p in update_batch.parameters] if gradients is None else gradients
        if any(g is None for g in found):
            return False
        group, batches, ahead = self.param_groups[k], self._update_batches, trace.steps.get(update_batch, 0)
        rule, n = self.rule(_options(group)), len(update_batch.parameters)
        parameters, states = update_batch.parameters, update_batch.states

        def scalars() -> tuple[Any, ...] | None:
            options = _options(group)
            is_same = (
                update_batch.parameters is parameters
                and update_batch.states is states
                and len(parameters) == n
                and update_batch in batches[k]
                and self.rule(options) is rule
            )
            return self.scalars(options, update_batch.steps + 1 + ahead) if is_same else None

        trace.assumed.append(
            f"{type(self).__name__}: its parameters, their state, and the options that change the formula"
        )
        count = len(self.scalars(_options(group), 1))
        numbers, condition = trace.scalars(scalars, count, state_dtype(update_batch.dtype)), trace.condition
        update_batch.trace_step(rule, found, numbers, None if condition is None else condition.holds)
        made = trace.steps[update_batch] = ahead + 1
        held = None if condition is None else condition.held  # what is called later must not hold the trace
        trace.commits[update_batch] = lambda: update_batch.count(made if held is None or held() else ahead)
        return True

    def _plan(self, options: Options, update_batch: UpdateBatch, n_scalars: int) -> Plan:
        slots, rule = self.slots(options), self.rule(options)
        if len(slots) != len(update_batch.states[0]):
            raise ArgumentError(
                f"{type(self).__name__}.step: the options now need {', '.join(slots) or 'no state'}, but the "
                f"state was made for others after {update_batch.steps} steps; make a new optimizer"
            )
        program = update_program(rule, update_batch.dtype, len(slots), n_scalars) if self.elementwise else None
        return Plan(list(options.values()), update_batch.dtype, rule, len(slots), program)

    def _update_part(self, k: int, update_batch: UpdateBatch, gradients: list[Tensor | None] | None) -> bool:
        """Update those of the update_batch that have gradients; the others stay behind, as a update_batch of their own."""
        found = [p.grad for p in update_batch.parameters] if gradients is None else gradients
        missing = [i for i, g in enumerate(found) if g is None]
        if len(missing) == len(found):
            return False
        if missing:
            self._update_batches[k].append(update_batch.split(missing))
        for p, state in zip(update_batch.parameters, update_batch.states):
            if not state:
                state += self._start(self.param_groups[k], p)
        return self._update(k, update_batch, [g for g in found if g is not None])

    @classmethod
    def _start(cls, options: Options, p: Tensor) -> list[Tensor]:
        shapes, values = cls.state_shapes(options, tuple(p.shape)), cls.slots(options).values()
        wide = state_dtype(p.dtype)
        with untraced():  # the state is there before and after a call
            where = like(p)
            return [full(shape, v, dtype=wide, requires_grad=False, device=where) for shape, v in zip(shapes, values)]

    # -------------------------------------------------------------------------------------------------- state

    def _find(self) -> dict[int, tuple[UpdateBatch, int]]:
        """Where each parameter is, by id."""
        return {
            p.id: (update_batch, i)
            for update_batches in self._update_batches
            for update_batch in update_batches
            for i, p in enumerate(update_batch.parameters)
        }

    def state_dict(self) -> dict[str, Any]:
        """Options, steps and copies of the state, with parameters numbered in the order they were given."""
        places, state, groups, n = self._find(), {}, [], 0
        for group in self.param_groups:
            numbered = range(n, n + len(group["params"]))
            for number, p in zip(numbered, group["params"]):
                update_batch, i = places[p.id]
                if update_batch.steps:
                    copies = {name: tensor(t) for name, t in zip(self.slots(group), update_batch.states[i])}
                    state[number] = {"step": update_batch.steps, **copies}
            options = {k: tensor(v) if isinstance(v, Tensor) else v for k, v in group.items()}
            groups.append({**options, "params": list(numbered)})
            n = numbered.stop
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned. All that does not fit is named at once, and then nothing is loaded."""
        who = type(self).__name__
        if not {"param_groups", "state"} <= set(state):
            raise ArgumentError(
                f"load_state_dict: this is not the state of an optimizer; {who}.state_dict() returns one"
            )
        groups, kept = state["param_groups"], state["state"]
        sizes, own = [len(g["params"]) for g in groups], [len(g["params"]) for g in self.param_groups]
        if sizes != own:
            raise ArgumentError(f"load_state_dict: the state has groups of {sizes} parameters, this {who} of {own}")
        problems = []
        for loaded, group in zip(groups, self.param_groups):
            foreign = [k for k in loaded if k not in group]
            problems += [f"{who} has no option {k}" for k in foreign]
            options = {**group, **{k: v for k, v in loaded.items() if k not in foreign}}
            for number, p in zip(loaded["params"], group["params"]):
                problems += self._misfits(options, kept.get(number), p)
        if problems:
            raise ArgumentError("load_state_dict: the state does not fit:\n  " + "\n  ".join(problems))
        for k, (group, loaded) in enumerate(zip(self.param_groups, groups)):
            group.update({name: v for name, v in loaded.items() if name != "params"})
            self._update_batches[k] = self._load_group(group, [kept.get(i) for i in loaded["params"]])

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which hold the parameters, too; ids of theirs are those of the copies."""
        return {**vars(self), "_names": [self._names[p.id] for p in self._parameters()]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._names = {p.id: label for p, label in zip(self._parameters(), state["_names"])}

    def _misfits(self, options: Options, entry: Mapping[str, Any] | None, p: Tensor) -> list[str]:
        problems = []
        for name, shape in zip(self.slots(options), self.state_shapes(options, tuple(p.shape))):
            if entry is None:
                break
            if name not in entry:
                problems.append(f"{self._names[p.id]}: {name} is missing")
            elif tuple(entry[name].shape) != shape:
                problems.append(f"{self._names[p.id]}: {name} has shape {tuple(entry[name].shape)}, needed is {shape}")
        return problems

    def _parameters(self) -> list[Tensor]:
        return [p for g in self.param_groups for p in g["params"]]

    def _load_group(self, group: Group, kept: list[Any]) -> list[UpdateBatch]:
        update_batches: dict[tuple[DType, int], UpdateBatch] = {}
        for p, entry in zip(group["params"], kept):
            steps = int(entry["step"]) if entry else 0
            update_batch = update_batches.setdefault((p.dtype, steps), UpdateBatch(p.dtype, [], [], steps))
            update_batch.parameters.append(p)
            names = self.slots(group) if entry else ()
            wide = state_dtype(p.dtype)
            where = device_of(p)
            loaded = [tensor(entry[n], dtype=wide, requires_grad=False, device=where) for n in names]
            update_batch.states.append(loaded)
        return list(update_batches.values())

    def __repr__(self) -> str:
        lines = []
        for group in self.param_groups:
            options = ", ".join(f"{k}={v}" for k, v in group.items() if k != "params")
            lines.append(f"{type(self).__name__}({len(group['params'])} parameters, {options})")
        return "\n".join(lines)

    # ---------------------------------------------------------------------------------------------- pure form

    @classmethod
    def _options(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        options = _fields(cls.Config())
        unknown = [k for k in given if k not in options]
        if unknown:
            raise ArgumentError(f"{cls.__name__}: no option {', '.join(unknown)}; there are {', '.join(options)}")
        return {**options, **given}

    @classmethod
    def init(cls, params: Any, **options: Any) -> dict[str, Any]:
        """The state for parameters in any nested containers: the step count, and a tree for each tensor of the state.

        Options that the state depends on (a momentum) are given here and to `update`.

        >>> import wengert as wg
        >>> sorted(wg.optim.Adam.init({"w": wg.ones((3,))}))
        ['m', 'step', 'v']
        """
        return stateless.init(cls, params, cls._options(options))

    @classmethod
    def update(
        cls, params: Any, grads: Any, state: Mapping[str, Any], *, lr: Any = None, **options: Any
    ) -> tuple[Any, dict[str, Any]]:
        """One step without side effects: new parameters and a new state. `lr` may be a tensor; gradients flow through all.

        >>> import wengert as wg
        >>> params = {"w": wg.ones((2,))}
        >>> state = wg.optim.Adam.init(params)
        >>> params, state = wg.optim.Adam.update(params, {"w": wg.ones((2,))}, state, lr=0.5)
        >>> params["w"].tolist(), state["step"].item()
        ([0.5, 0.5], 1.0)
        """
        given = options if lr is None else {**options, "lr": lr}
        return stateless.update(cls, params, grads, state, cls._options(given))


_NOT_NEGATIVE = frozenset(
    ("lr", "weight_decay", "eps", "momentum", "lr_decay", "damping", "initial_accumulator_value", "d", "momentum_decay",
     "tolerance_grad", "tolerance_change")
)  # fmt: skip
_FRACTIONS = frozenset(("alpha", "rho"))


def _signature(config: type[Any]) -> inspect.Signature:
    """What an optimizer with these options is called with: `(params=None, lr=0.001, …, *, config=None)`."""
    make = inspect.Parameter
    listed = [make("params", make.POSITIONAL_OR_KEYWORD, default=None)]
    fields = sorted(dataclasses.fields(config), key=lambda f: bool(f.kw_only))
    for f in fields:
        kind = make.KEYWORD_ONLY if f.kw_only else make.POSITIONAL_OR_KEYWORD
        listed.append(make(f.name, kind, default=f.default, annotation=f.type))
    listed.append(make("config", make.KEYWORD_ONLY, default=None, annotation=f"{config.__name__} | None"))
    return inspect.Signature(listed)


def _fields(config: Any) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}


def _unchangeable(options: Options) -> bool:
    """Whether options can only be exchanged, which is seen, and not changed from within."""
    try:
        hash(tuple(v for k, v in options.items() if k != "params"))
    except TypeError:
        return False
    return True


def _in_dtype_of(p: Tensor, g: Tensor | None) -> Tensor | None:
    """A gradient as the step of this parameter takes it: rounded if it is a float32 sum of half-precision gradients."""
    if g is None or g.dtype.code == p.dtype.code or g.dtype != state_dtype(p.dtype):
        return g
    return g.astype(p.dtype)


def _trained(p: Any) -> Any:
    """The parameter that holds a variable of a static graph; anything else is itself."""
    return getattr(p, "parameter", p) if isinstance(p, Tracer) else p


def _as_list(params: Any, name: str) -> list[Any]:
    if params is None:
        return []
    if isinstance(params, (Tensor, str)) or not isinstance(params, Iterable):
        raise ArgumentError(
            f"{name}: parameters must be a list, got {type(params).__name__}; pass net.parameters() or [p]"
        )
    return list(params.items() if hasattr(params, "items") else params)


def check_positive(name: str, **options: Any) -> None:
    """Raise, naming the option, if one is negative or NaN."""
    for option, value in options.items():
        if not value >= 0.0:
            raise ArgumentError(f"{name}: {option} must not be negative, got {value}")


def check_fraction(name: str, **options: Any) -> None:
    """Raise, naming the option, if one does not lie in [0, 1)."""
    for option, value in options.items():
        if not 0.0 <= value < 1.0:
            raise ArgumentError(f"{name}: {option} must be in [0, 1), got {value}")


def _options(group: Group) -> Options:
    """The options as they are now, the learning rate as a number."""
    lr = group["lr"]
    return {**group, "lr": float(lr)} if isinstance(lr, Tensor) else group


def check_betas(name: str, betas: Any) -> None:
    """Raise unless these are two numbers in [0, 1)."""
    if len(betas) != 2 or not all(0.0 <= b < 1.0 for b in betas):
        raise ArgumentError(f"{name}: betas must be two numbers in [0, 1), got {betas}")


def _some(labels: Iterable[str], most: int = 6) -> str:
    known = list(labels)
    return ", ".join(known[:most]) + (f", and {len(known) - most} more" if len(known) > most else "")
