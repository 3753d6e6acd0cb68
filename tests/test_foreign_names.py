"""Names of other libraries: those that work, and hints at ours for the others."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.foreign_names import FOREIGN, FOREIGN_IN_MODULES, FOREIGN_OF_NETWORKS
from wengert.functional import class_losses

METHODS = {
    "permute": "permute_dims", "unsqueeze": "expand_dims", "view": "reshape", "clamp": "clip", "clamp_": "clip_",
    "numel": "the property size", "float": "astype", "contiguous": "clone", "logdet": "linalg.slogdet", "assign": "copy_",
    "ravel": "flatten", "to_vec": "tolist", "to_scalar": "item", "mul_scalar": "mul", "sum_dim": "sum",
    "mul_into": "mul", "cross_entropy_loss": "cross_entropy, which takes logits",
}  # fmt: skip
IN_MODULES = {
    (wg, "seed"): "manual_seed", (wg, "cat"): "concat", (wg, "array"): "tensor", (wg, "jit"): "compile",
    (wg, "Function"): "CustomOp", (wg.autograd, "Function"): "CustomOp",
    (wg, "lr_scheduler"): "optim.schedules", (wg.optim, "lr_scheduler"): "optim.schedules",
    (wg, "DataLoader"): "data.DataLoader", (wg.data, "Dataset"): "data.DataLoader", (wg, "Identity"): "nn.Identity",
    (wg, "logdet"): "linalg.slogdet", (wg.linalg, "logdet"): "linalg.slogdet", (wg, "saved_memory_mb"): "memory_stats",
    (wg, "cross_entropy_loss"): "cross_entropy", (wg, "gradient_clipping"): "clip_grad_norm",
    (wg, "Linear"): "nn.Linear", (wg, "Adam"): "optim.Adam", (wg, "svd"): "linalg.svd", (wg.nn, "relu"): "relu",
    (wg.nn, "Hardtanh"): "HardTanh", (wg.optim, "RMSProp"): "RMSprop", (wg, "sofmax"): "softmax",
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    x = wg.ones((2,))
    assert not hasattr(x, name) and name not in dir(x)
    with pytest.raises(
        AttributeError, match=re.escape(f"Tensor has no attribute '{name}'; wengert has {METHODS[name]}")
    ):
        getattr(x, name)


@pytest.mark.parametrize("cls", [wg.Tensor, wg.DualTensor, wg.nn.Parameter, wg.nn.Linear])
def test_all_that_dir_lists_of_a_class_can_be_read(cls: type) -> None:
    assert [n for n in dir(cls) if not hasattr(cls, n)] == []


def test_a_foreign_name_of_the_class_says_what_to_write() -> None:
    view: Any = wg.Tensor.view  # type: ignore[attr-defined]
    assert "reshape" in repr(view) and "reshape" in view.__doc__
    with pytest.raises(AttributeError, match="Tensor has no attribute 'view'; wengert has reshape"):
        view(wg.ones(4), (2, 2))


def test_size_is_a_number_that_says_what_to_write_where_it_is_called() -> None:
    n: Any = wg.ones((2, 3)).size
    for args in ((), (0,)):
        with pytest.raises(TypeError, match=r"size is not a method.* x\.shape .* x\.shape\[axis\]"):
            n(*args)
    assert n == 6 and isinstance(n, int) and repr(n) == "6" and type(n + 1) is int
    for made in (pickle.loads(pickle.dumps(n)), copy.copy(n), copy.deepcopy(n), json.loads(json.dumps(n))):
        assert made == 6 and type(made) is int
    with pytest.raises(TypeError, match=r"size is not a method"):
        wg.jvp(lambda x: x.size(), (wg.ones(2),), (wg.ones(2),))


@pytest.mark.parametrize(("module", "name"), IN_MODULES, ids=lambda v: getattr(v, "__name__", v))
def test_names_in_modules(module: Any, name: str) -> None:
    assert not hasattr(module, name) and name not in dir(module)
    message = f"module '{module.__name__}' has no attribute '{name}'; wengert has {IN_MODULES[module, name]}"
    with pytest.raises(AttributeError, match=re.escape(message)):
        getattr(module, name)
    with pytest.raises(AttributeError, match="has no attribute 'quite_another'$"):
        module.quite_another


@pytest.mark.parametrize("name", FOREIGN_OF_NETWORKS)
def test_methods_of_networks(name: str) -> None:
    net = wg.nn.Linear(2, 2)
    assert not hasattr(net, name) and name not in dir(net)
    with pytest.raises(AttributeError, match=re.escape(f"Linear has no attribute '{name}'; wengert has ")):
        getattr(net, name)
    setattr(net, name, 3)  # the user's own
    assert getattr(net, name) == 3


def test_hints_name_what_is_there() -> None:
    x = wg.ones((2, 2))
    for ours in {**FOREIGN, **FOREIGN_IN_MODULES}.values():
        words = re.split(r", | and | or ", ours.partition("(")[0].removeprefix("the property "))
        for name in (w for w in words if re.fullmatch(r"[\w.]+", w)):
            found: Any = x if hasattr(x, name) else wg
            for part in name.split("."):
                found = getattr(found, part)


def test_probing_imports_nothing() -> None:
    code = "import sys, wengert as wg; assert not hasattr(wg, 'Linear'); assert 'wengert.nn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------------------ what works


def test_shapes_as_several_numbers() -> None:
    for make in (wg.zeros, wg.ones, wg.empty, wg.rand, wg.randn):
        assert make(3, 4).shape == make((3, 4)).shape == (3, 4) and make(3).shape == (3,)
    assert wg.zeros(shape=(2, 1), dtype=wg.int64).tolist() == [[0], [0]]


def test_offsets_by_position() -> None:
    a = np.arange(12.0).reshape(3, 4)
    x = wg.asarray(a)
    assert x.triu(1).tolist() == np.triu(a, 1).tolist() and wg.tril(x, -1).tolist() == np.tril(a, -1).tolist()
    assert wg.diagonal(x, 1).tolist() == np.diagonal(a, 1).tolist() and wg.diag(x, 1).tolist() == np.diag(a, 1).tolist()
    assert wg.trace(x, 1).item() == np.trace(a, 1)


def test_transpose() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    x = wg.asarray(a)
    assert x.transpose().tolist() == a.transpose().tolist()
    assert x.transpose((1, 0, 2)).tolist() == wg.transpose(x, [1, 0, 2]).tolist() == a.transpose((1, 0, 2)).tolist()
    assert wg.grad(lambda x: (x.transpose() * wg.asarray(a.T)).sum())(x).tolist() == a.tolist()
    for axes in ((0, 1), (1,), (1, 0, 2)):
        with pytest.raises(TypeError, match=r"permute_dims\(axes\) and swapaxes\(a, b\)"):
            x.transpose(*axes)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_with_indices(name: str) -> None:
    a = np.array([[1.0, 5.0, 5.0], [3.0, -4.0, 0.0]])
    reduce, place = getattr(wg, name), getattr(np, f"arg{name}")
    for options in ({"axis": 1}, {"axis": 0, "keepdims": True}, {"axis": None}, {"axis": -1}):
        values, indices = reduce(a, **options, return_indices=True)
        assert values.tolist() == reduce(a, **options).tolist()
        assert indices.tolist() == place(a, **options).tolist()
    x = wg.tensor(a, requires_grad=True)
    values, indices = getattr(x, name)(axis=1, return_indices=True)
    assert values.sum().backward()[x].tolist() == wg.grad(lambda x: reduce(x, axis=1).sum())(a).tolist()
    with pytest.raises(
        wg.ArgumentError, match=rf"{name}: with return_indices, axis must be one integer or None.*\(0, 1\)"
    ):
        reduce(a, (0, 1), return_indices=True)


def test_dual_tensors_are_made_of_two() -> None:
    x = wg.DualTensor(wg.tensor(2.0), wg.tensor(1.0))
    y = x * x
    assert (y.value.item(), y.tangent.item()) == (4.0, 4.0)
    z = wg.dual(wg.tensor(3.0), wg.tensor(1.0))
    assert (x * z).tangent.item() == 5.0  # both are of one direction
    with pytest.raises(wg.ShapeError, match=r"dual: a tangent of shape \(2,\) for a value of shape \(\)"):
        wg.DualTensor(wg.tensor(2.0), wg.ones((2,)))


def test_contexts_and_handles() -> None:
    assert wg.AutogradEngine is wg.AutogradContext
    context = wg.AutogradContext("cpu")
    x = wg.ones((2,), requires_grad=True)
    with context.no_grad():
        assert not (x * 2).requires_grad
    assert context.memory_stats().saved_bytes >= 0
    with pytest.raises(wg.DeviceError, match="cuda"):
        wg.AutogradContext("cuda")
    tape = wg.GradientTape()
    v = tape.watch(wg.tensor([1.0, 2.0]))
    assert v.tensor().tolist() == [1.0, 2.0] and not v.tensor().requires_grad
    p = wg.Parameter.randn((2, 3), device="cpu", dtype=wg.float64)
    assert p.dtype == wg.float64 and p.tensor.shape == (2, 3)
    for make in (wg.Parameter.randn, wg.Parameter.zeros, wg.Parameter.ones):
        with pytest.raises(wg.DeviceError, match="cuda"):
            make((2,), device="cuda")


def test_random_numbers_like_a_tensor() -> None:
    x = wg.zeros((3, 4), dtype=wg.float64)
    for like, plain in ((wg.randn_like, wg.randn), (wg.rand_like, wg.rand)):
        drawn = like(x, generator=wg.Generator(seed=1))
        assert drawn.dtype == wg.float64
        assert drawn.tolist() == plain(3, 4, dtype=wg.float64, generator=wg.Generator(seed=1)).tolist()
        assert like(x, dtype=wg.float32, requires_grad=True).requires_grad
    with pytest.raises(wg.DTypeError, match="randn: dtype must be a floating"):
        wg.randn_like(wg.zeros(3, dtype=int))


def test_identity() -> None:
    x = wg.ones((2,))
    assert wg.nn.Sequential(wg.nn.Identity())(x) is x and wg.nn.Identity().parameters() == []


@pytest.fixture
def fresh_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_losses, "_logits", class_losses._Logits())


@pytest.mark.usefixtures("fresh_watch")
def test_probabilities_in_place_of_logits_warn_once() -> None:
    x = wg.randn(4, 3, generator=wg.Generator(seed=0), requires_grad=True)
    target = wg.tensor([0, 1, 2, 0])
    wg.cross_entropy(x, target)
    with pytest.warns(UserWarning, match=r"cross_entropy: every row of float32\(4, 3\).*leave out the softmax"):
        wg.cross_entropy(wg.softmax(x, axis=1), target)
    wg.cross_entropy(wg.softmax(x, axis=1), target)
    wg.cross_entropy(wg.softmax(x, axis=1), target)


@pytest.mark.usefixtures("fresh_watch")
@pytest.mark.parametrize(
    "logits",
    [
        np.zeros((4, 3)),
        np.eye(3),
        np.full((1, 2), 0.5),
        np.full((4, 1), 1.0),
        np.zeros((0, 3)),
        np.full((2, 2), np.nan),
    ],
    ids=["zeros", "one-hot", "one row", "one class", "empty", "nan"],
)
def test_logits_that_look_like_probabilities_do_not_warn(logits: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wg.cross_entropy(wg.asarray(logits), wg.zeros(len(logits), dtype=wg.int64), reduction="none")
        wg.softmax_cross_entropy(wg.asarray(logits), wg.zeros(len(logits), dtype=wg.int64), reduction="none")


@pytest.mark.usefixtures("fresh_watch")
def test_probabilities_warn_at_the_caller_and_in_every_form() -> None:
    p = wg.softmax(wg.randn(2, 5, 3, generator=wg.Generator(seed=0)), axis=-1)
    t = wg.zeros((2, 5), dtype=wg.int64)
    for call in (
        lambda: wg.softmax_cross_entropy(p, t),
        lambda: wg.nn.CrossEntropyLoss()(p.reshape(10, 3), t.reshape(10)),
    ):
        class_losses._logits = class_losses._Logits()
        with pytest.warns(UserWarning, match="cross_entropy: every row") as caught:
            call()
        assert caught[0].filename == __file__
