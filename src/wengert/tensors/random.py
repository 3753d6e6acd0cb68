"""Random tensors: counter-based (Philox), so that a draw is a key and a counter, and can be repeated."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import DType, as_dtype, complex128, float32, float64, int64
from wengert.errors import ArgumentError, DTypeError, NumberRangeError, TraceError
from wengert.program.call_trace import CallTrace, call_trace
from wengert.program.trace import refuse_kept_size, standing_trace, tracing
from wengert.tensors.arguments import as_dtype_of, as_tensor, native, product
from wengert.tensors.conversion import asarray, check_range
from wengert.tensors.creation import as_model, as_shape, check_count
from wengert.tensors.determinism import place_in_source, require_seed, running
from wengert.tensors.device import like, make_on
from wengert.tensors.numpy import data

_DOUBLE = (float64.code, complex128.code)

_uniform, _normal, _integers, _argsort = (
    native("random_uniform"),
    native("random_normal"),
    native("random_integers"),
    native("argsort"),
)


class _Draws(threading.local):
    """How this thread logs or repeats draws."""

    logs: tuple[list[Any], ...] = ()  # every draw is appended to each
    repeated: Repeated | None = None  # where draws are taken from instead


class Repeated:
    """Logged draws, to be repeated in order; `differ` if more, fewer or other draws are made."""

    def __init__(self, log: list[tuple[int, tuple[int, int, int]]]) -> None:
        self._log, self._next, self._others = log, 0, False

    @property
    def differ(self) -> bool:
        """Whether the draws differ from the first time."""
        return self._others or self._next != len(self._log)

    def take(self, counters: int) -> tuple[int, int, int]:
        """The key and the first counter of the next draw."""
        taken, place = self._log[self._next] if self._next < len(self._log) else (-1, (0, 0, 0))
        self._others |= taken != counters
        self._next += 1
        return place


_draws = _Draws()


@contextmanager
def draws_logged() -> Iterator[list[Any]]:
    """A scope in which this thread's draws from any generator are appended to a list."""
    before, log = _draws.logs, list[Any]()
    _draws.logs = (*before, log)
    try:
        yield log
    finally:
        _draws.logs = before


@contextmanager
def draws_repeated(log: list[Any]) -> Iterator[Repeated]:
    """A scope in which this thread repeats logged draws; generators do not change, whatever is done to them."""
    before = _draws.logs, _draws.repeated
    _draws.logs, _draws.repeated = (), Repeated(log)
    try:
        yield _draws.repeated
    finally:
        _draws.logs, _draws.repeated = before


