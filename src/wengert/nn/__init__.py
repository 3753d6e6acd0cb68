"""Parameters, modules, layers and losses."""

from wengert._hooks import hide_frames
from wengert.nn.layers import (
    ELU,
    GELU,
    Dropout,
    Flatten,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    ModuleList,
    ReLU,
    Sequential,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from wengert.nn.losses import CrossEntropyLoss, MSELoss
from wengert.nn.module import Module, functional_call
from wengert.nn.parameter import Parameter, ParameterDict

__all__ = [
    "Module", "Parameter", "ParameterDict", "functional_call",
    "Linear", "Sequential", "ModuleList", "Flatten", "Dropout", "LayerNorm",
    "ReLU", "LeakyReLU", "ELU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax",
    "CrossEntropyLoss", "MSELoss",
]  # fmt: skip

hide_frames()
