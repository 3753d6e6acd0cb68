"""Everything that a tensor can do: attached once, at import, to the core's type."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from wengert import _core, functional
from wengert._core import Tensor
from wengert.dtypes import as_dtype, bfloat16
from wengert.errors import ShapeError, TraceError
from wengert.foreign_names import FOREIGN, ForeignMethod, readable
from wengert.functional.at import At
from wengert.functional.elementwise import is_operand, power_operator
from wengert.functional.indexing import assign, getitem, setitem
from wengert.interop import array_api, numpy_functions, sparse
from wengert.methods import in_place
from wengert.program.call_trace import CallTrace, call_trace
from wengert.tensors import cuda_array, dlpack
from wengert.tensors import numpy as numpy_interop
from wengert.tensors.arguments import as_dtype_of, describe, native
from wengert.tensors.conversion import finish
from wengert.tensors.device import device_of, is_device, move, number_of
from wengert.tensors.display import tensor_format, tensor_repr
from wengert.tensors.html import tensor_html

# Functions whose first argument is not one tensor.
_NO_METHOD = ("concat", "stack", "broadcast_arrays", "broadcast_shapes", "einsum", "make_complex", "select", "jn",
              "yn", "kn", "legendre", "sph_harm_y")  # fmt: skip
_OF_DATA = ("data_ptr", "is_contiguous", "is_leaf", "strides")  # of tensors that hold data of their own
_permute, _isnan, _isinf = native("permute"), native("isnan"), native("isinf")


def _matmul_operator(a: Any, b: Any) -> Any:
    if is_operand(a) and is_operand(b):
        return functional.matmul(a, b)
    return sparse.matmul(a, b) if sparse.is_sparse(a) or sparse.is_sparse(b) else NotImplemented


def _transposed(self: Tensor) -> Tensor:
    if self.ndim > 2:
        raise ShapeError(f"T: {describe(self)} has more than two axes; use mT or permute_dims")
    return _permute(self, tuple(range(self.ndim))[::-1])


def _adjoint(self: Tensor) -> Tensor:
    return functional.conj(functional.matrix_transpose(self))


def _nbytes(self: Tensor) -> Any:
    return self.size * self.dtype.itemsize


def iterate(self: Tensor) -> Iterator[Tensor]:
    """The slices along the first axis."""
    if self.ndim == 0:
        raise TypeError("a tensor without axes cannot be iterated over")
    return (getitem(self, i) for i in range(len(self)))


def iterate_backwards(self: Tensor) -> Iterator[Tensor]:
    """The slices along the first axis, the last one first."""
    if self.ndim == 0:
        raise TypeError("a tensor without axes cannot be iterated over")
    return (getitem(self, i) for i in reversed(range(len(self))))


def to_complex(self: Tensor) -> complex:
    """The one element as a Python complex number."""
    return complex(self.item())


def floor(self: Tensor) -> int:
    """`math.floor` of the one element; exact for large integers, which `float` would round."""
    whole: int = math.floor(self.detach().item())
    return whole


def ceil(self: Tensor) -> int:
    """`math.ceil` of the one element."""
    whole: int = math.ceil(self.detach().item())
    return whole


def trunc(self: Tensor) -> int:
    """`math.trunc` of the one element."""
    whole: int = math.trunc(self.detach().item())
    return whole


def _divmod(a: Any, b: Any) -> Any:
    if not (is_operand(a) and is_operand(b)):
        return NotImplemented
    return functional.floor_divide(a, b), functional.remainder(a, b)


def contains(self: Tensor, value: Any) -> bool:
    """Whether one element equals the value."""
    return bool(functional.any(self == value))


def has_nan(self: Tensor) -> bool:
    """Whether any element is NaN.

    >>> import wengert as wg
    >>> wg.tensor([1.0, float("nan")]).has_nan()
    True
    """
    return self.dtype.is_inexact and bool(functional.any(_isnan(self)))


def has_inf(self: Tensor) -> bool:
    """Whether any element is infinite.

    >>> import wengert as wg
    >>> wg.tensor([1.0, float("inf")]).has_inf()
    True
    """
    return self.dtype.is_inexact and bool(functional.any(_isinf(self)))


def to(
    self: Tensor,
    *where: Any,
    device: Any = None,
    dtype: Any = None,
    copy: bool = False,
    non_blocking: bool = False,
) -> Tensor:
    """Move to another device, or cast to another dtype: `x.to("cpu")`, `x.to(wg.float64)`, `x.to(other)`.

    The tensor itself if nothing changes, unless `copy=True`. With `non_blocking=True`, copies from page-locked memory
    (`pin_memory`) to a GPU, and from a GPU to the CPU, are started and not waited for: leave the source as it is, and do
    not read the result on the CPU, before `wg.cuda.synchronize()` or an event says that the copy is done.

    >>> import wengert as wg
    >>> wg.tensor([1.5]).to(wg.float64).dtype
    wengert.float64
    """
    for w in where:
        if isinstance(w, Tensor):
            device, dtype = w.device, w.dtype
        elif is_device(w):
            device = w
        else:
            dtype = as_dtype(w)
    y = self if dtype is None else as_dtype_of(self, as_dtype(dtype))
    if device is not None:
        y = move(y, device, non_blocking)
    return functional.clone(y) if copy and y is self else y


def cuda(self: Tensor, index: int | None = None, *, non_blocking: bool = False) -> Tensor:
    """Move to a GPU, like `x.to("cuda")`; `index` chooses among several."""
    return move(self, "cuda" if index is None else f"cuda:{index}", non_blocking)  # type: ignore[no-any-return]


def cpu(self: Tensor, *, non_blocking: bool = False) -> Tensor:
    """Move to the CPU, like `x.to("cpu")`.

    >>> import wengert as wg
    >>> wg.ones(2).cpu().device
    device('cpu')
    """
    return move(self, "cpu", non_blocking)  # type: ignore[no-any-return]


def pin_memory(self: Tensor) -> Tensor:
    """A copy in page-locked memory of the host, from and to which GPUs copy in the background; itself if it is there.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     batch = wg.ones(3).pin_memory().to("cuda", non_blocking=True)
    """
    _core.check_leaving(self, "pin_memory", array=True)
    made: Tensor = _core.page_locked(self, number_of("cuda"))
    return made if made is self else finish(made, self.requires_grad or None)


def is_pinned(self: Tensor) -> bool:
    """Whether the tensor is in page-locked memory (`pin_memory`).

    >>> import wengert as wg
    >>> wg.ones(3).is_pinned()
    False
    """
    return bool(_core.is_page_locked(self))


def names(self: Tensor) -> list[str]:
    """The names for `dir` and completion, without those that would raise."""
    unreadable = () if self._plain else _OF_DATA
    if device_of(self).type != "cuda":
        unreadable = (*unreadable, "__cuda_array_interface__")
    return readable(self, (*unreadable, *(("T",) if self.ndim > 2 else ("mT", "mH") if self.ndim < 2 else ())))


def plain_tensor(self: Tensor) -> Tensor:
    """The data as a plain tensor, outside the graph; it shares memory with this one."""
    return self.detach()


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set `requires_grad` in place, and return the tensor.

    >>> import wengert as wg
    >>> wg.tensor([1.0]).requires_grad_().requires_grad
    True
    """
    self.requires_grad = requires_grad
    return self


