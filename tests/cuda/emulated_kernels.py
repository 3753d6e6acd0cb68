"""Kernels on more elements than one block takes, beside the CPU's: on a GPU, or on the one that test_emulated.py plays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg
from wengert.ops import OPS

# Relative to the largest element: sums in another order, and roundings to 16 bits at other places.
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}


def same(f: Callable[..., Any], *operands: Any, what: str) -> None:
    """The same results here and there, and the same gradients of their sums with weights that differ."""
    found = []
    for device in ("cpu", "cuda"):
        tensors = [t.to(device) for t in operands]
        sources = [t.requires_grad_() for t in tensors if t.dtype.is_inexact]
        made = f(*tensors)
        results = list(made) if isinstance(made, tuple) else [made]
        total = sum(
            (y * (1.0 + wg.arange(y.size, device=device, dtype=y.dtype).reshape(y.shape) % 3)).sum()
            for y in results
            if y.requires_grad
        )
        gradients = list(wg.grad_of(total, sources)) if isinstance(total, wg.Tensor) else []
        found.append([t.detach().cpu().astype("float64").numpy() for t in [*results, *gradients]])
    tolerance = TOLERANCE.get(operands[0].dtype.name, 0.0)
    for k, (here, there) in enumerate(zip(*found, strict=True)):
        scale = max(1.0, float(np.abs(here).max(initial=0.0)))
        np.testing.assert_allclose(there, here, rtol=0, atol=tolerance * scale, err_msg=f"{what}, array {k}")


def normal(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Any:
    return wg.tensor(rng.normal(size=shape)).astype(dtype)


def sorting(rng: np.random.Generator) -> None:
    """Lines of several pieces, with many equal elements, along and across memory."""
    for shape, axis in (((2, 1500), 1), ((600, 3), 0)):
        for dtype in ("float32", "int16"):
            x = wg.tensor(rng.integers(-50, 50, shape)).astype(dtype)
            for descending in (False, True):
                same(lambda t: wg.sort(t, axis=axis, descending=descending), x, what=f"sort {shape} {dtype}")
                same(lambda t: wg.argsort(t, axis=axis, descending=descending), x, what=f"argsort {shape} {dtype}")
            same(lambda t: tuple(wg.topk(t, 300, axis=axis)), x, what=f"topk {shape} {dtype}")
    sorted_ = wg.sort(normal(rng, 700))
    same(wg.searchsorted, sorted_, normal(rng, 400), what="searchsorted")
    holed = normal(rng, 300)
    holed[7] = float("nan")
    try:
        wg.sort(holed.to("cuda")).cpu()
    except wg.errors.ArgumentError as error:
        assert "NaN" in str(error)
    else:
        raise AssertionError("a NaN was sorted")


def indexing(rng: np.random.Generator) -> None:
    """More indices than are looked through by every element: sums and last writes at places, in order."""
    places = wg.tensor(rng.integers(-40, 40, 3000))
    same(lambda t, i: t[i], normal(rng, 40, 40), places, what="rows of a table")
    values = normal(rng, 3000, 2)

    def write(t: Any, i: Any, v: Any) -> Any:
        return t.at[i].set(v)

    same(write, normal(rng, 40, 2), places, values, what="rows that are set")


def convolving(rng: np.random.Generator) -> None:
    """Several tiles in each direction, groups, strides, a sum that is cut, and one to three axes."""
    cases: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ((3, 5, 17, 13), (70, 5, 3, 3), {"padding": 1}),
        ((2, 6, 20, 19), (8, 3, 5, 3), {"stride": 2, "padding": (2, 0), "groups": 2}),
        ((4, 3, 300), (2, 3, 7), {"stride": 3, "dilation": 2}),
        ((2, 2, 6, 7, 9), (3, 2, 3, 2, 3), {"padding": 1}),
    ]
    for x, w, options in cases:
        f = [wg.conv1d, wg.conv2d, wg.conv3d][len(x) - 3]
        same(
            lambda x, w, b, f=f, options=options: f(x, w, bias=b, **options),
            normal(rng, *x),
            normal(rng, *w),
            normal(rng, w[0]),
            what=f"convolution {x} {w}",
        )


def recurring(rng: np.random.Generator) -> None:
    """Layers with more units and more rows than a block has threads or rows."""
    for kind, batch, width, hidden in (("LSTM", 5, 3, 70), ("GRU", 3, 4, 150), ("LSTM", 140, 2, 9), ("GRU", 260, 2, 5)):
        wg.manual_seed(1)
        layer = getattr(wg.nn, kind)(width, hidden, batch_first=True)
        x = normal(rng, batch, 4, width)
        results = []
        for device in ("cpu", "cuda"):
            layer.to(device)
            for p in layer.parameters():
                p.grad = None
            y = layer(x.to(device))[0]
            (y * y).sum().backward()
            results.append([t.detach().cpu().numpy() for t in [y, *(p.grad for p in layer.parameters())]])
        for here, there in zip(*results, strict=True):
            np.testing.assert_allclose(there, here, rtol=1e-4, atol=2e-5 * max(1.0, np.abs(here).max()), err_msg=kind)


def attending(rng: np.random.Generator) -> None:
    """Several tiles of queries and keys, wide and narrow heads, masks, in every way that the kernels have."""
    sizes = {
        "float32": [(130, 130, 72, 64, True, 0.0), (70, 90, 20, 100, False, 0.25)],
        "bfloat16": [(33, 70, 136, 100, False, 0.25)],
        "float64": [(33, 70, 36, 40, False, 0.0)],
    }
    for dtype, cases in sizes.items():
        for queries, keys, depth, width, causal, dropout in cases:
            q, k = normal(rng, 1, 2, queries, depth, dtype=dtype), normal(rng, 1, 2, keys, depth, dtype=dtype)
            v = normal(rng, 1, 2, keys, width, dtype=dtype)
            mask = wg.tensor(rng.random((1, 1, queries, keys)) < 0.8) if not causal else None

            def f(q: Any, k: Any, v: Any, mask: Any = mask, causal: bool = causal, dropout: float = dropout) -> Any:
                wg.manual_seed(3)
                there = None if mask is None else mask.to(q.device)
                return wg.scaled_dot_product_attention(q, k, v, attn_mask=there, is_causal=causal, dropout_p=dropout)

            same(f, q, k, v, what=f"attention {dtype} {queries}x{keys}, {depth} and {width}")


def summing(rng: np.random.Generator) -> None:
    """Columns in chunks and at once, of packs and single elements; copies by wide elements; norms with their parameters."""
    for shape in ((1500, 40), (600, 257), (64, 32)):
        for dtype in ("float32", "bfloat16"):
            x = normal(rng, *shape, dtype=dtype)
            same(lambda t: (t.sum(axis=0), t[::2, 1:].sum(axis=0), wg.sin(t[1:]).sum(axis=0)), x, what=f"sums {shape}")
            same(lambda t: wg.concat([t[:, :16], t[:, 16:]], axis=0).max(axis=0), x[:, :32], what=f"halves {shape}")
    for columns, dtype in ((768, "bfloat16"), (64, "float32"), (33, "float64"), (3000, "float32")):
        operands = [normal(rng, *s, dtype=dtype) for s in ((37, columns), (columns,), (columns,))]
        same(
            lambda x, w, b: wg.layer_norm(x, w.shape, weight=w, bias=b), *operands, what=f"layer norm {columns} {dtype}"
        )
        same(lambda x, w: wg.rms_norm(x, w.shape, weight=w), *operands[:2], what=f"rms norm {columns} {dtype}")


def multiplying(rng: np.random.Generator) -> None:
    """Long sums in parts, packed or not; tiles of packs and of single elements; elementwise work on both, in graphs."""
    for m, k, n in ((5, 1024, 10), (33, 640, 7), (70, 640, 90), (130, 100, 516), (130, 96, 515), (1, 700, 3)):
        a, b, bias = normal(rng, m, k), normal(rng, k, n), normal(rng, n)
        what = f"{m}×{k} by {k}×{n}"
        same(lambda a, b: a @ b, a, b, what=what)
        turned = normal(rng, n, k)
        same(lambda a, b: a @ b.T, a, turned, what=f"{what}, transposed")
        same(lambda a, b: a[:, 1:] @ b[1:], a, b, what=f"{what}, not aligned")
        step = wg.compile(lambda a, b, c: wg.relu(a @ b + c) * 2.0 - wg.exp(-((a @ b) ** 2)).sum(axis=0))
        operands = [t.detach().to("cuda") for t in (a, b, bias)]
        first, *later = (step(*operands).cpu().numpy() for _ in range(3))
        assert all((first == y).all() for y in later), what


# What is stored in 16 bits is rounded, and so are the weights and their cotangents: relative to the largest element.
ROUNDING = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5}


def attend(dtype: str, q: Any, k: Any, v: Any, what: str, mask: Any = None, **options: Any) -> None:
    """Attention and its gradients on the GPU, beside the CPU's in float64 on the same numbers."""
    found = []
    for device, computed in (("cpu", "float64"), ("cuda", dtype)):
        leaves = [t.astype(dtype).astype(computed).to(device).requires_grad_() for t in (q, k, v)]
        if mask is not None:
            options["attn_mask"] = mask.to(device)
        wg.manual_seed(3)
        y = wg.scaled_dot_product_attention(*(t.swapaxes(1, 2) for t in leaves), **options)
        seed = (wg.arange(y.size, device=device) % 7).reshape(y.shape).astype(y.dtype) - 2.0
        gradients = wg.grad_of((y * seed).sum(), leaves)
        found.append([t.detach().cpu().astype("float64").numpy() for t in (y, *gradients)])
    for name, here, there in zip(("o", "q_bar", "k_bar", "v_bar"), *found, strict=True):
        tolerance = ROUNDING[dtype] * np.abs(here).max(initial=1e-3)
        np.testing.assert_allclose(there, here, rtol=0, atol=tolerance, err_msg=f"{name} of {dtype}, {what}")


