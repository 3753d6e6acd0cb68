"""Options are defined once, in the Config: by position, by name, and what is said of others."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import wengert as wg
from wengert import optim

KINDS = [
    k for k in vars(optim).values() if isinstance(k, type) and issubclass(k, optim.Optimizer) and hasattr(k, "Config")
]


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_are_those_of_the_config(kind: Any) -> None:
    parameters = inspect.signature(kind).parameters
    fields = {f.name: f for f in dataclasses.fields(kind.Config)}
    assert next(iter(parameters)) == "params" and set(parameters) == {"params", "config", *fields}
    for name, f in fields.items():
        assert parameters[name].default == f.default
        assert (parameters[name].kind is inspect.Parameter.KEYWORD_ONLY) == f.kw_only
    made = kind([wg.Parameter(wg.ones((2, 2)))])
    assert {k: v for k, v in made.param_groups[0].items() if k != "params"} == dataclasses.asdict(kind.Config())


def test_options_by_position_and_by_name_are_the_same() -> None:
    p = [wg.Parameter(wg.ones((2,)))]
    a, b = optim.Adam(p, 0.1, (0.8, 0.9), 1e-4), optim.Adam(p, lr=0.1, betas=[0.8, 0.9], eps=1e-4)
    assert a.defaults == b.defaults == dataclasses.asdict(optim.AdamConfig(0.1, (0.8, 0.9), 1e-4))
    assert optim.Adam(p, None, eps=None).defaults == dataclasses.asdict(optim.AdamConfig())
    assert (
        optim.Adam(config=optim.AdamConfig(lr=0.5)).defaults["lr"] == optim.Adam(optim.AdamConfig(0.5)).defaults["lr"]
    )
    assert optim.Adam(p, eps=1.0, config=optim.AdamConfig(lr=0.5)).defaults["eps"] == 1.0


def test_other_options_are_refused_with_those_there_are() -> None:
    p = [wg.Parameter(wg.ones((2,)))]
    for call, message in [
        (lambda: optim.SGD(p, speed=1.0), "SGD has no option 'speed'; it has lr, momentum"),
        (lambda: optim.SGD(p, 0.1, lr=0.2), "lr is given by position and by name"),
        (lambda: optim.Lion(p, 0.1, (0.9, 0.99), 0.0, True), "takes 3 options by position, got 4"),
    ]:
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(wg.ArgumentError, match="config must be of type AdamConfig, got SGDConfig"):
        optim.Adam(p, config=optim.SGDConfig())
