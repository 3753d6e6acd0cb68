"""Programs in files: what is loaded gives the same bits without the source, and damaged or hostile files raise."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.ops.sampling import array, make, outputs, tensor
from wengert.errors import ArgumentError, DTypeError, LoadError, ShapeError, TraceError, WengertError
from wengert.registry.record import OPS, Op

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    return wg.tensor(RNG.normal(size=shape))


def recurrent(w: Any, xs: Any) -> Any:
    """State, a branch and a loop."""

    def turn(h: Any, x: Any) -> Any:
        h = wg.cond(x.sum() > 0, lambda: wg.tanh(h @ w + x), lambda: h * 0.5)
        return h, (h * h).sum()

    h, ys = wg.scan(turn, wg.zeros(xs.shape[1], dtype=wg.float64), xs)
    return {"h": h, "ys": (ys, None)}


def exported(tmp_path: Path, f: Any, *examples: Any, dynamic: Any = None) -> Any:
    wg.export(f, *examples, path=tmp_path / "f.wg", dynamic=dynamic)
    return wg.load_program(tmp_path / "f.wg")


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in OPS.values() if op.samples])
def test_every_op_round_trips(op: Op, tmp_path: Path) -> None:
    given = [[tensor(a) for a in make(sample, "float32", op.name)] for sample in op.samples]

    def f(*given: Any) -> list[Any]:
        return [list(outputs(op, xs, sample.attrs)) for xs, sample in zip(given, op.samples)]

    loaded = exported(tmp_path, f, *given)
    for ours, theirs in zip(wg.tree.leaves(loaded(*given)), wg.tree.leaves(f(*given))):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(array(ours), array(theirs))


def test_regions_and_derivatives(tmp_path: Path) -> None:
    w, xs = real(3, 3), real(4, 3)
    loaded = exported(tmp_path, recurrent, w, xs, dynamic=(None, 0))
    loaded.program.verify()
    for n in (4, 1, 6):
        xs = real(n, 3)
        ours, expected = loaded(w, xs), wg.compile(recurrent)(w, xs)
        assert ours["h"].tolist() == expected["h"].tolist() and ours["ys"][0].tolist() == expected["ys"][0].tolist()

        def loss(f: Any, w: Any, xs: Any = xs) -> Any:
            return (f(w, xs)["h"] ** 2).sum() + f(w, xs)["ys"][0].sum()

        for derivative in (wg.grad, wg.hessian, lambda f: lambda w: wg.jvp(f, (w,), (w,))[1]):
            a, b = (derivative(lambda w, f=f: loss(f, w))(w) for f in (loaded, recurrent))
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)
    with pytest.raises(ShapeError, match=r"argument 0 must be float64\[3, 3\]"):
        loaded(real(2, 2), real(4, 2))


def test_loaded_in_a_process_without_the_source(tmp_path: Path) -> None:
    net = wg.nn.Sequential(wg.nn.Linear(4, 8), wg.nn.GELU(), wg.nn.LayerNorm((8,)), wg.nn.Linear(8, 3))
    x = wg.tensor(RNG.normal(size=(5, 4)).astype("float32"))

    def f(x: Any) -> Any:
        return wg.softmax(net(x), -1)

    wg.export(f, x, path=tmp_path / "net.wg", dynamic=0)
    code = """
        import sys, numpy as np, wengert as wg
        f, x = wg.load_program(sys.argv[1]), wg.tensor(np.load(sys.argv[2]))
        np.save(sys.argv[3], np.stack([f(x).numpy(), f(x[:2]).numpy().repeat(3, 0)[:5]]))
        np.save(sys.argv[4], wg.grad(lambda x: f(x)[:, 0].sum())(x).numpy())
    """
    files = [str(tmp_path / name) for name in ("net.wg", "x.npy", "y.npy", "g.npy")]
    np.save(files[1], x.numpy())
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(code), *files], check=True, cwd=tmp_path)
    with wg.no_grad():
        expected = np.stack([f(x).numpy(), f(x[:2]).numpy().repeat(3, 0)[:5]])
    np.testing.assert_array_equal(np.load(files[2]), expected)
    np.testing.assert_array_equal(np.load(files[3]), wg.grad(lambda x: f(x)[:, 0].sum())(x).detach().numpy())


def test_random_numbers_come_from_the_default_generator(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return wg.dropout(x, 0.5) + wg.rand(x.shape[0], 4)

    x = wg.ones((5, 4))
    loaded = exported(tmp_path, f, x, dynamic=True)
    for size in (5, 2):
        wg.manual_seed(1)
        first, second = loaded(x[:size]), loaded(x[:size])
        wg.manual_seed(1)
        assert first.tolist() == f(x[:size]).tolist() and second.tolist() == f(x[:size]).tolist()


def test_a_graph_is_saved(tmp_path: Path) -> None:
    g = wg.Graph()
    x, t = g.placeholder("x", ("n", 3)), g.placeholder("t", (None,), dtype=wg.int64)
    w = g.variable("w", wg.ones((3, 2)))
    loss = wg.softmax_cross_entropy(wg.dropout(x @ w, 0.5), t)
    (dw,) = g.gradients(loss, [w])
    g.save(tmp_path / "g.wg", {"loss": loss, "dw": [dw]})
    loaded = wg.load_program(tmp_path / "g.wg")
    for n in (4, 1):
        feeds = {"x": wg.ones((n, 3)), "t": wg.ones((n,), dtype=wg.int64)}
        wg.manual_seed(0)
        ours = loaded(**feeds)
        wg.manual_seed(0)
        expected = g.run({"loss": loss, "dw": [dw]}, feeds)
        assert ours["loss"].item() == expected["loss"].item() and ours["dw"][0].tolist() == expected["dw"][0].tolist()
    with pytest.raises(ShapeError, match="do not fit each other"):
        loaded(x=wg.ones((4, 3)), t=wg.ones((3,), dtype=wg.int64))


class TestWhatCannotBeExported:
    def test_effects_and_foreign_code(self, tmp_path: Path) -> None:
        x, count, generator = wg.ones((3,)), wg.zeros(()), wg.Generator(0)

        def changes(x: Any) -> Any:
            count.add_(1.0)
            return x + count

        @wg.custom_op
        def cube(x: Any) -> Any:
            return wg.asarray(x.numpy() ** 3)

        leaf = wg.ones((3,), requires_grad=True)

        def trains(x: Any) -> Any:
            loss = (x * leaf).sum()
            loss.backward()
            return loss

        for f, error, text in [
            (changes, TraceError, "changes a tensor float32.*in place"),
            (cube, ArgumentError, "'cube', a custom operation"),
            (trains, TraceError, "calls backward"),
            (lambda x: x + wg.rand(3, generator=generator), ArgumentError, "generator of its own"),
            (lambda x: {1: x}, ArgumentError, "with the key 1"),
            (lambda x: "text", TraceError, "must return tensors"),
            (lambda x: x if x.sum() > 0 else -x, TraceError, "branches on"),
        ]:
            with pytest.raises(error, match=text):
                wg.export(f, x, path=tmp_path / "f.wg")
        assert not (tmp_path / "f.wg").exists()

    def test_dynamic_axes(self, tmp_path: Path) -> None:
        for dynamic, text in [(0, "its size is 1"), ((None, 0), "2 entries for 1 arguments"), ("n", "got 'n'")]:
            with pytest.raises(ArgumentError, match=text):
                wg.export(lambda x: x, wg.ones((1, 3)), path=tmp_path / "f.wg", dynamic=dynamic)


def test_calls_that_do_not_fit(tmp_path: Path) -> None:
    loaded = exported(tmp_path, lambda x, n: x["a"] * n, {"a": wg.ones((3,))}, 2)
    assert loaded({"a": np.float32([1.0, 2.0, 3.0])}, 2).tolist() == [2.0, 4.0, 6.0]
    for args, error, text in [
        (({"a": wg.ones((4,))}, 2), ShapeError, r"argument 0 must be float32\[3\], got float32\(4,\)"),
        (({"a": wg.ones((3,), dtype=wg.float64)}, 2), DTypeError, "astype"),
        (({"a": wg.ones((3,))}, 3), ArgumentError, "made for 2"),
        (({"b": wg.ones((3,))}, 2), ArgumentError, "another structure"),
        ((), ArgumentError, "another structure"),
    ]:
        with pytest.raises(error, match=text):
            loaded(*args)


def test_sizes_that_were_assumed_are_checked(tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        return x.sum() * 2.0 if x.shape[0] == y.shape[0] else x.sum()

    loaded = exported(tmp_path, f, wg.ones((3,)), wg.ones((3,)), dynamic=True)
    assert loaded(wg.ones((4,)), wg.ones((4,))).item() == 8.0
    with pytest.raises(ShapeError, match="a size that must be equal to another is not"):
        loaded(wg.ones((4,)), wg.ones((3,)))


# ------------------------------------------------------------------------------------------------- damaged and hostile


def with_checksum(description: Any, tensors: dict[str, Any], path: Path) -> None:
    from wengert.graph import program_file

    program_file.write(path, description, tensors)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "good.wg"
    w = real(3, 3)
    wg.export(lambda xs: recurrent(w, xs), real(4, 3), path=path, dynamic=0)
    return path


def test_flips_and_truncations(good: Path, tmp_path: Path) -> None:
    content, rng = good.read_bytes(), random.Random(0)
    bad = tmp_path / "bad.wg"
    damaged = [content[:n] for n in (0, 1, 8, 11, 47, 48, 60, len(content) - 1)] + [content + b"x"]
    for _ in range(150):
        at = rng.randrange(len(content))
        damaged.append(content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :])
        damaged.append(content[: rng.randrange(len(content))])
    for text in damaged:
        bad.write_bytes(text)
        with pytest.raises(LoadError, match=r"bad\.wg"):
            wg.load_program(bad)


def test_a_newer_version(good: Path, tmp_path: Path) -> None:
    content = bytearray(good.read_bytes())
    content[8] = 2
    (tmp_path / "new.wg").write_bytes(content)
    with pytest.raises(LoadError, match=r"version 2 of the format; this wengert reads up to version 1"):
        wg.load_program(tmp_path / "new.wg")


def mutated(x: Any, rng: random.Random) -> Any:
    """JSON with one part of it changed."""
    if isinstance(x, dict) and x and rng.random() < 0.95:
        key = rng.choice(list(x))
        return {k: mutated(v, rng) if k == key else v for k, v in x.items()}
    if isinstance(x, list) and x and rng.random() < 0.95:
        k = rng.randrange(len(x))
        if rng.random() < 0.1:
            return x[:k] + x[k + 1 :]
        return [mutated(v, rng) if j == k else v for j, v in enumerate(x)]
    if type(x) is int and rng.random() < 0.7:
        return x + rng.choice([-1, 1, 7, 2**40, -(2**61)])
    others = [
        None,
        0,
        -1,
        2**70,
        1e400,
        "n0_0",
        "n9_9",
        "__import__('os')",
        "((" * 2000,
        [],
        {},
        [[]],
        "float32",
        "sin",
    ]
    return rng.choice(others)


def test_hostile_files_with_a_proper_checksum(good: Path, tmp_path: Path) -> None:
    """Whatever the JSON says, loading and running give an error of this library, or results."""
    from wengert.graph import program_file

    description, tensors = program_file.read(good)
    rng, bad, refused = random.Random(1), tmp_path / "bad.wg", 0
    for _ in range(300):
        changed = mutated(description, rng)
        try:
            with_checksum(changed, tensors, bad)
        except ValueError:
            continue  # a number that JSON does not have
        try:
            wg.load_program(bad)(wg.zeros((4, 3), dtype=wg.float64))
        except (WengertError, TypeError) as e:
            refused += isinstance(e, LoadError)
    assert refused > 200


def test_inner_programs_are_made_fit_to_run(tmp_path: Path) -> None:
    """Those whose results are an operand, or the same twice, get copies; what nobody reads is taken out."""
    from wengert.graph import program_file

    def f(x: Any) -> Any:
        a, b = wg.cond(x.sum() > 0, lambda x: (wg.sin(x), x * 2.0), lambda x: (x + 1.0, x * 3.0), x)
        return wg.fori_loop(0, 3, lambda i, c: (c[0] + c[1], c[1] * 2.0), (a, b))[0]

    wg.export(f, real(3), path=tmp_path / "good.wg")
    description, tensors = program_file.read(tmp_path / "good.wg")
    for inner in description["programs"]:
        for changed in ([inner["outputs"][0]] * 2, [0, 0], [0, 1], [1, 0]):
            before, inner["outputs"] = inner["outputs"], changed
            with_checksum(description, tensors, tmp_path / "bad.wg")
            inner["outputs"] = before
            loaded = wg.load_program(tmp_path / "bad.wg")
            assert [loaded(real(3)).shape for _ in range(3)] == [(3,)] * 3


class _TooLong(Exception):
    pass


def test_hostile_loops(tmp_path: Path) -> None:
    """Loops with a condition, and programs with sizes that are data: as above. A loop may also never end."""
    from wengert.graph import program_file

    def f(x: Any) -> Any:
        body = lambda c: (wg.sin(c[0]) + x, c[1] + 1)
        return wg.while_loop(lambda c: (c[1] < 5) & (c[0].sum() < 10), body, (x, 0))[0].sum()

    wg.export(wg.grad(f), real(3), path=tmp_path / "good.wg")
    description, tensors = program_file.read(tmp_path / "good.wg")
    assert "sized" in json.dumps(description)

    def give_up(*_: Any) -> None:
        raise _TooLong

    rng, bad, refused = random.Random(2), tmp_path / "bad.wg", 0
    before = signal.signal(signal.SIGALRM, give_up)
    try:
        for _ in range(150):
            try:
                with_checksum(mutated(description, rng), tensors, bad)
            except ValueError:
                continue
            try:
                loaded = wg.load_program(bad)
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                loaded(wg.zeros(3, dtype=wg.float64))
            except (WengertError, TypeError, MemoryError, _TooLong) as e:
                refused += isinstance(e, LoadError)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert refused > 100


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d["program"]["body"].append({"op": "cube#1", "inputs": [0], "outputs": []}), "does not know"),
        (lambda d: d["program"]["body"].append({"op": "os.system", "inputs": [0], "outputs": []}), "does not know"),
        (
            lambda d: d["program"]["body"].insert(0, {"op": "sin", "inputs": [99], "outputs": []}),
            "is not a value that exists",
        ),
        (lambda d: d["program"]["inputs"][0].__setitem__(1, ["n0_0", "__import__('os')"]), "is not a size"),
        (lambda d: d["program"]["inputs"][0].__setitem__(1, ["n0_0", "9**9"]), "is not a size"),
        (lambda d: d["program"]["inputs"][0].__setitem__(0, "object"), "is not a dtype"),
        (lambda d: d.__setitem__("constants", []), "constants"),
        (lambda d: d.pop("program"), "no field 'program'"),
    ],
)
def test_what_the_reader_says(change: Any, text: str, good: Path, tmp_path: Path) -> None:
    from wengert.graph import program_file

    description, tensors = program_file.read(good)
    copied = json.loads(json.dumps(description))
    change(copied)
    with_checksum(copied, tensors, tmp_path / "bad.wg")
    with pytest.raises(LoadError, match=text):
        wg.load_program(tmp_path / "bad.wg")


def test_the_format(good: Path) -> None:
    """As docs/graphs.md describes it, read without this library."""
    content = good.read_bytes()
    assert content[:8] == b"WENGERTP" and content[8:16] == bytes([1, 0, 0, 0, 0, 0, 0, 0])
    rest = content[48:]
    assert hashlib.sha256(rest).digest() == content[16:48]
    length = int.from_bytes(rest[:8], "little")
    header = json.loads(rest[8 : 8 + length])
    description = json.loads(header["__metadata__"]["wengert.program"])
    assert header["constant 0"]["shape"] == [3, 3] and description["constants"] == ["constant 0"]
    assert description["program"]["inputs"] == [["float64", ["n0_0", 3]], ["float64", [3, 3]]]
