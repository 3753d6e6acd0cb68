"""Optimizers, schedules, clipping, averages, and a look at gradients."""

from typing import Any

from wengert.debug.recorded_values import check_loss
from wengert.foreign_names import MissingName
from wengert.optim import schedules, transforms
from wengert.optim.accumulate import GradientAccumulator
from wengert.optim.adadelta import Adadelta, AdadeltaConfig
from wengert.optim.adafactor import Adafactor, AdafactorConfig
from wengert.optim.adagrad import Adagrad, AdagradConfig
from wengert.optim.adam import Adam, AdamConfig, AdamW, AdamWConfig
from wengert.optim.adamax import Adamax, AdamaxConfig
from wengert.optim.clip import GradientClipper, clip_by_global_norm, clip_by_value, clip_grad_norm, clip_grad_value
from wengert.optim.ema import EMA
from wengert.optim.lbfgs import LBFGS, LBFGSConfig
from wengert.optim.levenberg_marquardt import LevenbergMarquardt, LevenbergMarquardtConfig
from wengert.optim.lion import Lion, LionConfig
from wengert.optim.master_weights import MasterWeights
from wengert.optim.muon import Muon, MuonConfig
from wengert.optim.nadam import NAdam, NAdamConfig
from wengert.optim.natural_gradient import NaturalGradient, NaturalGradientConfig
from wengert.optim.newton import NewtonCG, NewtonCGConfig
from wengert.optim.optimizer import Optimizer
from wengert.optim.radam import RAdam, RAdamConfig
from wengert.optim.rmsprop import RMSprop, RMSpropConfig
from wengert.optim.rprop import Rprop, RpropConfig
from wengert.optim.scaler import DynamicLossScaler, GradScaler, StaticLossScaler
from wengert.optim.schedules import ReduceOnPlateau, Scheduler
from wengert.optim.sgd import SGD, SGDConfig
from wengert.optim.shampoo import Shampoo, ShampooConfig
from wengert.optim.statistics import GradientStatistics
from wengert.optim.wrappers import SAM, Lookahead

__all__ = [
    "Adadelta", "AdadeltaConfig", "Adafactor", "AdafactorConfig", "Adagrad", "AdagradConfig", "Adam", "Adamax",
    "AdamaxConfig", "AdamConfig", "AdamW", "AdamWConfig", "DynamicLossScaler", "EMA",
    "GradScaler", "GradientAccumulator", "GradientClipper",
    "GradientStatistics", "LBFGS", "LBFGSConfig", "LevenbergMarquardt", "LevenbergMarquardtConfig", "Lion",
    "LionConfig", "Lookahead", "MasterWeights", "Muon", "MuonConfig", "NAdam", "NAdamConfig", "NaturalGradient",
    "NaturalGradientConfig", "NewtonCG", "NewtonCGConfig", "Optimizer", "RAdam", "RAdamConfig", "ReduceOnPlateau",
    "RMSprop", "RMSpropConfig", "Rprop", "RpropConfig", "SAM", "Scheduler", "SGD", "SGDConfig", "Shampoo",
    "ShampooConfig", "StaticLossScaler",
    "check_loss", "clip_by_global_norm", "clip_by_value", "clip_grad_norm", "clip_grad_value",
    "schedules", "transforms",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
