"""Devices: where a tensor's memory is."""

from __future__ import annotations


class Device(str):
    """A device; equal to its name.

    >>> Device("cpu") == "cpu"
    True
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"device({str(self)!r})"


CPU = Device("cpu")
