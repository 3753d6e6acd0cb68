"""Parameters, modules, layers and losses."""

import wengert
from wengert._hooks import hide_frames
from wengert.nn import init, lora
from wengert.nn.containers import ModuleDict, ModuleList, Sequential
from wengert.nn.layers import (
    ELU,
    GELU,
    Dropout,
    Flatten,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from wengert.nn.lora import LoRALinear
from wengert.nn.losses import CrossEntropyLoss, MSELoss
from wengert.nn.module import Module, functional_call
from wengert.nn.parameter import Parameter, ParameterDict, parameters_to_vector, vector_to_parameters

__all__ = [
    "Module", "Parameter", "ParameterDict", "functional", "functional_call", "init", "lora",
    "parameters_to_vector", "vector_to_parameters",
    "Sequential", "ModuleList", "ModuleDict",
    "Linear", "LoRALinear", "Flatten", "Dropout", "LayerNorm",
    "ReLU", "LeakyReLU", "ELU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax",
    "CrossEntropyLoss", "MSELoss",
]  # fmt: skip

functional = wengert  # every function of tensors is there

hide_frames()
