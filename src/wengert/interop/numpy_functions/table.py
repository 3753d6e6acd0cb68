"""Which NumPy function is which of ours, with NumPy's parameters in its order and their names here.

An entry is read as `ours: parameters | parameters given by keyword`; `ddof=correction` is `ddof` of NumPy and
`correction` of ours; no parameters means: pass everything on as it is. Functions that need more than other names stand
in the other modules of this package, and have no entry here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import wengert
from wengert.interop.numpy_functions import elements, linear, reductions, registry, shapes
from wengert.tensors.arguments import as_tensor

ADAPTERS = (elements, linear, reductions, shapes)  # importing them fills the registry

Function = Callable[..., Any]

_SAME_UFUNCS = """
    add subtract multiply divide floor_divide remainder positive negative reciprocal square sqrt exp exp2 expm1 log log2
    log10 log1p logaddexp sin cos tan sinh cosh tanh hypot floor ceil trunc sign signbit copysign nextafter maximum minimum
    fmod equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not bitwise_and
    bitwise_or bitwise_xor isnan isinf isfinite matmul vecdot erf erfc erfinv digamma logit xlogy betaln i0 i1 i0e i1e
    gammainc gammaincc gammaincinv gammainccinv betainc betaincinv ndtr ndtri log_ndtr erfcx erfcinv gamma rgamma beta entr
    rel_entr xlog1py j0 j1 y0 y1 yn iv ive kv kve kn k0 k0e k1 k1e
