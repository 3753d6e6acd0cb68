"""Parameters, modules, layers and losses."""

import wengert
from wengert._hooks import hide_frames
from wengert.nn import init, lora
from wengert.nn.containers import ModuleDict, ModuleList, Sequential
from wengert.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from wengert.nn.layers import (
    ELU,
    GELU,
    Dropout,
    Flatten,
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
from wengert.nn.normalisation import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)
from wengert.nn.parameter import Parameter, ParameterDict, parameters_to_vector, vector_to_parameters
from wengert.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    Upsample,
)

__all__ = [
    "Module", "Parameter", "ParameterDict", "functional", "functional_call", "init", "lora",
    "parameters_to_vector", "vector_to_parameters",
    "Sequential", "ModuleList", "ModuleDict",
    "Linear", "LoRALinear", "Flatten", "Dropout",
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LayerNorm", "GroupNorm", "RMSNorm",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "Upsample",
    "ReLU", "LeakyReLU", "ELU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax",
    "CrossEntropyLoss", "MSELoss",
]  # fmt: skip

functional = wengert  # every function of tensors is there

hide_frames()
