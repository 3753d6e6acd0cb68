"""The op registry: rules, one module per family. Importing it joins both halves of every op, or fails with its name."""

from wengert.ops import (
    attention,
    conv,
    elementwise,
    fft,
    index,
    linalg,
    matmul,
    pool,
    random,
    recurrent,
    reduce,
    resample,
    rows,
    scan,
    shape,
    softmax,
    sort,
    special,
    spectral,
)
from wengert.ops.registry import OPS, Op, check_complete

check_complete()

__all__ = [
    "OPS", "Op", "attention", "conv", "elementwise", "fft", "index", "linalg", "matmul", "pool", "random", "recurrent",
    "reduce", "resample", "rows", "scan", "shape", "softmax", "sort", "special",
    "spectral",
]  # fmt: skip
