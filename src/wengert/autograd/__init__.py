"""What people hold: tensors and their creation, tapes, gradients, modes, dual tensors, custom operations."""

from wengert.autograd.context import AutogradContext, clear

__all__ = ["AutogradContext", "clear"]
