"""The user's line: no line of a module of ours is one, also of those that are imported late."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import wengert as wg
from wengert import user_line

HERE = Path(__file__).name
X = wg.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
WORK: dict[str, Callable[[], object]] = {
    "linalg": lambda: wg.linalg.cond(X),
    "stats": lambda: wg.stats.Normal(X, 1.0).log_prob(X),
    "nn": lambda: wg.nn.Linear(2, 3)(X),
    "transforms": lambda: wg.scan(lambda c, x: (c + x, c), wg.zeros((2,)), X),
}


@pytest.mark.parametrize("package", WORK)
def test_recorded_ops_have_a_line_of_the_users(package: str) -> None:
    with wg.GradientTape() as tape:
        WORK[package]()
    assert tape.entries
    assert {Path(e.line.rpartition(":")[0]).name for e in tape.entries} == {HERE}


def test_the_users_frame() -> None:
    assert user_line.user_line().rpartition("/")[2].startswith(f"{HERE}:")
    with pytest.warns(UserWarning, match="look here") as caught:
        user_line.warn_user("look here")
    assert Path(caught[0].filename).name == HERE


def test_lines_of_commands_are_shown(tmp_path: Path) -> None:
    """Programs that come with the command are like a user's: profiles of them name their lines."""
    script = (
        "import wengert as wg\n"
        "from wengert.cli.digits import training\n"
        "code = compile('def f(x): return x * 2.0', training.__file__, 'exec')\n"
        "made = {}\nexec(code, made)\n"
        "with wg.GradientTape() as tape:\n    made['f'](wg.ones(3, requires_grad=True))\n"
        "print(tape.entries[0].line)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=True)
    assert Path(done.stdout.strip().rpartition(":")[0]).name == "training.py"


def test_instructions_of_mapped_functions_keep_their_lines() -> None:
    def f(x: wg.Tensor) -> wg.Tensor:
        y = wg.tanh(x)
        return (y * 2.0).sum()

    first = f.__code__.co_firstlineno
    for mapped in (wg.vmap(f), wg.compile(wg.vmap(f)), wg.vmap(wg.grad(f)), wg.vmap(wg.vmap(f))):
        x = wg.ones((2, 3, 4))
        with wg.GradientTape() as tape:
            mapped(x)
        lines = {str(i.origin.line).rpartition("/")[2] for i in tape.program().instructions if i.origin is not None}
        assert all(line.startswith(f"{HERE}:") for line in lines), lines
        assert f"{HERE}:{first + 1}" in lines
