"""Optimizers, schedules, clipping, averages, and a look at gradients."""

from typing import Any

from wengert._hooks import hide_frames
from wengert.optim import schedules, transforms
from wengert.optim.accumulate import GradientAccumulator
from wengert.optim.adafactor import Adafactor, AdafactorConfig
from wengert.optim.adagrad import Adagrad, AdagradConfig
from wengert.optim.adam import Adam, AdamConfig, AdamW, AdamWConfig
from wengert.optim.clip import GradientClipper, clip_by_global_norm, clip_by_value, clip_grad_norm, clip_grad_value
from wengert.optim.ema import EMA
from wengert.optim.finite import check_loss
from wengert.optim.lbfgs import LBFGS, LBFGSConfig
from wengert.optim.lion import Lion, LionConfig
from wengert.optim.optimizer import Optimizer
from wengert.optim.rmsprop import RMSprop, RMSpropConfig
from wengert.optim.schedules import ReduceOnPlateau, Scheduler
from wengert.optim.sgd import SGD, SGDConfig
from wengert.optim.statistics import GradientStatistics

__all__ = [
    "Adafactor", "AdafactorConfig", "Adagrad", "AdagradConfig", "Adam", "AdamConfig", "AdamW", "AdamWConfig",
    "LBFGS", "LBFGSConfig", "Lion", "LionConfig", "Optimizer", "RMSprop", "RMSpropConfig", "SGD", "SGDConfig",
    "EMA", "GradientAccumulator", "GradientClipper", "GradientStatistics", "ReduceOnPlateau", "Scheduler",
    "check_loss", "clip_by_global_norm", "clip_by_value", "clip_grad_norm", "clip_grad_value", "schedules", "transforms",
]  # fmt: skip

hide_frames()


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    from wengert.functional.foreign_names import MissingName

    raise MissingName(__name__, name)
