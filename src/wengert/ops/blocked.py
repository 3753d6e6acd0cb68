"""Rules of ops whose derivatives are ops themselves, because a kernel does at once what would be many instructions.

Such an op f comes with a tangent op, which is linear in its first operands, and a cotangent op, its transpose. At first
order only these run. They are differentiated in turn as what they mean: a composition of other ops, traced into the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert.ops.shape import zeros_like
from wengert.passes.evaluate import apply
from wengert.passes.linearize import linearize
from wengert.program.ir import Type
from wengert.program.trace import Trace, Tracer, tracing
from wengert.registry.record import OPS
from wengert.registry.zero import ZERO

Rule = Callable[..., Any]


def filled(dots: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Tangents with zeros of their primal's type for symbolic ones."""
    return [zeros_like(x) if t is ZERO else t for t, x in zip(dots, like)]


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _composed_jvp(meaning: Rule, dots: Sequence[Any], inputs: Sequence[Any], attrs: dict[str, Any]) -> tuple[Any, ...]:
    """Output tangents of a composed function, inside the rule that is being traced, or on tensors of any level."""
    outer, inner = tracing(), Trace()
    symbols = [inner.input(Type(x.dtype.code, x.shape)) for x in inputs]
    with inner:
        outputs = _tuple(meaning(*symbols, **attrs))
    primals = {s._var: x for s, x in zip(symbols, inputs)}
    tangents = {s._var: t for s, t in zip(symbols, dots) if t is not ZERO}
    in_trace = outer is not None and all(isinstance(x, Tracer) for x in inputs)
    linearize(outer.process if outer and in_trace else apply, inner.instructions, primals, tangents)
    return tuple(tangents.get(y._var, ZERO) for y in outputs)


def jvp_of_linear(name: str, n_linear: int, meaning: Rule) -> Rule:
    """The rule of the op `name`, linear in its first `n_linear` operands and composed as `meaning` says."""

    def rule(*given: Any, **attrs: Any) -> Any:
        n = OPS[name].n_inputs
        dots, inputs = given[:n], given[n + 1 :]
        made: tuple[Any, ...] = (ZERO,) * OPS[name].n_outputs
        if any(t is not ZERO for t in dots[:n_linear]):
            made = _tuple(OPS[name](*filled(dots[:n_linear], inputs), *inputs[n_linear:], *attrs.values()))
        rest = (*(ZERO,) * n_linear, *dots[n_linear:])
        if any(t is not ZERO for t in rest):
            made = tuple(a + b for a, b in zip(made, _composed_jvp(meaning, rest, inputs, attrs)))
        return made if len(made) > 1 else made[0]

    return rule


def transpose_by(name: str, n_linear: int, zeros: Callable[..., Sequence[Any]]) -> tuple[Rule, ...]:
    """Transposes by the first `n_linear` operands of an op whose transpose is the op `name`.

    `zeros(*rest)` gives, from the other operands, zeros of the types of the op's outputs.
    """

    def by(which: int) -> Rule:
        def transpose(bars: Any, *operands: Any, **attrs: Any) -> Any:
            rest = operands[n_linear:]
            given = _tuple(bars)
            if any(b is ZERO for b in given):
                given = tuple(z if b is ZERO else b for b, z in zip(given, zeros(*rest)))
            return _tuple(OPS[name](*given, *rest, *attrs.values()))[which]

        return transpose

    return tuple(map(by, range(n_linear)))
