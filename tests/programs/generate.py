"""Random programs as text: functions, with branches and loops, of two matrices, a row, a 0-d tensor and two Python numbers.

Sizes are labels here ("n", "m", "(n)-1", …): shapes fit for every n and m, zero and one included; only rows and means need
an element, and without one the oracle has no answer. Functions are tame for any real argument, so that values and
derivatives stay near one, however long the program is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Shape = tuple[Any, ...]  # of labels; the number 1 is an axis that broadcasts

INPUTS: dict[str, Shape] = {"x": ("n", "m"), "y": ("n", "m"), "r": ("m",), "s": ()}

UNARY = [
    "wg.sin({a})", "wg.tanh({a})", "wg.sigmoid({a})", "wg.exp(-{a} * {a})", "{a} * 0.5", "{a} + 0.25", "1.0 - {a}", "-{a}",
    "wg.sqrt({a} * {a} + 1.0)", "wg.erf({a})", "wg.log1p({a} * {a})", "{a} / (1.0 + {a} * {a})", "wg.atan({a})",
    "{a}.clone()", "wg.softplus({a})", "wg.silu({a})", "wg.gelu({a})", "wg.square({a}) * 0.3", "{a} ** 3 * 0.1",
    "{a} ** 2 * 0.3", "wg.rsqrt({a} * {a} + 0.5)", "wg.cos({a})", "wg.asinh({a})", "abs({a} + 0.0173)",
    "wg.reciprocal({a} * {a} + 1.0)",
]  # fmt: skip
BINARY = [
    "{a} + {b}", "{a} - {b}", "{a} * wg.tanh({b})", "{a} * {b} * 0.5", "{a} / ({b} * {b} + 1.0)",
    "wg.where({a} > {b}, wg.sin({a}), {b})", "wg.maximum({a}, {b})", "wg.minimum({a}, {b} * 0.9)", "wg.logaddexp({a}, {b})",
    "wg.atan2({a}, {b} * {b} + 0.5)", "wg.hypot({a}, wg.sqrt({b} * {b} + 0.5))",
]  # fmt: skip
NUMBERS = [
    "{a} * k", "k - {a}", "({a} * {a} + 0.5) ** k", "wg.leaky_relu({a} + 0.013, k)", "wg.elu({a} + 0.013, k)",
    "{a} * j * 0.2", "{a}.sum() * (0.1 * j)", "{a} / (x.shape[0] + 1)", "wg.tanh({a} * x.shape[1] * 0.2)",
    "{a} * (len(y) * 0.1)", "wg.clip({a}, -k, k + 0.1)", "wg.celu({a} + 0.013, k)",
]  # fmt: skip
SUMS = {  # of matrices: what is left of their labels
    "{a}.sum()": (), "wg.tanh({a}).sum(axis=0)": (1,), "{a}.sum(axis=1)": (0,),
    "wg.sin({a}).sum(axis=-1, keepdims=True)": (0, None), "{a}.sum(axis=0, keepdims=True)": (None, 1),
    "wg.max({a}, axis=1)": (0,), "wg.min({a}, axis=0)": (1,), "wg.var({a}, axis=0)": (1,), "{a}.mean()": (),
    "wg.logsumexp({a}, axis=1)": (0,), "wg.prod(1.0 + 0.05 * wg.sin({a}), axis=1)": (0,), "{a}[[0, -1]].sum(axis=0)": (1,),
    "{a}[[0, -1, 0], [0, 0, -1]].sum()": (),
}  # fmt: skip
ROWS = [
    "wg.softmax({a}, axis=-1)", "{a} - {a}.mean(axis=-1, keepdims=True)", "wg.logsumexp({a}, axis=-1, keepdims=True) + {a}",
    "wg.layer_norm({a}, {a}.shape[-1:], eps=k)", "{a} * {a}.mean()",
    "wg.rms_norm({a}, {a}.shape[-1:], eps=k)", "wg.log_softmax({a}, axis=0)",
    "{a} * wg.cross_entropy({a}, wg.softmax({a} + 1.0, axis=1), label_smoothing=0.1 * k)",
]  # fmt: skip
COPIES = [
    "wg.roll({a}, j, axis=0)", "wg.cumsum({a}, axis=-1) * 0.3", "wg.broadcast_to({a}.sum(axis=0), {a}.shape) * 0.2",
    "wg.sin({a}.reshape((-1,))).reshape({a}.shape)", "wg.concat([{a}, {a}[:1]], axis=0)[1:]",
    "wg.flip({a}, axis=1) * 0.9", "wg.tile({a}, (2, 1))[: {a}.shape[0]]", "wg.repeat({a}, 2, axis=1)[:, ::2]",
    "wg.stack([{a}, {a} * 0.5], axis=0).sum(axis=0)", "wg.pad({a}, ((1, 0), (0, 1)))[1:, :-1]",
    "wg.cumprod(1.0 + 0.05 * wg.sin({a}), axis=-1)", "wg.einsum('ij,ij->i', {a}, {a})[:, None] * {a} * 0.1",
]  # fmt: skip
# Of a matrix {a} and of {b}, a matrix of its shape: rows put together and taken apart, order, interpolation.
_HALVES = "wg.arange({a}.shape[0]) % 2"  # a number for each row
_PLACES = "wg.broadcast_to((wg.arange({a}.shape[0]) % 2)[:, None], {a}.shape)"
REARRANGED = [
    f"wg.segment_sum({{a}}, {_HALVES}, num_segments=2)[{_HALVES}] * 0.4",
    f"wg.segment_mean({{a}}, {_HALVES}, num_segments=2)[{_HALVES}]",
    f"wg.segment_max({{a}}, {_HALVES}, num_segments=2)[{_HALVES}]",
    f"wg.scatter_reduce({{a}}, {_PLACES}, {{b}}, axis=0, reduce='sum') * 0.3",
    f"wg.scatter_reduce({{a}}, {_PLACES}, {{b}}, axis=0, reduce='mean')",
    f"wg.scatter_reduce({{a}}, {_PLACES}, {{b}}, axis=0, reduce='amax')",
    f"wg.scatter_reduce({{a}}, {_PLACES}, wg.sin({{b}}), axis=0, reduce='amin', include_self=False)",
    f"wg.scatter_reduce({{a}}, {_PLACES}, 1.0 + 0.1 * wg.sin({{b}}), axis=0, reduce='prod')",
    "wg.cdist({a}, {b} + 2.7) @ {a} * 0.05",
    "wg.embedding_bag(wg.stack([wg.arange({a}.shape[0]), wg.arange({a}.shape[0]) * 0], axis=1), {a}, mode='sum') * 0.5",
    "wg.embedding_bag(wg.stack([wg.arange({a}.shape[0]), wg.arange({a}.shape[0]) * 0], axis=1), {a}, mode='max')",
    "{a}[wg.arange({a}.shape[0]), wg.arange({a}.shape[0]) * 0][:, None] * {b}",
    "wg.cummax({a}, axis=0).values", "wg.cummin({a}, axis=1).values * 0.9", "wg.sort({a}, axis=0)",
    "wg.sort({a}, axis=1) * {b} * 0.5",
    "wg.median({a}, axis=1, keepdims=True) + {b}", "wg.quantile({a}, 0.3, axis=0) * {b}",
    "wg.pad({a}, ((1, 0), (0, 2)), mode='edge')[:-1, 2:]", "wg.pad({a}, ((0, 1), (1, 0)), mode='wrap')[1:, :-1]",
    "wg.pad({a}, ((1, 1), (1, 1)), mode='reflect')[2:, :-2]", "wg.pad({a}, ((0, 2), (1, 0)), mode='symmetric')[2:, 1:]",
    "wg.grid_sample({a}[None, None], wg.stack([wg.sin({b}), wg.cos({b})], axis=-1)[None] "
    "/ ({a}.shape[0] + {a}.shape[1]))[0, 0]",
    "wg.grid_sample({a}[None, None], wg.stack([{b}, wg.sin({b} + 1.0)], axis=-1)[None] "
    "/ ({a}.shape[0] + {a}.shape[1]), padding_mode='border', align_corners=True)[0, 0]",
    "wg.tril({a}) + wg.triu({b}, 1) * 0.5", "wg.diff({a}, axis=0, prepend={b}[:1])",
    "wg.checkpoint(lambda c: wg.tanh(c) * {b}, {a})",
    "wg.checkpoint(lambda c, u: wg.sin(c * u) + wg.sort(u, axis=0), {a}, {b})",
    "wg.cond({a}.sum() > 0.2, lambda c, u: wg.cummax(c, axis=0).values * u, "
    "lambda c, u: wg.sort(u, axis=1) - c, {a}, {b})",
    f"wg.fori_loop(0, 2, "
    f"lambda i, c: wg.segment_sum(wg.sin(c), {_HALVES}, num_segments=2)[{_HALVES}] * 0.4 + {{b}}, {{a}})",
]  # fmt: skip
WRITES = [
    "{a} += {b}", "{a} *= {b}", "{a} -= {b}", "{a}.add_({b})", "{a}.mul_({b})", "{a}.sub_({b})", "{a}[...] = {b}",
    "{a}.copy_({b})", "{a}.div_({b} * {b} + 1.0)",
]  # fmt: skip
WRITES_ALONE = [
    "{a}.sin_()", "{a}.tanh_()", "{a}.mul_(k)", "{a} += k", "{a}.fill_(k)", "{a}.zero_()", "{a} *= 0.5",
    "{a}[{a} > 0.3] = k",
]  # fmt: skip
# Branches and loops: {b} broadcasts to {a}, which is carried. The oracle runs them as Python does.
BRANCHES = [
    "wg.cond({a}.sum() > 0.1, lambda c: wg.sin(c) * k, lambda c: c * 0.5 + {b}, {a})",
    "wg.cond(({a} * {b}).sum() < 0.3, lambda c, u: c + u * u, lambda c, u: wg.tanh(c) * u, {a}, {b})",
    "wg.switch(j, [wg.sin, wg.tanh, lambda c: c * k], {a})",
    "wg.cond({b}.sum() > 0, lambda: wg.cond({a}.sum() > 0, lambda: {a} * 0.5, lambda: -{a}), lambda: {a} + 0.25)",
]  # fmt: skip
LOOPS = [
    "wg.fori_loop(0, 3, lambda i, c: wg.sin(c) * (i + 1) * 0.3 + {b} * 0.2, {a})",
    "wg.while_loop(lambda c: (c[1] < 5) & ((c[0] * c[0]).sum() < 3.0), "
    "lambda c: (c[0] * 1.3 + 0.2 * wg.sin({b}), c[1] + 1), ({a}, 0))[0]",
    "wg.while_loop(lambda c: c[1] < 6, lambda c: (wg.sin(c[0]) + 0.3 * {b}, c[1] + 1), ({a}, 0), checkpoints=4)[0]",
    "wg.while_loop(lambda c: c[1] < 3, "
    "lambda c: (wg.cond(c[0].sum() > 0, wg.sin, wg.tanh, c[0] + 0.1 * {b}), c[1] + 1), ({a}, 0))[0]",
    "wg.fori_loop(0, 2, lambda i, c: wg.fori_loop(0, 2, lambda q, u: wg.tanh(u + {b}), c) * 0.9, {a})",
]  # fmt: skip
SCANS = [  # over the rows of {a}; {b} is carried and has the shape of one
    ("wg.scan(lambda c, u: (wg.tanh(c + u), c * u), {b}, {a})[1]", False),
    ("wg.scan(lambda c, u: (wg.sin(c) * 0.5 + u, u), {b}, {a}, reverse=True)[0]", True),
    ("wg.scan(lambda c, u: ((c[0] * 0.5 + u, c[0]), c[1] * u), ({b}, {b} * 0.3), {a})[1]", False),
    ("wg.associative_scan(lambda p, q: p + q, wg.sin({a}), axis=0) * 0.3", False),
    ("wg.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (wg.sin({a}), {a}), reverse=True)[1]", False),
]  # fmt: skip
LOOKS = ["wg.no_grad()(lambda: {a}.sum())()", "{a}.detach().sum()"]
# What stands in brackets, and which axes it leaves: a label, changed by a suffix, or one that is gone.
KEYS: dict[str, Any] = {
    "1:": ("-1",), ":1": (":1",), "::-1": ("",), "::2": ("/2",), ":, 1:": ("", "-1"), ":, ::-1": ("", ""),
    ":, :1": ("", ":1"), "0": None, "..., 0": None, "-1": None, "0, 0": None,
}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """One line. `makes` is the name it binds, or nothing where it writes."""

    text: str
    makes: str = ""

    @property
    def reads(self) -> set[str]:
        """Names of tensors in the line, but for the one it makes."""
        return set(re.findall(r"\b(?:a\d+|[xyrs])\b", self.text)) - {self.makes}

    def renamed(self, old: str, new: str) -> Statement:
        """The line with another operand."""
        return replace(self, text=re.sub(rf"\b{old}\b", new, self.text))


@dataclass(frozen=True)
class Program:
    """Lines and the names of the results. `writes_arguments`: x is changed, and is the last result."""

    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    writes_arguments: bool = False

    @property
    def writes(self) -> bool:
        """Whether a line changes a tensor in place."""
        return any(not s.makes for s in self.statements)

    def text(self) -> str:
        """The program as a Python function."""
        lines = [s.text for s in self.statements] + [f"return ({', '.join(self.outputs)},)"]
        return "def f(x, y, r, s, k, j):\n" + "".join(f"    {line}\n" for line in lines)


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The labels of a + b, or None if they do not fit for every size."""
    n = max(len(a), len(b))
    pairs = list(zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b))
    if any(p != q and p != 1 and q != 1 for p, q in pairs):
        return None
    return tuple(q if p == 1 else p for p, q in pairs)


