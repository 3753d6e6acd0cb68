"""Every way to ask wengert for a value or a derivative of a program, to the third order, as the text of a short script.

A script has the arrays X (arguments), V and W (directions of them), C (cotangents of the results), the program `f` and
`g(*X)`, which is f in some wrapping. It leaves in `got` one tensor for each of X or C. Contracted with a direction of these
it is one number, which the oracle knows: ⟨c, f⟩, ⟨c, J v⟩, ⟨w, H v⟩ or ∂⟨w, H v⟩/∂w, with H the Hessian of `loss` = ⟨c, f⟩.
"""

from __future__ import annotations

from typing import NamedTuple

WRAPPINGS = {
    "plain": "def g(*xs):\n    return f(*xs, k, j)\n",
    "compiled": "F = wg.compile(f)\ndef g(*xs):\n    return F(*xs, k, j)\n",
    # Other sizes and numbers first: this call finds traces, sizes and buffers of theirs.
    "compiled, warm": """
F = wg.compile(f)
for others, other_k, other_j in earlier:
    F(*others, other_k, other_j)
def g(*xs):
    return F(*xs, k, j)
""",
    "compiled, warm in reverse": """
F = wg.compile(f)
for others, other_k, other_j in earlier:
    ys = F(*(x.requires_grad_() for x in others), other_k, other_j)
    wg.grad_of([y for y in ys if y.requires_grad], others, [y.detach() for y in ys if y.requires_grad], allow_unused=True)
def g(*xs):
    return F(*xs, k, j)
""",
    "closure over all but x": """
def g(x, y, r, s):
    return wg.compile(lambda x: f(x, y, r, s, k, j))(x)
""",
    "closure over x and the 0-d tensor": """
def g(x, y, r, s):
    return wg.compile(lambda y, r: f(x, y, r, s, k, j))(y, r)
""",
    "closure over everything": """
def g(*xs):
    return wg.compile(lambda: f(*xs, k, j))()
""",
    "compiled in compiled": """
F = wg.compile(f)
g = wg.compile(lambda *xs: F(*xs, k, j))
""",
    "containers": """
F = wg.compile(lambda p, numbers: f(p["x"], *p["others"], *numbers))
def g(x, *others):
    return F({"x": x, "others": others}, (k, j))
""",
    "saved and loaded": """
path = tempfile.mktemp(".wg")
wg.export(lambda *xs: f(*xs, k, j), *X, path=path)
g = wg.load_program(path)
os.remove(path)
""",
    "evaluated op by op": """
F = wg.compile(lambda *xs: f(*xs, k, j))
F(*(x.clone() for x in X))
P = simplify(F.traces[0].program)
def g(*xs):
    if len(P.inputs) > len(xs):
        return F(*xs)  # constants are further inputs, of which nothing is known here
    leaves = [(0, i, axis) for i, x in enumerate(xs) for axis in range(x.ndim)]
    return tuple(evaluate(P, xs, leaves, [n for x in xs for n in x.shape]))
""",
    "mapped": """
F = wg.vmap(f, (0, 0, 0, 0, None, None))
def g(*xs):
    return tuple(y[1] for y in F(*(wg.stack([x * 0.9, x]) for x in xs), k, j))
""",
    "mapped over some, along the last axis": """
F = wg.vmap(f, (-1, None, None, -1, None, None), -1)
def g(x, y, r, s):
    return tuple(a[..., 0] for a in F(wg.stack([x, x * 0.9], axis=-1), y, r, wg.stack([s, s], axis=-1), k, j))
""",
    "mapped twice, in compiled": """
F = wg.vmap(wg.vmap(lambda *xs: f(*xs, k, j)))
g = wg.compile(lambda *xs: tuple(y[1, 0] for y in F(*(wg.stack([wg.stack([x * 0.9] * 3), wg.stack([x] * 3)]) for x in xs))))
""",
}

# How the arrays become tensors.
LAYOUTS = {
    "copied": "def make(a):\n    return wg.tensor(a)\n",
    "shared": "def make(a):\n    return wg.asarray(a)\n",
    "seen by NumPy": "def make(a):\n    t = wg.tensor(a)\n    seen.append(t.numpy())\n    return t\nseen = []\n",
    "Fortran order": 'def make(a):\n    return wg.asarray(np.array(a, order="F"))\n',
    "every second": "def make(a):\n    return wg.asarray(np.repeat(a, 2, axis=0)[::2] if a.ndim else a)\n",
    "backwards": "def make(a):\n    return wg.asarray(np.array(a[::-1])[::-1] if a.ndim else a)\n",
}


