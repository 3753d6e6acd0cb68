"""wengert in 200 lines: the ideas of the engine, on NumPy alone. `python docs/in_200_lines.py` runs it.

A computation is recorded as a program. Each op has one rule, its JVP. Forward mode runs the rules along the program; the
tangents come out of instructions that are linear, and reverse mode transposes those, last one first. What comes out is a
program again: it can be printed, run many times, and differentiated again.
"""

import itertools

import numpy as np


# 1. Ops. `run` computes on arrays. `jvp` is the rule: the tangent of y from the tangents of the operands, each of which may
#    be None, a zero that costs nothing. Where an op is linear in an operand, `transpose` has the way back for it.
class Op:
    def __init__(self, name, run, jvp, transpose=()):
        self.name, self.run, self.jvp, self.transpose = name, run, jvp, transpose

    def __call__(self, *args, **attrs):
        """Numbers are computed with at once. Symbols are recorded, by the innermost trace that one of them belongs to."""
        traces = [a.trace for a in args if isinstance(a, Symbol)]
        if not traces:
            return self.run(*args, **attrs)
        return max(traces, key=lambda trace: trace.level).record(self, args, attrs)


def plus(a, b):
    return b if a is None else a if b is None else add(a, b)


def times(a, b):
    return None if a is None or b is None else mul(a, b)


def sum_to_shape(x, shape):
    x = np.asarray(x)
    x = x.sum(axis=tuple(range(x.ndim - len(shape))))
    return x.sum(axis=tuple(k for k, n in enumerate(shape) if n == 1 and x.shape[k] != 1), keepdims=True)


add = Op("add", np.add, lambda dots, y, a, b: plus(*dots), (lambda bar, a, b: bar, lambda bar, a, b: bar))
mul = Op(
    "mul", np.multiply,
    lambda dots, y, a, b: plus(times(dots[0], b), times(a, dots[1])),
    (lambda bar, a, b: mul(bar, b), lambda bar, a, b: mul(a, bar)),
)  # fmt: skip
neg = Op("neg", np.negative, lambda dots, y, x: neg(dots[0]), (lambda bar, x: neg(bar),))
sin = Op("sin", np.sin, lambda dots, y, x: mul(dots[0], cos(x)))
cos = Op("cos", np.cos, lambda dots, y, x: mul(dots[0], neg(sin(x))))
exp = Op("exp", np.exp, lambda dots, y, x: mul(dots[0], y))
reciprocal = Op("reciprocal", np.reciprocal, lambda dots, y, x: mul(dots[0], neg(mul(y, y))))
tanh = Op("tanh", np.tanh, lambda dots, y, x: mul(dots[0], subtract(np.ones(shape(y)), mul(y, y))))
broadcast_to = Op(
    "broadcast_to", np.broadcast_to,
    lambda dots, y, x, shape: broadcast_to(dots[0], shape=shape),
    (lambda bar, x, **_: sum_to(bar, shape=shape(x)),),
)  # fmt: skip
sum_to = Op(
    "sum_to", sum_to_shape,
    lambda dots, y, x, shape: sum_to(dots[0], shape=shape),
    (lambda bar, x, **_: broadcast_to(bar, shape=shape(x)),),
)  # fmt: skip
swap = Op("swap", np.transpose, lambda dots, y, x: swap(dots[0]), (lambda bar, x: swap(bar),))
matmul = Op(
    "matmul", np.matmul,
    lambda dots, y, a, b: plus(*(matmul(p, q) if p is not None and q is not None else None
                                 for p, q in ((dots[0], b), (a, dots[1])))),
    (lambda bar, a, b: matmul(bar, swap(b)), lambda bar, a, b: matmul(swap(a), bar)),
)  # fmt: skip


# 2. What people write: operators that broadcast explicitly, so that no rule has to think of it.
def shape(x):
    return x.shape if isinstance(x, Symbol) else np.shape(x)


def broadcasting(op):
    def apply(a, b):
        common = np.broadcast_shapes(shape(a), shape(b))
        return op(*(x if shape(x) == common else broadcast_to(x, shape=common) for x in (a, b)))

    return apply


plus_, times_ = broadcasting(add), broadcasting(mul)


def subtract(a, b):
    return plus_(a, neg(b))


def total(x):
    return sum_to(x, shape=())