class Builder:
    """A program in the making: which names there are, their shapes, and which of them may be written."""

    def __init__(self, rng: np.random.Generator, writes_arguments: bool) -> None:
        self.rng = rng
        self.shapes = dict(INPUTS)
        self.own = {"x"} if writes_arguments else set()
        self.statements: list[Statement] = []

    def choice(self, options: Any) -> Any:
        """One of them."""
        return options[int(self.rng.integers(len(options)))]

    def operand(self, fits: Any = lambda shape: True) -> str | None:
        """A name whose shape fits, rather a late one."""
        names = [n for n, shape in self.shapes.items() if fits(shape)]
        if not names:
            return None
        return self.choice(names if self.rng.random() < 0.5 else names[-3:])

    def bind(self, text: str, shape: Shape, own: bool = True) -> None:
        """A new name for the value of an expression."""
        name = f"a{len(self.statements)}"
        self.statements.append(Statement(f"{name} = {text}", name))
        self.shapes[name] = shape
        if own:
            self.own.add(name)

    def unary(self) -> None:
        a = self.operand()
        assert a is not None
        self.bind(self.choice(UNARY).format(a=a), self.shapes[a])

    def binary(self) -> None:
        a = self.operand()
        assert a is not None
        b = self.operand(lambda shape: broadcast(self.shapes[a], shape) is not None)
        assert b is not None
        pair = (a, b) if self.rng.random() < 0.5 else (b, a)
        shape = broadcast(self.shapes[a], self.shapes[b])
        assert shape is not None
        self.bind(self.choice(BINARY).format(a=pair[0], b=pair[1]), shape)

    def zero_dimensional(self) -> None:
        """A 0-d tensor beside an array that may be reduced as well."""
        a, s = self.operand(), self.operand(lambda shape: shape == ())
        assert a is not None and s is not None
        self.bind(self.choice(BINARY).format(a=a, b=s), self.shapes[a])

    def number(self) -> None:
        a = self.operand()
        assert a is not None
        text = self.choice(NUMBERS)
        self.bind(text.format(a=a), () if ".sum()" in text else self.shapes[a])

    def huber(self) -> None:
        a = self.operand()
        assert a is not None
        b = self.operand(lambda shape: shape == self.shapes[a])
        self.bind(f"wg.huber_loss({a}, {b} + 0.0171, delta=k + 0.2, reduction='sum') * 0.2", ())

    def sum(self) -> None:
        a = self.operand(lambda shape: len(shape) == 2)
        assert a is not None
        text = self.choice(list(SUMS))
        self.bind(f"{text.format(a=a)} * 0.4", tuple(1 if k is None else self.shapes[a][k] for k in SUMS[text]))

    def rows(self) -> None:
        a = self.operand(lambda shape: len(shape) == 2)
        assert a is not None
        self.bind(self.choice(ROWS).format(a=a), self.shapes[a])

    def copy(self) -> None:
        a = self.operand(lambda shape: len(shape) == 2 and shape[0] != 1)
        assert a is not None
        self.bind(self.choice(COPIES).format(a=a), self.shapes[a])

    def rearrange(self) -> None:
        a = self.operand(lambda shape: len(shape) == 2)
        assert a is not None
        b = self.operand(lambda shape: shape == self.shapes[a])
        self.bind(self.choice(REARRANGED).format(a=a, b=b), self.shapes[a])

    def matmul(self) -> None:
        a = self.operand(lambda shape: len(shape) == 2)
        assert a is not None
        b = self.operand(lambda shape: len(shape) > 0 and shape[0] == self.shapes[a][1])
        if b is None:
            b, shape = f"{a}.T", (self.shapes[a][0], self.shapes[a][0])
        else:
            shape = (self.shapes[a][0], *self.shapes[b][1:])
        self.bind(f"{a} @ {b} * 0.3", shape)

    def view(self) -> None:
        a = self.operand(lambda shape: len(shape) > 0)
        assert a is not None
        shape = self.shapes[a]
        if len(shape) == 2 and self.rng.random() < 0.3:
            return self.bind(f"{a}.T", shape[::-1], own=a in self.own)
        key, left = self.key(shape)
        self.bind(f"{a}[{key}]", left, own=a in self.own)

    def key(self, shape: Shape) -> tuple[str, Shape]:
        """An index, and the labels it leaves."""
        key = self.choice([k for k in KEYS if len(shape) == 2 or ("," not in k) or k.startswith("...")])
        if KEYS[key] is None:
            return key, () if key == "0, 0" else shape[:-1] if key.startswith("...") else shape[1:]
        changed = KEYS[key]
        labels = [label if not suffix else f"({label}){suffix}" for label, suffix in zip(shape, changed)]
        return key, (*labels, *shape[len(changed) :])

    def branch(self) -> None:
        self._with_carried(BRANCHES)

    def loop(self) -> None:
        self._with_carried(LOOPS)

    def _with_carried(self, texts: list[str]) -> None:
        a = self.operand()
        assert a is not None
        b = self.operand(lambda shape: broadcast(shape, self.shapes[a]) == self.shapes[a])
        self.bind(self.choice(texts).format(a=a, b=b), self.shapes[a])

    def scan(self) -> None:
        a = self.operand(lambda shape: len(shape) == 2)
        assert a is not None
        b = self.operand(lambda shape: shape == self.shapes[a][1:]) or f"{a}.sum(axis=0)"
        text, last = self.choice(SCANS)
        self.bind(text.format(a=a, b=b), self.shapes[a][1:] if last else self.shapes[a])

    def look(self) -> None:
        """Read a value without differentiating, as printing does: nothing may change by that."""
        a = self.operand()
        self.statements.append(Statement(self.choice(LOOKS).format(a=a)))

    def write(self) -> None:
        """Change a value of the program's own, whole or in part, itself or through a view of it."""
        targets = [n for n in self.shapes if n in self.own]
        if not targets:
            return self.unary()
        a = self.choice(targets)
        shape, target = self.shapes[a], a
        if shape and self.rng.random() < 0.5:
            key, shape = ("[0, -1]", shape[1:]) if self.rng.random() < 0.1 else self.key(shape)
            target = f"{a}[{key}]"
            if key == "[0, -1]":
                b = self.operand(lambda other: broadcast(other, shape) == shape)
                self.statements.append(Statement(f"{target} {self.choice(['=', '+=', '*='])} {b or 'k'}"))
                return
        b = self.operand(lambda other: broadcast(other, shape) == shape)
        if b is None or self.rng.random() < 0.3:
            text = self.choice(WRITES_ALONE).format(a=target)
        else:
            text = self.choice(WRITES).format(a=target, b=self.choice([b, f"wg.sin({b})"]))
        self.statements.append(Statement(text))


