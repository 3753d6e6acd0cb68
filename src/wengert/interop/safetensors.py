"""Saving and loading: the safetensors format (https://github.com/huggingface/safetensors), read and written here.

A file is a length (8 bytes), a JSON header with dtype, shape and place of every tensor, and the bytes. Nothing in it is
executed. What is not a tensor (containers, numbers, texts, generators) is one JSON text in the header's metadata.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from wengert import _core, dtypes
from wengert._core import Tensor
from wengert.dtypes import DType
from wengert.errors import ArgumentError, LoadError
from wengert.interop import state_tree
from wengert.interop.array_api import MAX_DIMENSIONS
from wengert.interop.files import written_atomically

KeyMap = Mapping[str, str | None] | Callable[[str], str | None]

MOST_HEADER_BYTES = 100_000_000  # as in the reference implementation
_STRUCTURE, _COMPLEX = "wengert.structure", "wengert.complex"
_NAMES: dict[str, DType] = {
    "F64": dtypes.float64, "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
    "I64": dtypes.int64, "I32": dtypes.int32, "I16": dtypes.int16, "I8": dtypes.int8,
    "U64": dtypes.uint64, "U32": dtypes.uint32, "U16": dtypes.uint16, "U8": dtypes.uint8, "BOOL": dtypes.bool_,
    "C64": dtypes.complex64,
}  # fmt: skip
_CODES = {d.code: name for name, d in _NAMES.items()}


def save(path: str | os.PathLike[str], state: Any, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write a state to a safetensors file. An existing file stays until the new one is complete.

    - `state`: a dictionary of tensors such as `net.state_dict()`, or nested dicts, lists and tuples of tensors,
      arrays, numbers, strings, None and generators: a model, its optimizer, schedules and random state together.
    - `metadata`: strings of your own, by name.

    Nested tensors are named by their path, with dots, so that any reader of safetensors finds them. Complex tensors
    are written as pairs of real numbers along a last axis of 2, as `torch.view_as_real` gives them.

    >>> import tempfile, wengert as wg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/a.safetensors", {"step": 3, "net": {"weight": wg.ones((2,))}})
    ...     load(f"{folder}/a.safetensors")
    {'step': 3, 'net': {'weight': tensor([1., 1.])}}
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"save: the path comes first, then the state; got {type(path).__name__}")
    tensors, structure = state_tree.encode(state)
    notes: dict[Any, Any] = dict(metadata or {})
    if any(not isinstance(k, str) or not isinstance(v, str) for k, v in notes.items()):
        raise ArgumentError("save: metadata must be a dict of strings")
    if structure is not None:
        notes[_STRUCTURE] = json.dumps(structure)
    complex_names = [name for name, t in tensors.items() if t.dtype.kind == "c"]
    if complex_names:
        notes[_COMPLEX] = json.dumps(complex_names)
    with written_atomically(Path(path)) as f:
        write(f, tensors, notes)


def write(f: BinaryIO, tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> None:
    """Write tensors by name, and texts by name, to an open file."""
    header: dict[str, Any] = {"__metadata__": dict(notes)} if notes else {}
    # Large elements first: then all are aligned.
    ordered = sorted(tensors.items(), key=lambda item: -_stored(item[1].dtype).itemsize)
    end = 0
    for name, t in ordered:
        begin, kind = end, _stored(t.dtype)
        shape = [*t.shape, 2] if t.dtype.kind == "c" else list(t.shape)
        end = begin + math.prod(shape) * kind.itemsize
        header[name] = {"dtype": _CODES[kind.code], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    f.write(len(text).to_bytes(8, "little") + text)
    for _, t in ordered:
        array = _core.copy(t.detach().cpu()).numpy()  # a copy: exporting pins a tensor's memory
        raw: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        f.write(raw)


def _stored(dtype: DType) -> DType:
    """The dtype in the file: complex numbers are written as their parts."""
    return {"complex64": dtypes.float32, "complex128": dtypes.float64}.get(dtype.name, dtype)


# ------------------------------------------------------------------------------------------------------ reading


class _Entry(NamedTuple):
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


def load(path: str | os.PathLike[str], *, key_map: KeyMap | None = None) -> Any:
    """Read a safetensors file: returns what `save` was given, or the tensors by name if another program wrote the
    file.

    `key_map` renames tensors: a dictionary from names in the file to new ones, or a function of the name; None leaves
    a tensor out. With it, the result is always a flat dictionary. A damaged or malicious file raises LoadError.

    >>> import tempfile, wengert as wg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/a.safetensors", {"layer.w": wg.ones((2,)), "layer.old": wg.zeros((2,))})
    ...     load(f"{folder}/a.safetensors", key_map={"layer.w": "0.weight", "layer.old": None})
    {'0.weight': tensor([1., 1.])}
    """
    with open(path, "rb") as f:
        tensors, notes = read(f, os.fstat(f.fileno()).st_size, str(path))
    if key_map is not None:
        return _renamed(tensors, key_map, str(path))
    if _STRUCTURE not in notes:
        return tensors
    return state_tree.decode(_json_of(notes, _STRUCTURE, str(path), None), tensors, str(path))


def read(f: BinaryIO, size: int, path: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and texts of an open file of so many bytes; `path` is how messages call it."""
    entries, notes, start = _read_header(f, size, path)
    return {name: _read_tensor(f, entry, start, path) for name, entry in entries.items()}, notes


def check(path: str | os.PathLike[str]) -> None:
    """Raise LoadError unless this is a complete safetensors file; the tensors themselves are not read."""
    with open(path, "rb") as f:
        _read_header(f, os.fstat(f.fileno()).st_size, str(path))


