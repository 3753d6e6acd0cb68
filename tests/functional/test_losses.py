from typing import Any

import numpy as np
import pytest
from scipy import special

import wengert as wg
from tests.finite_differences import check, pulled

REDUCTIONS = {"mean": np.mean, "sum": np.sum, "none": lambda x: x}


def data(*shape, seed=6):
    return np.random.default_rng(seed).standard_normal(shape)


def unit(*shape, seed=7):
    return np.random.default_rng(seed).uniform(0.05, 0.95, shape)


def bce(x, t):
    return np.logaddexp(0, x) - t * x


PAIRS = {
    "mse_loss": (wg.mse_loss, lambda x, t: (x - t) ** 2, data(3, 4), data(3, 4, seed=1)),
    "l1_loss": (wg.l1_loss, lambda x, t: np.abs(x - t), data(3, 4), data(3, 4, seed=1)),
    "huber_loss": (
        wg.huber_loss,
        lambda x, t: np.where(np.abs(x - t) <= 1, 0.5 * (x - t) ** 2, np.abs(x - t) - 0.5),
        data(3, 4) * 2,
        data(3, 4, seed=1),
    ),
    "huber delta": (
        lambda x, t, **o: wg.huber_loss(x, t, delta=0.5, **o),
        lambda x, t: np.where(np.abs(x - t) <= 0.5, 0.5 * (x - t) ** 2, 0.5 * (np.abs(x - t) - 0.25)),
        data(3, 4),
        data(3, 4, seed=1),
    ),
    "bce_loss": (
        wg.bce_loss,
        lambda p, t: -(t * np.log(p) + (1 - t) * np.log1p(-p)),
        unit(3, 4),
        unit(3, 4, seed=1),
    ),
    "bce_with_logits": (wg.bce_with_logits, bce, data(3, 4) * 5, unit(3, 4)),
    "hinge_loss": (
        wg.hinge_loss,
        lambda x, t: np.maximum(0, 1 - x * t),
        data(3, 4),
        np.sign(data(3, 4, seed=1)),
    ),
    "kl_div": (wg.kl_div, lambda p, t: t * (np.log(t) - p), np.log(unit(3, 4)), unit(3, 4, seed=1)),
    "kl_div log": (
        lambda p, t, **o: wg.kl_div(p, t, log_target=True, **o),
        lambda p, t: np.exp(t) * (t - p),
        np.log(unit(3, 4)),
        np.log(unit(3, 4, seed=1)),
    ),
    "focal_loss": (
        wg.focal_loss,
        lambda x, t: (
            bce(x, t)
            * (1 - (special.expit(x) * t + (1 - special.expit(x)) * (1 - t))) ** 2
            * (0.25 * t + 0.75 * (1 - t))
        ),
        data(3, 4),
        unit(3, 4).round(),
    ),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name, reduction):
    ours, reference, x, t = PAIRS[name]
    y = ours(wg.asarray(x), wg.asarray(t), reduction=reduction)
    np.testing.assert_allclose(y.numpy(), REDUCTIONS[reduction](reference(x, t)), rtol=1e-10)
    check(lambda x: ours(x, wg.asarray(t), reduction=reduction), x)


@pytest.mark.parametrize("name", [n for n in PAIRS if n not in ("focal_loss", "hinge_loss")])
def test_gradients_of_targets(name):
    ours, _, x, t = PAIRS[name]
    check(lambda x, t: ours(x, t), x, t)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weights(reduction):
    x, t, w, p = data(3, 4), unit(3, 4), unit(3, 4, seed=2), unit(4, seed=3) * 3
    r = REDUCTIONS[reduction]
    weights = dict(weight=wg.asarray(w), pos_weight=wg.asarray(p))
    y = wg.bce_with_logits(wg.asarray(x), wg.asarray(t), **weights, reduction=reduction)
    expected = w * (p * t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x))
    np.testing.assert_allclose(y.numpy(), r(expected), rtol=1e-10)
    check(lambda x, t: wg.bce_with_logits(x, t, pos_weight=wg.asarray(p)), x, t)
    y = wg.bce_loss(wg.asarray(t), wg.asarray(w), weight=wg.asarray(w), reduction=reduction)
    np.testing.assert_allclose(y.numpy(), r(w * -(w * np.log(t) + (1 - w) * np.log1p(-t))), rtol=1e-10)


