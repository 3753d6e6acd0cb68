"""The site: it builds without warnings, explains every public name, needs no network, and opens in a browser."""

from __future__ import annotations

import doctest
import fcntl
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tools.site import links, names, navigation, notebooks, reference
from tools.site.names import PAGES, by_path, public_names

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        ROOT / "core/README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks/results").glob("*.md"),
    ]
)
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, also where several processes share the tests."""
    pytest.importorskip("mkdocs", reason="make docs installs it")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "index.html").exists():
            _build(folder)
    return folder


def _build(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "--site-dir", str(folder)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, cwd=ROOT, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


class _Page(HTMLParser):
    """What a page has: ids, links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    return {str(p.relative_to(site)): _Page(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}


def test_every_public_name_has_a_place(pages: dict[str, _Page]) -> None:
    missing = []
    for path in by_path():
        page, _, anchor = reference.anchor(path).partition("#")
        if anchor not in pages[f"reference/{page.removesuffix('.md')}.html"].ids:
            missing.append(path)
    assert not missing


def test_the_reference_explains_no_builtin_types(site: Path) -> None:
    """What class attributes would say of themselves: that a tuple is an immutable sequence."""
    for page in (site / "reference").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "Built-in immutable sequence" not in text and "Convert a number or string" not in text, page.name


def test_pages_of_the_reference_are_by_module() -> None:
    modules = [module for _, _, listed in PAGES for module in listed.split()]
    assert len(modules) == len(set(modules)), "a module is on two pages"
    assert len({name.path for name in public_names()}) == len(public_names()) > 800


@pytest.mark.parametrize("module", [links, names])
def test_examples_of_the_builder(module: Any) -> None:
    tried = doctest.testmod(module)
    assert tried.attempted and not tried.failed


def test_links_lead_somewhere(pages: dict[str, _Page]) -> None:
    broken = []
    for name, page in pages.items():
        for target in page.links:
            path, _, fragment = target.partition("#")
            if re.match(r"[a-z]+:", target) or name == "404.html":
                continue
            wanted = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if wanted.endswith(".html") and (wanted not in pages or (fragment and fragment not in pages[wanted].ids)):
                broken.append(f"{name}: {target}")
    assert not broken


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, _Page], site: Path) -> None:
    loaded = {(name, url) for name, page in pages.items() for url in page.loads}
    assert not [entry for entry in loaded if re.match(r"(https?:)?//", entry[1])]
    for name, url in loaded:
        if not url.startswith(("data:", "#")) and name != "404.html":
            assert (site / os.path.dirname(name) / url.partition("?")[0]).resolve().exists(), (name, url)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_images_of_documents_exist(document: Path) -> None:
    """As files of the repository, where people read them without the site."""
    text = links.CODE.sub("", document.read_text(encoding="utf-8"))
    for _, _, target in links.LINK.findall(text):
        if not re.match(r"[a-z]+:|#", target):
            assert (document.parent / target.partition("#")[0]).exists(), target


OPENED = [
    "index.html",
    "coming-from/pytorch.html",
    "reference/activations.html",
    "tutorial/2-gradients.html",
    "examples.html",
]


def _open(url: str, folder: Path) -> str:
    """The page after its scripts have run; nothing may have been written to the console."""
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000",
            "--enable-logging=stderr", f"--user-data-dir={folder}", "--dump-dom", url,
        ],
        capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=120,
    )  # fmt: skip
    assert "</html>" in done.stdout, done.stderr
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line], url
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_pages_open_without_errors(site: Path, tmp_path: Path) -> None:
    for page in OPENED:
        _open((site / page).as_uri(), tmp_path)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_search_works_without_a_server(site: Path, tmp_path: Path) -> None:
    found = re.search(r"(\d+) matching documents", _open((site / "index.html").as_uri() + "?q=hessian", tmp_path))
    assert found and int(found[1]) > 10


@pytest.mark.parametrize("name", [p.stem for p in navigation.tutorial()])
def test_notebooks_run(name: str) -> None:
    nbclient = pytest.importorskip("nbclient", reason="runs notebooks")
    nbformat = pytest.importorskip("nbformat", reason="reads notebooks")
    pytest.importorskip("ipykernel", reason="runs notebooks")
    made = notebooks.notebook((ROOT / "docs/tutorial" / f"{name}.md").read_text(encoding="utf-8"))
    notebook = nbformat.from_dict(made)
    nbformat.validate(notebook)
    expected = [_printed(cell) for cell in notebook.cells]
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(ROOT)}}).execute()
    assert [_printed(cell) for cell in notebook.cells] == expected
    pictures = [o for cell in notebook.cells for o in cell.get("outputs", ()) if o.output_type == "execute_result"]
    assert all({"image/png", "image/svg+xml"} & set(picture.data) for picture in pictures)


def _printed(cell: Any) -> str:
    return "".join(o.text for o in cell.get("outputs", ()) if o.output_type == "stream" and o.name == "stdout")
