"""Function transformations: grad, vjp, jvp and what is built of them. They nest freely, in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert import _core, tree
from wengert._core import Tensor
from wengert.errors import ArgumentError, CustomOpError, DTypeError, GradientError, ShapeError
from wengert.modes import enable_grad, running_reverse
from wengert.ops.tangents import conj, real
from wengert.program.call_trace import call_trace
from wengert.program.trace import Tracer
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import ones_like, zeros, zeros_like
from wengert.tensors.dual import DualTensor, _Level, running_forward
from wengert.tensors.leaving import numbers_kept, warn_of_independence
from wengert.tensors.rebinding import another_name, argument, end
from wengert.transforms.naming import named, transformed
from wengert.transforms.pullback import pull, require_real, require_scalar


def _source(x: Any, outer: bool, extent: int = 0) -> Any:
    """x as a new variable, tracked until the extent ends. Derivatives stop there, except those of an outer
    transformation."""
    trace = call_trace()
    absorbed = trace is not None and trace.absorbs and not x._plain and x._level < trace.level
    if isinstance(x, DualTensor) and not absorbed:
        value, tangent = x._trace.split(x)
        return x._trace.pair(_source(value, outer, extent), tangent)
    if isinstance(x, Tracer) or trace is not None:
        return OPS["copy"](x)
    if outer and (x.requires_grad or _core.recording_tapes()):
        same = OPS["reshape"](x, x.shape)
        if same.requires_grad:  # unless a tape was told to leave x alone
            if extent:
                _core.track_in_extent(same, extent)
            return same
    return _core.fresh_leaf(x.detach(), extent=extent)


def _as_differentiable(x: Any, what: str) -> Tensor:
    if isinstance(x, str):
        raise DTypeError(
            f"{what}: an argument holds the string {x!r}, which has no derivative; leave it out of argnums, or, in a "
            'dataclass, out of the leaves by dataclasses.field(metadata={"static": True})'
        )
    t = x if isinstance(x, Tensor) else asarray(x)
    if not t.dtype.is_inexact:
        raise DTypeError(
            f"{what}: an argument is {t.dtype.name}{tuple(t.shape)}; only floating tensors have derivatives. "
            "Convert it with astype, or leave it out of argnums"
        )
    return t


def _innermost(x: Any) -> Any:
    while isinstance(x, DualTensor):
        x = x.value
    return x


def _without_history(x: Any) -> Any:
    """x detached from the graph; tangents of an outer transformation stay, also under no_grad."""
    if isinstance(x, DualTensor):
        value, tangent = x._trace.split(x)
        return x._trace.dual(_without_history(value), None if tangent is None else _without_history(tangent))
    return x.detach()


def _tracked(x: Any) -> bool:
    """Whether x depends on something tracked; dependence only on arguments of a finished function does not count."""
    if isinstance(x, DualTensor):
        value, tangent = x._trace.split(x)
        return _tracked(value) or (tangent is not None and _tracked(tangent))
    return bool(x.requires_grad)


def result_leaves(result: Any, what: str) -> tuple[list[Any], Any]:
    """The results of a function as tensors, and their structure."""
    if result is None:
        raise GradientError(f"{what}: the function returned None; it must return a tensor, or containers of tensors")
    leaves, structure = tree.flatten(result)
    return [y if isinstance(y, Tensor) else asarray(y) for y in leaves], structure


def _bring_up_to_date(result: Any) -> None:
    """Refresh duals that are views of tensors written later, while their operands are still tracked."""
    for y in tree.flatten(result)[0]:
        while isinstance(y, DualTensor):
            y = y._pair.value


def _with_aux(result: Any, what: str) -> tuple[Any, Any]:
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ArgumentError(f"{what}: with has_aux=True the function must return (value, aux)")
    value, aux = result
    return value, aux


class _Pullback:
    """The reverse half of one evaluation of a function."""

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], has_aux: bool, what: str) -> None:
        leaves, structure = tree.flatten(args)
        outer = bool(_core.is_grad_enabled())
        with running_reverse() as extent:
            sources = [_source(_as_differentiable(x, what), outer, extent) for x in leaves]
            with enable_grad(), numbers_kept(map(_innermost, sources)):
                result = f(*tree.unflatten(structure, [another_name(s) for s in sources]))
                _bring_up_to_date(result)
        self._take(sources, structure, result, has_aux, what)

    @classmethod
    def evaluated(cls, sources: list[Any], result: Any, has_aux: bool, what: str) -> _Pullback:
        """The pullback of an evaluation that has already been made, with one tensor per argument."""
        made = cls.__new__(cls)
        made._take(sources, tree.flatten(tuple(sources))[1], result, has_aux, what)
        return made

    def _take(self, sources: list[Any], structure: Any, result: Any, has_aux: bool, what: str) -> None:
        self.outer = bool(_core.is_grad_enabled())
        self.sources, self.structure = sources, structure
        self.aux = None
        if has_aux:
            result, self.aux = _with_aux(result, what)
        self.ys, self.out_structure = result_leaves(result, what)
        self.record = self.outer and any(map(_tracked, self.ys))  # an outer derivative may follow

    def detached_aux(self) -> Any:
        """The auxiliary results, detached from the sources, which belong to this evaluation."""
        leaves, structure = tree.flatten(self.aux)
        return tree.unflatten(structure, [self._cut(x) for x in leaves])

    def _cut(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or not x._plain or _core.node_of(x) is None:
            return x
        return x if self.outer and x.requires_grad else x.detach()

    def value(self) -> Any:
        """The function's value, detached unless an outer derivative may need it."""
        kept = [y if self.record or (self.outer and not y._plain) else _without_history(y) for y in self.ys]
        return tree.unflatten(self.out_structure, kept)

    def pull(self, bars: Sequence[Any], retain: bool) -> Any:
        """Cotangents of the arguments, zeros where the outputs do not depend on one."""
        record = self.record or (bool(_core.is_grad_enabled()) and any(b.requires_grad for b in bars))
        with enable_grad():
            gradients = pull(self.ys, bars, self.sources, retain=retain or record, record=record)
        self.independent = all(g is None for g in gradients)
        filled = [zeros_like(s) if g is None else g for g, s in zip(gradients, self.sources)]
        if not self.outer:
            filled = [g if g._plain else _without_history(g) for g in filled]
        return tree.unflatten(self.structure, filled)


