"""Run by test_host.py, with a GPU played by the CPU: times in profiles are those of the GPU."""

from __future__ import annotations

from typing import Any

import wengert as wg
from wengert import _core

NUMBER = wg.cuda.device_number(0)


def ops_have_their_times() -> None:
    """Without waiting while it runs: events are recorded around what is seen, and read at the end."""
    x = wg.ones(100, device="cuda")
    wg.tanh(x)
    before = _core.cuda_counters(NUMBER)["waits"]
    with wg.profile() as p:
        for _ in range(3):
            y = wg.tanh(x) + 1.0
        assert _core.cuda_counters(NUMBER)["waits"] == before
    rows = {r.name: r for r in p.by_op()}
    assert rows["tanh"].calls == 3
    assert rows["tanh"].on_device > 0
    assert rows["add"].on_device > 0
    assert "on the GPU" in p.table()
    assert y.shape == (100,)
    with wg.profile() as p:
        wg.tanh(wg.ones(100))
    assert all(r.on_device == 0 for r in p.by_op())
    assert "on the GPU" not in p.table()


def programs_and_graphs() -> None:
    """A graph counts once, as what it is: the program."""

    @wg.compile
    def f(x: Any, w: Any) -> Any:
        for _ in range(6):
            x = wg.tanh(x @ w)
        return x

    w = wg.ones(3, 3, device="cuda") * 0.1
    for inside in (False, True):
        for _ in range(2):
            with wg.profile(inside=inside) as p:
                for _ in range(4):
                    f(w, w)
            total = sum(r.on_device for r in p.by_op())
            assert total > 0
            with wg.cuda.stream(wg.cuda.Stream()), wg.profile(inside=inside) as p:
                f(w, w)
            assert sum(r.on_device for r in p.by_op()) > 0
            assert all(r.on_device >= 0 for r in p.by_line())


def main() -> None:
    ops_have_their_times()
    programs_and_graphs()


if __name__ == "__main__":
    main()
