"""The tables for people who come from other libraries: our side of every row runs; where the other library is installed, its
side does too, and both give the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg

PAGES = Path(__file__).parents[2] / "docs" / "coming-from"
ROW = re.compile(r"^\| (?P<theirs>[^|]*) \| `(?P<ours>[^|]*)` \|(?P<note>[^|]*)\|$", re.MULTILINE)
RANDOM = re.compile(r"sample\(|rand|permutation|dropout|bernoulli|net|PRNG|shuffle|normal\(")

rng = np.random.default_rng(0)
NUMBERS: dict[str, np.ndarray] = {
    "x": rng.normal(size=(3, 4)).astype(np.float32),
    "y": rng.normal(size=(3, 4)).astype(np.float32),
    "v": np.array([0.3, -1.2, 2.0, 0.7], np.float32),
    "t": np.array([2, 0, 1]),
    "m": np.array([[1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 0, 0]], bool),
    "i": np.array([2, 0]),
    "j": np.array([[0, 1, 3, 2], [3, 3, 1, 1], [2, 0, 0, 1]]),
    "a": np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], np.float32),
    "b": rng.normal(size=(2, 4, 4)).astype(np.float32),
    "q": rng.normal(size=(2, 3, 6, 6)).astype(np.float32),
    "k": rng.normal(size=(5, 3, 3, 3)).astype(np.float32),
    "p": np.array([0.5, 1.5, -0.5], np.float32),
}


def ours() -> dict[str, Any]:
    names: dict[str, Any] = {name: wg.tensor(value) for name, value in NUMBERS.items()}
    p = wg.Parameter(names["p"])
    return names | {
        "wg": wg, "np": np, "n": NUMBERS["x"].copy(), "p": p, "opt": wg.optim.SGD([p], lr=0.1),
        "f": lambda x: (wg.sin(x) * x).sum(), "g": lambda x: wg.sin(x) * x, "net": wg.nn.Linear(4, 2),
    }  # fmt: skip


def of_torch() -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="make peers installs it")
    pytest.importorskip("torch.utils.checkpoint")
    import torch.nn.functional as F

    names: dict[str, Any] = {name: torch.tensor(value) for name, value in NUMBERS.items()}
    p = names["p"].requires_grad_()
    return names | {
        "torch": torch, "F": F, "n": NUMBERS["x"].copy(), "opt": torch.optim.SGD([p], lr=0.1), "net": torch.nn.Linear(4, 2),
        "f": lambda x: (torch.sin(x) * x).sum(), "g": lambda x: torch.sin(x) * x,
    }  # fmt: skip


def of_jax() -> dict[str, Any]:
    jax = pytest.importorskip("jax", reason="make peers installs it")
    import jax.numpy as jnp

    names: dict[str, Any] = {name: jnp.asarray(value) for name, value in NUMBERS.items()}
    f, g = (lambda x: (jnp.sin(x) * x).sum()), (lambda x: jnp.sin(x) * x)
    return names | {"jax": jax, "jnp": jnp, "np": np, "n": NUMBERS["x"].copy(), "f": f, "g": g}


def of_autograd() -> dict[str, Any]:
    autograd = pytest.importorskip("autograd", reason="make peers installs it")
    import autograd.numpy as anp
    import autograd.scipy.special as special
    from autograd import misc, test_util  # noqa: F401  a row uses it

    f, g = (lambda x: (anp.sin(x) * x).sum()), (lambda x: anp.sin(x) * x)
    names: dict[str, Any] = {name: value.copy() for name, value in NUMBERS.items()}
    return names | {"autograd": autograd, "anp": anp, "special": special, "misc": misc, "np": np, "f": f, "g": g}


def of_tensorflow() -> dict[str, Any]:
    tf = pytest.importorskip("tensorflow", reason="pip install tensorflow-cpu, for this alone")
    names: dict[str, Any] = {name: tf.constant(value) for name, value in NUMBERS.items()}
    p = tf.Variable(NUMBERS["p"])
    f, g = (lambda x: tf.reduce_sum(tf.sin(x) * x)), (lambda x: tf.sin(x) * x)
    opt = tf.keras.optimizers.SGD(0.1)
    return names | {"tf": tf, "np": np, "n": NUMBERS["x"].copy(), "p": p, "f": f, "g": g, "opt": opt}


LIBRARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "pytorch": of_torch,
    "jax": of_jax,
    "autograd": of_autograd,
    "tensorflow": of_tensorflow,
}


def rows(library: str) -> list[re.Match[str]]:
    return list(ROW.finditer((PAGES / f"{library}.md").read_text(encoding="utf-8")))


def run(code: str, names: dict[str, Any]) -> Any:
    """Statements, and the value of the last one if it is an expression."""
    *first, last = ast.parse(code).body
    exec(compile(ast.Module(first, []), "row", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "row", "eval"), names)
    exec(compile(ast.Module([last], []), "row", "exec"), names)
    return None


def arrays(value: Any) -> list[np.ndarray]:
    """Tensors and numbers in nested containers, one after another, as arrays; other objects are left out."""
    if isinstance(value, dict):
        return [a for key in sorted(value) for a in arrays(value[key])]
    if isinstance(value, tuple | list) or type(value).__module__ == "torch.return_types":
        return [a for element in value for a in arrays(element)]
    if hasattr(value, "detach"):
        value = value.detach()
    if isinstance(value, bool | int | float | complex) or hasattr(value, "__array__"):
        return [np.asarray(value)]
    return []


@pytest.mark.parametrize("library", LIBRARIES)
def test_our_side_of_every_row_runs(library: str) -> None:
    assert len(rows(library)) > 20
    for row in rows(library):
        try:
            run(row["ours"], ours())
        except Exception as error:
            raise AssertionError(f"{row[0]} raised") from error


@pytest.mark.filterwarnings("ignore")  # those of the other libraries
@pytest.mark.parametrize("library", LIBRARIES)
def test_both_sides_give_the_same(library: str) -> None:
    LIBRARIES[library]()  # skips if it is not installed
    for row in rows(library):
        theirs = re.fullmatch(r"`(.+)`", row["theirs"])
        if theirs is None:  # a concept, not a call
            continue
        expected, got = arrays(run(theirs[1], LIBRARIES[library]())), arrays(run(row["ours"], ours()))
        assert [a.shape for a in got] == [a.shape for a in expected], row[0]
        if not RANDOM.search(row["ours"]):
            for a, b in zip(got, expected):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=row[0])


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+|@", text))


def missing(path: str, start: Any) -> str:
    """What the error says where a dotted name of another library ends here; "" if all of it is there."""
    for part in path.split("."):
        try:
            start = getattr(start, part)
        except AttributeError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("library", LIBRARIES)
def test_names_that_are_missing_here_name_what_the_table_says(library: str) -> None:
    """As the pages promise: a script that is ported by running it is told the next name."""
    for row in rows(library):
        for prefix, path in re.findall(
            r"(?<![\w.])(torch|F|jax|jnp|tf|autograd|anp|special|x)\.([\w.]+)", row["theirs"]
        ):
            said = missing(path.removeprefix("ops."), wg.ones((3, 4)) if prefix == "x" else wg)
            if said:
                _, hint, ours = said.partition("; wengert has ")
                assert hint, said
                if path.count(".") == 0:
                    assert words(ours) & words(row["ours"] + row["note"]), f"{said}, but the table: {row[0]}"


@pytest.mark.filterwarnings("ignore")  # those of PyTorch
def test_programs_of_pytorch_run(tmp_path: Path) -> None:
    """The programs that are ported are real ones."""
    names = of_torch() | {"path": str(tmp_path / "net.pt")}
    programs = re.findall(
        r"^```py\n(.*?)^```$", (PAGES / "pytorch.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(programs) == 3
    for program in programs:
        exec(program, names)
