"""What mixed precision can be asked for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import wengert as wg
from wengert import _core
from wengert.registry.precision import UNITS, WORDS
from wengert.registry.record import OPS


def test_names_override_defaults() -> None:
    x, w = wg.ones((2, 4)), wg.ones((4, 4))
    config = wg.AmpConfig(
        precision=wg.bfloat16, autocast_ops=["softmax", "mul"], keep_fp32_ops=["matmul", "layer_norm", "conv2d"]
    )
    with wg.autocast(config):
        assert (x @ w).dtype == wg.matmul(wg.ones((2, 2, 4)), w).dtype == wg.float32
        assert wg.softmax(x).dtype == (x * x).dtype == wg.bfloat16
        assert wg.layer_norm(x, 4).dtype == wg.float32
        assert wg.conv2d(wg.ones((1, 1, 3, 3)), wg.ones((1, 1, 2, 2))).dtype == wg.float32
        assert wg.linear(x, w).dtype == wg.bfloat16  # a function of its own


def test_what_is_switched_off_casts_nothing() -> None:
    with wg.autocast(wg.AmpConfig(enabled=False)):
        assert (wg.ones((2, 2)) @ wg.ones((2, 2))).dtype == wg.float32 and wg.autocast_dtype() is None


def test_every_op_has_a_word_and_a_name() -> None:
    assert all(op.precision in WORDS for op in OPS.values())
    assert set(_core.ops) <= set(UNITS)
    public = {"conv1d", "conv2d", "conv3d", "einsum", "layer_norm", "linear", "cross_entropy", "mse_loss", "softmax"}
    assert public <= set(UNITS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "float32"}, "must be float16 or bfloat16, got float32"),
        ({"precision": "int8"}, "must be float16 or bfloat16, got int8"),
        ({"autocast_ops": ["matmull"]}, "did you mean 'matmul'?"),
        ({"keep_fp32_ops": ["no such op"]}, "keep_fp32_ops names 'no such op'"),
        ({"autocast_ops": "matmul"}, "must be a list of names"),
        ({"autocast_ops": ["exp"], "keep_fp32_ops": ["exp"]}, "exp cannot be in both"),
        ({"loss_scaler": 128.0}, "must be a StaticLossScaler or a DynamicLossScaler, got float"),
    ],
)
def test_bad_configurations_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        wg.AmpConfig(**options)


def test_bad_dtypes_of_autocast_are_named() -> None:
    for dtype, kind in ((wg.float64, ValueError), ("quarter", TypeError), (3, TypeError)):
        with pytest.raises(kind):
            wg.autocast(dtype)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is a generator"):

        @wg.autocast()
        def numbers() -> Any:
            yield 1
