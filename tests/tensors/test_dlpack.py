"""DLPack on the CPU: no copies, every dtype, lifetimes, and what other libraries may put into a capsule."""

import gc
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import wengert as wg
from tests.cuda.emulation import COMPILER
from tests.tensors.dlpack_capsules import BFLOAT, BOOL, COPIED, READ_ONLY, Foreign, Taken
from wengert.errors import ArgumentError, DeviceError, DTypeError, ShapeError

ROOT = Path(__file__).parents[2]


def test_to_numpy_shares_memory():
    x = wg.tensor([[1.0, 2.0], [3.0, 4.0]])
    a = np.from_dlpack(x.T)
    np.testing.assert_array_equal(a, [[1.0, 3.0], [2.0, 4.0]])
    x.numpy()[0, 1] = 9.0
    assert a[1, 0] == 9.0
    assert x.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8", "float16", "float32", "float64"])
def test_from_another_library(dtype):
    a = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    x = wg.from_dlpack(Foreign(a))
    assert x.dtype == dtype
    a[0, 0] = 1
    assert x[0, 0].item() == 1
    assert wg.asarray(Foreign(a)).tolist() == a.tolist()
    y = wg.from_dlpack(Foreign(a), copy=True)
    a[0, 0] = 0
    assert y[0, 0].item() == 1


def test_lifetimes():
    x = wg.from_dlpack(Foreign(np.arange(5.0)))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    a = np.from_dlpack(wg.arange(5.0))
    assert a.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_read_only_and_errors():
    a = np.arange(3.0)
    a.flags.writeable = False
    x = wg.from_dlpack(a)
    x += 1.0
    assert a.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(TypeError, match="__dlpack__"):
        wg.from_dlpack([1.0])
    y = wg.from_dlpack(wg.tensor([1.0], requires_grad=True))
    assert not y.requires_grad


def test_elements_that_share_memory_are_copied():
    x = wg.tensor([1.0, 2.0])
    a = np.from_dlpack(wg.broadcast_to(x, (2, 2)))
    assert a.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert a.strides == (8, 4)


DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
@pytest.mark.parametrize("versioned", [True, False])
def test_every_dtype_both_ways(dtype: str, versioned: bool) -> None:
    a = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    source = Foreign(a.T, versioned=versioned)
    x = wg.from_dlpack(source)
    assert (x.dtype, tuple(x.shape), x.data_ptr) == (dtype, (3, 2), a.ctypes.data)
    assert x.tolist() == a.T.tolist()
    assert source.options == ({"max_version": (1, 0)} if versioned else {})
    taken = Taken(x.__dlpack__(max_version=(1, 1) if versioned else None))
    assert taken.versioned == versioned
    np.testing.assert_array_equal(taken.numpy(dtype), a.T)
    taken.drop()
    assert source.drops == 0
    del x
    assert source.drops == 1


def test_bfloat16_both_ways() -> None:
    a = np.array([1.5, -2.0, 3e38], ml_dtypes.bfloat16)
    x = wg.from_dlpack(Foreign(a, element=(BFLOAT, 16, 1)))
    assert x.dtype == wg.bfloat16
    x[0] = 7.0
    assert a[0] == 7.0
    taken = Taken(x.__dlpack__())
    assert taken.element == (BFLOAT, 16, 1)
    np.testing.assert_array_equal(taken.numpy(ml_dtypes.bfloat16), a)
    taken.drop()


@pytest.mark.parametrize("key", [np.s_[::-1], np.s_[::2, ::-1], np.s_[1:, None, 2], np.s_[0:0], np.s_[1, 1, ...]])
def test_layouts(key: object) -> None:
    a = np.arange(20.0).reshape(4, 5)
    view = np.asarray(a[key])
    x = wg.from_dlpack(Foreign(view))
    assert x.tolist() == view.tolist()
    x += 100
    y = 2 * wg.from_dlpack(Foreign(view.copy(), strides=False, versioned=False))
    assert y.tolist() == (2 * a[key]).tolist()
    assert (np.asarray(a[key]) >= 100).all()


def test_an_offset_in_bytes_counts() -> None:
    a = np.arange(6, dtype=np.int32)
    assert wg.from_dlpack(Foreign(a, offset=8)).tolist() == a.tolist()


def test_memory_that_is_not_aligned_is_copied() -> None:
    a = np.frombuffer(bytearray(b"x" + np.arange(6.0).tobytes()), np.uint8)[1:].view(np.float64).reshape(2, 3)
    for versioned in (True, False):
        source = Foreign(a.T, versioned=versioned)
        x = wg.from_dlpack(source)
        assert x.tolist() == a.T.tolist()
        assert source.drops == 1
        with pytest.raises(ArgumentError, match="copy=None"):
            wg.from_dlpack(Foreign(a), copy=False)


def test_read_only_memory_is_copied() -> None:
    a = np.arange(3.0)
    source = Foreign(a, flags=READ_ONLY)
    x = wg.from_dlpack(source)
    assert source.drops == 1
    x += 1
    assert a.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ArgumentError, match="read-only"):
        wg.asarray(Foreign(a, flags=READ_ONLY), copy=False)


def test_bytes_that_are_true_count_as_one() -> None:
    a = np.array([0, 1, 2, 255], np.uint8)
    x = wg.from_dlpack(Foreign(a, element=(BOOL, 8, 1)))
    assert x.sum().item() == 3
    assert a.tolist() == [0, 1, 2, 255]