# What the scripts below call; one that is not called is left out of the script.
HELPERS = {
    "loss": "def loss(*xs):\n    return inner(g(*xs), C)\n",
    "inner": """
def inner(xs, ys):
    return sum((x * y).sum() for x, y in zip(xs, ys) if x is not None)
""",
    "tracked": """
def tracked(y):  # also where the program does not depend on the arguments
    return y if isinstance(y, wg.Tensor) and y.requires_grad else y + sum(x.sum() * 0.0 for x in X)
""",
    "recorded": """
def recorded(ys, cs=None):
    pairs = [(y, c) for y, c in zip(ys, cs or C) if y.requires_grad]
    return tuple(zip(*pairs)) if pairs else ([tracked(0.0)], [None])
""",
    "contracted": """
def contracted(jacobian):  # [result][argument]
    by_argument = list(zip(*jacobian))
    return [sum(np.tensordot(c, array(j), c.ndim) for c, j in zip(map(array, C), row)) for row in by_argument]
""",
    "applied": """
def applied(jacobian):  # [argument][argument]
    return [sum(np.tensordot(array(j), v, v.ndim) for j, v in zip(row, map(array, V))) for row in jacobian]
""",
    "like_arguments": """
def like_arguments(flat):  # of a vector of all elements
    parts = np.split(flat, np.cumsum([x.size for x in X])[:-1])
    return [part.reshape(tuple(x.shape)) for part, x in zip(parts, X)]
""",
    "flat": "def flat(xs):\n    return np.concatenate([array(x).ravel() for x in xs])\n",
    "coloured": """
def coloured(compute):  # small matrices, too, are searched for colours
    from wengert.transforms import compressed, jacobian
    least, compressed.LEAST, jacobian.LEAST = compressed.LEAST, 1, 1
    try:
        return compute()
    finally:
        compressed.LEAST = jacobian.LEAST = least
""",
    "held": """
def held(derive):  # to less memory, in every way: the same bits
    derive()  # what is made once stays
    gc.collect()
    base = wg.memory_stats().live_bytes
    wg.reset_peak()
    expected, seen = wg.fingerprint(derive()), wg.memory_stats()
    most = seen.peak_bytes - base
    strategies = [("full",), ("block", 1 + most % 3), ("selective", 3, 1e9), ("selective", 3, 2)]
    ways = [wg.CheckpointConfig(*how, offload=where) for how in strategies for where in (None, "disk")]
    limits = [base + int(share * most) for share in (0.9, 0.75, 0.6, 0.45, 0.3, 0.15)]
    for limit in [*[None] * len(ways), *limits]:
        wg.reset_peak()
        try:
            with wg.checkpointing(ways.pop()) if limit is None else wg.memory_budget(limit / 2**20):
                found = derive()
        except wg.BudgetError:
            assert limit is not None
            continue
        assert limit is None or wg.memory_stats().peak_bytes <= limit, limit
        assert wg.fingerprint(found) == expected, limit
        del found
        gc.collect()
        # Less, if what programs of earlier cases held is freed meanwhile.
        assert wg.memory_stats().live_bytes <= base, (limit, wg.memory_stats().live_bytes - base)
    return derive()
""",
    "array": "def array(t):\n    return t.detach().numpy() if isinstance(t, wg.Tensor) else np.asarray(t)\n",
}


class Mode(NamedTuple):
    """`of`: what the result is contracted with, X or C; `order`: of the derivative. Code that says `leaves` gets X as
    leaves."""

    order: int
    of: str
    code: str


_ALL = "argnums=(0, 1, 2, 3)"

