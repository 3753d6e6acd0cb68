"""scikit-learn and SciPy on tensors, each in a process of its own: SciPy reads SCIPY_ARRAY_API when it is imported."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from wengert import _core

ROOT = Path(__file__).parents[2]


def run(program: str) -> None:
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


SHARED_BY_ALL = 1664  # bytes that glibc has for the thread-local variables of libraries loaded at run time
PT_TLS = 7  # of a segment: the initial values of thread-local variables


@pytest.mark.skipif(sys.platform != "linux", reason="reads a library in the format of Linux")
def test_thread_local_variables_leave_room_for_other_libraries():
    """Where too few bytes are left, importing PyTorch and scikit-learn after wengert fails."""
    library = Path(_core.__file__).read_bytes()
    assert library[:5] == b"\x7fELF\x02"
    (begin,), (size, n) = struct.unpack_from("<Q", library, 0x20), struct.unpack_from("<HH", library, 0x36)
    headers = [struct.unpack_from("<IIQQQQQQ", library, begin + k * size) for k in range(n)]
    (taken,) = (in_memory for kind, _, _, _, _, _, in_memory, _ in headers if kind == PT_TLS)
    assert 0 < taken <= SHARED_BY_ALL // 2


def test_scikit_learn_gives_what_it_gives_with_numpy():
    run(
        """
import numpy as np, sklearn, wengert as wg
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = load_diabetes(return_X_y=True)
F, c = load_iris(return_X_y=True)
w = wg.asarray

def same(a, b):
    assert isinstance(a, wg.Tensor), type(a)
    np.testing.assert_allclose(a.numpy(), b, rtol=1e-8, atol=1e-10)

for make, data, attribute in [
    (lambda: Ridge(solver="svd"), (X, y), "coef_"),
    (lambda: StandardScaler(), (X,), "scale_"),
    (lambda: PCA(3, svd_solver="full"), (X,), "explained_variance_"),
    (lambda: PCA(3, svd_solver="covariance_eigh"), (X,), "explained_variance_"),
    (lambda: LinearDiscriminantAnalysis(), (F, c), "means_"),
]:
    theirs = make().fit(*data)
    with sklearn.config_context(array_api_dispatch=True):
        ours = make().fit(*map(w, data))
    same(getattr(ours, attribute), getattr(theirs, attribute))

with sklearn.config_context(array_api_dispatch=True):
    model = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()).fit(w(F), w(c))
    predicted = model.predict(w(F))
    assert isinstance(predicted, wg.Tensor)
    assert accuracy_score(w(c), predicted) > 0.97
    assert r2_score(w(y), w(y) + 1.0) > 0.99
"""
    )


def test_scipy_gives_what_it_gives_with_numpy():
    run(
        """
import numpy as np, wengert as wg
from scipy import integrate, optimize, signal, special, stats
from scipy.optimize import elementwise

rng = np.random.default_rng(0)
X, v, p = rng.standard_normal((20, 3)), rng.standard_normal(20), rng.random(20)
calls = [
    (lambda x: special.logsumexp(x, axis=0), X),
    (lambda x: special.softmax(x, axis=1), X),
    (stats.zscore, X),
    (stats.skew, X),
    (stats.kurtosis, X),
    (lambda x: stats.pearsonr(x[:, 0], x[:, 1]).statistic, X),
    (stats.entropy, p),
    (stats.gmean, p),
    (lambda x: stats.rankdata(x), v),
    (lambda x: signal.detrend(x), v),
    (lambda x: signal.fftconvolve(x, x), v),
    (lambda x: integrate.trapezoid(x), v),
    (optimize.rosen, v),
]
for f, a in calls:
    y = f(wg.asarray(a))
    assert isinstance(y, wg.Tensor), (f, type(y))
    np.testing.assert_allclose(y.numpy(), f(a), rtol=1e-10, atol=1e-12)

root = elementwise.find_root(lambda z: z**3 - 2.0, (wg.zeros((2,), dtype="float64"), wg.full((2,), 2.0, dtype="float64")))
assert isinstance(root.x, wg.Tensor)
np.testing.assert_allclose(root.x.numpy(), 2 ** (1 / 3), rtol=1e-12)
"""
    )


def test_scipy_is_differentiated():
    run(
        """
import numpy as np, wengert as wg
from scipy import integrate, optimize, special, stats
from tests.finite_differences import gradient

rng = np.random.default_rng(0)
v = rng.standard_normal(7)
for f in (
    special.logsumexp,
    lambda x: stats.skew(x),
    lambda x: stats.zscore(x)[2],
    lambda x: integrate.trapezoid(x * x, x),
    optimize.rosen,
):
    x = wg.tensor(v, requires_grad=True)
    (expected,) = gradient(f, [v])
    np.testing.assert_allclose(f(x).backward()[x].numpy(), expected, rtol=1e-6, atol=1e-7)
"""
    )


def test_without_array_api_the_ufuncs_of_scipy_are_ours():
    import numpy as np
    from scipy import special

    import wengert as wg

    x = wg.tensor([0.3, 0.7], requires_grad=True)
    for name, f in {"erf": wg.erf, "gammaln": wg.lgamma, "expit": wg.sigmoid, "psi": wg.digamma}.items():
        y = getattr(special, name)(x)
        assert isinstance(y, wg.Tensor)
        np.testing.assert_array_equal(y.detach().numpy(), f(x).detach().numpy())
        assert y.requires_grad