def attending_by_warps(rng: np.random.Generator) -> None:
    """Lengths that fill no tile or several, heads that fill no step, rows that see nothing, operands that lie apart."""

    def heads(queries: int, keys: int, depth: int, width: int, factor: float = 1.0) -> list[Any]:
        sizes = ((queries, depth), (keys, depth), (keys, width))
        return [normal(rng, 2, n, 1, columns) * factor for n, columns in sizes]

    for queries, keys in ((1, 1), (5, 77), (64, 64), (130, 70), (70, 200), (65, 129)):
        for causal in (True, False):
            attend("bfloat16", *heads(queries, keys, 64, 64), f"{queries}x{keys}", is_causal=causal)
    attend("bfloat16", *heads(90, 90, 64, 48, 6.0), "scores of hundreds", is_causal=True)
    attend("bfloat16", *heads(70, 90, 64, 64), "a scale that is negative", scale=-0.3)
    attend("bfloat16", *heads(9, 20, 64, 64), "nothing is seen", mask=wg.tensor([[[[False]]]]))
    some = wg.tensor(rng.random((2, 1, 80, 140)) < 0.3).at[:, :, 17].set(False)
    attend("float16", *heads(80, 140, 13, 20), "booleans, odd heads", mask=some)
    attend("float16", *heads(80, 140, 13, 20), "booleans, odd heads, causal", mask=some, is_causal=True)
    attend("float16", *heads(80, 140, 24, 32), "dropout", mask=some, dropout_p=0.25)
    added = wg.where(some, normal(rng, 2, 1, 80, 140) * 3.0, -float("inf"))
    for depth, width in ((72, 128), (96, 88), (128, 40)):
        attend("bfloat16", *heads(80, 140, depth, width), f"numbers, heads {depth} and {width}", mask=added)
        attend("float16", *heads(150, 100, depth, width), f"heads {depth} and {width}, causal", is_causal=True)
    attend("bfloat16", *heads(80, 140, 64, 64), "numbers for all queries", mask=normal(rng, 1, 1, 1, 140))
    attend("float32", *heads(70, 200, 64, 48), "causal", is_causal=True)
    attend("float32", *heads(130, 70, 13, 20), "odd heads", is_causal=True)
    attend("float32", *heads(80, 140, 24, 32), "booleans, dropout", mask=some, dropout_p=0.25)
    attend("float32", *heads(80, 140, 64, 64, 3.0), "numbers", mask=added)
    several_layouts(rng)


