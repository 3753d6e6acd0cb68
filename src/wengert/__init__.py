"""Automatic differentiation for Python."""

import wengert.ops
from wengert import _hooks
_hooks.install()
