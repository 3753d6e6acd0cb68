"""The op registry: rules, one module per family. Importing it joins both halves of every op, or fails with its name."""

from wengert.ops import (
    activations,
    angles,
    arithmetic,
    attention,
    bessel,
    conv,
    distributions,
    fft,
    incomplete,
    index,
    linalg,
    matmul,
    pool,
    predicates,
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
    tangents,
    transcendental,
)
from wengert.ops.documentation import install as install_documentation
from wengert.registry.record import OPS, Op, check_complete

check_complete()
install_documentation()

__all__ = [
    "OPS", "Op", "activations", "angles", "arithmetic", "attention", "bessel", "conv", "distributions", "fft",
    "incomplete", "index", "linalg", "matmul", "pool", "predicates", "random", "recurrent", "reduce", "resample",
    "rows", "scan", "shape", "softmax", "sort", "special", "spectral", "tangents", "transcendental",
]  # fmt: skip