class Generator:
    """A stream of random numbers: a 64-bit key, made from the seed, and a counter that every draw advances.

    Pass it as `generator=` to random functions, layers and loaders. Without a seed, the key is taken from the system.

    >>> a, b = Generator(seed=0), Generator(seed=0)
    >>> randn(2, generator=a).tolist() == randn(2, generator=b).tolist()
    True
    """

    def __init__(self, seed: int | None = None) -> None:
        self._lock = threading.Lock()
        self.manual_seed(seed)

    def manual_seed(self, seed: int | None = None) -> Generator:
        """Restart from a seed, or from the system's entropy if it is None."""
        self._refuse_traced("manual_seed")
        if seed is not None and not hasattr(seed, "__index__"):
            raise TypeError(f"manual_seed: the seed must be an integer, got {seed!r}")
        if not self._left_alone():
            with self._lock:
                self._seed = int.from_bytes(os.urandom(8), "little") if seed is None else int(seed)
                self._counter = 0
                self._by_place: dict[str, int] = {}
                self.seeded = seed is not None
        return self

    def _left_alone(self) -> bool:
        """Whether draws come from a log, so that this generator must not be set; a new one is started nevertheless."""
        return _draws.repeated is not None and hasattr(self, "_seed")

    def _refuse_traced(self, what: str) -> None:
        if call_trace() is not None:
            raise TraceError(
                f"{what}: a generator cannot be set inside a compiled function, which would do so once, when it is "
                "traced; do it before the call"
            )

    @property
    def seed(self) -> int:
        """The seed this generator was started from."""
        return self._seed

    @property
    def key(self) -> tuple[int, int]:
        """The two 32-bit halves of the seed."""
        return self._seed & 0xFFFFFFFF, self._seed >> 32 & 0xFFFFFFFF

    @staticmethod
    def counters(size: Any, wide: bool) -> Any:
        """How many counters a draw takes: one for four elements of up to 32 bits, one for two of 64 bits."""
        per = 2 if wide else 4
        return (size + per - 1) // per

    def reserve(self, counters: int) -> tuple[int, int, int]:
        """Advance by this many counters; returns the two halves of the key and the first counter."""
        place = self._taken(counters) if _draws.repeated is None else _draws.repeated.take(counters)
        for log in _draws.logs:
            log.append((counters, place))
        return place

    def _taken(self, counters: int) -> tuple[int, int, int]:
        require_seed(self)
        with self._lock:
            place = *self.key, self._counter
            self._counter += counters
        return place

    def taken_at(self, place: str, counters: int) -> tuple[int, int, int]:
        """As `reserve`, from a separate stream for this place in the source."""
        require_seed(self)
        import hashlib  # takes 2 ms and is rarely needed

        digest = hashlib.blake2b(f"{self._seed}, {place}".encode(), digest_size=8).digest()
        low, high = (int.from_bytes(half, "little") for half in (digest[:4], digest[4:]))
        with self._lock:
            first = self._by_place.get(place, 0)
            self._by_place[place] = first + counters
        return low, high, first

    def place(self, size: Any, wide: bool, like: Any = None) -> tuple[tuple[Any, Any], tuple[Any]]:
        """Key and counter of a draw of this many elements, now or in every call of the function that is traced; or in every
        run of the static graph that the size, or a tensor that the numbers are for, belongs to."""
        trace = tracing() or standing_trace(size) or standing_trace(like)
        if isinstance(size, _core.Dim) and trace is None:
            refuse_kept_size("random numbers")  # before the counter becomes one
        source = _at(place_in_source()) if running.operation_seeds and self is default_generator else self
        if trace is None:
            low, high, first = source.reserve(self.counters(size, wide))
            return (low, high), (first,)
        if isinstance(trace, CallTrace):
            trace.read(running, "operation_seeds")
            return trace.draw(source, size, wide)
        raise TraceError("random numbers cannot be drawn inside the rule of an op")

    def get_state(self) -> tuple[Any, ...]:
        """The complete state: seed and counter and, with `operation_seeds`, the counters of all places in the source."""
        by_place = tuple(self._by_place.items())
        return (self._seed, self._counter, by_place) if by_place else (self._seed, self._counter)

    def set_state(self, state: tuple[Any, ...]) -> None:
        """Restore a state that `get_state` returned."""
        self._refuse_traced("Generator.set_state")
        seed, counter, *by_place = state
        if counter < 0:
            raise ArgumentError(f"Generator.set_state: the counter must not be negative, got {counter}")
        if not self._left_alone():
            before, self._seed, self._counter = getattr(self, "_seed", None), int(seed), int(counter)
            self._by_place = dict(by_place[0]) if by_place else {}
            self.seeded = self.seeded or int(seed) != before

    def __getstate__(self) -> tuple[Any, ...]:
        return self.get_state()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._lock, self.seeded = threading.Lock(), True
        self.set_state(state)

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, counter={self._counter})"


default_generator = Generator()


class _PlaceGenerator(Generator):
    """The stream of one place in the source, from which a compiled function draws in every call."""

    def __init__(self, place: str) -> None:
        super().__init__(0)
        self._place = place

    def _taken(self, counters: int) -> tuple[int, int, int]:
        if running.operation_seeds:
            return default_generator.taken_at(self._place, counters)
        return default_generator._taken(counters)


