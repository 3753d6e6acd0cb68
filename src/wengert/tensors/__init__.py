"""Tensors: creation, conversion, devices, rebinding of names, dual tensors."""
