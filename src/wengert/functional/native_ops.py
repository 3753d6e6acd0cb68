"""The public ops that need no more than their native function. Its stub is generated: `make build` writes it."""

from wengert.ops.registry import OPS

# Ops whose public function does more; it has the same name, in a module beside this one.
_WRAPPED = {"broadcast_to", "pow", "reshape"}

__all__ = [op.name for op in OPS.values() if op.public and op.name not in _WRAPPED]
globals().update({name: OPS[name].function for name in __all__})
