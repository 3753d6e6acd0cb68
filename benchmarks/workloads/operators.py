"""The operators to time: by family, at three sizes, as source in the words of each library.

An entry is one expression per library over operands `a`, `b`, `c` (floating, differentiated), `i` (indices) and the module
itself: `wg`, `torch` (with `F`), `np`. An empty string: the library has no such function. Sizes are shapes of the operands.
"""

from __future__ import annotations

from typing import NamedTuple

Shape = tuple[int, ...]


class Operator(NamedTuple):
    """One operator in three libraries."""

    family: str
    name: str
    wengert: str
    torch: str
    numpy: str
    sizes: tuple[tuple[Shape, ...], ...]  # three times the shapes of a, b, c
    index: tuple[tuple[Shape, int], ...] = ()  # per size: shape of i, and the bound of its numbers
    low: float = 0.1
    high: float = 0.9
    definite: bool = False  # a is made symmetric positive definite
    gradient: bool = True


VECTORS = ((64,), (16_384,), (1_000_000,))
MATRICES = ((8, 8), (128, 128), (1000, 1000))
ROWS = ((8, 16), (256, 128), (2000, 500))


def _sizes(shapes: tuple[Shape, ...], operands: int = 1) -> tuple[tuple[Shape, ...], ...]:
    return tuple((s,) * operands for s in shapes)


def _unary(name: str, torch: str = "", numpy: str = "") -> Operator:
    theirs = f"torch.{torch or name}(a)"
    return Operator("elementwise", name, f"wg.{name}(a)", theirs, numpy and f"np.{numpy}(a)", _sizes(VECTORS))


def _arithmetic(name: str, code: str) -> Operator:
    return Operator("arithmetic", name, code, code, code, _sizes(VECTORS, 2))


def _reduction(name: str, torch: str, numpy: str = "") -> Operator:
    ours = f"wg.{name}(a, axis=-1)"
    return Operator("reductions", f"{name}, last axis", ours, torch, numpy, _sizes(ROWS))


def _linalg(name: str, numpy: str = "", operands: int = 1, **more: bool) -> Operator:
    arguments = ", ".join("ab"[:operands])
    code = f"linalg.{name}({arguments})"
    sizes = _sizes(((8, 8), (64, 64), (256, 256)), operands)
    return Operator("linear algebra", name, f"wg.{code}", f"torch.{code}", numpy or f"np.{code}", sizes, **more)


_IMAGES = (((8, 1, 28, 28), (16, 1, 3, 3)), ((64, 1, 28, 28), (32, 1, 3, 3)), ((64, 32, 14, 14), (64, 32, 3, 3)))
_HEADS = tuple(((b, h, t, d),) * 3 for b, h, t, d in ((2, 2, 16, 16), (16, 4, 64, 32), (2, 8, 512, 64)))
_CHANNELS = ((8, 16, 7, 7), (64, 32, 14, 14), (64, 64, 28, 28))