def vjp(f: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Evaluate f(*args), and return the result and a function that pulls cotangents back through f (reverse mode).

    That function maps a cotangent ȳ, which has the structure of the result, to a tuple with one entry per argument:
    (ȳᵀ ∂f/∂x₀, ȳᵀ ∂f/∂x₁, …). It can be called many times; f is not evaluated again.

    >>> import wengert as wg
    >>> y, pull = vjp(lambda x: x * x, wg.tensor([1.0, 2.0]))
    >>> pull(wg.tensor([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]
    """
    return differentiate_backwards(f, args, warns=True)


def differentiate_backwards(
    f: Callable[..., Any], args: tuple[Any, ...], warns: bool = False
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`vjp`, optionally warning if the result does not depend on the arguments."""
    p = _Pullback(f, args, False, "vjp")

    def pull_back(y_bar: Any) -> tuple[Any, ...]:
        given = tree.leaves_like(y_bar, p.out_structure, "vjp: the cotangent")
        bars = [_fitting(b, y, "vjp: the cotangent") for b, y in zip(given, p.ys)]
        pulled: tuple[Any, ...] = p.pull(bars, retain=True)
        if warns and p.independent:
            warn_of_independence("vjp")
        return pulled

    doc = "Cotangents of the arguments of {f} at this point, of a cotangent of its result."
    return p.value(), named(pull_back, "pullback", f, doc, same_arguments=False)


def argument_numbers(argnums: Any, what: str) -> int | tuple[int, ...]:
    """`argnums` as an integer or a tuple of integers, or an error if it is neither."""
    if type(argnums) is int:
        return argnums
    if isinstance(argnums, (tuple, list)) and argnums and all(type(k) is int for k in argnums):
        return tuple(argnums)
    raise ArgumentError(f"{what}: argnums must be an integer, or a tuple of them, got {argnums!r}")


def by_arguments(
    f: Callable[..., Any], argnums: int | Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any], what: str
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """f as a function of the arguments `argnums` alone, and their values."""
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for k in positions:
        if not -len(args) <= k < len(args):
            raise ArgumentError(f"{what}: argnums {k} is out of range for {len(args)} positional arguments")

    def restricted(*xs: Any) -> Any:
        filled = list(args)
        for k, x in zip(positions, xs):
            filled[k] = x
        return f(*filled, **kwargs)

    return restricted, tuple(args[k] for k in positions)


def _fitting(x: Any, like: Any, what: str) -> Tensor:
    if _core.fits(like, x):
        return x  # type: ignore[no-any-return]
    t = x if isinstance(x, Tensor) else asarray(x)
    if tuple(t.shape) != tuple(like.shape):
        raise ShapeError(f"{what} has shape {tuple(t.shape)}, expected {tuple(like.shape)}")
    return t if t.dtype == like.dtype else t.astype(like.dtype)


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes f(*args) and its gradient in one pass: the pair (value, gradient).

    - `f`: returns a single number. Its arguments may be nested containers; the gradient has the same structure.
    - `argnums`: the position of the argument to differentiate with respect to. A sequence of positions gives a tuple
      of gradients.
    - `has_aux`: f returns (value, aux), and the result is ((value, aux), gradient).

    >>> import wengert as wg
    >>> value, g = value_and_grad(lambda x: (x * x).sum())(wg.tensor([1.0, 2.0]))
    >>> value.item(), g.tolist()
    (5.0, [2.0, 4.0])
    """
    evaluate = _gradient_evaluator(f, argnums, has_aux)

    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        return evaluate(args, kwargs)

    doc = "The value of {f}, and its gradient."
    return transformed(with_gradient, doc, value_and_grad, f, argnums=argnums, has_aux=has_aux)


def _gradient_evaluator(
    f: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool
) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Any]]:
    """A function of the arguments of f, and those by name, that returns f's value and its gradient."""
    argnums = argument_numbers(argnums, "grad")
    single = isinstance(argnums, int)
    positions = (argnums,) if isinstance(argnums, int) else argnums

    def evaluate(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        found = _core.value_and_gradient(f, args, kwargs, positions, _bring_up_to_date)
        if found is None:
            p = _Pullback(*by_arguments(f, argnums, args, kwargs, "grad"), has_aux, "grad")
        elif len(found) == 2:
            sources, result = found
            p = _Pullback.evaluated(sources, result, has_aux, "grad")
        else:
            value, gradients, independent = found
            if has_aux:
                _with_aux(value, "grad")
            if independent:
                warn_of_independence("grad")
            return value, gradients[0] if single else gradients
        if len(p.ys) != 1:
            raise GradientError(f"grad: the function returned {len(p.ys)} tensors; it must return one scalar")
        require_scalar(p.ys[0], "grad")
        require_real(p.ys[0], "grad")
        if not p.ys[0].dtype.is_inexact:
            raise DTypeError(
                f"grad: the function returned {p.ys[0].dtype.name}; only floating results have derivatives"
            )
        gradients = p.pull([ones_like(p.ys[0])], retain=False)
        if p.independent:
            warn_of_independence("grad")
        value = (p.value(), p.detached_aux()) if has_aux else p.value()
        return value, gradients[0] if single else gradients

    return evaluate


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of f.

    - `f`: returns a single number. Its arguments may be nested containers; the gradient has the same structure.
    - `argnums`: the position of the argument to differentiate with respect to. A sequence of positions gives a tuple
      of gradients.
    - `has_aux`: f returns (value, aux), and the result is (gradient, aux).

    The result can be transformed again: `grad(grad(f))`, `vmap(grad(f))`, `compile(grad(f))`.

    >>> import wengert as wg
    >>> grad(lambda x: x * x * x)(wg.tensor(2.0)).item()
    12.0
    >>> grad(grad(lambda x: x * x * x))(wg.tensor(2.0)).item()
    12.0
    >>> grad(lambda p, x: (p["w"] * x).sum() + p["b"])({"w": wg.zeros(2), "b": wg.tensor(1.0)}, wg.tensor([3.0, 4.0]))
    {'w': tensor([3., 4.]), 'b': tensor(1.)}
    """
    evaluate = _gradient_evaluator(f, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, g = evaluate(args, kwargs)
        return (g, value[1]) if has_aux else g

    return transformed(gradient, "The gradient of {f}.", grad, f, argnums=argnums, has_aux=has_aux)


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Evaluate f(*primals) and its derivative along the tangents in one pass (forward mode): the pair (y, ∂f/∂x·ẋ).

    `primals` and `tangents` are tuples with one entry per argument of f; a tangent has the shape or structure of its
    primal.

    >>> import wengert as wg
    >>> y, y_dot = jvp(lambda x: x * x, (wg.tensor(3.0),), (wg.tensor(1.0),))
    >>> y.item(), y_dot.item()
    (9.0, 6.0)
    """
    found: tuple[Any, Any] | None = _core.push_forward(f, primals, tangents, _split_result, end)
    if found is not None:
        return found
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise ArgumentError(
                f"jvp: {name} must be a tuple with one entry per argument of f, got {type(given).__name__}"
            )
    xs, structure = tree.flatten(tuple(primals))
    x_dots = tree.leaves_like(tuple(tangents), structure, "jvp: the tuple of tangents")
    level = _Level()
    values = [_as_differentiable(x, "jvp") for x in xs]
    fitting = [_fitting(t, x, "jvp: the tangent") for x, t in zip(values, x_dots)]
    duals = [argument(level, x, t) for x, t in zip(values, fitting)]
    with running_forward(level):
        return _split_result(level, f(*tree.unflatten(structure, duals)))


def _split_result(level: Any, result: Any) -> tuple[Any, Any]:
    """The values and the tangents of a function's results, in its containers."""
    leaves, structure = result_leaves(result, "jvp")
    pairs = [level.split(y) for y in leaves]
    ys = [y for y, _ in pairs]
    y_dots = [_tangent_or_zeros(y, t) for y, t in pairs]
    return tree.unflatten(structure, ys), tree.unflatten(structure, y_dots)


def _tangent_or_zeros(y: Any, t: Any) -> Any:
    if t is not None:
        return t
    return zeros_like(y) if isinstance(y, Tensor) else zeros(())


def linearize(f: Callable[..., Any], *args: Any) -> tuple[Any, Callable[..., Any]]:
    """Evaluate f(*args), and return the result and the derivative of f there, a linear function ẋ ↦ ∂f/∂x·ẋ.

    That function takes one tangent per argument. It does not evaluate f again, so it suits many directions at one
    point.

    >>> import wengert as wg
    >>> y, push = linearize(lambda x: x * x, wg.tensor(3.0))
    >>> push(wg.tensor(2.0)).item()
    12.0
    """
    p = _Pullback(f, args, False, "linearize")
    push_leaves = _pushforward(p)
    flat = all(isinstance(x, Tensor) for x in args)

    def push(*x_dots: Any) -> Any:
        if len(x_dots) != len(args):
            raise ArgumentError(f"linearize: {len(args)} arguments, but {len(x_dots)} tangents")
        given: Sequence[Any] = x_dots
        if not (flat and all(map(_core.fits, p.sources, x_dots))):
            tangents = tree.leaves_like(x_dots, p.structure, "linearize: the tuple of tangents")
            given = [_fitting(t, x, "linearize: the tangent") for t, x in zip(tangents, p.sources)]
        y_dots = push_leaves(given)
        return y_dots[0] if p.out_structure.is_leaf else tree.unflatten(p.out_structure, y_dots)

    doc = "The derivative of {f} at this point, along tangents of its arguments."
    return p.value(), named(push, "pushforward", f, doc)


def _pushforward(p: _Pullback) -> Callable[[Sequence[Any]], list[Any]]:
    """The pushforward as the transpose of the transpose: the pullback is linear in ȳ, so it can be pulled back itself."""
    zero = [zeros_like(y) for y in p.ys]
    if not all(
        x._plain or isinstance(x, DualTensor) for x in (*p.ys, *p.sources)
    ):  # traced computations are not recorded

        def push_traced(x_dots: Sequence[Any]) -> list[Any]:
            _, back = differentiate_backwards(lambda *b: tuple(tree.flatten(p.pull(b, retain=True))[0]), tuple(zero))
            return list(back(tuple(x_dots)))

        return push_traced

    y_bars = [_core.fresh_leaf(z) for z in zero]
    x_bars: dict[int, Any] = {}  # by argument; recorded at the first push, after which a push is a single walk

    def push(x_dots: Sequence[Any]) -> list[Any]:
        if not x_bars:
            with enable_grad():
                found = pull(p.ys, y_bars, p.sources, retain=True, record=True)
            x_bars.update((k, x) for k, x in enumerate(found) if x is not None)
            if not x_bars:
                return zero
        record = _core.is_grad_enabled() and (p.record or any(map(_tracked, x_dots)))
        dots = [x_dots[k] for k in x_bars]
        y_dots = pull(list(x_bars.values()), dots, y_bars, retain=True, record=record)
        return [z if y_dot is None else y_dot for y_dot, z in zip(y_dots, zero)]

    return push


def hvp(f: Callable[..., Any], x: Any, v: Any) -> Any:
    """Multiply the Hessian of f at x by v, without forming the Hessian; costs about as much as two gradients.

    f returns a single number; x may be a tensor or a container of tensors, and v has the same structure, as has the
    result.

    >>> import wengert as wg
    >>> hvp(lambda x: (x * x * x).sum(), wg.tensor([1.0, 2.0]), wg.tensor([1.0, 1.0])).tolist()
    [6.0, 12.0]
    """
    try:
        return jvp(grad(f), (x,), (v,))[1]
    except CustomOpError:  # a custom op that has no forward mode: reverse over reverse
        _, pull_back = differentiate_backwards(lambda z: _inner(grad(f)(z), v), (x,))
        return pull_back(1.0)[0]


def _inner(a: Any, b: Any) -> Any:
    total: Any = None
    leaves, structure = tree.flatten(a)
    for p, q in zip(leaves, tree.leaves_like(b, structure, "hvp: the vector")):
        term = real(OPS["sum"](conj(p) * q, tuple(range(p.ndim)), 0))
        total = term if total is None else total + term
    return total
