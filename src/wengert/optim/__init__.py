"""Optimizers."""

from wengert._hooks import hide_frames
from wengert.optim.adam import Adam, AdamConfig, AdamW
from wengert.optim.optimizer import Optimizer
from wengert.optim.sgd import SGD

__all__ = ["Adam", "AdamConfig", "AdamW", "Optimizer", "SGD"]

hide_frames()