KINDS = {
    "unary": 4, "binary": 4, "zero_dimensional": 3, "number": 3, "huber": 1, "sum": 3, "rows": 2, "copy": 1, "matmul": 1,
    "rearrange": 2, "view": 2, "write": 4, "look": 1, "branch": 2, "loop": 2, "scan": 1,
}  # fmt: skip


def generate(rng: np.random.Generator) -> Program:
    """A random program."""
    writes_arguments = rng.random() < 0.1
    builder = Builder(rng, writes_arguments)
    kinds = [k for k, weight in KINDS.items() for _ in range(weight)]
    for _ in range(int(rng.integers(1, 12))):
        getattr(builder, builder.choice(kinds))()
    made = [s.makes for s in builder.statements if s.makes]
    outputs = dict.fromkeys(
        made[-1:] + [builder.choice(made) for _ in range(int(rng.integers(0, 3)))] if made else ["x"]
    )
    if writes_arguments:
        outputs.pop("x", None)
        outputs["x"] = None
    return Program(tuple(builder.statements), tuple(outputs), writes_arguments)


def without_dead_code(program: Program) -> Program:
    """The program without lines that no result needs: a write counts for every name, since views share elements."""
    statements = list(program.statements)
    for k in reversed(range(len(statements))):
        s = statements[k]
        if s.makes and s.makes not in program.outputs and all(s.makes not in t.reads for t in statements[k + 1 :]):
            del statements[k]
    return replace(program, statements=tuple(statements))


