"""The `wengert` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import wengert
from wengert.cli import main
from wengert.cli.ops import COLUMNS, TABLE, load, reason, status
from wengert.registry.record import OPS


def test_help(capsys):
    for command in ([], ["info"], ["ops"], ["check"], ["bench"], ["profile"], ["demo"]):
        with pytest.raises(SystemExit) as e:
            main([*command, "--help"])
        assert e.value.code == 0
        text = capsys.readouterr().out
        assert f"usage: wengert {' '.join(command)}".rstrip() in text
        assert "examples:" in text or not command
        assert "exit status" in text or command == ["info"]
    with pytest.raises(SystemExit) as e:
        main([])
    assert e.value.code == 2


def test_version(capsys):
    with pytest.raises(SystemExit) as e:
        main(["--version"])
    assert e.value.code == 0 and capsys.readouterr().out == f"wengert {wengert.__version__}\n"


def test_it_is_installed():
    (found,) = entry_points(group="console_scripts", name="wengert")
    assert found.load() is main
    done = subprocess.run([sys.executable, "-m", "wengert", "info"], capture_output=True, text=True, check=True)
    assert "instruction set" in done.stdout


def test_ops(capsys):
    assert main(["ops"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [c for c in COLUMNS if c in table[0]] == list(COLUMNS)
    assert {line.split()[0] for line in table[1 : len(load()) + 1]} == set(OPS)


def test_ops_that_hold_programs_have_a_row(capsys):
    wengert.compile(lambda x: wengert.fori_loop(0, 2, lambda i, c: c * x, x))(wengert.ones(()))
    assert main(["ops"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(OPS)


def test_one_op_and_its_reasons(capsys):
    assert main(["ops", "tanh", "argmax", "--plain"]) == 0
    out = capsys.readouterr().out
    assert "its results are integers or truth values" in out
    assert main(["ops", "nothing"]) == 1
    assert "no op nothing" in capsys.readouterr().err


def test_the_table_as_json(capsys):
    assert main(["ops", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == load()


def test_every_hole_has_a_reason():
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    for name, row in rows.items():
        assert list(row) == list(COLUMNS)
        for column, cell in row.items():
            assert status(cell) in ("yes", "zero", "no", "elsewhere"), f"{name}, {column}: {cell}"
            assert status(cell) in ("yes", "zero") or reason(cell), f"{name}, {column}"
    assert rows["tanh"] == dict.fromkeys(COLUMNS, "yes")


def test_terminals_without_our_signs():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "wengert", "ops", "tanh", "argmax"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "yes" in done.stdout and "✓" not in done.stdout
