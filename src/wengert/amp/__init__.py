"""Automatic mixed precision: which ops run in half precision, and how gradients stay in its range."""

from wengert.amp.autocast import autocast, autocast_dtype, no_autocast
from wengert.amp.config import AmpConfig

__all__ = ["AmpConfig", "autocast", "autocast_dtype", "no_autocast"]
