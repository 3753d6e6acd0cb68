"""Which values of a chain to keep when only so many fit: the schedule that recomputes the fewest steps.

With s places and no step computed more than r times besides, C(s + r, s) steps can be passed backwards (Griewank, Walther,
"Algorithm 799: Revolve", 2000). A chain of n steps is cut into parts: each begins where a value is kept, and is itself
passed backwards with the places that are free by then, those of the parts behind it.
"""

from __future__ import annotations

import math


def repetitions(n: int, places: int) -> int:
    """The largest number of times that a step of a chain of n must be recomputed.

    >>> repetitions(1000, 20), repetitions(20, 20)
    (3, 1)
    """
    r = 0
    while math.comb(places + r, places) < n:
        r += 1
    return r


def advances(n: int, places: int) -> int:
    """The smallest number of recomputed steps: r n - C(s + r, s + 1), with r from `repetitions`.

    >>> advances(10, 10), advances(1000, 20)
    (9, 2747)
    """
    r = repetitions(n, places)
    return r * n - math.comb(places + r, places + 1)


def parts(n: int, places: int) -> list[tuple[int, int]]:
    """The lengths of the parts of a chain of n steps, in order, and how many kept values each can use. The last part is kept
    completely.

    >>> parts(5, 5), parts(6, 3)
    ([(5, 5)], [(1, 3), (2, 2), (2, 1), (1, 0)])
    """
    found = []
    while n > max(1, places):
        r = repetitions(n, places)
        # At least so many that the rest needs no more than r repetitions, and all that fewer repetitions can serve.
        first = max(n - math.comb(places - 1 + r, r), math.comb(places + r - 2, r - 2) if r > 1 else 0, 1)
        found.append((first, places))
        n, places = n - first, places - 1
    return [*found, (n, places)]


__all__ = ["advances", "parts", "repetitions"]