def writes_inputs(program: Program) -> bool:
    """Whether a line writes to an argument, itself or through a view."""
    inputs = set(INPUTS)
    for s in program.statements:
        if s.makes and re.fullmatch(r"a\d+ = (\w+)(\.T|\[.*\])", s.text) and s.reads <= inputs:
            inputs.add(s.makes)
        elif not s.makes and re.match(r"\w+", s.text)[0] in inputs:  # type: ignore[index]
            return True
    return False


def smaller(program: Program) -> list[Program]:
    """Programs with one line, or one result, less."""
    found = []
    if len(program.outputs) > 1 + program.writes_arguments:
        for name in program.outputs[: len(program.outputs) - program.writes_arguments]:
            found.append(replace(program, outputs=tuple(o for o in program.outputs if o != name)))
    for k, s in enumerate(program.statements):
        rest = program.statements[:k] + program.statements[k + 1 :]
        if not s.makes:
            found.append(replace(program, statements=rest))
            continue
        for operand in sorted(s.reads):
            outputs = dict.fromkeys(operand if o == s.makes else o for o in program.outputs)
            moved = tuple(t.renamed(s.makes, operand) for t in rest)
            found.append(replace(program, statements=moved, outputs=tuple(outputs)))
    return [without_dead_code(p) for p in found if program.writes_arguments or not writes_inputs(p)]