VALUES = {
    "value": "got = g(*X)",
    "value, called twice": "g(*X)\ngot = g(*X)",
    "value under no_grad": "with wg.no_grad():\n    got = g(*X)",
    "value of leaves": "got = g(*leaves)",
    "value beside a gradient": "got = wg.vjp(g, *X)[0]",
    "value beside a tangent": "got = wg.jvp(g, tuple(X), tuple(V))[0]",
}
GRADIENTS = {
    "vjp": "got = wg.vjp(g, *X)[1](tuple(C))",
    "vjp, pulled twice": "pull = wg.vjp(g, *X)[1]\npull(tuple(c * 2.0 for c in C))\ngot = pull(tuple(C))",
    "vjp, compiled": "got = wg.compile(lambda xs, cs: wg.vjp(g, *xs)[1](cs))(tuple(X), tuple(C))",
    "grad": f"got = wg.grad(loss, {_ALL})(*X)",
    "grad, compiled": f"got = wg.compile(wg.grad(loss, {_ALL}))(*X)",
    "grad beside a tangent": f"got = wg.jvp(wg.grad(loss, {_ALL}), tuple(X), tuple(V))[0]",
    "backward": "tracked(loss(*leaves)).backward()\ngot = [x.grad for x in leaves]",
    "backward, twice": """
y = tracked(loss(*leaves))
y.backward(retain_graph=True)
once = [None if x.grad is None else x.grad.clone() for x in leaves]
y.backward()
got = [None if x.grad is None else x.grad - before for x, before in zip(leaves, once)]
""",
    "backward inside compiled": """
def step(*xs):
    xs = [x * 1.0 for x in xs]
    grads = loss(*xs).backward(inputs=xs)
    return [wg.zeros_like(x) if grads.get(x) is None else grads[x] for x in xs]
got = wg.compile(step)(*leaves)
""",
    "grad_of with seeds": """
ys, seeds = recorded(g(*leaves))
got = wg.grad_of(ys, leaves, seeds, allow_unused=True)
""",
    "grad_of, walked three times": """
ys, seeds = recorded(g(*leaves))
for _ in range(3):
    got = wg.grad_of(ys, leaves, seeds, allow_unused=True, retain_graph=True)
""",
    "backward, held to less memory": """
def derive():
    ys, seeds = recorded(g(*leaves))
    return wg.grad_of(ys, leaves, seeds, allow_unused=True)
got = held(derive)
""",
    "tape, held to less memory": """
def derive():
    with wg.GradientTape(persistent=True) as tape:
        y = loss(*X)
    tape.gradient(y, X)
    return tape.gradient(y, X)
got = held(derive)
""",
    "tape": "with wg.GradientTape() as tape:\n    y = loss(*X)\ngot = tape.gradient(y, X)",
    "tape with seeds": """
with wg.GradientTape() as tape:
    ys = g(*X)
got = tape.gradient(ys, X, output_gradients=C)
""",
    "persistent tape": """
with wg.GradientTape(persistent=True) as tape:
    y = loss(*X)
tape.gradient(y, X)
got = tape.gradient(y, X)
""",
    "jacrev": f"got = contracted(wg.jacrev(g, {_ALL})(*X))",
    "jacfwd": f"got = contracted(wg.jacfwd(g, {_ALL})(*X))",
    "jacobian": f"got = contracted(wg.jacobian(g, {_ALL})(*X))",
    "jacobian by colours": f"got = contracted(coloured(lambda: wg.compile(wg.jacobian(g, {_ALL}))(*X)))",
    "jacobian, sparse": f"got = like_arguments(flat(C) @ wg.jacobian(g, {_ALL}, sparse=True)(*X))",
    "jacobian, sparse by columns": f"""
got = like_arguments(flat(C) @ wg.jacobian(g, "forward", {_ALL}, sparse=True)(*X))
""",
    "jacrev, compiled": f"got = contracted(wg.compile(wg.jacrev(g, {_ALL}))(*X))",
    "jacfwd, compiled": f"got = contracted(wg.compile(wg.jacfwd(g, {_ALL}))(*X))",
    "grad, mapped": f"""
got = [t[1] for t in wg.vmap(wg.grad(loss, {_ALL}))(*(wg.stack([x * 0.9, x]) for x in X))]
""",
    "vjp, mapped over cotangents": """
got = [t[1] for t in wg.vmap(lambda *cs: wg.vjp(g, *X)[1](cs))(*(wg.stack([c * 2.0, c]) for c in C))]
""",
}
TANGENTS = {
    "jvp": "got = wg.jvp(g, tuple(X), tuple(V))[1]",
    "jvp, compiled": "got = wg.compile(lambda xs, vs: wg.jvp(g, xs, vs)[1])(tuple(X), tuple(V))",
    "duals": """
with wg.ForwardADContext() as context:
    ys = g(*(context.dual(x, v) for x, v in zip(X, V)))
    got = [y.tangent if isinstance(y, wg.DualTensor) else None for y in ys]
""",
    "linearize": "y, push = wg.linearize(g, *X)\npush(*W)\ngot = push(*V)",
    "jvp, mapped over tangents": """
got = [t[1] for t in wg.vmap(lambda *vs: wg.jvp(g, tuple(X), vs)[1])(*(wg.stack([w, v]) for v, w in zip(V, W)))]
""",
    # The pullback is linear in the cotangent: its gradient by that is J v.
    "gradient by the cotangent": """
bars = [c.requires_grad_() for c in C]
ys, seeds = recorded(g(*leaves), bars)
pulled = wg.grad_of(ys, leaves, seeds, create_graph=True, allow_unused=True)
got = wg.grad_of([tracked(inner(pulled, V))], bars, allow_unused=True)
""",
}
SECOND = {
    "hvp": "got = wg.hvp(lambda p: loss(*p), tuple(X), tuple(V))",
    "hvp, compiled": "got = wg.compile(lambda xs, vs: wg.hvp(lambda p: loss(*p), xs, vs))(tuple(X), tuple(V))",
    "grad of grad": f"got = wg.grad(lambda *p: inner(wg.grad(loss, {_ALL})(*p), V), {_ALL})(*X)",
    "grad of jvp": f"got = wg.grad(lambda *p: wg.jvp(loss, p, tuple(V))[1], {_ALL})(*X)",
    "jvp of vjp": "got = wg.jvp(lambda *p: wg.vjp(g, *p)[1](tuple(C)), tuple(X), tuple(V))[1]",
    "vjp of grad": f"got = wg.vjp(wg.grad(loss, {_ALL}), *X)[1](tuple(V))",
    "grad of compiled grad": (f"got = wg.grad(lambda *p: inner(wg.compile(wg.grad(loss, {_ALL}))(*p), V), {_ALL})(*X)"),
    "jvp of compiled grad": f"got = wg.jvp(wg.compile(wg.grad(loss, {_ALL})), tuple(X), tuple(V))[1]",
    "jacfwd of grad": "got = applied(wg.jacfwd(wg.grad(lambda p: loss(*p)))(tuple(X)))",
    "jacrev of grad": "got = applied(wg.jacrev(wg.grad(lambda p: loss(*p)))(tuple(X)))",
    "hessian": "got = applied(wg.hessian(lambda p: loss(*p))(tuple(X)))",
    "hessian, compiled": "got = applied(wg.compile(wg.hessian(lambda p: loss(*p)))(tuple(X)))",
    "hessian by colours": "got = applied(coloured(lambda: wg.compile(wg.hessian(lambda p: loss(*p)))(tuple(X))))",
    "hessian, sparse": "got = like_arguments(wg.hessian(lambda p: loss(*p), sparse=True)(tuple(X)) @ flat(V))",
    "hvp, mapped over directions": """
products = wg.vmap(lambda *vs: wg.hvp(lambda p: loss(*p), tuple(X), vs))
got = [t[1] for t in products(*(wg.stack([w, v]) for v, w in zip(V, W)))]
""",
    "create_graph": """
pulled = wg.grad_of([tracked(loss(*leaves))], leaves, create_graph=True, allow_unused=True)
got = wg.grad_of([tracked(inner(pulled, V))], leaves, allow_unused=True)
""",
    "backward with create_graph": """
grads = tracked(loss(*leaves)).backward(create_graph=True)
grads = tracked(inner([grads.get(x) for x in leaves], V)).backward(inputs=leaves)
got = [grads.get(x) for x in leaves]
""",
    "create_graph, held to less memory": """
def derive():
    pulled = wg.grad_of([tracked(loss(*leaves))], leaves, create_graph=True, allow_unused=True)
    return wg.grad_of([tracked(inner(pulled, V))], leaves, allow_unused=True)
got = held(derive)
""",
    "nested tapes": """
with wg.GradientTape() as outer:
    with wg.GradientTape() as tape:
        y = loss(*X)
    dot = tracked(inner(tape.gradient(y, X), V))
got = outer.gradient(dot, X)
""",
}
THIRD = {
    "grad of hvp": f"got = wg.grad(lambda *p: inner(wg.hvp(lambda q: loss(*q), p, tuple(V)), W), {_ALL})(*X)",
    "jvp of hvp": "got = wg.jvp(lambda *p: wg.hvp(lambda q: loss(*q), p, tuple(V)), tuple(X), tuple(W))[1]",
    "hvp of jvp": "got = wg.hvp(lambda p: wg.jvp(loss, p, tuple(V))[1], tuple(X), tuple(W))",
    "third gradient": f"""
first = wg.grad(loss, {_ALL})
second = wg.grad(lambda *p: inner(first(*p), V), {_ALL})
got = wg.grad(lambda *p: inner(second(*p), W), {_ALL})(*X)
""",
    "third gradient, compiled": f"""
first = wg.grad(loss, {_ALL})
second = wg.grad(lambda *p: inner(first(*p), V), {_ALL})
got = wg.compile(wg.grad(lambda *p: inner(second(*p), W), {_ALL}))(*X)
""",
    "create_graph, twice": """
pulled = wg.grad_of([tracked(loss(*leaves))], leaves, create_graph=True, allow_unused=True)
pulled = wg.grad_of([tracked(inner(pulled, V))], leaves, create_graph=True, allow_unused=True)
got = wg.grad_of([tracked(inner(pulled, W))], leaves, allow_unused=True)
""",
}
MODES = {
    **{name: Mode(0, "C", code) for name, code in VALUES.items()},
    **{name: Mode(1, "X", code) for name, code in GRADIENTS.items()},
    **{name: Mode(1, "C", code) for name, code in TANGENTS.items()},
    **{name: Mode(2, "X", code) for name, code in SECOND.items()},
    **{name: Mode(3, "X", code) for name, code in THIRD.items()},
}