OPERATORS: tuple[Operator, ...] = (
    _arithmetic("add", "a + b"),
    _arithmetic("multiply", "a * b"),
    _arithmetic("divide", "a / b"),
    _arithmetic("power", "a ** b"),
    Operator(
        "arithmetic",
        "add a row",
        "a + b",
        "a + b",
        "a + b",
        tuple((s, s[1:]) for s in ROWS),
    ),
    *(_unary(n, numpy=n) for n in ("exp", "log", "sqrt", "sin", "cos", "tanh", "expm1", "log1p", "abs")),
    *(_unary(n) for n in ("sigmoid", "erf", "erfinv", "lgamma", "digamma", "relu")),
    Operator(
        "elementwise",
        "where",
        "wg.where(a > b, a, b)",
        "torch.where(a > b, a, b)",
        "np.where(a > b, a, b)",
        _sizes(VECTORS, 2),
    ),
    Operator(
        "elementwise",
        "clip",
        "wg.clip(a, 0.3, 0.6)",
        "torch.clip(a, 0.3, 0.6)",
        "np.clip(a, 0.3, 0.6)",
        _sizes(VECTORS),
    ),
    *(
        Operator("activations", n, f"wg.{n}(a)", f"F.{t}(a)", "", _sizes(VECTORS), low=-3.5, high=3.5)
        for n, t in (
            ("gelu", "gelu"),
            ("silu", "silu"),
            ("elu", "elu"),
            ("softplus", "softplus"),
            ("mish", "mish"),
            ("hard_swish", "hardswish"),
        )
    ),
    _reduction("sum", "a.sum(-1)", "a.sum(-1)"),
    _reduction("mean", "a.mean(-1)", "a.mean(-1)"),
    _reduction("max", "a.amax(-1)", "a.max(-1)"),
    _reduction("prod", "a.prod(-1)", "a.prod(-1)"),
    _reduction("var", "a.var(-1, correction=0)", "a.var(-1)"),
    _reduction("logsumexp", "a.logsumexp(-1)"),
    Operator("reductions", "sum, first axis", "wg.sum(a, axis=0)", "a.sum(0)", "a.sum(0)", _sizes(ROWS)),
    Operator("reductions", "sum, all", "wg.sum(a)", "a.sum()", "a.sum()", _sizes(ROWS)),
    Operator(
        "reductions", "argmax", "wg.argmax(a, axis=-1)", "a.argmax(-1)", "a.argmax(-1)", _sizes(ROWS), gradient=False
    ),
    Operator("scans", "cumsum", "wg.cumsum(a, axis=-1)", "a.cumsum(-1)", "a.cumsum(-1)", _sizes(ROWS)),
    Operator(
        "scans", "cumprod", "wg.cumprod(a, axis=-1)", "a.cumprod(-1)", "a.cumprod(-1)", _sizes(ROWS), low=0.9, high=1.1
    ),
    Operator("scans", "logcumsumexp", "wg.logcumsumexp(a, axis=-1)", "a.logcumsumexp(-1)", "", _sizes(ROWS)),
    Operator("scans", "cummax", "wg.cummax(a, axis=-1)[0]", "a.cummax(-1)[0]", "", _sizes(ROWS)),
    Operator(
        "sorting",
        "sort",
        "wg.sort(a)",
        "a.sort(stable=True)[0]",
        "np.sort(a)",
        _sizes(((64,), (10_000,), (1_000_000,))),
    ),
    Operator(
        "sorting", "sort rows", "wg.sort(a, axis=-1)", "a.sort(dim=-1, stable=True)[0]", "np.sort(a, -1)", _sizes(ROWS)
    ),
    Operator(
        "sorting",
        "argsort",
        "wg.argsort(a)",
        "torch.argsort(a, stable=True)",
        "np.argsort(a)",
        _sizes(((64,), (10_000,), (1_000_000,))),
        gradient=False,
    ),
    Operator("sorting", "topk", "wg.topk(a, 5)[0]", "a.topk(5)[0]", "", _sizes(ROWS)),
    Operator("sorting", "median", "wg.median(a, axis=-1)", "a.quantile(0.5, -1)", "np.median(a, -1)", _sizes(ROWS)),
    Operator(
        "shapes",
        "transposed copy",
        "wg.concat([a.T, a.T])",
        "torch.cat([a.T, a.T])",
        "np.concatenate([a.T, a.T])",
        _sizes(MATRICES),
    ),
    Operator(
        "shapes", "concat", "wg.concat([a, b])", "torch.cat([a, b])", "np.concatenate([a, b])", _sizes(MATRICES, 2)
    ),
    Operator(
        "shapes",
        "pad",
        "wg.pad(a, ((1, 1), (2, 2)))",
        "F.pad(a, (2, 2, 1, 1))",
        "np.pad(a, ((1, 1), (2, 2)))",
        _sizes(MATRICES),
    ),
    Operator("shapes", "flip", "wg.flip(a, axis=1)", "a.flip(1)", "np.flip(a, 1).copy()", _sizes(MATRICES)),
    Operator(
        "shapes",
        "repeat",
        "wg.repeat(a, 3, axis=0)",
        "a.repeat_interleave(3, 0)",
        "np.repeat(a, 3, 0)",
        _sizes(((8, 8), (64, 64), (300, 300))),
    ),
    Operator(
        "indexing",
        "take rows",
        "wg.take(a, i, axis=0)",
        "a[i]",
        "a[i]",
        _sizes(((8, 8), (1000, 32), (20_000, 64))),
        index=(((4,), 8), ((512,), 1000), ((4096,), 20_000)),
    ),
    Operator(
        "indexing",
        "take_along_axis",
        "wg.take_along_axis(a, i, axis=1)",
        "a.gather(1, i)",
        "np.take_along_axis(a, i, 1)",
        _sizes(ROWS),
        index=(((8, 16), 16), ((256, 128), 128), ((2000, 500), 500)),
    ),
    Operator(
        "indexing",
        "scatter_add",
        "wg.scatter_add(a, i, b, axis=1)",
        "a.scatter_add(1, i, b)",
        "",
        _sizes(ROWS, 2),
        index=(((8, 16), 16), ((256, 128), 128), ((2000, 500), 500)),
    ),
    Operator("indexing", "slice", "a[1:, ::2]", "a[1:, ::2].contiguous()", "a[1:, ::2].copy()", _sizes(MATRICES)),
    Operator("indexing", "mask", "a[a > 0.5]", "a[a > 0.5]", "a[a > 0.5]", _sizes(MATRICES)),
    Operator("products", "matmul", "a @ b", "a @ b", "a @ b", _sizes(((8, 8), (128, 128), (512, 512)), 2)),
    Operator(
        "products", "matmul of a stack", "a @ b", "a @ b", "a @ b", _sizes(((8, 4, 4), (64, 32, 32), (64, 128, 128)), 2)
    ),
    Operator(
        "products",
        "matrix times vector",
        "a @ b",
        "a @ b",
        "a @ b",
        (((8, 8), (8,)), ((256, 256), (256,)), ((2000, 2000), (2000,))),
    ),
    Operator(
        "products",
        "einsum bij,bjk->bik",
        "wg.einsum('bij,bjk->bik', a, b)",
        "torch.einsum('bij,bjk->bik', a, b)",
        "np.einsum('bij,bjk->bik', a, b, optimize=True)",
        _sizes(((4, 8, 8), (16, 32, 32), (32, 128, 128)), 2),
    ),
    Operator(
        "products",
        "linear",
        "wg.linear(a, b, c)",
        "F.linear(a, b, c)",
        "a @ b.T + c",
        (((8, 16), (16, 16), (16,)), ((64, 128), (128, 128), (128,)), ((128, 784), (1024, 784), (1024,))),
    ),
    _linalg("solve", operands=2),
    _linalg("inv"),
    _linalg("det"),
    _linalg("cholesky", definite=True),
    _linalg("qr", numpy="np.linalg.qr(a)"),
    _linalg("eigh", definite=True),
    _linalg("svdvals", numpy="np.linalg.svd(a, compute_uv=False)"),
    Operator(
        "linear algebra",
        "solve, stack",
        "wg.linalg.solve(a, b)",
        "torch.linalg.solve(a, b)",
        "np.linalg.solve(a, b)",
        _sizes(((16, 4, 4), (64, 8, 8), (64, 32, 32)), 2),
    ),
    Operator(
        "fft",
        "rfft",
        "wg.abs(wg.fft.rfft(a))",
        "torch.fft.rfft(a).abs()",
        "abs(np.fft.rfft(a))",
        _sizes(((64,), (64, 1024), (256, 4096))),
    ),
    Operator("convolution", "conv2d 3×3", "wg.conv2d(a, b, padding=1)", "F.conv2d(a, b, padding=1)", "", _IMAGES),
    Operator(
        "convolution",
        "conv2d 1×1",
        "wg.conv2d(a, b)",
        "F.conv2d(a, b)",
        "",
        tuple((s, (s[1], s[1], 1, 1)) for s in _CHANNELS),
    ),
    Operator(
        "convolution",
        "conv2d depthwise 3×3",
        "wg.conv2d(a, b, padding=1, groups=a.shape[1])",
        "F.conv2d(a, b, padding=1, groups=a.shape[1])",
        "",
        tuple((s, (s[1], 1, 3, 3)) for s in _CHANNELS),
    ),
    Operator(
        "convolution",
        "conv1d",
        "wg.conv1d(a, b)",
        "F.conv1d(a, b)",
        "",
        (((4, 4, 32), (8, 4, 5)), ((16, 16, 256), (32, 16, 5)), ((32, 64, 512), (64, 64, 5))),
    ),
    Operator(
        "convolution",
        "conv_transpose2d",
        "wg.conv_transpose2d(a, b, stride=2)",
        "F.conv_transpose2d(a, b, stride=2)",
        "",
        (((2, 8, 7, 7), (8, 4, 2, 2)), ((16, 16, 14, 14), (16, 8, 2, 2)), ((32, 64, 14, 14), (64, 32, 2, 2))),
    ),
    Operator("pooling", "max_pool2d", "wg.max_pool2d(a, 2)", "F.max_pool2d(a, 2)", "", _sizes(_CHANNELS)),
    Operator("pooling", "avg_pool2d", "wg.avg_pool2d(a, 2)", "F.avg_pool2d(a, 2)", "", _sizes(_CHANNELS)),
    Operator(
        "pooling",
        "upsample bilinear",
        "wg.upsample(a, scale=2, mode='bilinear')",
        "F.interpolate(a, scale_factor=2, mode='bilinear')",
        "",
        _sizes(_CHANNELS),
    ),
    Operator("normalisation", "softmax", "wg.softmax(a, -1)", "a.softmax(-1)", "", _sizes(ROWS)),
    Operator("normalisation", "log_softmax", "wg.log_softmax(a, -1)", "a.log_softmax(-1)", "", _sizes(ROWS)),
    Operator(
        "normalisation",
        "layer_norm",
        "wg.layer_norm(a, a.shape[-1:], weight=b, bias=c)",
        "F.layer_norm(a, a.shape[-1:], b, c)",
        "",
        tuple((s, s[1:], s[1:]) for s in ROWS),
    ),
    Operator(
        "normalisation",
        "batch_norm",
        "wg.batch_norm(a, b, c)",
        "F.batch_norm(a, None, None, b, c, True)",
        "",
        tuple((s, s[1:2], s[1:2]) for s in _CHANNELS),
    ),
    Operator(
        "normalisation",
        "group_norm",
        "wg.group_norm(a, 4, weight=b, bias=c)",
        "F.group_norm(a, 4, b, c)",
        "",
        tuple((s, s[1:2], s[1:2]) for s in _CHANNELS),
    ),
    Operator(
        "attention",
        "scaled_dot_product_attention",
        "wg.scaled_dot_product_attention(a, b, c)",
        "F.scaled_dot_product_attention(a, b, c)",
        "",
        _HEADS,
    ),
    Operator(
        "attention",
        "the same, causal",
        "wg.scaled_dot_product_attention(a, b, c, is_causal=True)",
        "F.scaled_dot_product_attention(a, b, c, is_causal=True)",
        "",
        _HEADS,
    ),
    Operator(
        "losses",
        "cross_entropy",
        "wg.cross_entropy(a, i)",
        "F.cross_entropy(a, i)",
        "",
        _sizes(ROWS),
        index=(((8,), 16), ((256,), 128), ((2000,), 500)),
    ),
    Operator("losses", "mse_loss", "wg.mse_loss(a, b)", "F.mse_loss(a, b)", "((a - b) ** 2).mean()", _sizes(ROWS, 2)),
    Operator(
        "losses",
        "bce_with_logits",
        "wg.bce_with_logits(a, b)",
        "F.binary_cross_entropy_with_logits(a, b)",
        "",
        _sizes(ROWS, 2),
    ),
    Operator(
        "indexing",
        "embedding",
        "wg.embedding(i, a)",
        "F.embedding(i, a)",
        "a[i]",
        _sizes(((32, 8), (1000, 64), (10_000, 128))),
        index=(((4, 4), 32), ((16, 64), 1000), ((64, 128), 10_000)),
    ),
)
