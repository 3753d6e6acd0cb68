"""`wengert check`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from wengert.cli import main

MODULE = """
import time
import wengert as wg

def right(x, w):
    return wg.tanh(x * w).sum()

@wg.custom_op
def wrong(x):
    return x * x
@wrong.defvjp
def _(y_bar, y, x):
    return 3 * x * y_bar

class Double(wg.CustomOp):
    def forward(self, x):
        return 2.0 * x
    def backward(self, y_bar, x):
        return 2.0 * y_bar

def kinked(x):
    return abs(x).sum()

def raises(x):
    raise KeyError("here")

def nothing(x):
    return None

def for_ever(x):
    while True:
        time.sleep(0.01)

def samples():
    return wg.zeros(2, dtype=wg.float64), wg.ones(2, dtype=wg.float64)

zeros = wg.zeros(2, dtype=wg.float64)
number = 3
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "checked.py"
    path.write_text(MODULE)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["right"], 0, "ok: the derivatives of right"),
        (["right", "--shape", "2,3", "--shape", "3"], 0, "ok"),
        (["right", "--inputs", ":samples"], 0, "ok"),
        (["right", "--shape", "4", "--shape", "4", "--dtype", "float32", "--full", "--first-order"], 0, "ok"),
        (["wrong"], 1, "bug: the derivatives of wrong"),
        (["Double"], 0, "ok"),
        (["kinked", "--inputs", ":zeros"], 3, "kink"),
    ],
)
def test_verdicts(module, capsys, arguments, status, text):
    names = [f"{module}{a}" if a.startswith(":") else a for a in arguments]
    assert main(["check", f"{module}:{names[0]}", *names[1:]]) == status
    assert capsys.readouterr().out.startswith(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["raises"], "raises raised KeyError: 'here'"),
        (["nothing"], "returned None, with no floating tensor"),
        (["for_ever", "--time-limit", "0.2"], "was stopped after 0.2 s"),
        (["number"], "is of type int, not a function"),
        (["absent"], "has no 'absent'; it has right"),
        (["right", "--shape", "x"], "--shape takes sizes such as 8,3; got 'x'"),
        (["right", "--dtype", "int32"], "--dtype must be a floating or complex dtype"),
        (["right", "--shape", "2", "--inputs", "a:b"], "give one of them"),
    ],
)
def test_what_cannot_be_checked(module, capsys, arguments, text):
    assert main(["check", f"{module}:{arguments[0]}", *arguments[1:]]) == 2
    assert text in capsys.readouterr().err


def test_names_that_lead_nowhere(capsys):
    for name, text in (("loss", "not of the form module:function"), ("no.such:f", "there is no module no.such"),
                       ("no.py:f", "there is no file no.py")):  # fmt: skip
        assert main(["check", name]) == 2
        assert text in capsys.readouterr().err


def test_json(module, capsys):
    assert main(["check", f"{module}:wrong", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "bug"
    assert report["findings"][0]["mode"] in ("forward", "reverse")
    assert main(["check", f"{module}:raises", "--json"]) == 2
    assert "KeyError" in json.loads(capsys.readouterr().out)["error"]


def test_from_the_shell_without_colours(module):
    command = [sys.executable, "-m", "wengert", "check", f"{module}:wrong"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + done.stderr
