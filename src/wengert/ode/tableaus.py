"""Coefficients of the Runge–Kutta methods.

A step from y of length h is kᵢ = f(t + cᵢ h, y + h Σⱼ aᵢⱼ kⱼ), y₁ = y + h Σ bᵢ kᵢ, its error estimate h Σ eᵢ kᵢ, and
within the step y(t + θh) = y + h Σᵢ Σₚ dᵢₚ θᵖ⁺¹ kᵢ."""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tableau:
    """One method. Where the last stage is f(t + h, y₁), it is the first one of the next step: `reuses_last`."""

    order: int
    error_order: int  # of the embedded solution
    a: tuple[Row, ...]  # rows of stages 2, 3, …
    b: Row
    error: Row | None = None  # None of a method with steps of a fixed length
    dense: tuple[Row, ...] | None = None  # None: cubic interpolation between both ends
    reuses_last: bool = False

    @property
    def c(self) -> Row:
        """Where stages 2, 3, … lie in the step."""
        return tuple(sum(row) for row in self.a)

    @property
    def evaluations(self) -> int:
        """How often a step evaluates f."""
        return len(self.a) + (0 if self.reuses_last else 1)


# Classical (Kutta, 1901).
RK4 = Tableau(4, 4, ((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6))

# Heun (1900), with Euler's method embedded.
HEUN = Tableau(2, 1, ((1.0,),), (1 / 2, 1 / 2), error=(-1 / 2, 1 / 2))

# Bogacki & Shampine, "A 3(2) pair of Runge–Kutta formulas", Appl. Math. Lett. 2 (1989); the dense output is the cubic
# between both ends, for which it needs no further stage.
BOSH3 = Tableau(
    3,
    2,
    ((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    (2 / 9, 1 / 3, 4 / 9, 0.0),
    error=(2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
    dense=((1.0, -4 / 3, 5 / 9), (0.0, 1.0, -2 / 3), (0.0, 4 / 3, -8 / 9), (0.0, -1.0, 1.0)),
    reuses_last=True,
)

# Dormand & Prince, "A family of embedded Runge–Kutta formulae", J. Comp. Appl. Math. 6 (1980); dense output of order 4:
# Shampine, "Some practical Runge–Kutta formulas", Math. Comp. 46 (1986).
DOPRI5 = Tableau(
    5,
    4,
    (
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    error=(71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    dense=(
        (1.0, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
        (0.0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
        (0.0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
        (0.0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
        (0.0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
    ),
    reuses_last=True,
)

# Tsitouras, "Runge–Kutta pairs of order 5(4) satisfying only the first column simplifying assumption", Comput. Math.
# Appl. 62 (2011); its dense output, of order 4, is there given in factors, which are multiplied out here.
_TSIT5_B = (
    0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774, 0.0,
)  # fmt: skip
_TSIT5_EMBEDDED = (
    0.09468075576583945, 0.009183565540343254, 0.4877705284247616, 1.234297566930479, -2.7077123499835256,
    1.866628418170587, 1 / 66,
)  # fmt: skip


def _product(scale: float, low: int, *quadratic: float) -> Row:
    """scale · θˡᵒʷ · (θ² + pθ + q), as coefficients of θ, θ², θ³, θ⁴."""
    p, q = quadratic
    coefficients = [0.0] * 4
    for power, value in ((low, q), (low + 1, p), (low + 2, 1.0)):
        coefficients[power - 1] += scale * value
    return tuple(coefficients)


def _first_weight() -> Row:
    """−1.0530884977290216 θ (θ − 1.3299890189751412) (θ² − 1.4364028541716351 θ + 0.7139816917074209)."""
    s, r, p, q = -1.0530884977290216, -1.3299890189751412, -1.4364028541716351, 0.7139816917074209
    return (s * r * q, s * (q + r * p), s * (p + r), s)


TSIT5 = Tableau(
    5,
    4,
    (
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
        _TSIT5_B[:6],
    ),
    _TSIT5_B,
    error=tuple(b - e for b, e in zip(_TSIT5_B, _TSIT5_EMBEDDED)),
    dense=(
        _first_weight(),
        _product(0.1017, 2, -2.1966568338249754, 1.2949852507374631),
        _product(2.490627285651252793, 2, -2.38535645472061657, 1.57803468208092486),
        _product(
            -16.54810288924490272,
            2,
            -1.21712927295533244 - 0.61620406037800089,
            1.21712927295533244 * 0.61620406037800089,
        ),
        _product(
            47.37952196281928122,
            2,
            -1.203071208372362603 - 0.658047292653547382,
            1.203071208372362603 * 0.658047292653547382,
        ),
        _product(-34.87065786149660974, 2, -1.2 - 2 / 3, 1.2 * 2 / 3),
        _product(2.5, 2, -1.6, 0.6),
    ),
    reuses_last=True,
)
