"""Names of other libraries that people type out of habit, and what they are called here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Functions and methods: what to write instead.
FOREIGN: dict[str, str] = {
    "permute": "permute_dims(axes)",
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
    "int": "astype('int32')",
    "short": "astype('int16')",
    "char": "astype('int8')",
    "byte": "astype('uint8')",
    "bool": "astype('bool')",
    "bfloat16": "astype('bfloat16')",
    "cfloat": "astype('complex64')",
    "cdouble": "astype('complex128')",
    "copy": "clone",
    "stride": "the property strides",
    "itemsize": "the property nbytes, and x.dtype.itemsize",
    "element_size": "the property nbytes, and x.dtype.itemsize",
    "nelement": "the property size",
    "ndimension": "the property ndim",
    "H": "conj().mT",
    "adjoint": "conj().mT",
    "conjugate": "conj",
    "narrow": "x[start : start + length]",
    "select": "x[:, i]",
    "select_scatter": "x.at[i].set(value)",
    "slice_scatter": "x.at[start:stop].set(value)",
    "index_put": "x.at[i].set(value)",
    "index_put_": "x[i] = value",
    "index_add_": "x[i] += value where no index repeats, and x.at[i].add(value)",
    "index_copy": "x.at[i].set(value)",
    "masked_scatter": "x.at[mask].set(value)",
    "addmm": "a @ b + c",
    "baddbmm": "a @ b + c",
    "addcmul": "x + value * a * b",
    "addcdiv": "x + value * a / b",
    "inner": "vecdot of vectors, and a @ b.mT of matrices",
    "fmax": "maximum, which is NaN where one operand is",
    "fmin": "minimum, which is NaN where one operand is",
    "vdot": "vecdot",
    "ger": "outer",
    "column_stack": "stack(axis=1)",
    "take_along_dim": "take_along_axis",
    "diag_embed": "x[..., None] * eye(x.shape[-1])",
    "cbrt": "sign(x) * abs(x) ** (1 / 3)",
    "deg2rad": "x * (pi / 180)",
    "radians": "x * (pi / 180)",
    "rad2deg": "x * (180 / pi)",
    "degrees": "x * (180 / pi)",
    "std_mean": "std(axis=…) and mean(axis=…)",
    "var_mean": "var(axis=…) and mean(axis=…)",
    "bucketize": "searchsorted(boundaries, x)",
    "digitize": "searchsorted(bins, x, side='right')",
    "kthvalue": "partition, or sort",
    "mvlgamma": "multigammaln",
    "psi": "digamma",
    "logmeanexp": "logsumexp(x) - log(n)",
    "cpu": "to('cpu')",
    "cuda": "to('cuda')",
    "is_cuda": "the property device",
    "mm": "matmul, or a @ b",
    "bmm": "matmul, or a @ b",
    "mv": "matmul, or a @ b",
    "absolute": "abs",
    "index_fill": "x[index] = value",
    "index_add": "x.at[indices].add(values), scatter_add or segment_sum",
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
    "tanhshrink": "tanh_shrink",
    "logsigmoid": "log_sigmoid",
    "swish": "silu",
    "binary_cross_entropy": "bce_loss",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "trapz": "trapezoid",
    "histc": "histogram",
    "nan_to_num_": "nan_to_num",
    "randperm": "permutation",
    "seed": "manual_seed",
    "from_numpy": "asarray",
    "as_tensor": "asarray",
    "contiguous": "clone() for a copy; no function asks for a layout",
    "logdet": "linalg.slogdet(x).logabsdet",
    "assign": "copy_(value), or x[...] = value",
    "to_vec": "tolist()",
    "to_scalar": "item()",
    "add_scalar": "add, which takes numbers as well",
    "sub_scalar": "sub, which takes numbers as well",
    "mul_scalar": "mul, which takes numbers as well",
    "div_scalar": "div, which takes numbers as well",
    "sum_dim": "sum(axis=)",
    "mean_dim": "mean(axis=)",
    "max_dim": "max(axis=)",
    "min_dim": "min(axis=)",
    "add_into": "add(a, b, out=c)",
    "sub_into": "sub(a, b, out=c)",
    "mul_into": "mul(a, b, out=c)",
    "div_into": "div(a, b, out=c)",
    "cross_entropy_loss": "cross_entropy, which takes logits; nll_loss takes log-probabilities",
    "repeat_interleave": "repeat",
    "movedim": "moveaxis",
    "lerp": "x + weight * (y - x)",
    "normalize": "x / linalg.vector_norm(x, axis=…, keepdims=True)",
    "data": "detach()",
    "assign_add": "Parameter.apply_update(u)",
    "read_value": "detach()",
    "array_equal": "(x == y).all()",
    "percentile": "quantile, of numbers from 0 to 1",
    "gammaln": "lgamma",
    "cast": "astype",
    "boolean_mask": "x[mask]",
    "gather_nd": "x[i, j]",
    "reverse": "flip",
    "reduce_sum": "sum",
    "reduce_mean": "mean",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_all": "all",
    "reduce_any": "any",
    "reduce_std": "std",
    "reduce_variance": "var",
    "reduce_logsumexp": "logsumexp",
}

# Names in modules.
FOREIGN_IN_MODULES: dict[str, str] = {
    "array": "tensor, which copies, and asarray, which shares memory",
    "jit": "compile",
    "function": "compile",
    "Function": "CustomOp, and the decorator custom_op",
    "Variable": "Parameter, or tensor(data, requires_grad=True)",
    "lr_scheduler": "optim.schedules, which optim.Scheduler applies",
    "Dataset": "data.DataLoader, which takes any object with __len__ and __getitem__",
    "IterableDataset": "data.DataLoader, which takes any iterable",
    "default_collate": "data.collate",
    "get_worker_info": "data.worker_info",
    "saved_memory_mb": "memory_stats().saved_mb",
    "gradient_clipping": "clip_grad_norm, clip_grad_value and GradientClipper",
    "clip_grad_norm_": "clip_grad_norm",
    "clip_grad_value_": "clip_grad_value",
    "device": "names of devices: to('cpu'), zeros(3, device='cpu')",
    "utils": "data.DataLoader, checkpoint, clip_grad_norm and clip_grad_value",
    "set_default_dtype": "the argument dtype= of every function that makes tensors",
    "func": "grad, vjp, jvp, vmap, jacrev, jacfwd, hessian and nn.functional_call",
    "inference_mode": "no_grad",
    "distributions": "stats",
    "gradcheck": "check_gradients",
    "check_grads": "check_gradients",
    "set_detect_anomaly": "detect_anomaly",
    "swa_utils": "optim.EMA",
    "AveragedModel": "optim.EMA",
    "StepLR": "optim.schedules.step, which optim.Scheduler applies",
    "MultiStepLR": "optim.schedules.sequential, which optim.Scheduler applies",
    "LambdaLR": "optim.Scheduler, which applies any function of the step",
    "ExponentialLR": "optim.schedules.exponential, which optim.Scheduler applies",
    "CosineAnnealingLR": "optim.schedules.cosine, which optim.Scheduler applies",
    "CosineAnnealingWarmRestarts": "optim.schedules.cosine_restarts, which optim.Scheduler applies",
    "OneCycleLR": "optim.schedules.one_cycle, which optim.Scheduler applies",
    "LinearLR": "optim.schedules.linear, which optim.Scheduler applies",
    "ReduceLROnPlateau": "optim.ReduceOnPlateau",
    "interpolate": "upsample",
    "unique": "unique_values, unique_counts, unique_inverse and unique_all",
    "lax": "cond, switch, scan, while_loop, fori_loop and associative_scan; the rest is named as in NumPy",
    "numpy": "its functions in wengert itself",
    "kl_divergence": "stats.kl",
    "TransformedDistribution": "stats.Transformed",
    "MixtureSameFamily": "stats.Mixture",
    "UpsamplingNearest2d": "nn.Upsample",
    "UpsamplingBilinear2d": "nn.Upsample(mode='bilinear')",
    "block_until_ready": "nothing to wait for on the CPU; cuda.synchronize() for GPUs",
    "make_jaxpr": "compile(f).report(), and f.traces[0].program",
    "remat": "checkpoint",
    "pure_callback": "custom_op",
    "device_put": "to(device)",
    "PRNGKey": "manual_seed(seed), and Generator(seed) for the argument generator=",
    "tree_util": "tree",
    "tree_map": "tree.map",
    "tree_leaves": "tree.leaves",
    "tree_flatten": "tree.flatten",
    "tree_unflatten": "tree.unflatten",
    "dynamic_slice": "x[start : start + size]",
    "dynamic_update_slice": "x.at[start : start + size].set(values)",
    "conv_general_dilated": "conv1d, conv2d and conv3d",
    "custom_jvp": "custom_op, with defjvp",
    "custom_vjp": "custom_op, with defvjp",
    "pmap": "vmap on one device",
    "constant": "tensor",
    "convert_to_tensor": "asarray",
    "range": "arange",
    "shape": "the property shape",
    "math": "its functions in wengert itself",
    "keras": "nn, optim, and losses as functions such as cross_entropy and mse_loss",
    "set_seed": "manual_seed",
    "vectorized_map": "vmap",
    "custom_gradient": "custom_op, and CustomOp",
    "recompute_grad": "checkpoint",
    "autodiff": "jvp, dual",
    "saved_model": "export, and load_program",
    "tensor_scatter_nd_add": "x.at[i].add(values)",
    "tensor_scatter_nd_update": "x.at[i].set(values)",
    "unsorted_segment_sum": "segment_sum(x, t, num_segments=…)",
    "clip_by_norm": "clip_by_global_norm",
    "embedding_lookup": "embedding(indices, weight)",
    "moments": "mean(axis=…) and var(axis=…)",
    "sparse_softmax_cross_entropy_with_logits": "cross_entropy(logits, labels, reduction='none')",
    "softmax_cross_entropy_with_logits": "cross_entropy(logits, labels, reduction='none')",
    "sigmoid_cross_entropy_with_logits": "bce_with_logits(logits, labels, reduction='none')",
    "elementwise_grad": "grad of a sum: grad(lambda x: f(x).sum())",
    "hessian_vector_product": "hvp",
    "make_vjp": "vjp",
    "make_jvp": "jvp",
    "test_util": "check_gradients",
}

# Names that mean something else in one module.
FOREIGN_IN_ONE_MODULE: dict[tuple[str, str], str] = {
    ("wengert.autograd", "grad"): "grad_of(outputs, inputs); grad(f) is the gradient as a function",
    ("wengert.autograd", "functional"): "jacobian, hessian, hvp, vjp and jvp",
    ("wengert.nn", "utils"): "clip_grad_norm, clip_grad_value; in nn weight_norm and register_parametrization",
    ("wengert.random", "key"): "manual_seed(seed), and Generator(seed) for the argument generator=",
    ("wengert.random", "choice"): "randint for indices, permutation, and stats.Categorical for probabilities",
    ("wengert.random", "shuffle"): "permutation: x[permutation(len(x))]",
    ("wengert.random", "default_rng"): "Generator(seed=…), for the argument generator=",
    ("wengert.random", "standard_normal"): "randn",
    ("wengert.random", "split"): "no need for it: a generator moves on by itself",
    ("wengert.interop.scipy", "special"): "its functions in wengert itself: lgamma, erf, expit and others",
    ("wengert.interop.scipy", "stats"): "stats",
}

CLOSE = 0.75  # how similar a name is that was probably meant

# Methods of modules with parameters.
FOREIGN_OF_NETWORKS: dict[str, str] = {
    "cuda": "to('cuda')",
    "type": "to(dtype)",
    "add_module": "setattr(net, name, module)",
}

# Other places where a name may be found.
_PACKAGES = (
    "wengert", "wengert.nn", "wengert.optim", "wengert.linalg", "wengert.fft", "wengert.data", "wengert.nn.init",
)  # fmt: skip

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


class MissingName(AttributeError):
    """A name that a module does not have. The suggestion is only looked up when the message is read, because probing with
    `hasattr` must not import anything."""

    __module__ = "wengert"  # as users see it

    def __init__(self, module: str, name: str) -> None:
        super().__init__(module, name)

    def __str__(self) -> str:
        module, name = self.args
        message = f"module {module!r} has no attribute {name!r}"
        ours = FOREIGN_IN_ONE_MODULE.get((module, name)) or FOREIGN.get(name) or FOREIGN_IN_MODULES.get(name)
        if ours is None and not name.startswith("_"):
            ours = next(_elsewhere(module, name), None)
        return f"{message}; wengert has {ours}" if ours else message


def _elsewhere(module: str, name: str) -> Iterator[str]:
    """The same name in other packages, names that differ in capitals and underscores, and similar names in this module."""
    public = {p: importlib.import_module(p).__all__ for p in (module, *_PACKAGES)}
    places = {p: "" if p in ("wengert", module) else f"{p.removeprefix('wengert.')}." for p in public}
    yield from (places[p] + name for p in public if name in public[p])
    yield from (places[p] + n for p in public for n in public[p] if _letters(n) == _letters(name))
    import difflib

    yield from difflib.get_close_matches(name, public[module], 1, CLOSE)


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


class ForeignMethod:
    """A placeholder on a type under a foreign name. Reading it from an instance raises an error that names ours, so
    `hasattr` is False.

    The type gives the object itself, as it does for properties: what `dir(Tensor)` lists can be read, and says what to
    write. (A metaclass could hide the name, but would slow down every `isinstance` of the type.)
    """

    def __init__(self, name: str, ours: str) -> None:
        self.name, self.ours = name, ours
        self.__doc__ = f"Not available under this name; wengert has {ours}."

    def __get__(self, instance: Any, owner: type) -> ForeignMethod:
        if instance is None:
            return self
        raise self._error(owner)

    def __call__(self, x: Any, /, *args: Any, **options: Any) -> NoReturn:
        raise self._error(type(x))

    def __repr__(self) -> str:
        return f"<no {self.name!r}; wengert has {self.ours}>"

    def _error(self, owner: type) -> AttributeError:
        return AttributeError(f"{owner.__name__} has no attribute {self.name!r}; wengert has {self.ours}")


def readable(x: Any, unreadable: tuple[str, ...] = ()) -> list[str]:
    """What `dir` lists of an object, without foreign names and names that do not apply to it."""
    return [
        n
        for n in object.__dir__(x)
        if n not in unreadable and not isinstance(inspect.getattr_static(type(x), n, None), ForeignMethod)
    ]


def explain_keywords(f: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that its TypeError for `dim=` and the like names our keyword."""

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
