"""Names of other libraries that people type out of habit, and what they are called here."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Functions and methods: what to write instead.
FOREIGN: dict[str, str] = {
    "permute": "permute_dims(axes)",
    "transpose": "swapaxes(a, b), permute_dims(axes) or the property mT",
    "t": "the property T",
    "cat": "concat",
    "concatenate": "concat",
    "vstack": "concat(axis=0)",
    "hstack": "concat(axis=1)",
    "unsqueeze": "expand_dims(axis=)",
    "view": "reshape",
    "view_as": "reshape(other.shape)",
    "ravel": "flatten",
    "expand": "broadcast_to",
    "expand_as": "broadcast_to(other.shape)",
    "clamp": "clip(min, max)",
    "clamp_": "clip_(min, max)",
    "clamp_min": "clip(min=)",
    "clamp_max": "clip(max=)",
    "chunk": "split",
    "unbind": "unstack",
    "numel": "the property size",
    "dim": "the property ndim",
    "type": "astype",
    "type_as": "astype(other.dtype)",
    "float": "astype('float32')",
    "double": "astype('float64')",
    "half": "astype('float16')",
    "long": "astype('int64')",
    "cpu": "to('cpu')",
    "cuda": "to('cuda')",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "absolute": "abs",
    "index_fill": "x[index] = value",
    "index_add": "scatter_add or segment_sum",
    "new_zeros": "zeros(shape, dtype=x.dtype)",
    "new_ones": "ones(shape, dtype=x.dtype)",
    "new_tensor": "tensor",
    "eq": "equal, or ==",
    "ne": "not_equal, or !=",
    "lt": "less, or <",
    "le": "less_equal, or <=",
    "gt": "greater, or >",
    "ge": "greater_equal, or >=",
    "true_divide": "div",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "power": "pow",
    "amax": "max",
    "amin": "min",
    "hardtanh": "hard_tanh",
    "hardswish": "hard_swish",
    "hardsigmoid": "hard_sigmoid",
    "hardshrink": "hard_shrink",
    "softshrink": "soft_shrink",
    "logsigmoid": "log_sigmoid",
    "swish": "silu",
    "binary_cross_entropy": "bce_loss",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "multinomial": "randint or permutation",
    "trapz": "trapezoid",
    "histc": "histogram",
    "scatter_reduce": "segment_sum, segment_mean, segment_max and segment_min",
    "nan_to_num_": "nan_to_num",
    "randperm": "permutation",
    "seed": "manual_seed",
    "from_numpy": "asarray",
    "as_tensor": "asarray",
}

# Keyword arguments.
KEYWORDS: dict[str, str] = {
    "dim": "axis",
    "dims": "axis",
    "keepdim": "keepdims",
    "axes": "axis",
    "unbiased": "correction",
    "ddof": "correction",
    "input": "the first position",
    "size": "shape",
    "diagonal": "k",
    "inplace": "the method that ends in an underscore",
    "a_min": "min",
    "a_max": "max",
}


def explain(owner: str, name: str) -> str:
    """The message of an AttributeError; it names ours where there is one."""
    message = f"{owner} has no attribute {name!r}"
    return f"{message}; wengert has {FOREIGN[name]}" if name in FOREIGN else message


class ForeignMethod:
    """Stands on the Tensor type under a foreign name; reading it raises with ours, so `hasattr` is still False."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(explain("Tensor", self.name))


def explain_keywords(f: Callable[P, R]) -> Callable[P, R]:
    """A function whose TypeError for `dim=` and the like names our keyword."""

    @wraps(f)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return f(*args, **options)
        except TypeError:
            for word in options:
                if word in KEYWORDS and word not in f.__code__.co_varnames:
                    message = f"{f.__name__}() has no keyword {word!r}; in wengert it is {KEYWORDS[word]}"
                    raise TypeError(message) from None
            raise

    return call