"""  # the last four rows are scipy.special's
_UFUNCS = {
    **{name: name for name in _SAME_UFUNCS.split()},
    "absolute": "abs", "fabs": "abs", "power": "pow", "conjugate": "conj", "rint": "round",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "invert": "bitwise_invert", "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
    "_zeta": "zeta", "_riemann_zeta": "zeta",
    "gammaln": "lgamma", "psi": "digamma", "expit": "sigmoid", "log_expit": "log_sigmoid", "polygamma": "polygamma",
}  # fmt: skip

_REDUCE = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all",
           "logical_or": "any", "logaddexp": "logsumexp"}  # fmt: skip
_ACCUMULATE = {"add": "cumulative_sum", "multiply": "cumulative_prod", "logaddexp": "logcumsumexp"}

_REDUCTIONS = ("sum", "prod", "max", "min", "amax", "amin", "any", "all")

_FUNCTIONS = {
    # reductions
    "mean": "mean: a | axis dtype out keepdims where",
    "var": "var: a | axis dtype out ddof=correction keepdims where mean correction",
    "std": "std: a | axis dtype out ddof=correction keepdims where mean correction",
    "argmax": "argmax: a | axis out keepdims",
    "argmin": "argmin: a | axis out keepdims",
    "count_nonzero": "count_nonzero: a | axis keepdims",
    "cumulative_sum": "cumulative_sum: x | axis dtype out include_initial",
    "cumulative_prod": "cumulative_prod: x | axis dtype out include_initial",
    "nansum": "nansum: a | axis dtype out keepdims where",
    "nanmean": "nanmean: a | axis dtype out keepdims where",
    "nanmax": "nanmax: a | axis out keepdims where",
    "nanmin": "nanmin: a | axis out keepdims where",
    "bincount": "bincount: x | weights minlength",
    "histogram": "histogram: a bins | range density weights",
    "cov": "cov: m y rowvar bias ddof | fweights aweights dtype",
    "corrcoef": "corrcoef: x y rowvar | dtype",
    "median": "median: a | axis out overwrite_input keepdims",
    "quantile": "quantile: a q | axis out overwrite_input method keepdims",
    # shapes
    "reshape": "reshape: a shape | order copy",
    "matrix_transpose": "matrix_transpose: x",
    "swapaxes": "swapaxes: a axis1 axis2",
    "moveaxis": "moveaxis: a source destination",
    "expand_dims": "expand_dims: a axis",
    "squeeze": "squeeze: a axis",
    "broadcast_to": "broadcast_to: array shape | subok",
    "unstack": "unstack: x | axis",
    "split": "split: ary indices_or_sections | axis",
    "hsplit": "hsplit: ary indices_or_sections",
    "vsplit": "vsplit: ary indices_or_sections",
    "dsplit": "dsplit: ary indices_or_sections",
    "rollaxis": "rollaxis: a axis start",
    "flip": "flip: m axis",
    "roll": "roll: a shift | axis",
    "tile": "tile: A reps",
    "repeat": "repeat: a repeats | axis",
    "rot90": "rot90: m k axes",
    "vander": "vander: x N increasing",
    "tril": "tril: m | k",
    "triu": "triu: m | k",
    "diag": "diag: v | k",
    "meshgrid": "meshgrid",
    "copy": "clone: a | order subok",
    # elements
    "where": "where",
    "select": "select: condlist choicelist default",
    "real_if_close": "real_if_close: a tol",
    "isclose": "isclose: a b | rtol atol equal_nan",
    "allclose": "allclose: a b | rtol atol equal_nan",
    "real": "real: val",
    "imag": "imag: val",
    "i0": "i0: x",
    # samples
    "trapezoid": "trapezoid: y x dx | axis",
    "interp": "interp: x xp fp left right period",
    "convolve": "convolve: a v mode",
    "correlate": "correlate: a v mode",
    # products
    "tensordot": "tensordot: a b | axes",
    "kron": "kron: a b",
    # order, search
    "searchsorted": "searchsorted: a v | side sorter",
    "partition": "partition: a kth | axis kind order",
    "argpartition": "argpartition: a kth | axis kind order",
    "take_along_axis": "take_along_axis: arr indices | axis",
    "nonzero": "nonzero: a",
    "isin": "isin: element test_elements | assume_unique invert kind",
    "unique_all": "unique_all: x",
    "unique_counts": "unique_counts: x",
    "unique_inverse": "unique_inverse: x",
    "unique_values": "unique_values: x",
    # creation
    "zeros_like": "zeros_like: a | dtype order subok device",
    "ones_like": "ones_like: a | dtype order subok device",
    "empty_like": "empty_like: prototype | dtype order subok device",
    "full_like": "full_like: a fill_value | dtype order subok device",
    # linear algebra
    "linalg.det": "linalg.det: a",
    "linalg.slogdet": "linalg.slogdet: a",
    "linalg.inv": "linalg.inv: a",
    "linalg.pinv": "linalg.pinv: a | rcond=rtol rtol",
    "linalg.solve": "linalg.solve: a b",
    "linalg.cholesky": "linalg.cholesky: a | upper",
    "linalg.qr": "linalg.qr: a | mode",
    "linalg.svdvals": "linalg.svdvals: x",
    "linalg.eig": "linalg.eig: a",
    "linalg.eigh": "linalg.eigh: a | UPLO",
    "linalg.eigvals": "linalg.eigvals: a",
    "linalg.eigvalsh": "linalg.eigvalsh: a | UPLO",
    "linalg.matrix_power": "linalg.matrix_power: a n",
    "linalg.matrix_rank": "linalg.matrix_rank: A | tol=rtol rtol",
    "linalg.matrix_norm": "linalg.matrix_norm: x | keepdims ord",
    "linalg.vector_norm": "linalg.vector_norm: x | axis keepdims ord",
    "linalg.norm": "linalg.norm: x | ord axis keepdims",
    "linalg.cond": "linalg.cond: x | p",
    "linalg.multi_dot": "linalg.multi_dot: arrays | out",
    "linalg.cross": "linalg.cross: x1 x2 | axis",
    "linalg.outer": "outer: x1 x2",
    "linalg.tensordot": "tensordot: x1 x2 | axes",
    "linalg.matmul": "matmul: x1 x2",
    "linalg.vecdot": "vecdot: x1 x2 | axis",
    "linalg.matrix_transpose": "matrix_transpose: x",
    "linalg.diagonal": "linalg.diagonal: x | offset",
    "linalg.trace": "linalg.trace: x | offset dtype",
    # Fourier transforms
    **{f"fft.{n}": f"fft.{n}: a | n axis norm out" for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{n}": f"fft.{n}: a | s axes norm out" for n in ("fftn", "ifftn", "rfftn", "irfftn")},
    "fft.fftshift": "fft.fftshift: x | axes",
    "fft.ifftshift": "fft.ifftshift: x | axes",
}  # fmt: skip

# NumPy's parameters that change nothing here (memory order, subclasses, casting rules), with the values they may have.
_IDLE: dict[str, tuple[Any, ...]] = {
    "order": (None, "C", "K", "A"),
    "subok": (True, False),
    "casting": ("same_kind", "unsafe"),
    "kind": (None, "sort", "table", "introselect"),
    "overwrite_input": (False, True),
    "assume_unique": (False, True),
    "method": ("linear",),
    "where": (True,),
    "UPLO": ("L", "U"),  # the Hermitian part is taken, which has both
    "mode": ("reduced",),
    "sorter": (None,),
    "mean": (None,),
}
OPTIONAL = ("out", "dtype", "device", "copy", "norm", "stable")  # None says: nothing is asked for
_SKIPPED = object()


def ours(path: str) -> Function | None:
    """Our function under a dotted name."""
    found: Any = wengert
    for part in path.split("."):
        found = getattr(found, part, None)
    function: Function | None = found
    return function


@functools.cache
def ufunc(name: str) -> Function | None:
    """Our function of a ufunc."""
    return ours(_UFUNCS[name]) if name in _UFUNCS else registry.UFUNCS.get(name)


@functools.cache
def ufunc_method(name: str, method: str) -> Function | None:
    """The equivalent of `np.<name>.<method>`: a reduction, a scan, or a table of all pairs."""
    if method == "outer":
        pairwise = ufunc(name)
        return None if pairwise is None else functools.partial(reductions.ufunc_outer, pairwise)
    if method == "reduce" and name in _REDUCE:
        return functools.partial(reductions.ufunc_reduce, _REDUCE[name])
    if method == "at" and name in ("add", "subtract"):
        return functools.partial(reductions.ufunc_at, 1 if name == "add" else -1)
    if method != "accumulate":
        return None
    if name in ("maximum", "minimum"):
        extremum = functools.partial(reductions.running_extremum, "cummax" if name == "maximum" else "cummin")
        return functools.partial(reductions.ufunc_accumulate, extremum)
    running = ours(_ACCUMULATE[name]) if name in _ACCUMULATE else None
    return None if running is None else functools.partial(reductions.ufunc_accumulate, running)


@functools.cache
def function(name: str) -> Function | None:
    """Our function of any other NumPy function, with NumPy's signature."""
    if name in registry.DATA_ONLY:
        return functools.partial(registry.on_data, name)
    if name in _REDUCTIONS:
        short = name.removeprefix("a") if name in ("amax", "amin") else name
        kind = reductions.reduction if name in ("sum", "prod") else reductions.reduction_without_dtype
        return functools.partial(kind, short)
    if name not in _FUNCTIONS:
        return registry.FUNCTIONS.get(name)
    path, _, parameters = _FUNCTIONS[name].partition(":")
    target = ours(path)
    return target if target is None or not parameters else _renamed(name, target, parameters)


