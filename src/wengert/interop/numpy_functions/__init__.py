"""NumPy functions on tensors: `np.sin(t)`, `np.add(a, t)`, `np.sum(t, axis=0)` are ours, so gradients flow (NEP 13, 18).

Which NumPy function is which of ours stands in `table`; this file reads what NumPy passes, and writes `out=`.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from wengert._core import Tensor

_REMEDY = "use a wengert function, or t.numpy() for the data without gradients"


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """What NumPy's ufuncs call when an operand is a tensor (`__array_ufunc__`)."""
    from wengert.interop.numpy_functions import table

    name = ufunc.__name__
    out = options.pop("out", ())
    if method == "__call__":
        function = table.ufunc(name)
        if function is None:
            _refuse(f"np.{name}")
        operands, rest = _read_options(f"np.{name}", [_operand(x) for x in inputs], options)
        result = function(*operands, **rest)
    else:
        function = table.ufunc_method(name, method)
        if function is None:
            _refuse(f"np.{name}.{method}")
        result = function(*(_operand(x) for x in inputs), **options)
    return result if all(o is None for o in out) else _into(out, result, f"np.{name}")


def array_function(self: Tensor, func: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What NumPy's other functions call when an argument is a tensor (`__array_function__`)."""
    from wengert.interop.numpy_functions import table

    name = f"{func.__module__}.{func.__name__}".removeprefix("numpy.")
    function = table.function(name)
    if function is None:
        _refuse(f"np.{name}")
    out = options.pop("out", None)
    result = function(*args, **options)
    return result if out is None else _into((out,), result, f"np.{name}")


def _refuse(name: str) -> NoReturn:
    raise TypeError(f"{name} has no counterpart in wengert for tensors; {_REMEDY}")


def _operand(x: Any) -> Any:
    """NumPy scalars are weak, as everywhere; arrays and lists become tensors."""
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, (np.ndarray, list, tuple)):
        from wengert.autograd.creation import asarray

        return asarray(x)
    return x


def _read_options(name: str, operands: list[Any], options: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """`dtype=` casts the operands; options that say what is done anyway are dropped; others go to the function."""
    dtype = options.pop("dtype", None)
    if dtype is not None:
        operands = [x.astype(dtype) if isinstance(x, Tensor) else x for x in operands]
    if options.pop("where", True) is not True:
        raise TypeError(f"{name}: where= leaves elements undefined; use wg.where(mask, {name}(...), other)")
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
        target[...] = value
        return target
    if not value._plain or value.requires_grad:
        raise TypeError(
            f"{name}: a NumPy array (out=, or the left side of +=) holds no gradient; "
            "write a = a + t instead, or pass t.detach()"
        )
    np.copyto(target, value.numpy(), casting="same_kind")
    return target