def test_extremes():
    x = np.array([1e4, -1e4, 1e4, -1e4])
    t = np.array([1.0, 0.0, 0.0, 1.0])
    y = wg.bce_with_logits(wg.asarray(x), wg.asarray(t), reduction="none")
    assert y.tolist() == [0.0, 0.0, 1e4, 1e4]
    (g,) = pulled(lambda z: wg.bce_with_logits(z, t, reduction="sum"), x, seed=np.array(1.0))
    np.testing.assert_allclose(g, [0, 0, 1, -1])
    assert np.isfinite(wg.bce_loss([0.0, 1.0], [1.0, 0.0]).item())
    logits = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])
    y = wg.cross_entropy(wg.asarray(logits), [1, 0], reduction="none")
    np.testing.assert_allclose(y.numpy(), [2e4, np.log(3)])
    assert np.isfinite(pulled(lambda z: wg.cross_entropy(z, [1, 0]), logits)[0]).all()
    assert np.isfinite(pulled(lambda z: wg.focal_loss(z, t), x)[0]).all()
    assert wg.kl_div(np.log([0.5, 0.5]), [1.0, 0.0], reduction="sum").item() == pytest.approx(np.log(2))


def expected_cross_entropy(x, t, weight=None, ignore=-100, smoothing=0.0, reduction="mean"):
    """Sample by sample, class by class."""
    c = x.shape[1]
    log_p = np.moveaxis(special.log_softmax(x, 1), 1, -1).reshape(-1, c)
    w = np.ones(c) if weight is None else weight
    losses, weights = [], []
    for row, k in zip(log_p, t.reshape(-1)):
        if k == ignore:
            losses.append(0.0)
            weights.append(0.0)
            continue
        losses.append(-(1 - smoothing) * w[k] * row[k] - smoothing / c * np.sum(w * row))
        weights.append(w[k])
    if reduction == "none":
        return np.array(losses).reshape(t.shape)
    return np.sum(losses) / (np.sum(weights) if reduction == "mean" else 1)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4), (2, 3, 2, 2)])
def test_cross_entropy(shape, weighted, smoothing, reduction):
    x = data(*shape)
    t = np.random.default_rng(0).integers(0, 3, (shape[0], *shape[2:]))
    t.reshape(-1)[1] = -100
    w = unit(3) if weighted else None
    options = dict(weight=w, label_smoothing=smoothing, reduction=reduction)
    expected = expected_cross_entropy(x, t, w, smoothing=smoothing, reduction=reduction)
    np.testing.assert_allclose(wg.cross_entropy(wg.asarray(x), wg.asarray(t), **options).numpy(), expected, rtol=1e-10)
    check(lambda z: wg.cross_entropy(z, wg.asarray(t), **options), x)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_probabilities(smoothing, reduction):
    x, t, w = data(4, 3), special.softmax(data(4, 3, seed=1), 1), unit(3)
    mixed = t * (1 - smoothing) + smoothing / 3
    expected = REDUCTIONS[reduction](-(special.log_softmax(x, 1) * mixed * w).sum(1))
    options = dict(weight=w, label_smoothing=smoothing, reduction=reduction)
    np.testing.assert_allclose(wg.cross_entropy(wg.asarray(x), wg.asarray(t), **options).numpy(), expected, rtol=1e-10)
    check(lambda x, t: wg.cross_entropy(x, t, **options), x, t)


def test_other_class_axes():
    x, t = data(2, 4, 3), np.random.default_rng(0).integers(0, 3, (2, 4))
    y = wg.softmax_cross_entropy(wg.asarray(x), t)
    np.testing.assert_allclose(y.numpy(), expected_cross_entropy(np.moveaxis(x, -1, 1), t))
    one = data(5)
    assert wg.cross_entropy(wg.asarray(one), 2).item() == pytest.approx(-special.log_softmax(one)[2])


def expected_gradient(x, t, smoothing, bar):
    """Of rows in float64, where the rows' cotangents are `bar`."""
    q = np.eye(x.shape[1])[t] * (1 - smoothing) + smoothing / x.shape[1]
    return (special.softmax(x.astype(np.float64), 1) - q) * bar[:, None]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [1, 2, 7, 16, 17, 64, 65, 500, 2500, 5000])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-13)])
def test_cross_entropy_of_rows_of_any_length(classes, smoothing, dtype, tolerance):
    x, bar = (3 * data(23, classes)).astype(dtype), data(23, seed=3).astype(dtype)
    bar[5] = 0
    t = np.random.default_rng(0).integers(0, classes, 23)
    z = wg.tensor(x, requires_grad=True)
    y = wg.cross_entropy(z, t, label_smoothing=smoothing, reduction="none")
    expected = expected_cross_entropy(x.astype(np.float64), t, smoothing=smoothing, reduction="none")
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=tolerance, atol=tolerance)
    (got,) = wg.grad_of(y, [z], [wg.asarray(bar)])
    np.testing.assert_allclose(got.numpy(), expected_gradient(x, t, smoothing, bar), rtol=0, atol=tolerance)
    assert not got.numpy()[5].any()


