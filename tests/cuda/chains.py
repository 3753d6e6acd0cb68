"""Kernels for every elementwise op and dtype, every conversion, every reduction, and random chains of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.cuda.emulation import Array, Chain, aligned, code_of, storage
from wengert import _core
from wengert.dtypes import ALL
from wengert.ops import OPS
from wengert.tensors.conversion import asarray

NAMES = [d.name for d in ALL]
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEXES = ("complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
Expected = Callable[[], list[Array]]


def numbers(dtype: str, n: int, seed: int) -> Array:
    """Numbers of all sizes, the special ones among them."""
    rng = np.random.default_rng(seed)
    out = aligned((n,), storage(dtype))
    if dtype == "bool":
        out[...] = rng.integers(0, 2, n)
    elif dtype in INTEGERS:
        info = np.iinfo(storage(dtype))
        small = rng.integers(0 if info.min == 0 else -9, 10, n)
        wide = rng.integers(info.min, info.max, n, dtype=storage(dtype), endpoint=True)
        out[...] = np.where(rng.random(n) < 0.7, small.astype(storage(dtype)), wide)
    else:
        size = 10.0 ** rng.uniform(-3, 1.5, n)
        real = rng.choice([-1.0, 1.0], n) * size
        if dtype in COMPLEXES:
            out[...] = real + 1j * rng.permutation(real) * rng.choice([-1.0, 1.0], n)
        else:
            real[: min(n, 8)] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5][: min(n, 8)]
            with np.errstate(all="ignore"):
                out[...] = real
    return out


def to_numpy(t: Any) -> Array:
    """The tensor's elements."""
    return np.asarray(t.numpy())


def elementwise_types(name: str, dtype: str) -> list[str] | None:
    """The operands' dtypes, if the op computes in this one."""
    op = OPS[name]
    operands = [dtype] * op.n_inputs
    if name == "where":
        operands[0] = "bool"
    try:
        types = _core.infer(name, [(code_of(d), (3,)) for d in operands], ())
    except (TypeError, ValueError):
        return None
    del types
    return operands


def elementwise() -> Iterator[tuple[str, Chain, tuple[int, ...], Expected]]:
    """Every op in every dtype that it computes in."""
    for name, op in OPS.items():
        if not op.elementwise:
            continue
        for dtype in NAMES:
            if (operands := elementwise_types(name, dtype)) is None:
                continue
            chain = Chain()
            arrays = [numbers(d, 37, 7 * k + len(name)) for k, d in enumerate(operands)]
            registers = [chain.input(a) for a in arrays]
            result = op(*[asarray(a) for a in arrays])
            chain.step("map", name, registers, result.dtype.name, "output")
            yield f"{name}-{dtype}", chain, (37,), lambda r=result: [to_numpy(r)]


def casts() -> Iterator[tuple[str, Chain, tuple[int, ...], Expected]]:
    """Every conversion."""
    for dtype in NAMES:
        chain = Chain()
        array = numbers(dtype, 37, 3)
        x = chain.input(array)
        wanted = ("bool", *COMPLEXES) if dtype in COMPLEXES else NAMES  # the imaginary part is not dropped
        for to in wanted:
            chain.step("cast", "", [x], to, "output")
        yield f"cast-{dtype}", chain, (37,), lambda a=array, w=wanted: [to_numpy(asarray(a).astype(t)) for t in w]


def reductions() -> Iterator[tuple[str, Chain, tuple[int, ...], Expected]]:
    """Every reduction of rows of several lengths."""
    for cols in (1, 6, 100, 700, 2052):
        for name in ("sum", "prod", "max", "min", "any", "all"):
            dtypes = ("bool",) if name in ("any", "all") else (*INTEGERS, *FLOATS, *COMPLEXES)
            if cols != 100:
                dtypes = ("bool",) if name in ("any", "all") else ("float32",)
            for dtype in dtypes:
                if dtype in COMPLEXES and name in ("max", "min"):
                    continue
                rng = np.random.default_rng(cols)
                array = aligned((3, cols), storage(dtype))
                array[...] = (
                    1 + rng.random((3, cols)) / cols
                    if dtype in (*FLOATS, *COMPLEXES)
                    else rng.integers(0, 2, (3, cols))
                )
                chain = Chain(row_axes=1)
                chain.step("reduce", name, [chain.input(array)], dtype, "output", row=True)
                yield f"{name}-{dtype}-{cols}", chain, (3, cols), lambda a=array, n=name: [_reduced(a, n)]


