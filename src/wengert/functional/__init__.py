"""Functions of tensors: the ops of the registry under their public names, and what is composed of them."""

from typing import Any

from wengert.functional.activations import (
    elu,
    gelu,
    hard_sigmoid,
    hard_swish,
    hard_tanh,
    leaky_relu,
    log_softmax,
    mish,
    prelu,
    relu6,
    selu,
    silu,
    softmax,
)
from wengert.functional.elementwise import (
    allclose,
    clip,
    divide,
    isclose,
    log_sigmoid,
    logaddexp,
    multiply,
    negative,
    positive,
    pow,
    softplus,
    subtract,
    xlogy,
)
from wengert.functional.gather import (
    embedding,
    gather,
    index_select,
    nonzero,
    one_hot,
    scatter,
    scatter_add,
    segment_sum,
    take,
    take_along_axis,
)
from wengert.functional.linear import dot, linear, matmul, outer, tensordot, vecdot
from wengert.functional.losses import (
    bce_loss,
    bce_with_logits,
    cross_entropy,
    focal_loss,
    hinge_loss,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    softmax_cross_entropy,
)
from wengert.functional.normalisation import layer_norm, rms_norm
from wengert.functional.reductions import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    logsumexp,
    max,
    mean,
    min,
    norm,
    prod,
    std,
    sum,
    var,
)
from wengert.functional.shapes import (
    astype,
    broadcast_arrays,
    broadcast_to,
    clone,
    concat,
    diag,
    diagonal,
    expand_dims,
    flatten,
    flip,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    trace,
    tril,
    triu,
    unstack,
)
from wengert.ops.registry import OPS

_COMPOSED = [name for name, value in list(globals().items()) if callable(value) and name not in ("Any",)]
_NATIVE = [op.name for op in OPS.values() if op.public and op.name not in _COMPOSED]
globals().update({name: OPS[name].function for name in _NATIVE})

__all__ = [*_COMPOSED, *_NATIVE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    from wengert.functional.foreign_names import explain

    raise AttributeError(explain("module 'wengert.functional'", name))