_at = functools.cache(_PlaceGenerator)  # one per place, because a trace identifies a stream by its generator


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, from which all random functions draw unless they are given another one; returns it.

    The same seed gives the same numbers, to the bit, on any number of threads.

    >>> manual_seed(42).seed
    42
    >>> first = randn(3)
    >>> _ = manual_seed(42)
    >>> bool((randn(3) == first).all())
    True
    """
    return default_generator.manual_seed(seed)


def _prepare(shape: Any, generator: Generator | None, name: str) -> tuple[tuple[Any, ...], Generator]:
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"{name}: generator must be a wengert.Generator, got {type(generator).__name__}")
    return as_shape(*shape) if shape else (), generator or default_generator


def _draw(op: Any, shape: tuple[Any, ...], g: Generator, dtype: DType, device: Any) -> Tensor:
    elements = product(shape)
    if isinstance(elements, int):  # before the generator moves on by that much
        check_count(elements, "random numbers of shape", shape)
    key, counter = g.place(2 * elements if dtype.kind == "c" else elements, dtype.code in _DOUBLE)
    place = (shape, dtype.code, key, counter)
    drawn: Tensor = op(*place) if device is None else make_on(device, op, *place)
    return drawn


def _floating(dtype: Any, name: str) -> DType:
    t = float32 if dtype is None else as_dtype(dtype)
    if not t.is_floating:
        raise DTypeError(f"{name}: dtype must be a real floating type, got {t.name}")
    return t


def _inexact(dtype: Any, name: str) -> DType:
    t = float32 if dtype is None else as_dtype(dtype)
    if not t.is_inexact:
        raise DTypeError(f"{name}: dtype must be a floating or complex type, got {t.name}")
    return t


def _scaled(x: Tensor, scale: Any, offset: Any) -> Tensor:
    """x·scale + offset; not recorded for plain numbers, so that the result is a leaf even inside a tape."""
    if isinstance(scale, Tensor) or isinstance(offset, Tensor):
        return x * scale + offset  # type: ignore[no-any-return]
    if scale == 1 and offset == 0:
        return x
    before: Any = _core.set_grad_enabled(False)
    try:
        y = x if scale == 1 else x * scale
        return y if offset == 0 else y + offset
    finally:
        _core.set_grad_enabled(before)


def _finished(x: Tensor, requires_grad: bool | None) -> Tensor:
    if not x._plain:
        if requires_grad:
            raise TraceError(
                "requires_grad: a tensor made inside a compiled function cannot be a leaf; make it outside"
            )
        return x
    if requires_grad is not None:
        x.requires_grad = requires_grad
    return x


def randn(
    *shape: Any,
    mean: Any = 0.0,
    std: Any = 1.0,
    dtype: Any = None,
    device: Any = None,
    generator: Generator | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Draw normally distributed numbers: `randn(5, 3)` or `randn((5, 3))`.

    - `mean`, `std`: numbers, or tensors, to which gradients flow.
    - `generator`: the stream to draw from; by default the one that `manual_seed` seeds.

    Complex numbers have variance std², half of it in each part.

    >>> randn(5, 3, std=0.1).shape
    (5, 3)
    """
    sizes, g = _prepare(shape, generator, "randn")
    return _finished(_scaled(_draw(_normal, sizes, g, _inexact(dtype, "randn"), device), std, mean), requires_grad)


