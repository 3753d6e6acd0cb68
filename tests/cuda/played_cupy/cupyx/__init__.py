"""CuPy's extensions, played by NumPy and SciPy."""

import contextlib


@contextlib.contextmanager
def errstate(*, linalg):
    """NumPy raises always."""
    assert linalg == "raise"
    yield
