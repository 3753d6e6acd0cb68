"""Tensors: making and converting them, where they are, what their names are bound to, dual tensors."""