def rand(
    *shape: Any,
    dtype: Any = None,
    device: Any = None,
    generator: Generator | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Draw uniformly distributed numbers in [0, 1): `rand(5, 3)` or `rand((5, 3))`.

    `generator` is the stream to draw from; by default the one that `manual_seed` seeds.

    >>> bool((rand(100) < 1).all())
    True
    """
    sizes, g = _prepare(shape, generator, "rand")
    return _finished(_draw(_uniform, sizes, g, _floating(dtype, "rand"), device), requires_grad)


def randn_like(
    x: Tensor,
    *,
    mean: Any = 0.0,
    std: Any = 1.0,
    dtype: Any = None,
    device: Any = None,
    generator: Generator | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`randn` with the shape and dtype of x.

    >>> from wengert import ones
    >>> randn_like(ones((5, 3))).shape
    (5, 3)
    """
    x = as_model(x)
    return randn(
        x.shape,
        mean=mean,
        std=std,
        dtype=x.dtype if dtype is None else dtype,
        device=device or like(x),
        generator=generator,
        requires_grad=requires_grad,
    )


def rand_like(
    x: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Generator | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`rand` with the shape and dtype of x.

    >>> from wengert import ones
    >>> rand_like(ones((5, 3))).shape
    (5, 3)
    """
    x = as_model(x)
    kind = x.dtype if dtype is None else dtype
    return rand(x.shape, dtype=kind, device=device or like(x), generator=generator, requires_grad=requires_grad)


def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    shape: Any = (),
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Generator | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Normal numbers with this mean and standard deviation.

    >>> normal(0.0, 2.0, (3,)).shape
    (3,)
    """
    sizes, g = _prepare((shape,), generator, "normal")
    return _finished(_scaled(_draw(_normal, sizes, g, _inexact(dtype, "normal"), device), std, mean), requires_grad)


def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    shape: Any = (),
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Generator | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Uniform numbers in [low, high).

    >>> uniform(-1.0, 1.0, (3,)).shape
    (3,)
    """
    sizes, g = _prepare((shape,), generator, "uniform")
    drawn = _draw(_uniform, sizes, g, _floating(dtype, "uniform"), device)
    return _finished(_scaled(drawn, high - low, low), requires_grad)


def randint(
    low: int,
    high: int | Sequence[int] | None = None,
    shape: Any = (),
    *,
    dtype: Any = int64,
    device: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draw integers from [low, high), all equally likely: `randint(0, 10, (5,))`.

    With one number, as in `randint(10, shape=(5,))`, they start at 0.

    >>> bool((randint(0, 10, (100,)) < 10).all())
    True
    """
    if isinstance(high, (tuple, list)):
        high, shape = None, high
    if high is None:
        low, high = 0, low
    if not low < high:  # type: ignore[operator]
        raise ArgumentError(f"randint: low must be less than high, got {low} and {high}")
    t = as_dtype(dtype)
    for end in (int(low), int(high) - 1):  # type: ignore[arg-type]
        check_range(end, t, "randint")
        if not -(2**62) <= end < 2**63 - 1:
            raise NumberRangeError(f"randint: draws from -2**62 up to 2**63 - 2, and cannot reach {end}")
    sizes, g = _prepare((shape,), generator, "randint")
    key, counter = g.place(product(sizes), True)
    place = (sizes, key, counter, (int(low),), (int(high),))  # type: ignore[arg-type]
    drawn = _integers(*place) if device is None else make_on(device, _integers, *place)
    return as_dtype_of(drawn, t)


def bernoulli(
    p: Any,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """1 with probability p, else 0; p is a number, or a tensor of probabilities.

    >>> bernoulli(1.0, (3,)).tolist()
    [1.0, 1.0, 1.0]
    """
    t = as_tensor(p, "bernoulli")
    kind = as_dtype(dtype) if dtype is not None else t.dtype if t.dtype.is_floating else float32
    values = data(t) if t._plain else np.empty(0)  # traced tensors have no data to check
    if values.size and not ((values >= 0) & (values <= 1)).all():
        outside = values[~((values >= 0) & (values <= 1))].flat[0]
        raise ArgumentError(f"bernoulli: probabilities must be between 0 and 1, got {float(outside):g}")
    sizes, g = _prepare((t.shape if shape is None else shape,), generator, "bernoulli")
    kind_drawn = float64 if t.dtype.code == float64.code else float32
    drawn = _draw(_uniform, sizes, g, kind_drawn, device or like(t))
    return as_dtype_of(drawn < t.detach(), kind)


def permutation(n: int, *, generator: Generator | None = None) -> Tensor:
    """The numbers 0 … n − 1 in random order, for example to shuffle rows: `x[permutation(len(x))]`.

    >>> sorted(permutation(4).tolist())
    [0, 1, 2, 3]
    """
    if n < 0:
        raise ArgumentError(f"permutation: n must not be negative, got {n}")
    keys = randint(0, 2**62, (n,), generator=generator)
    return asarray(np.argsort(keys.numpy(), kind="stable")) if keys._plain else _argsort(keys, 0, 0, 0)
