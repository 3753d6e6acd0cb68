"""Random tensors in one place: those of `wengert` itself, and `gamma` and `beta`, whose names mean functions there.

>>> import wengert as wg
>>> g = wg.random.Generator(seed=0)
>>> wg.random.gamma([0.5, 2.0], generator=g).shape
(2,)
"""

from typing import Any

from wengert.foreign_names import MissingName
from wengert.stats.draws import beta, binomial, exponential, gamma, multinomial, poisson, truncated_normal
from wengert.tensors.random import (
    Generator,
    bernoulli,
    default_generator,
    manual_seed,
    normal,
    permutation,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    uniform,
)

__all__ = [
    "Generator",
    "bernoulli",
    "beta",
    "binomial",
    "default_generator",
    "exponential",
    "gamma",
    "manual_seed",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "truncated_normal",
    "uniform",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