def several_layouts(rng: np.random.Generator) -> None:
    """A joint projection, keys that heads share, and the same bits from a graph."""

    def projected(x: Any) -> Any:
        h = x.reshape(2, 70, 3, 2, 32)
        return wg.scaled_dot_product_attention(*(h[:, :, i].swapaxes(1, 2) for i in range(3)), is_causal=True)

    def shared(q: Any, k: Any, v: Any) -> Any:
        return wg.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def step(x: Any) -> Any:
        y, pull = wg.vjp(projected, x * 2.0)
        return y, pull(wg.tanh(y))[0] + 1.0

    same(projected, normal(rng, 2, 70, 192, dtype="bfloat16"), what="a joint projection")
    groups = [normal(rng, 2, n, 50, 32, dtype="float16") for n in (4, 2, 2)]
    same(shared, *groups, what="heads that share keys")
    x = normal(rng, 2, 70, 192, dtype="bfloat16").to("cuda")
    eager = [t.cpu().numpy() for t in step(x)]
    compiled = wg.compile(step)
    for _ in range(4):  # from some run on by a graph, with results elsewhere
        for here, there in zip(eager, compiled(x), strict=True):
            np.testing.assert_array_equal(there.cpu().numpy(), here)


def classifying(rng: np.random.Generator) -> None:
    """Cross entropy of short and long rows, in forward mode too, and of a class that does not exist."""
    for dtype in ("float32", "float64", "bfloat16"):
        for rows, classes in ((37, 5), (3, 700)):
            x, t = normal(rng, rows, classes, dtype=dtype), wg.tensor(rng.integers(0, classes, rows))

            def f(x: Any, t: Any) -> Any:
                return wg.cross_entropy(x, t, reduction="none", ignore_index=1)

            same(f, x, t, what=f"cross entropy {dtype} {rows}x{classes}")
            same(lambda x, t, f=f: wg.jvp(lambda x: f(x, t), (x,), (x * x,))[1], x, t, what=f"its tangent, {dtype}")
    try:
        wg.cross_entropy(normal(rng, 2, 3).to("cuda"), wg.tensor([0, 3]).to("cuda")).item()
    except wg.IndexRangeError as e:
        assert "3" in str(e)
    else:
        raise AssertionError("class 3 of 3 was taken")


