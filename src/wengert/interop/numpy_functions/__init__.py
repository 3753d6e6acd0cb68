"""NumPy functions on tensors: `np.sin(t)`, `np.add(a, t)`, `np.sum(t, axis=0)` are ours, so gradients flow (NEP 13, 18).

Which NumPy function is which of ours stands in `table`; this file reads what NumPy passes, and writes `out=`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any, NoReturn

import numpy as np

from wengert._core import Tensor
from wengert.errors import ShapeError
from wengert.functional import where
from wengert.tensors.conversion import asarray

_KINDS = "buifc"  # a value of one kind may be written into an array of the same or a later one
_REMEDY = "use a wengert function, or t.detach().numpy() for the data without gradients"


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """Called by NumPy's ufuncs when an operand is a tensor (`__array_ufunc__`)."""
    from wengert.interop.numpy_functions import table

    name = ufunc.__name__
    out = options.pop("out", ())
    if method == "__call__":
        function = table.ufunc(name)
        if function is None:
            _refuse(f"np.{name}")
        mask = options.pop("where", True)
        operands, rest = _read_options([_operand(x) for x in inputs], options)
        result = function(*operands, **rest)
        if mask is not True:
            result = _masked(f"np.{name}", mask, result, out)
    else:
        function = table.ufunc_method(name, method)
        if function is None:
            _refuse(f"np.{name}.{method}")
        result = function(*(_operand(x) if method != "at" else x for x in inputs), **options)
    return result if all(o is None for o in out) else _into(out, result, f"np.{name}")


def array_function(self: Tensor, func: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Called by NumPy's other functions when an argument is a tensor (`__array_function__`)."""
    from wengert.interop.numpy_functions import table

    name = f"{func.__module__}.{func.__name__}".removeprefix("numpy.")
    function = table.function(name)
    if function is None:
        _refuse(f"np.{name}")
    out, args = _take_out(func, function, args, options)
    result = function(*args, **options)
    return result if out is None else _into((out,), result, f"np.{name}")


def _refuse(name: str) -> NoReturn:
    raise TypeError(f"{name} has no counterpart in wengert for tensors; {_REMEDY}")


def _operand(x: Any) -> Any:
    """NumPy scalars are weak, as everywhere; arrays and lists become tensors."""
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, (np.ndarray, list, tuple)):
        return asarray(x)
    return x


def _masked(name: str, mask: Any, result: Any, out: tuple[Any, ...]) -> Any:
    """`where=`: the elements of `out` stay where the mask is false."""
    if isinstance(result, tuple) or not out or out[0] is None:
        raise TypeError(f"{name}: where= leaves elements undefined; use wg.where(mask, {name}(...), other)")
    return where(mask, result, out[0])


def _take_out(func: Any, function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """`out`, given by name or by position, and the other arguments."""
    if "out" in options:
        return options.pop("out"), args
    k = _place_of_out(function, func)
    return (args[k], (*args[:k], None, *args[k + 1 :])) if k is not None and k < len(args) else (None, args)


@functools.cache
def _place_of_out(*functions: Any) -> int | None:
    """The position of `out` in our signature, or in NumPy's where ours takes what NumPy's has."""
    for f in functions:
        with contextlib.suppress(ValueError, TypeError):
            parameters = inspect.signature(f).parameters.values()
            names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
            if "out" in names:
                return names.index("out")
    return None


def _read_options(operands: list[Any], options: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """`dtype=` casts the operands; options that say what is done anyway are dropped; others go to the function."""
    dtype = options.pop("dtype", None)
    if dtype is not None:
        operands = [x.astype(dtype) if isinstance(x, Tensor) else x for x in operands]
    return operands, {k: v for k, v in options.items() if k not in ("casting", "order", "subok")}


def _into(out: tuple[Any, ...], result: Any, name: str) -> Any:
    """The results, written into the arrays or tensors of `out=`."""
    results = result if isinstance(result, tuple) else (result,)
    if len(out) != len(results):
        raise TypeError(f"{name}: out= needs {len(results)} entries, got {len(out)}")
    written = tuple(r if o is None else _write(o, r, name) for o, r in zip(out, results))
    return written if isinstance(result, tuple) else written[0]


def _write(target: Any, value: Tensor, name: str) -> Any:
    if isinstance(target, Tensor):
        if _KINDS.index(value.dtype.kind) > _KINDS.index(target.dtype.kind):
            raise TypeError(
                f"{name}: a result of {value.dtype.name} does not fit out= of {target.dtype.name} (casting 'same_kind')"
            )
        try:
            target[...] = value
        except ShapeError:
            raise ShapeError(
                f"{name}: a result of shape {tuple(value.shape)} does not fit out= of shape {tuple(target.shape)}"
            ) from None
        return target
    if not value._plain or value.requires_grad:
        raise TypeError(
            f"{name}: a NumPy array (out=, or the left side of +=) holds no gradient; "
            "write a = a + t instead, or pass t.detach()"
        )
    np.copyto(target, value.numpy(), casting="same_kind")
    return target
