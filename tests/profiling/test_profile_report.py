"""The page of a profile: whole, self-contained, and usable in a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import wengert as wg
from tests.profiling import chromium

SECTIONS = ("summary", "timeline", "flame", "memory", "tape", "gradients", "tables")


class Block(wg.nn.Module):
    def __init__(self, n: int) -> None:
        self.first = wg.nn.Linear(n, 2 * n)
        self.second = wg.nn.Linear(2 * n, n)

    def forward(self, x: Any) -> Any:
        return x + self.second(wg.tanh(self.first(x)))


class Network(wg.nn.Module):
    def __init__(self) -> None:
        self.blocks = [Block(8) for _ in range(3)]
        self.head = wg.nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        for b in self.blocks:
            x = b(x)
        return self.head(x)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Network()
    opt = wg.optim.Adam(net.parameters(), lr=0.01)
    x = wg.randn((16, 8))
    with wg.profile() as p:
        for _ in range(4):
            opt.step((net(x) ** 2).mean().backward())
    path = tmp_path_factory.mktemp("report") / "report.html"
    p.report(path, 'A title with <b> & "quotes"')
    return path


class _Reader(HTMLParser):
    """Checks that elements close in order; collects ids, addresses and the text of scripts."""

    VOID = ("meta", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.scripts: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        self.addresses += [str(given[k]) for k in ("src", "href", "action") if k in given]
        self._script = str(given.get("id") or "code") if tag == "script" else ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def test_the_page_is_well_formed_and_refers_to_nothing_outside(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    reader = _Reader()
    reader.feed(text)
    assert not reader.open and not reader.addresses
    assert len(reader.ids) == len(set(reader.ids))
    without_names = text.replace("http://www.w3.org/2000/svg", "")  # the name of a language, not an address
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest|WebSocket", without_names)
    assert "default-src 'none'" in text and "[[" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "A title with &lt;b&gt; &amp; &quot;quotes&quot;" in text
    for element in re.findall(r'byId\("([\w-]+)"\)', reader.scripts["code"]):
        assert element in reader.ids, element


def test_the_data_is_there(page: Path) -> None:
    reader = _Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    data = json.loads(reader.scripts["data"])
    assert data["totals"]["ops"] == len(data["events"]["start"]) > 50
    assert {r["name"] for r in data["tables"]["op"]} >= {"linear", "tanh", "adam update"}
    assert any(r["name"] == "Network.blocks.2.first" for r in data["tables"]["module"])
    for flame in data["flames"].values():
        _check_flame(flame)
    nodes = data["tape"]["nodes"]
    assert not data["tape"]["truncated"] and len(nodes) > 20
    assert all(s < k for k, n in enumerate(nodes) for s in n["sources"])
    assert any(n["path"] == ["Network", "blocks", "1", "second"] and n["name"] == "weight" for n in nodes)
    assert any(n["forward"] > 0 and n["backward"] > 0 for n in nodes)
    gradients = data["gradients"]
    assert gradients["steps"] == 4 and len(gradients["rows"]) == 14
    assert all(len(r["norms"]) == len(gradients["seen"]) for r in gradients["rows"])
    assert data["memory"]["peak_bytes"] == max(sum(column) for column in zip(*data["memory"]["categories"].values()))


def _check_flame(node: dict[str, Any]) -> None:
    inner = node.get("c", [])
    assert sum(c["v"] for c in inner) <= node["v"] * 1.000001
    for child in inner:
        _check_flame(child)


def test_a_profile_of_nothing_has_a_page(tmp_path: Path) -> None:
    with wg.profile() as p:
        pass
    p.report(tmp_path / "empty.html")
    assert '"ops":0' in (tmp_path / "empty.html").read_text(encoding="utf-8")


def test_what_is_not_finite_is_written_all_the_same(tmp_path: Path) -> None:
    w = wg.Parameter.ones((2,))
    opt = wg.optim.SGD([w], lr=0.1)
    with wg.profile() as p:
        opt.step((w * float("nan")).sum().backward())
    p.report(tmp_path / "nan.html")
    data = json.loads(p.to_json())
    assert data["gradients"]["rows"][0]["norms"] == [None] and data["gradients"]["rows"][0]["not_finite"] == 2


def test_long_tapes_are_folded_and_the_page_stays_small(tmp_path: Path) -> None:
    x = wg.ones((2,), requires_grad=True)
    with wg.profile() as p:
        y = x
        for _ in range(3000):
            y = y * 1.001
        y.sum().backward()
    p.report(tmp_path / "long.html")
    assert (tmp_path / "long.html").stat().st_size < 4e6
    nodes = json.loads(p.to_json())["tape"]["nodes"]
    assert len(nodes) == 3002 and len({tuple(n["path"]) for n in nodes}) <= 3


def test_paths_that_cannot_be_written_raise(tmp_path: Path) -> None:
    with wg.profile() as p:
        pass
    with pytest.raises(OSError):
        p.report(tmp_path / "no" / "folder.html")


needs_chromium = pytest.mark.skipif(chromium.find() is None, reason="no Chromium is installed")


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_in_a_browser(page: Path, width: int, dark: bool, tmp_path: Path) -> None:
    with chromium.Browser(width, dark=dark) as b:
        b.open(page)
        assert b.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
        assert b.run("document.querySelector('h1').textContent") == 'A title with <b> & "quotes"'
        for section in SECTIONS:
            b.press(f'nav button[data-to="{section}"]')
            assert b.run("[...document.querySelectorAll('main > section')].filter(s => !s.hidden).map(s => s.id)") == [
                f"s-{section}"
            ]
            assert b.run("document.documentElement.scrollWidth") <= width, section
            b.screenshot(tmp_path / f"{section}.png")
        _use_the_timeline(b)
        _use_the_flame_graph(b)
        _use_the_tape(b)
        _use_the_tables(b)
        b.press("#theme")
        assert b.run("document.documentElement.dataset.theme") == ("light" if dark else "dark")
        assert b.errors == []
        assert b.requests == [page.resolve().as_uri()]


def _use_the_timeline(b: chromium.Browser) -> None:
    b.press('nav button[data-to="timeline"]')
    for button in ("in", "in", "out", "all"):
        b.press(f"#timeline-{button}")
    b.run(  # the longest op, where it is drawn
        "(() => { const e = data.events, k = e.length.indexOf(Math.max(...e.length)), c = document.querySelector('canvas'),"
        " r = c.getBoundingClientRect(), x = r.left + (e.start[k] + e.length[k] / 2) / data.totals.seconds * r.width,"
        " y = r.top + 34 + 26 + 10; for (const t of ['pointerdown', 'pointerup'])"
        " c.dispatchEvent(new PointerEvent(t, {clientX: x, clientY: y, pointerId: 1, bubbles: true})); })()"
    )
    assert "after the start" in b.run("byId('timeline-detail').textContent")


def _use_the_flame_graph(b: chromium.Browser) -> None:
    b.press('nav button[data-to="flame"]')
    assert b.run("document.querySelectorAll('#flame-plot rect').length") > 5
    b.press("#flame-plot g:nth-child(3) rect")
    b.press('[data-flame="module"]')
    assert "Network" in b.run("byId('flame-plot').textContent")


def _use_the_tape(b: chromium.Browser) -> None:
    b.press('nav button[data-to="tape"]')
    shown = "document.querySelectorAll('#tape-plot .tape-box').length"
    b.press("#tape-fold")
    folded = b.run(shown)
    b.press("#tape-plot .tape-box.group")
    opened = b.run(shown)
    b.press("#tape-unfold")
    assert folded < opened < b.run(shown)
    for button in ("in", "out", "fit"):
        b.press(f"#tape-{button}")
    b.press("#tape-open button")
    assert b.run(shown) <= opened


def _use_the_tables(b: chromium.Browser) -> None:
    b.press('nav button[data-to="tables"]')
    for table in ("line", "module", "op"):
        b.press(f'[data-table="{table}"]')
        assert b.run("document.querySelectorAll('#table tbody tr').length") > 2
    b.press("#table th:first-child")
    names = b.run("[...document.querySelectorAll('#table tbody td:first-child')].map(e => e.textContent)")
    assert names == sorted(names) and len(names) > 2
    b.run("(() => { const f = byId('table-filter'); f.value = 'tanh'; f.dispatchEvent(new Event('input')); })()")
    assert b.run("document.querySelectorAll('#table tbody tr').length") == 1