def resampling(rng: np.random.Generator) -> None:
    """Other sizes along axes, and classes by weights: those that the CPU draws."""
    for mode in ("nearest", "bilinear"):
        for size in ((7, 13), (3, 4)):
            same(
                lambda x, s=size, m=mode: wg.upsample(x, size=s, mode=m), normal(rng, 2, 3, 5, 9), what=f"{mode} {size}"
            )
    for size, shape in ((4, (2, 19, 3)), (2, (2, 13))):
        windows = 3  # many elements each
        same(lambda x, s=size: OPS["resample"](x, (s,), 1, windows, 0.0), normal(rng, *shape), what=f"means {shape}")
    for dtype in ("float32", "bfloat16"):
        weights = abs(normal(rng, 5, 33, dtype=dtype))
        weights[1, 3:] = 0.0
        here, there = (OPS["random_categorical"](weights.to(d), (40,), (3, 4), (7,)) for d in ("cpu", "cuda"))
        np.testing.assert_array_equal(there.cpu().numpy(), here.numpy())


def drawing(rng: np.random.Generator) -> None:
    """Draws with parameters on both sides of every threshold: those of the CPU, also in graphs, and their slopes."""
    stream = ((5, 6), (2**32 - 3,))
    shapes = np.concatenate([rng.uniform(0.02, 3.0, 300), rng.uniform(3.0, 1e4, 80), [0.0, -1.0, np.nan, np.inf, 1e-3]])
    rates = np.concatenate([rng.uniform(0.0, 20.0, 300), rng.uniform(20.0, 1e5, 80), [0.0, -1.0, np.nan, np.inf]])
    trials = np.floor(np.concatenate([rng.uniform(0, 60, 300), rng.uniform(60, 1e5, 80), [-1.0, np.inf, np.nan]]))
    chances = np.concatenate([rng.random(376), [0.0, 1.0, 0.5, 1e-4, 1.5, 0.5, 0.5]])
    weights, counts = rng.random((23, 7)), np.floor(rng.uniform(0, 400, 23))
    weights[3, :5] = 0.0
    for dtype in ("float32", "float64", "float16"):
        for name, operands, attributes in (
            ("random_gamma", (shapes,), (0, *stream)),
            ("random_gamma", (shapes,), (1, *stream)),
            ("random_von_mises", (rates,), stream),
            ("random_poisson", (rates,), stream),
            ("random_binomial", (trials, chances), stream),
            ("random_multinomial", (counts, weights), stream),
        ):
            tensors = [wg.tensor(x).astype(dtype) for x in operands]
            made = [OPS[name](*(t.to(d) for t in tensors), *attributes).cpu() for d in ("cpu", "cuda")]
            here, there = (t.astype("float64").numpy() for t in made)
            tolerance = 0.0 if name.startswith(("random_p", "random_b", "random_m")) else TOLERANCE[dtype]
            np.testing.assert_allclose(there, here, rtol=tolerance, atol=tolerance, err_msg=f"{name} {dtype}")
    a = wg.tensor(rng.uniform(0.05, 60.0, 300))
    l = wg.log(a) + normal(rng, 300, dtype="float64")
    same(lambda a, l: OPS["gamma_slope"](a, l), a, l, what="slopes of gamma draws")
    same(lambda a, l: OPS["gamma_tail"](a, l, 3), a, l, what="tails")
    same(lambda a, l: OPS["gamma_slope"](a, l), a.astype("float32"), l.astype("float32"), what="slopes in float32")
    same(lambda a: OPS["random_gamma"](a, 0, *stream), wg.tensor(shapes[:380]), what="draws and their slopes")
    drawing_in_graphs()