def _of_type(cls: type[Tensor], data: Any, requires_grad: bool) -> Tensor:
    if cls is not Tensor:
        shell = cls.__new__(cls)
        shell._adopt(data)
        data = shell
    if requires_grad:
        data.requires_grad = True
    made: Tensor = data
    return made


def deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """`copy.deepcopy`: of a leaf a leaf with a copy of the data, and of the gradient if there is one; else a `clone`."""
    if not self._plain or not self.is_leaf or _core.inside_transformation(self):
        memo[id(self)] = y = functional.clone(self)
        return y
    y = _of_type(type(self), _core.copy(self.detach()), self.requires_grad)
    if self.grad is not None:
        y.grad = _core.copy(self.grad)
    memo[id(self)] = y
    return y


def shallow_copy(self: Tensor) -> Tensor:
    """`copy.copy`: a tensor has no parts that could be shared, so it is copied whole."""
    return deepcopy(self, {})


def _rebuild(cls: type[Tensor], array: Any, dtype: str, requires_grad: bool, device: str = "cpu") -> Tensor:
    t = move(_core.copy(_core.from_buffer(array, as_dtype(dtype).code, False)), device)
    return _of_type(cls, t, requires_grad)


def reduce_ex(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    """Pickling: the data and whether a leaf requires a gradient; never a graph."""
    if not self._plain:
        self.numpy()  # raises, and says why
    _core.check_leaving(self, "pickle")
    a = numpy_interop.data(self)
    if self.dtype.code == bfloat16.code:
        a = a.view("uint16")
    return _rebuild, (type(self), a, self.dtype.name, self.requires_grad and self.is_leaf, str(self.device))


def _grad_in_trace(x: Tensor, _: None) -> Any:
    """`x.grad` where a function is traced."""
    return _call_trace().grad(x)


def _set_grad_in_trace(x: Tensor, gradient: Any) -> None:
    _call_trace().set_grad(x, gradient)


def _call_trace() -> CallTrace:
    trace = call_trace()
    if trace is None:
        raise TraceError("grad: .grad cannot be used in the rule of an op")
    return trace


def _protocol() -> dict[str, Any]:
    """Special methods, and what NumPy and other libraries call."""
    return {
        "_operators": {
            "pow": power_operator,
            "matmul": _matmul_operator,
            "getitem": getitem,
            "setitem": setitem,
            "assign": assign,
            "grad": _grad_in_trace,
            "set_grad": _set_grad_in_trace,
        },
        "__repr__": tensor_repr,
        "__format__": tensor_format,
        "_repr_html_": tensor_html,
        "__iter__": iterate,
        "__reversed__": iterate_backwards,
        "__contains__": contains,
        "__complex__": to_complex,
        "__floor__": floor,
        "__ceil__": ceil,
        "__trunc__": trunc,
        "__round__": functional.round,
        "__divmod__": _divmod,
        "__rdivmod__": lambda a, b: _divmod(b, a),
        "__pos__": functional.positive,
        "__dir__": names,
        "__copy__": shallow_copy,
        "__deepcopy__": deepcopy,
        "__reduce_ex__": reduce_ex,
        "__array_namespace__": array_api.array_namespace,
        "__array__": numpy_interop.array,
        "__array_ufunc__": numpy_functions.array_ufunc,  # numpy_array * x and np.sin(x) are ours
        "__array_function__": numpy_functions.array_function,
        "__array_priority__": 1000,
        "__dlpack__": dlpack.to_dlpack,
        "__dlpack_device__": dlpack.dlpack_device,
        "__cuda_array_interface__": property(cuda_array.interface),
    }


def _members() -> dict[str, Any]:
    """Methods and properties that are not functions of the module."""
    return {
        "numpy": numpy_interop.numpy,
        "tolist": numpy_interop.tolist,
        "T": property(_transposed, doc="The transpose of a matrix."),
        "mT": property(functional.matrix_transpose, doc="The last two axes swapped."),
        "mH": property(_adjoint, doc="The last two axes swapped, and conjugated."),
        "real": property(functional.real, doc="The real part."),
        "imag": property(functional.imag, doc="The imaginary part."),
        "at": property(
            At, doc="`x.at[key].set(v)`, `.add`, `.multiply`, `.min`, `.max`: a copy of x, changed at those places."
        ),
        "device": property(device_of, doc="The device that holds the data."),
        "nbytes": property(_nbytes, doc="The number of bytes of all elements."),
        "to": to,
        "cuda": cuda,
        "cpu": cpu,
        "pin_memory": pin_memory,
        "is_pinned": is_pinned,
        "to_device": array_api.to_device,
        "has_nan": has_nan,
        "has_inf": has_inf,
        "requires_grad_": requires_grad_,
        "tensor": plain_tensor,
    }


def install() -> None:
    """Attach every method to the Tensor type; once, at import."""
    table: dict[str, Any] = {name: ForeignMethod(name, ours) for name, ours in FOREIGN.items()}
    table.update({n: getattr(functional, n) for n in functional.__all__ if n not in _NO_METHOD})
    table.update(in_place.methods())
    table.update(_members())
    table.update(_protocol())
    for name, value in table.items():
        setattr(Tensor, name, value)