def _renamed(name: str, target: Function, parameters: str) -> Function:
    """A function with NumPy's parameters that calls ours."""
    positional, _, keywords = parameters.partition("|")
    names = [*positional.split(), *keywords.split()]
    pairs = [(n.split("=")[0], n.split("=")[-1]) for n in names]
    n_positional = len(positional.split())
    has_dtype = "dtype" in keywords.split() and "dtype" in inspect.signature(target).parameters

    def call(*args: Any, **options: Any) -> Any:
        given = dict(zip((theirs for theirs, _ in pairs), args), **options)
        leading: list[Any] = []
        named: dict[str, Any] = {}
        for i, (theirs, here) in enumerate(pairs):
            value = given.pop(theirs, _SKIPPED)
            if value is _SKIPPED or (i >= n_positional and _idle(name, theirs, value)):
                continue
            if i < n_positional and len(leading) == i:
                leading.append(value)
            else:
                named[here] = value
        if "dtype" in named and not has_dtype:  # NumPy computes in it
            leading[0] = registry.cast(as_tensor(leading[0], name), named.pop("dtype"))
        if given:
            raise TypeError(f"np.{name}: wengert knows no {', '.join(given)}=; use wg.{name} or t.detach().numpy()")
        return target(*leading, **named)

    call.__name__ = name
    return call


def _idle(name: str, parameter: str, value: Any) -> bool:
    """Whether a parameter says what is done anyway."""
    import numpy as np

    if value is np._NoValue or (value is None and parameter in OPTIONAL):
        return True
    if parameter not in _IDLE:
        return False
    if not any(value is v or (isinstance(v, str) and value == v) for v in _IDLE[parameter]):
        raise TypeError(
            f"np.{name}: {parameter}={value!r} has no counterpart in wengert; use t.detach().numpy() for the data"
        )
    return True
