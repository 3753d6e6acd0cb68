"""Devices: where a tensor's memory is."""

from __future__ import annotations

from typing import Any

from wengert.errors import DeviceError


class Device(str):
    """A device; equal to its name.

    >>> Device("cpu") == "cpu"
    True
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"device({str(self)!r})"


CPU = Device("cpu")


def check_device(device: Any) -> None:
    """Raise for devices that are not there."""
    if device is not None and str(device) != "cpu":
        raise DeviceError(f"device {str(device)!r} is not available; this build computes on 'cpu'")
