"""One record per op: its mathematics. The core holds the shape rule and the kernel under the same name.

A rule is the op's JVP: the output tangent as a function that is *linear* in the input tangents, called with the
tangents, then the output, then the inputs, then the attributes by name. A tangent may be `ZERO`, a symbolic zero; the
operators of Python work on it. Ops that are linear also have a transpose.

Words instead of rules: `"linear"` (in all operands together), `"bilinear"` (in each of two operands), `"zero"` (a
derivative that is zero everywhere), `"undefined"` (differentiating raises).

The rules of holomorphic functions serve complex numbers as they stand: a product's transpose conjugates its coefficient.
Ops that are not holomorphic have a rule of their own for complex operands, `complex_jvp`.

A batch rule, `vmap`, says how the op runs once for many examples that lie along a new first axis of some of its operands.
Words: `"elementwise"` (the default of elementwise ops), `"leading"` (the op maps over leading axes), `"axes"` (the
attributes `axis`, `axes` and `shape` count one axis more). Else a function of the number of examples, which operands have
them, the operands, and the attributes by name; its results all have the axis. `passes/batch.py` applies them.

The rules of ops that hold programs may be generators: tasks, as described in `program/nested.py`, which yield the passes
over these programs that they wait for.

`precision` says what autocast does to the operands: `"low"` (products: they run in half precision), `"full"` (what loses
too much there runs in float32), `"any"` (the op runs in the precision of its operands). `functions` are the public functions
that the op runs under another name.

`sparsity` says which elements of the operands each element of the results depends on: a word of `ops/sparsity.py`, or a
function as described there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wengert import _core
from wengert.registry.precision import code_of, enlist
from wengert.registry.samples import Invalid, Sample

Rule = Callable[..., Any]


@dataclass(slots=True)
class Attr:
    """One attribute of an op; `sizes` may be symbolic while tracing."""

    name: str
    kind: str


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Op:
    """An op: what the core says of it, and its mathematics."""

    name: str
    function: Any
    n_inputs: int
    n_outputs: int
    attrs: tuple[Attr, ...]
    elementwise: bool
    differentiable: bool
    view: bool
    jvp: Rule | str = "undefined"
    complex_jvp: Rule | None = None
    transpose: tuple[Rule | None, ...] = ()
    formula: str = ""
    reference: Callable[..., Any] | None = None
    samples: Sequence[Sample] = ()
    invalid: Sequence[Invalid] = ()
    expensive: bool = False
    public: bool = True
    vmap: Rule | str = "undefined"
    sparsity: Rule | str = "undefined"
    precision: str = "any"
    n_conditions: int = 0  # of an elementwise op: how many leading operands are bool conditions
    fusion: int = 0  # how it takes part in fused groups, as core/fuse.h: FusionRole
    fuses: str = ""  # the same as a word: map, reduce, expand, alias
    strong: str = ""
    commutes: bool = False
    passes_on: bool = False
    written_back: Callable[..., Any] | None = None
    simplified: Callable[..., Any] | None = None
    rearranges: bool = False
    fills_with: Callable[..., float] | None = None
    may_copy: bool = False
    converts: bool = False
    taylor: Rule | str = ""
    work: Callable[..., float] | str = ""
    matrix_product: bool = False  # which reports count
    where_zero: str = ""
    # Only for ops that are made while tracing, whose kernel is a Python function:
    callback: bool = False
    loops_over: str = ""  # the custom op that it calls for one example after the other
    # Only for ops that hold programs, which have no op in the core:
    infer: Callable[[tuple[Any, ...]], Any] | None = None  # result types by attributes
    # Operands that have numbers, attributes, leaves of sizes, their numbers → the task of running it.
    evaluated: Callable[..., Any] | None = None
    lower: Callable[..., None] | None = None  # builder, attributes, executable programs, input and output slots
    # Inputs, tangents, attributes, whether nothing will be transposed → outputs, tangents. It replaces the primal.
    linearize: Callable[..., Any] | None = None
    check: Callable[[Sequence[Any], tuple[Any, ...]], str] | None = (
        None  # operand types, attributes → an error text, or ""
    )

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def label(self) -> str:
        """The name in messages: without the number of an op that was made while tracing."""
        return self.name.partition("#")[0] if self.callback else self.name

    @property
    def detaches(self) -> bool:
        """Whether its result is its operand, but for derivatives, of which none passes."""
        return self.passes_on and not self.differentiable

    def rule(self, complex_operands: bool) -> Rule | str:
        """The JVP for operands of this kind."""
        return self.complex_jvp if complex_operands and self.complex_jvp is not None else self.jvp

    def named_attrs(self, values: tuple[Any, ...]) -> dict[str, Any]:
        """Attributes by name, as rules take them."""
        return {a.name: v for a, v in zip(self.attrs, values)}


class _Ops(dict[str, Op]):
    """The ops of the core, by name. Look-ups also find ops that hold programs, and ops made while tracing for as long as a
    program uses them."""

    def __missing__(self, name: str) -> Op:
        return REGION_OPS[name] if name in REGION_OPS else CALLBACKS[name]


OPS: dict[str, Op] = _Ops()
REGION_OPS: dict[str, Op] = {}
CALLBACKS: weakref.WeakValueDictionary[str, Op] = weakref.WeakValueDictionary()
_KINDS = ("integer", "real", "integers", "sizes")
_NATIVE = {native.name: native for native in _core.op_table()}


def define(
    name: str,
    *,
    jvp: Rule | str = "undefined",
    complex_jvp: Rule | None = None,
    transpose: Rule | Sequence[Rule | None] | None = None,
    formula: str = "",
    reference: Callable[..., Any] | None = None,
    samples: Sequence[Sample] = (),
    invalid: Sequence[Invalid] = (),
    expensive: bool = False,
    public: bool = True,
    vmap: Rule | str = "undefined",
    sparsity: Rule | str | None = None,
    precision: str = "any",
    functions: Sequence[str] = (),
    strong: str = "",
    commutes: bool = False,
    passes_on: bool = False,
    written_back: Callable[..., Any] | None = None,
    simplified: Callable[..., Any] | None = None,
    rearranges: bool = False,
    fills_with: Callable[..., float] | None = None,
    may_copy: bool = False,
    converts: bool = False,
    taylor: Rule | str = "",
    work: Callable[..., float] | str = "",
    where_zero: str = "",
) -> Op:
    """Join the mathematics of an op to the core's record of the same name.

    `expensive`: recomputing it in a backward pass costs more than keeping its result.
    `strong`: the op that takes its place where an operand is a tangent, and is 0 where the tangent is;
    of an op that `commutes`, either operand may be the tangent.
    `passes_on`: the result is the last operand; only derivatives and tapes see the op.
    `written_back(emit, base, part, attrs)`, of views: the base after the view of it has got the values of `part`, made by
    `emit(op, operands, attrs)`.
    `simplified(instruction, producers)`: the operand that the result equals, or an instruction for the same result,
    or several that end with it; `producers` maps values to the instructions that make them. See `ops/simplifications.py`.
    `rearranges`: the result has the elements of the operand, in another order or more than once.
    `fills_with(*attrs)`, of ops without operands: the number that every element of the result is.
    `may_copy`, of views: where strides allow no view, the result is a copy.
    `converts`: the result is the operand in another dtype.
    `taylor`: the series of the result. "linear": of every coefficient by itself, by the rule, in the operands that may move
    (the others choose among them); "bilinear": of two operands, as of a product; or a function of the op, the series of the
    operands and the order, which may return None; see `ops/series.py`. Without it, and where it is not said by `jvp`, the
    rule is integrated.
    `work`: how much it computes. Of elementwise ops, "arithmetic": one operation for each element, otherwise a function that
    takes several. Of others, "moving": nothing; "cubic": as factorisations of matrices; "sorting": n log n; otherwise one
    operation for each element that is read or made. A function of the instruction and the number of elements made counts the
    products of matrices; see `ops/work.py`.
    `where_zero`: what it means that its derivative is zero everywhere, for those who look for a gradient.
    """
    if name not in _NATIVE:
        raise ImportError(f"op {name!r} has a rule but no kernel: add it to core/ops/")
    if name in OPS:
        raise ImportError(f"op {name!r} is defined twice")
    native = _NATIVE[name]
    rules: tuple[Rule | None, ...] = ()
    if transpose is not None:
        rules = (transpose,) if callable(transpose) else tuple(transpose)
    op = Op(
        name,
        _core.ops[name],
        native.n_inputs,
        native.n_outputs,
        tuple(Attr(n, _KINDS[k]) for n, k in native.attrs),
        native.elementwise,
        native.differentiable,
        native.view,
        jvp,
        complex_jvp,
        rules,
        formula,
        reference,
        samples,
        invalid,
        expensive,
        public,
        "elementwise" if native.elementwise else vmap,
        n_conditions=native.n_conditions,
        fusion=native.fusion,
        fuses=native.fuses,
        strong=strong,
        commutes=commutes,
        passes_on=passes_on,
        written_back=written_back,
        simplified=simplified,
        rearranges=rearranges,
        fills_with=fills_with,
        may_copy=may_copy,
        converts=converts,
        taylor=taylor,
        work=work,
        matrix_product=native.matrix_product,
        where_zero=where_zero,
    )
    op.sparsity = _default_sparsity(op) if sparsity is None else sparsity
    op.precision = precision
    _core.set_precision(name, code_of(precision, name))
    enlist(name, name, *functions)
    op.function.__name__ = name
    OPS[name] = op
    return op


def _default_sparsity(op: Op) -> str:
    if not op.n_inputs or op.jvp in ("undefined", "zero"):
        return "none"
    return "elementwise" if op.vmap == "elementwise" else "jvp" if callable(op.jvp) else "undefined"


def find_op(name: str) -> Op | None:
    """The op of this name, or None: functions and callbacks are not ops."""
    return OPS[name] if name in OPS else REGION_OPS.get(name)


def check_complete() -> None:
    """Fail, naming them, if the core has ops without mathematics. Called once, when all families are loaded."""
    missing = sorted(set(_NATIVE) - set(OPS))
    if missing:
        raise ImportError(f"ops without a rule: {', '.join(missing)}; add them to src/wengert/ops/")