def test_a_copy_is_a_copy() -> None:
    a = np.arange(3.0)
    source = Foreign(a)
    x = wg.from_dlpack(source, copy=True)
    assert source.drops == 1
    x += 1
    assert a[0] == 0
    taken = Taken(x.__dlpack__(copy=True, max_version=(1, 0)))
    assert taken.managed.flags == COPIED
    taken.numpy("float64")[0] = 9
    taken.drop()
    assert x[0].item() == 1
    assert wg.asarray(Foreign(a), dtype="float32").dtype == wg.float32


def test_what_cannot_be_taken() -> None:
    a = np.arange(3.0)
    for versioned in (True, False):
        source = Foreign(a, element=(17, 8, 1), versioned=versioned)
        with pytest.raises(DTypeError, match="type 17 with 8 bits"):
            wg.from_dlpack(source)
        assert source.drops == 1
    with pytest.raises(DTypeError, match="4 lane"):
        wg.from_dlpack(Foreign(a, element=(2, 32, 4)))
    with pytest.raises(DeviceError, match="DLPack type 7"):
        wg.from_dlpack(Foreign(a, device=(7, 0)))
    with pytest.raises(ShapeError, match="axes"):
        wg.from_dlpack(Foreign(np.zeros((1,) * 20)))
    source = Foreign(a, major=2)
    with pytest.raises(ValueError, match="version 2"):
        wg.from_dlpack(source)

    class Used(Foreign):
        def __dlpack__(self, **options: object) -> object:
            capsule = super().__dlpack__(**options)
            Taken(capsule)
            return capsule

    with pytest.raises(TypeError, match="used before"):
        wg.from_dlpack(Used(a))


def test_what_is_not_given() -> None:
    x = wg.arange(3.0)
    with pytest.raises(BufferError, match="streams"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="on cpu"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="share memory"):
        wg.broadcast_to(x, (2, 3)).__dlpack__(copy=False)
    with pytest.raises(wg.errors.GradientError, match="detach"):
        (wg.arange(3.0, requires_grad=True) * 2).__dlpack__()
    with pytest.raises(AttributeError, match="on the CPU"):
        _ = x.__cuda_array_interface__
    with pytest.raises(wg.errors.TraceError, match="reads with NumPy"):
        wg.compile(lambda t: np.from_dlpack(t) and t)(x)


def test_exported_memory_outlives_its_tensor() -> None:
    """Nothing reuses it, whatever is computed meanwhile, until the consumer drops it: from any thread, without the GIL."""
    gc.collect()
    x = wg.full((1000,), 3.0)
    before = wg.memory_stats().live_bytes
    taken = Taken(x.__dlpack__())
    del x
    for k in range(5):
        y = wg.full((1000,), float(k)) * 2.0
        y += 1.0
    a = taken.numpy("float32")
    assert (a == 3.0).all()
    del a, y
    assert wg.memory_stats().live_bytes == before
    thread = threading.Thread(target=taken.drop)
    thread.start()
    thread.join()
    assert wg.memory_stats().live_bytes == before - 4000


def test_capsules_that_nobody_takes_drop_what_they_hold() -> None:
    gc.collect()
    x = wg.full((1000,), 3.0)
    before = wg.memory_stats().live_bytes
    for version in (None, (1, 0)):
        capsule = x.__dlpack__(max_version=version)
        del capsule
    del x
    gc.collect()
    assert wg.memory_stats().live_bytes == before - 4000


def test_imported_memory_is_neither_donated_nor_recycled() -> None:
    a = np.arange(4.0)
    x = wg.from_dlpack(Foreign(a))
    for f in (lambda t: wg.tanh(t) + 1.0, wg.compile(lambda t: wg.tanh(t) * t + 1.0)):
        for _ in range(3):
            f(x)
        f(wg.from_dlpack(Foreign(a)))
    assert a.tolist() == [0.0, 1.0, 2.0, 3.0]
    x *= 2
    assert a.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_in_place_writes_reach_the_consumer() -> None:
    x = wg.zeros(3)
    a = np.from_dlpack(x)
    x += 1.0
    x[1] = 5.0
    assert a.tolist() == [1.0, 5.0, 1.0]


LATE_CONSUMER = """
static void* held;
static void (*drop)(void*);
void hold(void* p, void (*f)(void*)) { held = p; drop = f; }
__attribute__((destructor)) static void at_the_end(void) { drop(held); }
"""
AT_EXIT = """
import ctypes, sys
import numpy as np
import wengert as wg
from tests.cuda.emulation import COMPILER
from tests.tensors.dlpack_capsules import Foreign, Taken

taken = Taken(wg.arange(5.0).__dlpack__())
function = ctypes.cast(taken.managed.drop, ctypes.c_void_p)
ctypes.CDLL(sys.argv[1]).hold(ctypes.c_void_p(taken.address), function)
sys.kept = taken, wg.from_dlpack(np.arange(3.0)), wg.from_dlpack(Foreign(np.arange(3.0))), wg.ones(3).__dlpack__()
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler on this machine")
def test_memory_that_is_dropped_when_python_is_gone(tmp_path: Path) -> None:
    library = tmp_path / "consumer.so"
    (tmp_path / "consumer.c").write_text(LATE_CONSUMER)
    assert COMPILER
    subprocess.run([COMPILER, "-shared", "-fPIC", "-xc", str(tmp_path / "consumer.c"), "-o", str(library)], check=True)
    done = subprocess.run([sys.executable, "-c", AT_EXIT, str(library)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
