"""Optimizers."""

from wengert._hooks import hide_frames
from wengert.optim.adafactor import Adafactor, AdafactorConfig
from wengert.optim.adagrad import Adagrad, AdagradConfig
from wengert.optim.adam import Adam, AdamConfig, AdamW, AdamWConfig
from wengert.optim.lbfgs import LBFGS, LBFGSConfig
from wengert.optim.lion import Lion, LionConfig
from wengert.optim.optimizer import Optimizer
from wengert.optim.rmsprop import RMSprop, RMSpropConfig
from wengert.optim.sgd import SGD, SGDConfig

__all__ = [
    "Adafactor", "AdafactorConfig", "Adagrad", "AdagradConfig", "Adam", "AdamConfig", "AdamW", "AdamWConfig",
    "LBFGS", "LBFGSConfig", "Lion", "LionConfig", "Optimizer", "RMSprop", "RMSpropConfig", "SGD", "SGDConfig",
]  # fmt: skip

hide_frames()
