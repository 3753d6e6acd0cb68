"""The array API standard: `wengert` itself is a conforming namespace (https://data-apis.org/array-api)."""

from __future__ import annotations

import sys
from typing import Any

from wengert._core import Tensor
from wengert.dtypes import ALL, DType, complex64, float32, int64, isdtype
from wengert.errors import ArgumentError
from wengert.tensors.device import CPU, Device, check_device, move

VERSION = "2025.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", VERSION)
MAX_DIMENSIONS = 12  # kMaxRank of core/shape.h
_BEYOND = ("float16", "bfloat16")  # dtypes that we have and the standard does not


class NamespaceInfo:
    """The capabilities, devices and dtypes of this namespace.

    >>> NamespaceInfo().default_device()
    device('cpu')
    """

    __module__ = "wengert"

    def capabilities(self) -> dict[str, Any]:
        """Which optional behaviour of the standard there is.

        >>> NamespaceInfo().capabilities()["max dimensions"]
        12
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_DIMENSIONS}

    def default_device(self) -> Device:
        """The device on which tensors are made.

        >>> NamespaceInfo().default_device() == "cpu"
        True
        """
        return CPU

    def devices(self) -> tuple[Device, ...]:
        """The devices that there are.

        >>> NamespaceInfo().devices()
        (device('cpu'),)
        """
        return (CPU,)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of Python numbers: float32, complex64, int64.

        >>> NamespaceInfo().default_dtypes()["real floating"]
        wengert.float32
        """
        check_device(device)
        return {"real floating": float32, "complex floating": complex64, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The dtypes of the standard by name, all or those of a kind (as `isdtype` names them).

        float16 and bfloat16 are not listed: the standard does not know them.

        >>> list(NamespaceInfo().dtypes(kind="real floating"))
        ['float32', 'float64']
        """
        check_device(device)
        known = {d.name: d for d in ALL if d.name not in _BEYOND}
        return known if kind is None else {n: d for n, d in known.items() if isdtype(d, kind)}


def namespace_info() -> NamespaceInfo:
    """The result of `wengert.__array_namespace_info__()`: capabilities, devices, dtypes.

    >>> namespace_info().default_dtypes()["integral"]
    wengert.int64
    """
    return NamespaceInfo()


def array_namespace(x: Tensor, /, *, api_version: str | None = None) -> Any:
    """The module that `x.__array_namespace__()` gives: `wengert`."""
    if api_version is not None and api_version not in _VERSIONS:
        raise ArgumentError(f"__array_namespace__: version {api_version!r} is not known; use one of {_VERSIONS}")
    return sys.modules["wengert"]


def to_device(x: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on a device (array API); `to` does more.

    >>> import wengert as wg
    >>> wg.ones((2,)).to_device("cpu").device
    device('cpu')
    """
    if stream is not None:
        raise ArgumentError("to_device: there are no streams on the CPU; pass stream=None")
    return move(x, device)  # type: ignore[no-any-return]
