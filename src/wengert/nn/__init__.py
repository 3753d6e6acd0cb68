"""Parameters, modules, layers and losses."""

from typing import Any

import wengert
from wengert.foreign_names import MissingName
from wengert.nn import init, lora
from wengert.nn.activations import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    HardShrink,
    HardSigmoid,
    HardSwish,
    HardTanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    RReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    SoftShrink,
    Softsign,
    Tanh,
    TanhShrink,
    Threshold,
)
from wengert.nn.adaptive_softmax import (
    AdaptiveLogSoftmaxWithLoss,
)
from wengert.nn.attention import MultiheadAttention
from wengert.nn.containers import ModuleDict, ModuleList, ParameterList, Sequential
from wengert.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from wengert.nn.dropout import (
    AlphaDropout,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    FeatureAlphaDropout,
)
from wengert.nn.embedding import (
    Embedding,
    EmbeddingBag,
)
from wengert.nn.layers import (
    Bilinear,
    CosineSimilarity,
    Flatten,
    Identity,
    Linear,
    PairwiseDistance,
    Unflatten,
)
from wengert.nn.lora import LoRALinear
from wengert.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    CTCLoss,
    FocalLoss,
    GaussianNLLLoss,
    HingeEmbeddingLoss,
    HingeLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    LogCoshLoss,
    MarginRankingLoss,
    MSELoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
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
    LocalResponseNorm,
    RMSNorm,
)
from wengert.nn.padding import (
    CircularPad1d,
    CircularPad2d,
    CircularPad3d,
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from wengert.nn.parameter import Parameter, ParameterDict, parameters_to_vector, vector_to_parameters
from wengert.nn.parametrize import register_parametrization, remove_parametrization, spectral_norm, weight_norm
from wengert.nn.patches import Fold, PixelShuffle, PixelUnshuffle, Unfold
from wengert.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
    Upsample,
)
from wengert.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from wengert.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__all__ = [
    "Module", "Parameter", "ParameterDict", "functional", "functional_call", "init", "lora",
    "parameters_to_vector", "vector_to_parameters",
    "register_parametrization", "remove_parametrization", "spectral_norm", "weight_norm",
    "Sequential", "ModuleList", "ModuleDict", "ParameterList",
    "Linear", "Bilinear", "LoRALinear", "Flatten", "Dropout", "Identity",
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LayerNorm", "GroupNorm", "RMSNorm",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "Upsample",
    "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Fold", "Unfold", "PixelShuffle", "PixelUnshuffle",
    "CELU", "ELU", "GELU", "GLU", "SELU", "HardShrink", "HardSigmoid", "HardSwish", "HardTanh",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
    "PReLU", "ReLU", "ReLU6", "Sigmoid", "SiLU", "Softmax", "Softplus", "SoftShrink", "Softsign", "Tanh", "Threshold",
    "Embedding", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell",
    "MultiheadAttention", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "CTCLoss", "FocalLoss", "GaussianNLLLoss",
    "HingeLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LogCoshLoss", "MarginRankingLoss", "MSELoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "TripletMarginLoss",
    "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout",
    "Softmin", "TanhShrink", "RReLU",
    "LocalResponseNorm",
    "Unflatten", "CosineSimilarity", "PairwiseDistance",
    "EmbeddingBag",
    "LPPool1d", "LPPool2d", "LPPool3d",
    "SoftMarginLoss", "HingeEmbeddingLoss", "MultiMarginLoss", "TripletMarginWithDistanceLoss",
    "AdaptiveLogSoftmaxWithLoss",
    "Transformer",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "CircularPad1d",
    "CircularPad2d", "CircularPad3d",
]  # fmt: skip

functional = wengert  # every function of tensors is there


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
