"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.functional.special import i0e, i1e
from wengert.stats.distribution import Distribution
from wengert.stats.domains import named, positive, real
from wengert.stats.parameters import Shape, common_shape, place, spread
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_cos, _log, _remainder = (native(n) for n in ("cos", "log", "remainder"))
_draw, _probability, _quantile = native("random_von_mises"), native("von_mises_cdf"), native("von_mises_icdf")
_LOG_TURN = math.log(2.0 * math.pi)


@composite(precision="full")
def _log_prob(x: Tensor, loc: Tensor, concentration: Tensor, scaled: Tensor) -> Tensor:
    return concentration * (_cos(x - loc) - 1.0) - _LOG_TURN - _log(scaled)


@composite(precision="full")
def _turned(angle: Tensor, loc: Tensor) -> Tensor:
    return _remainder(angle + loc + math.pi, 2.0 * math.pi) - math.pi


@composite(precision="full")
def _entropy(concentration: Tensor, along: Tensor, scaled: Tensor) -> Tensor:
    return concentration * (1.0 - along) + _LOG_TURN + _log(scaled)


def _together(x: Tensor, concentration: Tensor) -> tuple[Tensor, Tensor]:
    """Both of one shape, as an op with an order takes them."""
    shape = common_shape("VonMises", tuple(x.shape), tuple(concentration.shape))
    return spread(x, shape), spread(concentration, shape)


class VonMises(Distribution):
    """Angles around loc: exp(κ cos(x − loc)) / (2π I₀(κ)), with κ the concentration; samples lie in [−π, π).

    The density has the period 2π; `cdf` is 0 at loc − π and 1 at loc + π, and beyond it goes on by 1 for every turn, as in
    SciPy. `variance` is the circular one, 1 − I₁(κ)/I₀(κ). Samples have implicit gradients.

    >>> VonMises(0.0, 1.0).log_prob(0.0).item(), VonMises(0.0, 1.0).cdf(1.0).item()
    (-1.073791..., 0.794355...)
    """

    domains = named(loc=real, concentration=positive)
    support = real
    reparametrised = True

    def __init__(self, loc: Any, concentration: Any) -> None:
        self.loc, self.concentration = self._read(loc=loc, concentration=concentration)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _log_prob(x, self.loc, self.concentration, i0e(self.concentration))

    def _cdf(self, x: Tensor) -> Tensor:
        return _probability(*_together(x - self.loc, self.concentration), 0)

    def _survival(self, x: Tensor) -> Tensor:
        return _probability(*_together(self.loc - x, self.concentration), 0)

    def _icdf(self, p: Tensor) -> Tensor:
        return self.loc + _quantile(p, self.concentration)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        key, counter = place(generator, "VonMises", shape)
        return _turned(_draw(spread(self.concentration, shape), key, counter), self.loc)

    @property
    def _along(self) -> Any:
        """I₁(κ) / I₀(κ), the mean of cos(X − loc)."""
        return i1e(self.concentration) / i0e(self.concentration)

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self._batch(self.loc)

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self._batch(self.loc)

    @property
    def variance(self) -> Tensor:
        """1 − I₁(κ)/I₀(κ), the circular variance."""
        return self._batch(1.0 - self._along)

    def entropy(self) -> Tensor:
        """ln(2π I₀(κ)) − κ I₁(κ)/I₀(κ)."""
        return self._batch(_entropy(self.concentration, self._along, i0e(self.concentration)))