def drawing_in_graphs() -> None:
    """Each run of a compiled function draws what the CPU draws next."""
    found = []
    for device in ("cpu", "cuda"):
        rates = wg.tensor([0.5, 3.0, 40.0, 700.0], device=device)
        wg.manual_seed(7)

        @wg.compile
        def draw(r: Any) -> Any:
            z = wg.random.gamma(r + 1.0)
            return wg.random.poisson(r), wg.tanh(z) * z, z

        found.append([t.cpu().numpy() for _ in range(5) for t in draw(rates)])
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=2e-5)


def series(rng: np.random.Generator) -> None:
    """Special functions that are sums and iterations: with orders, in chains, their derivatives, and of complex numbers."""
    a, b = wg.tensor(rng.uniform(0.1, 60.0, 300)), wg.tensor(rng.uniform(0.1, 60.0, 300))
    p = wg.tensor(np.concatenate([rng.uniform(0.001, 0.999, 296), [0.25, 0.5, 0.75, 0.9]]))
    x, v = a * wg.tensor(rng.uniform(0.3, 2.0, 300)), b * 0.1
    functions: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
        ("gammainc", (a, x), ()), ("gammaincc", (a, x), ()), ("gammaincinv", (a, p), ()), ("gammainccinv", (a, p), ()),
        ("betainc", (a, b, p), ()), ("betaincinv", (a, b, p), ()), ("ndtri", (p,), ()), ("von_mises_icdf", (p, a), ()),
        ("gamma", (a,), ()), ("beta", (a, b), ()), ("polygamma", (a,), (2,)), ("bessel_i", (a,), (3,)),
        ("bessel_i_scaled", (a,), (3,)), ("gammainc_by_a", (a, x), (2,)), ("betainc_by_ab", (a, b, p), (1, 1)),
        ("zeta_by_s", (a + 1.0, b), (0,)), ("zeta_by_s", (a + 1.0, b), (2,)), ("bessel_j", (a,), (2,)),
        ("bessel_y", (a,), (2,)), ("bessel_iv", (v, a), (0,)), ("bessel_ive", (v, a), (1,)), ("bessel_kv", (v, a), (1,)),
        ("bessel_kve", (v, a), (0,)), ("von_mises_cdf", (p, a), (1,)),
    ]  # fmt: skip
    for name, operands, orders in functions:
        for dtype in ("float64", "bfloat16") if name in ("betainc", "polygamma") else ("float64",):
            narrow = [t.astype(dtype) for t in operands]
            made = [OPS[name](*(t.to(d) for t in narrow), *orders).cpu() for d in ("cpu", "cuda")]
            here, there = (t.astype("float64").numpy() for t in made)
            tolerance = 1e-9 if dtype == "float64" else 1e-2
            np.testing.assert_allclose(there, here, rtol=tolerance, atol=1e-9, err_msg=f"{name} {dtype}")
    chain = wg.compile(lambda a, b, p: wg.log1p(OPS["betainc"](a, b, p)) * a + OPS["gammainc"](a, b))
    for _ in range(3):
        made = chain(*(t.to("cuda") for t in (a, b, p)))
        np.testing.assert_allclose(made.cpu().numpy(), chain(a, b, p).numpy(), rtol=1e-10)
    same(lambda a, x: OPS["gammainc"](a, x), a, x, what="gammainc and its derivatives")
    ends = wg.compile(lambda x, w: OPS["gammainc"](abs(x @ w) + 0.5, 1.0 + abs(x[:, :5])))  # at a product's end
    normed = wg.compile(lambda x, w: wg.layer_norm(OPS["gammainc"](abs(x) + 0.5, abs(x) + 1.0), (w.shape[0],)))
    for f in (ends, normed):
        operands = normal(rng, 32, 64), normal(rng, 64, 5)
        for _ in range(3):
            made = f(*(t.to("cuda") for t in operands)).cpu().numpy()
            np.testing.assert_allclose(made, f(*operands).numpy(), rtol=2e-4, atol=2e-5)
    z = wg.make_complex(normal(rng, 300, dtype="float64") * 3.0, normal(rng, 300, dtype="float64") * 3.0)
    for f in (wg.erf, wg.erfc):
        np.testing.assert_allclose(f(z.to("cuda")).cpu().numpy(), f(z).numpy(), rtol=1e-12)


def main(which: list[str]) -> None:
    rng = np.random.default_rng(0)
    for part in (
        sorting,
        indexing,
        convolving,
        recurring,
        attending,
        attending_by_warps,
        summing,
        multiplying,
        classifying,
        resampling,
        drawing,
        series,
    ):
        if not which or part.__name__ in which:
            part(rng)
            print(part.__name__, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
