"""Writing to one element of a result changes that element: no other one, and no operand but that of a view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.ops.sampling import array, cases, make, outputs
from wengert.registry.record import Op
from wengert.registry.samples import Sample


def _written(y: Any) -> bool:
    """Write to an element of y and compare with what NumPy makes of it; False if the write was refused."""
    expected = np.array(array(y.clone()))  # y itself would be pinned by NumPy
    place = tuple(n // 2 for n in y.shape)
    value = not expected[place] if y.dtype.kind == "b" else 7
    expected[place] = value
    try:
        y[place] = value
    except wg.InPlaceError as e:
        assert "clone()" in str(e)
        return False
    np.testing.assert_array_equal(array(y).astype(expected.dtype), expected)
    return True


@pytest.mark.parametrize(("op", "sample"), cases())
def test_one_element(op: Op, sample: Sample) -> None:
    before = make(sample, name=op.name)
    given = [wg.tensor(a) for a in before]
    for y in outputs(op, given, sample.attrs):
        if y.size == 0:
            continue
        if not _written(y):
            assert op.view, "only a view may refuse"
            assert _written(y.clone())
        if not op.view:
            for x, was in zip(given, before):
                np.testing.assert_array_equal(array(x), was, "an operand was changed")