def test_cross_entropy_keeps_its_accuracy_far_from_zero():
    """Probabilities come from the distance to the largest logit, as large logits are all alike to a sum of exponentials."""
    near, t, bar = data(8, 20).astype(np.float32), np.arange(8), np.ones(8)
    for offset in (1024.0, -4096.0):
        x = (near + np.float32(offset)).astype(np.float32)
        z = wg.tensor(x, requires_grad=True)
        loss = wg.cross_entropy(z, t, reduction="none")
        expected = expected_cross_entropy(x.astype(np.float64), t, reduction="none")
        np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=1e-6, atol=1e-6)
        got = wg.grad_of(loss, [z], [wg.ones(8)])[0].numpy()
        np.testing.assert_allclose(got, expected_gradient(x, t, 0.0, bar), rtol=0, atol=1e-6)


def test_rows_that_do_not_count_have_no_gradient_whatever_is_in_them():
    x = data(4, 3)
    x[1], x[2, 0] = np.nan, np.inf
    z = wg.tensor(x, requires_grad=True)
    got = wg.cross_entropy(z, [0, -100, -100, 2]).backward()[z].numpy()
    assert not got[1:3].any()
    np.testing.assert_allclose(got[[0, 3]], expected_gradient(x[[0, 3]], np.array([0, 2]), 0.0, np.full(2, 0.5)))


def test_second_derivatives_of_cross_entropy():
    x, t = data(3, 4), np.array([0, 3, 1])
    for options in ({}, {"label_smoothing": 0.2}, {"ignore_index": 3}):
        check(lambda z, o=options: (wg.grad(lambda z: wg.cross_entropy(z, t, **o))(z) ** 2).sum(), x)
        hessian = wg.hessian(lambda z, o=options: wg.cross_entropy(z, t, **o))(wg.asarray(x)).numpy().reshape(12, 12)
        p = special.softmax(x, 1)
        blocks = np.zeros((3, 4, 3, 4))
        counted = [k for k in range(3) if t[k] != options.get("ignore_index", -100)]
        for k in counted:
            blocks[k, :, k, :] = (np.diag(p[k]) - np.outer(p[k], p[k])) / len(counted)
        np.testing.assert_allclose(hessian, blocks.reshape(12, 12), atol=1e-12)


def test_nll_and_ignore_index():
    log_p, t = special.log_softmax(data(4, 3), 1), np.array([0, 2, 1, 2])
    np.testing.assert_allclose(wg.nll_loss(wg.asarray(log_p), t).numpy(), -log_p[np.arange(4), t].mean())
    y = wg.nll_loss(wg.asarray(log_p), t, ignore_index=2)
    np.testing.assert_allclose(y.numpy(), -log_p[[0, 2], [0, 1]].mean())
    check(lambda z: wg.nll_loss(z, t, weight=unit(3), ignore_index=0), log_p)
    assert np.isnan(wg.nll_loss(wg.asarray(log_p), [-100] * 4).item())


def test_batchmean():
    p, t = np.log(unit(3, 4)), unit(3, 4, seed=1)
    y = wg.kl_div(wg.asarray(p), wg.asarray(t), reduction="batchmean")
    np.testing.assert_allclose(y.numpy(), np.sum(t * (np.log(t) - p)) / 3)


