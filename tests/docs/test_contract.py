"""The public contract, statement by statement: what users type must run and mean what it says."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import wengert as wg


def test_tensors() -> None:
    x = wg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert x.dtype == wg.float32 and wg.tensor([1, 2]).dtype == wg.int64 and wg.tensor(True).dtype == wg.bool_
    a = np.arange(6.0).reshape(2, 3)
    shared = wg.asarray(a)
    a[0, 0] = 7.0
    assert shared.dtype == wg.float64 and shared[0, 0].item() == 7.0
    assert wg.randn(5, 3, std=0.1, requires_grad=True).shape == wg.randn((5, 3)).shape == (5, 3)
    assert (x.shape, x.ndim, x.size, str(x.device), x.is_leaf) == ((2, 2), 2, 4, "cpu", True)
    assert isinstance(x.id, int) and x.grad is None and x.T.shape == x.mT.shape == (2, 2)
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]] and np.asarray(x).shape == (2, 2)
    assert not x.detach().requires_grad and x.clone().requires_grad
    assert x.astype(wg.bfloat16).dtype == wg.bfloat16
    assert wg.tensor(1.0).requires_grad_().requires_grad


def test_interop() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    np.testing.assert_array_equal(np.from_dlpack(x.detach()), [1.0, 2.0])
    np.testing.assert_array_equal(wg.from_dlpack(np.arange(3)).numpy(), [0, 1, 2])
    assert copy.deepcopy(x).tolist() == pickle.loads(pickle.dumps(x)).tolist() == [1.0, 2.0]
    product = np.array([3.0, 4.0], np.float32) * x
    assert isinstance(product, wg.Tensor) and product.requires_grad
    assert (np.float64(2) * x).dtype == wg.float32


def test_operators_and_indexing() -> None:
    a, b = wg.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, 6.0]]), wg.tensor([2.0, 2.0, 2.0])
    n, m = a.numpy(), b.numpy()
    for got, expected in [
        (a + b, n + m), (a - b, n - m), (a * b, n * m), (a / b, n / m), (a**b, n**m), (-a, -n), (abs(a), abs(n)),
        (a @ b, n @ m), (a < b, n < m), (a[1:, None], n[1:, None]), (a[:, [0, 2]], n[:, [0, 2]]),
    ]:  # fmt: skip
        np.testing.assert_allclose(got.numpy(), expected)
    np.testing.assert_array_equal(a[a > 2].numpy(), n[n > 2])
    assert [row.tolist() for row in a] == n.tolist() and len(a) == 2 and bool(wg.tensor(1.0))
    np.testing.assert_allclose(a.add(b).mul(b).sub(1.0).div(2.0).pow(2).numpy(), (((n + m) * m - 1) / 2) ** 2)


def test_in_place_and_out() -> None:
    a = wg.ones((3,))
    a.add_(1.0).mul_(3.0)
    a[0] = 5.0
    assert a.tolist() == [5.0, 6.0, 6.0]
    c = wg.empty((3,))
    assert wg.mul(a, a, out=c) is c and c.tolist() == [25.0, 36.0, 36.0]
    c.copy_(wg.zeros((3,)))
    assert c.tolist() == [0.0, 0.0, 0.0]


def test_threads_generators_and_checks() -> None:
    before = wg.get_num_threads()
    wg.set_num_threads(1)
    assert wg.get_num_threads() == 1
    wg.set_num_threads(before)
    first, second = (wg.randn(3, generator=wg.Generator(seed=0)).tolist() for _ in range(2))
    assert first == second
    assert wg.tensor([1.0, np.nan]).isnan().any() and wg.tensor([np.nan]).has_nan() and not wg.ones(2).has_inf()


def test_backward() -> None:
    x, w, b = wg.randn(4, 5), wg.randn(5, 3, requires_grad=True), wg.zeros((3,), requires_grad=True)
    h = x @ w
    loss = (h + b).sum()
    grads = loss.backward(retain_graph=True)
    np.testing.assert_allclose(grads[b].numpy(), [4.0, 4.0, 4.0])
    assert grads.get(x) is None and grads.get(w.id) is not None and grads.get(w.id).tolist() == w.grad.tolist()
    with pytest.raises(KeyError, match="explain"):
        grads[x]
    grads[w] = wg.zeros_like(w)
    assert grads[w].tolist() == wg.zeros_like(w).tolist() and len(list(grads.items())) == 2
    only = loss.backward(inputs=[h])
    assert only[h].tolist() == wg.ones((4, 3)).tolist() and w not in only
    with pytest.raises(wg.GradientError, match="retain_graph"):
        loss.backward()


def test_second_order_and_maps() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    grads = (x * x * x).sum().backward(create_graph=True)
    second = grads[x].sum().backward(inputs=[x])
    assert second[x].tolist() == [6.0, 12.0]
    acc = wg.GradientMap()
    acc.insert(x, wg.ones(2))
    acc.accumulate(x, wg.ones(2))
    acc.accumulate(second)
    assert acc[x].tolist() == [8.0, 14.0]
    assert acc.scale_(0.5)[x].tolist() == [4.0, 7.0]
    assert acc.global_norm() == pytest.approx(65**0.5) and acc.all_finite()
    plain = (x * x).sum().backward()
    with pytest.raises(wg.GradientError, match="create_graph"):
        plain[x].sum().backward()


def test_hooks_and_grad_of() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    handle = x.register_hook(lambda g: g * 2)
    assert (x * x).backward()[x].item() == 12.0
    handle.remove()
    (g,) = wg.grad_of(x * x, x)
    assert g.item() == 6.0
    other = wg.tensor(1.0, requires_grad=True)
    with pytest.raises(wg.GradientError, match="allow_unused"):
        wg.grad_of(x * x, other)
    assert wg.grad_of(x * x, other, allow_unused=True) == (None,)


def test_an_earlier_map_never_changes() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    first = (x * x).sum().backward()
    (x * x).sum().backward()
    assert first[x].tolist() == [2.0, 4.0] and x.grad.tolist() == [4.0, 8.0]


def test_tapes() -> None:
    x, w = wg.tensor([1.0, 2.0]), wg.tensor([3.0, 4.0])
    with wg.GradientTape() as tape:
        loss = (x * w * x).sum()
    dx, dw = tape.gradient(loss, [x, w])
    assert dx.tolist() == [6.0, 16.0] and dw.tolist() == [1.0, 4.0] and x.grad is None
    with pytest.raises(wg.TapeConsumedError):
        tape.gradient(loss, x)
    tape = wg.Tape(persistent=True)
    v = tape.watch(x)
    y = (v * v).sum()
    assert tape.gradient(y, x).tolist() == tape.gradient(y, v).tolist() == [2.0, 4.0]
    frozen = wg.tensor([1.0, 1.0], requires_grad=False)
    with wg.GradientTape() as tape:
        y = (x * frozen).sum()
    assert tape.gradient(y, [x, frozen])[1] is None
    tape = wg.GradientTape()
    tape.start_recording()
    y = x * x
    tape.stop_recording()
    tape.program().verify()
    assert tape.forward_gradient(x, y).tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_contexts() -> None:
    x = wg.ones(2, requires_grad=True)
    with wg.no_grad():
        assert not (x * 2).requires_grad and not wg.is_grad_enabled()
        with wg.enable_grad():
            assert (x * 2).requires_grad
    with wg.set_grad_enabled(False):
        assert not wg.is_grad_enabled()
    assert wg.stop_gradient(x * 2).requires_grad is False
    stats = wg.memory_stats()
    assert stats.live_bytes > 0 and stats.saved_mb == stats.saved_bytes / 2**20 and isinstance(stats.by_line, dict)
    assert wg.AutogradContext.memory_stats().live_bytes > 0


def test_forward_mode() -> None:
    x = wg.dual(wg.tensor(2.0), wg.tensor(1.0))
    z = wg.sin(x) * x
    assert z.value.item() == pytest.approx(2 * np.sin(2.0), rel=1e-6)
    assert z.tangent.item() == pytest.approx(np.sin(2.0) + 2 * np.cos(2.0), rel=1e-5)
    with wg.ForwardADContext() as ctx:
        d = ctx.dual(wg.tensor(2.0), wg.tensor(1.0))
        assert ctx.mul(ctx.sin(d), d).tangent.item() == pytest.approx(z.tangent.item())


def test_transformations() -> None:
    f = lambda p: (p["w"] * p["b"][0]).sum()
    g = wg.grad(f)({"w": wg.tensor([1.0, 2.0]), "b": (wg.tensor(3.0),)})
    assert g["w"].tolist() == [3.0, 3.0] and g["b"][0].item() == 3.0
    x, v = wg.tensor([1.0, 2.0]), wg.tensor([1.0, 0.0])
    cube = lambda x: (x * x * x).sum()
    assert wg.hvp(cube, x, v).tolist() == [6.0, 0.0]
    assert wg.hessian(cube)(x).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    square = lambda x: x * x
    assert wg.jacfwd(square)(x).tolist() == wg.jacrev(square)(x).tolist() == wg.jacobian(square)(x).tolist()
    y, push = wg.linearize(square, x)
    assert push(v).tolist() == wg.jvp(square, (x,), (v,))[1].tolist() == [2.0, 0.0]
    assert wg.vjp(square, x)[1](v)[0].tolist() == [2.0, 0.0]


def test_custom_operations() -> None:
    class ClipGradient(wg.CustomOp):
        def forward(self, x):
            return x

        def backward(self, y_bar, x):
            return wg.clip(y_bar, -1.0, 1.0)

    x = wg.tensor(2.0, requires_grad=True)
    assert (ClipGradient()(x) * 100.0).backward()[x].item() == 1.0
    with pytest.raises(wg.CustomOpError, match="ClipGradient"):
        wg.jvp(ClipGradient(), (x,), (wg.tensor(1.0),))

    @wg.custom_op
    def cube(x):
        return wg.asarray(x.numpy() ** 3)

    @cube.defjvp
    def _(x_dot, y, x):
        return 3 * x**2 * x_dot

    t = wg.tensor(2.0)
    assert wg.grad(cube)(t).item() == 12.0 and wg.grad(wg.grad(cube))(t).item() == 12.0
    assert wg.jvp(cube, (t,), (wg.tensor(1.0),))[1].item() == 12.0


def test_names_of_other_libraries_name_ours() -> None:
    x = wg.ones((2, 3))
    for name, ours in [("permute", "permute_dims"), ("cat", "concat"), ("unsqueeze", "expand_dims")]:
        with pytest.raises(AttributeError, match=ours):
            getattr(wg, name)
    with pytest.raises(TypeError, match="axis"):
        x.sum(dim=0)


def test_errors_are_built_in_errors_too() -> None:
    pairs = [
        (wg.ShapeError, ValueError), (wg.DTypeError, TypeError), (wg.GradientError, RuntimeError),
        (wg.TapeConsumedError, wg.GradientError), (wg.InPlaceError, wg.GradientError), (wg.BudgetError, MemoryError),
    ]  # fmt: skip
    for ours, builtin in pairs:
        assert issubclass(ours, builtin) and issubclass(ours, wg.WengertError)
    with pytest.raises(wg.ShapeError, match=r"add.*\(2, 3\).*\(2, 4\)"):
        wg.ones((2, 3)) + wg.ones((2, 4))


def test_parameters_and_modules() -> None:
    p = wg.Parameter.randn((4, 3), mean=0.0, std=0.02)
    b = wg.Parameter.zeros((4,))
    assert isinstance(p, wg.Tensor) and isinstance(p.id, int) and p.requires_grad and p.grad is None
    assert p.tensor.shape == (4, 3) and not p.tensor.requires_grad
    b.set_grad(wg.ones((4,)))
    b.update(0.5)
    b.apply_update(wg.ones((4,)))
    assert b.tolist() == [0.5] * 4
    b.zero_grad()
    d = wg.ParameterDict(weight=p)
    d["bias"] = b
    d.insert("c", wg.Parameter(wg.ones(2)))
    assert (
        d.get("weight") is p
        and len(d.parameters()) == 3
        and dict(d.named_parameters()).keys() == {"weight", "bias", "c"}
    )

    class Net(wg.nn.Module):
        def __init__(self) -> None:
            self.layer = wg.nn.Linear(3, 2)
            self.register_buffer("mean", wg.zeros(2))

        def forward(self, x: wg.Tensor) -> wg.Tensor:
            return self.layer(x) - self.mean

    net = Net().train().eval().to("float64")
    net.load_state_dict(net.state_dict())
    params = dict(net.named_parameters())
    loss = lambda params: wg.nn.functional_call(net, params, wg.ones((1, 3), dtype=wg.float64)).sum()
    assert wg.grad(loss)(params)["layer.bias"].tolist() == [1.0, 1.0]
    assert wg.nn.init.kaiming_uniform(net.layer.weight) is net.layer.weight and wg.nn.init.xavier_normal
    assert wg.nn.functional is wg


def test_optimizers() -> None:
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion", "Adafactor"):
        p = wg.Parameter(wg.ones((2, 2)))
        opt = getattr(wg.optim, name)([p], lr=1e-3)
        grads = (p * p).sum().backward()
        opt.step()
        opt.step(grads)
        opt.apply_gradients([(p, wg.ones((2, 2)))])
        opt.zero_grad()
        opt.load_state_dict(opt.state_dict())
        params = {"w": p.detach()}
        state = type(opt).init(params)
        params, state = type(opt).update(params, params, state, lr=0.1)
        assert params["w"].shape == (2, 2) and state["step"].item() == 1.0
    wg.optim.Adam([p], lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    wg.optim.Adam(config=wg.AdamConfig(lr=1e-3)).apply_gradients([(p, wg.ones((2, 2)))])


def test_clipping_and_files(tmp_path: Path) -> None:
    p = wg.Parameter(wg.tensor([3.0, 4.0]))
    grads = (p * p).sum().backward()
    assert wg.clip_grad_norm(grads, 1.0) == 10.0 and wg.clip_grad_norm([p], 20.0) == 10.0
    wg.clip_grad_value([p], 7.0)
    assert p.grad.tolist() == [6.0, 7.0]
    assert wg.clip_by_global_norm([wg.tensor([3.0, 4.0])], 5.0)[0].tolist() == [3.0, 4.0]
    assert wg.clip_by_value([wg.tensor([3.0])], 1.0)[0].item() == 1.0
    assert wg.GradientClipper(1.0).clip_grads(grads).global_norm() == pytest.approx(1.0, rel=1e-5)
    wg.save(tmp_path / "model.safetensors", {"p": p})
    assert wg.load(tmp_path / "model.safetensors")["p"].tolist() == p.tolist()


def test_distributions() -> None:
    d = wg.stats.Normal(wg.tensor([0.0, 1.0]), 2.0)
    assert d.log_prob(0.5).shape == d.cdf(0.5).shape == d.entropy().shape == (2,) and d.sample((3,)).shape == (3, 2)
    assert wg.stats.kl(d, wg.stats.Normal(0.0, 2.0)).tolist() == [0.0, 0.125]
    loc = wg.tensor(1.0, requires_grad=True)
    assert wg.stats.Normal(loc, 2.0).sample((5,)).sum().backward()[loc].item() == 5.0


def test_trees() -> None:
    tree = {"w": wg.ones(2), "b": [wg.zeros(1), None]}
    doubled = wg.tree.map(lambda a, b: a + b, tree, tree)
    assert doubled["w"].tolist() == [2.0, 2.0] and doubled["b"][1] is None
    back = wg.tree.unflatten(wg.tree.structure(tree), wg.tree.leaves(tree))
    assert back["b"][0] is tree["b"][0]

    class Box:
        def __init__(self, content: object) -> None:
            self.content = content

    wg.tree.register(Box, lambda box: ((box.content,), None), lambda _, children: Box(*children))
    assert wg.tree.leaves(Box({"a": 1})) == [1]


def test_data_loaders() -> None:
    dataset = [(np.full(2, k, np.float32), k) for k in range(5)]
    loader = wg.data.DataLoader(
        dataset, batch_size=2, shuffle=False, num_workers=0, collate=None, drop_last=False, generator=None
    )
    assert [(tuple(x.shape), t.tolist()) for x, t in loader] == [((2, 2), [0, 1]), ((2, 2), [2, 3]), ((1, 2), [4])]
