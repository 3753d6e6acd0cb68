"""Saving and loading: round trips, other programs' files, and files made to do damage."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim

DTYPES = [
    wg.float64, wg.float32, wg.float16, wg.bfloat16, wg.int64, wg.int32, wg.int16, wg.int8, wg.uint64, wg.uint32,
    wg.uint16, wg.uint8, wg.bool_, wg.complex64, wg.complex128,
]  # fmt: skip


def _same(a: wg.Tensor, b: wg.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("dtype", [wg.complex64, wg.complex128], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (0,), (1,) * 11 + (2,)], ids=str)
def test_complex_tensors_of_any_rank(shape: tuple[int, ...], dtype: wg.DType, tmp_path: Path) -> None:
    t = wg.full(shape, 1 + 2j, dtype=dtype)
    wg.save(tmp_path / "a.safetensors", {"t": t})
    back = wg.load(tmp_path / "a.safetensors")["t"]
    assert back.dtype == dtype and back.shape == shape and back.tolist() == t.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 3, 2)])
def test_every_dtype_and_shape(dtype: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    n = int(np.prod(shape))
    values = np.arange(n).reshape(shape) - 0.5 * (dtype.kind in "fc")
    t = wg.tensor(values * (1 + 2j) if dtype.kind == "c" else values).astype(dtype)
    wg.save(tmp_path / "a", {"t": t, "u": wg.ones((2,), dtype=wg.int8)})
    loaded = wg.load(tmp_path / "a")
    assert _same(loaded["t"], t) and loaded["u"].tolist() == [1, 1]


def test_nested_states_come_back_as_they_were(tmp_path: Path) -> None:
    g = wg.Generator(seed=7)
    wg.randn(10, generator=g)
    state = {
        "net": {"0.weight": wg.ones((2, 2)), "nested": {"deep": [wg.zeros((1,)), (np.arange(3), None)]}},
        "optimizer": {"state": {0: {"step": 3, "m": wg.ones(())}}, "lr": 0.1},
        "rng": g,
        "texts": ["a", "b.c", ""],
        "numbers": (True, 2**63, -1.5, float("inf"), np.float32(0.5)),
        "empty": {},
    }
    wg.save(tmp_path / "a", state)
    loaded = wg.load(tmp_path / "a")
    assert list(loaded) == list(state)
    assert loaded["net"]["nested"]["deep"][1][0].tolist() == [0, 1, 2] and loaded["net"]["nested"]["deep"][1][1] is None
    assert loaded["optimizer"]["state"][0]["step"] == 3 and loaded["optimizer"]["lr"] == 0.1
    assert loaded["numbers"] == (True, 2**63, -1.5, float("inf"), 0.5) and isinstance(loaded["numbers"], tuple)
    assert loaded["texts"] == state["texts"] and loaded["empty"] == {}
    assert wg.randn(3, generator=loaded["rng"]).tolist() == wg.randn(3, generator=g).tolist()


def test_nan_and_negative_zero_keep_their_bits(tmp_path: Path) -> None:
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x00000001], np.uint32).view(np.float32)
    wg.save(tmp_path / "a", {"t": bits})
    assert wg.load(tmp_path / "a")["t"].numpy().tobytes() == bits.tobytes()


def test_views_and_strides_are_written_in_order(tmp_path: Path) -> None:
    t = wg.arange(12).reshape((3, 4))
    wg.save(tmp_path / "a", {"t": t.T, "row": t[1], "flipped": t[::-1]})
    loaded = wg.load(tmp_path / "a")
    assert loaded["t"].tolist() == t.T.tolist() and loaded["flipped"].tolist() == t[::-1].tolist()
    assert loaded["row"].tolist() == [4, 5, 6, 7]


def test_a_model_and_its_optimizer(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    opt = optim.Adam(net.parameters(), lr=0.1)
    net(wg.ones((5, 3))).sum().backward()
    opt.step()
    wg.save(tmp_path / "run", {"net": net.state_dict(), "opt": opt.state_dict()})
    other = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    again = optim.Adam(other.parameters())
    state = wg.load(tmp_path / "run")
    other.load_state_dict(state["net"])
    again.load_state_dict(state["opt"])
    for n, o in ((net, opt), (other, again)):
        n.zero_grad()
        (n(wg.ones((5, 3))) ** 2).sum().backward()
        o.step()
    assert all(_same(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values()))


def test_other_readers_and_writers(tmp_path: Path) -> None:
    numpy_io = pytest.importorskip("safetensors.numpy")
    state = {"a.weight": wg.randn(3, 2), "b": wg.arange(4), "flag": wg.tensor([True, False])}
    wg.save(tmp_path / "ours", state)
    theirs = numpy_io.load_file(tmp_path / "ours")
    assert all(np.array_equal(theirs[k], t.numpy()) for k, t in state.items())
    numpy_io.save_file({"x": np.arange(6.0).reshape(2, 3), "h": np.ones(2, np.float16)}, tmp_path / "theirs")
    loaded = wg.load(tmp_path / "theirs")
    assert loaded["x"].dtype == wg.float64 and loaded["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert loaded["h"].dtype == wg.float16
    wg.save(tmp_path / "nested", {"net": {"w": wg.ones((2,))}, "step": 3})
    assert list(numpy_io.load_file(tmp_path / "nested")) == ["net.w"]


def test_key_maps(tmp_path: Path) -> None:
    wg.save(tmp_path / "a", {"net": {"fc.weight": wg.ones((2,)), "fc.bias": wg.zeros((2,))}, "step": 3})
    names = {"net.fc.weight": "0.weight", "net.fc.bias": None}
    assert list(wg.load(tmp_path / "a", key_map=names)) == ["0.weight"]
    assert list(wg.load(tmp_path / "a", key_map=lambda k: k.removeprefix("net."))) == ["fc.weight", "fc.bias"]
    with pytest.raises(wg.LoadError, match="two tensors the name 'x'"):
        wg.load(tmp_path / "a", key_map=lambda k: "x")
    with pytest.raises(wg.LoadError, match="key_map names fc.w; the file has net.fc.weight, net.fc.bias"):
        wg.load(tmp_path / "a", key_map={"fc.w": "w"})


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    for state, message in [
        ({"a": {"b": object()}}, "a.b has type object"),
        ({"net": nn.Linear(1, 1)}, r"net has type Linear.*state_dict"),
        ({"a": {"b": wg.ones(())}, "a.b": wg.ones(())}, "two tensors have the name 'a.b'"),
        ({(1, 2): 3}, r"key \(1, 2\)"),
        ({"__metadata__": wg.ones(())}, "__metadata__"),
    ]:
        with pytest.raises(wg.ArgumentError, match=message):
            wg.save(tmp_path / "a", state)
    with pytest.raises(wg.ArgumentError, match="metadata"):
        wg.save(tmp_path / "a", {}, metadata={"n": 3})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"folder .* does not exist; make it first: '.*runs/7'") as e:
        wg.save(tmp_path / "runs" / "7" / "model.safetensors", {"x": wg.ones((2,))})
    assert e.value.filename == str(tmp_path / "runs" / "7")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wg.save(tmp_path / "a", {"t": wg.ones((2,))})

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        wg.save(tmp_path / "a", {"t": wg.zeros((2,))})
    assert wg.load(tmp_path / "a")["t"].tolist() == [1.0, 1.0] and os.listdir(tmp_path) == ["a"]


def test_permissions_follow_the_umask_and_links_stay(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "link").symlink_to(tmp_path / "a")
        wg.save(tmp_path / "link", {"t": wg.ones((2,))})
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink() and stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


# ------------------------------------------------------------------------------------------------ hostile files


def _file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def _entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    shape, offsets = (list(x) if isinstance(x, tuple) else x for x in (shape, offsets))
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


EIGHT = b"\0" * 8
STRUCTURE = lambda text: {"__metadata__": {"wengert.structure": text}, "a": _entry()}
HOSTILE = [
    (b"", "not a whole"),
    (b"\x05\0\0", "not a whole"),
    (_file({}, length=2**63), "claims 9223372036854775808"),
    (_file({"a": _entry()}, length=500), "claims 500"),
    (_file(b"not json"), "JSONDecodeError"),
    (_file(b"\xff\xfe{}"), "cannot be read"),
    (_file(b"[" * 100_000), "cannot be read"),
    (_file(b'{"a":' * 100_000), "cannot be read"),
    (_file(b"[1]"), "not a JSON object"),
    (_file(b'{"a": ' + b"9" * 5000 + b"}"), "cannot be read"),
    (_file({"a": 3}), "'a' does not consist of"),
    (_file({"a": {**_entry(), "more": 1}}, EIGHT), "does not consist of"),
    (_file({"a": _entry("F99")}, EIGHT), "dtype 'F99'; known are F64"),
    (_file({"a": _entry(["F32"])}, EIGHT), "dtype"),
    (_file({"a": _entry("F64")}, EIGHT), r"needs 16 bytes.*\[0, 8\] give 8"),
    (_file({"a": _entry(shape=(-2,))}, EIGHT), "no proper shape"),
    (_file({"a": _entry(shape=(2.0,))}, EIGHT), "no proper shape"),
    (_file({"a": _entry(shape=(True, 2))}, EIGHT), "no proper shape"),
    (_file({"a": _entry(shape=(2**61, 2**61))}, EIGHT), "needs"),
    (_file({"a": _entry(shape=3)}, EIGHT), "no proper shape"),
    (_file({"a": _entry(shape=(1,) * 1000 + (2,))}, EIGHT), "1001 axes; tensors have at most 12"),
    (_file({"a": _entry(offsets=(0,))}, EIGHT), "data_offsets"),
    (_file({"a": _entry(offsets=(8, 0))}, EIGHT), "give -8"),
    (_file({"a": _entry(offsets=(-8, 0))}, EIGHT), "no proper data_offsets"),
    (_file({"a": _entry(), "b": _entry()}, EIGHT), "overlaps"),
    (_file({"a": _entry(), "b": _entry(offsets=(4, 12))}, EIGHT * 2), "'b' overlaps"),
    (_file({"a": _entry(), "b": _entry(offsets=(12, 20))}, EIGHT * 3), "leaves 4 bytes before it unused"),
    (_file({"a": _entry()}, b"\0" * 7), "cut off: the tensors take 8 bytes, and 7"),
    (_file({"a": _entry()}, b"\0" * 9), "belong to no tensor"),
    (_file(b'{"a": {}, "a": {}}'), "a name twice"),
    (_file(json.dumps({"a": _entry()}).replace('"dtype": "F32"', '"dtype": "F32", "dtype": "I8"').encode(), EIGHT), "twice"),
    (_file({"__metadata__": {"n": 3}}), "not a dict of strings"),
    (_file({"__metadata__": []}), "not a dict of strings"),
    (_file(STRUCTURE("{"), EIGHT), "wengert.structure cannot be read"),
    (_file(STRUCTURE('{"tensor": "b"}'), EIGHT), "does not fit the tensors"),
    (_file(STRUCTURE('{"tensor": ["a"]}'), EIGHT), "does not fit"),
    (_file(STRUCTURE('{"import": "os"}'), EIGHT), "not part of a state"),
    (_file(STRUCTURE('{"dict": [1]}'), EIGHT), "does not fit"),
    (_file(STRUCTURE('{"list": 1, "tuple": 2}'), EIGHT), "does not fit"),
    (_file(STRUCTURE('{"list": [' * 10_000 + "]}" * 10_000), EIGHT), "RecursionError|nested too deeply"),
    (_file(STRUCTURE('{"generator": [1]}'), EIGHT), "does not fit"),
    (_file({"__metadata__": {"wengert.complex": '["b"]'}, "a": _entry()}, EIGHT), "marked as complex"),
    (_file({"__metadata__": {"wengert.complex": '["a"]'}, "a": _entry("I32")}, EIGHT), "marked as complex"),
    (_file({"__metadata__": {"wengert.complex": '["a"]'}, "a": _entry(shape=(1,) * 13 + (2,))}, EIGHT), "13 axes"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(wg.LoadError, match=message) as e:
        wg.load(tmp_path / "a")
    assert str(tmp_path / "a") in str(e.value) and len(str(e.value)) < 1000
    assert isinstance(e.value, ValueError) and isinstance(e.value, wg.WengertError)


def test_oversized_headers_are_refused_unread(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb") as f:
        f.write((2 * 10**8).to_bytes(8, "little"))
        f.truncate(3 * 10**8)  # sparse: takes no space
    with pytest.raises(wg.LoadError, match="header of 200000000 bytes"):
        wg.load(tmp_path / "a")


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    wg.save(tmp_path / "a", {"net": {"w": wg.arange(10)}, "step": 3})
    whole = (tmp_path / "a").read_bytes()
    for n in range(len(whole)):
        (tmp_path / "b").write_bytes(whole[:n])
        with pytest.raises(wg.LoadError):
            wg.load(tmp_path / "b")


def test_flipped_bits_never_crash(tmp_path: Path) -> None:
    """Any byte of the header changed: an error of ours, or a file that is still valid."""
    wg.save(tmp_path / "a", {"net": {"w": wg.arange(4)}, "flags": wg.tensor([True, False]), "n": [1, None]})
    whole = bytearray((tmp_path / "a").read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(2000):
        broken = bytearray(whole)
        broken[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        (tmp_path / "b").write_bytes(broken)
        with contextlib.suppress(wg.LoadError):
            wg.load(tmp_path / "b")


def test_strange_booleans_become_true(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(_file({"a": _entry("BOOL", (3,), (0, 3))}, b"\x00\x02\xff"))
    assert wg.load(tmp_path / "a")["a"].tolist() == [False, True, True]


def test_empty_file_of_nothing(tmp_path: Path) -> None:
    wg.save(tmp_path / "a", {})
    assert wg.load(tmp_path / "a") == {}


# ------------------------------------------------------------------------------------------------ checkpoints


def test_checkpoints_rotate_and_survive_damage(tmp_path: Path) -> None:
    c = wg.Checkpointer(tmp_path / "run", keep=3)
    assert c.latest() is None and c.load() is None
    for step in (1, 2, 10, 9):
        c.save(step, {"x": wg.full((2,), float(step)), "n": step})
    assert c.steps() == [2, 9, 10]
    newest = c.load()
    assert newest is not None and newest.step == newest.state["n"] == 10 and newest.state["x"].tolist() == [10.0, 10.0]
    path = c.latest()
    assert path is not None
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.warns(UserWarning, match="damaged checkpoint.*cut off"):
        assert c.load().step == 9  # type: ignore[union-attr]


def test_left_over_temporary_files_go(tmp_path: Path) -> None:
    c = wg.Checkpointer(tmp_path)
    (tmp_path / ".checkpoint-0000000001.safetensors.abcd1234.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    assert c.latest() is None
    c.save(1, {"n": 1})
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-0000000001.safetensors", "notes.txt"]


def test_checkpointer_checks_its_arguments(tmp_path: Path) -> None:
    with pytest.raises(wg.ArgumentError, match="keep"):
        wg.Checkpointer(tmp_path, keep=0)
    with pytest.raises(wg.ArgumentError, match="prefix"):
        wg.Checkpointer(tmp_path, prefix="../x")
    with pytest.raises(wg.ArgumentError, match="must not be negative"):
        wg.Checkpointer(tmp_path).save(-1, {})
    everything = wg.Checkpointer(tmp_path, keep=None)
    for step in range(5):
        everything.save(step, {})
    assert len(everything.steps()) == 5
