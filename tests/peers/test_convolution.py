"""Convolution, pooling, resampling and normalisation beside PyTorch: value, both modes and second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
F = torch.nn.functional


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([5, seed]).uniform(-1.0, 1.0, shape)


def distinct(*shape: int) -> Any:
    n = int(np.prod(shape))
    return np.random.default_rng(7).permutation(n).reshape(shape) / n * 4.0 - 2.0


# shape of x, shape of the weight, options
CONVOLUTIONS: list[Any] = [
    ((2, 3, 8), (4, 3, 3), {}),
    ((2, 4, 9), (6, 2, 4), {"stride": 2, "padding": 1, "groups": 2}),
    ((1, 2, 12), (3, 2, 3), {"dilation": 3, "padding": 2}),
    ((2, 2, 7), (3, 2, 4), {"padding": "same"}),
    ((2, 3, 7, 6), (4, 3, 3, 3), {"padding": 1}),
    ((2, 3, 9, 8), (5, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    ((1, 4, 8, 8), (6, 2, 3, 3), {"groups": 2, "dilation": (2, 1)}),
    ((2, 3, 6, 6), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    ((2, 3, 6, 6), (6, 1, 3, 3), {"groups": 3, "stride": 2}),
    ((2, 5, 4, 4), (7, 5, 1, 1), {}),
    ((2, 5, 5, 5), (3, 5, 1, 1), {"stride": 2}),
    ((1, 2, 6, 5), (3, 2, 2, 4), {"padding": "same", "dilation": 1}),
    ((1, 2, 6, 5), (3, 2, 6, 5), {"padding": "valid"}),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"padding": (0, 1, 1)}),
    ((1, 4, 5, 4, 5), (4, 2, 3, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # PyTorch tells of a copy that it makes
@pytest.mark.parametrize(("shape", "kernel", "options"), CONVOLUTIONS)
def test_convolution(shape: Any, kernel: Any, options: Any) -> None:
    name = f"conv{len(shape) - 2}d"
    compare(
        lambda x, w, b: getattr(wg, name)(x, w, bias=b, **options),
        torch=lambda x, w, b: getattr(F, name)(x, w, b, **options),
        arrays=[data(*shape), data(*kernel, seed=1), data(kernel[0], seed=2)],
    )


TRANSPOSED: list[Any] = [
    ((2, 3, 5), (3, 2, 4), {"stride": 2, "padding": 1}),
    ((2, 4, 5), (4, 3, 3), {"stride": 3, "output_padding": 2, "groups": 2}),
    ((1, 2, 5), (2, 3, 3), {"dilation": 3, "output_padding": 2, "padding": 2}),
    ((2, 3, 4, 4), (3, 5, 3, 3), {}),
    ((2, 3, 4, 5), (3, 2, 4, 2), {"stride": 2, "padding": (1, 0)}),
    ((2, 4, 3, 3), (4, 2, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    ((1, 2, 4, 4), (2, 2, 1, 1), {"stride": 3}),
    ((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), {"stride": (1, 2, 2), "output_padding": (0, 1, 1)}),
]


@pytest.mark.parametrize(("shape", "kernel", "options"), TRANSPOSED)
def test_transposed_convolution(shape: Any, kernel: Any, options: Any) -> None:
    name = f"conv_transpose{len(shape) - 2}d"
    outputs = kernel[1] * options.get("groups", 1)
    compare(
        lambda x, w, b: getattr(wg, name)(x, w, bias=b, **options),
        torch=lambda x, w, b: getattr(F, name)(x, w, b, **options),
        arrays=[data(*shape), data(*kernel, seed=1), data(outputs, seed=2)],
    )


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [((2, 3, 6, 5), (4, 3, 3, 3), {"padding": 1}), ((1, 4, 7), (4, 2, 3), {"stride": 2, "groups": 2})],
)
def test_complex_convolution(shape: Any, kernel: Any, options: Any) -> None:
    name = f"conv{len(shape) - 2}d"
    compare(
        lambda x, w: getattr(wg, name)(x, w, **options),
        torch=lambda x, w: getattr(F, name)(x, w, **options),
        arrays=[data(*shape) + 1j * data(*shape, seed=3), data(*kernel, seed=1) + 1j * data(*kernel, seed=4)],
    )


POOLS: list[Any] = [
    ((2, 3, 9), 3, {}),
    ((2, 3, 9), 4, {"stride": 2, "padding": 2}),
    ((2, 2, 6, 8), 2, {}),
    ((2, 2, 7, 9), (3, 2), {"stride": (2, 1), "padding": (1, 0)}),
    ((1, 2, 40, 37), 3, {"stride": 2, "padding": 1}),
    ((1, 2, 4, 5, 6), 2, {"stride": (1, 2, 2), "padding": 1}),
    ((2, 3, 10), 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    ((2, 2, 7, 9), 2, {"ceil_mode": True}),
    ((2, 2, 7, 6), (3, 4), {"stride": (3, 5), "padding": (1, 2), "ceil_mode": True}),
    ((1, 2, 4, 5, 6), 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    ((2, 3, 2), 5, {"stride": 3, "padding": 1, "ceil_mode": True}),  # the only window reaches beyond the padding
    ((2, 3, 2, 9), (5, 3), {"stride": 4, "ceil_mode": True}),
]
DILATED: list[Any] = [
    ((2, 3, 9), 3, {"dilation": 2}),
    ((2, 2, 9, 8), (3, 2), {"stride": 2, "padding": 1, "dilation": (2, 3)}),
    ((2, 2, 9, 8), 2, {"stride": 3, "dilation": 3, "ceil_mode": True}),
    ((1, 2, 6, 5, 7), 2, {"stride": (1, 2, 1), "padding": 1, "dilation": (3, 2, 1)}),
]


@pytest.mark.parametrize(("shape", "kernel", "options"), POOLS)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling(kind: str, shape: Any, kernel: Any, options: Any) -> None:
    name = f"{kind}_pool{len(shape) - 2}d"
    compare(
        lambda x: getattr(wg, name)(x, kernel, **options),
        torch=lambda x: getattr(F, name)(x, kernel, **options),
        arrays=[distinct(*shape)],
    )


@pytest.mark.parametrize(("shape", "kernel", "options"), DILATED)
def test_dilated_maxima(shape: Any, kernel: Any, options: Any) -> None:
    name = f"max_pool{len(shape) - 2}d"
    compare(
        lambda x: getattr(wg, name)(x, kernel, **options),
        torch=lambda x: getattr(F, name)(x, kernel, **options),
        arrays=[distinct(*shape)],
    )


@pytest.mark.parametrize(("shape", "kernel", "options"), [p for p in POOLS if "padding" in p[2]])
def test_averages_without_padding(shape: Any, kernel: Any, options: Any) -> None:
    name = f"avg_pool{len(shape) - 2}d"
    compare(
        lambda x: getattr(wg, name)(x, kernel, count_include_pad=False, **options),
        torch=lambda x: getattr(F, name)(x, kernel, count_include_pad=False, **options),
        arrays=[distinct(*shape)],
    )


@pytest.mark.parametrize("size", [1, 2, 3, (2, 5), (None, 4), 11])
def test_adaptive_averages(size: Any) -> None:
    compare(
        lambda x: wg.adaptive_avg_pool2d(x, size),
        torch=lambda x: F.adaptive_avg_pool2d(x, size),
        arrays=[data(2, 3, 7, 10)],
    )


@pytest.mark.parametrize(
    ("shape", "size"),
    [((2, 3, 11), 4), ((2, 3, 7, 10), 1), ((2, 3, 7, 10), (2, 5)), ((1, 2, 7, 5), (None, 8)), ((1, 2, 5, 4, 7), 3)],
)
def test_adaptive_maxima(shape: Any, size: Any) -> None:
    name = f"adaptive_max_pool{len(shape) - 2}d"
    compare(
        lambda x: getattr(wg, name)(x, size),
        torch=lambda x: getattr(F, name)(x, size),
        arrays=[distinct(*shape)],
    )


def test_the_same_element_of_equal_ones() -> None:
    x = np.round(data(2, 3, 8, 8) * 2)
    for kernel, options in ((2, {}), (3, {"stride": 1, "padding": 1})):
        t = torch.tensor(x, requires_grad=True)
        (expected,) = torch.autograd.grad(F.max_pool2d(t, kernel, **options).sum(), t)
        got = wg.grad(lambda x: wg.max_pool2d(x, kernel, **options).sum())(wg.asarray(x))
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


RESIZED: list[Any] = [
    ({"scale": 2}, {"scale_factor": 2}),
    ({"scale": 1.7}, {"scale_factor": 1.7}),
    ({"size": (7, 5)}, {"size": (7, 5)}),
    ({"size": (9, 3), "mode": "bilinear"}, {"size": (9, 3), "mode": "bilinear"}),
    ({"scale": 2, "mode": "bilinear"}, {"scale_factor": 2, "mode": "bilinear"}),
    ({"scale": 1.7, "mode": "bilinear"}, {"scale_factor": 1.7, "mode": "bilinear"}),
    (
        {"size": (9, 3), "mode": "bilinear", "align_corners": True},
        {"size": (9, 3), "mode": "bilinear", "align_corners": True},
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), RESIZED)
def test_upsampling(ours: Any, theirs: Any) -> None:
    compare(lambda x: wg.upsample(x, **ours), torch=lambda x: F.interpolate(x, **theirs), arrays=[data(2, 3, 4, 6)])


@pytest.mark.parametrize(("rank", "mode"), [(1, "linear"), (3, "trilinear"), (1, "nearest"), (3, "nearest")])
def test_upsampling_of_other_ranks(rank: int, mode: str) -> None:
    compare(
        lambda x: wg.upsample(x, size=5, mode=mode),
        torch=lambda x: F.interpolate(x, size=5, mode=mode),
        arrays=[data(2, 2, *(3, 4, 2)[:rank])],
    )


SHAPES = [(6, 4), (5, 4, 3), (3, 4, 3, 5), (2, 4, 2, 3, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm(shape: Any) -> None:
    arrays = [data(*shape), data(4, seed=1), data(4, seed=2)]
    compare(
        lambda x, w, b: wg.batch_norm(x, w, b),
        torch=lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        arrays=arrays,
    )
    mean, var = data(4, seed=3), data(4, seed=4) ** 2 + 0.3
    compare(
        lambda x, w, b: wg.batch_norm(
            x, w, b, running_mean=wg.asarray(mean), running_var=wg.asarray(var), training=False
        ),
        torch=lambda x, w, b: F.batch_norm(x, torch.tensor(mean), torch.tensor(var), w, b, training=False),
        arrays=arrays,
    )


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_group_and_instance_norm(shape: Any) -> None:
    arrays = [data(*shape), data(4, seed=1), data(4, seed=2)]
    compare(
        lambda x, w, b: wg.group_norm(x, 2, weight=w, bias=b),
        torch=lambda x, w, b: F.group_norm(x, 2, w, b),
        arrays=arrays,
    )
    compare(
        lambda x, w, b: wg.instance_norm(x, weight=w, bias=b),
        torch=lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
        arrays=arrays,
    )


def test_layer_and_rms_norm() -> None:
    for normalised in ((4,), (3, 4)):
        arrays = [data(2, 3, 4), data(*normalised, seed=1), data(*normalised, seed=2)]
        compare(
            lambda x, w, b: wg.layer_norm(x, normalised, weight=w, bias=b),
            torch=lambda x, w, b: F.layer_norm(x, normalised, w, b),
            arrays=arrays,
        )
        compare(
            lambda x, w: wg.rms_norm(x, normalised, weight=w, eps=1e-5),
            torch=lambda x, w: F.rms_norm(x, normalised, w, eps=1e-5),
            arrays=arrays[:2],
        )


# ------------------------------------------------------------------------------------------------------- layers

LAYERS: list[Any] = [
    ("Conv1d", (3, 6, 3), {"padding": "same", "groups": 3}, (2, 3, 9)),
    ("Conv2d", (3, 5, 3), {"stride": 2, "padding": 1}, (2, 3, 8, 7)),
    ("Conv2d", (3, 5, (3, 2)), {"bias": False, "dilation": 2}, (2, 3, 8, 7)),
    ("Conv3d", (2, 3, 2), {}, (1, 2, 4, 4, 4)),
    ("ConvTranspose1d", (3, 2, 4), {"stride": 2, "padding": 1}, (2, 3, 5)),
    ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "output_padding": 1, "groups": 2}, (2, 4, 5, 5)),
    ("ConvTranspose3d", (2, 3, 2), {"dilation": 2}, (1, 2, 3, 3, 3)),
    ("BatchNorm1d", (4,), {}, (6, 4)),
    ("BatchNorm2d", (4,), {"momentum": 0.3}, (3, 4, 5, 5)),
    ("BatchNorm2d", (4,), {"momentum": None, "affine": False}, (3, 4, 5, 5)),
    ("BatchNorm3d", (2,), {"track_running_stats": False}, (2, 2, 3, 3, 3)),
    ("GroupNorm", (2, 4), {}, (2, 4, 5)),
    ("InstanceNorm2d", (4,), {"affine": True}, (2, 4, 3, 3)),
    ("LayerNorm", ((3, 4),), {}, (2, 3, 4)),
    ("RMSNorm", (4,), {}, (2, 3, 4)),
    ("MaxPool2d", (3, 2, 1), {}, (2, 3, 7, 8)),
    ("AvgPool2d", (2,), {"padding": 1, "count_include_pad": False}, (2, 3, 6, 6)),
    ("AdaptiveAvgPool2d", ((2, 3),), {}, (2, 3, 5, 7)),
    ("Upsample", (), {"scale_factor": 2, "mode": "bilinear"}, (1, 2, 3, 4)),
]


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS)
def test_layers_with_the_same_weights(name: str, args: Any, options: Any, shape: Any) -> None:
    """Output, gradients and buffers, in two training steps and one of evaluation."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **options).double()
    extra = {} if name in ("MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "Upsample") else {"dtype": wg.float64}
    ours = getattr(wg.nn, name)(*args, **options, **extra)
    state = {k: v.numpy() for k, v in theirs.state_dict().items()}
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {k: v.shape for k, v in state.items()}
    ours.load_state_dict({k: wg.asarray(v.copy()) for k, v in state.items()})
    for step in range(3):
        if step == 2:
            ours.eval(), theirs.eval()
        x = data(*shape, seed=step)
        a, b = wg.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        y, z = ours(a), theirs(b)
        np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-10, atol=1e-11)
        grads = (y**3).sum().backward()
        theirs.zero_grad()
        (z**3).sum().backward()
        np.testing.assert_allclose(grads[a].numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-10)
        for (k, p), q in zip(ours.named_parameters(), theirs.parameters()):
            np.testing.assert_allclose(grads[p].numpy(), q.grad.numpy(), rtol=1e-9, atol=1e-10, err_msg=k)
        for k, v in theirs.state_dict().items():
            np.testing.assert_allclose(ours.state_dict()[k].numpy(), v.numpy(), rtol=1e-12, err_msg=k)


@pytest.mark.parametrize("name", ["Conv1d", "Conv2d", "ConvTranspose2d"])
def test_weights_start_in_the_same_range(name: str) -> None:
    wg.manual_seed(3)
    ours, theirs = getattr(wg.nn, name)(16, 32, 3), getattr(torch.nn, name)(16, 32, 3)
    for p, q in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        a, b = p.numpy(), q.detach().numpy()
        assert a.shape == b.shape
        assert np.abs(a).max() == pytest.approx(np.abs(b).max(), rel=0.1)
    assert ours.weight.numpy().std() == pytest.approx(theirs.weight.detach().numpy().std(), rel=0.05)