def _reduced(a: Array, name: str) -> Array:
    wide = a.astype(np.float64) if a.dtype in (np.float16, np.float32, ml_dtypes.bfloat16) else a
    return np.asarray(getattr(np, name)(wide, axis=-1)).astype(a.dtype)


def chains(count: int) -> Iterator[tuple[str, Chain, tuple[int, ...], Expected]]:
    """Random chains over operands that are packed, transposed, broadcast, sliced or one element."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        shape = tuple(int(s) for s in rng.choice([1, 2, 3, 4, 8, 12], int(rng.integers(1, 4))))
        yield f"chain-{seed}", *_random_chain(rng, shape)


def _operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    kind = rng.choice(["packed", "transposed", "broadcast", "sliced", "one", "reversed"])
    if kind == "transposed":
        base = aligned(shape[::-1], storage(dtype))
        made = base.T
    elif kind == "broadcast":
        base = aligned([1 if rng.random() < 0.5 else s for s in shape], storage(dtype))
        made = np.broadcast_to(base, shape)
    elif kind == "sliced":
        base = aligned([*shape[:-1], 2 * shape[-1]], storage(dtype))
        made = base[..., ::2] if rng.random() < 0.5 else base[..., : shape[-1]]
    elif kind == "one":
        base = aligned((), storage(dtype))
        made = np.broadcast_to(base, shape)
    else:
        base = made = aligned(shape, storage(dtype))
        if kind == "reversed":
            made = base[::-1]
    base[...] = rng.normal(size=base.shape)
    return made


def _random_chain(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Chain, tuple[int, ...], Expected]:
    dtype = str(rng.choice(["float32", "float64", "float16"]))
    chain = Chain(row_axes=int(rng.integers(0, len(shape) + 1)))
    outer = shape[: len(shape) - chain.row_axes]
    full: list[tuple[int, Any]] = []
    rows: list[tuple[int, Any]] = []
    for _ in range(int(rng.integers(1, 4))):
        array = _operand(rng, shape, dtype)
        full.append((chain.input(array), asarray(array)))
    if chain.row_axes and outer and rng.random() < 0.5:
        array = _operand(rng, outer, dtype)
        rows.append((chain.input(array, row=True), asarray(array)))
    value = float(rng.normal())
    constant = chain.constant(dtype, value)
    axes = tuple(range(len(outer), len(shape)))
    expected: list[Any] = []
    for _ in range(int(rng.integers(2, 7))):
        move = rng.choice(["map", "map", "map", "reduce", "expand", "row map"])
        role = "output" if rng.random() < 0.4 else ""
        if move == "reduce" and chain.row_axes:
            name = str(rng.choice(["sum", "max", "min"]))
            r, x = full[rng.integers(len(full))]
            y = getattr(x, name)(axis=axes)
            rows.append((chain.step("reduce", name, [r], dtype, role, row=True), y))
            made = y
        elif move == "expand" and rows:
            r, x = rows[rng.integers(len(rows))]
            y = x.reshape(outer + (1,) * chain.row_axes).broadcast_to(shape)
            full.append((chain.step("expand", "", [r], dtype, role), y))
            made = y
        else:
            pool = rows if move == "row map" and rows else full
            name = str(rng.choice(["add", "mul", "maximum", "tanh", "sigmoid", "scale"]))
            picked = [pool[rng.integers(len(pool))] for _ in range(OPS[name].n_inputs)]
            if len(picked) == 2 and rng.random() < 0.3:
                picked[1] = (constant, asarray(np.full(picked[0][1].shape, value, storage(dtype))))
            y = OPS[name](*[x for _, x in picked])
            pool.append((chain.step("map", name, [r for r, _ in picked], dtype, role, row=pool is rows), y))
            made = y
        if role:
            expected.append(made)
    r, x = full[-1] if full[-1][0] >= len(chain.inputs) + 1 else full[0]
    expected.append(OPS["neg"](x))
    chain.step("map", "neg", [r], dtype, "output")
    return chain, shape, lambda: [to_numpy(e) for e in expected]