# 3. Recording. A symbol stands for an array that is not there yet. A trace appends an instruction for each op.
class Symbol:
    __array_ufunc__ = None  # NumPy leaves `array * symbol` to us

    def __init__(self, trace, shape):
        self.trace, self.shape = trace, shape

    __add__ = __radd__ = lambda a, b: plus_(a, b)
    __mul__ = __rmul__ = lambda a, b: times_(a, b)
    __sub__, __rsub__ = subtract, lambda a, b: subtract(b, a)
    __truediv__ = lambda a, b: times_(a, reciprocal(b))
    __matmul__, __rmatmul__ = lambda a, b: matmul(a, b), lambda a, b: matmul(b, a)
    __neg__ = lambda x: neg(x)


class Trace:
    levels = itertools.count()

    def __init__(self):
        self.level, self.instructions = next(Trace.levels), []  # later traces are inside of earlier ones

    def symbol(self, like):
        return Symbol(self, shape(like))

    def record(self, op, args, attrs):
        y = self.symbol(op.run(*(np.ones(shape(a)) for a in args), **attrs))  # a shape rule, the lazy way
        self.instructions.append((y, op, args, attrs))
        return y


# 4. Programs: inputs, instructions, outputs. Running one applies its ops; on symbols of an outer trace, that records them.
class Program:
    def __init__(self, inputs, instructions, outputs):
        self.inputs, self.outputs, needed = inputs, outputs, set(outputs)
        kept = []
        for instruction in reversed(instructions):  # what nobody reads is left out
            if instruction[0] in needed:
                kept.append(instruction)
                needed.update(a for a in instruction[2] if isinstance(a, Symbol))
        self.instructions = kept[::-1]

    def __call__(self, *values):
        known = dict(zip(self.inputs, values))
        for y, op, args, attrs in self.instructions:
            known[y] = op(*(known.get(a, a) if isinstance(a, Symbol) else a for a in args), **attrs)
        return [None if y is None else known.get(y, y) for y in self.outputs]

    def __str__(self):
        names = {x: f"v{k}" for k, x in enumerate([*self.inputs, *(i[0] for i in self.instructions)])}
        word = lambda a: names.get(a, "?") if isinstance(a, Symbol) else "zero" if a is None else str(a)
        lines = [f"({', '.join(map(word, self.inputs))}) ->"]
        for y, op, args, attrs in self.instructions:
            lines.append(f"  {names[y]} = {op.name} {', '.join(map(word, args))} {attrs or ''}".rstrip())
        return "\n".join([*lines, f"  return {', '.join(map(word, self.outputs))}"])


# 5. Forward mode: the rules, along the recorded instructions. They are recorded behind them.
def linearize(f, xs):
    trace = Trace()
    inputs = [trace.symbol(x) for x in xs]
    y = f(*inputs)
    recorded = len(trace.instructions)
    dots = {x: trace.symbol(x) for x in inputs}
    tangents = list(dots.values())
    for result, op, args, attrs in trace.instructions[:recorded]:
        given = [dots.get(a) if isinstance(a, Symbol) else None for a in args]
        if any(dot is not None for dot in given):
            dots[result] = op.jvp(given, result, *args, **attrs)
    return trace, recorded, inputs, tangents, y, dots.get(y)


def jvp(f, xs, x_dots):
    trace, _, inputs, tangents, y, y_dot = linearize(f, xs)
    return Program([*inputs, *tangents], trace.instructions, [y, y_dot])(*xs, *x_dots)


# 6. Reverse mode: the instructions that depend on tangents are linear. Transposed, the last one first, they pull y_bar back.
def vjp_program(f, xs):
    trace, recorded, inputs, tangents, y, y_dot = linearize(f, xs)
    linear, y_bar = set(tangents), trace.symbol(y)
    tangent_part = trace.instructions[recorded:]
    for result, _, args, _ in tangent_part:
        if any(isinstance(a, Symbol) and a in linear for a in args):
            linear.add(result)
    bars = {y_dot: y_bar}
    for result, op, args, attrs in reversed(tangent_part):
        if result in linear and result in bars:
            for operand, pull in zip(args, op.transpose):
                if isinstance(operand, Symbol) and operand in linear:
                    bars[operand] = plus(bars.get(operand), pull(bars[result], *args, **attrs))
    return Program([*inputs, y_bar], trace.instructions, [y, *(bars.get(x_dot) for x_dot in tangents)])


def grad(f):
    return lambda *xs: vjp_program(f, xs)(*xs, np.float64(1.0))[1]


if __name__ == "__main__":
    f = lambda x: total(tanh(x) * x)
    x = np.array([0.5, 1.0, 2.0])
    print(vjp_program(f, [x]))
    print("gradient", grad(f)(x).round(4), "third derivative of sin at 0:", grad(grad(grad(sin)))(0.0))