def _read_header(f: BinaryIO, size: int, path: str) -> tuple[dict[str, _Entry], dict[str, str], int]:
    length = int.from_bytes(f.read(8), "little")
    if size < 8 or length > size - 8:
        raise LoadError(
            f"{path}: not a whole safetensors file: {size} bytes, of which the header alone claims {length}"
        )
    if length > MOST_HEADER_BYTES:
        raise LoadError(f"{path}: a header of {length} bytes; more than {MOST_HEADER_BYTES} are refused")
    header = parse(f.read(length), "the header", path)
    if not isinstance(header, dict):
        raise LoadError(f"{path}: the header is not a JSON object")
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(v, str) for v in notes.values()):
        raise LoadError(f"{path}: the metadata is not a dict of strings")
    entries = {name: _checked_entry(name, entry, path) for name, entry in header.items()}
    for name in _json_of(notes, _COMPLEX, path, []):
        entries[name] = _as_complex(name, entries.get(name), path)
    for name, entry in entries.items():
        if len(entry.shape) > MAX_DIMENSIONS:
            raise LoadError(f"{path}: {name!r} has {len(entry.shape)} axes; tensors have at most {MAX_DIMENSIONS}")
    _check_cover(entries, size - 8 - length, path)
    return entries, notes, 8 + length


def parse(text: bytes | str, what: str, path: str) -> Any:
    """JSON of a file that may be damaged."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise LoadError(f"{path}: {what} has a name twice")
        return made

    try:
        return json.loads(text, object_pairs_hook=once)
    except LoadError:
        raise
    except (ValueError, RecursionError) as e:
        raise LoadError(f"{path}: {what} cannot be read: {type(e).__name__}: {str(e)[:200]}") from None


def _json_of(notes: Mapping[str, str], name: str, path: str, default: Any) -> Any:
    return parse(notes[name], f"the metadata {name}", path) if name in notes else default


def _is_count(x: Any) -> bool:
    return type(x) is int and 0 <= x < 2**62


def _checked_entry(name: str, entry: Any, path: str) -> _Entry:
    if not isinstance(entry, dict) or sorted(entry) != ["data_offsets", "dtype", "shape"]:
        raise LoadError(f"{path}: the entry of {name!r} does not consist of dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _NAMES:
        raise LoadError(f"{path}: {name!r} has dtype {str(dtype)[:20]!r}; known are {', '.join(_NAMES)}")
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        raise LoadError(f"{path}: {name!r} has no proper shape: {str(shape)[:80]}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise LoadError(f"{path}: {name!r} has no proper data_offsets: {str(offsets)[:80]}")
    kind, (begin, end) = _NAMES[dtype], offsets
    if end - begin != math.prod(shape) * kind.itemsize:
        raise LoadError(
            f"{path}: {name!r}, {dtype} of shape {tuple(shape)}, needs {math.prod(shape) * kind.itemsize} bytes, but its "
            f"data_offsets {offsets} give {end - begin}"
        )
    return _Entry(kind, tuple(shape), begin, end)


_COMPLEX_OF = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}


def _as_complex(name: str, pairs: _Entry | None, path: str) -> _Entry:
    """Pairs of reals along the last axis, as one number each."""
    if pairs is None or pairs.shape[-1:] != (2,) or pairs.dtype not in _COMPLEX_OF:
        raise LoadError(f"{path}: {name!r} is marked as complex, but does not hold pairs of real numbers")
    return pairs._replace(dtype=_COMPLEX_OF[pairs.dtype], shape=pairs.shape[:-1])


def _check_cover(entries: Mapping[str, _Entry], size: int, path: str) -> None:
    """Tensors lie one after the other: no byte belongs to two of them, or to none."""
    at = 0
    for name, p in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if p.begin != at:
            problem = "overlaps another tensor" if p.begin < at else f"leaves {p.begin - at} bytes before it unused"
            raise LoadError(f"{path}: {name!r} {problem}")
        at = p.end
    if at != size:
        problem = "is cut off" if at > size else "has bytes that belong to no tensor"
        raise LoadError(f"{path}: the file {problem}: the tensors take {at} bytes, and {size} are there")


def _read_tensor(f: BinaryIO, p: _Entry, start: int, path: str) -> Tensor:
    raw: Any = np.empty(p.end - p.begin, np.uint8)
    f.seek(start + p.begin)
    if f.readinto(raw) != raw.size:  # type: ignore[attr-defined]
        raise LoadError(f"{path}: the file became shorter while it was read")
    if p.dtype.kind == "b":
        raw = (raw != 0).view(np.uint8)
    kind = np.dtype(np.uint16) if p.dtype.name == "bfloat16" else p.dtype.to_numpy()
    read: Tensor = _core.copy(_core.from_buffer(raw.view(kind).reshape(p.shape), p.dtype.code, False))
    return read


def _renamed(tensors: Mapping[str, Tensor], key_map: KeyMap, path: str) -> dict[str, Tensor]:
    if isinstance(key_map, Mapping):
        absent = [name for name in key_map if name not in tensors]
        if absent:
            raise LoadError(
                f"{path}: key_map names {', '.join(absent)}; the file has {', '.join(tensors) or 'no tensors'}"
            )
    made: dict[str, Tensor] = {}
    for name, t in tensors.items():
        new = key_map.get(name, name) if isinstance(key_map, Mapping) else key_map(name)
        if new is None:
            continue
        if new in made:
            raise LoadError(f"{path}: key_map gives two tensors the name {new!r}")
        made[new] = t
    return made
