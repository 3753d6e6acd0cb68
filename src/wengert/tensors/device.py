"""Devices: where a tensor's memory is, and who computes with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from wengert import _core
from wengert.errors import DeviceError
from wengert.registry.record import OPS
from wengert.tensors import gpus


class Device(str):
    """A device; equal to its name.

    >>> Device("cpu") == "cpu"
    True
    """

    __slots__ = ()

    @property
    def type(self) -> str:
        """The kind of device: "cpu" or "cuda".

        >>> Device("cuda:1").type
        'cuda'
        """
        return self.split(":")[0]

    @property
    def ordinal(self) -> int | None:
        """The index among devices of its type; None for the CPU.

        >>> Device("cuda:1").ordinal
        1
        """
        _, found, number = self.partition(":")
        return int(number) if found else None

    def __repr__(self) -> str:
        return f"device({str(self)!r})"


CPU = Device("cpu")
T = TypeVar("T")
_KINDS = ("cpu", "cuda", "gpu", "test")
_devices = {0: CPU}  # by device number in the core


def is_device(x: Any) -> bool:
    """Whether x is a device or the name of one: "cpu", "cuda", "cuda:1"."""
    return isinstance(x, Device) or (isinstance(x, str) and x.split(":")[0] in _KINDS)


def number_of(device: Any) -> int:
    """The number of a device in the core. Raises for devices that are not there."""
    kind, _, index = str(device).partition(":")
    if kind == "cpu" and index in ("", "0"):
        return 0
    if kind == "test" and index in ("", "0"):
        return _core.test_device()
    if kind not in ("cuda", "gpu") or not (index == "" or index.isdecimal()):
        raise DeviceError(f"device {str(device)!r} is not known; devices are 'cpu', 'cuda' and 'cuda:<number>'")
    return gpus.device_number(int(index) if index else gpus.current_index())


def device_of(x: Any) -> Device:
    """The device of a tensor; for a traced tensor, that of the program's operands."""
    number = _core.device_of(x)
    if number < 0:
        number = _core.placement()
    if number not in _devices:
        _devices[number] = Device(_core.device_name(number))
    return _devices[number]


def like(x: Any) -> Device | None:
    """The device for a tensor to be used with x; None means the default."""
    device = device_of(x)
    return None if device is CPU else device


def make_on(device: Any, make: Callable[..., T], *args: Any, **options: Any) -> T:
    """Call `make(*args, **options)` with ops without operands allocating on this device."""
    before = _core.set_placement(number_of(device))
    try:
        return make(*args, **options)
    finally:
        _core.set_placement(before)


def move(x: Any, device: Any, non_blocking: bool = False) -> Any:
    """x on this device; x itself if it is there. Without blocking, the copy may still be under way on return."""
    source, target = number_of(device_of(x)), number_of(device)
    if source == target:
        return x
    before = _core.set_copies_in_background(bool(non_blocking))
    try:
        return OPS["to_device"](x, source, target)
    finally:
        _core.set_copies_in_background(before)


def check_device(device: Any) -> None:
    """Raise for devices that are not there."""
    if device is not None:
        number_of(device)