def test_any_batch_size():
    for n in (1, 3, 8):
        x, t = data(n, 4), np.arange(n) % 4
        expected = expected_cross_entropy(x, t)
        assert wg.cross_entropy(wg.asarray(x), wg.asarray(t)).item() == pytest.approx(expected)
        assert wg.mse_loss(wg.asarray(x), wg.zeros((n, 4))).item() == pytest.approx((x**2).mean())


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: wg.mse_loss(x, wg.ones((2,))), ValueError, "mse_loss"),
        (lambda x: wg.mse_loss(x, x, reduction="avg"), ValueError, "reduction"),
        (lambda x: wg.cross_entropy(x, [0, 3]), IndexError, "3"),
        (lambda x: wg.cross_entropy(x, [0, 1, 2]), ValueError, "class indices"),
        (lambda x: wg.cross_entropy(x, [0.0, 1.0]), ValueError, "integers"),
        (lambda x: wg.nll_loss(x, [0.0, 1.0]), TypeError, "integer"),
        (lambda x: wg.cross_entropy(x, wg.tensor([True, False])), TypeError, "integer"),
        (lambda x: wg.cross_entropy(x, [0, 1], weight=[1.0, 2.0]), ValueError, "3 classes"),
        (lambda x: wg.cross_entropy(x, [0, 1], label_smoothing=2.0), ValueError, "label_smoothing"),
        (lambda x: wg.huber_loss(x, x, delta=0.0), ValueError, "delta"),
        (lambda x: wg.focal_loss(x, x, gamma=-1.0), ValueError, "gamma"),
        (lambda x: wg.cross_entropy(wg.tensor(1.0), 0), ValueError, "class axis"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call(wg.ones((2, 3)))


def test_cross_entropy_checks_every_call_though_it_was_compiled_for_others() -> None:
    logits, target = wg.ones((4, 3)), wg.tensor([0, 1, 2, 0])
    expected = wg.cross_entropy(logits, target).item()
    for bad, kwargs, parts in (
        ((logits, wg.tensor([0, 1])), {}, ("int64(2,)", "float32(4, 3)")),
        ((logits, wg.ones((4, 2))), {}, ("float32(4, 2)", "float32(4, 3)")),
        ((logits, target), {"weight": wg.ones((5,))}, ("float32(5,)", "3 classes")),
        ((logits, target), {"reduction": "average"}, ("'average'",)),
        ((logits, target), {"reduction": ["mean"]}, ("['mean']",)),
        ((logits, target), {"label_smoothing": 1.5}, ("1.5",)),
        ((wg.ones(()), target), {}, ("float32()",)),
    ):
        with pytest.raises((wg.ShapeError, wg.ArgumentError)) as e:
            wg.cross_entropy(*bad, **kwargs)
        assert all(p in str(e.value) for p in ("cross_entropy", *parts)), str(e.value)
    assert wg.cross_entropy(logits.numpy(), [0, 1, 2, 0]).item() == expected
    assert wg.cross_entropy(logits, target.numpy(), ignore_index=np.int64(-100)).item() == expected


def test_forward_mode_beside_arrays():
    """Targets and weights need not be tensors, in any mode."""
    x, x_dot = data(4, 3), data(4, 3)
    target, weight = np.array([0, 2, 1, 1]), np.array([0.5, 1.0, 2.0])
    tensors = wg.asarray(target), wg.asarray(weight)

    def pushed(t, w):
        f = lambda z: wg.cross_entropy(z, t, weight=w)
        return wg.jvp(f, (wg.asarray(x),), (wg.asarray(x_dot),))[1].item()

    assert pushed(target, weight) == pushed(target.tolist(), weight.tolist()) == pushed(*tensors)
    f = lambda z: wg.linear(z, np.eye(3), weight)
    np.testing.assert_array_equal(wg.jvp(f, (wg.asarray(x),), (wg.asarray(x_dot),))[1].numpy(), x_dot)


@pytest.mark.parametrize("loss", [wg.mse_loss, wg.l1_loss, wg.huber_loss])
@pytest.mark.parametrize("n", [1000, 70000])  # float16 ends at 65504
def test_means_of_float16_do_not_overflow_on_the_way(loss: Any, n: int) -> None:
    x, target = wg.full((n,), 100.0, dtype=wg.float16), wg.zeros((n,), dtype=wg.float16)
    expected = loss(wg.astype(x, wg.float64), wg.astype(target, wg.float64))
    got = loss(x, target)
    assert got.dtype == wg.float16
    assert float(got) == float(wg.astype(expected, wg.float16))


def test_numbers_of_numpy_are_taken_exactly_at_every_call() -> None:
    # From their second value on numbers are operands: what is computed of them must not be rounded to their type.
    rng = np.random.default_rng(0)
    y, p = rng.normal(size=(4, 5)), rng.dirichlet(np.ones(5), 4)
    logits, target = wg.asarray(y), wg.asarray(p)
    for share in (np.float32(0.3), np.float32(0.07), np.float32(0.4), np.int64(1), 0, np.float64(0.2)):
        exact = float(share)
        expected = -((p * (1 - exact) + exact / 5) * (y - np.log(np.exp(y).sum(1, keepdims=True)))).sum(1).mean()
        found = wg.cross_entropy(logits, target, label_smoothing=share).item()
        assert abs(found - expected) <= 1e-14, share
